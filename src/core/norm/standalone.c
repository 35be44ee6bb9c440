/* Standalone normalization layers: the functions of include/norma/norm.h.
 *
 * The layer and its callers use host memory, so the kernels of the backend must be able to access host memory
 * (those of ref and cpu can). The vectors of a call are blocks that the next call reuses: after the largest
 * batch, training allocates no memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/safetensors.h"
#include "norm/common.h"

enum { ALIGNMENT = 64, MAX_BLOCKS = 64 };

typedef struct block {
    void *data;
    size_t bytes;
} block;

struct nm_norm_pass {
    nm_backend *backend;
    nm_norm_call call;                                       /* the last one */
    enum pass_mode { NO_FORWARD, TRAINING, INFERENCE } mode; /* of the last forward pass */
    block blocks[MAX_BLOCKS];
    int n_used;
    int n_used_forward, n_published_forward; /* where every backward pass of the call begins */
    bool exhausted;                          /* an allocation of this call failed */
};

typedef struct standalone {
    nm_backend *backend;
    nm_options *options;
    char *name;
    nm_norm_pass *pass; /* of nm_norm_forward, nm_norm_backward and nm_norm_infer */
} standalone;

/* Memory of the backend: host memory, unless the host cannot access that of the device */
static void free_memory(nm_backend *backend, void *memory)
{
    if (nm_backend_memory_is_separate(backend))
        nm_backend_dealloc(backend, memory);
    else
        free(memory);
}

static void *aligned_memory(nm_backend *backend, size_t bytes)
{
    void *memory;
    if (nm_backend_memory_is_separate(backend))
        return nm_backend_alloc(backend, bytes, &memory, NULL) == NM_OK ? memory : NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return rounded < bytes ? NULL : aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
}

/* nm_norm_call.alloc */
static void *alloc_block(void *allocator, size_t bytes)
{
    nm_norm_pass *pass = allocator;
    NM_ASSERT(pass->n_used < MAX_BLOCKS);
    block *next = &pass->blocks[pass->n_used++];
    if (!pass->exhausted && next->bytes < bytes) {
        free_memory(pass->backend, next->data);
        next->data = aligned_memory(pass->backend, bytes);
        next->bytes = next->data ? bytes : 0;
        pass->exhausted = !next->data;
    }
    return pass->exhausted ? NULL : next->data;
}

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
        NM_AUTO_FREE char *path = nm_format("%s.%s", section, word);
        status = nm_options_set(options, path, equals + 1, NM_ORIGIN_COMMAND, err);
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
    NM_AUTO_FREE char *section = nm_format("norm.%s", name);
    *config = nm_options_add(owner->options, section, type->options, type->presets, type->config_size);
    return apply_settings(owner->options, section, settings, err);
}

static nm_status alloc_vectors(nm_norm *norm, nm_error *err)
{
    nm_backend *backend = ((standalone *)norm->standalone)->backend;
    size_t element = nm_dtype_bytes(backend->dtype);
    const nm_norm_shape *shape = &norm->shape;
    bool failed = false;
    for (int i = 0; i < shape->n_params; i++) {
        size_t bytes = (size_t)shape->params[i].length * element;
        norm->params[i] = aligned_memory(backend, bytes);
        norm->param_grads[i] = shape->params[i].fixed ? NULL : aligned_memory(backend, bytes);
        failed |= !norm->params[i] || (!norm->param_grads[i] && !shape->params[i].fixed);
    }
    for (int i = 0; i < shape->n_state; i++) {
        norm->state[i] = aligned_memory(backend, (size_t)shape->state[i].length * element);
        failed |= !norm->state[i];
    }
    for (int i = 0; i < shape->n_statistics; i++) {
        norm->statistics[i] = aligned_memory(backend, (size_t)norm->site.width * element);
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
    NM_THEN(status, nm_norm_prepare(norm, type, config, &own_site, err));
    norm->standalone = owner;
    owner->pass = nm_norm_pass_create(norm);
    NM_THEN(status, alloc_vectors(norm, err));
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
        free_memory(owner->backend, norm->params[i]);
        free_memory(owner->backend, norm->param_grads[i]);
    }
    for (int i = 0; i < NM_NORM_CAPACITY; i++)
        free_memory(owner->backend, norm->state[i]);
    for (int i = 0; i < NM_NORM_CAPACITY; i++)
        free_memory(owner->backend, norm->statistics[i]);
    nm_norm_pass_free(owner->pass);
    nm_options_free(owner->options);
    NM_FREE(owner->name, owner, norm);
}

nm_norm_pass *nm_norm_pass_create(nm_norm *norm)
{
    nm_norm_pass *pass = nm_allocate(sizeof *pass);
    pass->backend = ((standalone *)norm->standalone)->backend;
    pass->call.norm = norm;
    return pass;
}

void nm_norm_pass_free(nm_norm_pass *pass)
{
    for (int i = 0; pass && i < MAX_BLOCKS; i++)
        free_memory(pass->backend, pass->blocks[i].data);
    free(pass);
}

