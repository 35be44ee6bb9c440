/* Block-term attention (Ma et al. 2019) without its L x L x L tensor. The sum over features a is the
 * outermost one:
 *     out_i = sum_a A_ia M_a + B_ia N_a
 *     M_a   = sum_jk k_ja v_ka weight_jk
 *     N_a   = sum_jk p_ja v_ka weight_jk
 * M and N [h, d] do not depend on the query. If causal, they are running sums, to which position i adds
 *     M_a  += v_ia X_a + k_ia Z_a
 *     N_a  += v_ia Y_a + p_ia Z_a
 *     X_a   = sum_{j <= i} k_ja weight_ji
 *     Y_a   = sum_{j <= i} p_ja weight_ji        (equal for all segments)
 *     Z_a   = sum_{k < i} v_ka weight_ik
 * The time for a segment is O(L^2 h d). Except for the sums over d in the backward pass, columns of d are
 * independent: a thread computes a block of columns, which fits L2, and partial sums over d are added in the
 * order of the blocks. */
#include "backend/cpu/shares.h"
#include "backend/cpu/small_gemm.h"

#include <omp.h>

/* B: columns of a block, equal at every CPU level because sums over blocks depend on it. GROUP: segments of a
 * task of the forward pass. */
enum { B = 32, GROUP = 16 };
_Static_assert(B % NM_TILE_COLS == 0 && B == 2 * NM_LANES,
               "a block has whole panels and two columns per partial sum");

typedef struct term_call {
    const nm_block_term_args *term;
    int32_t h, d, length, blocks;
    int32_t padded_h;   /* h rounded up to columns of the tile */
    const float *a, *b; /* [tokens, h]: A and B */
    nm_mat out, dout;
    float *parts;       /* backward, [blocks][tokens][4 h]: dA, dB, dk, dv of a block */
    double *dpositions; /* backward, [blocks][length][h] */
    nm_mat dweight;
} term_call;

/* Per-thread workspace: [h][B] blocks unless stated otherwise. */
typedef struct workspace {
    float *weight, *dweight;       /* [pairs][B]: columns of the block, see pairs_x and pairs_z */
    float *m, *n, *rm, *rn;        /* running sums M and N, and of their gradients RM and RN */
    float *x, *z, *y, *dy;         /* X, Z, Y and the gradient of Y for every position, [length][h][B] */
    float *down, *down_transposed; /* a gradient, and its transpose [B][padded_h] */
    float *position_grads;         /* [length][h] */
} workspace;

static size_t workspace_floats(const term_call *call, bool backward, float *base, workspace *r)
{
    size_t length = (size_t)call->length, block = (size_t)call->h * B, all = length * block, used = 0;
    size_t pairs = length * length * B, keys = backward ? all : block;
    size_t sizes[] = {pairs,
                      backward ? pairs : 0,
                      block,
                      block,
                      block,
                      block,
                      keys,
                      keys,
                      all,
                      backward ? all : 0,
                      block,
                      B * (size_t)call->padded_h,
                      length * (size_t)call->h};
    float **parts[] = {&r->weight,
                       &r->dweight,
                       &r->m,
                       &r->n,
                       &r->rm,
                       &r->rn,
                       &r->x,
                       &r->z,
                       &r->y,
                       &r->dy,
                       &r->down,
                       &r->down_transposed,
                       &r->position_grads};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (base)
            *parts[i] = base + used;
        used += (sizes[i] + 15) / 16 * 16;
    }
    return used + NM_W;
}

/* Pairs are stored in the order in which they are used: the pairs (j, i) of X for every position i, then the
 * pairs (i, k) of Z. Number of pairs of X, and index of the first pair of X and of Z for position i: */
static int32_t reach(const term_call *call, int32_t i)
{
    return call->term->causal ? i + 1 : call->length;
}

static size_t pairs_x(const term_call *call, int32_t i)
{
    size_t at = (size_t)i;
    return call->term->causal ? at * (at + 1) / 2 : at * (size_t)call->length;
}

static size_t pairs_z(const term_call *call, int32_t i)
{
    size_t at = (size_t)i, length = (size_t)call->length;
    return length * (length + 1) / 2 + at * (at - 1) / 2;
}

static float *weight_row(nm_mat weight, int32_t length, int32_t j, int32_t k, int32_t col)
{
    return nm_row(weight, j * length + k) + col;
}

