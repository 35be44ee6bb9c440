#include "train/optimizer.h"

static void add_range(nm_optimizer *optimizer, nm_param_range range)
{
    nm_param_range *next = &optimizer->trainable[optimizer->n_trainable];
    if (optimizer->n_trainable && next[-1].first + next[-1].n == range.first &&
        next[-1].decays == range.decays && next[-1].decay_to == range.decay_to) {
        next[-1].n += range.n;
    } else {
        *next = range;
        optimizer->n_trainable++;
    }
}

static void add_blocks(nm_optimizer *optimizer, const nm_param *param)
{
    size_t first = param->offset;
    for (int i = 0; i < NM_PARAM_BLOCKS && param->block_rows[i]; i++) {
        const nm_matrix_block block = {first, param->block_rows[i], param->tensor.cols};
        const size_t workspace = optimizer->type->matrix_workspace(block.rows, block.cols);
        optimizer->blocks[optimizer->n_blocks++] = block;
        optimizer->n_workspace = workspace > optimizer->n_workspace ? workspace : optimizer->n_workspace;
        first += (size_t)block.rows * (size_t)block.cols;
    }
}

/* Elements of v are reserved for fixed parameters, too, so that model.freeze does not change the layout of a
 * checkpoint. */
static void find_trainable(nm_optimizer *optimizer)
{
    const bool matrices = optimizer->type->update_matrix;
    const nm_params *params = optimizer->tree->params;
    const size_t part_end = optimizer->part.first + optimizer->part.n;
    optimizer->trainable = nm_allocate((params->n + 1) * sizeof *optimizer->trainable);
    optimizer->blocks = nm_allocate((params->n * NM_PARAM_BLOCKS + 1) * sizeof *optimizer->blocks);
    for (size_t i = 0; i < params->n; i++) {
        const nm_param *param = params->list[i];
        size_t first = param->offset, end = nm_params_end(params, i);
        first = first > optimizer->part.first ? first : optimizer->part.first;
        end = end < part_end ? end : part_end;
        if (first >= end)
            continue;
        if (matrices && nm_param_is_hidden(param)) {
            if (!param->fixed)
                add_blocks(optimizer, param);
            continue;
        }
        const bool decays = optimizer->config->decayed_parameters == NM_DECAYED_ALL || param->tensor.rows > 1;
        if (!param->fixed)
            add_range(optimizer,
                      (nm_param_range){first, end - first, optimizer->n_v, decays, param->decay_to});
        optimizer->n_v += end - first;
    }
}

static bool is_shifted(const nm_optimizer *optimizer, const nm_param_range *range)
{
    return range->decays && range->decay_to != 0 && optimizer->config->weight_decay > 0;
}

static nm_status check_matrices(const nm_optimizer *optimizer, nm_error *err)
{
    static const char *const names[] = {NM_OPTIMIZERS(NM_CHOICE_NAME)};
    if (!optimizer->type->update_matrix)
        return NM_OK;
    if (optimizer->tree->sharded)
        return nm_fail(
            err, NM_USAGE,
            "optim.name = %s: it updates whole matrices, which comm.shard_optimizer divides; disable "
            "comm.shard_optimizer or choose another optimizer",
            names[optimizer->config->name]);
    if (!optimizer->n_blocks)
        return nm_fail(
            err, NM_USAGE,
            "optim.name = %s: the model trains no weight matrix of an attention or feed-forward layer; "
            "choose adamw",
            names[optimizer->config->name]);
    return NM_OK;
}

