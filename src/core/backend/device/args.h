/* Arguments of the device kernels, the same bytes on host and device: members are in descending order of
 * alignment and padded to multiples of 8 bytes. The formulas are those of the nm_NAME_args of
 * norma/backend.h. */
#ifndef NM_DEVICE_ARGS_H
#define NM_DEVICE_ARGS_H

#include "backend/device/dialect.h"
#include "norma/functions.h"

/* The numbers of enumerations of norma/backend.h, whose header NVRTC does not read; launch.c compares them.
 * */
enum {
    VEC_FILL,
    VEC_COPY,
    VEC_SHIFT,
    VEC_LINEAR,
    VEC_MUL,
    VEC_MUL_ADD,
    VEC_DIV,
    VEC_RSQRT,
    VEC_RSQRT_CLAMP,
    VEC_SQRT,
    VEC_CLIP,
    VEC_SIGN,
    VEC_ABOVE,
    VEC_POW
};
enum { INIT_CONSTANT, INIT_NORMAL, INIT_UNIFORM, INIT_NORMAL_MEAN_ONE };
enum { TOKEN_CENTER, TOKEN_CENTER_UNBIASED, TOKEN_RMS, TOKEN_RMS_OUTSIDE, TOKEN_L2, TOKEN_CENTER_OUTSIDE };

enum {
    DOT_BLOCK = 1024,                            /* NM_DOT_BLOCK */
    ROWS_PER_PARTIAL = 64,                       /* rows of a block of a sum over rows */
    ROW_WARPS = 4,                               /* rows, or groups of rows, of a block with one warp each */
    ROWS_PER_WARP = ROWS_PER_PARTIAL / ROW_WARPS /* rows of a warp that adds columns */
};

struct scale_args {
    struct dmat x, y;
    dptr factor; /* double, of alpha; 0: 1 */
    double alpha;
    int add, pad; /* y += alpha x */
};
struct add_dropout_args { /* y = x + drop(f); x.data 0: y = drop(f) */
    struct dmat x, f, y;
    struct ddrop drop;
};
struct store_bf16_args {
    struct dmat x;
    dptr y;
};
struct load_bf16_args {
    struct dmat y;
    dptr x;
};
struct act_grad_args {
    struct dmat y, dy, dz;
    struct ddrop drop;
    int relu, pad;
};
struct map_args {
    struct dmat x, y;
    dptr alpha, shift, weight, bias;
    int op, pad;
};
struct map_grad_args {
    struct dmat x, dy, dx;
    dptr alpha, shift, weight;
    dptr partial; /* [warps, 4, cols], zeroed: sums of dy f(z), dy, q x, q; 0: no sums */
    int op, add;
};
struct gate_args {
    struct dmat gate, x, y;
    int op, pad;
};
struct gate_grad_args {
    struct dmat gate, x, dy, dgate, dx;
    int op, pad;
};
enum { VEC_LIST = 32 };
struct vec_item {
    dptr a, b, c, out;
    double s, t;
    i64 op;
};
struct vec_args { /* operations in turn; element i of an operand is read and written by one thread only */
    struct vec_item list[VEC_LIST];
    int count, n;
};
struct random_init_args {
    dptr out;
    i64 n;
    u64 seed;
    double scale;
    u32 site;
    int kind;
};

/* partial[BLOCK][col] = sum over ROWS_PER_PARTIAL rows of x, or of x y */
struct column_partials_args {
    struct dmat x, y;
    dptr partial; /* float [blocks, cols] */
};
/* out[col] (+)= factor sum of partial[.][col], in double */
struct column_total_args {
    dptr partial, out;      /* partial: rows of `stride` floats */
    double factor, largest; /* largest: limit of the results; 0: none */
    i64 stride;
    int blocks, cols, add, pad;
};
/* blocks[BLOCK] = sum of NM_DOT_BLOCK products, in double */
struct dot_blocks_args {
    dptr a, b, blocks;
    i64 n;
};
/* *out = keep *out + factor sum of n doubles in the order of the index; keep 0: *out is not read */
struct double_total_args {
    dptr x, out;
    i64 n;
    double keep, factor, least, eps;
    int inverse_norm, pad;
};
/* Elements of `plan` */
enum { PLAN_SQUARE, PLAN_LOSS, PLAN_NLL, PLAN_PENALTY, PLAN_SCALE };
struct plan_update_args {
    dptr ends, numbers, plan;
    double targets, max_norm, max_loss;
    int passes, pad;
};

struct adam_args {
    dptr scale, g, p, m, v; /* scale: double, in place of grad_scale; 0: none */
    i64 n;
    double beta1, beta2, keep, rate, eps, decay, grad_scale; /* decay: added to the gradient, times p */
};
struct sgd_args {
    dptr scale, g, p, v;
    i64 n;
    double lr, momentum, grad_scale, clip, weight_decay;
};