static void pack_row(const float *from, int32_t cols, float *to)
{
    for (int32_t c = 0; c < B; c += NM_W)
        v_store(to + c, c < cols ? v_load_upto(from + c, cols - c) : v_set(0));
}

static void pack_weight(const term_call *call, int32_t col, float *to)
{
    nm_mat weight = call->term->weight;
    int32_t cols = nm_min_i32(call->d - col, B), length = call->length;
    for (int32_t i = 0; i < length; i++) {
        for (int32_t j = 0; j < reach(call, i); j++)
            pack_row(weight_row(weight, length, j, i, col), cols, to + (pairs_x(call, i) + (size_t)j) * B);
        for (int32_t k = 0; call->term->causal && k < i; k++)
            pack_row(weight_row(weight, length, i, k, col), cols, to + (pairs_z(call, i) + (size_t)k) * B);
    }
}

static void add_row(const float *from, int32_t cols, float *to)
{
    for (int32_t c = 0; c < cols; c += NM_W)
        v_store_upto(to + c, cols - c, v_add(v_load_upto(to + c, cols - c), v_load_upto(from + c, cols - c)));
}

static void unpack_weight_grad(const term_call *call, int32_t col, const float *from)
{
    int32_t cols = nm_min_i32(call->d - col, B), length = call->length;
    for (int32_t i = 0; i < length; i++) {
        for (int32_t j = 0; j < reach(call, i); j++)
            add_row(from + (pairs_x(call, i) + (size_t)j) * B, cols,
                    weight_row(call->dweight, length, j, i, col));
        for (int32_t k = 0; call->term->causal && k < i; k++)
            add_row(from + (pairs_z(call, i) + (size_t)k) * B, cols,
                    weight_row(call->dweight, length, i, k, col));
    }
}

/* to[a] = sum over n rows of `rows` [n, h] times the packed pairs */
static void gather_pairs(const term_call *call, const float *rows, size_t stride, int32_t n,
                         const float *pairs, float *to)
{
    multiply(&(small_gemm){.rows = call->h,
                           .cols = B,
                           .depth = n,
                           .a = {rows, 1, stride},
                           .b = {pairs, NM_TILE_COLS, B},
                           .alpha = 1,
                           .c = to,
                           .ldc = B});
}

static void position_sums(const term_call *call, const workspace *r)
{
    nm_mat p = call->term->positions;
    for (int32_t i = 0; i < call->length; i++)
        gather_pairs(call, p.data, (size_t)p.stride, reach(call, i), r->weight + pairs_x(call, i) * B,
                     r->y + (size_t)i * (size_t)call->h * B);
}

typedef struct segment {
    int32_t first, n, col, cols;
} segment;

/* X and Z of position i. */
static void pair_sums(const term_call *call, const workspace *r, const segment *s, int32_t i, float *x,
                      float *z)
{
    nm_mat k = call->term->k, v = call->term->v;
    gather_pairs(call, nm_row(k, s->first), (size_t)k.stride, nm_min_i32(reach(call, i), s->n),
                 r->weight + pairs_x(call, i) * B, x);
    if (call->term->causal)
        gather_pairs(call, nm_row(v, s->first), (size_t)v.stride, i, r->weight + pairs_z(call, i) * B, z);
}

/* M_a += v_ia X_a + k_ia Z_a
 * N_a += v_ia Y_a + p_ia Z_a */
static void add_position(const term_call *call, const workspace *r, const segment *s, int32_t i,
                         const float *x, const float *z, const float *y)
{
    const nm_block_term_args *t = call->term;
    const float *k = nm_row(t->k, s->first + i), *v = nm_row(t->v, s->first + i),
                *p = nm_row(t->positions, i);
    for (int32_t a = 0; a < call->h; a++)
        for (size_t at = (size_t)a * B, end = at + B; at < end; at += NM_W) {
            vf m = v_fma(v_set(v[a]), v_load(x + at), v_load(r->m + at));
            vf n = v_fma(v_set(v[a]), v_load(y + at), v_load(r->n + at));
            if (t->causal) {
                m = v_fma(v_set(k[a]), v_load(z + at), m);
                n = v_fma(v_set(p[a]), v_load(z + at), n);
            }
            v_store(r->m + at, m);
            v_store(r->n + at, n);
        }
}

