/* Launches of attention in all its forms: packed sequences, relative positions, guided alignment, a gathered
 * KV cache. */
#include "backend/device/launch.h"

static dptr plus(dptr address, size_t elements, size_t bytes)
{
    return address + (dptr)(elements * bytes);
}

static int tiles_of(const nm_packing *packing)
{
    return (int)nm_device_blocks(packing->longest, TILE_ROWS);
}

static void check_shapes(nm_mat q, nm_mat k, const nm_packing *q_packing, const nm_packing *k_packing)
{
    NM_ASSERT(q_packing->n_seqs == k_packing->n_seqs);
    NM_ASSERT(q_packing->n_tokens == q.rows && k_packing->n_tokens == k.rows);
    NM_ASSERT(q.cols == k.cols);
}

static struct dattention attention_of(nm_backend *b, nm_mat q, nm_mat k, const nm_packing *q_packing,
                                      const nm_packing *k_packing, int32_t heads, double scale)
{
    check_shapes(q, k, q_packing, k_packing);
    NM_ASSERT(heads > 0 && q.cols % heads == 0);
    return (struct dattention){.q = nm_device_mat(q),
                               .k = nm_device_mat(k),
                               .q_offsets = nm_device_offsets(b, q_packing, 0),
                               .k_offsets = nm_device_offsets(b, k_packing, 1),
                               .scale = (float)scale,
                               .heads = heads};
}

static struct dattention plain_attention(nm_backend *b, const nm_attention_args *args)
{
    struct dattention x =
        attention_of(b, args->q, args->k, args->q_packing, args->k_packing, args->heads, args->scale);
    NM_ASSERT(args->v.cols % args->heads == 0 && args->v.rows == args->k.rows);
    x.drop = nm_device_drop(args->drop);
    x.causal = args->causal;
    x.window = args->window;
    x.bf16 = b->bf16;
    return x;
}

static struct dattention relative(nm_backend *b, const nm_relative_attention_args *args)
{
    const int32_t longest = args->q_packing->longest > args->k_packing->longest ? args->q_packing->longest
                                                                                : args->k_packing->longest;
    struct dattention x = attention_of(b, args->q, args->k, args->q_packing, args->k_packing, args->heads, 1);
    NM_ASSERT(args->positions.cols == args->q.cols / args->heads && nm_device_same_shape(args->k, args->v));
    NM_ASSERT(longest <= args->zero_row + 1 && args->zero_row + longest <= args->positions.rows);
    x.drop = nm_device_drop(&args->drop);
    x.key_bias = nm_device_address(args->key_bias);
    x.distance_bias = nm_device_address(args->distance_bias);
    x.positions = nm_device_mat(args->positions);
    x.zero_row = args->zero_row;
    return x;
}

/* Whether the heads fit the kernels for tensor cores */
static bool fits_mma(const struct dattention *x, int32_t v_cols)
{
    return x->bf16 && x->q.cols / x->heads <= MMA_ROWS && v_cols / x->heads <= MMA_ROWS;
}

static void launch_forward(nm_backend *b, const struct dattention *x, const nm_packing *q_packing, nm_mat v,
                           nm_mat out, dptr lse)
{
    struct attention_args f = {.x = *x, .v = nm_device_mat(v), .out = nm_device_mat(out), .lse = lse};
    if (fits_mma(x, v.cols)) {
        f.tiles = (int)nm_device_blocks(q_packing->longest, MMA_ROWS);
        LAUNCH(b, attention_mma, (int64_t)q_packing->n_seqs * f.tiles, x->heads, .f = f);
        return;
    }
    f.tiles = tiles_of(q_packing);
    nm_device_launch(b, &nm_device_attention, (int64_t)q_packing->n_seqs * f.tiles, x->heads, &f, sizeof f);
}

void nm_launch_attention(nm_backend *b, const nm_attention_args *args)
{
    NM_ASSERT(args->out.rows == args->q.rows && args->out.cols == args->v.cols);
    const struct dattention x = plain_attention(b, args);
    launch_forward(b, &x, args->q_packing, args->v, args->out, nm_device_address(args->lse));
}

void nm_launch_relative_attention(nm_backend *b, const nm_relative_attention_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->q, args->out));
    const struct dattention x = relative(b, args);
    launch_forward(b, &x, args->q_packing, args->v, args->out, nm_device_address(args->lse));
}

static void launch_gradients(nm_backend *b, struct attention_gradients g, const nm_packing *q_packing,
                             const nm_packing *k_packing)
{
    if (fits_mma(&g.x, g.v.cols)) {
        g.tiles = (int)nm_device_blocks(q_packing->longest, MMA_ROWS);
        LAUNCH(b, attention_mma_grad_q, (int64_t)q_packing->n_seqs * g.tiles, g.x.heads, .g = g);
        g.tiles = (int)nm_device_blocks(k_packing->longest, MMA_ROWS);
        LAUNCH(b, attention_mma_grad_kv, (int64_t)k_packing->n_seqs * g.tiles, g.x.heads, .g = g);
        return;
    }
    g.tiles = tiles_of(q_packing);
    LAUNCH(b, attention_grad_q, (int64_t)q_packing->n_seqs * g.tiles, g.x.heads, .g = g);
    g.tiles = tiles_of(k_packing);
    LAUNCH(b, attention_grad_kv, (int64_t)k_packing->n_seqs * g.tiles, g.x.heads, .g = g);
}

