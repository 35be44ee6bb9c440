#include "nn/positions.h"

#include <math.h>

#include "base/memory.h"

/* [sin(p w_k) | cos(p w_k)], fairseq's frequencies; p: position or distance. */
static double halves_entry(int32_t p, int32_t feature, int32_t d)
{
    int32_t half = d / 2;
    if (feature >= 2 * half)
        return 0; /* the last feature of an odd width is 0 */
    int32_t k = feature % half;
    double angle = p * (half > 1 ? exp(-log(10000.0) * k / (half - 1)) : 1.0);
    return feature < half ? sin(angle) : cos(angle);
}

static double tears_entry(int32_t position, int32_t feature, int32_t d)
{
    double angle = position * exp(-log(10000.0) * (feature - feature % 2) / d);
    return feature % 2 ? cos(angle) : sin(angle);
}

static double marian_entry(int32_t position, int32_t feature, int32_t d)
{
    int32_t half = (d + 1) / 2, k = feature % half;
    double angle = position * exp(-log(10000.0) * 2 * k / d);
    return feature < half ? sin(angle) : cos(angle);
}

static double entry(nm_position_kind kind, int32_t row, int32_t length, int32_t feature, int32_t d)
{
    switch (kind) {
    case NM_POSITIONS_FAIRSEQ:
        return halves_entry(row + 2, feature, d);
    case NM_POSITIONS_TENSOR2TENSOR:
        return halves_entry(row, feature, d);
    case NM_POSITIONS_RELATIVE:
        return halves_entry(row - length / 2, feature, d);
    case NM_POSITIONS_REVERSED:
        return marian_entry(length - 1 - row, feature, d);
    case NM_POSITIONS_MARIAN:
        return marian_entry(row, feature, d);
    default:
        return tears_entry(row, feature, d);
    }
}

void nm_positions_fill(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d, void *device)
{
    size_t n = (size_t)length * (size_t)d;
    NM_AUTO_FREE double *host = nm_allocate(n * sizeof *host);
    for (size_t i = 0; i < n; i++)
        host[i] = entry(kind, (int32_t)(i / (size_t)d), length, (int32_t)(i % (size_t)d), d);
    nm_backend_write(backend, device, host, n);
}

nm_status nm_positions_alloc(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d,
                             nm_mat *table, nm_error *err)
{
    void *memory;
    NM_TRY(
        nm_backend_alloc(backend, (size_t)length * (size_t)d * nm_dtype_bytes(backend->dtype), &memory, err));
    nm_positions_fill(backend, kind, length, d, memory);
    *table = nm_mat_of(memory, length, d);
    return NM_OK;
}

double nm_rope_frequency(const nm_rope_angles *angles, int32_t j, int32_t width)
{
    const double f = pow(angles->base, -2.0 * j / width), rotations = angles->original * f / (2 * M_PI);
    if (angles->scaling == NM_ROPE_UNSCALED ||
        (angles->scaling == NM_ROPE_LLAMA3 && rotations > angles->high))
        return f;
    if (angles->scaling == NM_ROPE_LINEAR || rotations < angles->low)
        return f / angles->factor;
    const double share = (rotations - angles->low) / (angles->high - angles->low);
    return (1 - share) * f / angles->factor + share * f;
}

nm_status nm_rotations_alloc(nm_backend *backend, int32_t length, int32_t width, const nm_rope_angles *angles,
                             nm_mat *table, nm_error *err)
{
    size_t n = (size_t)length * (size_t)width;
    void *memory;
    NM_TRY(nm_backend_alloc(backend, n * nm_dtype_bytes(backend->dtype), &memory, err));
    NM_AUTO_FREE double *host = nm_allocate(n * sizeof *host);
    int32_t half = width / 2;
    for (int32_t p = 0; p < length; p++)
        for (int32_t j = 0; j < half; j++) {
            double angle = p * nm_rope_frequency(angles, j, width), *row = host + (size_t)p * (size_t)width;
            row[j] = cos(angle);
            row[half + j] = sin(angle);
        }
    nm_backend_write(backend, memory, host, n);
    *table = nm_mat_of(memory, length, width);
    return NM_OK;
}

void nm_positions_dealloc(nm_backend *backend, nm_mat *table)
{
    if (table->data)
        nm_backend_dealloc(backend, table->data);
    *table = (nm_mat){0};
}
