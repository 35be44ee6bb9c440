/* The tape: eager operations over packed matrices [tokens, features], each leaving one record; backward walks
 * the records in reverse. Memory comes from two regions reserved once: device memory for numbers, host memory
 * for records.
 *
 * What backward no longer needs goes back to a pool: once a record has been walked, its output and that
 * output's gradient are free for the records before it, so the peak is the activations plus a few gradients.
 * Running out of either region sticks: later calls return an empty tensor and nm_tape_backward reports it
 * once. */
#ifndef NM_TAPE_H
#define NM_TAPE_H

#include "norma/norm_type.h"
#include "base/memory.h"

typedef struct nm_tensor {
    void *data, *grad;
    int32_t rows, cols;
    bool grad_started; /* the first gradient write assigns, later ones add; parameters always add */
    bool pooled;       /* data came from the tape and returns to its pool */
    const char *name;  /* "enc.3.ffn.norm", for logs and probes; may be NULL */
} nm_tensor;

typedef struct nm_tape nm_tape;
typedef struct nm_node nm_node;
typedef struct nm_segment nm_segment;

typedef struct nm_op {
    const char *name;
    void (*backward)(nm_tape *tape, nm_node *node);
} nm_op;

struct nm_node {
    const nm_op *op;
    nm_tensor *in[4], *out;
    void *saved; /* host memory of the tape */
};

enum { NM_TAPE_MAX_NODES = 1 << 14, NM_TAPE_MAX_POOL = 256, NM_TAPE_MAX_PENALTIES = 256 };

struct nm_tape {
    nm_backend *backend;
    nm_arena device, host;
    nm_node *nodes;
    int n_nodes;
    bool training;
    uint64_t seed;
    uint32_t step, site;                      /* micro-batch; the next dropout site */
    double grad_scale;                        /* gradients are of grad_scale times the loss */
    double n_targets;                         /* of this micro-batch: see nm_norm_call */
    bool mean_loss;                           /* of the task: see nm_norm_call */
    double *penalties[NM_TAPE_MAX_PENALTIES]; /* device doubles that join the loss */
    int n_penalties;
    struct nm_tape_block {
        void *data;
        size_t bytes;
    } pool[NM_TAPE_MAX_POOL];
    int n_pool;
    bool recompute; /* segments keep their results alone and run again in backward: nm_recomputed_segment */
    nm_segment *segment; /* the one that runs; or NULL */
    bool batch_stats; /* norms use batch statistics (their `train`) even when nothing is learned: instruments
                       */
    void (*listen)(void *listener, const nm_norm_call *call, bool backward); /* instruments; or NULL */
    void *listener;
    nm_node dropped;   /* what nm_tape_record hands out when nothing is recorded */
    nm_tensor nothing; /* what an exhausted tape hands out: no rows, so kernels have nothing to do */
};

/* device_bytes: address space to reserve; pages are taken when first touched. */
nm_status nm_tape_init(nm_tape *tape, nm_backend *backend, size_t device_bytes, nm_error *err);
void nm_tape_release(nm_tape *tape);

/* Forgets all records; the next operations belong to micro-batch `step`. */
void nm_tape_start(nm_tape *tape, bool training, uint64_t seed, uint32_t step);
bool nm_tape_exhausted(const nm_tape *tape);
/* NM_MEMORY when the tape ran out since nm_tape_start. */
nm_status nm_tape_backward(nm_tape *tape, nm_error *err);
/* Most device bytes in use at once since init. */
size_t nm_tape_peak(const nm_tape *tape);

/* ---- for operations ---- */

nm_tensor *nm_tape_tensor(nm_tape *tape, int32_t rows, int32_t cols);
void *nm_tape_alloc(nm_tape *tape, size_t bytes); /* device memory until the next start; sticky NULL */
void *nm_tape_host(nm_tape *tape, size_t bytes);  /* zeroed host memory until the next start */
void *nm_tape_upload(nm_tape *tape, const void *host, size_t bytes);
nm_packing nm_tape_packing(nm_tape *tape, const nm_packing *packing); /* the same with device_offsets */
/* Appends a record when the tape is training; in[] may hold NULL. saved: host memory of the tape or NULL. */
nm_node *nm_tape_record(nm_tape *tape, const nm_op *op, nm_tensor *out, void *saved);

