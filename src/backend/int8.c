/* Rows of weights as int8: see int8.h. */
#include "backend/int8.h"

float nm_int8_round_row(const float *row, int32_t n, int8_t *to)
{
    uint32_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = nm_int8_bits(row[i]) > most ? nm_int8_bits(row[i]) : most;
    float scale = nm_int8_weight_scale(nm_int8_largest(most));
    for (int32_t i = 0; i < n; i++)
        to[i] = scale > 0 ? (int8_t)rintf(row[i] / scale) : 0;
    return scale;
}
