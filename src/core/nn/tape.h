/* The autograd tape. Operations over packed matrices [tokens, features] run eagerly, and each appends one
 * node; backward runs the nodes in reverse order. Memory comes from two arenas that are reserved once: device
 * memory for tensors, host memory for nodes.
 *
 * Backward frees memory early: after a node has run, its output and the gradient of the output return to a
 * pool, which the remaining nodes use, so that the peak is the activations plus a few gradients. If an arena
 * is exhausted, all later calls return an empty tensor or NULL, and nm_tape_backward returns NM_MEMORY. */
#pragma once

#include "norma/norm_type.h"
#include "base/memory.h"

typedef struct nm_tensor {
    void *data, *grad;
    uint16_t *operand; /* while data is NULL: the data in bf16, see nm_tape_keep_operand */
    int32_t rows, cols;
    bool grad_started; /* the first gradient is assigned, later ones are added; always true for parameters */
    bool unread;       /* the node that wrote the data does not read it in the backward pass */
    bool pooled;       /* the tape owns data and grad, which return to its pool */
    /* A parameter that is not learned, or, during the backward pass, a result that depends on no learned
     * parameter: operations need not compute the gradient. */
    bool fixed;
    bool grad_written; /* of a fixed parameter, by an operation that computes it all the same */
    const char *name;  /* "enc.3.ffn.norm", for logs and probes; may be NULL */
} nm_tensor;

typedef struct nm_tape nm_tape;
typedef struct nm_node nm_node;

typedef struct nm_op {
    const char *name;
    void (*backward)(nm_tape *tape, nm_node *node);
    /* Whether parameters besides node->in are learned; NULL: there are none. */
    bool (*learns)(const nm_node *node);
} nm_op;

struct nm_node {
    const nm_op *op;
    nm_tensor *in[4], *out; /* out is NULL for losses and penalties: backward then always runs */
    void *saved;            /* host or device memory of the tape */
};

/* Callbacks about the gradients of parameters during a pass. */
typedef struct nm_gradient_observer {
    /* Called before an operation adds to the gradient of a parameter: in the backward pass, and by losses in
     * the forward pass. */
    void (*written)(struct nm_gradient_observer *observer, const void *grad);
    /* Called after each node of the backward pass. */
    void (*node_finished)(struct nm_gradient_observer *observer);
} nm_gradient_observer;

/* A residual connection of a stack, for instruments. Matrices are [tokens, d] and contiguous. */
typedef struct nm_residual_call {
    nm_backend *backend;
    const char *site; /* its norm, "enc.0.self.norm" */
    /* The terms of the sum, x and F, as scaled by the residual form; F without dropout. */
    nm_mat stream, branch;
    nm_mat out;       /* the residual stream after the sublayer; with post-norm, normalized */
    nm_tensor *omega; /* parameter of the residual form admin; NULL for others */
} nm_residual_call;

/* Softmax attention, for instruments. */
typedef struct nm_attention_call {
    nm_backend *backend;
    const char *site; /* the norm of its sublayer, "enc.0.self.norm" */
    const nm_attention_args *args;
} nm_attention_call;

typedef struct nm_penalty nm_penalty;
struct nm_penalty {      /* an additional term of the loss */
    const double *value; /* device [1] */
    nm_penalty *next;
};

enum { NM_TAPE_MAX_NODES = 1 << 14, NM_TAPE_MAX_POOL = 256 };