/* Backward through the records from `first` on, which are then gone. */
void nm_tape_walk(nm_tape *tape, int first);
/* Gives the tensor's data back to the pool. */
void nm_tape_dealloc(nm_tape *tape, nm_tensor *tensor);
/* Forgets the records from `first` on and gives the data of their outputs back, except that of `kept`. */
void nm_tape_forget(nm_tape *tape, int first, const nm_tensor *kept);
/* segment(tape, context), of which only the result is kept when nobody asks for more: when nothing is learned and no instrument
 * listens, and when the tape recomputes; then backward runs it a second time. The bytes at context are copied; what they point to must live until then: tensors of the tape, parameters. */
nm_tensor *nm_recomputed_segment(nm_tape *tape, nm_tensor *(*segment)(nm_tape *tape, const void *context),
                                 const void *context, size_t bytes);
/* Whether the segment at hand runs for the second time, in the backward pass. */
bool nm_segment_is_recomputed(const nm_tape *tape);

nm_mat nm_tensor_mat(const nm_tensor *tensor);
/* Columns first .. first + cols - 1. */
nm_mat nm_mat_columns(const nm_backend *backend, nm_mat mat, int32_t first, int32_t cols);
/* The gradient to write into; *add says whether to add. */
nm_mat nm_tensor_grad(nm_tape *tape, nm_tensor *tensor, bool *add);
/* The gradient for kernels that can only add: zeroed at first use. */
nm_mat nm_tensor_grad_sum(nm_tape *tape, nm_tensor *tensor);
nm_dropout nm_tape_dropout(nm_tape *tape, double rate); /* takes the next site; rate 0 unless training */

/* ---- the operations, one file each ---- */

/* y = drop(act(x weight^T + bias)); bias may be NULL */
nm_tensor *nm_linear(nm_tape *tape, nm_tensor *x, nm_tensor *weight, nm_tensor *bias, nm_act act,
                     double drop_rate);
/* x + drop(f) */
nm_tensor *nm_residual(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate);
/* drop(x); x itself when nothing is dropped */
nm_tensor *nm_dropped(nm_tape *tape, nm_tensor *x, double rate);
/* drop(scale table[ids] + positions[pos]); ids and pos are host arrays of n; positions may be NULL and isn't
 * learned */
nm_tensor *nm_embed(nm_tape *tape, nm_tensor *table, const int32_t *ids, const int32_t *pos, int32_t n,
                    double scale, const nm_mat *positions, double drop_rate);
/* Queries are columns 0 .. width-1 of q; keys and values are `width` columns of kv each, from k_first and
 * v_first. q may be the same tensor as kv (one fused projection [q | k | v]). */
nm_tensor *nm_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, int32_t width, int32_t k_first,
                        int32_t v_first, const nm_packing *q_packing, const nm_packing *k_packing,
                        int32_t heads, bool causal, double drop_rate);
/* Block-term attention, see nm_block_term_args: qkv [tokens, 3h] = [q | k | v], positions [length, h], both projections
 * made for this attention alone; sequences of up to length tokens. */
typedef struct nm_block_term_maps {
    nm_tensor *weight, *core, *content, *place; /* [length^2, d], [cores, h], [1, h], [1, h] */
} nm_block_term_maps;
nm_tensor *nm_block_term_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *positions,
                                   const nm_block_term_maps *maps, const nm_packing *packing, bool causal);