/* out_i = sum_a A_ia M_a + B_ia N_a */
static void write_output(const term_call *call, const workspace *r, const segment *s, int32_t i)
{
    size_t row = (size_t)(s->first + i) * (size_t)call->h;
    const float *qa = call->a + row, *qb = call->b + row;
    float *out = nm_row(call->out, s->first + i) + s->col;
    vf sum[B / NM_W] = {{0}};
    for (int32_t a = 0; a < call->h; a++)
        for (int c = 0; c < B / NM_W; c++) {
            size_t at = (size_t)a * B + (size_t)c * NM_W;
            sum[c] = v_fma(v_set(qa[a]), v_load(r->m + at), sum[c]);
            sum[c] = v_fma(v_set(qb[a]), v_load(r->n + at), sum[c]);
        }
    for (int32_t c = 0; c * NM_W < s->cols; c++)
        v_store_upto(out + c * NM_W, s->cols - c * NM_W, sum[c]);
}

static void clear(float *block, size_t n)
{
    memset(block, 0, n * sizeof *block);
}

static void forward_segment(const term_call *call, const workspace *r, const segment *s)
{
    size_t block = (size_t)call->h * B;
    clear(r->m, block);
    clear(r->n, block);
    for (int32_t i = 0; i < s->n; i++) {
        pair_sums(call, r, s, i, r->x, r->z);
        add_position(call, r, s, i, r->x, r->z, r->y + (size_t)i * block);
        if (call->term->causal)
            write_output(call, r, s, i);
    }
    for (int32_t i = 0; !call->term->causal && i < s->n; i++)
        write_output(call, r, s, i);
}

static float *part_row(const term_call *call, const segment *s, int32_t i)
{
    size_t row = (size_t)(s->col / B) * (size_t)call->dout.rows + (size_t)(s->first + i);
    return call->parts + row * 4 * (size_t)call->h;
}

static float dot_block(const float *a, const float *b)
{
    vf sums[NM_SUM_VECTORS];
    for (int i = 0; i < NM_SUM_VECTORS; i++, a += NM_W, b += NM_W)
        sums[i] = v_fma(v_load(a), v_load(b), v_mul(v_load(a + NM_LANES), v_load(b + NM_LANES)));
    return (float)v_sum_lanes(sums);
}

/* dA_ia = dout_i . M_a
 * dB_ia = dout_i . N_a */
static void query_grads(const term_call *call, const workspace *r, const segment *s, int32_t i)
{
    float dout[B], *to = part_row(call, s, i);
    pack_row(nm_row(call->dout, s->first + i) + s->col, s->cols, dout);
    for (int32_t a = 0; a < call->h; a++) {
        to[a] = dot_block(dout, r->m + (size_t)a * B);
        to[call->h + a] = dot_block(dout, r->n + (size_t)a * B);
    }
}

/* RM_a += A_ia dout_i
 * RN_a += B_ia dout_i
 * Gradients of M and N at position i. */
static void add_query_grads(const term_call *call, const workspace *r, const segment *s, int32_t i)
{
    size_t row = (size_t)(s->first + i) * (size_t)call->h;
    const float *qa = call->a + row, *qb = call->b + row;
    float dout[B];
    pack_row(nm_row(call->dout, s->first + i) + s->col, s->cols, dout);
    for (int32_t a = 0; a < call->h; a++)
        for (int32_t c = 0; c < B; c += NM_W) {
            size_t at = (size_t)a * B + (size_t)c;
            v_store(r->rm + at, v_fma(v_set(qa[a]), v_load(dout + c), v_load(r->rm + at)));
            v_store(r->rn + at, v_fma(v_set(qb[a]), v_load(dout + c), v_load(r->rn + at)));
        }
}

/* With down = the gradient of the result of gather_pairs:
 *     drows  += pairs down^T
 *     dpairs += rows down */
static void spread_pairs(const term_call *call, const workspace *r, const float *rows, size_t stride,
                         int32_t n, size_t pairs, float *drows, size_t drows_stride)
{
    for (int32_t a = 0; a < call->h; a += NM_W)
        nm_pack_transposed(r->down + (size_t)a * B, B, nm_min_i32(call->h - a, NM_W), B,
                           r->down_transposed + a, (size_t)call->padded_h);
    multiply(&(small_gemm){.rows = n,
                           .cols = call->h,
                           .depth = B,
                           .a = {r->weight + pairs * B, B, 1},
                           .b = {r->down_transposed, NM_TILE_COLS, (size_t)call->padded_h},
                           .alpha = 1,
                           .add = true,
                           .c = drows,
                           .ldc = drows_stride});
    multiply(&(small_gemm){.rows = n,
                           .cols = B,
                           .depth = call->h,
                           .a = {rows, stride, 1},
                           .b = {r->down, NM_TILE_COLS, B},
                           .alpha = 1,
                           .add = true,
                           .c = r->dweight + pairs * B,
                           .ldc = B});
}