struct nm_tape {
    nm_backend *backend;
    nm_arena device, host;
    void *memory;     /* of the device arena; NULL if the arena grows */
    size_t committed; /* bytes of it that are memory (nm_backend_commit) */
    nm_node *nodes;
    int n_nodes;
    bool training;
    uint64_t seed;
    uint32_t step, site;    /* number of the micro-batch; index of the next dropout site */
    double grad_scale;      /* backward computes the gradients of grad_scale times the loss */
    double n_targets;       /* of this micro-batch: see nm_norm_call */
    bool mean_loss;         /* of the task: see nm_norm_call */
    double padding;         /* of the stack that runs: see nm_norm_call */
    nm_norm_joiner *joiner; /* joins batch statistics over shards in training; NULL: none */
    nm_penalty *first_penalty, *last_penalty; /* in the order of recording */
    struct nm_tape_block {
        void *data;
        size_t bytes;
    } pool[NM_TAPE_MAX_POOL];
    int n_pool;
    bool recompute;   /* activation checkpointing, see nm_recomputed_segment */
    bool in_segment;  /* a segment is running ... */
    bool recomputed;  /* ... for the second time, in the backward pass */
    bool batch_stats; /* for instruments: norms use batch statistics although the tape is not training */
    /* Called by instruments after each forward and backward call of a norm; NULL: none. */
    void (*listen)(void *listener, const nm_norm_call *call, bool backward);
    /* The same for residual connections and softmax attention, in forward passes (listen.c). */
    void (*listen_residual)(void *listener, const nm_residual_call *call);
    void (*listen_attention)(void *listener, const nm_attention_call *call);
    void *listener;
    nm_gradient_observer *observer; /* or NULL */
    nm_node unrecorded;             /* result of nm_tape_record if nothing is recorded */
    nm_tensor empty;                /* result if the tape is exhausted: no rows, so that kernels do nothing */
};

/* device_bytes: address space to reserve; pages are allocated at the first access. NM_MEMORY. */
nm_status nm_tape_init(nm_tape *tape, nm_backend *backend, size_t device_bytes, nm_error *err);
/* A tape without a reservation, which allocates device memory when it is needed. */
void nm_tape_init_growing(nm_tape *tape, nm_backend *backend);
/* For a dry run, whose kernels do not access memory: device addresses without memory. nm_tape_peak is then
 * the device memory that a run needs. */
void nm_tape_init_dry(nm_tape *tape, nm_backend *backend);
void nm_tape_release(nm_tape *tape);

/* Removes all nodes and frees all memory of the tape; the next operations belong to micro-batch `step`. */
void nm_tape_start(nm_tape *tape, bool training, uint64_t seed, uint32_t step);
/* Whether an arena was exhausted since nm_tape_start. */
bool nm_tape_exhausted(const nm_tape *tape);
/* Computes the gradients of all recorded operations. NM_MEMORY if an arena was exhausted since
 * nm_tape_start. */
nm_status nm_tape_backward(nm_tape *tape, nm_error *err);
/* Peak of the device memory since nm_tape_init, in bytes. */
size_t nm_tape_peak(const nm_tape *tape);

/* A tensor with uninitialized data; without rows if the tape is exhausted, never NULL. */
nm_tensor *nm_tape_tensor(nm_tape *tape, int32_t rows, int32_t cols);
/* Memory until the next nm_tape_start, NULL if the tape is exhausted: device; host, zeroed; a device copy of
 * host memory. */
void *nm_tape_alloc(nm_tape *tape, size_t bytes);
void *nm_tape_host(nm_tape *tape, size_t bytes);
void *nm_tape_upload(nm_tape *tape, const void *host, size_t bytes);
nm_packing nm_tape_packing(nm_tape *tape, const nm_packing *packing); /* a copy with device_offsets */
/* Appends a node if the tape is training, otherwise returns one that is not run; the caller sets in[], which
 * may contain NULL. saved: memory of the tape, or NULL. */
nm_node *nm_tape_record(nm_tape *tape, const nm_op *op, nm_tensor *out, void *saved);

/* Adds a device double to the penalty of the pass. No effect in the second run of a recomputed segment: the
 * first run has recorded the penalty. */
void nm_tape_record_penalty(nm_tape *tape, const double *value);
/* The two sums of a loss, and the sum of the recorded penalties in the order of recording, by one download.
 * NM_MEMORY. */