static nm_status begin_call(nm_norm_pass *pass, int32_t rows, const void *x, void *y, nm_error *err)
{
    nm_norm *norm = pass->call.norm;
    if (rows < 1 || rows > INT32_MAX / norm->site.width)
        return nm_fail(err, NM_USAGE, "norm '%s': %d rows of %d features", norm->site.name, rows,
                       norm->site.width);
    pass->n_used = 0;
    pass->exhausted = false;
    pass->mode = NO_FORWARD;
    pass->call = (nm_norm_call){.backend = ((standalone *)norm->standalone)->backend,
                                .norm = norm,
                                .alloc = alloc_block,
                                .allocator = pass,
                                .x = nm_mat_of((void *)(uintptr_t)x, rows, norm->site.width),
                                .y = nm_mat_of(y, rows, norm->site.width),
                                .n_targets = 1,
                                .grad_scale = 1};
    return NM_OK;
}

/* A backward pass may follow. */
static void end_forward(nm_norm_pass *pass, enum pass_mode mode)
{
    pass->mode = mode;
    pass->n_used_forward = pass->n_used;
    pass->n_published_forward = pass->call.n_published;
}

static nm_status end_call(const nm_norm_pass *pass, nm_error *err)
{
    return pass->exhausted ? nm_fail(err, NM_MEMORY, "norm '%s': out of memory for %d rows",
                                     pass->call.norm->site.name, pass->call.x.rows)
                           : NM_OK;
}

nm_status nm_norm_pass_forward(nm_norm_pass *pass, int32_t rows, const void *x, void *y, nm_error *err)
{
    NM_TRY(begin_call(pass, rows, x, y, err));
    nm_norm *norm = pass->call.norm;
    norm->type->train(&pass->call);
    NM_TRY(end_call(pass, err));
    nm_norm_update_state(norm, pass->call.backend, 1);
    end_forward(pass, TRAINING);
    return NM_OK;
}

static nm_status run_inference(nm_norm_pass *pass, int32_t rows, const void *x, void *y, nm_error *err)
{
    NM_TRY(begin_call(pass, rows, x, y, err));
    pass->call.norm->type->infer(&pass->call);
    return end_call(pass, err);
}

nm_status nm_norm_pass_infer(nm_norm_pass *pass, int32_t rows, const void *x, void *y, nm_error *err)
{
    const nm_norm_type *type = pass->call.norm->type;
    if (!(type->traits & NM_USES_BATCH)) /* the same formula */
        return nm_norm_pass_forward(pass, rows, x, y, err);
    NM_TRY(run_inference(pass, rows, x, y, err));
    end_forward(pass, INFERENCE);
    return NM_OK;
}

static const nm_norm_published *find_published(const nm_norm_call *call, const char *name)
{
    for (int i = 0; i < call->n_published; i++)
        if (!strcmp(call->published[i].name, name))
            return &call->published[i];
    return NULL;
}

/* Gradients of y = weight (h - running_mean) scale + bias, scale and running_mean constant, h = x
 * row_scale. */
static void inference_backward(nm_norm_call *call)
{
    nm_norm *norm = call->norm;
    const nm_norm_published *row_scale = find_published(call, "row_scale");
    const void *scale = find_published(call, "scale")->data,
               *mean = nm_norm_state(norm, "running_mean", NULL);
    const nm_feature_norm spec = {.groups = row_scale ? row_scale->length / call->x.rows : 0,
                                  .row_scale_ready = true};
    void *a = nm_norm_scratch(call, norm->site.width);
    void *sum_dy = nm_norm_scratch(call, norm->site.width);
    void *sum_dy_z = nm_norm_scratch(call, norm->site.width);
    if (!sum_dy_z)
        return;
    NM_NORM_VEC(call, MUL, .out = a, .a = norm->params[0], .b = scale, .s = 1);
    NM_CALL(call->backend, feature_norm_grad, .spec = &spec, .dy = call->dy, .x = call->x,
            .row_scale = row_scale ? row_scale->data : NULL, .shift = mean, .scale = scale, .a = a,
            .dx = call->dx, .sum_dy = sum_dy, .sum_dy_z = sum_dy_z);
    nm_norm_add_grads(call, sum_dy_z, sum_dy);
}

/* Other passes may have had their forward pass since that of this one. */
static void update_backward_state(const nm_norm_call *call)
{
    nm_norm_call collected = {
        .backend = call->backend, .norm = call->norm, .grad_scale = 1, .update = call->update};
    if (call->norm->type->update_state)
        call->norm->type->update_state(&collected);
    nm_norm_discard_statistics(call->norm);
}

