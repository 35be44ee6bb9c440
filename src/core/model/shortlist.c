#include "model/shortlist.h"

#include "base/memory.h"

void nm_shortlist_release(nm_shortlist *self)
{
    NM_FREE(self->offsets, self->targets, self->allowed);
    nm_ids_release(&self->always);
    *self = (nm_shortlist){0};
}

static void select_ids(const int32_t *ids, size_t n, uint8_t *mark, nm_ids *selected)
{
    for (size_t i = 0; i < n; i++)
        if (!mark[ids[i]]) {
            mark[ids[i]] = 1;
            nm_ids_append(selected, ids[i]);
        }
}

static int ascending(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void nm_shortlist_select(const nm_shortlist *self, const int32_t *ids, int32_t n, const nm_ids *required,
                         uint8_t *mark, nm_ids *selected)
{
    const size_t first = selected->n;
    select_ids(self->always.data, self->always.n, mark, selected);
    for (size_t i = 0; i < required->n; i++)
        if (!self->allowed || self->allowed[required->data[i]])
            select_ids(&required->data[i], 1, mark, selected);
    for (int32_t i = 0; i < n; i++) {
        const size_t *range = &self->offsets[ids[i]];
        select_ids(self->targets + range[0], range[1] - range[0], mark, selected);
    }
    for (size_t i = first; i < selected->n; i++)
        mark[selected->data[i]] = 0;
    qsort(selected->data + first, selected->n - first, sizeof *selected->data, ascending);
}