nm_status nm_tape_results(nm_tape *tape, const double *sums, double results[3], nm_error *err);

/* Runs the backward functions of the nodes from the last to `first`, and removes the nodes. */
void nm_tape_backward_from(nm_tape *tape, int first);
/* Returns the tensor's data to the pool. */
void nm_tape_free_data(nm_tape *tape, nm_tensor *tensor);
/* From now until the backward pass is done, the tensor is only read as operand of bf16 matrix
 * multiplications. A training pass on a bf16 backend therefore stores it in bf16, and the backward pass loads
 * it before the node that reads it. Gradients are bitwise identical. No effect on other tapes, and with
 * activation checkpointing, which does not store such tensors. */
void nm_tape_keep_operand(nm_tape *tape, nm_tensor *tensor);
/* Frees the data of a tensor that no other node reads from now on. No effect if the node that wrote it reads
 * it in the backward pass, or if the tape is not training. */
void nm_tape_discard(nm_tape *tape, nm_tensor *tensor);
/* Removes the nodes from `first` to the last and returns the data of their outputs, except `kept`, to the
 * pool. */
void nm_tape_truncate(nm_tape *tape, int first, const nm_tensor *kept);
/* Runs segment(tape, context). With tape->recompute only its result is stored, and backward runs the segment
 * again (activation checkpointing). At inference without instruments its intermediates are freed when it
 * returns. The context of `bytes` bytes is copied; the memory it points to (tensors of the tape, parameters)
 * must stay valid until backward has finished. */
nm_tensor *nm_recomputed_segment(nm_tape *tape, nm_tensor *(*segment)(nm_tape *tape, const void *context),
                                 const void *context, size_t bytes);

/* Passes a residual connection to the instruments that listen, unless a recomputed segment repeats it. */
void nm_tape_report_residual(nm_tape *tape, const char *site, const nm_tensor *stream,
                             const nm_tensor *branch, const nm_tensor *out, nm_tensor *omega);
/* Values of device memory on the host, in double (values.c); heap, a matrix without padding. */
double *nm_vector_values(nm_backend *backend, const void *vector, size_t n);
double *nm_mat_values(nm_backend *backend, nm_mat mat);
/* Replaces n values of a tensor from element `first` on. */
void nm_tensor_set(nm_backend *backend, const nm_tensor *tensor, size_t first, const double *values,
                   size_t n);
/* A sum in device memory, such as a penalty, which is in double for every dtype. */
double nm_double_value(nm_backend *backend, const double *device);
/* Variance over all elements of a matrix. */
double nm_mat_variance(nm_backend *backend, nm_mat mat);

nm_mat nm_tensor_mat(const nm_tensor *tensor);
/* A view of the columns first .. first + cols - 1. */
nm_mat nm_mat_columns(const nm_backend *backend, nm_mat mat, int32_t first, int32_t cols);
/* nm_op.learns of operations that always have such parameters. */
bool nm_op_learns(const nm_node *node);
/* Calls the observer. Only for parameters that are not tensors (of norms), before a node adds to their
 * gradient. */
void nm_tape_gradient_written(nm_tape *tape, const void *grad);
/* The gradient of a tensor, for an operation that writes it. *add: the operation must add to it; otherwise it
 * is not initialized. data is NULL if the tape is exhausted. */
nm_mat nm_tensor_grad(nm_tape *tape, nm_tensor *tensor, bool *add);
/* The same for kernels that only add: zeroed before the first of them. */
nm_mat nm_tensor_grad_sum(nm_tape *tape, nm_tensor *tensor);
/* The same for a parameter, or NULL; data is NULL if it is fixed, too. */
nm_mat nm_learned_grad_sum(nm_tape *tape, nm_tensor *param);
nm_dropout nm_tape_dropout(nm_tape *tape, double rate); /* of the next dropout site; rate 0 unless training */

