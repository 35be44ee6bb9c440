#include "api/classifications.h"

#include "base/memory.h"

nm_classifications *nm_classifications_create(size_t n, size_t n_classes, const char *const *names)
{
    nm_classifications *self = nm_allocate(sizeof *self);
    *self =
        (nm_classifications){.n = n,
                             .n_classes = n_classes,
                             .probabilities = nm_allocate((n + 1) * n_classes * sizeof *self->probabilities),
                             .truncated = nm_allocate((n + 1) * sizeof *self->truncated),
                             .names = nm_allocate((n_classes + 1) * sizeof *self->names)};
    for (size_t k = 0; k < n_classes; k++)
        self->names[k] = nm_duplicate(names[k]);
    return self;
}

/* The first of equally probable classes. */
static size_t best_of(const double *probabilities, size_t classes)
{
    size_t best = 0;
    for (size_t k = 1; k < classes; k++)
        best = probabilities[k] > probabilities[best] ? k : best;
    return best;
}

void nm_classifications_free(nm_classifications *self)
{
    if (!self)
        return;
    nm_free_list(self->names, self->n_classes);
    NM_FREE(self->probabilities, self->truncated, self);
}

size_t nm_classifications_n(const nm_classifications *self)
{
    return self ? self->n : 0;
}

const double *nm_classifications_probabilities(const nm_classifications *self, size_t text)
{
    return text < nm_classifications_n(self) ? self->probabilities + text * self->n_classes : NULL;
}

size_t nm_classifications_best(const nm_classifications *self, size_t text)
{
    const double *probabilities = nm_classifications_probabilities(self, text);
    return probabilities ? best_of(probabilities, self->n_classes) : 0;
}

const char *nm_classifications_label(const nm_classifications *self, size_t text)
{
    return text < nm_classifications_n(self) ? self->names[nm_classifications_best(self, text)] : NULL;
}

bool nm_classifications_truncated(const nm_classifications *self, size_t text)
{
    return text < nm_classifications_n(self) && self->truncated[text];
}
