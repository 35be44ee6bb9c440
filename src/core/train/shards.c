#include "train/shards_private.h"

#include <stdlib.h>
#include <string.h>

/* Appends a node to n nodes and combines siblings. Returns the new number of nodes. */
static int32_t add_position(nm_shard_position *nodes, int32_t n, nm_shard_position node, int64_t n_shards)
{
    while (!nm_shard_is_root(node, n_shards)) {
        if (n && nm_shard_are_siblings(nodes[n - 1], node))
            n--;
        else if (!nm_shard_is_only_child(node, n_shards))
            break;
        node = nm_shard_parent(node);
    }
    nodes[n] = node;
    return n + 1;
}

/* Writes the nodes that remain after the shards of a range and returns their number; *most: maximum number
 * after any shard. */
static int32_t nodes_of_range(int64_t n_shards, nm_shard_range range, nm_shard_position *nodes, int32_t *most)
{
    int32_t n = 0;
    *most = 0;
    for (int64_t shard = range.first; shard < range.last; shard++) {
        n = add_position(nodes, n, (nm_shard_position){0, shard}, n_shards);
        *most = n > *most ? n : *most;
    }
    return n;
}

/* Maximum number of waiting nodes. A single process does not store the node of its last shard, which is the
 * sum of all shards; one of several stores all nodes of its range. */
static int32_t capacity_of(int64_t n_shards, const nm_comm *comm)
{
    nm_shard_position nodes[NM_SHARD_MAX_NODES];
    int32_t levels = 0, most;
    nm_shard_range range = nm_shard_range_of(n_shards, comm);
    while ((int64_t)1 << levels < n_shards)
        levels++;
    range.last -= comm->size == 1;
    nodes_of_range(n_shards, range, nodes, &most);
    return comm->size > 1 && levels > most ? levels : most;
}

enum { PART_ALIGNMENT = 16 }; /* NM_DOT_BLOCK if the tree is sharded */

static size_t statistics_bytes(const nm_params *params)
{
    return params->n_statistics * nm_dtype_bytes(params->backend->dtype);
}

static size_t rows_bytes(const nm_params *params)
{
    return params->n_norms * NM_NORM_CAPACITY * sizeof(double);
}

static nm_status open_inbox(nm_shard_tree *tree, nm_error *err)
{
    const nm_params *params = tree->params;
    const nm_comm *comm = tree->comm;
    if (!nm_backend_view(params->backend, params->grads))
        return nm_fail(err, NM_UNSUPPORTED, "several processes need memory that the host can read");
    nm_shard_inbox *inbox = tree->inbox = nm_allocate(sizeof *inbox);
    size_t size = (size_t)comm->size;
    const size_t alignment = tree->sharded ? NM_DOT_BLOCK : PART_ALIGNMENT;
    inbox->first = nm_allocate((size + 1) * sizeof *inbox->first);
    inbox->parts = nm_allocate((size + 1) * sizeof *inbox->parts);
    inbox->positions = nm_allocate(((size_t)tree->n_shards + NM_SHARD_MAX_NODES) * sizeof *inbox->positions);
    for (int32_t rank = 0; rank < comm->size; rank++) {
        int32_t most;
        inbox->first[rank] = inbox->n;
        inbox->n += nodes_of_range(tree->n_shards, nm_shard_range_of_rank(tree->n_shards, rank, comm->size),
                                   inbox->positions + inbox->n, &most);
        inbox->parts[rank + 1] = params->n_elements / alignment * (size_t)(rank + 1) / size * alignment;
    }
    inbox->first[comm->size] = inbox->n;
    inbox->parts[comm->size] = params->n_elements;
    inbox->rest_bytes = sizeof(nm_shard_sums) + rows_bytes(params) + statistics_bytes(params);
    inbox->rest = nm_allocate((size_t)inbox->n * inbox->rest_bytes);
    inbox->messages = nm_allocate(2 * ((size_t)inbox->n * size + size) * sizeof *inbox->messages);
    size_t part = inbox->parts[comm->rank + 1] - inbox->parts[comm->rank];
    return nm_backend_alloc(params->backend,
                            (size_t)inbox->n * part * nm_dtype_bytes(params->backend->dtype) + 1,
                            &inbox->grads, err);
}

