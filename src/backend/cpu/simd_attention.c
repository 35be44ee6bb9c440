/* Scaled dot-product attention, fused per sequence and head (Vaswani et al. 2017; backward recomputes the
 * weights from the log of the softmax denominators as in Dao et al. 2022). One thread computes a pair of
 * sequence and head with the register tile of GEMM; scores live in its workspace. Queries are processed in
 * blocks of QUERIES rows, so that the workspace grows linearly with the number of keys. With NM_BF16 the
 * operands of every matrix multiplication are packed to bf16, softmax weights and their gradients included;
 * scores, softmax and sums are float. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/relative.h"
#include "backend/cpu/small_gemm.h"

#include <omp.h>

enum { QUERIES = 56 }; /* even */

#if defined(NM_BF16)
enum { LEFT_ROWS = QUERIES };
#else
enum { LEFT_ROWS = 0 };
#endif

typedef struct attention {
    nm_mat q, k, v, out, dout, dq, dk, dv;
    const nm_packing *q_packing, *k_packing;
    int32_t heads, width, v_width; /* columns of one head: of q and k, and of v */
    bool causal;
    float scale;
    nm_drop drop;
    float *lse;
} attention;

/* Per-thread workspace; all blocks are padded to whole vectors. keys: columns of score blocks, rounded up. */
typedef struct workspace {
    int32_t keys;
    float *k_columns,
        *v_columns;   /* k and v transposed into panels, for matrix multiplications over the width */
    float *padded[4]; /* row-padded copies of right operands whose rows are not whole vectors, or with
                         NM_BF16 their panel rows: q, k, v, dout */
    float *left;      /* with NM_BF16: panel rows of q or dout as left operand */
    float *scores, *dropped, *grads; /* [QUERIES][keys]: weights, weights after dropout, gradients */
    float *factors;
} workspace;

/* One sequence and head. */
typedef struct pair {
    int32_t head, q0, m, k0, n;
} pair;

/* Number of floats of a workspace; assigns its pointers if base is not NULL. */
static size_t workspace_floats(const attention *call, int32_t longest_keys, bool backward, float *base,
                               workspace *r)
{
    size_t keys = (size_t)nm_round_up(longest_keys, NM_TILE_COLS), used = 0;
    size_t width = (size_t)nm_round_up(call->width, NM_TILE_COLS),
           v_width = (size_t)nm_round_up(call->v_width, NM_TILE_COLS);
    size_t sizes[] = {keys * width,
                      backward ? keys * v_width : 0,
                      QUERIES * width,
                      keys * width,
                      keys * v_width,
                      QUERIES * v_width,
                      LEFT_ROWS * (width > v_width ? width : v_width),
                      QUERIES * keys,
                      backward ? QUERIES * keys : 0,
                      backward ? QUERIES * keys : 0,
                      keys + 2 * NM_DROP_COLS};
    float **parts[] = {&r->k_columns, &r->v_columns, &r->padded[0], &r->padded[1],
                       &r->padded[2], &r->padded[3], &r->left,      &r->scores,
                       &r->dropped,   &r->grads,     &r->factors};
    r->keys = (int32_t)keys;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (base)
            *parts[i] = base + used;
        used += (sizes[i] + 15) / 16 * 16;
    }
    return used + NM_W;
}

static float *head_rows(nm_mat m, int32_t row, int32_t head, int32_t width)
{
    return nm_row(m, row) + (size_t)head * (size_t)width;
}

/* Floats of a panel of NM_TILE_COLS columns. */
static size_t panel_floats(int32_t depth)
{
    return (size_t)nm_panel_rows(depth) * NM_TILE_COLS;
}

/* [n, width] transposed into panels of NM_TILE_COLS of the n */
static void transpose_panels(const float *from, size_t stride, int32_t n, int32_t width, float *to)
{
    for (int32_t j = 0; j < n; j += NM_W) {
        float *panel = to + (size_t)(j / NM_TILE_COLS) * panel_floats(width) + j % NM_TILE_COLS;
        nm_pack_transposed(from + (size_t)j * stride, stride, nm_min_i32(n - j, NM_W), width, panel,
                           NM_TILE_COLS);
    }
}