nm_status nm_optimizer_init(nm_optimizer *optimizer, const nm_optim_config *config, double clip_value,
                            nm_shard_tree *tree, nm_error *err)
{
    const nm_params *params = tree->params;
    const size_t unit = nm_dtype_bytes(params->backend->dtype);
    *optimizer = (nm_optimizer){
        .config = config, .type = nm_optimizer_type_of(config), .clip_value = clip_value, .tree = tree};
    optimizer->part.n = params->n_elements;
    if (tree->sharded) {
        nm_shard_tree_part(tree, &optimizer->part.first, &optimizer->part.n);
        optimizer->block_sums =
            nm_allocate((params->n_elements / NM_DOT_BLOCK + 1) * sizeof *optimizer->block_sums);
    }
    find_trainable(optimizer);
    NM_TRY(check_matrices(optimizer, err));
    optimizer->n_v = optimizer->type->v ? optimizer->n_v : 0;
    if (optimizer->type->m)
        NM_TRY(nm_backend_alloc(params->backend, optimizer->part.n * unit, &optimizer->m, err));
    if (optimizer->type->v)
        NM_TRY(nm_backend_alloc(params->backend, optimizer->n_v * unit, &optimizer->v, err));
    if (optimizer->n_workspace)
        NM_TRY(nm_backend_alloc(params->backend, optimizer->n_workspace * unit, &optimizer->workspace, err));
    optimizer->whole_m = tree->sharded && optimizer->m ? params->grads : optimizer->m;
    optimizer->whole_v = tree->sharded && optimizer->v ? tree->waiting[0].grads : optimizer->v;
    optimizer->n_whole_m = optimizer->m ? params->n_elements : 0;
    optimizer->n_whole_v = tree->sharded && optimizer->v ? params->n_elements : optimizer->n_v;
    return NM_OK;
}

void nm_optimizer_release(nm_optimizer *optimizer)
{
    void *memory[] = {optimizer->m, optimizer->v, optimizer->workspace};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            nm_backend_dealloc(optimizer->tree->params->backend, memory[i]);
    NM_FREE(optimizer->trainable, optimizer->blocks, optimizer->block_sums);
    *optimizer = (nm_optimizer){0};
}

size_t nm_optimizer_bytes(const nm_optimizer *optimizer)
{
    size_t n = optimizer->n_workspace;
    for (size_t i = 0; i < optimizer->n_trainable; i++)
        n += (size_t)(optimizer->type->m + optimizer->type->v) * optimizer->trainable[i].n;
    for (size_t i = 0; i < optimizer->n_blocks; i++)
        n += (size_t)optimizer->blocks[i].rows * (size_t)optimizer->blocks[i].cols;
    return n * nm_dtype_bytes(optimizer->tree->params->backend->dtype);
}

/* to NULL: the optimizer has no such moment. */
static void load_range(const nm_optimizer *optimizer, void *to, const void *from, size_t first, size_t n)
{
    if (!to)
        return;
    nm_backend *b = optimizer->tree->params->backend;
    size_t at = first * nm_dtype_bytes(b->dtype);
    nm_backend_upload(b, (char *)to + at, (const char *)from + at, n * nm_dtype_bytes(b->dtype));
}

void nm_optimizer_load(nm_optimizer *optimizer, const void *m, const void *v)
{
    if (optimizer->tree->sharded) { /* the ranges are those of this process */
        load_range(optimizer, optimizer->whole_m, m, 0, optimizer->n_whole_m);
        load_range(optimizer, optimizer->whole_v, v, 0, optimizer->n_whole_v);
        return;
    }
    for (size_t i = 0; i < optimizer->n_trainable; i++) {
        const nm_param_range range = optimizer->trainable[i];
        load_range(optimizer, optimizer->m, m, range.first, range.n);
        load_range(optimizer, optimizer->v, v, range.v, range.n);
    }
    for (size_t i = 0; i < optimizer->n_blocks; i++) {
        const nm_matrix_block block = optimizer->blocks[i];
        load_range(optimizer, optimizer->m, m, block.first, (size_t)block.rows * (size_t)block.cols);
    }
}

/* Some operations also compute gradients of fixed parameters, which must not affect the gradient norm. */
static void zero_fixed(const nm_params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        const nm_tensor *t = &params->list[i]->tensor;
        if (t->grad_written)
            nm_backend_zero(params->backend, t->grad,
                            (size_t)t->rows * (size_t)t->cols * nm_dtype_bytes(params->backend->dtype));
    }
}

nm_status nm_optimizer_gradient_square(nm_optimizer *optimizer, double *square, nm_error *err)
{
    const nm_params *params = optimizer->tree->params;
    const nm_param_range part = optimizer->part;
    const char *grads = (char *)params->grads + part.first * nm_dtype_bytes(params->backend->dtype);
    double *sums = optimizer->block_sums, sum = 0;
    zero_fixed(params);
    NM_CALL(params->backend, dot, .n = part.n, .a = grads, .b = grads, .factor = 1,
            .blocks = sums ? sums + part.first / NM_DOT_BLOCK : NULL, .total = square);
    if (!sums)
        return NM_OK;
    NM_TRY(nm_shard_tree_gather(optimizer->tree, sums, NM_DOT_BLOCK, sizeof *sums, err));
    for (size_t i = 0; i * NM_DOT_BLOCK < params->n_elements; i++)
        sum += sums[i];
    nm_backend_upload(params->backend, square, &sum, sizeof sum);
    return NM_OK;
}

