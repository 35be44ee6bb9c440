/* Pointwise functions of a matrix, see nm_map_args, and gated linear units, see nm_gate_args; the derivatives
 * are listed in ref_map.inc. Values are within a few units in the last place of the reference kernel. */
#include "backend/cpu/norm_parts.h"

NM_INLINE vf absolute(vf x)
{
    return v_from_bits(vu_and(v_bits(x), vu_set(0x7FFFFFFFu)));
}

/* |magnitude| with the sign of x */
NM_INLINE vf with_sign(vf magnitude, vf x)
{
    return v_from_bits(vu_xor(v_bits(magnitude), vu_and(v_bits(x), vu_set(0x80000000u))));
}

/* x < bound ? below : above; `above` for NaN */
NM_INLINE vf select_below(vf x, vf bound, vf below, vf above)
{
    return v_add(v_zero_below(x, bound, above), v_keep_above(bound, x, below));
}

/* With c = x limited to [-1, 1]:
 *
 *     tanh x = c - c c^2/d
 *     d      = x^3/(x - tanh x) = D(x^2)      |x| <= 1
 *            = (e^(2|x|) + 1)/2               |x| >= 1
 *
 * With c^2 in place of x^2, each of the two values is the smaller one outside its range, so that d is the
 * larger one. D and p (below) are minimax polynomials for the error of tanh x. The error is below 1.2 units
 * in the last place, and |tanh x| <= 1. The code computes -d, because it has no operation c - a b. The result
 * for -0 is 0.
 *
 *     e^(2a) = 2^n p(r),  n = round(2a/ln 2),  r = a - n ln 2/2 */
NM_INLINE vf tanh_of(vf x)
{
    vf c = v_max(v_set(-1), v_min(v_set(1), x)), square = v_mul(c, c);
    vf inside = v_set(-2.26415272e-4f);
    inside = v_fma(inside, square, v_set(5.69185195e-3f));
    inside = v_fma(inside, square, v_set(-1.19999278f));
    inside = v_fma(inside, square, v_set(-3.00000072f));
    /* adding 1.5 * 2^23 rounds to an integer in the low bits; 126 + 256: bits of -1/2 without the mantissa */
    const float shifter = 12582912.0f + 126 + 256;
    vf a = v_min(v_set(10), absolute(x)); /* from 9.02 on tanh is 1 in float */
    vf t = v_fma(a, v_set(2.88539008f), v_set(shifter)), n = v_sub(t, v_set(shifter));
    vf r = v_fma(n, v_set(-0.346573591f), a);
    vf p = v_set(0.265943289f);
    p = v_fma(p, r, v_set(0.670364618f));
    p = v_fma(p, r, v_set(1.33337963f));
    p = v_fma(p, r, v_set(1.99996603f));
    p = v_fma(p, r, v_set(1.99999976f));
    p = v_fma(p, r, v_set(1));
    vf outside = v_fma(p, v_from_bits(vu_shift_left(v_bits(t), 23)), v_set(-0.5f));
    return v_fma(c, v_div(square, v_min(inside, outside)), c);
}

/* x p(x^2), |x| < 1 (p: Cephes) */
NM_INLINE vf erf_near(vf x)
{
    vf square = v_mul(x, x), p = v_set(7.853861353153693e-5f);
    p = v_fma(p, square, v_set(-8.010193625184903e-4f));
    p = v_fma(p, square, v_set(5.188327685732524e-3f));
    p = v_fma(p, square, v_set(-2.685381193529856e-2f));
    p = v_fma(p, square, v_set(1.128358514861418e-1f));
    p = v_fma(p, square, v_set(-3.761262582423300e-1f));
    p = v_fma(p, square, v_set(1.128379165726710f));
    return v_mul(p, x);
}

/* 1 - erf a = e^(-a^2)/a p(1/a^2), a >= 1, with one polynomial p below 2 and one from 2 on (Cephes);
 * exponential: e^(-a^2) */
