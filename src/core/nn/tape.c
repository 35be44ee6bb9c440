#include "nn/tape.h"

#include <string.h>

enum { HOST_LIMIT = 1 << 30 };

nm_status nm_tape_init(nm_tape *tape, nm_backend *backend, size_t device_bytes, nm_error *err)
{
    *tape = (nm_tape){.backend = backend, .grad_scale = 1, .n_targets = 1};
    NM_TRY(nm_backend_reserve(backend, device_bytes, &tape->memory, err));
    nm_arena_wrap(&tape->device, tape->memory, device_bytes);
    nm_arena_init(&tape->host, HOST_LIMIT);
    return NM_OK;
}

static void *alloc_region(void *backend, size_t bytes)
{
    void *memory;
    return nm_backend_alloc(backend, bytes, &memory, NM_IGNORED) == NM_OK ? memory : NULL;
}

static void dealloc_region(void *backend, void *region, size_t bytes)
{
    (void)bytes;
    nm_backend_dealloc(backend, region);
}

void nm_tape_init_growing(nm_tape *tape, nm_backend *backend)
{
    const nm_arena_source source = {alloc_region, dealloc_region, backend};
    *tape = (nm_tape){.backend = backend, .grad_scale = 1, .n_targets = 1};
    nm_arena_init_source(&tape->device, &source, SIZE_MAX / 2);
    nm_arena_init(&tape->host, HOST_LIMIT);
}

void nm_tape_init_dry(nm_tape *tape, nm_backend *backend)
{
    const uintptr_t first_address = 1 << 20; /* any address but NULL, which stands for exhausted memory */
    *tape = (nm_tape){.backend = backend, .grad_scale = 1, .n_targets = 1};
    nm_arena_wrap(&tape->device, (void *)first_address, SIZE_MAX / 4);
    nm_arena_init(&tape->host, HOST_LIMIT);
}

void nm_tape_release(nm_tape *tape)
{
    nm_arena_release(&tape->device);
    if (tape->memory)
        nm_backend_dealloc(tape->backend, tape->memory);
    nm_arena_release(&tape->host);
    *tape = (nm_tape){0};
}

void nm_tape_start(nm_tape *tape, bool training, uint64_t seed, uint32_t step)
{
    nm_arena_reset(&tape->device);
    nm_arena_reset(&tape->host);
    tape->nodes = nm_arena_alloc(&tape->host, NM_TAPE_MAX_NODES * sizeof(nm_node));
    tape->n_nodes = tape->n_pool = 0;
    tape->first_penalty = tape->last_penalty = NULL;
    tape->training = training;
    tape->seed = seed;
    tape->step = step;
    tape->site = 0;
    tape->in_segment = tape->recomputed = false;
    tape->empty = (nm_tensor){0};
}

bool nm_tape_exhausted(const nm_tape *tape)
{
    return tape->device.exhausted || tape->host.exhausted;
}

