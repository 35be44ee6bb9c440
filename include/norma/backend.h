/* Backends: tables of kernels over plain matrices.
 *
 * `ref` is plain C in float or double, the reference implementation; `cpu` is SIMD and OpenMP in float and is
 * tested against it. Matrices, vectors and index lists are in device memory (nm_backend_alloc), other
 * arguments in host memory, unless a comment states the opposite. Kernels cannot fail: a wrong shape is a
 * programming error and aborts. Sums over rows are accumulated in double, in an order that does not depend on
 * the number of threads.
 *
 * Kernels are asynchronous: on a device they run in the order of the calls, after the calls have returned.
 * What is in host memory (structs, lists, bytes of `upload`) is read before a call returns. `download`, and
 * `dot` with a result in host memory, wait.
 *
 * A matrix is row-major: element (r, c) is data[r * stride + c]; its type is the backend's dtype. A vector
 * is a `void *` to elements of that type. Outputs marked "=" are overwritten, outputs marked "+=" are
 * accumulated into. */
#ifndef NORMA_BACKEND_H
#define NORMA_BACKEND_H

#include "norma/choice.h"
#include "norma/dropout.h"
#include "norma/functions.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nm_dtype { NM_F32, NM_F64 } nm_dtype;

static inline size_t nm_dtype_bytes(nm_dtype dtype)
{
    return dtype == NM_F64 ? sizeof(double) : sizeof(float);
}

