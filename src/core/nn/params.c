#include "nn/params.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN_ELEMENTS = 16 };

void nm_params_init(nm_params *params, nm_backend *backend)
{
    *params = (nm_params){.backend = backend};
}

void nm_params_release(nm_params *params)
{
    nm_params_from_int8(params);
    for (size_t i = 0; i < params->n; i++)
        NM_FREE((void *)(uintptr_t)params->list[i]->tensor.name, params->list[i]);
    for (size_t i = 0; i < params->n_norms; i++)
        NM_FREE((void *)(uintptr_t)params->norms[i]->site.name, params->norms[i]);
    void *slabs[] = {params->values, params->grads, params->state, params->statistics};
    for (size_t i = 0; i < sizeof slabs / sizeof *slabs; i++)
        if (slabs[i])
            nm_backend_dealloc(params->backend, slabs[i]);
    NM_FREE(params->list, params->norms);
    nm_norm_assignments_release(&params->assignments);
    *params = (nm_params){0};
}

size_t nm_params_padded(size_t n)
{
    return (n + ALIGN_ELEMENTS - 1) / ALIGN_ELEMENTS * ALIGN_ELEMENTS;
}

static nm_param *add_named(nm_params *params, int32_t rows, int32_t cols, nm_init init, char *name)
{
    NM_ASSERT(!params->values && !nm_params_find(params, name));
    nm_param *param = nm_allocate(sizeof *param);
    *param = (nm_param){.tensor = {.rows = rows, .cols = cols, .name = name},
                        .init = init,
                        .row_factor = 1,
                        .offset = params->n_elements};
    params->n_elements += nm_params_padded((size_t)rows * (size_t)cols);
    NM_APPEND(params->list, params->n, params->capacity, param);
    return param;
}

nm_tensor *nm_params_add(nm_params *params, int32_t rows, int32_t cols, nm_init init, const char *name_format,
                         ...)
{
    char name[128];
    va_list args;
    va_start(args, name_format);
    vsnprintf(name, sizeof name, name_format, args);
    va_end(args);
    return &add_named(params, rows, cols, init, nm_duplicate(name))->tensor;
}

void nm_params_scale_rows(nm_tensor *matrix, int32_t first, double factor)
{
    nm_param *param = (nm_param *)matrix;
    param->scaled_from = first;
    param->row_factor = factor;
}

void nm_params_keep_exact(nm_tensor *matrix)
{
    ((nm_param *)matrix)->exact = true;
}

void nm_params_mark_hidden(nm_tensor *weight, const int32_t block_rows[NM_PARAM_BLOCKS])
{
    nm_param *param = (nm_param *)weight;
    int32_t rows = 0;
    for (int i = 0; i < NM_PARAM_BLOCKS; i++)
        rows += param->block_rows[i] = block_rows[i];
    NM_ASSERT(rows == weight->rows);
}

bool nm_param_is_hidden(const nm_param *param)
{
    return param->block_rows[0] > 0;
}

void nm_params_fix(nm_tensor *matrix)
{
    ((nm_param *)matrix)->fixed = true;
}

nm_status nm_params_assign_norms(nm_params *params, const char *at, nm_error *err)
{
    return nm_norm_assignments_parse(&params->assignments, at, err);
}

nm_status nm_params_check_assignments(const nm_params *params, nm_error *err)
{
    NM_AUTO_FREE const char **sites = nm_allocate(params->n_norms * sizeof *sites);
    for (size_t i = 0; i < params->n_norms; i++)
        sites[i] = params->norms[i]->site.name;
    return nm_norm_assignments_check(&params->assignments, sites, params->n_norms, err);
}

