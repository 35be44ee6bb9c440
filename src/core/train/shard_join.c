/* Combines the statistics of one norm over the shards of all processes during a pass (norm.statistics =
 * update). */
#include "train/shards_private.h"

#include <string.h>

typedef struct join_node {
    nm_shard_position position;
    double rows, targets;
} join_node;

typedef struct nm_shard_join {
    join_node *nodes; /* [capacity]: nodes that wait for their sibling, in ascending order of shards */
    char *stack;      /* device, [capacity] records: the vectors of `nodes` */
    char *records;    /* device, [inbox->n]: the records of all processes, as they are sent */
    size_t vector_bytes, record_bytes; /* a record consists of rows and targets (double) and the vectors */
    nm_comm_message *messages;
} nm_shard_join;

enum { RECORD_HEADER = 64, RECORD_ALIGNMENT = 64 };

static void *vector_of(const nm_shard_join *join, char *records, int32_t record, int i)
{
    return records + (size_t)record * join->record_bytes + RECORD_HEADER + (size_t)i * join->vector_bytes;
}

nm_status nm_shard_tree_open_join(nm_shard_tree *tree, nm_error *err)
{
    const nm_params *params = tree->params;
    int32_t width = 1, capacity = NM_SHARD_MAX_NODES + 1;
    for (size_t n = 0; n < params->n_norms; n++)
        width = params->norms[n]->site.width > width ? params->norms[n]->site.width : width;
    nm_shard_join *join = tree->join = nm_allocate(sizeof *join);
    join->vector_bytes = ((size_t)width * nm_dtype_bytes(params->backend->dtype) + RECORD_ALIGNMENT - 1) /
                         RECORD_ALIGNMENT * RECORD_ALIGNMENT;
    join->record_bytes = RECORD_HEADER + NM_JOINED_VECTORS * join->vector_bytes;
    join->nodes = nm_allocate((size_t)capacity * sizeof *join->nodes);
    join->messages = nm_allocate(2 * (size_t)tree->comm->size * sizeof *join->messages);
    void *stack, *records;
    NM_TRY(nm_backend_alloc(params->backend, (size_t)capacity * join->record_bytes, &stack, err));
    join->stack = stack;
    if (!tree->inbox)
        return NM_OK;
    NM_TRY(nm_backend_alloc(params->backend, (size_t)tree->inbox->n * join->record_bytes, &records, err));
    join->records = records;
    return NM_OK;
}

void nm_shard_join_close(nm_shard_tree *tree)
{
    nm_shard_join *join = tree->join;
    if (!join)
        return;
    if (join->stack)
        nm_backend_dealloc(tree->params->backend, join->stack);
    if (join->records)
        nm_backend_dealloc(tree->params->backend, join->records);
    NM_FREE(join->nodes, join->messages, join);
}

static void copy_vectors(nm_shard_tree *tree, const nm_shard_statistics *shape, void *const *to,
                         void *const *from)
{
    size_t bytes = (size_t)shape->norm->site.width * nm_shard_unit(tree);
    for (int i = 0; i < shape->n; i++)
        nm_backend_copy(tree->params->backend, to[i], from[i], bytes);
}

/* Pushes a node onto the stack of n nodes and combines siblings. Returns the new number of nodes. */
static int32_t push_statistics(nm_shard_tree *tree, int32_t n, const nm_shard_statistics *shape,
                               join_node node, void *const *vectors)
{
    nm_shard_join *join = tree->join;
    void *own[NM_JOINED_VECTORS], *earlier[NM_JOINED_VECTORS];
    NM_ASSERT(n < NM_SHARD_MAX_NODES);
    for (int i = 0; i < NM_JOINED_VECTORS; i++)
        own[i] = vector_of(join, join->stack, n, i);
    copy_vectors(tree, shape, own, vectors);
    while (!nm_shard_is_root(node.position, tree->n_shards)) {
        const join_node *left = n ? &join->nodes[n - 1] : NULL;
        if (left && nm_shard_are_siblings(left->position, node.position)) {
            double rows[NM_JOINED_VECTORS], earlier_rows[NM_JOINED_VECTORS];
            for (int i = 0; i < NM_JOINED_VECTORS; i++) {
                rows[i] = node.rows;
                earlier_rows[i] = left->rows;
                earlier[i] = vector_of(join, join->stack, n - 1, i);
            }
            nm_norm_combine(tree->params->backend, shape->norm->site.width, shape->n, shape->combinations,
                            own, rows, earlier, earlier_rows);
            copy_vectors(tree, shape, earlier, own);
            memcpy(own, earlier, sizeof own);
            node.rows = left->rows + node.rows;
            node.targets = left->targets + node.targets;
            n--;
        } else if (!nm_shard_is_only_child(node.position, tree->n_shards)) {
            break;
        }
        node.position = nm_shard_parent(node.position);
    }
    join->nodes[n] = node;
    return n + 1;
}