/* A right operand: itself if its rows are whole vectors of float, otherwise a padded or packed copy. */
static panels padded_operand(const float *from, size_t stride, int32_t n, int32_t width, float *copy)
{
#if !defined(NM_BF16)
    if (width % NM_W == 0)
        return (panels){from, NM_TILE_COLS, stride};
#endif
    size_t step = (size_t)nm_round_up(width, NM_W);
    for (int32_t i = 0; i < n; i += NM_PANEL_GROUP)
        for (int32_t j = 0; j < width; j += NM_W)
            nm_pack_group(from + (size_t)i * stride + j, stride, n - i, width - j,
                          copy + (size_t)nm_panel_rows(i) * step + j, step);
    return (panels){copy, NM_TILE_COLS, step};
}

/* A left operand of m rows along the width of a head. */
static operand left_operand(const float *from, size_t stride, int32_t m, int32_t width, float *copy)
{
#if defined(NM_BF16)
    size_t step = (size_t)nm_round_up(width, NM_TILE_COLS);
    for (int32_t i = 0; i < m; i++)
        nm_pack_row(from + (size_t)i * stride, width, copy + (size_t)i * step);
    return (operand){copy, step, 1};
#else
    (void)m;
    (void)width;
    (void)copy;
    return (operand){from, stride, 1};
#endif
}

/* A block of m rows of weights or gradients as left operand along its keys; packed in place. */
static operand block_rows(const workspace *r, float *block, int32_t m, int32_t keys)
{
#if defined(NM_BF16)
    for (int32_t i = 0; i < m; i++)
        nm_pack_row(block + (size_t)i * (size_t)r->keys, keys, block + (size_t)i * (size_t)r->keys);
#else
    (void)m;
    (void)keys;
#endif
    return (operand){block, (size_t)r->keys, 1};
}

/* The same block as left operand along its rows, for sums over the queries; packed to `to`, which may be the
 * block. */
static operand block_columns(const workspace *r, float *block, int32_t m, int32_t keys, float *to)
{
#if defined(NM_BF16)
    const size_t step = (size_t)r->keys;
    for (int32_t i = 0; i < m; i += NM_PANEL_GROUP)
        for (int32_t j = 0; j < keys; j += NM_W)
            nm_pack_group(block + (size_t)i * step + j, step, m - i, NM_W,
                          to + (size_t)nm_panel_rows(i) * step + j, step);
    return (operand){to, 1, step};
#else
    (void)m;
    (void)keys;
    (void)to;
    return (operand){block, 1, (size_t)r->keys};
#endif
}

static int32_t attended_keys(const attention *call, const pair *at, int32_t query)
{
    int32_t n_keys = call->causal ? query + (at->n - at->m) + 1 : at->n;
    return n_keys < 0 ? 0 : n_keys;
}

static float *weights_row(const workspace *r, float *block, int32_t i)
{
    return block + (size_t)i * (size_t)r->keys;
}

/* Masks the scores from n_keys up to whole vectors with -inf. */
static void mask_tail(float *row, int32_t n_keys, int32_t keys)
{
    for (int32_t j = n_keys; j < keys; j++)
        row[j] = -INFINITY;
}

static float row_max(const float *row, int32_t keys)
{
    vf top = v_set(-INFINITY);
    for (int32_t j = 0; j < keys; j += NM_W)
        top = v_max(top, v_load(row + j));
    return v_largest(top);
}

/* Softmax in place; *top: the largest score, 0 without keys. Returns the sum of e^(score - top). */
static double softmax_in_place(float *row, int32_t n_keys, int32_t keys, float *top)
{
    mask_tail(row, n_keys, keys);
    *top = n_keys ? row_max(row, keys) : 0;
    vf sums[NM_SUM_VECTORS] = {{0}};
#define EXP(i, j, count)                                                                                     \
    do {                                                                                                     \
        vf e = v_exp(v_sub(v_load(row + (j)), v_set(*top)));                                                 \
        sums[i] = v_add(sums[i], e);                                                                         \
        v_store(row + (j), e);                                                                               \
    } while (0)
    NM_SUM_COLUMNS(keys, EXP);
#undef EXP
    double sum = v_sum_lanes(sums);
    vf factor = v_set(n_keys ? (float)(1 / sum) : 0);
    for (int32_t j = 0; j < keys; j += NM_W)
        v_store(row + j, v_mul(factor, v_load(row + j)));
    return sum;
}

