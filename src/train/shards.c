#include "train/shards.h"

#include <stdlib.h>
#include <string.h>

/* ---- the shape of the tree ---- */

typedef struct position {
    int32_t level;
    int64_t index;
} position;

static bool is_root(position node, int64_t n_shards)
{
    return (int64_t)1 << node.level >= n_shards;
}

/* Whether the node's parent has no other child: the right one would begin at or after the last shard. */
static bool is_only_child(position node, int64_t n_shards)
{
    return node.index % 2 == 0 && (node.index + 1) << node.level >= n_shards;
}

static bool are_siblings(position left, position right)
{
    return right.index % 2 && left.level == right.level && left.index == right.index - 1;
}

static position parent_of(position node)
{
    return (position){node.level + 1, node.index / 2};
}

/* Adds a node after the n nodes before it and combines siblings. Returns their number. */
static int32_t add_position(position *nodes, int32_t n, position node, int64_t n_shards)
{
    while (!is_root(node, n_shards)) {
        if (n && are_siblings(nodes[n - 1], node))
            n--;
        else if (!is_only_child(node, n_shards))
            break;
        node = parent_of(node);
    }
    nodes[n] = node;
    return n + 1;
}

enum { MAX_NODES = 128 }; /* of a range: two per level */

/* The nodes that remain after the shards of a range; *most: the largest number after any of them. */
static int32_t nodes_of_range(int64_t n_shards, nm_shard_range range, position *nodes, int32_t *most)
{
    int32_t n = 0;
    *most = 0;
    for (int64_t shard = range.first; shard < range.last; shard++) {
        n = add_position(nodes, n, (position){0, shard}, n_shards);
        *most = n > *most ? n : *most;
    }
    return n;
}

nm_shard_range nm_shard_range_of_rank(int64_t n_shards, int32_t rank, int32_t size)
{
    return (nm_shard_range){n_shards * rank / size, n_shards * (rank + 1) / size};
}

nm_shard_range nm_shard_range_of(int64_t n_shards, const nm_comm *comm)
{
    return nm_shard_range_of_rank(n_shards, comm->rank, comm->size);
}

/* A process without others does not store the sum of all shards, the nodes of its range otherwise. */
static int32_t capacity_of(int64_t n_shards, const nm_comm *comm)
{
    position nodes[MAX_NODES];
    int32_t levels = 0, most;
    nm_shard_range range = nm_shard_range_of(n_shards, comm);
    while ((int64_t)1 << levels < n_shards)
        levels++;
    range.last -= comm->size == 1;
    nodes_of_range(n_shards, range, nodes, &most);
    return comm->size > 1 && levels > most ? levels : most;
}

/* ---- nodes of all processes ---- */

/* A node without its gradients, as it is sent: nm_shard_sums, rows, statistics. */
typedef struct nm_shard_inbox {
    position *positions; /* [n], in ascending order of shards */
    int32_t n, *first;   /* first: [size + 1], nodes of each rank */
    void *grads;         /* device, [n][n_elements of the part] */
    char *rest;          /* host, [n][rest_bytes] */
    size_t rest_bytes;
    size_t *parts; /* [size + 1]: elements of the gradients that each rank completes */
    nm_comm_message *messages;
} nm_shard_inbox;

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
    inbox->positions = nm_allocate(((size_t)tree->n_shards + MAX_NODES) * sizeof *inbox->positions);
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

/* A range of the gradients, which is complete when the backward pass has finished `ready` nodes. */
typedef struct bucket {
    size_t first, n;
    int64_t ready;
} bucket;

enum { N_BUCKETS = 16 };

typedef struct nm_shard_overlap {
    nm_gradient_observer observer; /* first member: the observer of a call is its overlap */
    nm_shard_tree *tree;
    int64_t
        *last; /* [params->n]: nodes that had finished at the last write to the gradient, in the dry run */
    bucket buckets[N_BUCKETS]; /* in ascending order of ready */
    int32_t n_buckets;
    int32_t n_sent; /* of the current pass */
    int64_t finished, shard;
    bool planned;
    bool sent; /* the gradients of the current update are sent during the pass */
} nm_shard_overlap;