/* Element i of a host array. */
static inline double nm_dtype_get(nm_dtype dtype, const void *array, size_t i)
{
    return dtype == NM_F64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

static inline void nm_dtype_set(nm_dtype dtype, void *array, size_t i, double value)
{
    if (dtype == NM_F64)
        ((double *)array)[i] = value;
    else
        ((float *)array)[i] = (float)value;
}

typedef struct nm_mat {
    void *data;
    int32_t rows, cols, stride; /* in elements */
} nm_mat;

static inline nm_mat nm_mat_of(void *data, int32_t rows, int32_t cols)
{
    nm_mat mat = {data, rows, cols, cols};
    return mat;
}

/* A batch of sequences without padding: sequence s has the rows offsets[s] .. offsets[s + 1] - 1. */
typedef struct nm_packing {
    int32_t n_seqs, n_tokens, longest;
    const int32_t *offsets;        /* host, [n_seqs + 1] */
    const int32_t *device_offsets; /* the same numbers in device memory */
} nm_packing;

typedef struct nm_backend nm_backend;

/* Kernels.
 * Every kernel has one struct of arguments, nm_NAME_args, inputs first and outputs last, and is called by
 * name:
 *     NM_CALL(backend, linear, .x = x, .weight = weight, .y = y);
 * Arguments that are left out are 0, false or NULL. In C++, the others are in the order of the struct; before
 * C++20, their names are an extension of the compiler. */
#ifndef __cplusplus
#define NM_CALL(backend, kernel, ...) (backend)->k.kernel((backend), &(nm_##kernel##_args){__VA_ARGS__})
#else /* which has no address of a temporary object */
#define NM_CALL(backend, kernel, ...)                                                                        \
    [](nm_backend *b_, const nm_##kernel##_args &args_) {                                                    \
        b_->k.kernel(b_, &args_);                                                                            \
    }((backend), nm_##kernel##_args{__VA_ARGS__})
#endif

typedef struct nm_upload_args {
    const void *host;
    size_t bytes;
    void *device;
} nm_upload_args;

typedef struct nm_download_args {
    const void *device;
    size_t bytes;
    void *host;
} nm_download_args;

/* Device to device. */
typedef struct nm_copy_args {
    const void *from;
    size_t bytes;
    void *to;
} nm_copy_args;

typedef struct nm_zero_args {
    size_t bytes;
    void *data;
} nm_zero_args;

/* Element i depends on the random words of counter i (Philox4x32-10, seed, site) only. */
typedef enum nm_init_kind {
    NM_INIT_CONSTANT,       /* scale */
    NM_INIT_NORMAL,         /* N(0, scale^2), by the Box-Muller transform (1958) */
    NM_INIT_UNIFORM,        /* U(-scale, scale) */
    NM_INIT_NORMAL_MEAN_ONE /* N(1, scale^2) */
} nm_init_kind;

typedef struct nm_init {
    nm_init_kind kind;
    double scale;
} nm_init;

typedef struct nm_random_init_args {
    nm_init init;
    uint64_t seed;
    uint32_t site; /* < 2^24 */
    size_t n;
    void *out; /* [n], = */
} nm_random_init_args;

/* c = alpha op(a) op(b) + beta c; op(a) is the transpose of a if ta. c is not read if beta is 0. */
typedef struct nm_gemm_args {
    bool ta, tb;
    double alpha, beta;
    nm_mat a, b, c;
} nm_gemm_args;

typedef enum nm_act { NM_ACT_NONE, NM_ACT_RELU } nm_act;

/* y = drop(act(x weight^T + bias)); weight [out, in], bias [out] or NULL. A packed weight is used if one
 * is registered (nm_backend_register_weight); for an int8 weight the layer is computed by linear_int8. */
typedef struct nm_linear_args {
    nm_mat x, weight;
    const void *bias;
    nm_act act;
    const nm_dropout *drop; /* NULL: none */
    nm_mat y;               /* = */
} nm_linear_args;

/* y[i][j] = x[i] . weight[rows[j]] + bias[rows[j]]: a linear layer with some rows of the weight only. In
 * float also where `linear` computes in bf16 or int8. */
typedef struct nm_linear_selected_args {
    nm_mat x, weight;
    const void *bias;    /* [rows of weight] or NULL */
    const int32_t *rows; /* [columns of y] */
    nm_mat y;            /* = */
} nm_linear_selected_args;

/* dz: gradient before the activation and the dropout of `linear`, elementwise:
 *     dz = dy * dropout factor                      without an activation
 *     dz = y > 0 ? dy * dropout scale : 0           for relu */
typedef struct nm_act_grad_args {
    nm_act act;
    const nm_dropout *drop;
    nm_mat y, dy, dz; /* dz may be dy */
} nm_act_grad_args;

/* dx = dy weight, or dx += dy weight if add */
typedef struct nm_linear_grad_input_args {
    nm_mat dy, weight;
    bool add;
    nm_mat dx;
} nm_linear_grad_input_args;

/* dw += dy^T x
 * db += column sums of dy */
typedef struct nm_linear_grad_weight_args {
    nm_mat dy, x, dw; /* dw without data: only db */
    void *db;         /* or NULL */
} nm_linear_grad_weight_args;

/* Packs a weight into the panels that `linear` reads (nm_backend_register_weight). packed NULL: only
 * *bytes is written, the size of the packed weight, or 0 if the backend has no packed layout. */
typedef struct nm_pack_args {
    nm_mat weight;
    size_t *bytes; /* host */
    void *packed;
} nm_pack_args;

/* bf16 matrix multiplication.
 * On a backend that was created with `bf16`, some kernels round the operands of their matrix multiplications
 * to bf16 (8 bits of precision, the exponents of float), to nearest even: `linear`, `linear_grad_input`,
 * `linear_grad_weight` (not its db), `softmax_loss`, `attention` and `attention_grad`. In attention, operands
 * are also the softmax weights after dropout (in the forward pass before the division by their sum) and the
 * gradients of the scores. Matrices stay in float, and so do bias, activation, dropout, softmax, and all
 * other kernels. An element of a result is summed in float, in chunks of 512 products (attention: of the keys
 * or queries of a tile). A chunk is summed in blocks of 32, of which the last is padded with zeros:
 *     s = 0 at the beginning of a chunk; for each block
 *         e = fma(x_30, y_30, .. fma(x_2, y_2, fma(x_0, y_0, 0)))
 *         o = fma(x_31, y_31, .. fma(x_3, y_3, fma(x_1, y_1, 0)))
 *         s = s + (e + o)
 *     c = s for the first chunk, c + s for the others
 * A product is exact in float; every step rounds once, to nearest even. Denormal numbers, inputs and
 * results, become zero of the same sign. This is what the AMX instruction tdpbf16ps computes for a block.
 * Linear layers give bitwise identical results on all backends and CPU levels; the other kernels contain
 * exponentials, which differ in the last bits. */

/* int8 inference: symmetric per-row weight quantization, dynamic per-token activation quantization.
 * A row w of a weight is integers q from -127 to 127 and a scale s:
 *     s = max |w| / 127, rounded up to 17 significant bits
 *     q = round(w / s)
 * q s is exact in float, and quantizing it again gives the same q and s. A row x of the input is quantized
 * independently of the others:
 *     t = max |x| / 127
 *     p = round(x (127 / max |x|))
 * linear_int8 computes
 *     y = act(((float)(sum of p q) s) t + bias)
 * with an exact integer sum and every other step rounded to float, regardless of the backend's dtype: results
 * are bitwise identical on all backends. Rounding is to nearest even. A row whose largest value is below
 * 2^-100 counts as zero; a row with an infinite value or a NaN gives NaN. */
enum { NM_INT8_COLS = 65536 }; /* largest number of columns of a weight: sums stay below 2^31 */

/* Rows `first` and following of a weight that pack_int8 wrote. */
typedef struct nm_int8 {
    const void *packed;
    int32_t rows, cols; /* of the whole weight */
    int32_t first;
} nm_int8;

/* m = round trip of m through int8 quantization, in place */
typedef struct nm_round_int8_args {
    nm_mat m;
} nm_round_int8_args;

/* The same as `pack` for linear_int8; 0 bytes if the weight has more than NM_INT8_COLS columns. */
typedef struct nm_pack_int8_args {
    nm_mat weight;
    size_t *bytes; /* host */
    void *packed;
} nm_pack_int8_args;

typedef struct nm_linear_int8_args {
    nm_mat x;
    const nm_int8 *weight; /* host; y.cols rows of it are used */
    const void *bias;      /* or NULL */
    nm_act act;
    nm_mat y; /* = */
} nm_linear_int8_args;

/* y = alpha x */
typedef struct nm_scale_args {
    double alpha;
    const double *factor; /* device, [1]: alpha is multiplied by it; NULL: 1 */
    nm_mat x, y;          /* y may be x */
} nm_scale_args;

/* y += alpha x */
typedef struct nm_add_args {
    double alpha;
    const double *factor; /* as in `scale` */
    nm_mat x, y;
} nm_add_args;

/* y = x + drop(f) */
typedef struct nm_add_dropout_args {
    nm_mat x, f;
    const nm_dropout *drop;
    nm_mat y; /* may be x */
} nm_add_dropout_args;

/* y = drop(x), or y += drop(x) if add; also the gradient of dropout */
typedef struct nm_dropout_args {
    nm_mat x;
    const nm_dropout *drop;
    bool add;
    nm_mat y;
} nm_dropout_args;

/* y = x in bf16, rounded to nearest even; denormal numbers become zero of the same sign. */
typedef struct nm_store_bf16_args {
    nm_mat x;
    uint16_t *y; /* [rows * cols], = */
} nm_store_bf16_args;

/* y = the values of bf16 numbers */
typedef struct nm_load_bf16_args {
    const uint16_t *x; /* [rows * cols] */
    nm_mat y;          /* = */
} nm_load_bf16_args;

/* z = alpha x + shift
 * y = weight f(z) + bias
 * alpha and shift are scalars, weight and bias vectors over the columns; NULL: 1, 0, 1, 0. */
typedef struct nm_map_args {
    nm_map_op op;
    nm_mat x;
    const void *alpha, *shift; /* [1] */
    const void *weight, *bias; /* [cols] */
    nm_mat y;                  /* =; may be x */
} nm_map_args;

/* The gradients of `map`:
 *     q         = weight dy f'(z)
 *     dx        = alpha q
 *     d_alpha  += sum of q x over all elements
 *     d_shift  += sum of q over all elements
 *     d_weight += sum of dy f(z) over the rows
 *     d_bias   += sum of dy over the rows */
typedef struct nm_map_grad_args {
    nm_map_args forward; /* y is not read */
    nm_mat dy;
    bool add;                /* dx +=, otherwise dx = */
    nm_mat dx;               /* may be dy */
    void *d_alpha, *d_shift; /* [1] or NULL */
    void *d_weight, *d_bias; /* [cols] or NULL */
} nm_map_grad_args;

/* Gated linear unit (Shazeer 2020, "GLU Variants Improve Transformer"), elementwise:
 *     y = f(gate) x */
typedef struct nm_gate_args {
    nm_map_op op; /* f */
    nm_mat gate, x;
    nm_mat y; /* = */
} nm_gate_args;

/* The gradients of `gate`:
 *     dgate = dy x f'(gate)
 *     dx    = dy f(gate) */
typedef struct nm_gate_grad_args {
    nm_gate_args forward; /* y is not read */
    nm_mat dy;
    nm_mat dgate, dx; /* = */
} nm_gate_grad_args;

/* Elementwise operations on vectors, with the numbers s and t. */
typedef enum nm_vec_op {
    NM_VEC_FILL,        /* out = s */
    NM_VEC_COPY,        /* out = a */
    NM_VEC_SHIFT,       /* out = a + s */
    NM_VEC_LINEAR,      /* out = s a + t b           (b may be NULL) */
    NM_VEC_MUL,         /* out = s a b + t */
    NM_VEC_MUL_ADD,     /* out = s a b + t c */
    NM_VEC_DIV,         /* out = s a / b + t */
    NM_VEC_RSQRT,       /* out = 1/sqrt(a + s) */
    NM_VEC_RSQRT_CLAMP, /* out = 1/sqrt(max(a, s)) */
    NM_VEC_SQRT,        /* out = sqrt(a + s) */
    NM_VEC_CLIP,        /* out = min(max(a, s), t) */
    NM_VEC_SIGN,        /* out = s sign(a - b) */
    NM_VEC_ABOVE,       /* out = a > s ? b : t */
    NM_VEC_POW          /* out = t a^s */
} nm_vec_op;

typedef struct nm_vec_args {
    nm_vec_op op;
    int32_t n;
    const void *a, *b, *c; /* [n]; operands that the operation does not have may be NULL */
    double s, t;
    void *out; /* [n], =; may be an operand */
} nm_vec_args;

/* sum = sum of a_i b_i, in double: the sums of blocks of NM_DOT_BLOCK elements, added in order
 *     *out   = sum
 *     *total = keep *total + factor sum        or, if inverse_norm, 1/(max(sqrt(sum), least) + eps)
 * With total only, the host does not wait for the result. */
enum { NM_DOT_BLOCK = 1024 };
typedef struct nm_dot_args {
    size_t n; /* 0: sum = 0 */
    const void *a, *b;
    double keep, factor;
    bool inverse_norm;
    double least, eps;
    double *blocks; /* host, [n / NM_DOT_BLOCK, rounded up]: the sums of the blocks; NULL: not stored */
    double *out;    /* host; NULL: not stored */
    double *total;  /* device, [1]; not read if keep is 0 or inverse_norm; NULL: not stored */
} nm_dot_args;

/* out[i] = drop(scale table[ids[i]] + positions[pos[i]])     (Vaswani et al. 2017, sections 3.4 and 3.5) */
typedef struct nm_embed_args {
    const int32_t *ids, *pos; /* [rows of out] */
    double scale;
    nm_mat table, positions; /* positions.data NULL: no positional embedding */
    const nm_dropout *drop;
    nm_mat out; /* = */
} nm_embed_args;

/* dtable[ids[i]] += scale drop(dout[i]), summed in the order of i */
typedef struct nm_embed_grad_args {
    const int32_t *ids;
    double scale;
    nm_mat dout;
    const nm_dropout *drop;
    nm_mat dtable;
} nm_embed_grad_args;

/* out[i] = x[rows[i]] */
typedef struct nm_gather_args {
    const int32_t *rows;
    nm_mat x, out;
} nm_gather_args;

/* Windows of images.
 * A feature map is a matrix [image, row, column] x channels of images of equal size. A window has size x size
 * positions; window (r, c) begins at row r stride - padding and column c stride - padding. Positions outside
 * the image are 0. There are nm_windows_along(w, height) x nm_windows_along(w, width) windows per image. */
typedef struct nm_windows {
    int32_t images, height, width; /* of the feature map */
    int32_t size, stride, padding;
} nm_windows;

static inline int32_t nm_windows_along(const nm_windows *w, int32_t extent)
{
    return (extent + 2 * w->padding - w->size) / w->stride + 1;
}

/* Number of windows of all images. */
static inline int32_t nm_windows_count(const nm_windows *w)
{
    return w->images * nm_windows_along(w, w->height) * nm_windows_along(w, w->width);
}

/* The input of a convolution as a linear layer (im2col): for window w and its positions (i, j) in row-major
 * order
 *     out[w] = [x at (0, 0) | x at (0, 1) | .. | x at (size - 1, size - 1)] */
typedef struct nm_patches_args {
    const nm_windows *windows;
    nm_mat x;   /* [images * height * width, channels] */
    nm_mat out; /* [windows, size * size * channels], = */
} nm_patches_args;

/* dx[position] = sum over the windows that contain it, in the order of (i, j), or += if add */
typedef struct nm_patches_grad_args {
    const nm_windows *windows;
    nm_mat dout;
    bool add;
    nm_mat dx;
} nm_patches_grad_args;

/* A convolution, with the patches P of x (nm_patches_args):
 *     y = P W^T + bias
 * room: memory for the patches of one image or more, [windows of whole images, size * size * channels]; a
 * backend that does not gather them leaves it alone. nm_patchwise_images(windows, weight columns) images
 * are gathered at once, by shape only, so that results do not depend on the number of threads. */
typedef struct nm_convolve_args {
    const nm_windows *windows;
    nm_mat x, weight; /* weight: [out, size * size * channels] */
    const void *bias; /* [out], or NULL */
    nm_mat room;
    nm_mat y; /* [windows, out] */
} nm_convolve_args;
NM_API int32_t nm_patchwise_images(const nm_windows *windows, int32_t cols);

/* dx = the gradient of x, whose patches have the gradient dy W, or dx += if add */
typedef struct nm_convolve_grad_input_args {
    const nm_windows *windows;
    nm_mat dy, weight, room;
    bool add;
    nm_mat dx;
} nm_convolve_grad_input_args;

/* dw += dy^T P
 * db += column sums of dy */
typedef struct nm_convolve_grad_weight_args {
    const nm_windows *windows;
    nm_mat dy, x, room, dw; /* dw without data: only db */
    void *db;               /* or NULL */
} nm_convolve_grad_weight_args;

/* Average pooling: out[w] = 1/size^2 sum of x over the positions of window w */
typedef struct nm_window_mean_args {
    const nm_windows *windows;
    nm_mat x;
    nm_mat out; /* [windows, channels], = */
} nm_window_mean_args;

/* dx[position] = 1/size^2 sum of dout over the windows that contain it, or += if add */
typedef struct nm_window_mean_grad_args {
    const nm_windows *windows;
    nm_mat dout;
    bool add;
    nm_mat dx;
} nm_window_mean_grad_args;

/* Rotary position embeddings (Su et al. 2021, "RoFormer", equation 34). Heads are equal column ranges of c =
 * cols/heads columns, an even number. For row i with position p = positions[i], per head and pair k < c/2 of
 * columns
 *     a, b = k, k + c/2           or 2k, 2k + 1 if interleaved
 *     y_a  = x_a cos - x_b sin    cos = table[p, k], sin = table[p, c/2 + k]
 *     y_b  = x_b cos + x_a sin
 * inverse: -sin in place of sin, which is also the gradient. */
typedef struct nm_rotate_args {
    nm_mat x;
    nm_mat table;             /* [length, c] */
    const int32_t *positions; /* [rows], below length */
    int32_t heads;
    bool interleaved, inverse;
    nm_mat y; /* =; may be x */
} nm_rotate_args;

/* Scaled dot-product attention (Vaswani et al. 2017, eq. 1); heads are equal column ranges. Per head and
 * query i:
 *     s_j = scale q_i . k_j        p = softmax(s)        out_i = sum_j drop(p_j) v_j
 * Query i of m queries of a sequence attends to all n keys of the sequence, or, if causal, to the
 * keys j <= p with p = i + (n - m). With a window, which requires causal, it attends to the keys p - window <
 * j <= p only (Beltagy et al. 2020, Jiang et al. 2023). Dropout mask: row = head * q rows + query row, column
 * = position of the key in its sequence. */
typedef struct nm_attention_args {
    nm_mat q, k, v; /* [queries, heads * c], [keys, heads * c], [keys, heads * c'] */
    const nm_packing *q_packing, *k_packing;
    int32_t heads;
    bool causal;
    int32_t window; /* 0: none */
    double scale;
    const nm_dropout *drop;
    nm_mat out; /* = */
    void *lse;  /* [heads * q rows], =: log of the softmax denominators, head-major; NULL at inference */
} nm_attention_args;

typedef struct nm_attention_grad_args {
    nm_attention_args forward; /* with its results out and lse */
    nm_mat dout;
    nm_mat dq, dk, dv; /* = */
} nm_attention_grad_args;

/* Attention of single queries over a gathered KV cache: query i attends to the rows
 * rows[offsets[i]] .. rows[offsets[i + 1] - 1] of k and v. Grouped-query attention (Ainslie et al. 2023):
 * query head h reads key and value head floor(h key_heads / heads). On all backends, q and the softmax
 * weights are not rounded. */
typedef struct nm_attention_cached_args {
    nm_mat q, k, v; /* [queries, heads * c], [keys, key_heads * c], [keys, key_heads * c'] */
    bool bf16;      /* k and v are matrices of bf16 numbers (uint16_t), as store_bf16 writes them */
    const int32_t *rows, *offsets;
    int32_t heads, key_heads; /* key_heads: a divisor of heads; 0: heads */
    double scale;
    nm_mat out; /* = */
} nm_attention_cached_args;

/* Guided alignment (Chen et al. 2016): cross-entropy of the attention of one head to given alignments. Query
 * i of a sequence is aligned to the n_i keys A_i of the same sequence; a query without keys has no loss:
 *     p_i  = softmax_j(scale q_i . k_j)
 *     loss = weight sum_i -1/n_i sum of log p_ij over j in A_i
 *     ds_ij = grad_scale weight (p_ij - [j in A_i]/n_i) */
typedef struct nm_guided_attention_args {
    nm_mat q, k; /* [queries, c], [keys, c]: one head */
    const nm_packing *q_packing, *k_packing;
    double scale, weight, grad_scale;
    /* Keys of query i: keys[offsets[i]] .. keys[offsets[i + 1] - 1], different positions in its sequence. */
    const int32_t *offsets, *keys;
    double *loss;  /* [1], =; NULL: not computed */
    nm_mat dq, dk; /* +=; data NULL: not computed */
} nm_guided_attention_args;

/* Block-term attention (Ma et al. 2019) over segments of at most `length` tokens, with the core g = mean of
 * the rows of `core`, content bias u and position bias w:
 *     A_ia  = g_a (q_ia + u_a)
 *     B_ia  = g_a (q_ia + w_a)
 *     out_i = sum over pairs (j, k) of  weight[j length + k] sum_a (A_ia k_ja + B_ia p_ja) v_ka
 * over all j, k of the segment, or the j, k <= i if causal. Without causal every segment has exactly
 * `length` tokens. */
typedef struct nm_block_term_args {
    nm_mat q, k, v;                           /* [tokens, h] */
    nm_mat positions;                         /* [length, h]: p, the keys of the positions in a segment */
    nm_mat weight;                            /* [length^2, d] */
    nm_mat core;                              /* [cores, h] */
    const void *content_bias, *position_bias; /* [h]: u, w */
    const nm_packing *packing;                /* no sequence is longer than length */
    int32_t length;
    bool causal;
    nm_mat out; /* [tokens, d], = */
} nm_block_term_args;

typedef struct nm_block_term_grad_args {
    nm_block_term_args forward; /* out is not read */
    nm_mat dout;
    nm_mat dq, dk, dv, dpositions;        /* = */
    nm_mat dweight, dcore;                /* += */
    void *dcontent_bias, *dposition_bias; /* += */
} nm_block_term_grad_args;

/* Attention with relative positions as in TENER (Yan et al. 2019), per head, with key bias a and distance
 * bias b:
 *     s_ij  = (q_i + a) . k_j + (q_i + b) . R_(j-i) + k_j . R_(i-j)        (not scaled)
 *     p     = softmax over j
 *     out_i = sum_j drop(p_ij) v_j
 * The dropout mask is the one of `attention`. */
typedef struct nm_relative_attention_args {
    nm_mat q, k, v;                          /* [queries, heads * c], [keys, heads * c] twice */
    const nm_packing *q_packing, *k_packing; /* query i and key i of a sequence have the same position */
    int32_t heads;
    const void *key_bias, *distance_bias; /* [heads * c]: a, b */
    nm_mat positions;                     /* [.., c]: row zero_row + d is R_d */
    int32_t zero_row;
    nm_dropout drop;
    nm_mat out; /* = */
    void *lse;  /* as in `attention` */
} nm_relative_attention_args;

typedef struct nm_relative_attention_grad_args {
    nm_relative_attention_args forward; /* with its results out and lse */
    nm_mat dout;
    nm_mat dq, dk, dv;                  /* = */
    void *d_key_bias, *d_distance_bias; /* += */
} nm_relative_attention_grad_args;

/* out: the largest value of each column within each sequence; no sequence may be empty. */
typedef struct nm_pool_max_args {
    nm_mat x; /* [tokens, cols] */
    const nm_packing *packing;
    nm_mat out;     /* [sequences, cols], = */
    int32_t *where; /* [sequences * cols], =: row of the largest value */
} nm_pool_max_args;

typedef struct nm_pool_max_grad_args {
    nm_mat dout;
    const int32_t *where;
    nm_mat dx; /* = */
} nm_pool_max_grad_args;

/* Linear-chain conditional random field (Lafferty, McCallum and Pereira 2001):
 *     loss = log Z - score of the gold tags, summed over sequences */
typedef struct nm_crf_args {
    nm_mat emissions;                      /* [tokens, T] */
    const void *transitions, *start, *end; /* [T, T] from row to column; [T], [T] */
    const nm_packing *packing;
    const int32_t *gold; /* [tokens] */
    double grad_scale;
    double *sums;                          /* device doubles [2], =: the loss, twice */
    void *d_emissions;                     /* [tokens, T], =; the gradients are NULL if not needed */
    void *d_transitions, *d_start, *d_end; /* += */
} nm_crf_args;

/* Label smoothing (Szegedy et al. 2016, section 7; others: fairseq from 0.12 on); lp = log softmax(logits), y
 * = target, eps = smoothing:
 *     uniform:  loss = (1 - eps) (-lp_y) + eps/V sum_v (-lp_v)
 *     others:   loss = (1 - eps - eps/(V-1)) (-lp_y) + eps/(V-1) sum_v (-lp_v)
 * uniform with a mask: V is the number of allowed tokens. */
#define NM_SMOOTHINGS(C) C(NM_SMOOTH_UNIFORM, "uniform") C(NM_SMOOTH_OTHERS, "others")
NM_CHOICES(nm_smoothing, NM_SMOOTHINGS);

enum { NM_TARGET_IGNORED = -1 }; /* a target without loss and without gradient */

/* Cross-entropy of logits = hidden weight^T + bias, computed in blocks of rows: the logits of a batch are
 * never materialized. */
typedef struct nm_softmax_loss_args {
    nm_mat hidden, weight;  /* [tokens, d], [V, d] */
    const void *bias;       /* [V] or NULL */
    const int32_t *targets; /* [tokens]: allowed tokens, or NM_TARGET_IGNORED */
    const uint8_t *allowed; /* [V]: 0 excludes a token; NULL: all tokens are allowed */
    nm_smoothing smoothing;
    double eps, grad_scale;
    bool add_sums;  /* sums +=, otherwise sums = */
    double *sums;   /* device doubles [2]: sum of the smoothed loss, sum of the negative log-likelihood */
    void *d_hidden; /* [tokens, d], =; the gradients are NULL if not needed */
    void *d_weight, *d_bias; /* += */
} nm_softmax_loss_args;

/* y = log softmax of each row of x; -inf for tokens with allowed == 0 */
typedef struct nm_log_softmax_args {
    nm_mat x;
    const uint8_t *allowed; /* [cols] or NULL */
    nm_mat y;               /* may be x */
} nm_log_softmax_args;

/* Mixture of the probabilities of n models, called for each model m in turn with its log probabilities x:
 *     mixture = m = 0 ? x : log(exp(mixture) + exp(x))
 *     y       = mixture - log(n)                          if m = n - 1 */
typedef struct nm_mix_args {
    nm_mat x;
    int32_t m, n;
    double *mixture; /* device, [rows * cols]; not read if m is 0 */
    nm_mat y;        /* = or not written; may be x */
} nm_mix_args;

/* log_softmax, then the k > 0 largest values of each row in descending order and their columns (ties: the
 * smaller column first), the log probability of the token `also`, and of one given token per row. Log
 * probabilities that are equal only after rounding are in the order of x. x may be overwritten. */
typedef struct nm_log_top_k_args {
    nm_mat x;
    bool ready;             /* x are log probabilities: no softmax */
    const uint8_t *allowed; /* [cols] or NULL */
    int32_t k, also;
    void *values;         /* [rows, k], = */
    int32_t *columns;     /* [rows, k], = */
    void *also_values;    /* [rows], = */
    const int32_t *given; /* [rows]: tokens, or NM_TARGET_IGNORED; may be NULL */
    void *given_values;   /* [rows], =; 0 for NM_TARGET_IGNORED; NULL without given */
} nm_log_top_k_args;

/* Normalization over the features of a token: LayerNorm, RMSNorm, ScaleNorm, GroupNorm and related norms.
 * In each of `groups` groups of c = d/groups features of a row:
 *     xhat = (x - shift) scale
 *     y    = weight xhat + bias */
typedef enum nm_token_norm_kind {
    NM_TOKEN_CENTER,          /* shift = mean, scale = 1/sqrt(variance + eps), variance over c */
    NM_TOKEN_CENTER_UNBIASED, /* the same, variance over c - 1 */
    NM_TOKEN_RMS,             /* shift = 0, scale = 1/sqrt(mean square + eps) */
    NM_TOKEN_RMS_OUTSIDE,     /* shift = 0, scale = 1/(sqrt(mean square) + eps) */
    /* shift = 0, scale = c^(power/2)/max(L2 norm, eps); a constant in backward if the L2 norm is below eps */
    NM_TOKEN_L2,
    NM_TOKEN_CENTER_OUTSIDE /* shift = mean, scale = 1/(sqrt(variance) + eps), variance over c - 1 */
} nm_token_norm_kind;

/* Whether the kind subtracts the mean. */
static inline bool nm_token_norm_centers(nm_token_norm_kind kind)
{
    return kind == NM_TOKEN_CENTER || kind == NM_TOKEN_CENTER_UNBIASED || kind == NM_TOKEN_CENTER_OUTSIDE;
}

typedef struct nm_token_norm {
    nm_token_norm_kind kind;
    int32_t groups;
    double eps;
    int32_t weight_len, bias_len; /* 0 (none), 1 (a scalar), or d */
    /* Kinds without shift: statistics over the first n_used features of a group; 0: all. */
    int32_t n_used;
    double power; /* NM_TOKEN_L2 */
    /* AdaNorm, if ada_c > 0: y = ada_c (1 - ada_k xhat) xhat, without weight and bias. ada_c (1 - ada_k xhat)
     * is a constant in backward. */
    double ada_c, ada_k;
} nm_token_norm;

/* A residual connection whose result a norm reads. The norm's kernel computes it row by row while a row is in
 * the cache, bitwise as add_dropout and dropout do, so that x is not read from memory again:
 *     x  = stream + drop(f)          in the forward kernel, which then writes x; no part of x is in stream or
 *        f
 *     df = drop(dx)                  in the backward kernel, or df += drop(dx) if add */
typedef struct nm_residual_sum {
    nm_mat stream, f;
    const nm_dropout *drop;
} nm_residual_sum;

typedef struct nm_residual_grad {
    nm_mat df; /* not dx */
    const nm_dropout *drop;
    bool add;
} nm_residual_grad;

typedef struct nm_token_norm_args {
    const nm_token_norm *spec;
    const nm_residual_sum *sum; /* NULL: x is given */
    nm_mat x;
    const void *weight, *bias;
    nm_mat y;            /* = */
    void *shift, *scale; /* [rows * groups], =; shift NULL for kinds without; both may be NULL at inference */
} nm_token_norm_args;

typedef struct nm_token_norm_grad_args {
    const nm_token_norm *spec;
    nm_mat dy, x;
    const void *weight, *shift, *scale;
    bool add; /* dx +=, otherwise dx = */
    nm_mat dx;
    void *d_weight, *d_bias;          /* +=, or NULL */
    const nm_residual_grad *residual; /* or NULL */
} nm_token_norm_grad_args;

/* SeeDNorm: RMSNorm whose weight depends on the row (Cai et al. 2025).
 *     xhat = x scale                  scale = 1/sqrt(mean square + eps)
 *     gate = tanh(sum(x beta))
 *     y    = (gate alpha + weight) xhat */
typedef struct nm_seed_norm_args {
    const nm_residual_sum *sum; /* NULL: x is given */
    nm_mat x;
    double eps;
    const void *weight, *alpha, *beta; /* [d] */
    nm_mat y;                          /* = */
    void *scale, *gate;                /* [rows], = */
} nm_seed_norm_args;

typedef struct nm_seed_norm_grad_args {
    nm_mat dy, x;
    const void *weight, *alpha, *beta, *scale, *gate;
    bool add; /* dx +=, otherwise dx = */
    nm_mat dx;
    void *d_weight, *d_alpha, *d_beta; /* +=, or NULL */
    const nm_residual_grad *residual;  /* or NULL */
} nm_seed_norm_grad_args;

/* Normalization of features with statistics over the batch: BatchNorm, PowerNorm and related norms.
 *     h = x row_scale[row, group of the column]        (groups = 0: h = x)
 *     z = (h - shift) scale
 *     y = weight z + bias
 * shift, weight and bias may be NULL: 0, 1, 0. The row scale is PowerNorm's layer or group scaling:
 *     row_scale = 1/sqrt(mean square of the group + eps) */
typedef struct nm_feature_norm {
    int32_t groups;
    double eps;
    bool row_scale_ready; /* row_scale and x are inputs; otherwise the kernel computes and stores row_scale */
    const nm_residual_sum *sum; /* forward, unless row_scale_ready: x is computed first; NULL: x is given */
} nm_feature_norm;

/* Moments over the rows:
 *     mean   = mean of h
 *     square = mean of (h - center)^2, at most half of the largest number of the type
 * If center is the same pointer as mean, the mean is computed first and the square is about it. */
typedef struct nm_feature_moments_args {
    const nm_feature_norm *spec;
    nm_mat x;
    void *row_scale;     /* [rows * groups] */
    const void *center;  /* [d]; NULL: 0 */
    void *mean, *square; /* [d], =, or NULL */
} nm_feature_moments_args;

typedef struct nm_feature_norm_args {
    const nm_feature_norm *spec;
    nm_mat x;
    void *row_scale;                           /* [rows * groups] */
    const void *shift, *scale, *weight, *bias; /* [d] */
    bool relu;                                 /* y = relu(y + added) */
    nm_mat added;                              /* only with relu; data NULL: 0 */
    nm_mat y;                                  /* = */
    void *square;                              /* [d], = mean of h^2, limited likewise; NULL with relu */
} nm_feature_norm_args;

/* Sums over the rows, and the gradient of x through h = x row_scale:
 *     dy       = dy relu'(relu)                       first, in place, if relu has data
 *     sum_dy   = sum of dy
 *     sum_dy_z = sum of dy z
 *     dh       = a dy + c0 + c1 z
 *     dx       = row_scale (dh - h mean(dh h))        mean over the group; dh without groups */
typedef struct nm_feature_norm_grad_args {
    const nm_feature_norm *spec;
    nm_mat dy, x;
    nm_mat relu; /* y of feature_norm with relu; only without dx. data NULL: none */
    const void *row_scale, *shift, *scale;
    const void *a, *c0, *c1;          /* [d]; c0, c1 may be NULL: 0 */
    bool add;                         /* dx +=, otherwise dx = */
    nm_mat dx;                        /* data NULL: only the sums are computed */
    void *sum_dy, *sum_dy_z;          /* [d], =; NULL: only dx is computed */
    const nm_residual_grad *residual; /* or NULL; only with dx */
} nm_feature_norm_grad_args;

/* Three variants of Adam (Kingma and Ba 2015; PyTorch, fairseq; AdamW: Loshchilov and Hutter 2019), which
 * agree if eps and weight_decay are 0; t = step, c1 = 1 - b1^t, c2 = 1 - b2^t:
 *     torch:    g += wd p
 *               p -= lr/c1 m / (sqrt(v)/sqrt(c2) + eps)
 *     fairseq:  p -= lr wd p
 *               p -= lr sqrt(c2)/c1 m / (sqrt(v) + eps)
 *     AdamW:    p -= lr wd p
 *               p -= lr/c1 m / (sqrt(v)/sqrt(c2) + eps) */
typedef enum nm_adam_variant { NM_ADAM_TORCH, NM_ADAM_FAIRSEQ, NM_ADAMW_TORCH } nm_adam_variant;

typedef struct nm_adam {
    nm_adam_variant variant;
    double lr, beta1, beta2, eps, weight_decay;
    double grad_scale; /* gradients are multiplied by this first: 1/tokens and clipping */
    int64_t step;      /* from 1 */
} nm_adam;

typedef struct nm_adam_args {
    const nm_adam *config;
    /* Device, [1]: in place of grad_scale, as plan_update writes it; if it is NaN, nothing changes. NULL:
     * grad_scale. */
    const double *scale;
    size_t n;
    const void *g;
    void *p, *m, *v; /* [n], updated in place */
} nm_adam_args;

/* SGD with momentum; grad_scale g is clipped to [-clip, clip] if clip > 0. The weight decay is the same as in
 * PyTorch, an L2 penalty:
 *     v  = momentum v + grad_scale g + weight_decay p
 *     p -= lr v */
typedef struct nm_sgd_args {
    double lr, momentum, grad_scale, clip, weight_decay;
    const double *scale; /* as in `adam` */
    size_t n;
    const void *g;
    void *p, *v; /* [n], updated in place */
} nm_sgd_args;

/* Numbers of an update, in device memory. */
enum {
    NM_PLAN_SQUARE, /* input: squared L2 norm of the summed gradients */
    NM_PLAN_LOSS,   /* sums over the passes of the update */
    NM_PLAN_NLL,
    NM_PLAN_PENALTY,
    NM_PLAN_SCALE, /* factor of the gradients; NaN: the update has diverged */
    NM_PLAN_SIZE
};

/* Loss, clipping (Pascanu et al. 2013; the constant of fairseq and PyTorch) and divergence of an update:
 *     norm  = sqrt(square)/targets
 *     scale = 1/targets min(1, max_norm/(norm + 1e-6))     with max_norm > 0 and norm > max_norm
 *     scale = 1/targets                                    otherwise
 *     scale = NaN    if norm, loss/targets or penalty is not finite, or loss/targets > max_loss > 0
 * Pass i has the numbers ends[i - 1] .. ends[i] - 1 (from 0): the two sums of its loss, a free one, and its
 * penalties, which are added in their order. Passes are added in pairs, then in pairs of pairs, as shards
 * are. */
typedef struct nm_plan_update_args {
    double targets, max_norm, max_loss; /* max_norm, max_loss 0: no limit */
    int32_t passes;                     /* at least 1 */
    const int32_t *ends;                /* host, [passes] */
    double *numbers;                    /* [ends[passes - 1]], overwritten */
    double *plan;                       /* [NM_PLAN_SIZE], = except for NM_PLAN_SQUARE */
} nm_plan_update_args;

/* clang-format off */
#define NM_KERNELS(K)   NM_TRANSFERS(K) NM_COMPUTATIONS(K)
#define NM_TRANSFERS(K) K(upload) K(download) K(copy) K(zero)
#define NM_COMPUTATIONS(K)                                                                  \
    K(random_init) K(gemm)                                                                  \
    K(linear) K(linear_selected) K(pack) K(round_int8) K(pack_int8) K(linear_int8)          \
    K(act_grad) K(linear_grad_input) K(linear_grad_weight)                                  \
    K(scale) K(add) K(add_dropout) K(dropout) K(map) K(map_grad) K(gate) K(gate_grad)       \
    K(store_bf16) K(load_bf16)                                                              \
    K(embed) K(embed_grad) K(gather)                                                        \
    K(patches) K(patches_grad) K(window_mean) K(window_mean_grad)                           \
    K(convolve) K(convolve_grad_input) K(convolve_grad_weight)                              \
    K(rotate) K(attention) K(attention_grad) K(attention_cached) K(guided_attention)        \
    K(block_term) K(block_term_grad)                                                        \
    K(relative_attention) K(relative_attention_grad)                                        \
    K(pool_max) K(pool_max_grad) K(crf)                                                     \
    K(softmax_loss) K(log_softmax) K(mix) K(log_top_k)                                      \
    K(token_norm) K(token_norm_grad) K(seed_norm) K(seed_norm_grad)                         \
    K(feature_moments) K(feature_norm) K(feature_norm_grad)                                 \
    K(vec) K(dot)                                                                           \
    K(plan_update) K(adam) K(sgd)
/* clang-format on */

typedef struct nm_kernels {
#define K(name) void (*name)(nm_backend * backend, const nm_##name##_args *args);
    NM_KERNELS(K)
#undef K
} nm_kernels;

enum {
#define K(name) NM_KERNEL_##name,
    NM_KERNELS(K)
#undef K
        NM_N_KERNELS
};

typedef struct nm_backend_options {
    const char *name;  /* "ref", "cpu", "emulated" or "cuda" (docs/gpu.md) */
    nm_dtype dtype;    /* cpu, emulated, cuda: NM_F32 only */
    const char *isa;   /* cpu: a CPU level: "auto", "base", "avx2", ...; all are listed in docs/concepts.md */
    bool bf16;         /* matrix multiplications on bf16 operands; NM_F32 only */
    int32_t threads;   /* 0: one per core, at most the CPU limit of control groups */
    bool fenced;       /* ref: memory is accessible only while a kernel runs (for tests) */
    bool tf32;         /* cuda: matrix multiplications on operands rounded to tf32 */
    bool own_gemm;     /* cuda: matrix multiplications by Norma's kernel, with the bits of `emulated` */
    int32_t ordinal;   /* cuda: number of the GPU */
    const char *cache; /* cuda: folder of compiled kernels, which is created; NULL: none */
} nm_backend_options;

struct nm_backend {
    nm_kernels k; /* called by NM_CALL */
    nm_dtype dtype;
    int32_t threads;
    const char *name, *isa;
    bool bf16;
    bool dry_run; /* kernels do nothing: only memory is measured */
    void *private_data;
};

/* Creates a backend; nm_backend_free accepts NULL. One thread at a time may use a backend and all its layers.
 * NM_USAGE: an unknown name
 * NM_UNSUPPORTED: the machine or the backend lacks an option */
NM_API nm_status nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err);
NM_API void nm_backend_free(nm_backend *backend);
/* Whether matrix multiplications in bf16 are faster than in float at the CPU level `isa`. Without AMX, the
 * bf16 instructions of Intel's CPUs have half the rate of float multiply-adds; at the other levels bf16 is
 * emulated. */
NM_API bool nm_backend_bf16_is_faster(const char *isa);
/* A backend of `threads` threads that shares the memory and the registered weights of `of`, with the same
 * type and CPU level: one worker per host thread computes in parallel, with bitwise identical results. While
 * it exists, weights must not be registered or unregistered. Free it before `of`.
 * NM_UNSUPPORTED: while kernels are timed */
NM_API nm_status nm_backend_create_worker(nm_backend **worker, const nm_backend *of, int32_t threads,
                                          nm_error *err);

/* Device memory, zeroed, 64-byte aligned, taken from the system on first access; free it before the backend.
 * NM_MEMORY */
NM_API nm_status nm_backend_alloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
/* Grows memory (NULL: allocates), possibly at another address; the contents stay, new bytes are zero.
 * NM_MEMORY: nothing changes. */
NM_API nm_status nm_backend_realloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
NM_API void nm_backend_dealloc(nm_backend *backend, void *memory);
/* Device memory readable by the host between kernels, or NULL if the host cannot read it. */
NM_API const void *nm_backend_view(const nm_backend *backend, const void *device);

/* Address space for `bytes` bytes, aligned as nm_backend_alloc. Its first bytes are memory after
 * nm_backend_commit. Free it with nm_backend_dealloc.
 * NM_MEMORY: no address space */
NM_API nm_status nm_backend_reserve(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
/* The first `bytes` bytes of reserved memory become accessible, zeroed where they are new. Does nothing if
 * they are. false: the device has no memory. */
NM_API bool nm_backend_commit(nm_backend *backend, void *memory, size_t bytes);
/* Whether the host cannot access the memory of the backend, because a device has its own. */
NM_API bool nm_backend_memory_is_separate(const nm_backend *backend);
/* Bytes of memory that a training step may use: free memory of the device, or of the machine. */
NM_API size_t nm_backend_memory(const nm_backend *backend);
/* Kernels cannot return errors. Call this after reading a result and before using it.
 * NM_DEVICE: the device or its driver reported an error; results since then are undefined
 * NM_MEMORY: the device has no memory for what a kernel needs */
NM_API nm_status nm_backend_check(nm_backend *backend, nm_error *err);
/* How often the host has waited for the device, also in workers: backends emulated and cuda. */
NM_API int64_t nm_backend_waits(const nm_backend *backend);

/* The kernels for memory: host to device, device to host, device to device, zero fill. */
NM_API void nm_backend_upload(nm_backend *backend, void *device, const void *host, size_t bytes);
NM_API void nm_backend_download(nm_backend *backend, void *host, const void *device, size_t bytes);
NM_API void nm_backend_copy(nm_backend *backend, void *to, const void *from, size_t bytes);
NM_API void nm_backend_zero(nm_backend *backend, void *data, size_t bytes);

/* n elements of the backend's type, from the device into doubles and back. */
NM_API void nm_backend_read(nm_backend *backend, double *values, const void *device, size_t n);
NM_API void nm_backend_write(nm_backend *backend, void *device, const double *values, size_t n);

/* Lets `linear` read `packed`, which `pack` wrote, in place of the weight or of a range of its rows, until
 * nm_backend_unregister_weight. The weight must not change until then. Results are bitwise identical. */
NM_API void nm_backend_register_weight(nm_backend *backend, nm_mat weight, const void *packed);
/* The same for a weight that pack_int8 wrote: `linear` computes as linear_int8, and accepts no dropout. */
NM_API void nm_backend_register_weight_int8(nm_backend *backend, nm_mat weight, const void *packed);
/* Whether a packed weight is registered that contains all these rows. */
NM_API bool nm_backend_has_packed(const nm_backend *backend, nm_mat rows);
NM_API void nm_backend_unregister_weight(nm_backend *backend, const void *packed);

/* Switches the dry run on or off: in a dry run no kernel touches memory. */
NM_API void nm_backend_dry_run(nm_backend *backend, bool on);
/* Bytes of scratch memory that the loss (logits of a block of tokens, packed weight, panels) needed in the
 * last dry run. Other kernels share this memory; where they need more, it is a few MiB. */
NM_API size_t nm_backend_scratch_bytes(const nm_backend *backend);

typedef struct nm_kernel_time {
    const char *kernel; /* "linear_grad_weight" */
    int64_t calls;
    double seconds;
    double flops; /* of matrix multiplications, without padding; 0 for other kernels */
    double bytes; /* minimum memory traffic of other kernels; 0 if unknown */
} nm_kernel_time;

/* While profiling is on, every kernel call is timed; off, it has no cost. Times accumulate. */
NM_API void nm_backend_profile(nm_backend *backend, bool on);
/* Writes the kernels that were called, longest first; returns their number. */
NM_API int nm_backend_times(const nm_backend *backend, nm_kernel_time times[NM_N_KERNELS]);

/* One line of text: backend, CPU level, threads. */
NM_API void nm_backend_describe(const nm_backend *backend, char *text, size_t bytes);
/* The CPU level of the kernels that training uses, or "ref". Runs of the same level are bitwise identical;
 * those above base count as one, avx2, also on Arm: they have FMA and one order of sums. */
NM_API const char *nm_backend_training_level(const nm_backend *backend);
/* A warning if there are more threads than cores, or fewer than requested because the system cannot start
 * them; otherwise "". */
NM_API const char *nm_backend_warning(const nm_backend *backend);
/* Whether the system could not start the requested number of threads: threads is then lower. */
NM_API bool nm_backend_lacks_threads(const nm_backend *backend);

#ifdef __cplusplus
}
#endif
#endif