/* Softmax in place; returns the log of the denominator, -inf without keys. */
static float softmax_row(float *row, int32_t n_keys, int32_t keys)
{
    float top;
    double sum = softmax_in_place(row, n_keys, keys, &top);
    return n_keys ? (float)((double)top + log(sum)) : -INFINITY;
}

static const float *drop_row(const attention *call, const pair *at, int32_t query, int32_t keys,
                             float *factors)
{
    uint32_t row = (uint32_t)at->head * (uint32_t)call->q.rows + (uint32_t)(at->q0 + query);
    return nm_drop_row(&call->drop, row, 0, keys, factors);
}

/* Scores of queries first .. first + m - 1 with keys 0 .. keys - 1 */
static void score(const attention *call, const pair *at, const workspace *r, int32_t first, int32_t m,
                  int32_t keys)
{
    operand q = left_operand(head_rows(call->q, at->q0 + first, at->head, call->width),
                             (size_t)call->q.stride, m, call->width, r->left);
    multiply(&(small_gemm){.rows = m,
                           .cols = keys,
                           .depth = call->width,
                           .a = q,
                           .b = {r->k_columns, panel_floats(call->width), NM_TILE_COLS},
                           .alpha = call->scale,
                           .c = r->scores,
                           .ldc = (size_t)r->keys});
}

static void forward_queries(const attention *call, const pair *at, const workspace *r, panels v,
                            int32_t first, int32_t m)
{
    int32_t keys = attended_keys(call, at, first + m - 1), padded_keys = nm_round_up(keys, NM_W);
    score(call, at, r, first, m, keys);
    for (int32_t i = 0; i < m; i++) {
        float *row = weights_row(r, r->scores, i);
        float lse = softmax_row(row, attended_keys(call, at, first + i), padded_keys);
        if (call->lse)
            call->lse[(size_t)at->head * (size_t)call->q.rows + (size_t)(at->q0 + first + i)] = lse;
        if (!call->drop.on)
            continue;
        const float *factor = drop_row(call, at, first + i, keys, r->factors);
        for (int32_t j = 0; j < padded_keys; j += NM_W)
            v_store(row + j, v_mul(v_load(row + j), v_load(factor + j)));
    }
    multiply(&(small_gemm){.rows = m,
                           .cols = call->v_width,
                           .depth = keys,
                           .a = block_rows(r, r->scores, m, keys),
                           .b = v,
                           .alpha = 1,
                           .c = head_rows(call->out, at->q0 + first, at->head, call->v_width),
                           .ldc = (size_t)call->out.stride});
}

static void forward_pair(const attention *call, const pair *at, const workspace *r)
{
    const float *k = head_rows(call->k, at->k0, at->head, call->width);
    const float *v = head_rows(call->v, at->k0, at->head, call->v_width);
    transpose_panels(k, (size_t)call->k.stride, at->n, call->width, r->k_columns);
    panels values = padded_operand(v, (size_t)call->v.stride, at->n, call->v_width, r->padded[2]);
    for (int32_t i = 0; i < at->m; i += QUERIES)
        forward_queries(call, at, r, values, i, nm_min_i32(at->m - i, QUERIES));
}

static double dot_row(int32_t n, const float *a, const float *b)
{
    vf sums[NM_SUM_VECTORS] = {{0}};
#define DOT(i, j, count) sums[i] = v_fma(v_load_upto(a + (j), count), v_load_upto(b + (j), count), sums[i])
    NM_SUM_COLUMNS(n, DOT);
#undef DOT
    return v_sum_lanes(sums);
}

/* For one query, with D = out . dout and p from the scores:
 *     weights after dropout:  f p
 *     dp is replaced by:      ds = scale p (f dp - D) */
static void grad_row(const attention *call, const pair *at, const workspace *r, int32_t first, int32_t i,
                     int32_t keys)
{
    int32_t query = first + i, row = at->q0 + query, n_keys = attended_keys(call, at, query);
    float *scores = weights_row(r, r->scores, i), *dropped = weights_row(r, r->dropped, i),
          *ds = weights_row(r, r->grads, i);
    const float *factor = call->drop.on ? drop_row(call, at, query, keys, r->factors) : NULL;
    float lse = call->lse[(size_t)at->head * (size_t)call->q.rows + (size_t)row];
    vf total = v_set((float)dot_row(call->v_width, head_rows(call->out, row, at->head, call->v_width),
                                    head_rows(call->dout, row, at->head, call->v_width)));
    mask_tail(scores, n_keys, nm_round_up(keys, NM_W));
    for (int32_t j = 0; j < keys; j += NM_W) {
        vf p = j < n_keys ? v_exp(v_sub(v_load(scores + j), v_set(lse))) : v_set(0);
        vf f = factor ? v_load(factor + j) : v_set(1),
           dp = v_first(v_load(ds + j), nm_min_i32(keys - j, NM_W));
        v_store(dropped + j, v_mul(p, f));
        v_store(ds + j, v_mul(v_mul(v_set(call->scale), p), v_sub(v_mul(f, dp), total)));
    }
}