static void close_inbox(nm_shard_tree *tree)
{
    nm_shard_inbox *inbox = tree->inbox;
    if (!inbox)
        return;
    if (inbox->grads)
        nm_backend_dealloc(tree->params->backend, inbox->grads);
    NM_FREE(inbox->positions, inbox->first, inbox->parts, inbox->rest, inbox->messages, inbox);
}

size_t nm_shard_tree_slabs(int64_t n_shards, const nm_comm *comm)
{
    nm_shard_position nodes[NM_SHARD_MAX_NODES];
    int32_t most, n = 0;
    for (int32_t rank = 0; comm->size > 1 && rank < comm->size; rank++)
        n += nodes_of_range(n_shards, nm_shard_range_of_rank(n_shards, rank, comm->size), nodes, &most);
    return (size_t)(capacity_of(n_shards, comm) + (n + comm->size - 1) / comm->size);
}

nm_status nm_shard_tree_init(nm_shard_tree *tree, nm_params *params, int64_t n_shards, nm_comm *comm,
                             bool sharded, nm_error *err)
{
    *tree = (nm_shard_tree){.params = params,
                            .n_shards = n_shards,
                            .comm = comm,
                            .sharded = sharded,
                            .n_elements = params->n_elements};
    if (sharded && comm->size == 1)
        return nm_fail(err, NM_USAGE, "comm.shard_optimizer: it requires several processes");
    if (comm->size > n_shards)
        return nm_fail(err, NM_USAGE,
                       "%d processes need at least as many shards per update; train.shards is %lld",
                       comm->size, (long long)n_shards);
    int32_t capacity = capacity_of(n_shards, comm);
    tree->waiting = nm_allocate(((size_t)capacity + 1) * sizeof *tree->waiting);
    for (; tree->capacity < capacity; tree->capacity++) {
        nm_shard_node *node = &tree->waiting[tree->capacity];
        node->rows = nm_allocate(rows_bytes(params));
        NM_TRY(nm_backend_alloc(params->backend, nm_params_bytes(params), &node->grads, err));
        if (params->n_statistics)
            NM_TRY(nm_backend_alloc(params->backend, statistics_bytes(params), &node->statistics, err));
    }
    return comm->size > 1 ? open_inbox(tree, err) : NM_OK;
}

void nm_shard_tree_release(nm_shard_tree *tree)
{
    /* <= capacity: one more node may be incomplete after a failed allocation */
    for (int32_t i = 0; tree->waiting && i <= tree->capacity; i++) {
        void *blocks[] = {tree->waiting[i].grads, tree->waiting[i].statistics};
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
            if (blocks[k])
                nm_backend_dealloc(tree->params->backend, blocks[k]);
        free(tree->waiting[i].rows);
    }
    close_inbox(tree);
    nm_shard_join_close(tree);
    nm_shard_overlap_close(tree);
    free(tree->waiting);
    *tree = (nm_shard_tree){0};
}

void nm_shard_tree_start(nm_shard_tree *tree)
{
    tree->has_current = false;
    tree->n_waiting = 0;
    nm_shard_overlap_start(tree);
}

static void store_current(nm_shard_tree *tree)
{
    nm_params *params = tree->params;
    size_t at = tree->first_element * nm_shard_unit(tree);
    NM_ASSERT(tree->n_waiting < tree->capacity);
    nm_shard_node *node = &tree->waiting[tree->n_waiting++];
    node->level = tree->current.level;
    node->index = tree->current.index;
    node->sums = tree->current.sums;
    if (!nm_shard_sends_during_pass(tree))
        nm_backend_copy(params->backend, (char *)node->grads + at, (char *)params->grads + at,
                        tree->n_elements * nm_shard_unit(tree));
    if (params->n_statistics)
        nm_backend_copy(params->backend, node->statistics, params->statistics, statistics_bytes(params));
    nm_params_get_rows(params, node->rows);
    tree->has_current = false;
}

void nm_shard_tree_begin(nm_shard_tree *tree)
{
    nm_params *params = tree->params;
    if (tree->has_current)
        store_current(tree);
    nm_params_zero_grads(params, params->grads);
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_discard_statistics(params->norms[n]);
}

