/* The probabilities of a source token are a hash table from target tokens. For each chunk of pairs, one pass
 * computes the sum over i of t(f_j | e_i) for every target token, and a second one adds t(f_j | e_i) / sum to
 * the expected counts. In the second pass the source tokens are divided among the threads; each adds to the
 * counts of its source tokens in the order of the pairs.
 */
#include "data/lexical_table.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include "base/memory.h"

enum { CHUNK_TOKENS = 1 << 20, FIRST_CELLS = 8 };

typedef struct cell {
    int32_t target; /* NO_TARGET: empty */
    float probability;
    double count;
} cell;
enum { NO_TARGET = -1 };

typedef struct distribution { /* t(. | e): open addressing with linear probing */
    cell *cells;
    uint32_t n, capacity; /* used cells; all cells, a power of two or 0 */
} distribution;

typedef struct model {
    const nm_corpus *sides;
    const nm_lexical_config *config;
    distribution *of; /* [source_size + 1]; the last one is that of the empty word */
    int64_t n_pairs;
    double *sums; /* [target tokens of a chunk] */
    size_t sums_capacity;
    double log_likelihood;
    int64_t n_targets;
    bool first; /* iteration: all probabilities are equal */
} model;

static uint32_t slot_of(const distribution *d, int32_t target)
{
    uint32_t at = (uint32_t)target * 2654435769u >> 7 & (d->capacity - 1);
    while (d->cells[at].target != target && d->cells[at].target != NO_TARGET)
        at = (at + 1) & (d->capacity - 1);
    return at;
}

static void enlarge(distribution *d)
{
    const distribution old = *d;
    d->capacity = old.capacity ? 2 * old.capacity : FIRST_CELLS;
    d->cells = nm_allocate(d->capacity * sizeof *d->cells);
    for (uint32_t i = 0; i < d->capacity; i++)
        d->cells[i].target = NO_TARGET;
    for (uint32_t i = 0; i < old.capacity; i++)
        if (old.cells[i].target != NO_TARGET)
            d->cells[slot_of(d, old.cells[i].target)] = old.cells[i];
    free(old.cells);
}

static void add_count(distribution *d, int32_t target, double count)
{
    if (4 * (d->n + 1) > 3 * d->capacity)
        enlarge(d);
    cell *c = &d->cells[slot_of(d, target)];
    d->n += c->target == NO_TARGET;
    c->target = target;
    c->count += count;
}

/* All pairs of tokens that occur together have a cell after the first iteration. */
static double probability(const model *m, int32_t source, int32_t target)
{
    const distribution *d = &m->of[source];
    return m->first ? 1 : (double)d->cells[slot_of(d, target)].probability;
}

static void normalize(distribution *d)
{
    double sum = 0;
    for (uint32_t i = 0; i < d->capacity; i++)
        sum += d->cells[i].count;
    for (uint32_t i = 0; i < d->capacity && sum > 0; i++) {
        d->cells[i].probability = (float)(d->cells[i].count / sum);
        d->cells[i].count = 0;
    }
}

typedef struct text {
    const int32_t *ids;
    int32_t n; /* without eos */
} text;

static text text_of(const model *m, int64_t pair, int side)
{
    const nm_corpus *corpus = &m->sides[side];
    /* at equal distances if not all are used */
    int64_t i =
        m->n_pairs == corpus->n ? pair : (int64_t)((double)pair * (double)corpus->n / (double)m->n_pairs);
    text out = {corpus->ids + corpus->offsets[i], (int32_t)nm_corpus_length(corpus, i)};
    int32_t eos = side ? m->config->target_eos : m->config->source_eos;
    out.n -= out.n > 0 && out.ids[out.n - 1] == eos;
    return out;
}

/* Sums over the source tokens and the empty word for each target token. */
static void sum_pair(const model *m, int64_t pair, double *sums)
{
    const text source = text_of(m, pair, 0), target = text_of(m, pair, 1);
    for (int32_t j = 0; j < target.n; j++) {
        sums[j] = probability(m, m->config->source_size, target.ids[j]);
        for (int32_t i = 0; i < source.n; i++)
            sums[j] += probability(m, source.ids[i], target.ids[j]);
    }
}

static void count_token(model *m, int32_t source, text target, const double *sums)
{
    for (int32_t j = 0; j < target.n; j++) {
        double share = sums[j] > 0 ? probability(m, source, target.ids[j]) / sums[j] : 0;
        add_count(&m->of[source], target.ids[j], share);
    }
}