/* dq of a block of queries, and their contribution to dk and dv (+= if `add`, otherwise =). */
static void backward_queries(const attention *call, const pair *at, const workspace *r, panels k, bool add,
                             int32_t first, int32_t m)
{
    int32_t keys = attended_keys(call, at, first + m - 1);
    const float *q_rows = head_rows(call->q, at->q0 + first, at->head, call->width);
    const float *dout_rows = head_rows(call->dout, at->q0 + first, at->head, call->v_width);
    score(call, at, r, first, m, keys);
    multiply(&(small_gemm){.rows = m,
                           .cols = keys,
                           .depth = call->v_width,
                           .a = left_operand(dout_rows, (size_t)call->dout.stride, m, call->v_width, r->left),
                           .b = {r->v_columns, panel_floats(call->v_width), NM_TILE_COLS},
                           .alpha = 1,
                           .c = r->grads,
                           .ldc = (size_t)r->keys});
    for (int32_t i = 0; i < m; i++)
        grad_row(call, at, r, first, i, keys);
    operand ds_columns = block_columns(r, r->grads, m, keys, r->scores);
    multiply(&(small_gemm){.rows = m,
                           .cols = call->width,
                           .depth = keys,
                           .a = block_rows(r, r->grads, m, keys),
                           .b = k,
                           .alpha = 1,
                           .c = head_rows(call->dq, at->q0 + first, at->head, call->width),
                           .ldc = (size_t)call->dq.stride});
    operand kept_columns = block_columns(r, r->dropped, m, keys, r->dropped);
    panels q = padded_operand(q_rows, (size_t)call->q.stride, m, call->width, r->padded[0]);
    panels dout = padded_operand(dout_rows, (size_t)call->dout.stride, m, call->v_width, r->padded[3]);
    multiply(&(small_gemm){.rows = keys,
                           .cols = call->width,
                           .depth = m,
                           .a = ds_columns,
                           .b = q,
                           .alpha = 1,
                           .add = add,
                           .c = head_rows(call->dk, at->k0, at->head, call->width),
                           .ldc = (size_t)call->dk.stride});
    multiply(&(small_gemm){.rows = keys,
                           .cols = call->v_width,
                           .depth = m,
                           .a = kept_columns,
                           .b = dout,
                           .alpha = 1,
                           .add = add,
                           .c = head_rows(call->dv, at->k0, at->head, call->v_width),
                           .ldc = (size_t)call->dv.stride});
}

static void zero_rows(nm_mat to, int32_t row, int32_t n, int32_t head, int32_t width)
{
    for (int32_t i = 0; i < n; i++)
        memset(head_rows(to, row + i, head, width), 0, (size_t)width * sizeof(float));
}

static void backward_pair(const attention *call, const pair *at, const workspace *r)
{
    const float *k = head_rows(call->k, at->k0, at->head, call->width);
    const float *v = head_rows(call->v, at->k0, at->head, call->v_width);
    transpose_panels(k, (size_t)call->k.stride, at->n, call->width, r->k_columns);
    transpose_panels(v, (size_t)call->v.stride, at->n, call->v_width, r->v_columns);
    panels keys = padded_operand(k, (size_t)call->k.stride, at->n, call->width, r->padded[1]);
    /* The first block initializes dk and dv if it attends to all keys; otherwise they start from zero. */
    bool add = at->m == 0 || attended_keys(call, at, nm_min_i32(at->m, QUERIES) - 1) < at->n;
    if (add) {
        zero_rows(call->dk, at->k0, at->n, at->head, call->width);
        zero_rows(call->dv, at->k0, at->n, at->head, call->v_width);
    }
    for (int32_t i = 0; i < at->m; i += QUERIES) {
        backward_queries(call, at, r, keys, add, i, nm_min_i32(at->m - i, QUERIES));
        add = true;
    }
}

