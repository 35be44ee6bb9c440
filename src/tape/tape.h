/* The autograd tape. Operations over packed matrices [tokens, features] run eagerly, and each appends one node;
 * backward runs the nodes in reverse order. Memory comes from two arenas reserved once: device memory for tensors, host memory
 * for nodes.
 *
 * Backward frees memory early: after a node has run, its output and the gradient of the output return to a pool for the
 * nodes before it, so that the peak is the activations plus a few gradients. If an arena is exhausted, all later calls
 * return an empty tensor or NULL, and nm_tape_backward returns NM_MEMORY. */
#ifndef NM_TAPE_H
#define NM_TAPE_H

#include "norma/norm_type.h"
#include "base/memory.h"

typedef struct nm_tensor {
    void *data, *grad;
    int32_t rows, cols;
    bool grad_started; /* the first gradient is assigned, later ones are added; always true for parameters */
    bool pooled;       /* data belongs to the tape and returns to its pool */
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

/* Follows the gradients of parameters through a pass. */
typedef struct nm_gradient_observer {
    /* Called before an operation adds to the gradient of a parameter: by nodes of the backward pass, and by a loss in the
     * forward pass. */
    void (*written)(struct nm_gradient_observer *observer, const void *grad);
    /* Called after each node of the backward pass. */
    void (*node_finished)(struct nm_gradient_observer *observer);
} nm_gradient_observer;

typedef struct nm_penalty nm_penalty;
struct nm_penalty {      /* an additional term of the loss */
    const double *value; /* device */
    nm_penalty *next;
};

enum { NM_TAPE_MAX_NODES = 1 << 14, NM_TAPE_MAX_POOL = 256 };

struct nm_tape {
    nm_backend *backend;
    nm_arena device, host;
    void *memory; /* of the device arena; NULL if the arena grows */
    nm_node *nodes;
    int n_nodes;
    bool training;
    uint64_t seed;
    uint32_t step, site;                      /* micro-batch; the next dropout site */
    double grad_scale;                        /* gradients are of grad_scale times the loss */
    double n_targets;                         /* of this micro-batch: see nm_norm_call */
    bool mean_loss;                           /* of the task: see nm_norm_call */
    nm_norm_joiner *joiner;                   /* of norms in training; NULL: none */
    nm_penalty *first_penalty, *last_penalty; /* in the order of recording */
    struct nm_tape_block {
        void *data;
        size_t bytes;
    } pool[NM_TAPE_MAX_POOL];
    int n_pool;
    bool recompute;      /* activation checkpointing, see nm_recomputed_segment */
    nm_segment *segment; /* the running one, or NULL */
    bool
        batch_stats; /* norms use batch statistics (their train) although the tape is not training: for instruments */
    void (*listen)(void *listener, const nm_norm_call *call, bool backward); /* instruments; or NULL */
    void *listener;
    nm_gradient_observer *observer; /* or NULL */
    nm_node unrecorded;             /* result of nm_tape_record if nothing is recorded */
    nm_tensor empty;                /* result of an exhausted tape: no rows, so that kernels do nothing */
};

/* device_bytes: address space to reserve; pages are allocated at the first access. */
nm_status nm_tape_init(nm_tape *tape, nm_backend *backend, size_t device_bytes, nm_error *err);
/* Allocates device memory when it is needed. */
void nm_tape_init_growing(nm_tape *tape, nm_backend *backend);
/* For a dry run, whose kernels do not access memory: device addresses without memory. The peak is then the memory that a
 * tape needs. */
void nm_tape_init_dry(nm_tape *tape, nm_backend *backend);
void nm_tape_release(nm_tape *tape);

/* Removes all nodes and frees all memory of the tape; the next operations belong to micro-batch `step`. */
void nm_tape_start(nm_tape *tape, bool training, uint64_t seed, uint32_t step);
bool nm_tape_exhausted(const nm_tape *tape);
/* NM_MEMORY if an arena was exhausted since nm_tape_start. */
nm_status nm_tape_backward(nm_tape *tape, nm_error *err);
/* Peak of the device memory since nm_tape_init, in bytes. */
size_t nm_tape_peak(const nm_tape *tape);

/* ---- for operations ---- */

nm_tensor *nm_tape_tensor(nm_tape *tape, int32_t rows, int32_t cols);
void *nm_tape_alloc(nm_tape *tape, size_t bytes); /* device memory until the next start; NULL: exhausted */
void *nm_tape_host(nm_tape *tape, size_t bytes);  /* zeroed host memory until the next start */
void *nm_tape_upload(nm_tape *tape, const void *host, size_t bytes);
nm_packing nm_tape_packing(nm_tape *tape, const nm_packing *packing); /* the same, with device_offsets */
/* Appends a node if the tape is training; in[] may contain NULL. saved: host memory of the tape, or NULL. */
nm_node *nm_tape_record(nm_tape *tape, const nm_op *op, nm_tensor *out, void *saved);

/* Adds a device double to the penalty of the pass. Not again in a recomputed segment, whose first run has recorded it. */
void nm_tape_record_penalty(nm_tape *tape, const double *value);
/* The sum of the recorded penalties, in the order of recording. */
double nm_tape_penalty(const nm_tape *tape);

/* Runs backward of the nodes from `first` to the last, and removes them. */
void nm_tape_backward_from(nm_tape *tape, int first);
/* Returns the tensor's data to the pool. */
void nm_tape_free_data(nm_tape *tape, nm_tensor *tensor);
/* Removes the nodes from `first` to the last and returns the data of their outputs, except `kept`, to the pool. */
void nm_tape_truncate(nm_tape *tape, int first, const nm_tensor *kept);
/* Runs segment(tape, context). With tape->recompute only its result is stored, and backward runs the segment again (activation
 * checkpointing). At inference without instruments the memory of its intermediates is freed at once. The bytes at context
 * are copied; what they point to (tensors of the tape, parameters) must stay valid until backward. */
nm_tensor *nm_recomputed_segment(nm_tape *tape, nm_tensor *(*segment)(nm_tape *tape, const void *context),
                                 const void *context, size_t bytes);
/* Whether the running segment is recomputed in the backward pass. */
bool nm_segment_is_recomputed(const nm_tape *tape);

nm_mat nm_tensor_mat(const nm_tensor *tensor);
/* Columns first .. first + cols - 1. */
nm_mat nm_mat_columns(const nm_backend *backend, nm_mat mat, int32_t first, int32_t cols);
/* For operations whose parameters are no tensors: before a node adds to the gradient. */
void nm_tape_gradient_written(nm_tape *tape, const void *grad);
/* The gradient to write; *add: whether it must be added to. */
nm_mat nm_tensor_grad(nm_tape *tape, nm_tensor *tensor, bool *add);
/* The gradient for kernels that only add: zeroed before the first. */
nm_mat nm_tensor_grad_sum(nm_tape *tape, nm_tensor *tensor);
nm_dropout nm_tape_dropout(nm_tape *tape, double rate); /* of the next dropout site; rate 0 unless training */

/* ---- the operations, one file each ---- */

/* y = drop(act(x weight^T + bias)); bias may be NULL */
nm_tensor *nm_linear(nm_tape *tape, nm_tensor *x, nm_tensor *weight, nm_tensor *bias, nm_act act,
                     double drop_rate);
/* drop(f(x)), f pointwise */
nm_tensor *nm_activated(nm_tape *tape, nm_tensor *x, nm_map_op op, double drop_rate);
/* x + drop(f) */
nm_tensor *nm_residual(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate);
/* drop(x); x itself if the rate is 0 or the tape is not training */
nm_tensor *nm_dropped(nm_tape *tape, nm_tensor *x, double rate);
/* drop(scale table[ids] + positions[pos]); ids and pos are host arrays of n; positions may be NULL and is not
 * learned */
nm_tensor *nm_embed(nm_tape *tape, nm_tensor *table, const int32_t *ids, const int32_t *pos, int32_t n,
                    double scale, const nm_mat *positions, double drop_rate);
/* Queries are columns 0 .. key_width - 1 of q; keys and values are columns of kv from k_first and v_first on. q may be the same
 * tensor as kv (one fused projection [q | k | v]). */
typedef struct nm_attention_shape {
    int32_t key_width, value_width, k_first, v_first, heads; /* widths of all heads together */
    bool causal;
    double scale;
} nm_attention_shape;
nm_tensor *nm_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                        const nm_packing *q_packing, const nm_packing *k_packing, double drop_rate);
/* Alignments that a cross-attention learns: row i of the queries is aligned to keys[offsets[i]] .. keys[offsets[i + 1] - 1],
 * positions in the sequence of the keys. Host arrays. */