/* Gradients of the factors k, v and p of position i. */
static void factor_grads(const term_call *call, const workspace *r, const segment *s, int32_t i,
                         const float *x, const float *z, const float *y)
{
    float *dk = part_row(call, s, i) + 2 * call->h, *dv = dk + call->h;
    double *dp =
        call->dpositions + ((size_t)(s->col / B) * (size_t)call->length + (size_t)i) * (size_t)call->h;
    for (int32_t a = 0; a < call->h; a++) {
        size_t at = (size_t)a * B;
        dv[a] += dot_block(r->rm + at, x + at) + dot_block(r->rn + at, y + at);
        if (call->term->causal) {
            dk[a] += dot_block(r->rm + at, z + at);
            dp[a] += (double)dot_block(r->rn + at, z + at);
        }
    }
}

/* down_a = f_a RM_a, or f_a RM_a + e_a RN_a */
static void scale_down(const term_call *call, const workspace *r, const float *f, const float *e)
{
    for (int32_t a = 0; a < call->h; a++)
        for (size_t at = (size_t)a * B, end = at + B; at < end; at += NM_W) {
            vf down = v_mul(v_set(f[a]), v_load(r->rm + at));
            v_store(r->down + at, e ? v_fma(v_set(e[a]), v_load(r->rn + at), down) : down);
        }
}

static void position_grads(const term_call *call, const workspace *r, const segment *s, int32_t i)
{
    const nm_block_term_args *t = call->term;
    size_t block = (size_t)call->h * B, parts = 4 * (size_t)call->h;
    const float *k = nm_row(t->k, s->first + i), *v = nm_row(t->v, s->first + i),
                *p = nm_row(t->positions, i);
    float *dy = r->dy + (size_t)i * block, *dk = part_row(call, s, 0) + 2 * call->h;
    factor_grads(call, r, s, i, r->x + (size_t)i * block, r->z + (size_t)i * block, r->y + (size_t)i * block);
    scale_down(call, r, v, NULL);
    spread_pairs(call, r, nm_row(t->k, s->first), (size_t)t->k.stride, nm_min_i32(reach(call, i), s->n),
                 pairs_x(call, i), dk, parts);
    if (t->causal) {
        scale_down(call, r, k, p);
        spread_pairs(call, r, nm_row(t->v, s->first), (size_t)t->v.stride, i, pairs_z(call, i), dk + call->h,
                     parts);
    }
    for (int32_t a = 0; a < call->h; a++)
        for (size_t at = (size_t)a * B, end = at + B; at < end; at += NM_W)
            v_store(dy + at, v_fma(v_set(v[a]), v_load(r->rn + at), v_load(dy + at)));
}

static void backward_segment(const term_call *call, const workspace *r, const segment *s)
{
    size_t block = (size_t)call->h * B;
    bool causal = call->term->causal;
    float *sums[] = {r->m, r->n, r->rm, r->rn};
    for (int i = 0; i < 4; i++)
        clear(sums[i], block);
    clear(part_row(call, s, 0), (size_t)s->n * 4 * (size_t)call->h);
    for (int32_t i = 0; i < s->n; i++) {
        float *x = r->x + (size_t)i * block, *z = r->z + (size_t)i * block;
        pair_sums(call, r, s, i, x, z);
        add_position(call, r, s, i, x, z, r->y + (size_t)i * block);
        if (causal)
            query_grads(call, r, s, i);
    }
    for (int32_t i = 0; !causal && i < s->n; i++) {
        query_grads(call, r, s, i);
        add_query_grads(call, r, s, i);
    }
    for (int32_t i = s->n - 1; i >= 0; i--) {
        if (causal)
            add_query_grads(call, r, s, i);
        position_grads(call, r, s, i);
    }
}

