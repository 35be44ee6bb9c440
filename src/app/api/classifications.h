/* Results of classifiers of texts and of images. */
#pragma once

#include "norma/classifier.h"

struct nm_classifications {
    size_t n, n_classes;
    double *probabilities; /* [n, n_classes] */
    bool *truncated;       /* [n] */
    char **names;          /* [n_classes] */
};

/* Results of n examples without values. names: [n_classes], copied. */
nm_classifications *nm_classifications_create(size_t n, size_t n_classes, const char *const *names);
