/* What norms per token and per feature share: parameter vectors made whole, and sums over rows kept in double
 * per block of NM_NORM_ROWS rows and joined by the number of the block. */
#ifndef NM_NORM_PARTS_H
#define NM_NORM_PARTS_H

#include "backend/cpu/kernel.h"

enum { NM_NORM_ROWS = 64, NM_NORM_QUAD = 4 /* rows done together */ };

/* Floats of a vector of d with room for a whole vector after its end. */
NM_INLINE size_t nm_padded(int32_t d)
{
    return (size_t)nm_round_up(d, 16) + 16;
}

/* Copies a parameter of length d, repeats one of length 1, and fills in `otherwise` for a missing one. */
NM_INLINE const float *nm_whole_vector(const float *given, int32_t length, int32_t d, float otherwise,
                                       float *to)
{
    for (int32_t j = 0; j < d; j++)
        to[j] = !given || length == 0 ? otherwise : given[length == 1 ? 0 : j];
    for (int32_t j = d; j < (int32_t)nm_padded(d); j++)
        to[j] = 0;
    return to;
}

/* sum over blocks of partials[block * stride + j] */
NM_INLINE double nm_join(const double *partials, int32_t blocks, size_t stride, int32_t j)
{
    double sum = 0;
    for (int32_t i = 0; i < blocks; i++)
        sum += partials[(size_t)i * stride + (size_t)j];
    return sum;
}

#endif