/* Adds the gradients of the operands of Y, which are sums over all segments. */
static void finish_block(const term_call *call, const workspace *r, int32_t col)
{
    nm_mat p = call->term->positions;
    size_t block = (size_t)call->h * B, n = (size_t)call->length * (size_t)call->h;
    double *dp = call->dpositions + (size_t)(col / B) * n;
    clear(r->position_grads, n);
    for (int32_t i = 0; i < call->length; i++) {
        memcpy(r->down, r->dy + (size_t)i * block, block * sizeof(float));
        spread_pairs(call, r, p.data, (size_t)p.stride, reach(call, i), pairs_x(call, i), r->position_grads,
                     (size_t)call->h);
    }
    for (size_t i = 0; i < n; i++)
        dp[i] += (double)r->position_grads[i];
    unpack_weight_grad(call, col, r->dweight);
}

static void run_task(const term_call *call, const workspace *r, int32_t block, int32_t first, int32_t count,
                     bool backward)
{
    const nm_packing *packing = call->term->packing;
    segment s = {.col = block * B, .cols = nm_min_i32(call->d - block * B, B)};
    pack_weight(call, s.col, r->weight);
    position_sums(call, r);
    if (backward) {
        clear(r->dweight, (size_t)call->length * (size_t)call->length * B);
        clear(r->dy, (size_t)call->length * (size_t)call->h * B);
    }
    for (int32_t i = first; i < first + count; i++) {
        s.first = packing->offsets[i];
        s.n = packing->offsets[i + 1] - s.first;
        if (backward)
            backward_segment(call, r, &s);
        else
            forward_segment(call, r, &s);
    }
    if (backward)
        finish_block(call, r, s.col);
}

/* A task is a block of columns for a group of segments, in the backward pass for all segments. */
static void run_tasks(nm_backend *b, const term_call *call, bool backward)
{
    int32_t n_seqs = call->term->packing->n_seqs, group = backward ? n_seqs : GROUP;
    int32_t groups = nm_ceil_div(n_seqs, group < 1 ? 1 : group);
    int32_t threads = nm_threads_for(b, (size_t)call->term->q.rows * (size_t)call->length * (size_t)call->d);
    workspace sizes;
    size_t floats = workspace_floats(call, backward, NULL, &sizes);
    float *base = nm_backend_scratch(b, NM_CPU_THREADS, (size_t)threads * floats * sizeof(float));
    const nm_shares shares = nm_shares_of_blocks(b, threads, call->blocks * groups);
#pragma omp parallel num_threads(threads)
    {
        workspace local;
        workspace_floats(call, backward, base + (size_t)omp_get_thread_num() * floats, &local);
        for (int32_t i; (i = nm_shares_take(&shares, omp_get_thread_num())) >= 0;) {
            int32_t first = i % groups * group;
            run_task(call, &local, i / groups, first, nm_min_i32(n_seqs - first, group), backward);
        }
    }
}

static void mean_core(nm_mat core, float *g)
{
    for (int32_t a = 0; a < core.cols; a++) {
        double sum = 0;
        for (int32_t r = 0; r < core.rows; r++)
            sum += (double)nm_row(core, r)[a];
        g[a] = (float)(sum / core.rows);
    }
}

/* A = g (q + content bias)
 * B = g (q + position bias)
 * In scratch memory: g [h], A, B. */
static term_call prepare_block_term(nm_backend *b, const nm_block_term_args *term)
{
    int32_t h = term->q.cols, tokens = term->q.rows;
    NM_ASSERT(term->k.cols == h && term->v.cols == h && term->core.cols == h);
    NM_ASSERT(term->positions.rows == term->length && term->positions.cols == h);
    NM_ASSERT((int64_t)term->weight.rows == (int64_t)term->length * term->length);
    NM_ASSERT(term->packing->longest <= term->length && term->packing->n_tokens == tokens);
    NM_ASSERT(term->causal || tokens == term->packing->n_seqs * term->length);
    size_t n = (size_t)tokens * (size_t)h;
    float *g = nm_backend_scratch(b, NM_CPU_BLOCK, (2 * n + (size_t)h) * sizeof(float)), *qa = g + h,
          *qb = qa + n;
    const float *content = term->content_bias, *position = term->position_bias;
    mean_core(term->core, g);
    for (int32_t i = 0; i < tokens; i++) {
        const float *q = nm_row(term->q, i);
        for (int32_t a = 0; a < h; a++) {
            qa[(size_t)i * (size_t)h + (size_t)a] = g[a] * (q[a] + content[a]);
            qb[(size_t)i * (size_t)h + (size_t)a] = g[a] * (q[a] + position[a]);
        }
    }
    return (term_call){.term = term,
                       .h = h,
                       .d = term->weight.cols,
                       .length = term->length,
                       .blocks = nm_ceil_div(term->weight.cols, B),
                       .padded_h = nm_round_up(h, B),
                       .a = qa,
                       .b = qb};
}