nm_status nm_norm_pass_backward(nm_norm_pass *pass, const void *x, const void *dy, double penalty_grad,
                                void *dx, nm_error *err)
{
    nm_norm_call *call = &pass->call;
    nm_norm *norm = call->norm;
    if (pass->mode == NO_FORWARD)
        return nm_fail(err, NM_USAGE, "norm '%s': backward pass without a preceding forward pass",
                       norm->site.name);
    pass->n_used = pass->n_used_forward;
    call->n_published = pass->n_published_forward;
    if (pass->mode == INFERENCE && find_published(call, "output_mean"))
        return nm_fail(err, NM_UNSUPPORTED,
                       "norm '%s': gradients at inference are not available with center_weights",
                       norm->site.name);
    if (norm->type->traits & NM_HAS_PENALTY)
        call->grad_scale = penalty_grad; /* in these types a factor of the penalty's gradient only */
    call->x.data = (void *)(uintptr_t)x;
    call->dy = nm_mat_of((void *)(uintptr_t)dy, call->x.rows, norm->site.width);
    call->dx = nm_mat_of(dx, call->x.rows, norm->site.width);
    if (pass->mode == TRAINING)
        norm->type->backward(call);
    else
        (norm->type->infer_backward ? norm->type->infer_backward : inference_backward)(call);
    NM_TRY(end_call(pass, err));
    update_backward_state(call);
    return NM_OK;
}

double nm_norm_pass_penalty(const nm_norm_pass *pass)
{
    double value = 0;
    if (pass->call.penalty)
        nm_backend_download(pass->call.backend, &value, pass->call.penalty, sizeof value);
    return value;
}

static nm_norm_pass *own_pass(const nm_norm *norm)
{
    return ((const standalone *)norm->standalone)->pass;
}

nm_status nm_norm_forward(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err)
{
    return nm_norm_pass_forward(own_pass(norm), rows, x, y, err);
}

nm_status nm_norm_backward(nm_norm *norm, const void *dy, void *dx, nm_error *err)
{
    nm_norm_pass *pass = own_pass(norm);
    nm_status status = nm_norm_pass_backward(pass, pass->call.x.data, dy, 1, dx, err);
    pass->mode = NO_FORWARD;
    return status;
}

double nm_norm_penalty(const nm_norm *norm)
{
    return nm_norm_pass_penalty(own_pass(norm));
}

nm_status nm_norm_infer(nm_norm *norm, int32_t rows, const void *x, void *y, nm_error *err)
{
    return run_inference(own_pass(norm), rows, x, y, err);
}

void nm_norm_zero_grads(nm_norm *norm)
{
    nm_backend *b = ((standalone *)norm->standalone)->backend;
    for (int i = 0; i < norm->shape.n_params; i++)
        if (norm->param_grads[i])
            nm_backend_zero(b, norm->param_grads[i],
                            (size_t)norm->shape.params[i].length * nm_dtype_bytes(b->dtype));
}

const char *nm_norm_param_name(const nm_norm *norm, int32_t i)
{
    return i >= 0 && i < norm->shape.n_params ? norm->shape.params[i].name : NULL;
}

const char *nm_norm_state_name(const nm_norm *norm, int32_t i)
{
    return i >= 0 && i < norm->shape.n_state ? norm->shape.state[i].name : NULL;
}

const char *nm_norm_counter_name(const nm_norm *norm, int32_t i)
{
    return i >= 0 && i < norm->shape.n_counters ? norm->shape.counters[i] : NULL;
}

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

bool nm_norm_state_of_gradients(const nm_norm *norm, const char *name)
{
    for (int i = 0; i < norm->shape.n_state; i++)
        if (!strcmp(norm->shape.state[i].name, name))
            return norm->shape.state[i].of_gradients;
    return false;
}

int64_t *nm_norm_counter(nm_norm *norm, const char *name)
{
    for (int i = 0; i < norm->shape.n_counters; i++)
        if (!strcmp(norm->shape.counters[i], name))
            return &norm->counters[i];
    return NULL;
}

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

static nm_status check_host_memory(const nm_norm *norm, nm_error *err)
{
    if (!nm_backend_memory_is_separate(((standalone *)norm->standalone)->backend))
        return NM_OK;
    return nm_fail(err, NM_UNSUPPORTED, "norm '%s': its file needs a backend with host memory",
                   norm->site.name);
}

nm_status nm_norm_save(const nm_norm *norm, const char *path, nm_error *err)
{
    const nm_norm_shape *shape = &norm->shape;
    NM_TRY(check_host_memory(norm, err));
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
        NM_TRY(nm_safetensors_expect(file, shape->params[i].name, tensor_type(norm),
                                     (size_t)shape->params[i].length, &copies[n].from, err));
    }
    for (int i = 0; i < shape->n_state; i++, n++) {
        copies[n].to = norm->state[i];
        NM_TRY(nm_safetensors_expect(file, shape->state[i].name, tensor_type(norm),
                                     (size_t)shape->state[i].length, &copies[n].from, err));
    }
    for (int i = 0; i < shape->n_counters; i++, n++) {
        copies[n].to = &norm->counters[i];
        NM_TRY(nm_safetensors_expect(file, shape->counters[i], NM_TENSOR_I64, 1, &copies[n].from, err));
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
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    tensor_copy copies[MAX_TENSORS];
    int count = 0;
    NM_TRY(check_host_memory(norm, err));
    NM_TRY(nm_safetensors_open(&file, path, err));
    nm_status status = check_metadata(norm, file, err);
    NM_THEN(status, find_tensors(norm, file, copies, &count, err));
    for (int i = 0; i < count && status == NM_OK; i++)
        memcpy(copies[i].to, copies[i].from->data, copies[i].from->bytes);
    return status;
}
