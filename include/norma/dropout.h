/* A dropout site (Srivastava et al. 2014). The mask is a function of these numbers and is never stored
 * (src/core/base/random.h). */
#ifndef NORMA_DROPOUT_H
#define NORMA_DROPOUT_H

#include <stdint.h>

typedef struct nm_dropout {
    /* Fraction of elements dropped, rounded to 1/65536; 0 disables dropout. Kept values are scaled by 1 / (1
     * - rate). */
    double rate;
    uint64_t seed;
    uint32_t site, step; /* number of the site in the model, below 2^24; number of the micro-batch */
} nm_dropout;

#endif
