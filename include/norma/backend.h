/* Backends: a table of kernels over plain matrices.
 *
 * `ref` is plain C in float or double and the judge of the others; `cpu` is SIMD and OpenMP in float. A kernel gets
 * device memory (what nm_backend_alloc hands out) for matrices, vectors and index lists, and host memory where a
 * comment says so. Kernels cannot fail: wrong shapes stop the program. All sums over rows are taken in double, in
 * an order that doesn't depend on the number of threads.
 *
 * A matrix is row-major: element (r, c) is data[r * stride + c]; its type is the backend's dtype. A vector is `void *`
 * to that type. "+=" below means: added to what stands there; "=": overwritten. */
#ifndef NORMA_BACKEND_H
#define NORMA_BACKEND_H

#include "norma/dropout.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nm_dtype { NM_F32, NM_F64 } nm_dtype;

static inline size_t nm_dtype_bytes(nm_dtype dtype)
{
    return dtype == NM_F64 ? sizeof(double) : sizeof(float);
}

/* A number of a host array of this type. */
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

/* The sequences of a batch stand one after another; sequence s has the rows offsets[s] .. offsets[s + 1] - 1. */
typedef struct nm_packing {
    int32_t n_seqs, n_tokens, longest;
    const int32_t *offsets;        /* host, [n_seqs + 1] */
    const int32_t *device_offsets; /* the same numbers in device memory */
} nm_packing;

typedef enum nm_act { NM_ACT_NONE, NM_ACT_RELU } nm_act;

/* --- normalization of each token (row) by its own numbers: LayerNorm, RMSNorm, ScaleNorm, FixNorm, GroupNorm ---
 * In each of `groups` groups of d/groups features: xhat = (x - shift) * scale, y = gain * xhat + bias. */
typedef enum nm_token_norm_kind {
    NM_TOKEN_CENTER,          /* shift = mean, scale = 1/sqrt(variance + eps), variance over d/groups */
    NM_TOKEN_CENTER_UNBIASED, /* the same with d/groups - 1 */
    NM_TOKEN_RMS,             /* scale = 1/sqrt(mean square + eps) */
    NM_TOKEN_RMS_OUTSIDE,     /* scale = 1/(sqrt(mean square) + eps) */
    NM_TOKEN_LENGTH /* scale = 1/max(l2 norm, eps); below eps the norm is a constant in the backward pass */
} nm_token_norm_kind;

typedef struct nm_token_norm {
    nm_token_norm_kind kind;
    int32_t groups;
    double eps;
    int32_t gain_length, bias_length; /* 0 (none), 1 (one number for all), or d */
} nm_token_norm;

/* --- normalization of each feature (column) by batch or running numbers: BatchNorm, PowerNorm and kin ---
 *     h = x * row_scale[row, group of the column]   (groups = 0: h = x)
 *     z = (h - shift) * scale        y = gain * z + bias          shift, gain, bias may be NULL (0, 1, 0)
 * row_scale = 1/sqrt(mean square of the group + eps) is PowerNorm's layer/group scaling. */
typedef struct nm_feature_norm {
    int32_t groups;
    double eps;
    bool
        row_scale_ready; /* row_scale was already computed: read it; otherwise the kernel computes and stores it */
} nm_feature_norm;

/* Small vectors, element by element. s and t are numbers. */
typedef enum nm_vec_op {
    NM_VEC_FILL,        /* out = s */
    NM_VEC_COPY,        /* out = a */
    NM_VEC_LINEAR,      /* out = s a + t b           (b may be NULL) */
    NM_VEC_MUL,         /* out = s a b + t */
    NM_VEC_MUL_ADD,     /* out = s a b + t c */
    NM_VEC_DIV,         /* out = s a / b + t */
    NM_VEC_RSQRT,       /* out = 1/sqrt(a + s) */
    NM_VEC_RSQRT_CLAMP, /* out = 1/sqrt(max(a, s)) */
    NM_VEC_SQRT,        /* out = sqrt(a + s) */
    NM_VEC_CLIP,        /* out = min(max(a, s), t) */
    NM_VEC_SIGN,        /* out = s sign(a - b) */
    NM_VEC_ABOVE        /* out = a > s ? b : t */
} nm_vec_op;