/* current = earlier + current; the statistics of `earlier` are overwritten. */
static void add_earlier(nm_shard_tree *tree, const nm_shard_node *earlier)
{
    nm_shard_sums *sums = &tree->current.sums;
    sums->loss = earlier->sums.loss + sums->loss;
    sums->nll = earlier->sums.nll + sums->nll;
    sums->penalty = earlier->sums.penalty + sums->penalty;
    sums->tokens += earlier->sums.tokens;
    sums->targets += earlier->sums.targets;
    sums->stop |= earlier->sums.stop;
    sums->whole_gradients |= earlier->sums.whole_gradients;
    sums->seconds = earlier->sums.seconds > sums->seconds ? earlier->sums.seconds : sums->seconds;
    if (!nm_shard_sends_during_pass(tree)) /* otherwise combine_range has added each bucket */
        nm_shard_add_gradients(tree, earlier->grads, tree->first_element, tree->n_elements);
    nm_params_add_statistics(tree->params, earlier->statistics, earlier->rows);
}

static void combine(nm_shard_tree *tree, nm_shard_position node, const nm_shard_sums *sums)
{
    tree->current.sums = *sums;
    while (!nm_shard_is_root(node, tree->n_shards)) {
        const nm_shard_node *left = tree->n_waiting ? &tree->waiting[tree->n_waiting - 1] : NULL;
        if (left && nm_shard_are_siblings((nm_shard_position){left->level, left->index}, node)) {
            add_earlier(tree, left);
            tree->n_waiting--;
        } else if (!nm_shard_is_only_child(node, tree->n_shards)) {
            break;
        }
        node = nm_shard_parent(node);
    }
    tree->current.level = node.level;
    tree->current.index = node.index;
    tree->has_current = true;
}

void nm_shard_tree_end(nm_shard_tree *tree, int64_t shard, const nm_shard_sums *sums)
{
    if (nm_shard_sends_during_pass(tree))
        nm_shard_overlap_end(tree);
    combine(tree, (nm_shard_position){0, shard}, sums);
}

/* Copies sums, rows and statistics of this process's nodes to the inbox, from which they are sent. */
static void pack_rest(nm_shard_tree *tree)
{
    const nm_shard_inbox *inbox = tree->inbox;
    for (int32_t i = 0; i < tree->n_waiting; i++) {
        char *rest = inbox->rest + (size_t)(inbox->first[tree->comm->rank] + i) * inbox->rest_bytes;
        const nm_shard_node *node = &tree->waiting[i];
        memcpy(rest, &node->sums, sizeof node->sums);
        memcpy(rest + sizeof node->sums, node->rows, rows_bytes(tree->params));
        if (tree->params->n_statistics)
            nm_backend_download(tree->params->backend, rest + sizeof node->sums + rows_bytes(tree->params),
                                node->statistics, statistics_bytes(tree->params));
    }
}

/* Gradients of node i of this process. Those of the last one are not stored if they were sent during the
 * pass. */
static char *own_gradients(const nm_shard_tree *tree, int32_t i)
{
    return nm_shard_sends_during_pass(tree) && i == tree->n_waiting - 1 ? tree->params->grads
                                                                        : tree->waiting[i].grads;
}

/* Exchanges the nodes of all processes: each rank gets its part of the gradients, unless they were sent
 * during the pass, and the rest of every node. */
static nm_status exchange_nodes(nm_shard_tree *tree, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    const bool sent = nm_shard_sends_during_pass(tree);
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        int32_t first = inbox->first[rank], own = inbox->first[comm->rank];
        if (rank == comm->rank)
            continue;
        for (int32_t node = first; !sent && node < inbox->first[rank + 1]; node++)
            inbox->messages[n++] = (nm_comm_message){rank, true, nm_shard_inbox_grads(tree, node),
                                                     nm_shard_part_bytes(tree, comm->rank)};
        inbox->messages[n++] =
            (nm_comm_message){rank, true, inbox->rest + (size_t)first * inbox->rest_bytes,
                              (size_t)(inbox->first[rank + 1] - first) * inbox->rest_bytes};
        for (int32_t i = 0; !sent && i < tree->n_waiting; i++)
            inbox->messages[n++] = (nm_comm_message){
                rank, false, (char *)tree->waiting[i].grads + inbox->parts[rank] * nm_shard_unit(tree),
                nm_shard_part_bytes(tree, rank)};
        inbox->messages[n++] = (nm_comm_message){rank, false, inbox->rest + (size_t)own * inbox->rest_bytes,
                                                 (size_t)tree->n_waiting * inbox->rest_bytes};
    }
    NM_TRY(nm_comm_exchange(tree->comm, inbox->messages, n, err));
    for (int32_t i = 0; i < tree->n_waiting; i++)
        nm_backend_copy(tree->params->backend, nm_shard_inbox_grads(tree, inbox->first[comm->rank] + i),
                        own_gradients(tree, i) + inbox->parts[comm->rank] * nm_shard_unit(tree),
                        nm_shard_part_bytes(tree, comm->rank));
    return NM_OK;
}

