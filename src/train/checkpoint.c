#include "train/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/int8.h"
#include "base/file.h"
#include "train/trainer.h"

/* ---- writing ---- */

const void *nm_copies_alloc(nm_copies *copies, nm_backend *backend, const void *device, size_t bytes)
{
    const void *view = nm_backend_view(backend, device);
    if (view)
        return view;
    NM_GROW(copies->blocks, copies->n, copies->capacity);
    void *block = copies->blocks[copies->n++] = nm_allocate(bytes);
    backend->k.download(backend, block, device, bytes);
    return block;
}

void nm_copies_release(nm_copies *copies)
{
    for (size_t i = 0; i < copies->n; i++)
        free(copies->blocks[i]);
    free(copies->blocks);
    *copies = (nm_copies){0};
}

nm_tensor_type nm_checkpoint_numbers(const nm_backend *backend)
{
    return backend->dtype == NM_F64 ? NM_TENSOR_F64 : NM_TENSOR_F32;
}

/* A norm that is joined with the maps behind it has nothing to say any more. */
static bool is_folded(const nm_params *params, const nm_tensor *tensor)
{
    for (size_t n = 0; n < params->n_norms; n++)
        for (int i = 0; params->norms[n]->folded && i < params->norms[n]->shape.n_params; i++)
            if (params->norms[n]->params[i] == tensor->data)
                return true;
    return false;
}

static void *take_block(nm_copies *copies, size_t bytes)
{
    NM_GROW(copies->blocks, copies->n, copies->capacity);
    return copies->blocks[copies->n++] = nm_allocate(bytes);
}

static void scale_name(char *name, size_t bytes, const char *matrix)
{
    snprintf(name, bytes, "%s.scale", matrix);
}

static nm_status add_int8(nm_safetensors_writer *writer, const nm_params *params, const nm_tensor *tensor,
                          nm_copies *copies, nm_error *err)
{
    const int64_t shape[2] = {tensor->rows, tensor->cols};
    size_t cols = (size_t)tensor->cols, n = (size_t)tensor->rows * cols;
    NM_ASSERT(params->backend->dtype == NM_F32);
    const float *numbers = nm_copies_alloc(copies, params->backend, tensor->data, n * sizeof *numbers);
    int8_t *whole = take_block(copies, n);
    float *scales = take_block(copies, (size_t)tensor->rows * sizeof *scales);
    for (int32_t r = 0; r < tensor->rows; r++) {
        size_t at = (size_t)r * cols;
        scales[r] = nm_int8_round_row(numbers + at, tensor->cols, whole + at);
        if (!isfinite(scales[r]))
            return nm_fail(err, NM_DIVERGED, "row %d of '%s' is not finite and has no form in int8", (int)r,
                           tensor->name);
    }
    char name[192];
    scale_name(name, sizeof name, tensor->name);
    nm_safetensors_add(writer, tensor->name, NM_TENSOR_I8, 2, shape, whole);
    nm_safetensors_add(writer, name, NM_TENSOR_F32, 1, shape, scales);
    return NM_OK;
}

static nm_status add_params(nm_safetensors_writer *writer, const nm_params *params, bool int8,
                            nm_copies *copies, nm_error *err)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    for (size_t i = 0; i < params->n; i++) {
        const nm_tensor *tensor = &params->list[i]->tensor;
        if (is_folded(params, tensor))
            continue;
        if (int8 && nm_param_is_int8(params->list[i])) {
            NM_TRY(add_int8(writer, params, tensor, copies, err));
            continue;
        }
        const int64_t shape[2] = {tensor->rows, tensor->cols};
        bool vector = tensor->rows == 1;
        const void *data = nm_copies_alloc(copies, params->backend, tensor->data,
                                           (size_t)tensor->rows * (size_t)tensor->cols * unit);
        nm_safetensors_add(writer, tensor->name, nm_checkpoint_numbers(params->backend), vector ? 1 : 2,
                           vector ? shape + 1 : shape, data);
    }
    return NM_OK;
}

/* "enc.0.self.norm.running_mean" */
static void slot_name(char *name, size_t bytes, const nm_norm *norm, const char *slot)
{
    snprintf(name, bytes, "%s.%s", norm->place.name, slot);
}

static void add_norms(nm_safetensors_writer *writer, const nm_params *params, nm_copies *copies)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    char name[192];
    for (size_t n = 0; n < params->n_norms; n++) {
        const nm_norm *norm = params->norms[n];
        if (norm->folded)
            continue;
        for (int i = 0; i < norm->shape.n_state; i++) {
            const int64_t length = norm->shape.state[i].length;
            slot_name(name, sizeof name, norm, norm->shape.state[i].name);
            nm_safetensors_add(
                writer, name, nm_checkpoint_numbers(params->backend), 1, &length,
                nm_copies_alloc(copies, params->backend, norm->state[i], (size_t)length * unit));
        }
        for (int i = 0; i < norm->shape.n_counters; i++) {
            slot_name(name, sizeof name, norm, norm->shape.counters[i]);
            nm_safetensors_add(writer, name, NM_TENSOR_I64, 0, NULL, &norm->counters[i]);
        }
    }
}