/* --- loss --- */
typedef enum nm_smoothing {
    NM_SMOOTH_UNIFORM, /* (1-eps)(-lp_t) + eps/V sum_v (-lp_v); V counts allowed words when a mask is given */
    NM_SMOOTH_OTHERS   /* (1-eps-eps/(V-1))(-lp_t) + eps/(V-1) sum_v (-lp_v) */
} nm_smoothing;

enum { NM_TARGET_IGNORED = -1 }; /* a target without loss and without gradient */

typedef struct nm_softmax_loss {
    nm_mat hidden, weight;  /* [tokens, d], [V, d]: logits = hidden weight^T + bias */
    const void *bias;       /* [V] or NULL */
    const int32_t *targets; /* device, [tokens]: allowed words, or NM_TARGET_IGNORED */
    const uint8_t *allowed; /* device, [V]: 0 removes a word; or NULL */
    nm_smoothing smoothing;
    double eps, grad_scale;
    double *sums;   /* device doubles [2], =: sum of the smoothed loss, sum of the negative log-likelihood */
    void *d_hidden; /* [tokens, d], =, or NULL when no gradient is wanted */
    void *d_weight, *d_bias; /* += ; NULL when not wanted */
} nm_softmax_loss;

/* --- block-term attention (Ma et al. 2019, "core" g = mean of the rows of `core`) of segments of n <= length tokens ---
 *     A_ia = g_a (q_ia + content_a)      B_ia = g_a (q_ia + place_a)
 *     out_i = sum over pairs (j, k) of  weight[j length + k] sum_a (A_ia k_ja + B_ia p_ja) v_ka
 * over all j, k of the segment, or those <= i when causal. Without causal every segment must have `length` tokens. */
typedef struct nm_block_term {
    nm_mat q, k, v;              /* [tokens, h] */
    nm_mat positions;            /* [length, h]: p, keys of the places in a segment */
    nm_mat weight;               /* [length^2, d] */
    nm_mat core;                 /* [cores, h] */
    const void *content, *place; /* [h] biases of the query towards keys and places */
    const nm_packing *packing;   /* no sequence is longer than length */
    int32_t length;
    bool causal;
} nm_block_term;

typedef struct nm_block_term_grads {
    nm_mat dq, dk, dv, dpositions; /* = */
    nm_mat dweight, dcore;         /* += */
    void *dcontent, *dplace;       /* += */
} nm_block_term_grads;
/* --- attention with relative positions (TENER): see relative_attention below --- */
typedef struct nm_relative {
    nm_mat q, k, v;                          /* [queries, heads * c], [keys, heads * c] twice */
    const nm_packing *q_packing, *k_packing; /* query i and key i of a sequence stand at the same place */
    int32_t heads;
    const void *key_bias, *distance_bias; /* a and b: [heads * c] */
    nm_mat positions;                     /* [.., c]: row zero_row + d is the vector R_d of distance d */
    int32_t zero_row;
    nm_dropout drop; /* on the weights, masked as in `attention` */
} nm_relative;

typedef struct nm_relative_grad {
    nm_mat out, dout; /* as `relative_attention` gave it, and its gradient */
    const void *lse;
    nm_mat dq, dk, dv;                  /* = */
    void *d_key_bias, *d_distance_bias; /* += */
} nm_relative_grad;

/* --- linear-chain conditional random field: loss = log Z - score of the gold tags, summed over sequences --- */
typedef struct nm_crf {
    nm_mat emissions;                      /* [tokens, T] */
    const void *transitions, *start, *end; /* [T, T] from row to column; [T], [T] */
    const nm_packing *packing;
    const int32_t *gold; /* device, [tokens] */
    double grad_scale;
    double *sums;      /* device doubles [2], =: the loss, twice */
    void *d_emissions; /* [tokens, T], =; NULL when no gradient is wanted, as the next three */
    void *d_transitions, *d_start, *d_end; /* += */
} nm_crf;

/* --- int8: a row w of a weight as whole numbers from -127 to 127 and one scale, for inference ---
 *     s = max |w| / 127, rounded up to 17 significant bits        q = round(w / s)
 * q s is then exact in float, and made int8 once more it gives q and s again. A row x of an input is made int8 when it
 * comes, by itself alone: scale t = max |x| / 127, p = round(x (127 / max |x|)). What linear_int8 computes is
 *     y = act(((float)(sum of p q) s) t + bias)
 * with the sum exact and every other step rounded to float, whatever the backend's dtype: the same bits everywhere. Ties
 * go to the even number. Rows whose largest value is below 2^-100 count as zeros; a row with anything that is not finite
 * gives NaN. */
