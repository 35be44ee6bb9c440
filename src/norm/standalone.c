/* Standalone normalization layers: the functions of include/norma/norm.h.
 *
 * The layer and its callers use host memory, so that the kernels of the backend must access host memory (ref and cpu do).
 * Vectors of one call are blocks that the next call reuses: training allocates nothing after the largest batch. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/safetensors.h"
#include "norma/norm_type.h"

enum { ALIGNMENT = 64, MAX_BLOCKS = 64 };

typedef struct block {
    void *data;
    size_t bytes;
} block;

typedef struct standalone {
    nm_backend *backend;
    nm_options *options;
    char *name;
    nm_norm_call call; /* the last one */
    bool pending;      /* forward has run, backward has not */
    block blocks[MAX_BLOCKS];
    int n_used;
    bool exhausted; /* an allocation of this call failed */
} standalone;

static void *aligned_memory(size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rounded < bytes ? NULL : aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
}

/* nm_norm_call.alloc */
static void *alloc_block(void *allocator, size_t bytes)
{
    standalone *owner = allocator;
    NM_ASSERT(owner->n_used < MAX_BLOCKS);
    block *next = &owner->blocks[owner->n_used++];
    if (!owner->exhausted && next->bytes < bytes) {
        free(next->data);
        next->data = aligned_memory(bytes);
        next->bytes = next->data ? bytes : 0;
        owner->exhausted = !next->data;
    }
    return owner->exhausted ? NULL : next->data;
}

/* ---- create and free ---- */

static nm_status apply_settings(nm_options *options, const char *section, const char *settings, nm_error *err)
{
    char *copy = nm_format("%s", settings ? settings : ""), *rest = copy;
    nm_status status = NM_OK;
    for (char *word; status == NM_OK && (word = strsep(&rest, " \t\n")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!*word)
            continue;
        if (!equals) {
            status = nm_fail(err, NM_USAGE, "%s: '%.100s' expected key=value", section, word);
            break;
        }
        *equals = 0;
        char *path = nm_format("%s.%s", section, word);
        status = nm_options_set(options, path, equals + 1, NM_ORIGIN_COMMAND, err);
        free(path);
    }
    free(copy);
    return status;
}

/* Options of this layer; none for an unknown type, which nm_norm_prepare reports. */
static nm_status read_settings(standalone *owner, const char *name, const char *settings, const void **config,
                               nm_error *err)
{
    const nm_norm_type *type = nm_norm_type_find(name);
    owner->options = nm_options_create();
    if (!type)
        return NM_OK;
    char *section = nm_format("norm.%s", name);
    *config = nm_options_add(owner->options, section, type->options, type->presets, type->config_size);
    nm_status status = apply_settings(owner->options, section, settings, err);
    free(section);
    return status;
}

static nm_status alloc_vectors(nm_norm *norm, nm_error *err)
{
    size_t element = nm_dtype_bytes(((standalone *)norm->standalone)->backend->dtype);
    const nm_norm_shape *shape = &norm->shape;
    bool failed = false;
    for (int i = 0; i < shape->n_params; i++) {
        size_t bytes = (size_t)shape->params[i].length * element;
        norm->params[i] = aligned_memory(bytes);
        norm->param_grads[i] = shape->params[i].fixed ? NULL : aligned_memory(bytes);
        failed |= !norm->params[i] || (!norm->param_grads[i] && !shape->params[i].fixed);
    }
    for (int i = 0; i < shape->n_state; i++) {
        norm->state[i] = aligned_memory((size_t)shape->state[i].length * element);
        failed |= !norm->state[i];
    }
    for (int i = 0; i < shape->n_statistics; i++) {
        norm->statistics[i] = aligned_memory((size_t)norm->site.width * element);
        failed |= !norm->statistics[i];
    }
    return failed ? nm_fail(err, NM_MEMORY, "norm '%s': out of memory", norm->site.name) : NM_OK;
}

nm_status nm_norm_create(nm_norm **created, nm_backend *backend, const char *type, const char *settings,
                         const nm_norm_site *site, nm_error *err)
{
    *created = NULL;
    nm_norm *norm = nm_allocate(sizeof *norm);
    standalone *owner = nm_allocate(sizeof *owner);
    nm_norm_site own_site = *site;
    const void *config = NULL;
    owner->backend = backend;
    own_site.name = owner->name = nm_format("%s", site->name ? site->name : type);
    nm_status status = read_settings(owner, type, settings, &config, err);
    if (status == NM_OK)
        status = nm_norm_prepare(norm, type, config, &own_site, err);
    norm->standalone = owner;
    if (status == NM_OK)
        status = alloc_vectors(norm, err);
    if (status != NM_OK) {
        nm_norm_free(norm);
        return status;
    }
    nm_norm_initialize(norm, backend);
    nm_norm_zero_grads(norm);
    *created = norm;
    return NM_OK;
}

