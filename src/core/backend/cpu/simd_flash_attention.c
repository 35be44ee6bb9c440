/* Scaled dot-product attention over packed sequences (Vaswani et al. 2017) in tiles of queries and keys, as
 * in FlashAttention (Dao et al. 2022; Dao 2023). The forward pass computes the softmax online: sums are
 * rescaled when a later tile has a larger score. The backward pass recomputes the weights from the log of the
 * softmax denominators. Only the scores of one tile are in memory at a time. A thread computes a pair of
 * sequence and head with the register tile of GEMM. With NM_BF16, the operands of all matrix multiplications,
 * including softmax weights and their gradients, are packed as bf16; scores, softmax and sums are float. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/relative.h"
#include "backend/cpu/shares.h"
#include "backend/cpu/small_gemm.h"

#include <float.h>
#include <omp.h>

enum {
#if defined(NM_BF16)
    QUERIES = 64, /* of a tile; a multiple of NM_PANEL_GROUP */
#else
    QUERIES = 56,
#endif
    KEYS = 256 /* of a tile; NM_DROP_COLS or a multiple */
};

_Static_assert(KEYS % NM_DROP_COLS == 0, "dropout factors of a tile begin with a block");
_Static_assert(QUERIES % NM_PANEL_GROUP == 0 && KEYS % NM_PANEL_GROUP == 0, "a tile begins with a group");

#if defined(NM_BF16)
enum { PACKED = 1 }; /* operands are copies */
#else
enum { PACKED = 0 };
#endif

typedef struct attention {
    nm_mat q, k, v, out, dout, dq, dk, dv;
    const nm_packing *q_packing, *k_packing;
    int32_t heads, width, v_width; /* columns of one head: of q and k, and of v */
    bool causal;
    int32_t window; /* 0: none */
    float scale;
    nm_drop drop;
    float *lse;
} attention;

/* One sequence and head. */
typedef struct pair {
    int32_t head, q0, m, k0, n;
} pair;

/* A block of queries and a block of keys of a pair. */
typedef struct tile {
    int32_t query, m, key, n; /* n: keys up to the last one that any of the queries attends to */
} tile;

/* Per-thread workspace. All rows are padded to whole vectors. */
typedef struct workspace {
    float *k_columns, *v_columns; /* transposed into panels: all keys (forward), keys of a tile (backward) */
    float *k_rows, *v_rows;       /* as right operands: all keys (forward), keys of a tile (backward) */
    float *q_left, *dout_left;    /* as left operands: a block of queries (forward), all queries (backward) */
    float *q_rows, *dout_rows;    /* backward: all queries as right operands */
    float *weights, *grads, *columns; /* [QUERIES][KEYS] */
    float *sums;                      /* forward: [QUERIES][v_width], weighted values */
    float *totals;                    /* backward: out . dout of all queries */
    float *factors;
} workspace;

static size_t padded(int32_t n)
{
    return (size_t)nm_round_up(n, NM_TILE_COLS);
}

/* Number of floats of a workspace; assigns its pointers if base is not NULL. */
static size_t workspace_floats(const attention *call, int32_t queries, int32_t keys, bool backward,
                               float *base, workspace *r)
{
    const size_t width = padded(call->width), v_width = padded(call->v_width), tile_floats = QUERIES * KEYS;
    const size_t n = padded(backward ? nm_min_i32(keys, KEYS) : keys),
                 m = backward ? padded(queries) : QUERIES;
    const struct {
        size_t floats;
        float **part;
    } parts[] = {{n * width, &r->k_columns},
                 {backward ? n * v_width : 0, &r->v_columns},
                 {backward ? n * width : 0, &r->k_rows},
                 {backward ? 0 : n * v_width, &r->v_rows},
                 {PACKED * m * width, &r->q_left},
                 {backward ? PACKED * m * v_width : 0, &r->dout_left},
                 {backward ? m * width : 0, &r->q_rows},
                 {backward ? m * v_width : 0, &r->dout_rows},
                 {tile_floats, &r->weights},
                 {backward ? tile_floats : 0, &r->grads},
                 {backward ? tile_floats : 0, &r->columns},
                 {backward ? 0 : QUERIES * v_width, &r->sums},
                 {backward ? m : 0, &r->totals},
                 {KEYS + 2 * NM_DROP_COLS, &r->factors}};
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (base)
            *parts[i].part = base + used;
        used += (parts[i].floats + 15) / 16 * 16;
    }
    return used + NM_W;
}