static dptr launch_delta(nm_backend *b, nm_mat out, nm_mat dout, int32_t heads)
{
    NM_ASSERT(nm_device_same_shape(out, dout));
    const size_t bytes = (size_t)heads * (size_t)out.rows * sizeof(float) + 1;
    const dptr delta = nm_device_scratch(b, NM_DEVICE_TOTALS, bytes);
    LAUNCH(b, attention_delta, nm_device_blocks(out.rows, ROW_WARPS), heads, .out = nm_device_mat(out),
           .dout = nm_device_mat(dout), .delta = delta, .heads = heads);
    return delta;
}

void nm_launch_attention_grad(nm_backend *b, const nm_attention_grad_args *args)
{
    const nm_attention_args *forward = &args->forward;
    NM_ASSERT(nm_device_same_shape(forward->q, args->dq) && nm_device_same_shape(forward->k, args->dk) &&
              nm_device_same_shape(forward->v, args->dv));
    const struct attention_gradients g = {.x = plain_attention(b, forward),
                                          .v = nm_device_mat(forward->v),
                                          MAT(dout),
                                          MAT(dq),
                                          MAT(dk),
                                          MAT(dv),
                                          .lse = nm_device_address(forward->lse),
                                          .delta = launch_delta(b, forward->out, args->dout, forward->heads)};
    launch_gradients(b, g, forward->q_packing, forward->k_packing);
}

/* The sums of ds k and of ds R over the keys are separate until their columns, the gradients of the biases,
 * have been added. */
void nm_launch_relative_attention_grad(nm_backend *b, const nm_relative_attention_grad_args *args)
{
    const nm_relative_attention_args *forward = &args->forward;
    const nm_mat q = forward->q;
    NM_ASSERT(nm_device_same_shape(q, args->dq) && nm_device_same_shape(forward->k, args->dk));
    const size_t bytes = (size_t)q.rows * (size_t)q.cols * sizeof(float) + 1;
    const nm_mat far =
        nm_mat_of((void *)(uintptr_t)nm_device_scratch(b, NM_DEVICE_WORK, bytes), q.rows, q.cols);
    const struct attention_gradients g = {.x = relative(b, forward),
                                          .v = nm_device_mat(forward->v),
                                          MAT(dout),
                                          MAT(dq),
                                          MAT(dk),
                                          MAT(dv),
                                          .dq_distances = nm_device_mat(far),
                                          .lse = nm_device_address(forward->lse),
                                          .delta = launch_delta(b, forward->out, args->dout, forward->heads)};
    launch_gradients(b, g, forward->q_packing, forward->k_packing);
    nm_device_add_columns(b, args->dq, args->d_key_bias);
    nm_device_add_columns(b, far, args->d_distance_bias);
    NM_CALL(b, add, .alpha = 1, .x = far, .y = args->dq);
}

void nm_launch_guided_attention(nm_backend *b, const nm_guided_attention_args *args)
{
    NM_ASSERT(!args->dq.data == !args->dk.data);
    const int32_t rows = args->q.rows;
    const struct dattention x =
        attention_of(b, args->q, args->k, args->q_packing, args->k_packing, 1, args->scale);
    const dptr work =
        nm_device_scratch(b, NM_DEVICE_WORK, (size_t)rows * (sizeof(double) + sizeof(float)) + 1);
    const dptr lse = plus(work, (size_t)rows, sizeof(double)), given = nm_device_address(args->offsets),
               given_keys = nm_device_address(args->keys);
    launch_forward(b, &x, args->q_packing, (nm_mat){0}, (nm_mat){0}, lse);
    if (args->loss) {
        LAUNCH(b, guided_loss, nm_device_blocks(rows, 128), 1, .q = x.q, .k = x.k, .q_offsets = x.q_offsets,
               .k_offsets = x.k_offsets, .given = given, .given_keys = given_keys, .lse = lse, .loss = work,
               .weight = args->weight, .scale = x.scale);
        LAUNCH(b, double_total, 1, 1, .x = work, .out = nm_device_address(args->loss), .n = rows,
               .factor = 1);
    }
    if (args->dq.data)
        launch_gradients(b,
                         (struct attention_gradients){.x = x,
                                                      MAT(dq),
                                                      MAT(dk),
                                                      .lse = lse,
                                                      .given = given,
                                                      .given_keys = given_keys,
                                                      .grad_factor = (float)(args->grad_scale * args->weight),
                                                      .add = true},
                         args->q_packing, args->k_packing);
}

void nm_launch_attention_cached(nm_backend *b, const nm_attention_cached_args *args)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t heads = args->heads, key_heads = args->key_heads ? args->key_heads : heads;
    NM_ASSERT(heads > 0 && key_heads > 0 && heads % key_heads == 0 && q.cols % heads == 0);
    NM_ASSERT(k.cols == q.cols / heads * key_heads && v.cols % key_heads == 0 && k.rows == v.rows);
    NM_ASSERT(out.rows == q.rows && out.cols == v.cols / key_heads * heads);
    LAUNCH(b, attention_cached, nm_device_blocks(q.rows, ROW_WARPS), heads, .q = nm_device_mat(q),
           .k = nm_device_mat(k), .v = nm_device_mat(v), .out = nm_device_mat(out), ADDRESS(rows),
           ADDRESS(offsets), .scale = (float)args->scale, .heads = heads, .key_heads = key_heads,
           .bf16 = args->bf16);
}