static attention prepare(const nm_attention_args *args)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t heads = args->heads;
    NM_ASSERT(heads > 0 && q.cols % heads == 0 && v.cols % heads == 0 && q.cols == k.cols &&
              k.rows == v.rows);
    NM_ASSERT(args->q_packing->n_seqs == args->k_packing->n_seqs && out.rows == q.rows && out.cols == v.cols);
    NM_ASSERT(args->q_packing->n_tokens == q.rows && args->k_packing->n_tokens == k.rows);
    return (attention){.q = q,
                       .k = k,
                       .v = v,
                       .out = out,
                       .q_packing = args->q_packing,
                       .k_packing = args->k_packing,
                       .heads = heads,
                       .width = q.cols / heads,
                       .v_width = v.cols / heads,
                       .causal = args->causal,
                       .scale = (float)args->scale,
                       .drop = nm_drop_of(args->drop),
                       .lse = args->lse};
}

static int32_t longest(const nm_packing *packing)
{
    int32_t most = 0;
    for (int32_t s = 0; s < packing->n_seqs; s++) {
        int32_t n = packing->offsets[s + 1] - packing->offsets[s];
        most = n > most ? n : most;
    }
    return most;
}

/* Prefetches the columns of several heads in memory order: the stride between heads defeats the hardware
 * prefetcher. */
static void prefetch_rows(nm_mat m, int32_t row, int32_t n, int32_t col, int32_t cols)
{
    for (int32_t i = 0; m.data && i < n; i++)
        for (int32_t j = 0; j < cols; j += 16)
            __builtin_prefetch(nm_row(m, row + i) + col + j, 0, 2);
}

/* Heads first .. first + n - 1 of one sequence. Not inlined: see nm_flush_begin. */
static __attribute__((noinline)) void run_heads(const attention *call, const workspace *r, int32_t sequence,
                                                int32_t first, int32_t n, bool backward)
{
    const int32_t *q = call->q_packing->offsets + sequence, *k = call->k_packing->offsets + sequence;
    pair at = {first, q[0], q[1] - q[0], k[0], k[1] - k[0]};
    int32_t width = call->width, v_width = call->v_width, rows = nm_min_i32(at.m, QUERIES);
    prefetch_rows(call->k, at.k0, nm_min_i32(at.n, QUERIES), first * width, n * width);
    prefetch_rows(call->q, at.q0, rows, first * width, n * width);
    prefetch_rows(call->v, at.k0, nm_min_i32(at.n, QUERIES), first * v_width, n * v_width);
    if (backward) {
        prefetch_rows(call->dout, at.q0, rows, first * v_width, n * v_width);
        prefetch_rows(call->out, at.q0, rows, first * v_width, n * v_width);
    }
    for (; at.head < first + n; at.head++) {
        if (backward)
            backward_pair(call, &at, r);
        else
            forward_pair(call, &at, r);
    }
}

static void run_pairs(nm_backend *b, const attention *call, bool backward)
{
    int32_t keys = longest(call->k_packing), n_seqs = call->q_packing->n_seqs;
    int32_t threads = nm_threads_for(b, (size_t)call->q.rows * (size_t)call->q.cols);
    /* Heads of a sequence are split over threads only if there are few sequences. */
    int32_t split = n_seqs ? nm_min_i32(nm_ceil_div(8 * threads, n_seqs), call->heads) : 1;
    int32_t part = nm_ceil_div(call->heads, split);
    workspace sizes;
    size_t floats = workspace_floats(call, keys, backward, NULL, &sizes);
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
#pragma omp parallel num_threads(threads)
    {
        workspace local;
        workspace_floats(call, keys, backward, base + (size_t)omp_get_thread_num() * floats, &local);
        const uint32_t mode = nm_flush_begin();
#pragma omp for schedule(dynamic, 1)
        for (int32_t i = 0; i < n_seqs * split; i++) {
            int32_t first = i % split * part;
            run_heads(call, &local, i / split, first, nm_min_i32(call->heads - first, part), backward);
        }
        nm_flush_end(mode);
    }
}

static void attention_forward(nm_backend *b, const nm_attention_args *args)
{
    attention call = prepare(args);
    run_pairs(b, &call, false);
}