/* y = drop(act(x weight^T + bias)); bias may be NULL */
nm_tensor *nm_linear(nm_tape *tape, nm_tensor *x, nm_tensor *weight, nm_tensor *bias, nm_act act,
                     double drop_rate);
/* drop(f(x)), f pointwise */
nm_tensor *nm_activated(nm_tape *tape, nm_tensor *x, nm_map_op op, double drop_rate);
/* Gated linear unit: drop(f(g) l), [rows, cols / 2], of a projection x = [g | l] that no other operation
 * reads; f pointwise. */
nm_tensor *nm_gated(nm_tape *tape, nm_tensor *x, nm_map_op op, double drop_rate);
/* factor x; x itself if factor is 1 */
nm_tensor *nm_scaled(nm_tape *tape, nm_tensor *x, double factor);
/* scale x, with a parameter `scale`: [1, cols], one number per feature, or [1, 1] */
nm_tensor *nm_feature_scaled(nm_tape *tape, nm_tensor *x, nm_tensor *scale);
/* x + drop(f) */
nm_tensor *nm_residual(nm_tape *tape, nm_tensor *x, nm_tensor *f, double drop_rate);
/* drop(x); x itself if the rate is 0 or the tape is not training */
nm_tensor *nm_dropped(nm_tape *tape, nm_tensor *x, double rate);
/* drop(scale table[ids] + positions[pos]), [n, d]; ids, pos: host [n]; positions is not learned; without
 * positions (NULL) pos is not used */
nm_tensor *nm_embed(nm_tape *tape, nm_tensor *table, const int32_t *ids, const int32_t *pos, int32_t n,
                    double scale, const nm_mat *positions, double drop_rate);
/* Rotary position embeddings: each head of row i is rotated by the angles of positions[i], see
 * nm_rotate_args; [rows, cols]. table: [length, cols / heads], not learned; positions: device, [rows]. Both
 * must stay valid until backward has finished. */
nm_tensor *nm_rotated(nm_tape *tape, nm_tensor *x, const nm_mat *table, const int32_t *positions,
                      int32_t heads, bool interleaved);
/* Grouped-query attention: x [rows, key_heads * c] -> [rows, heads * c], where head i is a copy of head
 * floor(i key_heads / heads) of x; heads: a multiple of key_heads. x itself if they are equal. */
nm_tensor *nm_repeated_heads(nm_tape *tape, nm_tensor *x, int32_t key_heads, int32_t heads);
/* Queries are columns 0 .. key_width - 1 of q; keys and values are the key_width and value_width columns of
 * kv that begin at k_first and v_first. q may be the same tensor as kv (one fused projection [q | k | v]). */
typedef struct nm_attention_shape {
    int32_t key_width, value_width, k_first, v_first, heads; /* widths of all heads together */
    bool causal;
    int32_t window; /* see nm_attention_args; 0: none */
    double scale;
    const char *site; /* for instruments, see nm_attention_call; NULL: they do not measure this attention */
} nm_attention_shape;
/* Multi-head scaled dot-product attention, [query tokens, value_width]. No other operation may read q or kv,
 * except nm_guided_attention. */
nm_tensor *nm_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                        const nm_packing *q_packing, const nm_packing *k_packing, double drop_rate);
/* Alignments that a cross-attention learns: row i of the queries is aligned to keys[offsets[i]] ..
 * keys[offsets[i + 1] - 1], positions in the source sequence. Host arrays. */
typedef struct nm_alignment_guide {
    const int32_t *offsets, *keys; /* [query rows + 1], [offsets[query rows]] */
    int32_t layer, head;           /* from 0 */
    double weight;                 /* loss weight; the loss is summed over the queries that have keys */
} nm_alignment_guide;
/* Adds the cross-entropy between the alignments and the attention weights of guide->head as a penalty, in
 * training only. Call it immediately before nm_attention with the same arguments. */