size_t nm_tape_peak(const nm_tape *tape)
{
    return tape->device.peak;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* A block of the same size from the pool, otherwise new memory of the arena; NULL if it is exhausted. */
static void *alloc_block(nm_tape *tape, size_t bytes)
{
    bytes = rounded(bytes);
    for (int i = tape->n_pool - 1; i >= 0; i--)
        if (tape->pool[i].bytes == bytes) {
            void *data = tape->pool[i].data;
            tape->pool[i] = tape->pool[--tape->n_pool];
            return data;
        }
    return nm_tape_alloc(tape, bytes);
}

static void free_block(nm_tape *tape, void *data, size_t bytes)
{
    if (data && tape->n_pool < NM_TAPE_MAX_POOL)
        tape->pool[tape->n_pool++] = (struct nm_tape_block){data, rounded(bytes)};
}

static size_t tensor_bytes(const nm_tape *tape, const nm_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->cols * nm_dtype_bytes(tape->backend->dtype);
}

static size_t operand_bytes(const nm_tensor *tensor)
{
    return (size_t)tensor->rows * (size_t)tensor->cols * sizeof *tensor->operand;
}

void *nm_tape_alloc(nm_tape *tape, size_t bytes)
{
    void *block = nm_arena_alloc(&tape->device, bytes);
    if (tape->memory && tape->device.used > tape->committed) {
        if (!nm_backend_commit(tape->backend, tape->memory, tape->device.used)) {
            tape->device.exhausted = true;
            return NULL;
        }
        tape->committed = tape->device.used;
    }
    return block;
}

void *nm_tape_host(nm_tape *tape, size_t bytes)
{
    void *block = nm_arena_alloc(&tape->host, bytes);
    if (block)
        memset(block, 0, bytes);
    return block;
}

void *nm_tape_upload(nm_tape *tape, const void *host, size_t bytes)
{
    void *device = nm_tape_alloc(tape, bytes);
    if (device)
        nm_backend_upload(tape->backend, device, host, bytes);
    return device;
}

nm_packing nm_tape_packing(nm_tape *tape, const nm_packing *packing)
{
    nm_packing on_device = *packing;
    on_device.device_offsets =
        nm_tape_upload(tape, packing->offsets, ((size_t)packing->n_seqs + 1) * sizeof(int32_t));
    return on_device;
}

nm_tensor *nm_tape_tensor(nm_tape *tape, int32_t rows, int32_t cols)
{
    nm_tensor *tensor = nm_tape_host(tape, sizeof *tensor);
    if (!tensor)
        return &tape->empty;
    *tensor = (nm_tensor){.rows = rows, .cols = cols, .pooled = true};
    tensor->data = nm_tape_exhausted(tape) ? NULL : alloc_block(tape, tensor_bytes(tape, tensor));
    if (!tensor->data) {
        tape->device.exhausted = true;
        tensor->rows = 0;
    }
    return tensor;
}

nm_node *nm_tape_record(nm_tape *tape, const nm_op *op, nm_tensor *out, void *saved)
{
    if (!tape->training || nm_tape_exhausted(tape))
        return &tape->unrecorded;
    NM_ASSERT(tape->n_nodes < NM_TAPE_MAX_NODES);
    nm_node *node = &tape->nodes[tape->n_nodes++];
    *node = (nm_node){.op = op, .out = out, .saved = saved};
    return node;
}

void nm_tape_record_penalty(nm_tape *tape, const double *value)
{
    nm_penalty *penalty = tape->recomputed ? NULL : nm_tape_host(tape, sizeof *penalty);
    if (!penalty)
        return;
    penalty->value = value;
    *(tape->last_penalty ? &tape->last_penalty->next : &tape->first_penalty) = penalty;
    tape->last_penalty = penalty;
}

void nm_tape_free_data(nm_tape *tape, nm_tensor *tensor)
{
    if (!tensor->pooled)
        return;
    free_block(tape, tensor->data, tensor_bytes(tape, tensor));
    free_block(tape, tensor->operand, operand_bytes(tensor));
    tensor->data = NULL;
    tensor->operand = NULL;
}

void nm_tape_discard(nm_tape *tape, nm_tensor *tensor)
{
    if (tape->training && tensor->unread)
        nm_tape_free_data(tape, tensor);
}

void nm_tape_keep_operand(nm_tape *tape, nm_tensor *tensor)
{
    if (!tape->training || !tape->backend->bf16 || tape->recompute || !tensor->pooled || !tensor->data)
        return;
    uint16_t *operand = alloc_block(tape, operand_bytes(tensor));
    if (!operand)
        return;
    NM_CALL(tape->backend, store_bf16, .x = nm_tensor_mat(tensor), .y = operand);
    nm_tape_free_data(tape, tensor);
    tensor->operand = operand;
}

static void load_operand(nm_tape *tape, nm_tensor *tensor)
{
    if (!tensor || !tensor->operand)
        return;
    tensor->data = alloc_block(tape, tensor_bytes(tape, tensor));
    if (!tensor->data)
        return;
    NM_CALL(tape->backend, load_bf16, .x = tensor->operand, .y = nm_tensor_mat(tensor));
    free_block(tape, tensor->operand, operand_bytes(tensor));
    tensor->operand = NULL;
}

/* Returns false if the memory is exhausted. */
static bool load_operands(nm_tape *tape, const nm_node *node)
{
    for (size_t i = 0; i < sizeof node->in / sizeof *node->in; i++)
        load_operand(tape, node->in[i]);
    load_operand(tape, node->out);
    return !nm_tape_exhausted(tape);
}

void nm_tape_truncate(nm_tape *tape, int first, const nm_tensor *kept)
{
    for (int i = first; i < tape->n_nodes; i++)
        if (tape->nodes[i].out && tape->nodes[i].out != kept)
            nm_tape_free_data(tape, tape->nodes[i].out);
    tape->n_nodes = first;
}

bool nm_op_learns(const nm_node *node)
{
    (void)node;
    return true;
}

static bool depends_on_learned(const nm_node *node)
{
    bool any = node->op->learns && node->op->learns(node);
    for (size_t i = 0; i < sizeof node->in / sizeof *node->in; i++)
        any |= node->in[i] && !node->in[i]->fixed;
    return any;
}

/* Marks the results below which nothing is learned. Instruments read the gradients of all results. */
static void find_fixed(nm_tape *tape)
{
    for (int i = 0; i < tape->n_nodes && !tape->listen; i++)
        if (tape->nodes[i].out)
            tape->nodes[i].out->fixed = !depends_on_learned(&tape->nodes[i]);
}

void nm_tape_backward_from(nm_tape *tape, int first)
{
    /* Gradients are NULL after the memory is exhausted: the remaining nodes cannot run. */
    for (int i = tape->n_nodes - 1; i >= first && !nm_tape_exhausted(tape); i--) {
        nm_node *node = &tape->nodes[i];
        nm_tensor *out = node->out;
        bool has_grad = !out || out->grad_started;
        bool is_needed = has_grad && !(out && out->fixed);
        if (is_needed && load_operands(tape, node))
            node->op->backward(tape, node);
        if (has_grad && out && out->pooled) {
            free_block(tape, out->grad, tensor_bytes(tape, out));
            out->grad = NULL;
            nm_tape_free_data(tape, out);
        }
        if (tape->observer && !nm_tape_exhausted(tape))
            tape->observer->node_finished(tape->observer);
    }
    tape->n_nodes = first;
}

static nm_status check_memory(const nm_tape *tape, nm_error *err)
{
    if (nm_tape_exhausted(tape))
        return nm_fail(err, NM_MEMORY, "out of memory for this batch (%zu MiB are allocated)",
                       tape->device.peak >> 20);
    return NM_OK;
}

nm_status nm_tape_backward(nm_tape *tape, nm_error *err)
{
    NM_TRY(check_memory(tape, err));
    find_fixed(tape);
    nm_tape_backward_from(tape, 0);
    return check_memory(tape, err);
}

nm_status nm_tape_results(nm_tape *tape, const double *sums, double results[3], nm_error *err)
{
    size_t n = 0;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        n++;
    double *block = nm_tape_alloc(tape, (2 + n) * sizeof *block);
    double *host = nm_tape_host(tape, (2 + n) * sizeof *host);
    NM_TRY(check_memory(tape, err));
    nm_backend_copy(tape->backend, block, sums, 2 * sizeof *block);
    n = 2;
    for (const nm_penalty *penalty = tape->first_penalty; penalty; penalty = penalty->next)
        nm_backend_copy(tape->backend, block + n++, penalty->value, sizeof *block);
    nm_backend_download(tape->backend, host, block, n * sizeof *host);
    results[0] = host[0];
    results[1] = host[1];
    results[2] = 0;
    for (size_t i = 2; i < n; i++)
        results[2] += host[i];
    return NM_OK;
}

nm_mat nm_tensor_mat(const nm_tensor *tensor)
{
    return nm_mat_of(tensor->data, tensor->rows, tensor->cols);
}

nm_mat nm_mat_columns(const nm_backend *backend, nm_mat mat, int32_t first, int32_t cols)
{
    NM_ASSERT(first >= 0 && first + cols <= mat.cols);
    char *data = mat.data;
    return (nm_mat){data ? data + (size_t)first * nm_dtype_bytes(backend->dtype) : NULL, mat.rows, cols,
                    mat.stride};
}

void nm_tape_gradient_written(nm_tape *tape, const void *grad)
{
    if (tape->observer)
        tape->observer->written(tape->observer, grad);
}

nm_mat nm_tensor_grad(nm_tape *tape, nm_tensor *tensor, bool *add)
{
    if (!tensor->pooled)
        nm_tape_gradient_written(tape, tensor->grad);
    tensor->grad_written |= tensor->fixed;
    *add = tensor->grad_started;
    if (!tensor->grad)
        tensor->grad = alloc_block(tape, tensor_bytes(tape, tensor));
    tensor->grad_started = true;
    nm_mat mat = nm_mat_of(tensor->grad, tensor->rows, tensor->cols);
    if (!mat.data)
        mat.rows = 0;
    return mat;
}

nm_mat nm_tensor_grad_sum(nm_tape *tape, nm_tensor *tensor)
{
    bool add;
    nm_mat mat = nm_tensor_grad(tape, tensor, &add);
    if (!add && mat.data)
        nm_backend_zero(tape->backend, mat.data, tensor_bytes(tape, tensor));
    return mat;
}

nm_mat nm_learned_grad_sum(nm_tape *tape, nm_tensor *param)
{
    return param && !param->fixed ? nm_tensor_grad_sum(tape, param) : (nm_mat){0};
}

nm_dropout nm_tape_dropout(nm_tape *tape, double rate)
{
    uint32_t site = tape->site++;
    return (nm_dropout){
        .rate = tape->training ? rate : 0, .seed = tape->seed, .site = site, .step = tape->step};
}