nm_status nm_params_add_norm(nm_params *params, const char *type, const nm_options *options,
                             const nm_norm_site *site, nm_norm **out, nm_error *err)
{
    char section[64];
    const nm_norm_assignment *assigned = nm_norm_assignments_apply(&params->assignments, site->name);
    type = assigned ? assigned->type : type;
    snprintf(section, sizeof section, "norm.%s", type);
    nm_norm *norm = nm_allocate(sizeof *norm);
    nm_norm_site copy = *site;
    copy.name = nm_duplicate(site->name);
    const nm_norm_config *config = nm_options_find(options, "norm");
    if (config && config->groups)
        copy.groups = (int32_t)config->groups;
    nm_status status = nm_norm_prepare(norm, type, nm_options_find(options, section), &copy, err);
    if (status != NM_OK) {
        NM_FREE((void *)(uintptr_t)copy.name, norm);
        return assigned ? nm_error_prefix(err, "norm.at: %s=%s", assigned->sites, type) : status;
    }
    norm->site.name = copy.name;
    for (int i = 0; i < norm->shape.n_params; i++) {
        const nm_norm_vector *v = &norm->shape.params[i];
        nm_param *param =
            add_named(params, 1, v->length, (nm_init){.kind = NM_INIT_CONSTANT, .scale = v->initial},
                      nm_format("%s.%s", site->name, v->name));
        param->fixed = v->fixed;
        param->decay_to = v->decay_to;
    }
    for (int i = 0; i < norm->shape.n_state; i++)
        params->n_state += nm_params_padded((size_t)norm->shape.state[i].length);
    params->n_statistics += (size_t)norm->shape.n_statistics * nm_params_padded((size_t)norm->site.width);
    NM_APPEND(params->norms, params->n_norms, params->norms_capacity, *out = norm);
    return NM_OK;
}

void nm_params_bind_norms(nm_params *params)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    char *state = params->state, *statistics = params->statistics;
    for (size_t n = 0; n < params->n_norms; n++) {
        nm_norm *norm = params->norms[n];
        norm->learns = false;
        for (int i = 0; i < norm->shape.n_params; i++) {
            char name[160];
            snprintf(name, sizeof name, "%s.%s", norm->site.name, norm->shape.params[i].name);
            nm_param *param = nm_params_find(params, name);
            norm->params[i] = param->tensor.data;
            norm->param_grads[i] = norm->shape.params[i].fixed ? NULL : param->tensor.grad;
            norm->learns |= !param->fixed;
            param->tensor.grad_written |= param->fixed; /* by the kernels of the norm */
        }
        for (int i = 0; i < norm->shape.n_state; i++) {
            norm->state[i] = state;
            state += nm_params_padded((size_t)norm->shape.state[i].length) * unit;
        }
        for (int i = 0; i < norm->shape.n_statistics; i++) {
            norm->statistics[i] = statistics;
            statistics += nm_params_padded((size_t)norm->site.width) * unit;
        }
    }
}

nm_status nm_params_allocate(nm_params *params, bool with_grads, nm_error *err)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    NM_TRY(nm_backend_alloc(params->backend, params->n_elements * unit, &params->values, err));
    if (with_grads)
        NM_TRY(nm_backend_alloc(params->backend, params->n_elements * unit, &params->grads, err));
    if (params->n_state)
        NM_TRY(nm_backend_alloc(params->backend, params->n_state * unit, &params->state, err));
    if (params->n_statistics)
        NM_TRY(nm_backend_alloc(params->backend, params->n_statistics * unit, &params->statistics, err));
    for (size_t i = 0; i < params->n; i++) {
        nm_param *param = params->list[i];
        param->tensor.data = (char *)params->values + param->offset * unit;
        param->tensor.grad = with_grads ? (char *)params->grads + param->offset * unit : NULL;
        param->tensor.grad_started = true;
        param->tensor.fixed = param->fixed;
    }
    nm_params_bind_norms(params);
    return NM_OK;
}

size_t nm_params_end(const nm_params *params, size_t i)
{
    return i + 1 < params->n ? params->list[i + 1]->offset : params->n_elements;
}