static void attention_grad(nm_backend *b, const nm_attention_grad_args *args)
{
    attention call = prepare(&args->forward);
    NM_ASSERT(nm_same_shape(call.out, args->dout) && nm_same_shape(call.q, args->dq) &&
              nm_same_shape(call.k, args->dk) && nm_same_shape(call.v, args->dv));
    call.dout = args->dout;
    call.dq = args->dq;
    call.dk = args->dk;
    call.dv = args->dv;
    run_pairs(b, &call, true);
}

#if !defined(NM_BF16) /* which reads the cache in float */

/* Single queries over a gathered KV cache. Sizes that fit the registers and hide the latency of sums: */
enum { KEYS_AT_ONCE = 4, SUM_VECTORS = 8 };

typedef struct cached_attention {
    nm_mat q, k, v, out;
    int32_t width, v_width; /* of a head */
    float scale;
} cached_attention;

/* scores[i] = q . key i for KEYS_AT_ONCE keys; full: the width is a multiple of NM_W */
NM_INLINE void score_keys(const float *q, const float *const *keys, int32_t width, const bool full,
                          float *scores)
{
    vf sums[KEYS_AT_ONCE][NM_SUM_VECTORS] = {{{0}}};
#define DOT(i, j, count)                                                                                     \
    do {                                                                                                     \
        vf part = full ? v_load(q + (j)) : v_load_upto(q + (j), count);                                      \
        for (int k = 0; k < KEYS_AT_ONCE; k++)                                                               \
            sums[k][i] =                                                                                     \
                v_fma(part, full ? v_load(keys[k] + (j)) : v_load_upto(keys[k] + (j), count), sums[k][i]);   \
    } while (0)
    NM_SUM_COLUMNS(width, DOT);
#undef DOT
    v_sums(sums, scores);
}

/* Scores of the keys of a head. The last key is repeated up to a multiple of KEYS_AT_ONCE; those scores
 * are undefined. */
static void score_cached(const cached_attention *call, int32_t query, int32_t head, const int32_t *rows,
                         int32_t n, float *scores)
{
    size_t first_col = (size_t)head * (size_t)call->width;
    const float *q = nm_row(call->q, query) + first_col;
    for (int32_t j = 0; j < n; j += KEYS_AT_ONCE) {
        const float *keys[KEYS_AT_ONCE];
        for (int32_t i = 0; i < KEYS_AT_ONCE; i++)
            keys[i] = nm_row(call->k, rows[nm_min_i32(j + i, n - 1)]) + first_col;
        if (call->width % NM_W == 0)
            score_keys(q, keys, call->width, true, scores + j);
        else
            score_keys(q, keys, call->width, false, scores + j);
    }
}

static void softmax_cached(float scale, float *scores, int32_t n)
{
    for (int32_t j = 0; j < n; j += NM_W)
        v_store(scores + j, v_mul(v_set(scale), v_load(scores + j)));
    float top;
    softmax_in_place(scores, n, nm_round_up(n, NM_W), &top);
}

/* Values of the rows that a query attends to, from column first_col. */
typedef struct gathered_values {
    nm_mat v;
    const int32_t *rows;
    int32_t n;
    size_t first_col;
} gathered_values;

/* `count` vectors of out = sum_j weight_j v_j over the cached rows; per_head of them share the weights of
 * a head, those of the next head begin `stride` later; the last vector has `last` columns. */
NM_INLINE void weighted_sum_vectors(const gathered_values from, const float *weights, size_t stride,
                                    const int per_head, const int count, int32_t last, float *out)
{
    vf sum[SUM_VECTORS];
    for (int i = 0; i < count; i++)
        sum[i] = v_set(0);
    for (int32_t j = 0; j < from.n; j++) {
        const float *value = nm_row(from.v, from.rows[j]) + from.first_col;
        for (int i = 0; i < count - 1; i++)
            sum[i] = v_fma(v_set(weights[(size_t)(i / per_head) * stride + (size_t)j]),
                           v_load(value + i * NM_W), sum[i]);
        vf weight = v_set(weights[(size_t)((count - 1) / per_head) * stride + (size_t)j]);
        sum[count - 1] = v_fma(weight, v_load_upto(value + (count - 1) * NM_W, last), sum[count - 1]);
    }
    for (int i = 0; i < count - 1; i++)
        v_store(out + i * NM_W, sum[i]);
    v_store_upto(out + (count - 1) * NM_W, last, sum[count - 1]);
}

