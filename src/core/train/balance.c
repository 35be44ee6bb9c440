/* Shards of nearly equal cost: longest processing time first (Graham 1969, "Bounds on Multiprocessing Timing
 * Anomalies"). Sentences are assigned in descending order of cost, each to the batch with the lowest cost
 * among those with space for it. */
#include <stdlib.h>
#include <string.h>

#include "train/batches.h"

/* Length of a sentence at which attention costs about as much as the other operations. */
static const double ATTENTION_LENGTH = 1024;

typedef struct item {
    double cost;
    int64_t position; /* in the original order */
    int64_t source, target;
    int64_t batch;
} item;

typedef struct load {
    double cost;
    int64_t source, target, n;
} load;

double nm_batches_cost(const nm_batching *batching, int64_t example)
{
    double s = (double)nm_corpus_length(batching->source, example),
           t = batching->target ? (double)nm_corpus_length(batching->target, example) : 0;
    return s + t + (s * s + t * t + s * t) / ATTENTION_LENGTH;
}

static int compare_descending(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->cost < y->cost || x->cost > y->cost)
        return x->cost < y->cost ? 1 : -1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static bool fits(const nm_batching *b, const load *to, const item *one)
{
    return to->source + one->source <= b->max_tokens && to->target + one->target <= b->max_tokens &&
           (!b->max_examples || to->n < b->max_examples);
}

/* Assigns items to batches. False if an item does not fit into any batch. */
static bool assign(const nm_batching *batching, item *items, int64_t n_items, load *loads, int64_t n_batches)
{
    for (int64_t i = 0; i < n_items; i++) {
        int64_t best = -1;
        for (int64_t k = 0; k < n_batches; k++)
            if (fits(batching, &loads[k], &items[i]) && (best < 0 || loads[k].cost < loads[best].cost))
                best = k;
        if (best < 0)
            return false;
        items[i].batch = best;
        loads[best].cost += items[i].cost;
        loads[best].source += items[i].source;
        loads[best].target += items[i].target;
        loads[best].n++;
    }
    return true;
}

void nm_batches_balance(nm_batches *batches, int64_t first, int64_t n)
{
    const nm_batching *b = &batches->batching;
    const int64_t begin = batches->starts[first], n_items = batches->starts[first + n] - begin;
    NM_AUTO_FREE item *items = nm_allocate((size_t)n_items * sizeof *items);
    NM_AUTO_FREE load *loads = nm_allocate((size_t)n * sizeof *loads);
    NM_AUTO_FREE int64_t *order = nm_allocate((size_t)n_items * sizeof *order),
                         *batch_of = nm_allocate((size_t)n_items * sizeof *batch_of);
    int64_t at = 0;
    memcpy(order, batches->order + begin, (size_t)n_items * sizeof *order);
    for (int64_t i = 0; i < n_items; i++)
        items[i] = (item){.cost = nm_batches_cost(b, order[i]),
                          .position = i,
                          .source = nm_corpus_length(b->source, order[i]),
                          .target = b->target ? nm_corpus_length(b->target, order[i]) : 0};
    qsort(items, (size_t)n_items, sizeof *items, compare_descending);
    bool assigned = assign(b, items, n_items, loads, n);
    for (int64_t i = 0; i < n_items; i++)
        batch_of[items[i].position] = items[i].batch;
    for (int64_t k = 0; assigned && k < n; k++) {
        batches->starts[first + k] = begin + at;
        for (int64_t i = 0; i < n_items; i++)
            if (batch_of[i] == k)
                batches->order[begin + at++] = order[i];
    }
}
