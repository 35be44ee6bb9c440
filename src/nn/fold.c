/* See fold.h. Sums are in double, so that a folded model differs from the unfolded one by one rounding of each weight. */
#include "nn/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "norm/types.h"

void nm_fold_add_site(nm_fold *fold, nm_norm *norm, const char *option)
{
    NM_GROW(fold->sites, fold->n, fold->capacity);
    fold->sites[fold->n++] = (nm_fold_site){.norm = norm, .option = option};
}

void nm_fold_add_map(nm_fold *fold, nm_tensor *weight, nm_tensor *bias)
{
    NM_ASSERT(fold->n);
    nm_fold_site *site = &fold->sites[fold->n - 1];
    NM_ASSERT(weight->cols == site->norm->place.width);
    NM_GROW(site->maps, site->n_maps, site->maps_capacity);
    site->maps[site->n_maps++] = (nm_fold_map){weight, bias};
}

/* ---- numbers of device matrices ---- */

static size_t count_of(const nm_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->cols;
}

static double *get_numbers(nm_backend *backend, const nm_tensor *tensor)
{
    size_t n = count_of(tensor);
    double *wide = nm_allocate(n * sizeof *wide);
    nm_backend_read(backend, wide, tensor->data, n);
    return wide;
}

/* Frees the numbers. */
static void put_numbers(nm_backend *backend, const nm_tensor *tensor, double *wide)
{
    nm_backend_write(backend, tensor->data, wide, count_of(tensor));
    free(wide);
}

/* ---- which norms ---- */

static bool shifts(const nm_fold_site *site)
{
    for (int32_t i = 0; i < site->norm->place.width; i++)
        if (site->shift[i] != 0)
            return true;
    return false;
}

/* Asks the norm for its map. */
static bool can_join(nm_fold_site *site, nm_backend *backend)
{
    const nm_norm *norm = site->norm;
    size_t width = (size_t)norm->place.width;
    if (!site->n_maps || norm->folded || !norm->type->affine)
        return false;
    site->scale = nm_allocate(2 * width * sizeof(double));
    site->shift = site->scale + width;
    if (!norm->type->affine(norm, backend, site->scale, site->shift))
        return false;
    for (size_t m = 0; m < site->n_maps; m++)
        if (!site->maps[m].bias && shifts(site))
            return false;
    return true;
}

static void keep_all_of(nm_fold *fold, const char *option, bool *joins)
{
    for (size_t i = 0; i < fold->n; i++)
        if (!strcmp(fold->sites[i].option, option))
            joins[i] = false;
}

/* ---- joining ---- */

static void join_map(nm_backend *backend, const nm_fold_map *map, const double *scale, const double *shift)
{
    size_t rows = (size_t)map->weight->rows, cols = (size_t)map->weight->cols;
    double *weight = get_numbers(backend, map->weight);
    double *bias = map->bias ? get_numbers(backend, map->bias) : NULL;
    for (size_t r = 0; r < rows; r++) {
        double *row = weight + r * cols, sum = 0;
        for (size_t c = 0; c < cols; c++) {
            sum += row[c] * shift[c];
            row[c] *= scale[c];
        }
        if (bias)
            bias[r] += sum;
    }
    put_numbers(backend, map->weight, weight);
    if (bias)
        put_numbers(backend, map->bias, bias);
}

void nm_fold_run(nm_fold *fold, nm_backend *backend)
{
    bool *joins = nm_allocate(fold->n * sizeof *joins);
    for (size_t i = 0; i < fold->n; i++)
        joins[i] = can_join(&fold->sites[i], backend);
    for (size_t i = 0; i < fold->n; i++)
        if (!joins[i])
            keep_all_of(fold, fold->sites[i].option, joins);
    for (size_t i = 0; i < fold->n; i++) {
        const nm_fold_site *site = &fold->sites[i];
        for (size_t m = 0; joins[i] && m < site->n_maps; m++)
            join_map(backend, &site->maps[m], site->scale, site->shift);
        site->norm->folded |= joins[i];
    }
    free(joins);
}

void nm_fold_say(const nm_fold *fold, nm_options *options)
{
    for (size_t i = 0; i < fold->n; i++) {
        const nm_norm *norm = fold->sites[i].norm;
        nm_error err;
        nm_status status =
            nm_options_set(options, fold->sites[i].option,
                           norm->folded ? nm_norm_none.name : norm->type->name, NM_ORIGIN_COMMAND, &err);
        NM_ASSERT(status == NM_OK);
    }
}

size_t nm_fold_count(const nm_fold *fold)
{
    size_t n = 0;
    for (size_t i = 0; i < fold->n; i++)
        n += fold->sites[i].norm->folded;
    return n;
}

void nm_fold_release(nm_fold *fold)
{
    for (size_t i = 0; i < fold->n; i++) {
        free(fold->sites[i].maps);
        free(fold->sites[i].scale);
    }
    free(fold->sites);
    *fold = (nm_fold){0};
}