NM_INLINE vf erfc_far(vf a, vf exponential)
{
    vf inverse = v_div(v_set(1), a), x = v_mul(inverse, inverse);
    vf p = v_set(2.326819970068386e-2f), r = v_set(-1.047766399936249e+1f);
    p = v_fma(p, x, v_set(-1.387039388740657e-1f));
    p = v_fma(p, x, v_set(3.687424674597105e-1f));
    p = v_fma(p, x, v_set(-5.824733027278666e-1f));
    p = v_fma(p, x, v_set(6.210004621745983e-1f));
    p = v_fma(p, x, v_set(-4.944515323274145e-1f));
    p = v_fma(p, x, v_set(3.404879937665872e-1f));
    p = v_fma(p, x, v_set(-2.741127028184656e-1f));
    p = v_fma(p, x, v_set(5.638259427386472e-1f));
    r = v_fma(r, x, v_set(1.297719955372516e+1f));
    r = v_fma(r, x, v_set(-7.495518717768503f));
    r = v_fma(r, x, v_set(2.921019019210786f));
    r = v_fma(r, x, v_set(-1.015265279202700f));
    r = v_fma(r, x, v_set(4.218463358204948e-1f));
    r = v_fma(r, x, v_set(-2.820767439740514e-1f));
    r = v_fma(r, x, v_set(5.641895067754075e-1f));
    return v_mul(v_mul(exponential, inverse), select_below(a, v_set(2), p, r));
}

/* erf x or Phi(x), and the exponential function that it and its derivative contain */
typedef struct error_function {
    vf value, exponential;
} error_function;

/* With a = |x|:
 *
 *     erf a    = 1 - e^(-a^2) g(a),  a >= 1
 *     e^(-a^2) = 2^n p(r),  n = round(-a^2/ln 2),  r = -a^2/ln 2 - n
 *
 * g is a minimax polynomial for the error of erf in [1, 4], p one of 2^r. From 3.92 on erf is 1 in float,
 * whatever g is. */
NM_INLINE error_function erf_of(vf x)
{
    const float shifter = 12582912.0f; /* 1.5 * 2^23 */
    const vf a = v_min(v_set(9.3f), absolute(x)), one = v_set(1), scale = v_set(-1.44269504f);
    const vf square = v_mul(a, a), t = v_fma(square, scale, v_set(shifter)), n = v_sub(v_set(shifter), t);
    const vf r = v_fma(square, scale, n);
    vf p = v_set(1.534581243e-4f);
    p = v_fma(p, r, v_set(1.339993090e-3f));
    p = v_fma(p, r, v_set(9.618489072e-3f));
    p = v_fma(p, r, v_set(5.550328642e-2f));
    p = v_fma(p, r, v_set(2.402264625e-1f));
    p = v_fma(p, r, v_set(6.931471825e-1f));
    p = v_fma(p, r, one);
    const vf e = v_from_bits(vu_add(v_bits(p), vu_shift_left(v_bits(t), 23)));
    vf minus_g = v_set(3.937909787e-4f);
    minus_g = v_fma(minus_g, a, v_set(-6.065811496e-3f));
    minus_g = v_fma(minus_g, a, v_set(4.131245241e-2f));
    minus_g = v_fma(minus_g, a, v_set(-1.650174409e-1f));
    minus_g = v_fma(minus_g, a, v_set(4.331377149e-1f));
    minus_g = v_fma(minus_g, a, v_set(-7.940069437e-1f));
    minus_g = v_fma(minus_g, a, v_set(1.048954487f));
    minus_g = v_fma(minus_g, a, v_set(-9.862918258e-1f));
    return (error_function){with_sign(select_below(a, one, erf_near(a), v_fma(e, minus_g, one)), x), e};
}

/* Phi(z) = erfc(-z/sqrt(2))/2, without cancellation for negative z; e^(-z^2/2) */
NM_INLINE error_function normal_cdf(vf z)
{
    vf u = v_mul(z, v_set(0.70710678f)), a = absolute(u), one = v_set(1), half = v_set(0.5f);
    vf e = v_exp(v_sub(v_set(0), v_mul(a, a))), tail = v_mul(half, erfc_far(v_max(one, a), e));
    vf far = select_below(z, v_set(0), tail, v_sub(one, tail));
    return (error_function){select_below(a, one, v_fma(half, erf_near(u), half), far), e};
}

NM_INLINE vf sigmoid_of(vf z)
{
    return v_div(v_set(1), v_add(v_set(1), v_exp(v_sub(v_set(0), z))));
}

static const float sqrt_2_pi = 0.79788456f, cubic = 0.044715f;

/* tanh(sqrt(2/pi) (z + 0.044715 z^3)) */
NM_INLINE vf gelu_tanh(vf z)
{
    vf cube = v_mul(v_mul(z, z), z);
    return tanh_of(v_mul(v_set(sqrt_2_pi), v_fma(v_set(cubic), cube, z)));
}

