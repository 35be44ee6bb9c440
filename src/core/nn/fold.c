/* Computed in double: each folded weight is rounded once. */
#include "nn/fold.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "norm/types.h"

void nm_fold_add_site(nm_fold *fold, nm_norm *norm, const char *option)
{
    const nm_norm_assignment *assignment = nm_norm_assignments_find(fold->assignments, norm->site.name);
    NM_APPEND(fold->sites, fold->n, fold->capacity,
              (nm_fold_site){.norm = norm,
                             .option = option,
                             .assignment = assignment ? (int)(assignment - fold->assignments->list) : -1});
}

void nm_fold_add_reader(nm_fold *fold, nm_tensor *weight, nm_tensor *bias)
{
    NM_ASSERT(fold->n);
    nm_fold_site *site = &fold->sites[fold->n - 1];
    NM_ASSERT(weight->cols == site->norm->site.width);
    NM_APPEND(site->readers, site->n_readers, site->readers_capacity, (nm_fold_linear){weight, bias});
}

static bool has_shift(const nm_fold_site *site)
{
    for (int32_t i = 0; i < site->norm->site.width; i++)
        if (site->shift[i] != 0)
            return true;
    return false;
}

/* Whether all readers can absorb the norm. Sets scale and shift if the norm is affine at inference. */
static bool can_fold(nm_fold_site *site, nm_backend *backend)
{
    const nm_norm *norm = site->norm;
    size_t width = (size_t)norm->site.width;
    if (!site->n_readers || norm->folded || !norm->type->affine)
        return false;
    site->scale = nm_allocate(2 * width * sizeof(double));
    site->shift = site->scale + width;
    if (!norm->type->affine(norm, backend, site->scale, site->shift))
        return false;
    for (size_t i = 0; i < site->n_readers; i++)
        if (!site->readers[i].bias && has_shift(site))
            return false;
    return true;
}

static bool share_option(const nm_fold_site *a, const nm_fold_site *b)
{
    return a->assignment == b->assignment && (a->assignment >= 0 || !strcmp(a->option, b->option));
}

static void fold_into(nm_backend *backend, const nm_fold_linear *linear, const double *scale,
                      const double *shift)
{
    size_t rows = (size_t)linear->weight->rows, cols = (size_t)linear->weight->cols;
    NM_AUTO_FREE double *weight = nm_mat_values(backend, nm_tensor_mat(linear->weight));
    NM_AUTO_FREE double *bias = linear->bias ? nm_mat_values(backend, nm_tensor_mat(linear->bias)) : NULL;
    for (size_t r = 0; r < rows; r++) {
        double *row = weight + r * cols, sum = 0;
        for (size_t c = 0; c < cols; c++) {
            sum += row[c] * shift[c];
            row[c] *= scale[c];
        }
        if (bias)
            bias[r] += sum;
    }
    nm_tensor_set(backend, linear->weight, 0, weight, rows * cols);
    if (bias)
        nm_tensor_set(backend, linear->bias, 0, bias, rows);
}

void nm_fold_run(nm_fold *fold, nm_backend *backend)
{
    NM_AUTO_FREE bool *foldable = nm_allocate(fold->n * sizeof *foldable);
    NM_AUTO_FREE bool *folds = nm_allocate(fold->n * sizeof *folds);
    for (size_t i = 0; i < fold->n; i++)
        folds[i] = foldable[i] = can_fold(&fold->sites[i], backend);
    for (size_t i = 0; i < fold->n; i++)
        for (size_t j = 0; j < fold->n; j++)
            folds[i] &= foldable[j] || !share_option(&fold->sites[i], &fold->sites[j]);
    for (size_t i = 0; i < fold->n; i++) {
        const nm_fold_site *site = &fold->sites[i];
        for (size_t r = 0; folds[i] && r < site->n_readers; r++)
            fold_into(backend, &site->readers[r], site->scale, site->shift);
        site->norm->folded |= folds[i];
    }
}

static void set_option(nm_options *options, const char *path, const char *value)
{
    nm_error err;
    nm_status status = nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err);
    NM_ASSERT(status == NM_OK);
}

static bool assignment_is_folded(const nm_fold *fold, size_t assignment)
{
    for (size_t i = 0; i < fold->n; i++)
        if (fold->sites[i].assignment == (int)assignment)
            return fold->sites[i].norm->folded;
    return false;
}

void nm_fold_write_options(const nm_fold *fold, nm_options *options)
{
    for (size_t i = 0; i < fold->n; i++) {
        const nm_norm *norm = fold->sites[i].norm;
        if (fold->sites[i].assignment < 0)
            set_option(options, fold->sites[i].option, norm->folded ? nm_norm_none.name : norm->type->name);
    }
    if (!fold->assignments->n)
        return;
    NM_AUTO_FREE char *text = nm_duplicate("");
    for (size_t a = 0; a < fold->assignments->n; a++) {
        const nm_norm_assignment *entry = &fold->assignments->list[a];
        nm_format_append(&text, "%s%s=%s", a ? "," : "", entry->sites,
                         assignment_is_folded(fold, a) ? nm_norm_none.name : entry->type);
    }
    set_option(options, "norm.at", text);
}

size_t nm_fold_count(const nm_fold *fold)
{
    size_t n = 0;
    for (size_t i = 0; i < fold->n; i++)
        n += fold->sites[i].norm->folded && fold->sites[i].norm->type != &nm_norm_none;
    return n;
}

void nm_fold_release(nm_fold *fold)
{
    for (size_t i = 0; i < fold->n; i++)
        NM_FREE(fold->sites[i].readers, fold->sites[i].scale);
    free(fold->sites);
    *fold = (nm_fold){0};
}
