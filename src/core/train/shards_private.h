/* Declarations that the files of the tree of shards share: tree and exchange (shards.c), exchange during the
 * backward pass (shard_overlap.c), statistics of one norm (shard_join.c). */
#pragma once

#include "train/shards.h"

typedef struct nm_shard_position {
    int32_t level;
    int64_t index;
} nm_shard_position;

static inline bool nm_shard_is_root(nm_shard_position node, int64_t n_shards)
{
    return (int64_t)1 << node.level >= n_shards;
}

/* Whether the node's parent has no other child: the right one would begin at or after the last shard. */
static inline bool nm_shard_is_only_child(nm_shard_position node, int64_t n_shards)
{
    return node.index % 2 == 0 && (node.index + 1) << node.level >= n_shards;
}

static inline bool nm_shard_are_siblings(nm_shard_position left, nm_shard_position right)
{
    return right.index % 2 && left.level == right.level && left.index == right.index - 1;
}

static inline nm_shard_position nm_shard_parent(nm_shard_position node)
{
    return (nm_shard_position){node.level + 1, node.index / 2};
}

enum { NM_SHARD_MAX_NODES = 128 }; /* maximum number of nodes of a range: two per level */

typedef struct nm_shard_inbox {
    nm_shard_position *positions; /* [n], in ascending order of shards */
    int32_t n, *first;            /* first: [size + 1], index of the first node of each rank */
    void *grads;                  /* device, [n][elements of the own part] */
    char *rest; /* host, [n][rest_bytes]: the other members of a node: sums, rows, statistics */
    size_t rest_bytes;
    size_t *parts; /* [size + 1]: first element of the part of the gradients that each rank completes */
    nm_comm_message *messages;
} nm_shard_inbox;

/* Size of an element of the gradients in bytes. */
static inline size_t nm_shard_unit(const nm_shard_tree *tree)
{
    return nm_dtype_bytes(tree->params->backend->dtype);
}

/* Size in bytes of the part of the gradients that a rank completes. */
static inline size_t nm_shard_part_bytes(const nm_shard_tree *tree, int32_t rank)
{
    const size_t *parts = tree->inbox->parts;
    return (parts[rank + 1] - parts[rank]) * nm_shard_unit(tree);
}

/* The own part of the gradients of a node. */
static inline char *nm_shard_inbox_grads(const nm_shard_tree *tree, int32_t node)
{
    return (char *)tree->inbox->grads + (size_t)node * nm_shard_part_bytes(tree, tree->comm->rank);
}

/* grads = earlier + grads for n elements from `first`. */
void nm_shard_add_gradients(nm_shard_tree *tree, const void *earlier, size_t first, size_t n);

/* Whether the gradients of the current update are sent during the pass. */
bool nm_shard_sends_during_pass(const nm_shard_tree *tree);
/* Before the first shard of an update. */
void nm_shard_overlap_start(nm_shard_tree *tree);
/* After the pass whose gradients are sent: sends the buckets that remain. */
void nm_shard_overlap_end(nm_shard_tree *tree);
void nm_shard_overlap_close(nm_shard_tree *tree);

void nm_shard_join_close(nm_shard_tree *tree);