void nm_norm_free(nm_norm *norm)
{
    if (!norm)
        return;
    standalone *owner = norm->standalone;
    for (int i = 0; i < NM_NORM_CAPACITY; i++) {
        free(norm->params[i]);
        free(norm->param_grads[i]);
    }
    for (int i = 0; i < NM_NORM_CAPACITY; i++)
        free(norm->state[i]);
    for (int i = 0; i < NM_NORM_CAPACITY; i++)
        free(norm->statistics[i]);
    for (int i = 0; i < MAX_BLOCKS; i++)
        free(owner->blocks[i].data);
    nm_options_free(owner->options);
    free(owner->name);
    free(owner);
    free(norm);
}

/* ---- forward and backward ---- */

static nm_status begin_call(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err)
{
    standalone *owner = norm->standalone;
    if (rows < 1 || rows > INT32_MAX / norm->site.width)
        return nm_fail(err, NM_USAGE, "norm '%s': %d rows of %d features", norm->site.name, rows,
                       norm->site.width);
    owner->n_used = 0;
    owner->exhausted = owner->pending = false;
    owner->call = (nm_norm_call){.backend = owner->backend,
                                 .norm = norm,
                                 .alloc = alloc_block,
                                 .allocator = owner,
                                 .x = nm_mat_of((void *)(uintptr_t)x, rows, norm->site.width),
                                 .y = nm_mat_of(y, rows, norm->site.width),
                                 .n_targets = 1,
                                 .grad_scale = 1};
    return NM_OK;
}

static nm_status end_call(const nm_norm *norm, nm_error *err)
{
    const standalone *owner = norm->standalone;
    return owner->exhausted ? nm_fail(err, NM_MEMORY, "norm '%s': out of memory for %d rows", norm->site.name,
                                      owner->call.x.rows)
                            : NM_OK;
}

nm_status nm_norm_forward(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err)
{
    standalone *owner = norm->standalone;
    NM_TRY(begin_call(norm, rows, x, y, err));
    norm->type->train(&owner->call);
    NM_TRY(end_call(norm, err));
    nm_norm_update_state(norm, owner->backend, 1);
    owner->pending = true;
    return NM_OK;
}

nm_status nm_norm_infer(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err)
{
    standalone *owner = norm->standalone;
    NM_TRY(begin_call(norm, rows, x, y, err));
    norm->type->infer(&owner->call);
    return end_call(norm, err);
}

nm_status nm_norm_backward(nm_norm *norm, const void *dy, void *dx, nm_error *err)
{
    standalone *owner = norm->standalone;
    if (!owner->pending)
        return nm_fail(err, NM_USAGE, "norm '%s': backward without a forward before it", norm->site.name);
    owner->pending = false;
    owner->call.dy = nm_mat_of((void *)(uintptr_t)dy, owner->call.x.rows, norm->site.width);
    owner->call.dx = nm_mat_of(dx, owner->call.x.rows, norm->site.width);
    norm->type->backward(&owner->call);
    NM_TRY(end_call(norm, err));
    nm_norm_update_state(norm, owner->backend, 1);
    return NM_OK;
}

double nm_norm_penalty(const nm_norm *norm)
{
    const standalone *owner = norm->standalone;
    double value = 0;
    if (owner->call.penalty)
        nm_backend_download(owner->backend, &value, owner->call.penalty, sizeof value);
    return value;
}

void nm_norm_zero_grads(nm_norm *norm)
{
    nm_backend *b = ((standalone *)norm->standalone)->backend;
    for (int i = 0; i < norm->shape.n_params; i++)
        if (norm->param_grads[i])
            nm_backend_zero(b, norm->param_grads[i],
                            (size_t)norm->shape.params[i].length * nm_dtype_bytes(b->dtype));
}

/* ---- vectors by name ---- */

static void *find_vector(const nm_norm_vector *vectors, int count, void *const *memory, const char *name,
                         int32_t *length)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(vectors[i].name, name)) {
            if (length)
                *length = vectors[i].length;
            return memory[i];
        }
    return NULL;
}

void *nm_norm_param(nm_norm *norm, const char *name, int32_t *length)
{
    return find_vector(norm->shape.params, norm->shape.n_params, norm->params, name, length);
}

void *nm_norm_param_grad(nm_norm *norm, const char *name, int32_t *length)
{
    return find_vector(norm->shape.params, norm->shape.n_params, norm->param_grads, name, length);
}

void *nm_norm_state(nm_norm *norm, const char *name, int32_t *length)
{
    return find_vector(norm->shape.state, norm->shape.n_state, norm->state, name, length);
}

int64_t *nm_norm_counter(nm_norm *norm, const char *name)
{
    for (int i = 0; i < norm->shape.n_counters; i++)
        if (!strcmp(norm->shape.counters[i], name))
            return &norm->counters[i];
    return NULL;
}

