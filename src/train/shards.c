#include "train/shards.h"

#include <stdlib.h>
#include <string.h>

/* Whether the node's parent has no other child: the right one would begin at or after the last shard. */
static bool is_only_child(const nm_shard_node *node, int64_t n_shards)
{
    return node->index % 2 == 0 && (node->index + 1) << node->level >= n_shards;
}

static bool is_root(const nm_shard_node *node, int64_t n_shards)
{
    return (int64_t)1 << node->level >= n_shards;
}

/* Before a shard with an odd number its sibling waits, and so on for every bit of the number that is set. */
int32_t nm_shard_tree_capacity(int64_t n_shards)
{
    int32_t capacity = 0;
    while ((int64_t)1 << capacity < n_shards)
        capacity++;
    return capacity;
}

static size_t statistics_bytes(const nm_params *params)
{
    return params->n_statistics * nm_dtype_bytes(params->backend->dtype);
}

static size_t rows_bytes(const nm_params *params)
{
    return params->n_norms * NM_NORM_CAPACITY * sizeof(double);
}

nm_status nm_shard_tree_init(nm_shard_tree *tree, nm_params *params, int64_t n_shards, nm_error *err)
{
    int32_t capacity = nm_shard_tree_capacity(n_shards);
    *tree = (nm_shard_tree){.params = params, .n_shards = n_shards};
    tree->waiting = nm_allocate(((size_t)capacity + 1) * sizeof *tree->waiting);
    for (; tree->capacity < capacity; tree->capacity++) {
        nm_shard_node *node = &tree->waiting[tree->capacity];
        node->rows = nm_allocate(rows_bytes(params));
        NM_TRY(nm_backend_alloc(params->backend, nm_params_bytes(params), &node->grads, err));
        if (params->n_statistics)
            NM_TRY(nm_backend_alloc(params->backend, statistics_bytes(params), &node->statistics, err));
    }
    return NM_OK;
}

void nm_shard_tree_release(nm_shard_tree *tree)
{
    if (!tree->waiting)
        return;
    /* capacity + 1: the last one may be incomplete after a failed allocation */
    for (int32_t i = 0; i <= tree->capacity; i++) {
        void *blocks[] = {tree->waiting[i].grads, tree->waiting[i].statistics};
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
            if (blocks[k])
                nm_backend_dealloc(tree->params->backend, blocks[k]);
        free(tree->waiting[i].rows);
    }
    free(tree->waiting);
    *tree = (nm_shard_tree){0};
}

void nm_shard_tree_start(nm_shard_tree *tree)
{
    tree->has_current = false;
    tree->n_waiting = 0;
}

static void store_current(nm_shard_tree *tree)
{
    nm_params *params = tree->params;
    NM_ASSERT(tree->n_waiting < tree->capacity);
    nm_shard_node *node = &tree->waiting[tree->n_waiting++];
    node->level = tree->current.level;
    node->index = tree->current.index;
    node->sums = tree->current.sums;
    nm_backend_copy(params->backend, node->grads, params->grads, nm_params_bytes(params));
    if (params->n_statistics)
        nm_backend_copy(params->backend, node->statistics, params->statistics, statistics_bytes(params));
    for (size_t n = 0; n < params->n_norms; n++)
        memcpy(node->rows + n * NM_NORM_CAPACITY, params->norms[n]->collected_rows,
               sizeof params->norms[n]->collected_rows);
}

void nm_shard_tree_begin(nm_shard_tree *tree)
{
    nm_params *params = tree->params;
    if (tree->has_current)
        store_current(tree);
    tree->has_current = false;
    nm_backend_zero(params->backend, params->grads, nm_params_bytes(params));
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_discard_statistics(params->norms[n]);
}

/* grads = earlier + grads, in pieces whose length fits the kernel's argument */
static void add_gradients(nm_params *params, const void *earlier)
{
    const size_t piece = (size_t)1 << 30, unit = nm_dtype_bytes(params->backend->dtype);
    for (size_t at = 0; at < params->n_elements; at += piece) {
        size_t n = params->n_elements - at < piece ? params->n_elements - at : piece;
        char *grads = (char *)params->grads + at * unit;
        NM_CALL(params->backend, vec, .op = NM_VEC_LINEAR, .n = (int32_t)n,
                .a = (const char *)earlier + at * unit, .b = grads, .s = 1, .t = 1, .out = grads);
    }
}

/* current = earlier + current; the statistics of `earlier` are overwritten. */
static void add_earlier(nm_shard_tree *tree, const nm_shard_node *earlier)
{
    nm_params *params = tree->params;
    nm_shard_sums *sums = &tree->current.sums;
    sums->loss = earlier->sums.loss + sums->loss;
    sums->nll = earlier->sums.nll + sums->nll;
    sums->penalty = earlier->sums.penalty + sums->penalty;
    sums->tokens += earlier->sums.tokens;
    sums->targets += earlier->sums.targets;
    add_gradients(params, earlier->grads);
    nm_params_add_statistics(params, earlier->statistics, earlier->rows);
}

void nm_shard_tree_end(nm_shard_tree *tree, int64_t shard, const nm_shard_sums *sums)
{
    nm_shard_node *current = &tree->current;
    *current = (nm_shard_node){.index = shard, .sums = *sums};
    tree->has_current = true;
    while (!is_root(current, tree->n_shards)) {
        if (current->index % 2) {
            const nm_shard_node *left = tree->n_waiting ? &tree->waiting[tree->n_waiting - 1] : NULL;
            if (!left || left->level != current->level || left->index != current->index - 1)
                return;
            add_earlier(tree, left);
            tree->n_waiting--;
        } else if (!is_only_child(current, tree->n_shards)) {
            return;
        }
        current->level++;
        current->index /= 2;
    }
}