static void add_config(nm_safetensors_writer *writer, const nm_options *options, const nm_task_type *task)
{
    char *config = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&config, &bytes);
    NM_ASSERT(stream);
    nm_options *like = nm_options_create(); /* what belongs to a model; not where the run lived */
    nm_trainer_options_add(like, task);
    nm_options_write_like(options, like, stream);
    nm_options_free(like);
    fclose(stream);
    nm_safetensors_add_metadata(writer, "config", config);
    free(config);
}

static void add_texts(nm_safetensors_writer *writer, const nm_options *options, const nm_task *task,
                      int64_t update)
{
    add_config(writer, options, task->type);
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, update);
    nm_safetensors_add_metadata(writer, "update", text);
    nm_safetensors_add_metadata(writer, "norma", NORMA_VERSION);
    nm_safetensors_add_metadata(writer, "task", task->type->name);
    task->type->save(task, writer);
}

/* Frees the writer. status: of what went into it. */
static nm_status finish(nm_safetensors_writer *writer, nm_status status, const char *path, nm_error *err)
{
    if (status == NM_OK)
        return nm_safetensors_finish(writer, path, err);
    nm_safetensors_abandon(writer);
    return nm_while(err, "%s", path);
}

nm_status nm_checkpoint_write(const char *path, const nm_model *model, const nm_task *task, int64_t update,
                              nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_copies copies = {0};
    nm_status status = add_params(writer, &model->params, false, &copies, err);
    add_norms(writer, &model->params, &copies);
    add_texts(writer, model->options, task, update);
    status = finish(writer, status, path, err);
    nm_copies_release(&copies);
    return status;
}

nm_status nm_checkpoint_rewrite(const char *path, const nm_model *model, const nm_task_type *task, bool int8,
                                const nm_safetensors *like, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_copies copies = {0};
    nm_status status = add_params(writer, &model->params, int8, &copies, err);
    add_norms(writer, &model->params, &copies);
    nm_safetensors_copy_metadata(writer, like);
    add_config(writer, model->options, task);
    status = finish(writer, status, path, err);
    nm_copies_release(&copies);
    return status;
}

/* ---- reading ---- */

static nm_status load_vector(const nm_safetensors *file, const char *name, nm_backend *backend, void *device,
                             size_t n, nm_error *err)
{
    const nm_safetensor *found;
    NM_TRY(nm_safetensors_want(file, name, nm_checkpoint_numbers(backend), n, &found, err));
    backend->k.upload(backend, device, found->data, found->bytes);
    return NM_OK;
}

/* Numbers in int8 as those they stand for. */
static nm_status load_int8(const nm_safetensors *file, nm_backend *backend, const nm_tensor *tensor,
                           nm_error *err)
{
    size_t rows = (size_t)tensor->rows, cols = (size_t)tensor->cols;
    size_t unit = nm_dtype_bytes(backend->dtype);
    const nm_safetensor *whole, *scales;
    char name[192];
    scale_name(name, sizeof name, tensor->name);
    NM_TRY(nm_safetensors_want(file, tensor->name, NM_TENSOR_I8, rows * cols, &whole, err));
    NM_TRY(nm_safetensors_want(file, name, NM_TENSOR_F32, rows, &scales, err));
    void *numbers = nm_allocate(rows * cols * unit);
    nm_status status = NM_OK;
    for (size_t r = 0; r < rows && status == NM_OK; r++) {
        float scale;
        memcpy(&scale, (const char *)scales->data + r * sizeof scale, sizeof scale);
        if (!(isfinite(scale) && scale >= 0))
            status = nm_fail(err, NM_FORMAT, "%s: tensor '%s': %g in row %zu is no scale of int8 numbers",
                             nm_safetensors_path(file), name, (double)scale, r);
        for (size_t i = r * cols; i < (r + 1) * cols && status == NM_OK; i++) {
            float number = scale * (float)((const int8_t *)whole->data)[i];
            if (backend->dtype == NM_F64)
                ((double *)numbers)[i] = (double)number;
            else
                ((float *)numbers)[i] = number;
        }
    }
    if (status == NM_OK)
        backend->k.upload(backend, tensor->data, numbers, rows * cols * unit);
    free(numbers);
    return status;
}

static nm_status load_param(const nm_safetensors *file, nm_backend *backend, const nm_tensor *tensor,
                            nm_error *err)
{
    const nm_safetensor *found = nm_safetensors_find(file, tensor->name);
    if (found && found->type == NM_TENSOR_I8)
        return load_int8(file, backend, tensor, err);
    return load_vector(file, tensor->name, backend, tensor->data, (size_t)tensor->rows * (size_t)tensor->cols,
                       err);
}