void nm_guided_attention(nm_tape *tape, nm_tensor *q, nm_tensor *kv, const nm_attention_shape *shape,
                         const nm_packing *q_packing, const nm_packing *k_packing,
                         const nm_alignment_guide *guide);
/* Block-term attention, [tokens, d], see nm_block_term_args: qkv [tokens, 3h] = [q | k | v], positions
 * [length, h], both read by this attention only; sequences of up to `length` tokens. */
typedef struct nm_block_term_params {
    nm_tensor *weight, *core, *content_bias, *position_bias; /* [length^2, d], [cores, h], [1, h], [1, h] */
} nm_block_term_params;
nm_tensor *nm_block_term_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *positions,
                                   const nm_block_term_params *params, const nm_packing *packing,
                                   bool causal);
typedef enum nm_pooling { NM_POOL_FIRST, NM_POOL_MEAN } nm_pooling;
/* [sequences, cols]: the first row of each sequence, or the mean of its rows. No sequence may be empty. */
nm_tensor *nm_pool(nm_tape *tape, nm_tensor *x, const nm_packing *packing, nm_pooling pooling);
/* A constant [rows, cols] with these values; host, row-major. */
nm_tensor *nm_input(nm_tape *tape, const float *values, int32_t rows, int32_t cols);
/* Convolution of images, [windows, out], x: [images * height * width, channels], weight: [out, size * size *
 * channels], the order of nm_patches_args; bias may be NULL. */
nm_tensor *nm_convolve(nm_tape *tape, nm_tensor *x, const nm_windows *windows, nm_tensor *weight,
                       nm_tensor *bias);
/* Every stride-th row and column of the images from the first on (size 1), as the columns first .. first +
 * channels - 1 of cols columns, of which the others are 0; [windows, cols]. */
nm_tensor *nm_subsampled(nm_tape *tape, nm_tensor *x, const nm_windows *windows, int32_t first, int32_t cols);
/* [token; x_1; token; x_2; ..], [rows + n_seqs, cols]: the parameter token [1, cols] before each of n_seqs
 * sequences of equal length. */
nm_tensor *nm_prepended(nm_tape *tape, nm_tensor *x, nm_tensor *token, int32_t n_seqs);
/* Average pooling, [windows, cols], see nm_window_mean_args. */
nm_tensor *nm_window_mean(nm_tape *tape, nm_tensor *x, const nm_windows *windows);
/* [sequences, cols]: the sum of the rows of each sequence, row i weighted by weights[ids[i]]. weights: [n,
 * 1], not learned; ids: host, one per row. */
nm_tensor *nm_pool_weighted(nm_tape *tape, nm_tensor *x, const nm_packing *packing, const nm_tensor *weights,
                            const int32_t *ids);
typedef struct nm_relative_table { /* row zero_row + d is the vector of distance d; not learned */
    nm_mat rows;
    int32_t zero_row;
} nm_relative_table;
/* Attention with relative positions (TENER), [tokens, width]: qkv [tokens, 3 width] is one projection that no
 * other operation reads; the biases are [1, width]. */
nm_tensor *nm_relative_attention(nm_tape *tape, nm_tensor *qkv, nm_tensor *key_bias, nm_tensor *distance_bias,
                                 const nm_relative_table *table, const nm_packing *packing, int32_t heads,
                                 double drop_rate);
/* [x_0 | x_1 | ...], n from 1 to 4; x_0 itself for n = 1 */
nm_tensor *nm_concat(nm_tape *tape, nm_tensor *const *parts, int n);
/* A copy of the columns first .. first + cols - 1 of x, [rows, cols] */
nm_tensor *nm_column_copy(nm_tape *tape, nm_tensor *x, int32_t first, int32_t cols);
/* [sequences, cols]: maximum of each column over the rows of each sequence; no sequence may be empty */
nm_tensor *nm_pool_max(nm_tape *tape, nm_tensor *x, const nm_packing *packing);
/* y = norm(x), [rows, cols]; cols is a multiple of the norm's width, and each part of that width is
 * normalized by itself (heads of queries and keys). If the tape is training or has batch_stats, with batch
 * statistics, which are also collected for nm_params_update_norms. */