static float *head_rows(nm_mat m, int32_t row, int32_t head, int32_t width)
{
    return nm_row(m, row) + (size_t)head * (size_t)width;
}

/* A query attends to the keys first_key .. end_key - 1. */
static int32_t end_key(const attention *call, const pair *at, int32_t query)
{
    int32_t end = call->causal ? query + (at->n - at->m) + 1 : at->n;
    return end < 0 ? 0 : end;
}

static int32_t first_key(const attention *call, const pair *at, int32_t query)
{
    int32_t end = end_key(call, at, query);
    return call->window && end > call->window ? end - call->window : 0;
}

/* The same relative to the first key of a tile, at most its n. */
static int32_t tile_end(const attention *call, const pair *at, const tile *t, int32_t query)
{
    int32_t end = end_key(call, at, query) - t->key;
    return end < 0 ? 0 : nm_min_i32(end, t->n);
}

static int32_t tile_first(const attention *call, const pair *at, const tile *t, int32_t query)
{
    int32_t first = first_key(call, at, query) - t->key;
    return first < 0 ? 0 : nm_min_i32(first, t->n);
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

static panels transposed_panels(const float *columns, int32_t first, int32_t width)
{
    size_t panel = panel_floats(width);
    return (panels){columns + (size_t)(first / NM_TILE_COLS) * panel, panel, NM_TILE_COLS};
}

/* Rows as right operand: the rows themselves if they are few and consist of whole vectors of floats.
 * Otherwise a padded or packed copy, because rows with a large stride map to few sets of the L1 cache. */
static panels right_operand(const float *from, size_t stride, int32_t n, int32_t width, float *copy)
{
    if (!PACKED && width % NM_W == 0 && n <= KEYS)
        return (panels){from, NM_TILE_COLS, stride};
    size_t step = (size_t)nm_round_up(width, NM_W);
    for (int32_t i = 0; i < n; i += NM_PANEL_GROUP)
        for (int32_t j = 0; j < width; j += NM_W)
            nm_pack_group(from + (size_t)i * stride + j, stride, n - i, width - j,
                          copy + (size_t)nm_panel_rows(i) * step + j, step);
    return (panels){copy, NM_TILE_COLS, step};
}

/* The rows of a right operand from `first` on, a multiple of NM_PANEL_GROUP. */
static panels rows_from(panels rows, int32_t first)
{
    rows.data += (size_t)nm_panel_rows(first) * rows.step;
    return rows;
}

/* m rows along the width of a head as left operand. */
static operand left_operand(const float *from, size_t stride, int32_t m, int32_t width, float *copy)
{
#if defined(NM_BF16)
    size_t step = (size_t)nm_round_up(nm_panel_rows(width), NM_W);
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

static float *tile_row(float *block, int32_t i)
{
    return block + (size_t)i * KEYS;
}

/* A tile as left operand whose depth is its keys; packed in place. */
static operand tile_rows_operand(float *block, const tile *t)
{
#if defined(NM_BF16)
    for (int32_t i = 0; i < t->m; i++)
        nm_pack_row(tile_row(block, i), t->n, tile_row(block, i));
#else
    (void)t;
#endif
    return (operand){block, KEYS, 1};
}

/* A tile as left operand whose depth is its queries; packed to `to`. */
static operand tile_columns_operand(float *block, const tile *t, float *to)
{
#if defined(NM_BF16_AMX)
    const size_t step = (size_t)nm_panel_rows(t->m);
    for (int32_t j = 0; j < t->n; j += NM_W)
        for (int32_t i = 0; i < t->m; i += NM_PANEL_GROUP)
            nm_pack_columns(tile_row(block, i) + j, KEYS, t->m - i, NM_W,
                            to + (size_t)j * step + nm_panel_rows(i), step);
    return (operand){to, step, 1};
#elif defined(NM_BF16)
    for (int32_t i = 0; i < t->m; i += NM_PANEL_GROUP)
        for (int32_t j = 0; j < t->n; j += NM_W)
            nm_pack_group(tile_row(block, i) + j, KEYS, t->m - i, NM_W,
                          to + (size_t)nm_panel_rows(i) * KEYS + j, KEYS);
    return (operand){to, 1, KEYS};
#else
    (void)t;
    (void)to;
    return (operand){block, 1, KEYS};
#endif
}

/* Masks the scores before `first` and from n_keys up to whole NM_LANES with -inf; returns the end. */
static int32_t mask_row(float *row, int32_t first, int32_t n_keys, int32_t keys)
{
    int32_t end = nm_round_up(keys, NM_LANES);
    for (int32_t j = 0; j < first; j++)
        row[j] = -INFINITY;
    for (int32_t j = n_keys; j < end; j++)
        row[j] = -INFINITY;
    return end;
}

static const float *drop_row(const attention *call, const pair *at, const tile *t, int32_t query,
                             float *factors)
{
    uint32_t row = (uint32_t)at->head * (uint32_t)call->q.rows + (uint32_t)(at->q0 + query);
    return nm_drop_row(&call->drop, row, t->key, t->n, factors);
}

/* Forward.
 * With the largest score s_max so far, weights are relative to a reference r = n ln 2, n = ceil(s_max / ln
 * 2):
 *     w_j = e^(s_j - r)
 *     out = (sum_j drop(w_j) v_j) / sum_j w_j
 * so that a change of the reference multiplies sums by a power of two, which is exact, and with NM_BF16 the
 * rounded weights depend little on the order of large scores. For |s_max| > LARGEST_SCORE, r = s_max. */

enum { LARGEST_SCORE = 16384 }; /* products of n and the high part of ln 2 are exact up to here */

typedef struct softmax_state {
    float reference; /* r = base + steps ln 2 */
    float base;      /* 0 unless |s_max| > LARGEST_SCORE */
    int32_t steps;   /* n */
    float sums[NM_LANES];
} softmax_state;

static float row_max(const float *row, int32_t keys)
{
    vf top = v_set(-INFINITY);
    for (int32_t j = 0; j < keys; j += NM_W)
        top = v_max(top, v_load(row + j));
    return v_largest(top);
}

/* Sets the reference for the largest score `top`. Returns the factor by which earlier sums must be
 * multiplied. */
static float raise_reference(softmax_state *s, float top)
{
    const softmax_state old = *s;
    if (fabsf(top) <= LARGEST_SCORE) {
        s->base = 0;
        s->steps = (int32_t)ceilf(top * 1.44269504088896341f);
        s->reference = (float)s->steps * 0.69314718055994531f;
    } else {
        s->base = s->reference = top == -INFINITY ? -FLT_MAX : top;
        s->steps = 0;
    }
    return old.base == 0 && s->base == 0 ? ldexpf(1, old.steps - s->steps)
                                         : expf(old.reference - s->reference);
}

static void scale_row(float *row, int32_t n, float factor)
{
    for (int32_t j = 0; j < n; j += NM_W)
        v_store(row + j, v_mul(v_set(factor), v_load(row + j)));
}

/* Replaces the scores of a row with weights and adds these to the sums of the state. ln 2 is split into two
 * parts. */
static void exponentiate(softmax_state *s, float *row, int32_t end)
{
    if (s->base != 0)
        for (int32_t j = 0; j < end; j += NM_W)
            v_store(row + j, v_sub(v_load(row + j), v_set(s->base)));
    const vf steps = v_set((float)s->steps);
    vf sums[NM_SUM_VECTORS];
    for (int i = 0; i < NM_SUM_VECTORS; i++)
        sums[i] = v_load(s->sums + i * NM_W);
    for (int32_t j = 0; j < end; j += NM_LANES)
        for (int i = 0; i < NM_SUM_VECTORS; i++) {
            vf x = v_fma(steps, v_set(-0.693359375f), v_load(row + j + i * NM_W));
            vf e = v_exp(v_fma(steps, v_set(2.12194440e-4f), x));
            sums[i] = v_add(sums[i], e);
            v_store(row + j + i * NM_W, e);
        }
    for (int i = 0; i < NM_SUM_VECTORS; i++)
        v_store(s->sums + i * NM_W, sums[i]);
}

/* Replaces the scores of query t->query + i with its weights after dropout. */
static void weigh(const attention *call, const pair *at, const workspace *r, const tile *t, int32_t i,
                  softmax_state *s)
{
    float *row = tile_row(r->weights, i);
    int32_t first = tile_first(call, at, t, t->query + i), n_keys = tile_end(call, at, t, t->query + i),
            end = mask_row(row, first, n_keys, t->n);
    if (first >= n_keys) {
        memset(row, 0, (size_t)end * sizeof *row);
        return;
    }
    float top = row_max(row, end);
    if (t->key + first == first_key(call, at, t->query + i))
        raise_reference(s, top);
    else if (!(top <= s->reference)) {
        float factor = raise_reference(s, top);
        scale_row(s->sums, NM_LANES, factor);
        scale_row(r->sums + (size_t)i * padded(call->v_width), call->v_width, factor);
    }
    exponentiate(s, row, end);
    if (!call->drop.on)
        return;
    const float *factor = drop_row(call, at, t, t->query + i, r->factors);
    for (int32_t j = 0; j < end; j += NM_W)
        v_store(row + j, v_mul(v_load(row + j), v_load(factor + j)));
}

/* Computes out and lse of a row from its sums. */
static void finish_row(const attention *call, const pair *at, const workspace *r, int32_t query, int32_t i,
                       const softmax_state *s)
{
    bool any = end_key(call, at, query) > 0;
    vf lanes[NM_SUM_VECTORS];
    for (int l = 0; l < NM_SUM_VECTORS; l++)
        lanes[l] = v_load(s->sums + l * NM_W);
    const double sum = v_sum_lanes(lanes);
    const vf factor = v_set((float)(1 / sum));
    float *out = head_rows(call->out, at->q0 + query, at->head, call->v_width);
    const float *sums = r->sums + (size_t)i * padded(call->v_width);
    for (int32_t j = 0; j < call->v_width; j += NM_W)
        v_store_upto(out + j, call->v_width - j, any ? v_mul(factor, v_load(sums + j)) : v_set(0));
    float lse = any ? NAN : -INFINITY;
    if (sum > 0) /* otherwise no score is finite */
        lse = (float)((double)s->base + s->steps * 0.69314718055994531 + log(sum));
    if (call->lse)
        call->lse[(size_t)at->head * (size_t)call->q.rows + (size_t)(at->q0 + query)] = lse;
}

static void forward_queries(const attention *call, const pair *at, const workspace *r, panels v, tile t)
{
    const int32_t keys = end_key(call, at, t.query + t.m - 1),
                  start = first_key(call, at, t.query) / NM_DROP_COLS * NM_DROP_COLS;
    softmax_state states[QUERIES];
    for (int32_t i = 0; i < t.m; i++)
        states[i] = (softmax_state){0};
    const operand q = left_operand(head_rows(call->q, at->q0 + t.query, at->head, call->width),
                                   (size_t)call->q.stride, t.m, call->width, r->q_left);
    for (t.key = start; t.key < keys; t.key += KEYS) {
        t.n = nm_min_i32(keys - t.key, KEYS);
        multiply(&(small_gemm){.rows = t.m,
                               .cols = t.n,
                               .depth = call->width,
                               .a = q,
                               .b = transposed_panels(r->k_columns, t.key, call->width),
                               .alpha = call->scale,
                               .c = r->weights,
                               .ldc = KEYS});
        for (int32_t i = 0; i < t.m; i++)
            weigh(call, at, r, &t, i, &states[i]);
        multiply(&(small_gemm){.rows = t.m,
                               .cols = call->v_width,
                               .depth = t.n,
                               .a = tile_rows_operand(r->weights, &t),
                               .b = rows_from(v, t.key),
                               .alpha = 1,
                               .add = t.key > start,
                               .c = r->sums,
                               .ldc = padded(call->v_width)});
    }
    for (int32_t i = 0; i < t.m; i++)
        finish_row(call, at, r, t.query + i, i, &states[i]);
}

static void forward_pair(const attention *call, const pair *at, const workspace *r)
{
    const float *k = head_rows(call->k, at->k0, at->head, call->width);
    const float *v = head_rows(call->v, at->k0, at->head, call->v_width);
    transpose_panels(k, (size_t)call->k.stride, at->n, call->width, r->k_columns);
    panels values = right_operand(v, (size_t)call->v.stride, at->n, call->v_width, r->v_rows);
    for (int32_t i = 0; i < at->m; i += QUERIES)
        forward_queries(call, at, r, values, (tile){.query = i, .m = nm_min_i32(at->m - i, QUERIES)});
}

static double dot_row(int32_t n, const float *a, const float *b)
{
    vf sums[NM_SUM_VECTORS] = {{0}};
#define DOT(i, j, count) sums[i] = v_fma(v_load_upto(a + (j), count), v_load_upto(b + (j), count), sums[i])
    NM_SUM_COLUMNS(n, DOT);
#undef DOT
    return v_sum_lanes(sums);
}

/* x with lanes from n on set to 0, n from 1 to NM_W. Free for the constant NM_W. */
NM_INLINE vf v_first_of(vf x, int32_t n)
{
    return n == NM_W ? x : v_first(x, n);
}

/* For query t->query + i, with its scores s in r->weights, dp = dout v^T in r->grads, dropout factors f and D
 * = out . dout:
 *     p          = e^(s - lse)
 *     r->weights = f p
 *     r->grads   = ds = scale p (f dp - D) */
static void grad_row(const attention *call, const pair *at, const workspace *r, const tile *t, int32_t i)
{
    const int32_t query = t->query + i, first = tile_first(call, at, t, query),
                  n_keys = tile_end(call, at, t, query), end = nm_round_up(t->n, NM_LANES);
    float *weights = tile_row(r->weights, i), *ds = tile_row(r->grads, i);
    const float *factors = call->drop.on && n_keys > 0 ? drop_row(call, at, t, query, r->factors) : NULL;
    const vf lse = v_set(call->lse[(size_t)at->head * (size_t)call->q.rows + (size_t)(at->q0 + query)]);
    const vf total = v_set(r->totals[query]), scale = v_set(call->scale);
#define GRAD(j, count)                                                                                       \
    do {                                                                                                     \
        vf p_ = v_exp(v_sub(v_load(weights + (j)), lse)), f_ = factors ? v_load(factors + (j)) : v_set(1);   \
        vf ds_ = v_mul(v_mul(scale, p_), v_sub(v_mul(f_, v_load(ds + (j))), total));                         \
        v_store(weights + (j), v_first_of(v_mul(p_, f_), count));                                            \
        v_store(ds + (j), v_first_of(ds_, count));                                                           \
    } while (0)
    NM_COLUMNS(n_keys, GRAD);
#undef GRAD
    for (int32_t j = nm_round_up(n_keys, NM_W); j < end; j += NM_W) {
        v_store(weights + j, v_set(0));
        v_store(ds + j, v_set(0));
    }
    memset(weights, 0, (size_t)first * sizeof *weights);
    memset(ds, 0, (size_t)first * sizeof *ds);
}

/* Operands of all queries of a pair and of one block of keys. */
typedef struct backward_operands {
    operand q, dout;
    panels q_rows, dout_rows, k_rows;
} backward_operands;

static operand operand_from(operand rows, int32_t first)
{
    rows.data += (size_t)first * rows.row;
    return rows;
}

/* Contributions of a tile to dq, dk and dv. dk and dv are added to if `add`, dq if an earlier block of keys
 * has keys of the first query; otherwise they are overwritten. */
static void backward_tile(const attention *call, const pair *at, const workspace *r,
                          const backward_operands *o, const tile *t, bool add)
{
    multiply(&(small_gemm){.rows = t->m,
                           .cols = t->n,
                           .depth = call->width,
                           .a = operand_from(o->q, t->query),
                           .b = transposed_panels(r->k_columns, 0, call->width),
                           .alpha = call->scale,
                           .c = r->weights,
                           .ldc = KEYS});
    multiply(&(small_gemm){.rows = t->m,
                           .cols = t->n,
                           .depth = call->v_width,
                           .a = operand_from(o->dout, t->query),
                           .b = transposed_panels(r->v_columns, 0, call->v_width),
                           .alpha = 1,
                           .c = r->grads,
                           .ldc = KEYS});
    for (int32_t i = 0; i < t->m; i++)
        grad_row(call, at, r, t, i);
    operand ds = tile_columns_operand(r->grads, t, r->columns);
    multiply(&(small_gemm){.rows = t->m,
                           .cols = call->width,
                           .depth = t->n,
                           .a = tile_rows_operand(r->grads, t),
                           .b = o->k_rows,
                           .alpha = 1,
                           .add = t->key > first_key(call, at, t->query),
                           .c = head_rows(call->dq, at->q0 + t->query, at->head, call->width),
                           .ldc = (size_t)call->dq.stride});
    multiply(&(small_gemm){.rows = t->n,
                           .cols = call->width,
                           .depth = t->m,
                           .a = ds,
                           .b = rows_from(o->q_rows, t->query),
                           .alpha = 1,
                           .add = add,
                           .c = head_rows(call->dk, at->k0 + t->key, at->head, call->width),
                           .ldc = (size_t)call->dk.stride});
    multiply(&(small_gemm){.rows = t->n,
                           .cols = call->v_width,
                           .depth = t->m,
                           .a = tile_columns_operand(r->weights, t, r->columns),
                           .b = rows_from(o->dout_rows, t->query),
                           .alpha = 1,
                           .add = add,
                           .c = head_rows(call->dv, at->k0 + t->key, at->head, call->v_width),
                           .ldc = (size_t)call->dv.stride});
}

static void zero_rows(nm_mat to, int32_t row, int32_t n, int32_t head, int32_t width)
{
    for (int32_t i = 0; i < n; i++)
        memset(head_rows(to, row + i, head, width), 0, (size_t)width * sizeof(float));
}

/* Gradients of n keys from `key` on, and their contributions to dq. */
static void backward_keys(const attention *call, const pair *at, const workspace *r, backward_operands *o,
                          int32_t key, int32_t n)
{
    const float *k = head_rows(call->k, at->k0 + key, at->head, call->width);
    const float *v = head_rows(call->v, at->k0 + key, at->head, call->v_width);
    transpose_panels(k, (size_t)call->k.stride, n, call->width, r->k_columns);
    transpose_panels(v, (size_t)call->v.stride, n, call->v_width, r->v_columns);
    o->k_rows = right_operand(k, (size_t)call->k.stride, n, call->width, r->k_rows);
    bool add = false;
    for (int32_t query = 0; query < at->m; query += QUERIES) {
        tile t = {.query = query, .m = nm_min_i32(at->m - query, QUERIES), .key = key, .n = n};
        t.n = tile_end(call, at, &t, query + t.m - 1);
        if (t.n == 0)
            continue;
        if (first_key(call, at, query) >= key + n)
            break;
        /* The first tile overwrites dk and dv if it contains all these keys; otherwise they are set to zero
         * before. */
        if (!add && t.n < n) {
            zero_rows(call->dk, at->k0 + key, n, at->head, call->width);
            zero_rows(call->dv, at->k0 + key, n, at->head, call->v_width);
            add = true;
        }
        backward_tile(call, at, r, o, &t, add);
        add = true;
    }
    if (!add) {
        zero_rows(call->dk, at->k0 + key, n, at->head, call->width);
        zero_rows(call->dv, at->k0 + key, n, at->head, call->v_width);
    }
}

static void backward_pair(const attention *call, const pair *at, const workspace *r)
{
    const float *q = head_rows(call->q, at->q0, at->head, call->width);
    const float *dout = head_rows(call->dout, at->q0, at->head, call->v_width);
    const size_t q_stride = (size_t)call->q.stride, dout_stride = (size_t)call->dout.stride;
    backward_operands o = {.q = left_operand(q, q_stride, at->m, call->width, r->q_left),
                           .dout = left_operand(dout, dout_stride, at->m, call->v_width, r->dout_left),
                           .q_rows = right_operand(q, q_stride, at->m, call->width, r->q_rows),
                           .dout_rows = right_operand(dout, dout_stride, at->m, call->v_width, r->dout_rows)};
    int32_t without_keys = 0;
    for (int32_t i = 0; i < at->m; i++) {
        without_keys += end_key(call, at, i) == 0;
        r->totals[i] = (float)dot_row(call->v_width, dout + (size_t)i * dout_stride,
                                      head_rows(call->out, at->q0 + i, at->head, call->v_width));
    }
    zero_rows(call->dq, at->q0, without_keys, at->head, call->width);
    for (int32_t key = 0; key < at->n; key += KEYS)
        backward_keys(call, at, r, &o, key, nm_min_i32(at->n - key, KEYS));
}

static attention prepare_tiles(const nm_attention_args *args)
{
    const nm_mat q = args->q, k = args->k, v = args->v, out = args->out;
    const int32_t heads = args->heads;
    NM_ASSERT(heads > 0 && q.cols % heads == 0 && v.cols % heads == 0 && q.cols == k.cols &&
              k.rows == v.rows);
    NM_ASSERT(args->q_packing->n_seqs == args->k_packing->n_seqs && out.rows == q.rows && out.cols == v.cols);
    NM_ASSERT(args->q_packing->n_tokens == q.rows && args->k_packing->n_tokens == k.rows);
    NM_ASSERT(args->window >= 0 && (args->causal || !args->window));
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
                       .window = args->window,
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

/* Prefetches the columns of several heads in memory order, because the hardware prefetcher does not predict
 * the accesses of one head after another. */
static void prefetch_rows(nm_mat m, int32_t row, int32_t n, int32_t col, int32_t cols)
{
    for (int32_t i = 0; m.data && i < n; i++)
        for (int32_t j = 0; j < cols; j += 16)
            __builtin_prefetch(nm_row(m, row + i) + col + j, 0, 2);
}

/* Heads first .. first + n - 1 of one sequence. Not inlined: see nm_matmul_begin. */
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
    const int32_t queries = longest(call->q_packing), keys = longest(call->k_packing);
    int32_t n_seqs = call->q_packing->n_seqs;
    int32_t threads = nm_threads_for(b, (size_t)call->q.rows * (size_t)call->q.cols);
    /* Heads of a sequence are split over threads only if there are few sequences. */
    int32_t split = n_seqs ? nm_min_i32(nm_ceil_div(8 * threads, n_seqs), call->heads) : 1;
    int32_t part = nm_ceil_div(call->heads, split);
    workspace sizes;
    size_t floats = workspace_floats(call, queries, keys, backward, NULL, &sizes);
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
    const nm_shares shares = nm_shares_of_blocks(b, threads, n_seqs * split);
#pragma omp parallel num_threads(threads)
    {
        workspace local;
        workspace_floats(call, queries, keys, backward, base + (size_t)omp_get_thread_num() * floats, &local);
        const uint32_t mode = nm_matmul_begin();
        for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
            int32_t first = i % split * part;
            run_heads(call, &local, i / split, first, nm_min_i32(call->heads - first, part), backward);
        }
        nm_matmul_end(mode);
    }
}

static void attention_forward(nm_backend *b, const nm_attention_args *args)
{
    attention call = prepare_tiles(args);
    run_pairs(b, &call, false);
}

static void attention_grad(nm_backend *b, const nm_attention_grad_args *args)
{
    attention call = prepare_tiles(&args->forward);
    NM_ASSERT(nm_same_shape(call.out, args->dout) && nm_same_shape(call.q, args->dq) &&
              nm_same_shape(call.k, args->dk) && nm_same_shape(call.v, args->dv));
    call.dout = args->dout;
    call.dq = args->dq;
    call.dk = args->dk;
    call.dv = args->dv;
    run_pairs(b, &call, true);
}

void NM_SIMD(nm_cpu_attention)(nm_kernels *k)
{
    k->attention = attention_forward;
    k->attention_grad = attention_grad;
#if !defined(NM_BF16) /* these kernels compute in float */
    NM_SIMD(nm_cpu_attention_cached)(k);
    NM_SIMD(nm_cpu_relative)(k);
#endif
}