static bool sends_during_pass(const nm_shard_tree *tree)
{
    return tree->overlap && tree->overlap->sent;
}

static void close_inbox(nm_shard_tree *tree)
{
    nm_shard_inbox *inbox = tree->inbox;
    if (!inbox)
        return;
    if (inbox->grads)
        nm_backend_dealloc(tree->params->backend, inbox->grads);
    free(inbox->positions);
    free(inbox->first);
    free(inbox->parts);
    free(inbox->rest);
    free(inbox->messages);
    free(inbox);
}

size_t nm_shard_tree_slabs(int64_t n_shards, const nm_comm *comm)
{
    position nodes[MAX_NODES];
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
        return nm_fail(err, NM_USAGE,
                       "comm.shard_optimizer: there is one process, which needs the state of all parameters");
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

/* ---- statistics of one norm ---- */

typedef struct join_node {
    position position;
    double rows, targets;
} join_node;

typedef struct nm_shard_join {
    join_node *nodes; /* [capacity]: those that wait for their sibling, in ascending order of shards */
    char *stack;      /* device, [capacity] records: their vectors */
    char *records;    /* device: those of all processes, as they are sent */
    size_t vector_bytes, record_bytes; /* a record: rows and targets (double), vectors */
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
    int32_t width = 1, capacity = MAX_NODES + 1;
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

static void close_join(nm_shard_tree *tree)
{
    nm_shard_join *join = tree->join;
    if (!join)
        return;
    if (join->stack)
        nm_backend_dealloc(tree->params->backend, join->stack);
    if (join->records)
        nm_backend_dealloc(tree->params->backend, join->records);
    free(join->nodes);
    free(join->messages);
    free(join);
}

void nm_shard_tree_release(nm_shard_tree *tree)
{
    /* capacity + 1: the last one may be incomplete after a failed allocation */
    for (int32_t i = 0; tree->waiting && i <= tree->capacity; i++) {
        void *blocks[] = {tree->waiting[i].grads, tree->waiting[i].statistics};
        for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
            if (blocks[k])
                nm_backend_dealloc(tree->params->backend, blocks[k]);
        free(tree->waiting[i].rows);
    }
    close_inbox(tree);
    close_join(tree);
    if (tree->overlap)
        free(tree->overlap->last);
    free(tree->overlap);
    free(tree->waiting);
    *tree = (nm_shard_tree){0};
}

/* ---- combining ---- */

void nm_shard_tree_start(nm_shard_tree *tree)
{
    tree->has_current = false;
    tree->n_waiting = 0;
    if (tree->overlap)
        tree->overlap->sent = false;
}

static size_t unit_of(const nm_shard_tree *tree)
{
    return nm_dtype_bytes(tree->params->backend->dtype);
}

static void store_current(nm_shard_tree *tree)
{
    nm_params *params = tree->params;
    size_t at = tree->first_element * unit_of(tree);
    NM_ASSERT(tree->n_waiting < tree->capacity);
    nm_shard_node *node = &tree->waiting[tree->n_waiting++];
    node->level = tree->current.level;
    node->index = tree->current.index;
    node->sums = tree->current.sums;
    if (!sends_during_pass(tree))
        nm_backend_copy(params->backend, (char *)node->grads + at, (char *)params->grads + at,
                        tree->n_elements * unit_of(tree));
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
    nm_backend_zero(params->backend, params->grads, nm_params_bytes(params));
    for (size_t n = 0; n < params->n_norms; n++)
        nm_norm_discard_statistics(params->norms[n]);
}

/* grads = earlier + grads for n elements, in pieces whose length fits the kernel's argument */
static void add_gradients(nm_shard_tree *tree, const void *earlier, size_t first, size_t n_elements)
{
    const size_t piece = (size_t)1 << 30, unit = unit_of(tree), end = first + n_elements;
    for (size_t at = first; at < end; at += piece) {
        size_t n = end - at < piece ? end - at : piece;
        char *grads = (char *)tree->params->grads + at * unit;
        NM_CALL(tree->params->backend, vec, .op = NM_VEC_LINEAR, .n = (int32_t)n,
                .a = (const char *)earlier + at * unit, .b = grads, .s = 1, .t = 1, .out = grads);
    }
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
    if (!sends_during_pass(tree)) /* otherwise added bucket by bucket */
        add_gradients(tree, earlier->grads, tree->first_element, tree->n_elements);
    nm_params_add_statistics(tree->params, earlier->statistics, earlier->rows);
}

static void combine(nm_shard_tree *tree, position node, const nm_shard_sums *sums)
{
    tree->current.sums = *sums;
    while (!is_root(node, tree->n_shards)) {
        const nm_shard_node *left = tree->n_waiting ? &tree->waiting[tree->n_waiting - 1] : NULL;
        if (left && are_siblings((position){left->level, left->index}, node)) {
            add_earlier(tree, left);
            tree->n_waiting--;
        } else if (!is_only_child(node, tree->n_shards)) {
            break;
        }
        node = parent_of(node);
    }
    tree->current.level = node.level;
    tree->current.index = node.index;
    tree->has_current = true;
}

static void send_buckets(nm_shard_overlap *o);

void nm_shard_tree_end(nm_shard_tree *tree, int64_t shard, const nm_shard_sums *sums)
{
    if (sends_during_pass(tree)) {
        tree->overlap->finished = INT64_MAX;
        send_buckets(tree->overlap);
    }
    combine(tree, (position){0, shard}, sums);
}

/* ---- exchange ---- */

static size_t part_bytes(const nm_shard_tree *tree, int32_t rank)
{
    const size_t *parts = tree->inbox->parts;
    return (parts[rank + 1] - parts[rank]) * unit_of(tree);
}

static char *inbox_grads(const nm_shard_tree *tree, int32_t node)
{
    return (char *)tree->inbox->grads + (size_t)node * part_bytes(tree, tree->comm->rank);
}

/* ---- exchange during the last backward pass ---- */

static void written_in_dry_run(nm_gradient_observer *observer, const void *grad)
{
    nm_shard_overlap *o = (nm_shard_overlap *)observer;
    const nm_params *params = o->tree->params;
    for (size_t i = 0; i < params->n; i++)
        if (params->list[i]->tensor.grad == grad)
            o->last[i] = o->finished;
}

static void node_of_dry_run(nm_gradient_observer *observer)
{
    ((nm_shard_overlap *)observer)->finished++;
}

nm_gradient_observer *nm_shard_tree_plan(nm_shard_tree *tree)
{
    if (!tree->inbox)
        return NULL;
    nm_shard_overlap *o = tree->overlap = nm_allocate(sizeof *o);
    o->observer = (nm_gradient_observer){written_in_dry_run, node_of_dry_run};
    o->tree = tree;
    o->last = nm_allocate(tree->params->n * sizeof *o->last);
    return &o->observer;
}

static int compare_buckets(const void *a, const void *b)
{
    const bucket *x = a, *y = b;
    if (x->ready != y->ready)
        return x->ready < y->ready ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

/* Consecutive parameters of about 1/16 of the elements. */
static void make_buckets(nm_shard_overlap *o)
{
    const nm_params *params = o->tree->params;
    const size_t size = params->n_elements / N_BUCKETS + 1;
    bucket *last = NULL;
    for (size_t i = 0; i < params->n; i++) {
        size_t first = params->list[i]->offset,
               end = i + 1 < params->n ? params->list[i + 1]->offset : params->n_elements;
        if (!last || (last->n >= size && o->n_buckets < N_BUCKETS)) {
            last = &o->buckets[o->n_buckets++];
            *last = (bucket){.first = first};
        }
        last->n = end - last->first;
        last->ready = o->last[i] + 1 > last->ready ? o->last[i] + 1 : last->ready;
    }
    qsort(o->buckets, (size_t)o->n_buckets, sizeof *o->buckets, compare_buckets);
    o->planned = true;
}

/* Adds the nodes before the last shard to this range of its gradients, as `combine` does. Returns the number of nodes of
 * this process that remain before it. */
static int32_t combine_range(nm_shard_tree *tree, int64_t shard, size_t first, size_t n)
{
    int32_t n_left = tree->n_waiting;
    for (position node = {0, shard}; !is_root(node, tree->n_shards); node = parent_of(node)) {
        const nm_shard_node *left = n_left ? &tree->waiting[n_left - 1] : NULL;
        if (left && are_siblings((position){left->level, left->index}, node)) {
            add_gradients(tree, left->grads, first, n);
            n_left--;
        } else if (!is_only_child(node, tree->n_shards)) {
            break;
        }
    }
    return n_left;
}

/* The elements that are in the bucket and in the part of a rank. */
static bucket intersect(const nm_shard_tree *tree, const bucket *b, int32_t rank)
{
    const size_t *part = &tree->inbox->parts[rank];
    size_t first = b->first > part[0] ? b->first : part[0],
           end = b->first + b->n < part[1] ? b->first + b->n : part[1];
    return (bucket){.first = first, .n = end > first ? end - first : 0};
}

static void send_bucket(nm_shard_overlap *o, const bucket *b)
{
    nm_shard_tree *tree = o->tree;
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    const size_t unit = unit_of(tree);
    const bucket own = intersect(tree, b, comm->rank);
    int32_t n_left = combine_range(tree, o->shard, b->first, b->n);
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        const bucket theirs = intersect(tree, b, rank);
        if (rank == comm->rank)
            continue;
        for (int32_t node = inbox->first[rank]; node < inbox->first[rank + 1]; node++)
            inbox->messages[n++] = (nm_comm_message){
                rank, true, inbox_grads(tree, node) + (own.first - inbox->parts[comm->rank]) * unit,
                own.n * unit};
        for (int32_t i = 0; i <= n_left; i++) {
            char *grads = i < n_left ? tree->waiting[i].grads : tree->params->grads;
            inbox->messages[n++] =
                (nm_comm_message){rank, false, grads + theirs.first * unit, theirs.n * unit};
        }
    }
    nm_comm_post(tree->comm, inbox->messages, n);
}

static void send_buckets(nm_shard_overlap *o)
{
    for (; o->n_sent < o->n_buckets && o->buckets[o->n_sent].ready <= o->finished; o->n_sent++)
        send_bucket(o, &o->buckets[o->n_sent]);
}

static void written_in_pass(nm_gradient_observer *observer, const void *grad)
{
    const nm_shard_overlap *o = (const nm_shard_overlap *)observer;
    const char *grads = o->tree->params->grads;
    for (int32_t i = 0; i < o->n_sent; i++) {
        const bucket *b = &o->buckets[i];
        NM_ASSERT((const char *)grad < grads + b->first * unit_of(o->tree) ||
                  (const char *)grad >= grads + (b->first + b->n) * unit_of(o->tree));
    }
}

static void node_of_pass(nm_gradient_observer *observer)
{
    nm_shard_overlap *o = (nm_shard_overlap *)observer;
    o->finished++;
    send_buckets(o);
    nm_comm_progress(o->tree->comm);
}

nm_gradient_observer *nm_shard_tree_send_during(nm_shard_tree *tree, int64_t shard)
{
    nm_shard_overlap *o = tree->overlap;
    if (!o)
        return NULL;
    if (!o->planned)
        make_buckets(o);
    o->observer = (nm_gradient_observer){written_in_pass, node_of_pass};
    o->shard = shard;
    o->n_sent = 0;
    o->finished = 0;
    o->sent = true;
    return &o->observer;
}

/* Sums, rows and statistics of this process's nodes, to be sent. */
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

/* Of node i of this process. The last one was not stored if it was sent during the pass. */
static char *own_gradients(const nm_shard_tree *tree, int32_t i)
{
    return sends_during_pass(tree) && i == tree->n_waiting - 1 ? tree->params->grads : tree->waiting[i].grads;
}

/* Part `rank` of the gradients of every node, unless they were sent during the pass, and the rest of every node. */
static nm_status exchange_nodes(nm_shard_tree *tree, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    const bool sent = sends_during_pass(tree);
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        int32_t first = inbox->first[rank], own = inbox->first[comm->rank];
        if (rank == comm->rank)
            continue;
        for (int32_t node = first; !sent && node < inbox->first[rank + 1]; node++)
            inbox->messages[n++] =
                (nm_comm_message){rank, true, inbox_grads(tree, node), part_bytes(tree, comm->rank)};
        inbox->messages[n++] =
            (nm_comm_message){rank, true, inbox->rest + (size_t)first * inbox->rest_bytes,
                              (size_t)(inbox->first[rank + 1] - first) * inbox->rest_bytes};
        for (int32_t i = 0; !sent && i < tree->n_waiting; i++)
            inbox->messages[n++] = (nm_comm_message){
                rank, false, (char *)tree->waiting[i].grads + inbox->parts[rank] * unit_of(tree),
                part_bytes(tree, rank)};
        inbox->messages[n++] = (nm_comm_message){rank, false, inbox->rest + (size_t)own * inbox->rest_bytes,
                                                 (size_t)tree->n_waiting * inbox->rest_bytes};
    }
    NM_TRY(nm_comm_exchange(tree->comm, inbox->messages, n, err));
    for (int32_t i = 0; i < tree->n_waiting; i++)
        nm_backend_copy(tree->params->backend, inbox_grads(tree, inbox->first[comm->rank] + i),
                        own_gradients(tree, i) + inbox->parts[comm->rank] * unit_of(tree),
                        part_bytes(tree, comm->rank));
    return NM_OK;
}

/* Makes a node of the inbox the current one. */
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
    nm_backend_copy(params->backend, (char *)params->grads + tree->first_element * unit_of(tree),
                    inbox_grads(tree, node), part_bytes(tree, tree->comm->rank));
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
        nm_comm_message of[2]; /* the part of `rank`, the own part */
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

/* Between the parts of all processes and the whole of rank 0. */
static nm_status move_parts(nm_shard_tree *tree, void *part, void *whole, bool to_whole, nm_error *err)
{
    nm_shard_inbox *inbox = tree->inbox;
    const nm_comm *comm = tree->comm;
    size_t n = 0;
    if (comm->rank)
        return nm_comm_exchange(tree->comm,
                                &(nm_comm_message){0, !to_whole, part, part_bytes(tree, comm->rank)}, 1, err);
    for (int32_t rank = 1; rank < comm->size; rank++)
        inbox->messages[n++] = (nm_comm_message){
            rank, to_whole, (char *)whole + inbox->parts[rank] * unit_of(tree), part_bytes(tree, rank)};
    nm_backend_copy(tree->params->backend, to_whole ? whole : part, to_whole ? part : whole,
                    part_bytes(tree, 0));
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
    return tree->sharded ? NM_OK : nm_shard_tree_gather(tree, tree->params->grads, 1, unit_of(tree), err);
}

/* ---- statistics of one norm ---- */

static void copy_vectors(nm_shard_tree *tree, const nm_shard_statistics *shape, void *const *to,
                         void *const *from)
{
    size_t bytes = (size_t)shape->norm->site.width * unit_of(tree);
    for (int i = 0; i < shape->n; i++)
        nm_backend_copy(tree->params->backend, to[i], from[i], bytes);
}

/* Adds a node after the n nodes of the stack and combines siblings. Returns their number. */
static int32_t push_statistics(nm_shard_tree *tree, int32_t n, const nm_shard_statistics *shape,
                               join_node node, void *const *vectors)
{
    nm_shard_join *join = tree->join;
    void *own[NM_JOINED_VECTORS], *earlier[NM_JOINED_VECTORS];
    NM_ASSERT(n < MAX_NODES);
    for (int i = 0; i < NM_JOINED_VECTORS; i++)
        own[i] = vector_of(join, join->stack, n, i);
    copy_vectors(tree, shape, own, vectors);
    while (!is_root(node.position, tree->n_shards)) {
        const join_node *left = n ? &join->nodes[n - 1] : NULL;
        if (left && are_siblings(left->position, node.position)) {
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
        } else if (!is_only_child(node.position, tree->n_shards)) {
            break;
        }
        node.position = parent_of(node.position);
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
