#include "base/int8.h"

float nm_int8_quantize_row(const float *row, int32_t n, int8_t *to)
{
    uint32_t max_bits = 0;
    for (int32_t i = 0; i < n; i++)
        max_bits = nm_int8_bits(row[i]) > max_bits ? nm_int8_bits(row[i]) : max_bits;
    float scale = nm_int8_weight_scale(nm_int8_largest(max_bits));
    for (int32_t i = 0; i < n; i++)
        to[i] = scale > 0 ? (int8_t)rintf(row[i] / scale) : 0;
    return scale;
}
