/* Sums over the shards of an update, combined in a fixed binary tree.
 *
 * A shard is one batch: one forward and backward pass. Node (level, index) of the tree is the sum over the
 * existing shards from index 2^level to (index + 1) 2^level - 1:
 *
 *     node(level, index) = node(level - 1, 2 index) + node(level - 1, 2 index + 1)
 *
 * or the first of the two if the second has no shards. Rounding therefore depends on the number of shards
 * only, not on the process that computes a shard.
 *
 * A node contains gradients, statistics of norms and the loss. The latest node, `current`, uses the memory of
 * the parameters (nm_params), which the backward pass and the update of the norms access; earlier nodes that
 * wait for their sibling are copies. A single process has at most log2(number of shards) copies.
 *
 * Several processes (nm_comm) compute contiguous ranges of shards, and each combines the nodes of its range.
 * Then each process receives one part of the gradients of all nodes, and their statistics, and completes the
 * tree for this part; finally the parts of the sum are gathered. Each process sends and receives about twice
 * the bytes of the gradients. With `sharded` the parts are not gathered, for an optimizer that updates one
 * part of the parameters (optimizer.h). */
#pragma once

#include "train/comm.h"
#include "nn/params.h"

typedef struct nm_shard_sums {
    double loss, nll, penalty;
    int64_t tokens, targets; /* targets: number of target tokens or examples of the loss */
    int64_t stop;            /* non-zero: a process was requested to stop */
    int64_t whole_gradients; /* non-zero: a process reads the gradients of all parameters */
    double seconds;          /* training time; the maximum over the shards */
} nm_shard_sums;

typedef struct nm_shard_node {
    int32_t level;
    int64_t index;
    nm_shard_sums sums;
    void *grads, *statistics; /* device, with the layouts of nm_params; not used in `current` */
    double *rows;             /* host, [n_norms][NM_NORM_CAPACITY]: collected_rows */
} nm_shard_node;

typedef struct nm_shard_tree {
    nm_params *params;
    int64_t n_shards;
    nm_shard_node current;
    bool has_current;
    nm_shard_node *waiting; /* [capacity], of which n_waiting are used, in ascending order of shards */
    int32_t n_waiting, capacity;
    size_t first_element, n_elements; /* range of the gradients that are combined */
    nm_comm *comm;
    bool sharded;                     /* the sum of the gradients is complete in the own part only */
    struct nm_shard_inbox *inbox;     /* nodes of all processes; NULL: a single process */
    struct nm_shard_overlap *overlap; /* of nm_shard_tree_send_during; NULL until nm_shard_tree_plan */
    struct nm_shard_join *join;       /* of nm_shard_tree_join; NULL until nm_shard_tree_open_join */
} nm_shard_tree;

/* The shards first .. last - 1, which one rank computes. */
typedef struct nm_shard_range {
    int64_t first, last;
} nm_shard_range;

static inline nm_shard_range nm_shard_range_of_rank(int64_t n_shards, int32_t rank, int32_t size)
{
    return (nm_shard_range){n_shards * rank / size, n_shards * (rank + 1) / size};
}

static inline nm_shard_range nm_shard_range_of(int64_t n_shards, const nm_comm *comm)
{
    return nm_shard_range_of_rank(n_shards, comm->rank, comm->size);
}

/* Memory of the tree for copies of gradients, in multiples of nm_params_bytes, rounded up. */
size_t nm_shard_tree_slabs(int64_t n_shards, const nm_comm *comm);
/* Allocates the copies. params and comm must outlive the tree. NM_USAGE: more processes than shards, or
 * `sharded` with one process; NM_UNSUPPORTED: several processes and memory that the host cannot access;
 * NM_MEMORY. Release it in every case. */
nm_status nm_shard_tree_init(nm_shard_tree *tree, nm_params *params, int64_t n_shards, nm_comm *comm,
                             bool sharded, nm_error *err);
/* Allocates the memory of nm_shard_tree_join. NM_MEMORY. */
nm_status nm_shard_tree_open_join(nm_shard_tree *tree, nm_error *err);
void nm_shard_tree_release(nm_shard_tree *tree);

/* Before the first shard of an update. */
void nm_shard_tree_start(nm_shard_tree *tree);
/* Before the pass of a shard: stores the current node, zeroes the gradients and discards the statistics. */
void nm_shard_tree_begin(nm_shard_tree *tree);
/* After the pass of a shard: combines it with the waiting nodes. */
void nm_shard_tree_end(nm_shard_tree *tree, int64_t shard, const nm_shard_sums *sums);

/* Gradients are exchanged in buckets, ranges of the parameters. A bucket is sent when the backward pass has
 * finished the last node that adds to it, which depends on the model only and is observed once, in a dry run.
 * Adding to a bucket after it was sent is a programming error. Returns the observer of the dry run, valid
 * until nm_shard_tree_release; NULL for a single process. */
nm_gradient_observer *nm_shard_tree_plan(nm_shard_tree *tree);
/* After nm_shard_tree_begin of the last shard of this process: returns the observer of its pass; NULL without
 * a plan. */
nm_gradient_observer *nm_shard_tree_send_during(nm_shard_tree *tree, int64_t shard);

/* Statistics of a norm in the pass of one shard. */
enum { NM_JOINED_VECTORS = 2 };
typedef struct nm_shard_statistics {
    const nm_norm *norm;
    int n;
    nm_norm_combination combinations[NM_JOINED_VECTORS];
    void *vectors[NM_JOINED_VECTORS]; /* device, [width] */
    double rows, targets;
} nm_shard_statistics;
/* Combines the statistics of the shards of all processes in the tree. statistics: of each shard of this
 * process, all of the same norm; overwritten by the result. Errors as nm_comm_exchange. */
nm_status nm_shard_tree_join(nm_shard_tree *tree, nm_shard_statistics *statistics, nm_error *err);

/* After the last shard of this process: combines the nodes of all processes. The current node is then the sum
 * over all shards; with `sharded` its gradients are complete in the own part only. Errors as
 * nm_comm_exchange. */
nm_status nm_shard_tree_complete(nm_shard_tree *tree, nm_error *err);

/* The part of this process: n elements from `first`, which is a multiple of NM_DOT_BLOCK if the tree is
 * sharded. */
void nm_shard_tree_part(const nm_shard_tree *tree, size_t *first, size_t *n);
/* All-gather. data: host memory, `bytes` bytes for every `block` elements of the parameters, of which each
 * process has filled its part. Errors of these functions as nm_comm_exchange. */
nm_status nm_shard_tree_gather(nm_shard_tree *tree, void *data, size_t block, size_t bytes, nm_error *err);
/* Gathers the parts to rank 0, or scatters them from it. part: elements of the part of each process; whole:
 * of rank 0, all elements. */
nm_status nm_shard_tree_collect(nm_shard_tree *tree, void *part, void *whole, nm_error *err);
nm_status nm_shard_tree_distribute(nm_shard_tree *tree, void *whole, void *part, nm_error *err);