static nm_status load_norm(const nm_safetensors *file, nm_backend *backend, nm_norm *norm, nm_error *err)
{
    char name[192];
    norm->folded = false;
    for (int i = 0; i < norm->shape.n_state; i++) {
        slot_name(name, sizeof name, norm, norm->shape.state[i].name);
        NM_TRY(load_vector(file, name, backend, norm->state[i], (size_t)norm->shape.state[i].length, err));
    }
    for (int i = 0; i < norm->shape.n_counters; i++) {
        const nm_safetensor *found;
        slot_name(name, sizeof name, norm, norm->shape.counters[i]);
        NM_TRY(nm_safetensors_want(file, name, NM_TENSOR_I64, 1, &found, err));
        memcpy(&norm->counters[i], found->data, sizeof norm->counters[i]);
    }
    return NM_OK;
}

nm_status nm_checkpoint_load(const nm_safetensors *file, nm_model *model, nm_error *err)
{
    nm_params *params = &model->params;
    for (size_t i = 0; i < params->n; i++)
        NM_TRY(load_param(file, params->backend, &params->list[i]->tensor, err));
    for (size_t n = 0; n < params->n_norms; n++)
        NM_TRY(load_norm(file, params->backend, params->norms[n], err));
    return NM_OK;
}

/* ---- averaging ---- */

/* Each file has scales of its own. */
static nm_status check_float(const nm_safetensors *file, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(file); i++)
        if (nm_safetensors_at(file, i)->type == NM_TENSOR_I8)
            return nm_fail(err, NM_UNSUPPORTED,
                           "%s: a model in int8 cannot be averaged: average first, export then",
                           nm_safetensors_path(file));
    return NM_OK;
}

static nm_status check_same(const nm_safetensors *first, const nm_safetensors *other, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(first); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(first, i), *found;
        NM_TRY(nm_safetensors_want(other, tensor->name, tensor->type, tensor->count, &found, err));
    }
    return NM_OK;
}

/* Foreign files may hold unaligned numbers. */
static double number_at(const nm_safetensor *tensor, size_t index)
{
    double wide;
    float narrow;
    if (tensor->type == NM_TENSOR_F64) {
        memcpy(&wide, (const char *)tensor->data + index * sizeof wide, sizeof wide);
        return wide;
    }
    memcpy(&narrow, (const char *)tensor->data + index * sizeof narrow, sizeof narrow);
    return (double)narrow;
}

static void *average_tensor(nm_safetensors *const *files, int n, const nm_safetensor *like)
{
    void *mean = nm_allocate(like->bytes);
    for (size_t e = 0; e < like->count; e++) {
        double sum = 0;
        for (int f = 0; f < n; f++)
            sum += number_at(nm_safetensors_find(files[f], like->name), e);
        if (like->type == NM_TENSOR_F64)
            ((double *)mean)[e] = sum / n;
        else
            ((float *)mean)[e] = (float)(sum / n);
    }
    return mean;
}

static int newest_of(nm_safetensors *const *files, int n)
{
    int newest = 0;
    long long best = -1;
    for (int f = 0; f < n; f++) {
        const char *update = nm_safetensors_metadata(files[f], "update");
        long long value = update ? atoll(update) : 0;
        if (value > best) {
            best = value;
            newest = f;
        }
    }
    return newest;
}

static nm_status write_average(nm_safetensors *const *files, int n, const char *out, nm_error *err)
{
    const nm_safetensors *newest = files[newest_of(files, n)];
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_copies means = {0};
    for (size_t i = 0; i < nm_safetensors_count(newest); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(newest, i);
        const void *data = tensor->data;
        if (tensor->type == NM_TENSOR_F32 || tensor->type == NM_TENSOR_F64) {
            NM_GROW(means.blocks, means.n, means.capacity);
            data = means.blocks[means.n++] = average_tensor(files, n, tensor);
        }
        nm_safetensors_add(writer, tensor->name, tensor->type, tensor->rank, tensor->shape, data);
    }
    nm_safetensors_copy_metadata(writer, newest);
    nm_status status = nm_safetensors_finish(writer, out, err);
    nm_copies_release(&means);
    return status;
}

nm_status nm_checkpoint_average(const char *const *paths, int n, const char *out, nm_error *err)
{
    nm_safetensors **files = nm_allocate((size_t)n * sizeof *files);
    nm_status status = n > 0 ? NM_OK : nm_fail(err, NM_USAGE, "no model to average");
    for (int f = 0; f < n && status == NM_OK; f++) {
        status = nm_safetensors_open(&files[f], paths[f], err);
        if (status == NM_OK)
            status = check_float(files[f], err);
        if (status == NM_OK && f > 0)
            status = check_same(files[0], files[f], err);
        if (status == NM_OK && f > 0 && nm_safetensors_count(files[f]) != nm_safetensors_count(files[0]))
            status = nm_fail(err, NM_MISMATCH, "%s: has tensors that %s lacks", paths[f], paths[0]);
    }
    if (status == NM_OK)
        status = write_average(files, n, out, err);
    for (int f = 0; f < n; f++)
        nm_safetensors_close(files[f]);
    free(files);
    return status;
}
