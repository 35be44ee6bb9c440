/* Exchange of gradients in buckets, overlapped with the last backward pass of a process. */
#include "train/shards_private.h"

#include <stdlib.h>

/* A range of the gradients, which is complete when the backward pass has finished `ready` nodes. */
typedef struct bucket {
    size_t first, n;
    int64_t ready;
} bucket;

enum { N_BUCKETS = 16 };

typedef struct nm_shard_overlap {
    nm_gradient_observer observer; /* first member: a pointer to the observer is a pointer to this struct */
    nm_shard_tree *tree;
    /* [params->n]: number of finished nodes at the last write to each gradient, in the dry run */
    int64_t *last;
    bucket buckets[N_BUCKETS]; /* in ascending order of ready */
    int32_t n_buckets;
    int32_t n_sent;   /* number of buckets sent in the current pass */
    int64_t finished; /* number of finished nodes of the pass */
    int64_t shard;    /* of the pass */
    bool planned;
    bool sent; /* the gradients of the current update are sent during the pass */
} nm_shard_overlap;

bool nm_shard_sends_during_pass(const nm_shard_tree *tree)
{
    return tree->overlap && tree->overlap->sent;
}

void nm_shard_overlap_start(nm_shard_tree *tree)
{
    if (tree->overlap)
        tree->overlap->sent = false;
}

void nm_shard_overlap_close(nm_shard_tree *tree)
{
    if (tree->overlap)
        free(tree->overlap->last);
    free(tree->overlap);
}

/* In pieces whose length fits the kernel's int32_t. */
void nm_shard_add_gradients(nm_shard_tree *tree, const void *earlier, size_t first, size_t n_elements)
{
    const size_t piece = (size_t)1 << 30, unit = nm_shard_unit(tree), end = first + n_elements;
    for (size_t at = first; at < end; at += piece) {
        size_t n = end - at < piece ? end - at : piece;
        char *grads = (char *)tree->params->grads + at * unit;
        NM_CALL(tree->params->backend, vec, .op = NM_VEC_LINEAR, .n = (int32_t)n,
                .a = (const char *)earlier + at * unit, .b = grads, .s = 1, .t = 1, .out = grads);
    }
}

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

/* Divides the parameters into buckets of consecutive ones with about 1/16 of the elements each. */
static void make_buckets(nm_shard_overlap *o)
{
    const nm_params *params = o->tree->params;
    const size_t size = params->n_elements / N_BUCKETS + 1;
    bucket *last = NULL;
    for (size_t i = 0; i < params->n; i++) {
        size_t first = params->list[i]->offset, end = nm_params_end(params, i);
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

/* Adds the gradients of waiting nodes to those of the last shard in this range, as `combine` does. Returns
 * the number of waiting nodes that remain. */
static int32_t combine_range(nm_shard_tree *tree, int64_t shard, size_t first, size_t n)
{
    int32_t n_left = tree->n_waiting;
    for (nm_shard_position node = {0, shard}; !nm_shard_is_root(node, tree->n_shards);
         node = nm_shard_parent(node)) {
        const nm_shard_node *left = n_left ? &tree->waiting[n_left - 1] : NULL;
        if (left && nm_shard_are_siblings((nm_shard_position){left->level, left->index}, node)) {
            nm_shard_add_gradients(tree, left->grads, first, n);
            n_left--;
        } else if (!nm_shard_is_only_child(node, tree->n_shards)) {
            break;
        }
    }
    return n_left;
}

/* The elements of a bucket that are in the part of a rank. */
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
    const size_t unit = nm_shard_unit(tree);
    const bucket own = intersect(tree, b, comm->rank);
    int32_t n_left = combine_range(tree, o->shard, b->first, b->n);
    size_t n = 0;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        const bucket theirs = intersect(tree, b, rank);
        if (rank == comm->rank)
            continue;
        for (int32_t node = inbox->first[rank]; node < inbox->first[rank + 1]; node++)
            inbox->messages[n++] = (nm_comm_message){
                rank, true, nm_shard_inbox_grads(tree, node) + (own.first - inbox->parts[comm->rank]) * unit,
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

void nm_shard_overlap_end(nm_shard_tree *tree)
{
    tree->overlap->finished = INT64_MAX;
    send_buckets(tree->overlap);
}

static void written_in_pass(nm_gradient_observer *observer, const void *grad)
{
    const nm_shard_overlap *o = (const nm_shard_overlap *)observer;
    const char *grads = o->tree->params->grads;
    for (int32_t i = 0; i < o->n_sent; i++) {
        const bucket *b = &o->buckets[i];
        NM_ASSERT((const char *)grad < grads + b->first * nm_shard_unit(o->tree) ||
                  (const char *)grad >= grads + (b->first + b->n) * nm_shard_unit(o->tree));
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