struct embed_args {
    struct dmat table, positions, out;
    dptr ids, pos;
    struct ddrop drop;
    float scale;
    int pad;
};
struct embed_grad_args {
    struct dmat dout, dtable;
    dptr ids;
    struct ddrop drop;
    float scale;
    int pad;
};
struct gather_args {
    struct dmat x, out;
    dptr rows;
};
struct rotate_args {
    struct dmat x, table, y;
    dptr positions;
    int interleaved, inverse;
};
struct pool_max_args {
    struct dmat x, out;
    dptr offsets, where;
};
struct pool_max_grad_args {
    struct dmat dout, dx;
    dptr where;
};

struct dresidual { /* x = stream + drop(f) before, df = drop(dx) after; without data: none */
    struct dmat stream, f;
    struct ddrop drop;
    int add, pad;
};
struct token_norm_args {
    struct dmat x, y;
    dptr weight, bias, shift, scale;
    struct dresidual sum;
    float eps, power_factor, ada_c, ada_k; /* power_factor: c^(power/2) */
    int kind, groups, n_used, weight_len, bias_len, pad;
};
struct token_norm_grad_args {
    struct dmat dy, x, dx;
    dptr weight, shift, scale, partial; /* partial: [warps, 2, cols], zeroed; 0: no sums */
    struct dresidual residual;
    float eps, power_factor, ada_c, ada_k; /* power_factor: c^-power */
    int kind, groups, n_used, weight_len, add, pad;
};
struct seed_norm_args {
    struct dmat x, y;
    dptr weight, alpha, beta, scale, gate;
    struct dresidual sum;
    float eps;
    int pad;
};
struct seed_norm_grad_args {
    struct dmat dy, x, dx;
    dptr weight, alpha, beta, scale, gate, partial; /* partial: [warps, 3, cols], zeroed; 0: no sums */
    struct dresidual residual;
    int add, pad;
};
struct row_scale_args {
    struct dmat x;
    dptr row_scale;
    float eps;
    int groups;
};
/* partial[BLOCK][0][col] = sum of u, [1] = sum of v:
 *     moments:  u = h,   v = (h - center)^2
 *     gradient: u = dy,  v = dy z */
struct feature_sums_args {
    struct dmat x, dy;                     /* dy.data 0: moments */
    dptr row_scale, shift, scale, partial; /* shift: the center */
    int groups, pad;
};
struct feature_norm_args {
    struct dmat x, y;
    dptr row_scale, shift, scale, weight, bias;
    int groups, pad;
};
struct feature_norm_grad_args {
    struct dmat dy, x, dx;
    dptr row_scale, shift, scale, a, c0, c1;
    struct dresidual residual;
    int groups, add;
};

struct gemm_args {
    struct dmat a, b, c;
    dptr bias; /* [columns of c] or 0 */
    struct ddrop drop;
    float alpha, beta;
    int ta, tb, relu, pad;
};
struct gemm_mma_args {
    struct gemm_args g;
};
struct linear_selected_args {
    struct dmat x, weight, y;
    dptr bias, rows;
};

struct loss_rows_args { /* logits become their gradient; row_loss [rows, 2] */
    struct dmat logits;
    dptr allowed, targets, row_loss;
    float eps, grad_scale;
    int uniform, ignored;
};
struct row_loss_total_args { /* sums[BLOCK] (+)= sum of row_loss[.][BLOCK], in double */
    dptr row_loss, sums;
    i64 n;
    int add, pad;
};
struct mix_args {
    struct dmat x, y;
    dptr mixture;
    double log_n;
    int first, last;
};
struct log_softmax_args {
    struct dmat x, y;
    dptr allowed;
};
struct log_top_k_args { /* log_sum 0: x are log probabilities */
    struct dmat x;
    dptr allowed, values, columns, also_values, given, given_values;
    int k, also, log_sum, ignored;
};

