/* Which elements a dropout site drops: derived from these numbers alone, never stored (src/base/random.h). */
#ifndef NORMA_DROPOUT_H
#define NORMA_DROPOUT_H

#include <stdint.h>

typedef struct nm_dropout {
    double rate; /* share dropped, rounded to 1/65536; 0: nothing; kept values are scaled by 1/(1 - rate) */
    uint64_t seed;
    uint32_t site, step; /* which place in the model (< 2^24), which micro-batch */
} nm_dropout;

#endif