/* A range that is shifted would be rounded, and a matrix become NaN. */
bool nm_optimizer_skips(const nm_optimizer *optimizer)
{
    bool skips = !optimizer->n_blocks;
    for (size_t i = 0; i < optimizer->n_trainable; i++)
        skips &= !is_shifted(optimizer, &optimizer->trainable[i]);
    return skips;
}

/* Part of an update: elements of the parameters from `first` on. */
static nm_optimizer_update part_of(const nm_optimizer *optimizer, const nm_optimizer_update *whole,
                                   size_t first)
{
    const nm_params *params = optimizer->tree->params;
    const size_t unit = nm_dtype_bytes(params->backend->dtype), at = first * unit;
    nm_optimizer_update u = *whole;
    u.p = (char *)params->values + at;
    u.g = (char *)params->grads + at;
    u.m = optimizer->m ? (char *)optimizer->m + (first - optimizer->part.first) * unit : NULL;
    return u;
}

/* Adds a constant to the elements of a range, so that weight decay pulls them to decay_to: p - decay_to
 * decays to 0. */
static void shift_range(const nm_optimizer *optimizer, const nm_param_range *range, void *p, double by)
{
    NM_ASSERT(range->n <= INT32_MAX);
    if (is_shifted(optimizer, range))
        NM_CALL(optimizer->tree->params->backend, vec, .op = NM_VEC_SHIFT, .n = (int32_t)range->n, .out = p,
                .a = p, .s = by);
}

nm_status nm_optimizer_step(nm_optimizer *optimizer, int64_t step, double lr, const double *scale,
                            nm_error *err)
{
    const nm_params *params = optimizer->tree->params;
    const nm_optimizer_type *type = optimizer->type;
    const size_t unit = nm_dtype_bytes(params->backend->dtype);
    const nm_optimizer_update whole = {.backend = params->backend,
                                       .config = optimizer->config,
                                       .step = step,
                                       .lr = lr,
                                       .scale = scale,
                                       .clip_value = optimizer->clip_value};
    for (size_t i = 0; i < optimizer->n_trainable; i++) {
        const nm_param_range range = optimizer->trainable[i];
        nm_optimizer_update u = part_of(optimizer, &whole, range.first);
        u.n = range.n;
        u.v = optimizer->v ? (char *)optimizer->v + range.v * unit : NULL;
        u.weight_decay = range.decays ? optimizer->config->weight_decay : 0;
        shift_range(optimizer, &range, u.p, -range.decay_to);
        type->update(&u);
        shift_range(optimizer, &range, u.p, range.decay_to);
    }
    for (size_t i = 0; i < optimizer->n_blocks; i++) {
        const nm_matrix_block *block = &optimizer->blocks[i];
        nm_optimizer_update u = part_of(optimizer, &whole, block->first);
        u.n = (size_t)block->rows * (size_t)block->cols;
        u.weight_decay = optimizer->config->weight_decay;
        type->update_matrix(&u, block->rows, block->cols, optimizer->workspace);
    }
    return optimizer->tree->sharded ? nm_shard_tree_gather(optimizer->tree, params->values, 1, unit, err)
                                    : NM_OK;
}

nm_status nm_optimizer_collect(nm_optimizer *optimizer, nm_error *err)
{
    if (!optimizer->tree->sharded)
        return NM_OK;
    if (optimizer->m)
        NM_TRY(nm_shard_tree_collect(optimizer->tree, optimizer->m, optimizer->whole_m, err));
    return optimizer->v ? nm_shard_tree_collect(optimizer->tree, optimizer->v, optimizer->whole_v, err)
                        : NM_OK;
}

nm_status nm_optimizer_distribute(nm_optimizer *optimizer, nm_error *err)
{
    if (!optimizer->tree->sharded)
        return NM_OK;
    if (optimizer->m)
        NM_TRY(nm_shard_tree_distribute(optimizer->tree, optimizer->whole_m, optimizer->m, err));
    return optimizer->v ? nm_shard_tree_distribute(optimizer->tree, optimizer->whole_v, optimizer->v, err)
                        : NM_OK;
}