/* ---- files ---- */

static const char FORMAT_NAME[] = "norma-norm-1";

static nm_tensor_type tensor_type(const nm_norm *norm)
{
    return ((const standalone *)norm->standalone)->backend->dtype == NM_F64 ? NM_TENSOR_F64 : NM_TENSOR_F32;
}

static void add_vectors(nm_safetensors_writer *writer, nm_tensor_type type, const nm_norm_vector *vectors,
                        int count, void *const *memory)
{
    for (int i = 0; i < count; i++)
        nm_safetensors_add(writer, vectors[i].name, type, 1, &(int64_t){vectors[i].length}, memory[i]);
}

nm_status nm_norm_save(const nm_norm *norm, const char *path, nm_error *err)
{
    const nm_norm_shape *shape = &norm->shape;
    nm_safetensors_writer *writer = nm_safetensors_begin();
    char width[16];
    snprintf(width, sizeof width, "%d", norm->site.width);
    nm_safetensors_add_metadata(writer, "format", FORMAT_NAME);
    nm_safetensors_add_metadata(writer, "type", norm->type->name);
    nm_safetensors_add_metadata(writer, "width", width);
    add_vectors(writer, tensor_type(norm), shape->params, shape->n_params, norm->params);
    add_vectors(writer, tensor_type(norm), shape->state, shape->n_state, norm->state);
    for (int i = 0; i < shape->n_counters; i++)
        nm_safetensors_add(writer, shape->counters[i], NM_TENSOR_I64, 0, NULL, &norm->counters[i]);
    return nm_safetensors_finish(writer, path, err);
}

static nm_status check_metadata(const nm_norm *norm, const nm_safetensors *file, nm_error *err)
{
    const char *path = nm_safetensors_path(file), *format = nm_safetensors_metadata(file, "format");
    const char *type = nm_safetensors_metadata(file, "type"), *width = nm_safetensors_metadata(file, "width");
    if (!format || strcmp(format, FORMAT_NAME) || !type || !width)
        return nm_fail(err, NM_MISMATCH, "%s: not a file of a single normalization layer", path);
    if (strcmp(type, norm->type->name))
        return nm_fail(err, NM_MISMATCH, "%s: contains a layer of type '%.100s', not '%s'", path, type,
                       norm->type->name);
    if (strtoll(width, NULL, 10) != norm->site.width)
        return nm_fail(err, NM_MISMATCH, "%s: contains a layer of %.20s features, not %d", path, width,
                       norm->site.width);
    return NM_OK;
}

enum { MAX_TENSORS = NM_NORM_CAPACITY + NM_NORM_CAPACITY + NM_NORM_CAPACITY };

typedef struct tensor_copy { /* a tensor of the file and its destination */
    void *to;
    const nm_safetensor *from;
} tensor_copy;

static nm_status find_tensors(nm_norm *norm, const nm_safetensors *file, tensor_copy *copies, int *count,
                              nm_error *err)
{
    const nm_norm_shape *shape = &norm->shape;
    int n = 0;
    for (int i = 0; i < shape->n_params; i++, n++) {
        copies[n].to = norm->params[i];
        NM_TRY(nm_safetensors_want(file, shape->params[i].name, tensor_type(norm),
                                   (size_t)shape->params[i].length, &copies[n].from, err));
    }
    for (int i = 0; i < shape->n_state; i++, n++) {
        copies[n].to = norm->state[i];
        NM_TRY(nm_safetensors_want(file, shape->state[i].name, tensor_type(norm),
                                   (size_t)shape->state[i].length, &copies[n].from, err));
    }
    for (int i = 0; i < shape->n_counters; i++, n++) {
        copies[n].to = &norm->counters[i];
        NM_TRY(nm_safetensors_want(file, shape->counters[i], NM_TENSOR_I64, 1, &copies[n].from, err));
        int64_t value;
        memcpy(&value, copies[n].from->data, sizeof value);
        if (value < 0)
            return nm_fail(err, NM_FORMAT, "%s: counter '%s' is negative", nm_safetensors_path(file),
                           shape->counters[i]);
    }
    *count = n;
    return NM_OK;
}

nm_status nm_norm_load(nm_norm *norm, const char *path, nm_error *err)
{
    nm_safetensors *file;
    tensor_copy copies[MAX_TENSORS];
    int count = 0;
    NM_TRY(nm_safetensors_open(&file, path, err));
    nm_status status = check_metadata(norm, file, err);
    if (status == NM_OK)
        status = find_tensors(norm, file, copies, &count, err);
    for (int i = 0; i < count && status == NM_OK; i++)
        memcpy(copies[i].to, copies[i].from->data, copies[i].from->bytes);
    nm_safetensors_close(file);
    return status;
}
