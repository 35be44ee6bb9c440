#include "model/model_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bf16.h"
#include "base/int8.h"
#include "norma/norm_type.h"

static void *alloc_block(nm_host_copies *copies, size_t bytes)
{
    NM_GROW(copies->blocks, copies->n, copies->capacity);
    return copies->blocks[copies->n++] = nm_allocate(bytes);
}

const void *nm_host_copies_add(nm_host_copies *copies, nm_backend *backend, const void *device, size_t bytes)
{
    const void *view = nm_backend_view(backend, device);
    if (view)
        return view;
    void *block = alloc_block(copies, bytes);
    nm_backend_download(backend, block, device, bytes);
    return block;
}

void nm_host_copies_release(nm_host_copies *copies)
{
    nm_free_list(copies->blocks, copies->n);
    *copies = (nm_host_copies){0};
}

nm_tensor_type nm_model_file_dtype(const nm_backend *backend)
{
    return backend->dtype == NM_F64 ? NM_TENSOR_F64 : NM_TENSOR_F32;
}

static bool is_folded(const nm_params *params, const nm_tensor *tensor)
{
    for (size_t n = 0; n < params->n_norms; n++)
        for (int i = 0; params->norms[n]->folded && i < params->norms[n]->shape.n_params; i++)
            if (params->norms[n]->params[i] == tensor->data)
                return true;
    return false;
}

static void scale_name(char *name, size_t bytes, const char *matrix)
{
    snprintf(name, bytes, "%s.scale", matrix);
}

static nm_status add_int8(nm_safetensors_writer *writer, const nm_params *params, const nm_tensor *tensor,
                          nm_host_copies *copies, nm_error *err)
{
    const int64_t shape[2] = {tensor->rows, tensor->cols};
    size_t cols = (size_t)tensor->cols, n = (size_t)tensor->rows * cols;
    NM_ASSERT(params->backend->dtype == NM_F32);
    const float *numbers = nm_host_copies_add(copies, params->backend, tensor->data, n * sizeof *numbers);
    int8_t *quantized = alloc_block(copies, n);
    float *scales = alloc_block(copies, (size_t)tensor->rows * sizeof *scales);
    for (int32_t r = 0; r < tensor->rows; r++) {
        size_t at = (size_t)r * cols;
        scales[r] = nm_int8_quantize_row(numbers + at, tensor->cols, quantized + at);
        if (!isfinite(scales[r]))
            return nm_fail(err, NM_DIVERGED, "row %d of '%s' is not finite and cannot be quantized to int8",
                           (int)r, tensor->name);
    }
    char name[192];
    scale_name(name, sizeof name, tensor->name);
    nm_safetensors_add(writer, tensor->name, NM_TENSOR_I8, 2, shape, quantized);
    nm_safetensors_add(writer, name, NM_TENSOR_F32, 1, shape, scales);
    return NM_OK;
}

static nm_status add_bf16(nm_safetensors_writer *writer, const nm_params *params, const nm_tensor *tensor,
                          nm_host_copies *copies, nm_error *err)
{
    const int64_t shape[2] = {tensor->rows, tensor->cols};
    size_t n = (size_t)tensor->rows * (size_t)tensor->cols;
    NM_ASSERT(params->backend->dtype == NM_F32);
    const float *numbers = nm_host_copies_add(copies, params->backend, tensor->data, n * sizeof *numbers);
    uint16_t *rounded = alloc_block(copies, n * sizeof *rounded);
    for (size_t i = 0; i < n; i++) {
        float number = nm_bf16_round(numbers[i]);
        uint32_t bits;
        if (!isfinite(number))
            return nm_fail(err, NM_DIVERGED, "row %zu of '%s' is not finite in bf16",
                           i / (size_t)tensor->cols, tensor->name);
        memcpy(&bits, &number, sizeof bits);
        rounded[i] = (uint16_t)(bits >> 16);
    }
    nm_safetensors_add(writer, tensor->name, NM_TENSOR_BF16, 2, shape, rounded);
    return NM_OK;
}

static nm_status add_params(nm_safetensors_writer *writer, const nm_params *params, nm_weight_format format,
                            nm_host_copies *copies, nm_error *err)
{
    size_t unit = nm_dtype_bytes(params->backend->dtype);
    for (size_t i = 0; i < params->n; i++) {
        const nm_tensor *tensor = &params->list[i]->tensor;
        if (is_folded(params, tensor))
            continue;
        if (format != NM_WEIGHTS_FLOAT && nm_param_is_int8(params->list[i])) {
            NM_TRY((format == NM_WEIGHTS_INT8 ? add_int8 : add_bf16)(writer, params, tensor, copies, err));
            continue;
        }
        const int64_t shape[2] = {tensor->rows, tensor->cols};
        bool vector = tensor->rows == 1;
        const void *data = nm_host_copies_add(copies, params->backend, tensor->data,
                                              (size_t)tensor->rows * (size_t)tensor->cols * unit);
        nm_safetensors_add(writer, tensor->name, nm_model_file_dtype(params->backend), vector ? 1 : 2,
                           vector ? shape + 1 : shape, data);
    }
    return NM_OK;
}

