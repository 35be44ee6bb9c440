/* The arguments of every kernel, for whoever wraps them all: fenced memory, timing. */
#ifndef NM_CALLS_H
#define NM_CALLS_H

#include "backend/backend_private.h"

/* The arguments of every kernel, to pass them on; b is the backend. A kernel without a line here does not compile. */
/* clang-format off */
#define CALL_upload             (b, device, host, bytes)
#define CALL_download           (b, host, device, bytes)
#define CALL_copy               (b, to, from, bytes)
#define CALL_zero               (b, data, bytes)
#define CALL_random_init               (b, init, seed, site, n, out)
#define CALL_gemm               (b, ta, tb, alpha, a, bm, beta, c)
#define CALL_linear             (b, x, weight, bias, act, drop, y)
#define CALL_pack               (b, weight, form, bytes)
#define CALL_round_int8         (b, m)
#define CALL_pack_int8          (b, weight, form, bytes)
#define CALL_linear_int8        (b, x, weight, bias, act, y)
#define CALL_act_grad           (b, act, drop, y, dy, dz)
#define CALL_linear_grad_input  (b, dy, weight, add, dx)
#define CALL_linear_grad_weight (b, dy, x, dw, db)
#define CALL_scale              (b, alpha, x, y)
#define CALL_add                (b, alpha, x, y)
#define CALL_add_dropout        (b, x, f, drop, y)
#define CALL_dropout            (b, x, drop, add, y)
#define CALL_embed              (b, ids, pos, scale, table, positions, drop, out)
#define CALL_embed_grad         (b, ids, scale, dout, drop, dtable)
#define CALL_gather             (b, rows, x, out)
#define CALL_attention          (b, q, k, v, q_packing, k_packing, heads, causal, scale, drop, out, lse)
#define CALL_attention_grad     (b, q, k, v, q_packing, k_packing, heads, causal, scale, drop, out, lse, dout, dq, dk, dv)
#define CALL_attention_rows     (b, q, k, v, rows, offsets, heads, scale, out)
#define CALL_block_term         (b, term, out)
#define CALL_block_term_grad    (b, term, dout, grads)
#define CALL_relative_attention      (b, call, out, lse)
#define CALL_relative_attention_grad (b, call, grad)
#define CALL_pool_max           (b, x, packing, out, where)
#define CALL_pool_max_grad      (b, dout, where, dx)
#define CALL_crf                (b, crf)
#define CALL_softmax_loss       (b, loss)
#define CALL_log_softmax        (b, x, allowed, y)
#define CALL_top_k              (b, x, k, values, columns)
#define CALL_log_top_k          (b, x, allowed, k, values, columns, also, also_values)
#define CALL_token_norm         (b, spec, x, gain, bias, y, shift, scale)
#define CALL_token_norm_grad    (b, spec, dy, x, gain, shift, scale, add, dx, d_gain, d_bias)
#define CALL_feature_moments    (b, spec, x, row_scale, center, mean, square)
#define CALL_feature_norm       (b, spec, x, row_scale, shift, scale, gain, bias, y, square)
#define CALL_feature_norm_grad  (b, spec, dy, x, row_scale, shift, scale, a, c0, c1, add, dx, sum_dy, sum_dy_z)
#define CALL_vec                (b, op, n, out, va, vb, vc, s, t)
#define CALL_dot                (b, n, va, vb, out)
#define CALL_adam               (b, adam, n, p, g, m, v)
#define CALL_sgd                (b, lr, momentum, grad_scale, clip, n, p, g, v)
/* clang-format on */

#endif