/* Adds the expected counts of the source tokens of one thread. */
static void count_pair(model *m, int64_t pair, int32_t thread, int32_t threads, const double *sums)
{
    const text source = text_of(m, pair, 0), target = text_of(m, pair, 1);
    if (m->config->source_size % threads == thread)
        count_token(m, m->config->source_size, target, sums);
    for (int32_t i = 0; i < source.n; i++)
        if (source.ids[i] % threads == thread)
            count_token(m, source.ids[i], target, sums);
}

/* The pairs first .. end - 1; offsets: of their target tokens in m->sums. */
static void run_chunk(model *m, int64_t first, int64_t end, const int64_t *offsets)
{
    const int32_t threads = m->config->threads;
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(dynamic, 64)
        for (int64_t i = first; i < end; i++)
            sum_pair(m, i, m->sums + offsets[i - first]);
        for (int32_t part = omp_get_thread_num(); part < threads; part += omp_get_num_threads())
            for (int64_t i = first; i < end; i++)
                count_pair(m, i, part, threads, m->sums + offsets[i - first]);
    }
    for (int64_t i = first; i < end; i++) {
        const text source = text_of(m, i, 0);
        for (int64_t j = offsets[i - first]; j < offsets[i - first + 1]; j++)
            m->log_likelihood += m->sums[j] > 0 ? log(m->sums[j] / (source.n + 1)) : 0;
    }
}

static nm_status run_iteration(model *m, nm_error *err)
{
    const nm_lexical_config *config = m->config;
    NM_AUTO_FREE int64_t *offsets = NULL;
    size_t capacity = 0;
    nm_status status = NM_OK;
    m->log_likelihood = 0;
    m->n_targets = 0;
    for (int64_t first = 0, end; first < m->n_pairs && status == NM_OK; first = end) {
        int64_t tokens = 0;
        for (end = first; end < m->n_pairs && tokens < CHUNK_TOKENS; end++) {
            NM_RESERVE(offsets, (size_t)(end - first) + 2, capacity);
            offsets[end - first] = tokens;
            offsets[end - first + 1] = tokens += text_of(m, end, 1).n;
        }
        NM_RESERVE(m->sums, (size_t)tokens, m->sums_capacity);
        run_chunk(m, first, end, offsets);
        m->n_targets += tokens;
        status = nm_check_stop(config->stop, err);
    }
#pragma omp parallel for num_threads(config->threads) schedule(dynamic, 64)
    for (int32_t e = 0; e <= config->source_size; e++)
        normalize(&m->of[e]);
    m->first = false;
    return status;
}

static int more_probable(const void *a, const void *b)
{
    const nm_lexical_entry *x = a, *y = b;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
}

static void collect(const model *m, nm_lexical_table *table)
{
    const nm_lexical_config *config = m->config;
    size_t n = 0, capacity = 0;
    table->source_size = config->source_size;
    table->offsets = nm_allocate(((size_t)config->source_size + 1) * sizeof *table->offsets);
    for (int32_t e = 0; e < config->source_size; e++) {
        const distribution *d = &m->of[e];
        size_t begin = n;
        for (uint32_t i = 0; i < d->capacity; i++) {
            if (d->cells[i].target == NO_TARGET ||
                !((double)d->cells[i].probability >= config->min_probability))
                continue;
            NM_APPEND(table->entries, n, capacity,
                      (nm_lexical_entry){d->cells[i].target, d->cells[i].probability});
        }
        if (n > begin)
            qsort(table->entries + begin, n - begin, sizeof *table->entries, more_probable);
        if (n - begin > (size_t)config->best)
            n = begin + (size_t)config->best;
        table->offsets[e + 1] = n;
    }
}

nm_status nm_lexical_table_learn(nm_lexical_table *table, const nm_corpus sides[2],
                                 const nm_lexical_config *config, nm_error *err)
{
    *table = (nm_lexical_table){0};
    model m = {.sides = sides,
               .config = config,
               .n_pairs = sides[0].n < config->max_pairs ? sides[0].n : config->max_pairs,
               .first = true};
    if (!m.n_pairs)
        return nm_fail(err, NM_USAGE, "there are no training pairs");
    m.of = nm_allocate(((size_t)config->source_size + 1) * sizeof *m.of);
    nm_status status = NM_OK;
    for (int64_t i = 0; i < config->iterations && status == NM_OK; i++)
        status = run_iteration(&m, err);
    if (status == NM_OK)
        collect(&m, table);
    table->pairs = m.n_pairs;
    table->perplexity = m.n_targets ? exp(-m.log_likelihood / (double)m.n_targets) : 1;
    for (int32_t e = 0; e <= config->source_size; e++)
        free(m.of[e].cells);
    NM_FREE(m.of, m.sums);
    return status;
}

void nm_lexical_table_release(nm_lexical_table *table)
{
    NM_FREE(table->offsets, table->entries);
    *table = (nm_lexical_table){0};
}