static bool is_skipped(const nm_param *param)
{
    return param->fixed && !param->tensor.grad_written;
}

size_t nm_params_skipped(const nm_params *params)
{
    size_t n = 0;
    for (size_t i = 0; i < params->n; i++)
        n += is_skipped(params->list[i]) ? nm_params_end(params, i) - params->list[i]->offset : 0;
    return n;
}

void nm_params_zero_grads(const nm_params *params, void *grads)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype), begin = 0;
    for (size_t i = 0; i <= params->n; i++) {
        const nm_param *param = i < params->n ? params->list[i] : NULL;
        size_t end = param ? param->offset : params->n_elements;
        if (param && !is_skipped(param))
            continue;
        if (end > begin)
            nm_backend_zero(params->backend, (char *)grads + begin * unit, (end - begin) * unit);
        begin = param ? nm_params_end(params, i) : end;
    }
}

void nm_params_bind(nm_params *params, void *grads, void *statistics)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    for (size_t i = 0; i < params->n; i++)
        params->list[i]->tensor.grad = (char *)grads + params->list[i]->offset * unit;
    for (size_t n = 0; n < params->n_norms; n++) {
        nm_norm *norm = params->norms[n];
        for (int i = 0; i < norm->shape.n_params; i++)
            if (norm->param_grads[i])
                norm->param_grads[i] = (char *)grads + ((char *)norm->params[i] - (char *)params->values);
        for (int i = 0; i < norm->shape.n_statistics; i++) {
            norm->statistics[i] = statistics;
            statistics = (char *)statistics + nm_params_padded((size_t)norm->site.width) * unit;
        }
    }
}

/* A bias has one row, whose elements are those of the rows of its weight. */
static void scale_rows(nm_backend *b, const nm_param *param)
{
    const nm_tensor *t = &param->tensor;
    int32_t cols = t->rows == 1 ? 1 : t->cols, rows = t->rows == 1 ? t->cols : t->rows;
    if (param->row_factor == 1 || param->scaled_from == rows)
        return;
    size_t skipped = (size_t)param->scaled_from * (size_t)cols * nm_dtype_bytes(b->dtype);
    nm_mat part = nm_mat_of((char *)t->data + skipped, rows - param->scaled_from, cols);
    NM_CALL(b, scale, .alpha = param->row_factor, .x = part, .y = part);
}

void nm_params_initialize(nm_params *params, uint64_t seed)
{
    nm_backend *b = params->backend;
    for (size_t i = 0; i < params->n; i++) {
        const nm_param *param = params->list[i];
        size_t elements = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
        NM_CALL(b, random_init, .init = param->init, .seed = seed, .site = (uint32_t)i, .n = elements,
                .out = param->tensor.data);
        scale_rows(b, param);
    }
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_initialize(params->norms[n], b);
}

static bool matches(const char *pattern, const char *name)
{
    char longer[256];
    snprintf(longer, sizeof longer, "%s.*", pattern);
    return !fnmatch(pattern, name, 0) || !fnmatch(longer, name, 0);
}

static nm_status freeze_pattern(nm_params *params, const char *pattern, nm_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < params->n; i++)
        if (matches(pattern, params->list[i]->tensor.name)) {
            params->list[i]->fixed = true;
            n++;
        }
    if (n)
        return NM_OK;
    const char *last = params->n ? params->list[params->n - 1]->tensor.name : "none";
    return nm_fail(err, NM_USAGE, "model.freeze: no parameter matches '%.100s'; they are %s, ..., %s",
                   pattern, params->n ? params->list[0]->tensor.name : "none", last);
}