typedef struct nm_alignment_guide {
    const int32_t *offsets, *keys; /* [query rows + 1], [offsets[query rows]] */
    int32_t layer, head;           /* from 0 */
    double weight;                 /* of its loss, which is summed over the queries with keys */
} nm_alignment_guide;
/* Adds the cross-entropy of the attention of guide->head to the alignments as a penalty, in training only. To be called just
 * before the attention with the same arguments. */
void nm_guided_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                         const nm_packing *q_packing, const nm_packing *k_packing,
                         const nm_alignment_guide *guide);
/* Block-term attention, see nm_block_term_args: qkv [tokens, 3h] = [q | k | v], positions [length, h], both projections
 * used by this attention only; sequences of up to length tokens. */
typedef struct nm_block_term_params {
    nm_tensor *weight, *core, *content_bias, *position_bias; /* [length^2, d], [cores, h], [1, h], [1, h] */
} nm_block_term_params;
nm_tensor *nm_block_term_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *positions,
                                   const nm_block_term_params *params, const nm_packing *packing,
                                   bool causal);
typedef enum nm_pooling { NM_POOL_FIRST, NM_POOL_MEAN } nm_pooling;
/* One row per sequence: its first row, or the mean of its rows. No sequence may be empty. */
nm_tensor *nm_pool(nm_tape *tape, nm_tensor *x, const nm_packing *packing, nm_pooling pooling);
/* One row per sequence: the sum of its rows, row i with the weight weights[ids[i]] of a column that is not learned. */
nm_tensor *nm_pool_weighted(nm_tape *tape, nm_tensor *x, const nm_packing *packing, const nm_tensor *weights,
                            const int32_t *ids);