/* Name of a vector or counter of a norm, for example "enc.0.self.norm.running_mean". */
static void slot_name(char *name, size_t bytes, const nm_norm *norm, const char *slot)
{
    snprintf(name, bytes, "%s.%s", norm->site.name, slot);
}

static void add_norms(nm_safetensors_writer *writer, const nm_params *params, nm_host_copies *copies)
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
                writer, name, nm_model_file_dtype(params->backend), 1, &length,
                nm_host_copies_add(copies, params->backend, norm->state[i], (size_t)length * unit));
        }
        for (int i = 0; i < norm->shape.n_counters; i++) {
            slot_name(name, sizeof name, norm, norm->shape.counters[i]);
            nm_safetensors_add(writer, name, NM_TENSOR_I64, 0, NULL, &norm->counters[i]);
        }
    }
}

nm_status nm_model_file_add(nm_safetensors_writer *writer, const nm_model *model, nm_weight_format format,
                            nm_host_copies *copies, nm_error *err)
{
    NM_TRY(add_params(writer, &model->params, format, copies, err));
    add_norms(writer, &model->params, copies);
    return nm_backend_check(model->backend, err);
}

static nm_status load_vector(const nm_safetensors *file, const char *name, nm_backend *backend, void *device,
                             size_t n, nm_error *err)
{
    const nm_safetensor *found;
    NM_TRY(nm_safetensors_expect(file, name, nm_model_file_dtype(backend), n, &found, err));
    nm_backend_upload(backend, device, found->data, found->bytes);
    return NM_OK;
}

/* Dequantizes an int8 matrix. */
static nm_status load_int8(const nm_safetensors *file, nm_backend *backend, const nm_tensor *tensor,
                           nm_error *err)
{
    size_t rows = (size_t)tensor->rows, cols = (size_t)tensor->cols;
    size_t unit = nm_dtype_bytes(backend->dtype);
    const nm_safetensor *quantized, *scales;
    char name[192];
    scale_name(name, sizeof name, tensor->name);
    NM_TRY(nm_safetensors_expect(file, tensor->name, NM_TENSOR_I8, rows * cols, &quantized, err));
    NM_TRY(nm_safetensors_expect(file, name, NM_TENSOR_F32, rows, &scales, err));
    NM_AUTO_FREE void *numbers = nm_allocate(rows * cols * unit);
    nm_status status = NM_OK;
    for (size_t r = 0; r < rows && status == NM_OK; r++) {
        float scale;
        memcpy(&scale, (const char *)scales->data + r * sizeof scale, sizeof scale);
        if (!(isfinite(scale) && scale >= 0))
            status = nm_fail(err, NM_FORMAT, "%s: tensor '%s': %g in row %zu is not a valid int8 scale",
                             nm_safetensors_path(file), name, (double)scale, r);
        for (size_t i = r * cols; i < (r + 1) * cols && status == NM_OK; i++) {
            float number = scale * (float)((const int8_t *)quantized->data)[i];
            if (backend->dtype == NM_F64)
                ((double *)numbers)[i] = (double)number;
            else
                ((float *)numbers)[i] = number;
        }
    }
    if (status == NM_OK)
        nm_backend_upload(backend, tensor->data, numbers, rows * cols * unit);
    return status;
}

static nm_status load_bf16(const nm_safetensors *file, nm_backend *backend, const nm_tensor *tensor,
                           nm_error *err)
{
    size_t n = (size_t)tensor->rows * (size_t)tensor->cols, unit = nm_dtype_bytes(backend->dtype);
    const nm_safetensor *found;
    NM_TRY(nm_safetensors_expect(file, tensor->name, NM_TENSOR_BF16, n, &found, err));
    NM_AUTO_FREE void *numbers = nm_allocate(n * unit);
    for (size_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, (const char *)found->data + i * sizeof half, sizeof half);
        float number = nm_bf16_value(half);
        if (backend->dtype == NM_F64)
            ((double *)numbers)[i] = (double)number;
        else
            ((float *)numbers)[i] = number;
    }
    nm_backend_upload(backend, tensor->data, numbers, n * unit);
    return NM_OK;
}

/* Whether a tensor can be used in place in the mapped file. */
static bool can_stay(const nm_safetensor *found, nm_backend *backend, const nm_tensor *tensor)
{
    return found->type == nm_model_file_dtype(backend) &&
           found->count == (size_t)tensor->rows * (size_t)tensor->cols &&
           (uintptr_t)found->data % nm_dtype_bytes(backend->dtype) == 0 &&
           nm_backend_view(backend, tensor->data) == tensor->data;
}