enum { NM_INT8_COLS = 65536 }; /* most columns of a weight: sums stay below 2^31 */

typedef struct nm_int8 { /* rows of a weight that pack_int8 wrote; the result says how many */
    const void *form;
    int32_t rows, cols; /* of the whole weight */
    int32_t first;      /* the first row */
} nm_int8;

/* --- optimizers: the three published forms of Adam; t = step, all agree when eps and weight_decay are 0 --- */
typedef enum nm_adam_variant {
    NM_ADAM_TORCH,   /* g += wd p;     p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps) */
    NM_ADAM_FAIRSEQ, /* p -= lr wd p;  p -= lr sqrt(1-b2^t)/(1-b1^t) m / (sqrt(v) + eps) */
    NM_ADAMW_TORCH   /* p -= lr wd p;  then the step of NM_ADAM_TORCH */
} nm_adam_variant;

typedef struct nm_adam {
    nm_adam_variant variant;
    double lr, beta1, beta2, eps, weight_decay;
    double grad_scale; /* gradients are multiplied by this first: 1/tokens and clipping */
    int64_t step;      /* from 1 */
} nm_adam;

/* --- first values of parameters: element i is made of the words of counter i (Philox4x32-10, seed, site) --- */
typedef enum nm_init_kind {
    NM_INIT_CONSTANT, /* scale */
    NM_INIT_NORMAL,   /* N(0, scale^2), by Box and Muller (1958) */
    NM_INIT_UNIFORM,  /* U(-scale, scale) */
    NM_INIT_ABOUT_ONE /* N(1, scale^2) */
} nm_init_kind;

typedef struct nm_init {
    nm_init_kind kind;
    double scale;
} nm_init;

typedef struct nm_backend nm_backend;