typedef struct map_result {
    vf value, slope;
} map_result;

/* f(z) and f'(z), which share most of their terms. If one of them is not used, it is not computed. */
NM_INLINE map_result map_at(const nm_map_op op, vf z)
{
    vf one = v_set(1), half = v_set(0.5f), square = v_mul(z, z), t, u;
    error_function f;
    switch (op) {
    case NM_MAP_RELU:
        return (map_result){v_max(v_set(0), z), v_keep_above(z, v_set(0), one)};
    case NM_MAP_TANH:
        t = tanh_of(z);
        return (map_result){t, v_sub(one, v_mul(t, t))};
    case NM_MAP_ERF:
        f = erf_of(z);
        return (map_result){f.value, v_mul(v_set(1.12837917f), f.exponential)};
    case NM_MAP_SIGMOID:
        t = sigmoid_of(z);
        return (map_result){t, v_mul(t, v_sub(one, t))};
    case NM_MAP_SILU:
        t = sigmoid_of(z);
        return (map_result){v_mul(z, t), v_mul(t, v_fma(z, v_sub(one, t), one))};
    case NM_MAP_GELU:
        f = normal_cdf(z);
        u = v_mul(v_set(0.5f * sqrt_2_pi), f.exponential);
        return (map_result){v_mul(z, f.value), v_fma(z, u, f.value)};
    case NM_MAP_GELU_TANH:
        t = gelu_tanh(z);
        u = v_add(one, t);
        return (map_result){v_mul(v_mul(half, z), u),
                            v_fma(v_mul(v_mul(half, z), v_sub(one, v_mul(t, t))),
                                  v_mul(v_set(sqrt_2_pi), v_fma(v_set(3 * cubic), square, one)),
                                  v_mul(half, u))};
    case NM_MAP_IDENTITY:
        return (map_result){z, one};
    }
    NM_ASSERT(false);
}

typedef struct map_call {
    nm_map_op op;
    nm_mat x, y, dy, dx;
    float alpha, shift;
    const float *weight, *bias; /* padded vectors */
    bool add, sums, scalars;    /* which sums are needed: of columns, of all elements */
    bool stream;                /* non-temporal stores */
} map_call;

/* Runs ROWS(op) with a constant op, so that it is compiled once for each function. */
#define OP_CASE(op, word)                                                                                    \
    case op:                                                                                                 \
        ROWS(op);                                                                                            \
        break;
#define ROWS_OF(op)                                                                                          \
    switch (op) {                                                                                            \
        NM_MAP_OPS(OP_CASE)                                                                                  \
    }

NM_INLINE void map_row(const map_call *call, const nm_map_op op, const bool stream, int32_t row)
{
    const float *x = nm_row(call->x, row), *weight = call->weight, *bias = call->bias;
    float *y = nm_row(call->y, row);
    const vf alpha = v_set(call->alpha), shift = v_set(call->shift);
#define STEP(j, count)                                                                                       \
    nm_store(y + (j), count, stream,                                                                         \
             v_fma(v_load(weight + (j)), map_at(op, v_fma(alpha, v_load_upto(x + (j), count), shift)).value, \
                   v_load(bias + (j))))
    NM_COLUMNS(call->x.cols, STEP);
#undef STEP
}

static void map_rows(const map_call *call, int32_t first, int32_t end)
{
#define ROWS(op)                                                                                             \
    for (int32_t row = first; row < end; row++)                                                              \
        if (call->stream)                                                                                    \
            map_row(call, op, true, row);                                                                    \
        else                                                                                                 \
            map_row(call, op, false, row)
    ROWS_OF(call->op)
#undef ROWS
    if (call->stream)
        v_stream_end();
}

/* The parameters, with defaults for missing ones. vectors: memory for two padded vectors. */
static map_call prepare_map(const nm_map_args *args, float *vectors)
{
    const int32_t cols = args->x.cols;
    map_call call = {.op = args->op,
                     .x = args->x,
                     .alpha = args->alpha ? *(const float *)args->alpha : 1,
                     .shift = args->shift ? *(const float *)args->shift : 0};
    call.weight = nm_padded_vector(args->weight, cols, cols, 1, vectors);
    call.bias = nm_padded_vector(args->bias, cols, cols, 0, vectors + nm_padded(cols));
    return call;
}

