/* Norms of padded tensors as in published implementations. BatchNorm, composed of two layers: rows are scaled
 * to a mean square of one, padding rows are overwritten with the mean of the real rows, and all rows are
 * normalized. Unified Normalization: padding rows are counted in a statistic of the gradient only. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"

typedef struct padded {
    int32_t rows, all, width; /* real rows come first */
    double *mean;             /* [width] */
} padded;

/* Appends to the real rows of `values` the padding rows, each equal to `last` (NULL: zero). */
static void *extended(const golden_case *test, const padded *p, const void *values, const double *last)
{
    size_t width = (size_t)p->width, real = (size_t)p->rows * width, count = (size_t)p->all * width;
    double *wide = nm_allocate(count * sizeof *wide);
    for (size_t i = 0; i < count; i++)
        wide[i] = i < real ? golden_real(test, values, i) : last ? last[i % width] : 0;
    void *reals = golden_reals(test, wide, count);
    free(wide);
    return reals;
}

/* Sums of rows first .. end - 1, over the number of real rows. */
static double *sums_over_real(const golden_case *test, const padded *p, const void *values, int32_t first,
                              int32_t end)
{
    double *sums = nm_allocate((size_t)p->width * sizeof *sums);
    for (int32_t i = first * p->width; i < end * p->width; i++)
        sums[i % p->width] += golden_real(test, values, (size_t)i) / p->rows;
    return sums;
}

/* The gradient of the real rows: their own, and that of the padding rows through the mean. */
static void *gathered(const golden_case *test, const padded *p, const void *d_all)
{
    size_t count = (size_t)p->rows * (size_t)p->width;
    double *own = nm_allocate(count * sizeof *own),
           *through = sums_over_real(test, p, d_all, p->rows, p->all);
    for (size_t i = 0; i < count; i++)
        own[i] = golden_real(test, d_all, i) + through[i % (size_t)p->width];
    void *reals = golden_reals(test, own, count);
    free(own);
    free(through);
    return reals;
}

golden_result golden_padded_train(golden_case *test, nm_norm *scaler, nm_norm *norm, const golden_rows *io,
                                  int32_t pads)
{
    nm_error err = {0};
    padded p = {.rows = io->rows, .all = io->rows + pads, .width = io->width};
    void *scaled = golden_reals(test, NULL, (size_t)p.rows * (size_t)p.width);
    nm_status status = nm_norm_forward(scaler, p.rows, io->x, scaled, &err);
    p.mean = sums_over_real(test, &p, scaled, 0, p.rows);
    void *x = extended(test, &p, scaled, p.mean), *dy = extended(test, &p, io->dy, NULL);
    void *y = extended(test, &p, scaled, NULL), *dx = extended(test, &p, scaled, NULL);
    if (status == NM_OK)
        status = nm_norm_forward(norm, p.all, x, y, &err);
    if (status == NM_OK)
        status = nm_norm_backward(norm, dy, dx, &err);
    void *d_scaled = gathered(test, &p, dx);
    if (status == NM_OK)
        status = nm_norm_backward(scaler, d_scaled, io->dx, &err);
    memcpy(io->y, y, (size_t)p.rows * (size_t)p.width * nm_dtype_bytes(test->backend->dtype));
    void *const owned[] = {scaled, p.mean, x, dy, y, dx, d_scaled};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

golden_result golden_padded_gradient_train(golden_case *test, nm_norm *norm, const golden_rows *io,
                                           int32_t pads)
{
    nm_error err = {0};
    padded p = {.rows = io->rows, .all = io->rows + pads, .width = io->width};
    size_t bytes = (size_t)p.rows * (size_t)p.width * nm_dtype_bytes(test->backend->dtype);
    double *root = nm_allocate((size_t)p.width * sizeof *root);
    for (size_t i = 0; i < (size_t)p.rows * (size_t)p.width; i++)
        root[i % (size_t)p.width] += pow(golden_real(test, io->x, i), 2) / p.rows;
    for (int32_t i = 0; i < p.width; i++)
        root[i] = sqrt(root[i]);
    void *x = extended(test, &p, io->x, root), *dy = extended(test, &p, io->dy, NULL);
    void *y = extended(test, &p, io->x, NULL), *dx = extended(test, &p, io->x, NULL);
    nm_status status = nm_norm_forward(norm, p.all, x, y, &err);
    if (status == NM_OK)
        status = nm_norm_backward(norm, dy, dx, &err);
    memcpy(io->y, y, bytes);
    memcpy(io->dx, dx, bytes);
    void *const owned[] = {root, x, dy, y, dx};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

golden_result golden_padded_infer(golden_case *test, nm_norm *scaler, nm_norm *norm, const golden_rows *io)
{
    nm_error err = {0};
    void *scaled = golden_reals(test, NULL, (size_t)io->rows * (size_t)io->width);
    nm_status status = nm_norm_infer(scaler, io->rows, io->x, scaled, &err);
    if (status == NM_OK)
        status = nm_norm_infer(norm, io->rows, scaled, io->y, &err);
    free(scaled);
    return status == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}