static nm_status load_param(const nm_safetensors *file, nm_backend *backend, nm_tensor *tensor, bool map,
                            nm_error *err)
{
    const nm_safetensor *found = nm_safetensors_find(file, tensor->name);
    if (found && found->type == NM_TENSOR_I8)
        return load_int8(file, backend, tensor, err);
    if (found && found->type == NM_TENSOR_BF16)
        return load_bf16(file, backend, tensor, err);
    if (map && found && can_stay(found, backend, tensor)) {
        tensor->data = (void *)(uintptr_t)found->data;
        return NM_OK;
    }
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
        NM_TRY(nm_safetensors_expect(file, name, NM_TENSOR_I64, 1, &found, err));
        memcpy(&norm->counters[i], found->data, sizeof norm->counters[i]);
    }
    return NM_OK;
}

static nm_status load_model(const nm_safetensors *file, nm_model *model, bool map, nm_error *err)
{
    nm_params *params = &model->params;
    for (size_t i = 0; i < params->n; i++)
        NM_TRY(load_param(file, params->backend, &params->list[i]->tensor, map, err));
    if (map)
        nm_params_bind_norms(params);
    for (size_t n = 0; n < params->n_norms; n++)
        NM_TRY(load_norm(file, params->backend, params->norms[n], err));
    return NM_OK;
}

nm_status nm_model_file_load(const nm_safetensors *file, nm_model *model, nm_error *err)
{
    return load_model(file, model, false, err);
}

nm_status nm_model_file_map(nm_safetensors *file, nm_model *model, nm_error *err)
{
    NM_ASSERT(!model->params.grads);
    return load_model(file, model, nm_safetensors_make_writable(file), err);
}

/* Elements are copied in blocks, because the data may be unaligned in files of other toolkits. */
static bool is_finite_tensor(const nm_safetensor *tensor)
{
    enum { BLOCK = 1024 };
    const char *data = tensor->data;
    bool finite = true;
    for (size_t first = 0; first < tensor->count && finite; first += BLOCK) {
        size_t n = tensor->count - first < BLOCK ? tensor->count - first : BLOCK;
        uint64_t f64[BLOCK], infinite = 0;
        uint32_t f32[BLOCK];
        uint16_t bf16[BLOCK];
        if (tensor->type == NM_TENSOR_BF16) {
            memcpy(bf16, data + first * sizeof *bf16, n * sizeof *bf16);
            for (size_t i = 0; i < n; i++)
                infinite |= (bf16[i] & 0x7f80) == 0x7f80;
        } else if (tensor->type == NM_TENSOR_F64) {
            memcpy(f64, data + first * sizeof *f64, n * sizeof *f64);
            for (size_t i = 0; i < n; i++)
                infinite |= (f64[i] & 0x7ff0000000000000) == 0x7ff0000000000000;
        } else {
            memcpy(f32, data + first * sizeof *f32, n * sizeof *f32);
            for (size_t i = 0; i < n; i++)
                infinite |= (f32[i] & 0x7f800000) == 0x7f800000;
        }
        finite = !infinite;
    }
    return finite;
}

nm_status nm_model_file_check_finite(const nm_safetensors *file, nm_error *err)
{
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, i);
        bool floating =
            tensor->type == NM_TENSOR_F32 || tensor->type == NM_TENSOR_F64 || tensor->type == NM_TENSOR_BF16;
        if (floating && !is_finite_tensor(tensor))
            return nm_fail(err, NM_DIVERGED,
                           "%s: tensor '%s' has values that are not finite (NaN or infinity)",
                           nm_safetensors_path(file), tensor->name);
    }
    return NM_OK;
}

/* Whether a is a later version than b, both MAJOR.MINOR.PATCH. */
static bool is_later(const char *a, const char *b)
{
    int x[3] = {0}, y[3] = {0};
    sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2]);
    sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2]);
    for (int i = 0; i < 3; i++)
        if (x[i] != y[i])
            return x[i] > y[i];
    return false;
}

nm_status nm_model_file_explain(const nm_safetensors *file, nm_status status, nm_error *err)
{
    const char *version = nm_safetensors_metadata(file, "norma");
    bool of_settings =
        status == NM_USAGE || status == NM_FORMAT || status == NM_MISMATCH || status == NM_UNSUPPORTED;
    if (!err || !of_settings || !version || !is_later(version, NORMA_VERSION))
        return status;
    NM_AUTO_FREE char *text = nm_duplicate(err->text);
    nm_fail(err, NM_UNSUPPORTED, "%s (written by a later version, norma %.31s; this is norma %s)", text,
            version, NORMA_VERSION);
    return NM_UNSUPPORTED;
}

nm_status nm_model_file_not_a_model(const nm_safetensors *file, nm_error *err)
{
    const char *path = nm_safetensors_path(file);
    if (nm_safetensors_find(file, "optimizer.m"))
        return nm_fail(err, NM_FORMAT,
                       "%s: a training state, not a model of Norma; the models of a run are its "
                       "best.safetensors and checkpoints/NUMBER.safetensors",
                       path);
    return nm_fail(err, NM_FORMAT,
                   "%s: not a Norma model: task or configuration is missing; norma convert reads models of "
                   "other toolkits",
                   path);
}