static void map(nm_backend *b, const nm_map_args *args)
{
    const nm_mat x = args->x;
    NM_ASSERT(nm_same_shape(x, args->y));
    map_call call =
        prepare_map(args, nm_backend_scratch(b, NM_CPU_PARTIALS, 2 * nm_padded(x.cols) * sizeof(float)));
    call.y = args->y;
    call.stream = nm_use_streaming(call.y);
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t first = 0; first < x.rows; first += NM_NORM_ROWS)
        map_rows(&call, first, nm_min_i32(x.rows, first + NM_NORM_ROWS));
}

/* Gradients of one row. sums: padded vectors [d_weight, d_bias] of the block of rows; scalars: d_alpha,
 * d_shift. */
NM_INLINE void grad_row(const map_call *call, const nm_map_op op, int32_t row, float *sums, double scalars[2])
{
    const float *x = nm_row(call->x, row), *dy = nm_row(call->dy, row), *weight = call->weight;
    float *dx = nm_row(call->dx, row), *bias_sums = sums + nm_padded(call->x.cols);
    const vf alpha = v_set(call->alpha), shift = v_set(call->shift);
    const bool add = call->add, with_sums = call->sums, with_scalars = call->scalars, stream = call->stream;
    vf sum_qx[NM_SUM_VECTORS] = {{0}}, sum_q[NM_SUM_VECTORS] = {{0}};
#define STEP(i, j, count)                                                                                    \
    do {                                                                                                     \
        vf x_ = v_load_upto(x + (j), count), up_ = v_load_upto(dy + (j), count);                             \
        const map_result f_ = map_at(op, v_fma(alpha, x_, shift));                                           \
        vf q_ = v_mul(v_mul(v_load(weight + (j)), up_), f_.slope), down_ = v_mul(alpha, q_);                 \
        if (add)                                                                                             \
            down_ = v_add(down_, v_load_upto(dx + (j), count));                                              \
        nm_store(dx + (j), count, stream, down_);                                                            \
        if (with_sums) {                                                                                     \
            nm_fma_to(sums + (j), up_, f_.value);                                                            \
            nm_add_to(bias_sums + (j), up_);                                                                 \
        }                                                                                                    \
        if (with_scalars) {                                                                                  \
            sum_qx[i] = v_fma(q_, x_, sum_qx[i]);                                                            \
            sum_q[i] = v_add(q_, sum_q[i]);                                                                  \
        }                                                                                                    \
    } while (0)
    NM_SUM_COLUMNS(call->x.cols, STEP);
#undef STEP
    scalars[0] += v_sum_lanes(sum_qx);
    scalars[1] += v_sum_lanes(sum_q);
}

static void grad_rows(const map_call *call, int32_t first, int32_t end, float *sums, double scalars[2])
{
#define ROWS(op)                                                                                             \
    for (int32_t row = first; row < end; row++)                                                              \
    grad_row(call, op, row, sums, scalars)
    ROWS_OF(call->op)
#undef ROWS
    if (call->stream)
        v_stream_end();
}

static void map_grad(nm_backend *b, const nm_map_grad_args *args)
{
    const nm_mat x = args->forward.x;
    const size_t padded = nm_padded(x.cols);
    const int32_t blocks = nm_ceil_div(x.rows, NM_NORM_ROWS);
    NM_ASSERT(nm_same_shape(x, args->dy) && nm_same_shape(x, args->dx));
    /* doubles: column sums [2 padded], scalar sums [blocks][2]; floats: parameters [2 padded], column sums
     * of blocks */
    size_t doubles = 2 * padded + 2 * (size_t)blocks, floats = 2 * padded * ((size_t)blocks + 1);
    double *sums = nm_backend_scratch(b, NM_CPU_PARTIALS, doubles * sizeof(double) + floats * sizeof(float));
    double *scalars = sums + 2 * padded;
    float *vectors = (float *)(void *)(sums + doubles), *partials = vectors + 2 * padded;
    map_call call = prepare_map(&args->forward, vectors);
    call.dy = args->dy;
    call.dx = args->dx;
    call.add = args->add;
    call.stream = !args->add && nm_use_streaming(call.dx);
    call.sums = args->d_weight || args->d_bias;
    call.scalars = args->d_alpha || args->d_shift;
    int32_t threads = nm_threads_for(b, (size_t)x.rows * (size_t)x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < blocks; i++) {
        float *block_sums = partials + (size_t)i * 2 * padded;
        if (call.sums)
            memset(block_sums, 0, 2 * padded * sizeof(float));
        scalars[2 * i] = scalars[2 * i + 1] = 0;
        grad_rows(&call, i * NM_NORM_ROWS, nm_min_i32(x.rows, (i + 1) * NM_NORM_ROWS), block_sums,
                  scalars + 2 * (size_t)i);
    }
    if (call.sums) {
        nm_sum_blocks(b, partials, blocks, (int32_t)(2 * padded), sums);
        nm_add_sums(sums, x.cols, args->d_weight);
        nm_add_sums(sums + padded, x.cols, args->d_bias);
    }
    double total[2] = {0, 0};
    for (int32_t i = 0; i < 2 * blocks; i++)
        total[i % 2] += scalars[i];
    nm_add_sums(total, 1, args->d_alpha);
    nm_add_sums(total + 1, 1, args->d_shift);
}