nm_status nm_params_freeze(nm_params *params, const char *patterns, nm_error *err)
{
    nm_status status = NM_OK;
    char *list = nm_duplicate(patterns), *rest = list;
    for (char *pattern; status == NM_OK && (pattern = strsep(&rest, ",")) != NULL;) {
        pattern += strspn(pattern, " ");
        pattern[strcspn(pattern, " ")] = 0;
        if (*pattern)
            status = freeze_pattern(params, pattern, err);
    }
    free(list);
    if (status == NM_OK && *patterns && !nm_params_learned(params))
        return nm_fail(err, NM_USAGE, "model.freeze = %.200s leaves no parameter to train", patterns);
    return status;
}

nm_param *nm_params_find(const nm_params *params, const char *name)
{
    for (size_t i = 0; i < params->n; i++)
        if (!strcmp(params->list[i]->tensor.name, name))
            return params->list[i];
    return NULL;
}

size_t nm_params_learned(const nm_params *params)
{
    size_t total = 0;
    for (size_t i = 0; i < params->n; i++)
        if (!params->list[i]->fixed)
            total += (size_t)params->list[i]->tensor.rows * (size_t)params->list[i]->tensor.cols;
    return total;
}

size_t nm_params_bytes(const nm_params *params)
{
    return params->n_elements * nm_dtype_bytes(params->backend->dtype);
}

static size_t state_bytes(const nm_params *params)
{
    return params->n_state * nm_dtype_bytes(params->backend->dtype);
}

nm_status nm_params_copy(const nm_params *params, void **copy, nm_error *err)
{
    if (!*copy)
        NM_TRY(nm_backend_alloc(params->backend, nm_params_bytes(params), copy, err));
    nm_backend_copy(params->backend, *copy, params->values, nm_params_bytes(params));
    return NM_OK;
}

void nm_params_copy_free(nm_backend *backend, void **copy)
{
    if (*copy)
        nm_backend_dealloc(backend, *copy);
    *copy = NULL;
}

void nm_params_update_norms(nm_params *params, double grad_scale)
{
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_update_state(params->norms[n], params->backend, grad_scale);
}

void nm_params_add_statistics(nm_params *params, void *statistics, const double *rows)
{
    for (size_t n = 0; n < params->n_norms; n++) {
        nm_norm *norm = params->norms[n];
        void *earlier[NM_NORM_CAPACITY];
        for (int i = 0; i < norm->shape.n_statistics; i++)
            earlier[i] = (char *)statistics + ((char *)norm->statistics[i] - (char *)params->statistics);
        nm_norm_add_statistics(norm, params->backend, earlier, rows + n * NM_NORM_CAPACITY);
    }
}

void nm_params_get_rows(const nm_params *params, double *rows)
{
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(rows + n * NM_NORM_CAPACITY, params->norms[n]->collected_rows,
               sizeof params->norms[n]->collected_rows);
}

void nm_params_set_rows(nm_params *params, const double *rows)
{
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(params->norms[n]->collected_rows, rows + n * NM_NORM_CAPACITY,
               sizeof params->norms[n]->collected_rows);
}

nm_norm_snapshot nm_norm_snapshot_save(const nm_params *params)
{
    nm_norm_snapshot snapshot = {nm_allocate(state_bytes(params)),
                                 nm_allocate(params->n_norms * NM_NORM_CAPACITY * sizeof(int64_t))};
    if (params->n_state)
        nm_backend_download(params->backend, snapshot.state, params->state, state_bytes(params));
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(snapshot.counters + n * NM_NORM_CAPACITY, params->norms[n]->counters,
               sizeof params->norms[n]->counters);
    return snapshot;
}

void nm_norm_snapshot_restore(nm_norm_snapshot *snapshot, nm_params *params)
{
    if (params->n_state)
        nm_backend_upload(params->backend, params->state, snapshot->state, state_bytes(params));
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(params->norms[n]->counters, snapshot->counters + n * NM_NORM_CAPACITY,
               sizeof params->norms[n]->counters);
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_discard_statistics(params->norms[n]);
    NM_FREE(snapshot->state, snapshot->counters);
    *snapshot = (nm_norm_snapshot){0};
}