/* Every kernel: K(name, (arguments)). */
/* clang-format off */
#define NM_KERNELS(K)                                                                                                  \
    /* host <-> device; plain copies within the device */                                                              \
    K(upload, (nm_backend *b, void *device, const void *host, size_t bytes))                                           \
    K(download, (nm_backend *b, void *host, const void *device, size_t bytes))                                         \
    K(copy, (nm_backend *b, void *to, const void *from, size_t bytes))                                                 \
    K(zero, (nm_backend *b, void *data, size_t bytes))                                                                 \
    /* n first values; site < 2^24 */                                                                                  \
    K(random_init, (nm_backend *b, nm_init init, uint64_t seed, uint32_t site, size_t n, void *out))                          \
    /* c = alpha op(a) op(b) + beta c; op transposes when told so */                                                   \
    K(gemm, (nm_backend *b, bool ta, bool tb, double alpha, nm_mat a, nm_mat bm, double beta, nm_mat c))               \
    /* y = drop(act(x weight^T + bias)); weight [out, in], bias [out] or NULL */                                       \
    K(linear, (nm_backend *b, nm_mat x, nm_mat weight, const void *bias, nm_act act, const nm_dropout *drop, nm_mat y)) \
    /* Writes a form of weight that `linear` reads faster (nm_backend_register_weight); form NULL: only *bytes, what it takes, or 0 \
     * where the backend has no such form. form: device memory; bytes: host. */                                        \
    K(pack, (nm_backend *b, nm_mat weight, void *form, size_t *bytes))                                                 \
    /* m = the nearest numbers that int8 with one scale a row can hold */                                              \
    K(round_int8, (nm_backend *b, nm_mat m))                                                                           \
    /* The same as `pack` for linear_int8; 0 bytes: the weight is too wide */                                          \
    K(pack_int8, (nm_backend *b, nm_mat weight, void *form, size_t *bytes))                                            \
    /* y = act(x weight^T + bias) as above; y.cols rows of the weight. `linear` goes here by itself for a weight that   \
     * is held in int8 (nm_backend_register_weight_int8). */                                                                      \
    K(linear_int8, (nm_backend *b, nm_mat x, const nm_int8 *weight, const void *bias, nm_act act, nm_mat y))           \
    /* dz = gradient before the activation and dropout of `linear`: dz = y > 0 ? dy * dropout scale : 0 for relu */     \
    K(act_grad, (nm_backend *b, nm_act act, const nm_dropout *drop, nm_mat y, nm_mat dy, nm_mat dz))                    \
    /* dx = dy weight, or dx += dy weight */                                                                           \
    K(linear_grad_input, (nm_backend *b, nm_mat dy, nm_mat weight, bool add, nm_mat dx))                               \
    /* dw += dy^T x, db += column sums of dy (db may be NULL) */                                                       \
    K(linear_grad_weight, (nm_backend *b, nm_mat dy, nm_mat x, nm_mat dw, void *db))                                   \
    /* y = alpha x, y += alpha x */                                                                                    \
    K(scale, (nm_backend *b, double alpha, nm_mat x, nm_mat y))                                                        \
    K(add, (nm_backend *b, double alpha, nm_mat x, nm_mat y))                                                          \
    /* y = x + drop(f); y may be x; and y = drop(x), or y += drop(x) (also the gradient of dropout) */                 \
    K(add_dropout, (nm_backend *b, nm_mat x, nm_mat f, const nm_dropout *drop, nm_mat y))                              \
    K(dropout, (nm_backend *b, nm_mat x, const nm_dropout *drop, bool add, nm_mat y))                                  \
    /* out[i] = drop(scale table[ids[i]] + positions[pos[i]]); positions may have data NULL */                         \
    K(embed, (nm_backend *b, const int32_t *ids, const int32_t *pos, double scale, nm_mat table, nm_mat positions,     \
              const nm_dropout *drop, nm_mat out))                                                                     \
    /* dtable[ids[i]] += scale drop(dout[i]), summed in the order of i */                                              \
    K(embed_grad, (nm_backend *b, const int32_t *ids, double scale, nm_mat dout, const nm_dropout *drop, nm_mat dtable)) \
    /* out[i] = x[rows[i]] */                                                                                          \
    K(gather, (nm_backend *b, const int32_t *rows, nm_mat x, nm_mat out))                                              \
    /* Scaled dot-product attention, heads = equal column ranges. For query row i of a sequence of m queries and n     \
     * keys: causal lets it see keys j <= i + (n - m). Dropout falls on the weights: mask row = head * q rows + query  \
     * row, column = position of the key in its sequence. lse [q rows * heads] gets the log of the soft-max            \
     * denominators, head-major like the mask rows; NULL at inference. */                                              \
    K(attention, (nm_backend *b, nm_mat q, nm_mat k, nm_mat v, const nm_packing *q_packing,                            \
                  const nm_packing *k_packing, int32_t heads, bool causal, double scale, const nm_dropout *drop,       \
                  nm_mat out, void *lse))                                                                              \
    /* dq, dk, dv = (overwritten) */                                                                                   \
    K(attention_grad, (nm_backend *b, nm_mat q, nm_mat k, nm_mat v, const nm_packing *q_packing,                       \
                       const nm_packing *k_packing, int32_t heads, bool causal, double scale, const nm_dropout *drop,  \
                       nm_mat out, const void *lse, nm_mat dout, nm_mat dq, nm_mat dk, nm_mat dv))                     \
    /* Attention of single queries over listed rows of a cache: query i sees rows[offsets[i] .. offsets[i+1] - 1] of   \
     * k and v (device lists). */                                                                                      \
    K(attention_rows, (nm_backend *b, nm_mat q, nm_mat k, nm_mat v, const int32_t *rows, const int32_t *offsets,       \
                       int32_t heads, double scale, nm_mat out))                                                       \
    /* out = [tokens, d]; the gradients as nm_block_term_grads says */                                                 \
    K(block_term, (nm_backend *b, const nm_block_term *term, nm_mat out))                                              \
    K(block_term_grad, (nm_backend *b, const nm_block_term *term, nm_mat dout, const nm_block_term_grads *grads))      \
    /* s_ij = (q_i + a) . k_j + (q_i + b) . R_j-i + k_j . R_i-j, soft-max over j, no scale. lse as in attention. */     \
    K(relative_attention, (nm_backend *b, const nm_relative *call, nm_mat out, void *lse))                             \
    K(relative_attention_grad, (nm_backend *b, const nm_relative *call, const nm_relative_grad *grad))                 \
    /* Largest value of each column within each sequence (none empty); where: device [sequences * cols], its row. */   \
    K(pool_max, (nm_backend *b, nm_mat x, const nm_packing *packing, nm_mat out, int32_t *where))                      \
    /* dx = */                                                                                                         \
    K(pool_max_grad, (nm_backend *b, nm_mat dout, const int32_t *where, nm_mat dx))                                    \
    K(crf, (nm_backend *b, const nm_crf *crf))                                                                         \
    /* Loss over the vocabulary in row blocks: the logits of a batch never exist as a whole. */                        \
    K(softmax_loss, (nm_backend *b, const nm_softmax_loss *loss))                                                      \
    /* y = log softmax of each row of x (may be in place); words with allowed == 0 get -inf */                         \
    K(log_softmax, (nm_backend *b, nm_mat x, const uint8_t *allowed, nm_mat y))                                        \
    /* the k largest of each row in descending order, ties to the smaller column: device values [rows, k] and columns */ \
    K(top_k, (nm_backend *b, nm_mat x, int32_t k, void *values, int32_t *columns))                                     \
    /* The k > 0 most probable words and their log probabilities, and that of the word `also`: [rows] also_values. What \
     * log_softmax and then top_k give but for values that only rounding makes equal: the order is that of x. x may be \
     * overwritten. */                                                                                                 \
    K(log_top_k, (nm_backend *b, nm_mat x, const uint8_t *allowed, int32_t k, void *values, int32_t *columns,          \
                  int32_t also, void *also_values))                                                                    \
    /* Norms per token. shift (NULL for forms without) and scale: [rows * groups], =. */                               \
    K(token_norm, (nm_backend *b, const nm_token_norm *spec, nm_mat x, const void *gain, const void *bias, nm_mat y,   \
                   void *shift, void *scale))                                                                          \
    /* dx = or += by `add`; d_gain, d_bias += (NULL when not wanted) */                                                \
    K(token_norm_grad, (nm_backend *b, const nm_token_norm *spec, nm_mat dy, nm_mat x, const void *gain,               \
                        const void *shift, const void *scale, bool add, nm_mat dx, void *d_gain, void *d_bias))        \
    /* Norms per feature. mean = mean of h, square = mean of (h - center)^2 over rows; center NULL is 0; each result   \
     * may be NULL. With center given as the same pointer as mean, the mean is taken first, then the square about it. */ \
    K(feature_moments, (nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale, const void *center,     \
                        void *mean, void *square))                                                                     \
    /* square, when not NULL, gets the mean of h^2 in the same pass. */                                                \
    K(feature_norm, (nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale, const void *shift,         \
                     const void *scale, const void *gain, const void *bias, nm_mat y, void *square))                   \
    /* sums over rows, =: sum_dy, sum_dy_z; dh = a dy + c0 + c1 z (vectors per feature; c0, c1 may be NULL), then      \
     * back through the row scaling into dx (= or += by `add`). dx.data NULL: only the sums. sums NULL: only dx. */    \
    K(feature_norm_grad, (nm_backend *b, const nm_feature_norm *spec, nm_mat dy, nm_mat x, const void *row_scale,      \
                          const void *shift, const void *scale, const void *a, const void *c0, const void *c1,         \
                          bool add, nm_mat dx, void *sum_dy, void *sum_dy_z))                                          \
    K(vec, (nm_backend *b, nm_vec_op op, int32_t n, void *out, const void *va, const void *vb, const void *vc,         \
            double s, double t))                                                                                       \
    /* *out (host) = sum of a_i b_i, in double */                                                                      \
    K(dot, (nm_backend *b, size_t n, const void *va, const void *vb, double *out))                                     \
    /* p, m, v updated from g */                                                                                       \
    K(adam, (nm_backend *b, const nm_adam *adam, size_t n, void *p, const void *g, void *m, void *v))                  \
    /* v = momentum v + grad_scale g (clipped to +-clip when > 0) ; p -= lr v */                                       \
    K(sgd, (nm_backend *b, double lr, double momentum, double grad_scale, double clip, size_t n, void *p,              \
            const void *g, void *v))