NM_INLINE void gate_row(const nm_gate_args *args, const nm_map_op op, const bool stream, int32_t row)
{
    const float *gate = nm_row(args->gate, row), *x = nm_row(args->x, row);
    float *y = nm_row(args->y, row);
#define STEP(j, count)                                                                                       \
    nm_store(y + (j), count, stream,                                                                         \
             v_mul(map_at(op, v_load_upto(gate + (j), count)).value, v_load_upto(x + (j), count)))
    NM_COLUMNS(args->y.cols, STEP);
#undef STEP
}

static void gate_rows(const nm_gate_args *args, bool stream, int32_t first, int32_t end)
{
#define ROWS(op)                                                                                             \
    for (int32_t row = first; row < end; row++)                                                              \
    gate_row(args, op, stream, row)
    ROWS_OF(args->op)
#undef ROWS
    if (stream)
        v_stream_end();
}

static void gate(nm_backend *b, const nm_gate_args *args)
{
    const nm_mat y = args->y;
    NM_ASSERT(nm_same_shape(args->gate, y) && nm_same_shape(args->x, y));
    const bool stream = nm_use_streaming(y);
    int32_t threads = nm_threads_for(b, (size_t)y.rows * (size_t)y.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t first = 0; first < y.rows; first += NM_NORM_ROWS)
        gate_rows(args, stream, first, nm_min_i32(y.rows, first + NM_NORM_ROWS));
}

NM_INLINE void gate_grad_row(const nm_gate_grad_args *args, const nm_map_op op, const bool stream,
                             int32_t row)
{
    const float *gate = nm_row(args->forward.gate, row), *x = nm_row(args->forward.x, row);
    const float *dy = nm_row(args->dy, row);
    float *dgate = nm_row(args->dgate, row), *dx = nm_row(args->dx, row);
#define STEP(j, count)                                                                                       \
    do {                                                                                                     \
        const map_result f_ = map_at(op, v_load_upto(gate + (j), count));                                    \
        vf up_ = v_load_upto(dy + (j), count);                                                               \
        nm_store(dgate + (j), count, stream, v_mul(v_mul(up_, v_load_upto(x + (j), count)), f_.slope));      \
        nm_store(dx + (j), count, stream, v_mul(up_, f_.value));                                             \
    } while (0)
    NM_COLUMNS(args->dy.cols, STEP);
#undef STEP
}

static void gate_grad_rows(const nm_gate_grad_args *args, bool stream, int32_t first, int32_t end)
{
#define ROWS(op)                                                                                             \
    for (int32_t row = first; row < end; row++)                                                              \
    gate_grad_row(args, op, stream, row)
    ROWS_OF(args->forward.op)
#undef ROWS
    if (stream)
        v_stream_end();
}

static void gate_grad(nm_backend *b, const nm_gate_grad_args *args)
{
    const nm_mat dy = args->dy;
    NM_ASSERT(nm_same_shape(args->forward.gate, dy) && nm_same_shape(args->forward.x, dy));
    NM_ASSERT(nm_same_shape(args->dgate, dy) && nm_same_shape(args->dx, dy));
    const bool stream = nm_use_streaming(args->dgate) && nm_use_streaming(args->dx);
    int32_t threads = nm_threads_for(b, (size_t)dy.rows * (size_t)dy.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t first = 0; first < dy.rows; first += NM_NORM_ROWS)
        gate_grad_rows(args, stream, first, nm_min_i32(dy.rows, first + NM_NORM_ROWS));
}

void NM_SIMD(nm_cpu_map)(nm_kernels *k)
{
    k->map = map;
    k->map_grad = map_grad;
    k->gate = gate;
    k->gate_grad = gate_grad;
}