/* Loads a node of the inbox and combines it with those before it. */
static void load_node(nm_shard_tree *tree, int32_t node)
{
    nm_params *params = tree->params;
    const char *rest = tree->inbox->rest + (size_t)node * tree->inbox->rest_bytes;
    nm_shard_sums sums;
    memcpy(&sums, rest, sizeof sums);
    nm_params_set_rows(params, (const double *)(const void *)(rest + sizeof sums));
    if (params->n_statistics)
        nm_backend_upload(params->backend, params->statistics, rest + sizeof sums + rows_bytes(params),
                          statistics_bytes(params));
    nm_backend_copy(params->backend, (char *)params->grads + tree->first_element * nm_shard_unit(tree),
                    nm_shard_inbox_grads(tree, node), nm_shard_part_bytes(tree, tree->comm->rank));
    combine(tree, tree->inbox->positions[node], &sums);
}

void nm_shard_tree_part(const nm_shard_tree *tree, size_t *first, size_t *n)
{
    const size_t *parts = tree->inbox->parts;
    *first = parts[tree->comm->rank];
    *n = parts[tree->comm->rank + 1] - *first;
}

nm_status nm_shard_tree_gather(nm_shard_tree *tree, void *data, size_t block, size_t bytes, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        nm_comm_message of[2]; /* the part of `rank` is received, the own part is sent */
        if (rank == comm->rank)
            continue;
        for (int own = 0; own < 2; own++) {
            const size_t *part = &inbox->parts[own ? comm->rank : rank];
            size_t first = (part[0] + block - 1) / block, end = (part[1] + block - 1) / block;
            of[own] = (nm_comm_message){rank, !own, (char *)data + first * bytes, (end - first) * bytes};
        }
        inbox->messages[n++] = of[0];
        inbox->messages[n++] = of[1];
    }
    return nm_comm_exchange(tree->comm, inbox->messages, n, err);
}

/* Copies the parts of all processes to the whole of rank 0, or from it. */
static nm_status move_parts(nm_shard_tree *tree, void *part, void *whole, bool to_whole, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    size_t n = 0;
    if (comm->rank)
        return nm_comm_exchange(tree->comm,
                                &(nm_comm_message){0, !to_whole, part, nm_shard_part_bytes(tree, comm->rank)},
                                1, err);
    for (int32_t rank = 1; rank < comm->size; rank++)
        inbox->messages[n++] =
            (nm_comm_message){rank, to_whole, (char *)whole + inbox->parts[rank] * nm_shard_unit(tree),
                              nm_shard_part_bytes(tree, rank)};
    nm_backend_copy(tree->params->backend, to_whole ? whole : part, to_whole ? part : whole,
                    nm_shard_part_bytes(tree, 0));
    return nm_comm_exchange(tree->comm, inbox->messages, n, err);
}

nm_status nm_shard_tree_collect(nm_shard_tree *tree, void *part, void *whole, nm_error *err)
{
    return move_parts(tree, part, whole, true, err);
}

nm_status nm_shard_tree_distribute(nm_shard_tree *tree, void *whole, void *part, nm_error *err)
{
    return move_parts(tree, part, whole, false, err);
}

nm_status nm_shard_tree_complete(nm_shard_tree *tree, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    if (!inbox)
        return NM_OK;
    store_current(tree);
    pack_rest(tree);
    NM_TRY(exchange_nodes(tree, err));
    tree->first_element = inbox->parts[tree->comm->rank];
    tree->n_elements = inbox->parts[tree->comm->rank + 1] - tree->first_element;
    nm_shard_tree_start(tree);
    for (int32_t node = 0; node < inbox->n; node++) {
        if (tree->has_current)
            store_current(tree);
        load_node(tree, node);
    }
    tree->first_element = 0;
    tree->n_elements = tree->params->n_elements;
    return tree->sharded ? NM_OK
                         : nm_shard_tree_gather(tree, tree->params->grads, 1, nm_shard_unit(tree), err);
}