typedef struct nm_relative_table { /* row zero_row + d is the vector of distance d; not learned */
    nm_mat rows;
    int32_t zero_row;
} nm_relative_table;
/* Attention with relative positions (TENER): qkv [tokens, 3 width] is one projection, the biases are [1, width]. */
nm_tensor *nm_relative_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *key_bias, nm_tensor *distance_bias,
                                 const nm_relative_table *table, const nm_packing *packing, int32_t heads,
                                 double drop_rate);
/* [x_0 | x_1 | ...], n from 1 to 4; x_0 itself for n = 1 */
nm_tensor *nm_concat(nm_tape *tape, nm_tensor *const *parts, int n);
/* [sequences, cols]: maximum of each column over the rows of each sequence; no sequence may be empty */
nm_tensor *nm_pool_max(nm_tape *tape, nm_tensor *x, const nm_packing *packing);
/* y = norm(x). With statistics of the batch if the tape is training or has batch_stats: then statistics are collected, and
 * nm_params_update_norms updates the running state. */
nm_tensor *nm_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x);
/* *sum = x + drop(f); returns norm(*sum). Bitwise identical to nm_residual and nm_normalize, with a pass over memory less
 * in each direction. */
nm_tensor *nm_residual_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_tensor *f, double drop_rate,
                                 nm_tensor **sum);
/* FixNorm: every row divided by its L2 norm */
nm_tensor *nm_l2_normalize(nm_tape *tape, nm_tensor *table);

typedef struct nm_loss_spec {
    nm_smoothing smoothing;
    double eps;
    const uint8_t *allowed; /* device, or NULL */
    const int32_t *targets; /* host, one per row */
} nm_loss_spec;
/* Softmax loss over a vocabulary. Device doubles [2]: sums of the smoothed loss and of the negative log-likelihood. If the
 * tape is training, the gradients of hidden, weight and bias are computed in the same pass. */
double *nm_softmax_loss_of(nm_tape *tape, nm_tensor *hidden, nm_tensor *weight, nm_tensor *bias,
                           const nm_loss_spec *spec);

/* Adaptive softmax: words below first[0] are in the head, the others in n tail clusters that begin at first[]. */
enum { NM_MAX_CLUSTERS = 8 };
typedef struct nm_adaptive_clusters {
    int32_t n, first[NM_MAX_CLUSTERS];
} nm_adaptive_clusters;
typedef struct nm_adaptive_params {
    nm_tensor *weight, *bias;                 /* [V, d], [1, V] or NULL */
    nm_tensor *cluster_weight, *cluster_bias; /* [n, d], [1, n] */
    nm_adaptive_clusters clusters;
} nm_adaptive_params;
/* The same sums; smoothing is within the head and within the cluster of the target. spec->allowed is not used. */
double *nm_adaptive_loss_of(nm_tape *tape, nm_tensor *hidden, const nm_adaptive_params *params,
                            const nm_loss_spec *spec);
/* The log-probabilities of all words, in place of their logits [n_words]; host memory. cluster_logits [clusters->n] are
 * those of the head's cluster entries, in the order of cluster_weight's rows. Without clusters this is log-softmax. */
void nm_adaptive_log_probs(const nm_adaptive_clusters *clusters, int32_t n_words,
                           const double *cluster_logits, double *logits);
typedef struct nm_crf_scores { /* parameters: [T, T] from row to column, [1, T], [1, T] */
    nm_tensor *transitions, *start, *end;
} nm_crf_scores;
/* Loss of a conditional random field over tags; emissions [tokens, T]; gold: host, one tag per token. Device doubles [2], both
 * the sum of -log p(gold) over sequences. If the tape is training, the gradients are computed in the same pass. */
double *nm_crf_loss(nm_tape *tape, nm_tensor *emissions, const nm_crf_scores *scores,
                    const nm_packing *packing, const int32_t *gold);

#endif
