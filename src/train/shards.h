/* Sums over the shards of an update, combined in a fixed binary tree.
 *
 * A shard is one batch: one forward and backward pass. Node (level, index) of the tree is the sum over the shards
 * index 2^level to (index + 1) 2^level - 1, those that exist:
 *
 *     node(level, index) = node(level - 1, 2 index) + node(level - 1, 2 index + 1)
 *
 * or the first of the two if the second has no shards. Rounding therefore depends on the number of shards only, and not on
 * the process that computes a shard.
 *
 * A node contains gradients, statistics of norms and the loss. The latest one, `current`, is in the memory of the
 * parameters (nm_params), where the backward pass and the update of the norms use it; earlier ones that wait for their
 * sibling are in copies: at most log2(number of shards).
 *
 * Several processes (nm_comm) compute contiguous ranges of shards, of which each combines the nodes that it can. Then each
 * process gets from all others one part of the gradients of their nodes, with the statistics, completes the tree for this
 * part, and the parts of the sum are gathered: each process sends and receives about twice the bytes of the gradients. With
 * `sharded` the parts stay where they are, for an optimizer that updates one part of the parameters (optimizer.h). */
#ifndef NM_SHARDS_H
#define NM_SHARDS_H

#include "comm/comm.h"
#include "nn/params.h"

typedef struct nm_shard_sums {
    double loss, nll, penalty;
    int64_t tokens, targets; /* targets: tokens or examples that the loss is computed on */
    int64_t stop;            /* non-zero: a process was requested to stop */
    int64_t whole_gradients; /* non-zero: a process reads the gradients of all parameters */
    double seconds;          /* training time; of several shards the longest */
} nm_shard_sums;

typedef struct nm_shard_node {
    int32_t level;
    int64_t index;
    nm_shard_sums sums;
    void *grads, *statistics; /* device, with the layouts of nm_params; of `current`: those of nm_params */
    double *rows;             /* host, [n_norms][NM_NORM_CAPACITY]: collected_rows */
} nm_shard_node;

typedef struct nm_shard_tree {
    nm_params *params;
    int64_t n_shards;
    nm_shard_node current;
    bool has_current;
    nm_shard_node *waiting; /* [capacity], in ascending order of shards */
    int32_t n_waiting, capacity;
    size_t first_element, n_elements; /* of the gradients that are combined */
    nm_comm *comm;
    bool sharded;                     /* the sum of the gradients is that of the own part only */
    struct nm_shard_inbox *inbox;     /* nodes of all processes; NULL: a process without others */
    struct nm_shard_overlap *overlap; /* of nm_shard_tree_send_during; NULL until nm_shard_tree_plan */
    struct nm_shard_join *join;       /* of nm_shard_tree_join; NULL until nm_shard_tree_open_join */
} nm_shard_tree;

/* Shards first to last - 1 are computed by this rank. */
typedef struct nm_shard_range {
    int64_t first, last;
} nm_shard_range;
nm_shard_range nm_shard_range_of_rank(int64_t n_shards, int32_t rank, int32_t size);
nm_shard_range nm_shard_range_of(int64_t n_shards, const nm_comm *comm);

/* Memory for copies of gradients, in multiples of nm_params_bytes, rounded up. */
size_t nm_shard_tree_slabs(int64_t n_shards, const nm_comm *comm);
/* Allocates the copies. comm must outlive the tree. NM_USAGE: more processes than shards, or `sharded` with one
 * process; NM_MEMORY; release in every case. */
nm_status nm_shard_tree_init(nm_shard_tree *tree, nm_params *params, int64_t n_shards, nm_comm *comm,
                             bool sharded, nm_error *err);
/* Allocates the memory of nm_shard_tree_join. NM_MEMORY. */
nm_status nm_shard_tree_open_join(nm_shard_tree *tree, nm_error *err);
void nm_shard_tree_release(nm_shard_tree *tree);

/* Before the first shard of an update. */
void nm_shard_tree_start(nm_shard_tree *tree);
/* Before the pass of a shard: stores the current node, zeroes the gradients and discards the statistics. */
void nm_shard_tree_begin(nm_shard_tree *tree);
/* After the pass of a shard: combines it with the nodes before it. */
void nm_shard_tree_end(nm_shard_tree *tree, int64_t shard, const nm_shard_sums *sums);

/* ---- exchange during the last backward pass of this process ---- */

/* Gradients are exchanged in buckets, ranges of the parameters. A bucket is sent when the backward pass has finished the last
 * node that adds to it, which is a function of the model and is observed once, in a dry run. The pass itself is a programming
 * error if it adds to a bucket that was sent. With several processes: the observer of the dry run, valid until
 * nm_shard_tree_release; otherwise NULL. */
nm_gradient_observer *nm_shard_tree_plan(nm_shard_tree *tree);
/* After nm_shard_tree_begin of the last shard of this process: the observer of its pass. NULL without a plan. */
nm_gradient_observer *nm_shard_tree_send_during(nm_shard_tree *tree, int64_t shard);

/* ---- statistics of one norm ---- */

/* Statistics of a norm in the pass of one shard. */
enum { NM_JOINED_VECTORS = 2 };
typedef struct nm_shard_statistics {
    const nm_norm *norm;
    int n;
    nm_norm_combination combinations[NM_JOINED_VECTORS];
    void *vectors[NM_JOINED_VECTORS]; /* device, [width] */
    double rows, targets;
} nm_shard_statistics;
/* Combines the statistics of the shards of all processes in the tree. statistics: of each shard of this process, the same
 * norm in all of them; afterwards all have the result. Errors of nm_comm_exchange. */
nm_status nm_shard_tree_join(nm_shard_tree *tree, nm_shard_statistics *statistics, nm_error *err);

/* After the last shard of this process: combines the nodes of all processes. The current node is then the sum of all
 * shards; with `sharded` its gradients are complete in the own part. Errors of nm_comm_exchange. */
nm_status nm_shard_tree_complete(nm_shard_tree *tree, nm_error *err);

/* ---- parts of the parameters, with several processes ---- */

/* The part of this process: n elements from `first`, which is a multiple of NM_DOT_BLOCK if the tree is sharded. */
void nm_shard_tree_part(const nm_shard_tree *tree, size_t *first, size_t *n);
/* data: `bytes` for every `block` elements of the parameters, memory of the host. Every process has filled its part;
 * afterwards all have the whole. Errors of nm_comm_exchange, as of the next two. */
nm_status nm_shard_tree_gather(nm_shard_tree *tree, void *data, size_t block, size_t bytes, nm_error *err);
/* part: of every process, the elements of its part; whole: of rank 0, all elements. To rank 0, or from it. */
nm_status nm_shard_tree_collect(nm_shard_tree *tree, void *part, void *whole, nm_error *err);
nm_status nm_shard_tree_distribute(nm_shard_tree *tree, void *whole, void *part, nm_error *err);

#endif