/* clang-format on */

typedef struct nm_kernels {
#define K(name, args) void(*name) args;
    NM_KERNELS(K)
#undef K
} nm_kernels;

enum {
#define K(name, args) NM_KERNEL_##name,
    NM_KERNELS(K)
#undef K
        NM_N_KERNELS
};

typedef struct nm_backend_options {
    const char *name; /* "ref" or "cpu" */
    nm_dtype dtype;   /* cpu: NM_F32 only */
    const char *isa;  /* cpu: "auto", "base", "avx2", "avx512", "vnni" */
    int32_t threads;  /* 0: as many as the system offers */
    bool fenced;      /* ref: memory is readable only while a kernel runs (a test mode) */
} nm_backend_options;

struct nm_backend {
    nm_kernels k; /* call as backend->k.gemm(backend, ...) */
    nm_dtype dtype;
    int32_t threads;
    const char *name, *isa;
    bool planning; /* kernels do nothing: a dry run that only measures memory */
    void *private_data;
};

/* Creates a backend; free with nm_backend_free. NM_UNSUPPORTED when this machine lacks what was asked for. */
nm_status nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err);
void nm_backend_free(nm_backend *backend);
/* A backend of `threads` threads beside another one, of the same type and CPU level, whose kernels reach the other one's
 * memory: a thread of the caller's may compute on it while others compute on theirs. Its linear maps read what `of` holds,
 * which must not change meanwhile; results have the same bits. It must be freed first. NM_UNSUPPORTED in fenced mode
 * and while kernels are timed. */