static void block_term_forward(nm_backend *b, const nm_block_term_args *term)
{
    term_call call = prepare_block_term(b, term);
    NM_ASSERT(term->out.rows == term->q.rows && term->out.cols == call.d);
    call.out = term->out;
    run_tasks(b, &call, false);
}

/* Part `which` of the gradients of one token, summed over the blocks. */
static double sum_blocks(const term_call *call, int32_t token, int32_t which, int32_t a)
{
    double sum = 0;
    for (int32_t block = 0; block < call->blocks; block++)
        sum +=
            (double)
                call->parts[((size_t)block * (size_t)call->dout.rows + (size_t)token) * 4 * (size_t)call->h +
                            (size_t)(which * call->h + a)];
    return sum;
}

static void store_positions(const term_call *call, nm_mat dpositions)
{
    for (int32_t i = 0; i < call->length; i++)
        for (int32_t a = 0; a < call->h; a++) {
            double sum = 0;
            for (int32_t block = 0; block < call->blocks; block++)
                sum += call->dpositions[((size_t)block * (size_t)call->length + (size_t)i) * (size_t)call->h +
                                        (size_t)a];
            nm_row(dpositions, i)[a] = (float)sum;
        }
}

/* dq = g (dA + dB), and the sums over tokens for the core and the biases. */
static void store_tokens(const term_call *call, const float *g, const nm_block_term_grad_args *grads,
                         double *sums)
{
    const nm_block_term_args *t = call->term;
    const float *content = t->content_bias, *position = t->position_bias;
    size_t h = (size_t)call->h;
    memset(sums, 0, 3 * h * sizeof *sums);
    for (int32_t i = 0; i < t->q.rows; i++)
        for (int32_t a = 0; a < call->h; a++) {
            double da = sum_blocks(call, i, 0, a), db = sum_blocks(call, i, 1, a),
                   q = (double)nm_row(t->q, i)[a];
            nm_row(grads->dq, i)[a] = (float)((double)g[a] * (da + db));
            nm_row(grads->dk, i)[a] = (float)sum_blocks(call, i, 2, a);
            nm_row(grads->dv, i)[a] = (float)sum_blocks(call, i, 3, a);
            sums[a] += (double)g[a] * da;
            sums[h + (size_t)a] += (double)g[a] * db;
            sums[2 * h + (size_t)a] += da * (q + (double)content[a]) + db * (q + (double)position[a]);
        }
    for (int32_t a = 0; a < call->h; a++) {
        ((float *)grads->dcontent_bias)[a] += (float)sums[a];
        ((float *)grads->dposition_bias)[a] += (float)sums[h + (size_t)a];
        for (int32_t r = 0; r < t->core.rows; r++)
            nm_row(grads->dcore, r)[a] += (float)(sums[2 * h + (size_t)a] / t->core.rows);
    }
}

static void block_term_backward(nm_backend *b, const nm_block_term_grad_args *args)
{
    term_call call = prepare_block_term(b, &args->forward);
    const float *g = call.a - call.h;
    size_t h = (size_t)call.h, blocks = (size_t)call.blocks,
           positions_size = blocks * (size_t)call.length * h;
    size_t parts = blocks * (size_t)args->dout.rows * 4 * h;
    double *sums = nm_backend_scratch(b, NM_CPU_PARTIALS,
                                      (positions_size + 3 * h) * sizeof(double) + parts * sizeof(float));
    call.dpositions = sums + 3 * h;
    call.parts = (float *)(void *)(call.dpositions + positions_size);
    call.dout = args->dout;
    call.dweight = args->dweight;
    memset(call.dpositions, 0, positions_size * sizeof(double));
    run_tasks(b, &call, true);
    store_positions(&call, args->dpositions);
    store_tokens(&call, g, args, sums);
}

void NM_SIMD(nm_cpu_block_term)(nm_kernels *k)
{
    k->block_term = block_term_forward;
    k->block_term_grad = block_term_backward;
}