enum { TILE_ROWS = 32, MMA_ROWS = 64 }; /* queries, or keys, of a tile; of one for tensor cores */
/* Queries, keys and scores of an attention. */
struct dattention {
    struct dmat q, k, positions; /* positions.data 0: no relative positions */
    dptr q_offsets, k_offsets, key_bias, distance_bias;
    struct ddrop drop;
    float scale;
    int heads, causal, window, zero_row, bf16;
};
struct attention_args {
    struct dattention x;
    struct dmat v, out; /* out.data 0: only lse */
    dptr lse;
    int tiles, pad; /* of the longest sequence */
};
struct attention_mma_args {
    struct attention_args f;
};
struct attention_delta_args {
    struct dmat out, dout;
    dptr delta;
    int heads, pad;
};
struct attention_gradients {
    struct dattention x;
    struct dmat v, dout, dq, dk, dv;
    struct dmat dq_distances; /* the part of dq that relative positions contribute */
    dptr lse, delta;
    dptr given, given_keys; /* of guided alignment, which has no v */
    float grad_factor;
    int tiles, add, pad; /* add: dq +=, dk += */
};
struct attention_grad_q_args {
    struct attention_gradients g;
};
struct attention_grad_kv_args {
    struct attention_gradients g;
};
struct attention_mma_grad_q_args {
    struct attention_gradients g;
};
struct attention_mma_grad_kv_args {
    struct attention_gradients g;
};
struct guided_loss_args {
    struct dmat q, k;
    dptr q_offsets, k_offsets, given, given_keys, lse, loss;
    double weight;
    float scale;
    int pad;
};
struct attention_cached_args {
    struct dmat q, k, v, out;
    dptr rows, offsets;
    float scale;
    int heads, key_heads, bf16;
};

struct dterm {
    struct dmat q, k, v, positions, core;
    dptr offsets, content_bias, position_bias;
    int length, causal;
};
struct term_weights_args {
    struct dterm x;
    struct dmat t; /* [tokens, length^2] */
};
struct term_key_grad_args {
    struct dterm x;
    struct dmat dt, dc; /* dc: [tokens, length * h] */
};
struct term_grad_args {
    struct dterm x;
    struct dmat dt, dc, dq, dk, dv, dp; /* dp: [tokens, h] */
    struct dmat sums;                   /* [tokens, 3 h] */
};
struct term_positions_grad_args {
    struct dmat dp, dpositions;
    dptr offsets;
    int segments, pad;
};
struct crf_sums_args {
    struct dmat emissions;
    dptr transitions, start, end, offsets, gold;
    dptr alpha, beta; /* float [tokens, tags] */
    dptr loss;        /* double [sequences] */
};
struct crf_tags_grad_args {
    struct dmat emissions;
    dptr alpha, beta, gold, d_emissions, norm; /* norm: float [tokens] */
    float grad_scale;
    int pad;
};
struct crf_counts_grad_args {
    struct dmat emissions;
    dptr transitions, alpha, beta, norm, offsets, gold, d_emissions, d_transitions, d_start, d_end;
    float grad_scale;
    int sequences;
};

struct round_int8_args {
    struct dmat m;
};
struct pack_int8_args {
    struct dmat weight;
    dptr packed;
    i64 panels;
};
struct quantize_rows_args {
    struct dmat x;
    dptr out, scales; /* out: 4-byte words [rows, fours] */
};
struct linear_int8_args {
    struct dmat y;
    dptr x, scales, packed, bias; /* x, scales: of quantize_rows */
    i64 panels;
    int fours, first, relu, pad;
};

struct dwindows {
    int height, width, size, stride, padding;
    int down, across; /* windows of an image */
    int pad;
};
struct patches_args {
    struct dmat x, out;
    struct dwindows w;
};
struct window_mean_args {
    struct dmat x, out;
    struct dwindows w;
};
struct windows_grad_args {
    struct dmat dout, dx;
    struct dwindows w;
    float divisor;
    int part, add, pad;
};

/* All kernels, by name. */
/* clang-format off */
#define NM_DEVICE_KERNELS(K)                                                                             \
    K(scale) K(add_dropout) K(store_bf16) K(load_bf16) K(act_grad) K(map) K(map_grad) K(gate)            \
    K(gate_grad) K(vec) K(random_init) K(column_partials) K(column_total) K(dot_blocks) K(double_total)  \
    K(plan_update) K(adam) K(sgd) K(embed) K(embed_grad) K(gather) K(rotate) K(pool_max)                 \
    K(pool_max_grad) K(token_norm)                                                                       \
    K(token_norm_grad) K(seed_norm) K(seed_norm_grad) K(row_scale) K(feature_sums) K(feature_norm)       \
    K(feature_norm_grad) K(gemm) K(gemm_mma) K(linear_selected) K(loss_rows) K(row_loss_total)           \
    K(log_softmax) K(mix) K(log_top_k) K(attention) K(attention_mma) K(attention_delta)                  \
    K(attention_grad_q) K(attention_grad_kv) K(attention_mma_grad_q) K(attention_mma_grad_kv)            \
    K(guided_loss) K(attention_cached) K(term_weights) K(term_key_grad)                                  \
    K(term_grad) K(term_positions_grad) K(crf_sums) K(crf_tags_grad) K(crf_counts_grad) K(round_int8)    \
    K(pack_int8) K(quantize_rows) K(linear_int8) K(patches) K(window_mean) K(windows_grad)
/* clang-format on */

#endif