/* The same where queries and keys are wider or narrower than values, and with a scale of its own. */
typedef struct nm_attention_shape {
    int32_t key_width, value_width, k_first, v_first, heads; /* widths of all heads together */
    bool causal;
    double scale;
} nm_attention_shape;
nm_tensor *nm_attention_of(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                           const nm_packing *q_packing, const nm_packing *k_packing, double drop_rate);
typedef enum nm_pooling { NM_POOL_FIRST, NM_POOL_MEAN } nm_pooling;
/* One row for each sequence: its first row, or the mean of its rows. No sequence may be empty. */
nm_tensor *nm_pool(nm_tape *tape, nm_tensor *x, const nm_packing *packing, nm_pooling pooling);
typedef struct nm_relative_table { /* row zero_row + d is the vector of distance d; isn't learned */
    nm_mat rows;
    int32_t zero_row;
} nm_relative_table;
/* Attention with relative positions, TENER's: qkv [tokens, 3 width] is one projection, the biases are [1, width]. */
nm_tensor *nm_relative_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *key_bias, nm_tensor *distance_bias,
                                 const nm_relative_table *table, const nm_packing *packing, int32_t heads,
                                 double drop_rate);
/* [x_0 | x_1 | ...], n from 1 to 4; x_0 itself when it is alone */
nm_tensor *nm_concat(nm_tape *tape, nm_tensor *const *parts, int n);
/* [sequences, cols]: the largest of each column within each sequence, of which none is empty */
nm_tensor *nm_pool_max(nm_tape *tape, nm_tensor *x, const nm_packing *packing);
/* A layer at its place; state moves when training. */
nm_tensor *nm_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x);
/* FixNorm: every row divided by its length */
nm_tensor *nm_l2_normalize(nm_tape *tape, nm_tensor *table);

typedef struct nm_loss_spec {
    nm_smoothing smoothing;
    double eps;
    const uint8_t *allowed; /* device, or NULL */
    const int32_t *targets; /* host, one per row */
} nm_loss_spec;
/* The soft-max loss over a vocabulary: device doubles [2]: sums of the smoothed loss and of the negative
 * log-likelihood. When training, the gradients of hidden, weight and bias are made here, in the same pass. */
double *nm_softmax_loss_of(nm_tape *tape, nm_tensor *hidden, nm_tensor *weight, nm_tensor *bias,
                           const nm_loss_spec *spec);

/* Adaptive soft-max: words below first[0] are the head's own, the others in n bands beginning at first[]. */
enum { NM_MAX_CLUSTERS = 8 };
typedef struct nm_adaptive_clusters {
    int32_t n, first[NM_MAX_CLUSTERS];
} nm_adaptive_clusters;
typedef struct nm_adaptive_maps {
    nm_tensor *weight, *bias;                 /* [V, d], [1, V] or NULL */
    nm_tensor *cluster_weight, *cluster_bias; /* [n, d], [1, n] */
    nm_adaptive_clusters bands;
} nm_adaptive_maps;
/* The same sums; without smoothing both are the negative log-likelihood. */
double *nm_adaptive_loss_of(nm_tape *tape, nm_tensor *hidden, const nm_adaptive_maps *maps,
                            const int32_t *targets);
/* The log-probabilities of all words, in place of their logits [n_words]; host memory. cluster_logits [clusters->n] are
 * those of the head's cluster entries, in the order of cluster_weight's rows. Without clusters this is log-softmax. */
void nm_adaptive_log_probs(const nm_adaptive_clusters *clusters, int32_t n_words,
                           const double *cluster_logits, double *logits);
typedef struct nm_crf_scores { /* parameters: [T, T] from row to column, [1, T], [1, T] */
    nm_tensor *transitions, *start, *end;
} nm_crf_scores;
/* The loss of a conditional random field over tags, emissions [tokens, T], gold: host, a tag for each token. Device
 * doubles [2], both the sum of -log p(gold) over sequences. When training, the gradients are made here. */
double *nm_crf_loss(nm_tape *tape, nm_tensor *emissions, const nm_crf_scores *scores,
                    const nm_packing *packing, const int32_t *gold);

#endif