nm_status nm_backend_create_worker(nm_backend **worker, const nm_backend *of, int32_t threads, nm_error *err);

/* Device memory, zeroed, 64-byte aligned; pages are taken from the system when first touched. */
nm_status nm_backend_alloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
/* Makes memory that was taken (NULL: none) larger, perhaps elsewhere; what it holds stays, what is new is zeroed. On failure
 * it stays as it was. */
nm_status nm_backend_realloc(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
void nm_backend_dealloc(nm_backend *backend, void *memory);
/* Device memory as the host sees it, to be read between kernels; NULL where the host cannot. */
const void *nm_backend_view(const nm_backend *backend, const void *device);

/* n numbers of the backend's type, from the device into doubles and back. */
void nm_backend_read(nm_backend *backend, double *values, const void *device, size_t n);
void nm_backend_write(nm_backend *backend, void *device, const double *values, size_t n);

/* Lets `linear` read `form`, which `pack` wrote, in place of the weight or of some of its rows, until nm_backend_unregister_weight.
 * The weight must stay as it is till then. Results have the same bits. */
void nm_backend_register_weight(nm_backend *backend, nm_mat weight, const void *form);
/* The same for a form of pack_int8: `linear` then computes as linear_int8 does, and takes no dropout. */
void nm_backend_register_weight_int8(nm_backend *backend, nm_mat weight, const void *form);
/* Whether `linear` would read another form of all these rows. */
bool nm_backend_has_packed(const nm_backend *backend, nm_mat rows);
void nm_backend_unregister_weight(nm_backend *backend, const void *form);

/* Switches the dry run on or off: in it no kernel touches memory. */
void nm_backend_dry_run(nm_backend *backend, bool planning);

/* Where the time goes: while on, every call of a kernel is timed; off, it costs nothing. Times are added to what there was. */
typedef struct nm_kernel_time {
    const char *kernel; /* "linear_grad_weight" */
    int64_t calls;
    double seconds;
    double flops; /* of products, counted over real tokens; 0 for a kernel that has none */
    double bytes; /* for those, the fewest that have to move; 0 where that is not known */
} nm_kernel_time;
void nm_backend_profile(nm_backend *backend, bool on);
/* The kernels that were called, longest first; returns how many. */
int nm_backend_times(const nm_backend *backend, nm_kernel_time times[NM_N_KERNELS]);

/* One line for people: backend, CPU level, threads; and a warning, or "", when the threads will be slow. */
void nm_backend_describe(const nm_backend *backend, char *text, size_t bytes);
const char *nm_backend_warning(const nm_backend *backend);

static inline nm_mat nm_mat_of(void *data, int32_t rows, int32_t cols)
{
    nm_mat mat = {data, rows, cols, cols};
    return mat;
}

#ifdef __cplusplus
}
#endif
#endif