nm_tensor *nm_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x);
/* relu(norm(x)), or relu(added + norm(x)); added: of the same shape, or NULL. Bitwise identical to the single
 * operations, with fewer passes over memory in training for norms that support it (NM_COMPUTES_RELU). */
nm_tensor *nm_normalize_relu(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_tensor *added);
/* *sum = x + drop(f); returns norm(*sum). Bitwise identical to nm_residual followed by nm_normalize, with one
 * pass over memory fewer in each direction for norms that support it (NM_SUMS_RESIDUAL). */
nm_tensor *nm_residual_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_tensor *f, double drop_rate,
                                 nm_tensor **sum);
/* FixNorm: each row divided by its L2 norm */
nm_tensor *nm_l2_normalize(nm_tape *tape, nm_tensor *table);

typedef struct nm_loss_spec {
    nm_smoothing smoothing;
    double eps;             /* label smoothing */
    const uint8_t *allowed; /* device [V]: 1 for tokens that may be output; NULL: all */
    const int32_t *targets; /* host, one per row */
} nm_loss_spec;
/* Softmax cross-entropy over a vocabulary: hidden [tokens, d], weight [V, d], bias [1, V] or NULL. Returns
 * device doubles [2], the sums over tokens of the smoothed loss and of the negative log-likelihood, or NULL
 * if the tape is exhausted. If the tape is training, the gradients of hidden, weight and bias are computed in
 * the same pass. */
double *nm_softmax_loss_of(nm_tape *tape, nm_tensor *hidden, nm_tensor *weight, nm_tensor *bias,
                           const nm_loss_spec *spec);

/* Adaptive softmax: token ids below first[0] are in the head, the others in n tail clusters that begin at
 * first[]. */
enum { NM_MAX_CLUSTERS = 8 };
typedef struct nm_adaptive_clusters {
    int32_t n, first[NM_MAX_CLUSTERS];
} nm_adaptive_clusters;
typedef struct nm_adaptive_params {
    nm_tensor *weight, *bias;                 /* [V, d], [1, V] or NULL */
    nm_tensor *cluster_weight, *cluster_bias; /* [n, d], [1, n] */
    nm_adaptive_clusters clusters;
} nm_adaptive_params;
/* The sums of nm_softmax_loss_of for an adaptive softmax. Labels are smoothed within the head and within the
 * cluster of the target. spec->allowed is not used. */
double *nm_adaptive_loss_of(nm_tape *tape, nm_tensor *hidden, const nm_adaptive_params *params,
                            const nm_loss_spec *spec);
/* Replaces the logits [vocabulary] by log-probabilities; host memory. cluster_logits [clusters->n] are those
 * of the head's cluster entries, in the order of cluster_weight's rows. Without clusters this is
 * log-softmax. */
void nm_adaptive_log_probs(const nm_adaptive_clusters *clusters, int32_t vocabulary,
                           const double *cluster_logits, double *logits);
typedef struct nm_crf_scores { /* parameters: transitions [T, T] from row to column, start and end [1, T] */
    nm_tensor *transitions, *start, *end;
} nm_crf_scores;
/* Loss of a conditional random field over tags; emissions [tokens, T], read by this loss only; gold: host,
 * one tag per token. Returns device doubles [2], both the sum of -log p(gold) over sequences, or NULL if the
 * tape is exhausted. If the tape is training, the gradients are computed in the same pass. */
double *nm_crf_loss(nm_tape *tape, nm_tensor *emissions, const nm_crf_scores *scores,
                    const nm_packing *packing, const int32_t *gold);