/* Replaces the n nodes of this process on the stack by those of all processes, combined. */
static nm_status exchange_statistics(nm_shard_tree *tree, const nm_shard_statistics *shape, int32_t n,
                                     nm_error *err)
{
    nm_shard_join *join = tree->join;
    const nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    int32_t own = inbox->first[comm->rank];
    size_t n_messages = 0;
    void *from[NM_JOINED_VECTORS], *to[NM_JOINED_VECTORS];
    NM_ASSERT(n == inbox->first[comm->rank + 1] - own);
    for (int32_t k = 0; k < n; k++) {
        for (int i = 0; i < NM_JOINED_VECTORS; i++) {
            from[i] = vector_of(join, join->stack, k, i);
            to[i] = vector_of(join, join->records, own + k, i);
        }
        memcpy(join->records + (size_t)(own + k) * join->record_bytes,
               (const double[]){join->nodes[k].rows, join->nodes[k].targets}, 2 * sizeof(double));
        copy_vectors(tree, shape, to, from);
    }
    for (int32_t rank = 0; rank < comm->size; rank++) {
        int32_t first = inbox->first[rank];
        if (rank == comm->rank)
            continue;
        join->messages[n_messages++] =
            (nm_comm_message){rank, true, join->records + (size_t)first * join->record_bytes,
                              (size_t)(inbox->first[rank + 1] - first) * join->record_bytes};
        join->messages[n_messages++] = (nm_comm_message){
            rank, false, join->records + (size_t)own * join->record_bytes, (size_t)n * join->record_bytes};
    }
    NM_TRY(nm_comm_exchange(tree->comm, join->messages, n_messages, err));
    n = 0;
    for (int32_t k = 0; k < inbox->n; k++) {
        double header[2];
        memcpy(header, join->records + (size_t)k * join->record_bytes, sizeof header);
        for (int i = 0; i < NM_JOINED_VECTORS; i++)
            from[i] = vector_of(join, join->records, k, i);
        n = push_statistics(tree, n, shape, (join_node){inbox->positions[k], header[0], header[1]}, from);
    }
    return NM_OK;
}

nm_status nm_shard_tree_join(nm_shard_tree *tree, nm_shard_statistics *statistics, nm_error *err)
{
    const nm_shard_range own = nm_shard_range_of(tree->n_shards, tree->comm);
    nm_shard_join *join = tree->join;
    int32_t n = 0;
    for (int64_t shard = own.first; shard < own.last; shard++) {
        const nm_shard_statistics *s = &statistics[shard - own.first];
        NM_ASSERT(s->norm == statistics->norm && s->n == statistics->n);
        n = push_statistics(tree, n, s, (join_node){{0, shard}, s->rows, s->targets}, s->vectors);
    }
    if (tree->inbox)
        NM_TRY(exchange_statistics(tree, statistics, n, err));
    void *result[NM_JOINED_VECTORS];
    for (int i = 0; i < NM_JOINED_VECTORS; i++)
        result[i] = vector_of(join, join->stack, 0, i);
    for (int64_t k = 0; k < own.last - own.first; k++) {
        copy_vectors(tree, &statistics[k], statistics[k].vectors, result);
        statistics[k].rows = join->nodes[0].rows;
        statistics[k].targets = join->nodes[0].targets;
    }
    return NM_OK;
}