/* One head of `width` columns. */
static void weighted_sum_head(gathered_values from, const float *weights, int32_t width, float *out)
{
    for (int32_t columns; width > 0; width -= columns, from.first_col += (size_t)columns, out += columns) {
        int vectors = width >= SUM_VECTORS * NM_W ? SUM_VECTORS
                      : width >= 4 * NM_W         ? 4
                      : width > NM_W              ? 2
                                                  : 1;
        columns = nm_min_i32(width, vectors * NM_W);
        int32_t last = columns - (vectors - 1) * NM_W;
        if (vectors == SUM_VECTORS)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, SUM_VECTORS, NM_W, out);
        else if (vectors == 4)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 4, NM_W, out);
        else if (vectors == 2)
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 2, last, out);
        else
            weighted_sum_vectors(from, weights, 0, SUM_VECTORS, 1, last, out);
    }
}

/* Number of heads whose results fill SUM_VECTORS vectors, or 1. */
static int32_t heads_per_task(int32_t v_width, int32_t heads)
{
    static const int32_t vectors[] = {1, 2, 4};
    for (int i = 0; i < 3; i++)
        if (v_width == vectors[i] * NM_W && heads % (SUM_VECTORS / vectors[i]) == 0)
            return SUM_VECTORS / vectors[i];
    return 1;
}

static void weighted_sum_heads(const cached_attention *call, int32_t query, int32_t head, int32_t n_heads,
                               const float *weights, size_t stride, const int32_t *rows, int32_t n)
{
    size_t first_col = (size_t)head * (size_t)call->v_width;
    gathered_values from = {call->v, rows, n, first_col};
    float *out = nm_row(call->out, query) + first_col;
    if (n_heads == SUM_VECTORS)
        weighted_sum_vectors(from, weights, stride, 1, SUM_VECTORS, NM_W, out);
    else if (n_heads == SUM_VECTORS / 2)
        weighted_sum_vectors(from, weights, stride, 2, SUM_VECTORS, NM_W, out);
    else if (n_heads == SUM_VECTORS / 4)
        weighted_sum_vectors(from, weights, stride, 4, SUM_VECTORS, NM_W, out);
    else
        weighted_sum_head(from, weights, call->v_width, out);
}

static void attention_cached(nm_backend *b, const nm_attention_cached_args *args)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t *offsets = args->offsets, heads = args->heads;
    NM_ASSERT(heads > 0 && q.cols % heads == 0 && v.cols % heads == 0 && q.cols == k.cols);
    NM_ASSERT(out.rows == q.rows && out.cols == v.cols);
    cached_attention call = {q, k, v, out, q.cols / heads, v.cols / heads, (float)args->scale};
    int32_t n_heads = heads_per_task(call.v_width, heads), groups = heads / n_heads, most = 0;
    for (int32_t i = 0; i < q.rows; i++)
        most = offsets[i + 1] - offsets[i] > most ? offsets[i + 1] - offsets[i] : most;
    int32_t threads = nm_threads_for(b, (size_t)(offsets[q.rows] - offsets[0]) * (size_t)q.cols);
    size_t stride = (size_t)nm_round_up(most, 16) + 16, floats = stride * (size_t)n_heads;
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int32_t i = 0; i < q.rows * groups; i++) {
        float *weights = base + (size_t)omp_get_thread_num() * floats;
        int32_t query = i / groups, head = i % groups * n_heads, n = offsets[query + 1] - offsets[query];
        const int32_t *list = args->rows + offsets[query];
        for (int32_t h = 0; h < n_heads; h++)
            score_cached(&call, query, head + h, list, n, weights + (size_t)h * stride);
        for (int32_t h = 0; h < n_heads; h++)
            softmax_cached(call.scale, weights + (size_t)h * stride, n);
        weighted_sum_heads(&call, query, head, n_heads, weights, stride, list, n);
    }
}

#endif

void NM_SIMD(nm_cpu_attention)(nm_kernels *k)
{
    k->attention = attention_forward;
    k->attention_grad = attention_grad;
#if !defined(NM_BF16)
    k->attention_cached = attention_cached;
    NM_SIMD(nm_cpu_relative)(k);
#endif
}
