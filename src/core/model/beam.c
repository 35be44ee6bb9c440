/* Each step runs the decoder on the unfinished hypotheses of all sentences, ranks their successors, and
 * applies the rule. Node i of the tree of decoder inputs is row i of the KV cache. */
#include "model/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "model/token_sampling.h"

double nm_length_penalty(const nm_decode_options *options, int32_t n)
{
    return pow(options->length_penalty == NM_PENALTY_GNMT ? (5.0 + n) / 6.0 : n, options->alpha);
}

typedef struct beam_node { /* a decoder input */
    int32_t parent, id;
    double token_score;
} beam_node;

typedef struct beam_search {
    nm_token_scorer *scorer;
    const nm_beam_rule *rule;
    const nm_decode_options *options;
    const nm_special_tokens *special;
    const nm_packing *sources;
    const nm_id_list *prefixes;
    const nm_constraints *constraints; /* of each source; NULL: none */
    int32_t *bank_sizes;               /* [maximum number of constraint tokens of a source + 1] */
    uint64_t *hashes;                  /* [sources] hashes of their tokens, for sampling */
    nm_beam_sentence *sentences;       /* [sources][groups] */
    nm_beam_entry *entries;            /* storage of all live and finals */
    nm_beam_candidate *candidates;
    beam_node *nodes;
    size_t n_nodes, nodes_capacity;
    nm_sample_candidate *sampled;           /* [V] */
    int32_t groups, beam;                   /* beam: size of a group */
    int32_t position;                       /* number of decoder inputs of a hypothesis before this step */
    const nm_beam_entry **row_entries;      /* [n_rows] */
    const nm_constraints **row_constraints; /* [n_rows], of their sentences; NULL: none */
    int32_t *history;                       /* [position], workspace of adjust_row */
    bool *repeated;                         /* [V], workspace of penalize, all false between calls */
    size_t history_capacity, row_entries_capacity, row_constraints_capacity;
    int32_t first_node;                                                           /* of the step */
    int32_t *ids, *given, *self_rows, *self_offsets, *cross_rows, *cross_offsets; /* of the step */
    size_t n_rows, rows_capacity, given_capacity, n_self, self_capacity, n_cross, cross_capacity;
} beam_search;

static void fairseq_choose(nm_beam_sentence *sentence, const nm_beam_candidate *candidates, int32_t n,
                           int32_t beam, int32_t n_tokens)
{
    sentence->n_live = 0;
    for (int32_t i = 0; i < n && i < 2 * beam; i++) {
        const nm_beam_entry *entry = &candidates[i].entry;
        if (!entry->finished && sentence->n_live < beam)
            sentence->live[sentence->n_live++] = *entry;
        else if (entry->finished && i < beam && sentence->n_finals < beam)
            sentence->finals[sentence->n_finals++] = *entry;
    }
    sentence->done = sentence->n_finals == beam || n_tokens > sentence->limit || sentence->n_live == 0;
}

static void tears_choose(nm_beam_sentence *sentence, const nm_beam_candidate *candidates, int32_t n,
                         int32_t beam, int32_t n_tokens)
{
    bool all_finished = true;
    sentence->n_live = n < beam ? n : beam;
    for (int32_t i = 0; i < sentence->n_live; i++) {
        sentence->live[i] = candidates[i].entry;
        all_finished &= candidates[i].entry.finished;
    }
    sentence->done = all_finished || n_tokens >= sentence->limit;
    if (!sentence->done)
        return;
    sentence->n_finals = sentence->n_live;
    for (int32_t i = 0; i < sentence->n_live; i++)
        sentence->finals[i] = sentence->live[i];
}

const nm_beam_rule nm_beam_fairseq = {
    .name = "fairseq", .candidates = 2, .forces_eos = true, .choose = fairseq_choose};
const nm_beam_rule nm_beam_tears = {
    .name = "tears", .candidates = 1, .keeps_finished = true, .ranks_by_score = true, .choose = tears_choose};

/* Appends the cache rows that node `last` attends to, oldest first. */
static void list_ancestors(beam_search *s, int32_t last)
{
    size_t length = 0;
    for (int32_t node = last; node >= 0; node = s->nodes[node].parent)
        length++;
    NM_RESERVE(s->self_rows, s->n_self + length, s->self_capacity);
    s->n_self += length;
    size_t at = s->n_self;
    for (int32_t node = last; node >= 0; node = s->nodes[node].parent)
        s->self_rows[--at] = node;
}

static void list_source(beam_search *s, int32_t sentence)
{
    for (int32_t i = s->sources->offsets[sentence]; i < s->sources->offsets[sentence + 1]; i++) {
        NM_APPEND(s->cross_rows, s->n_cross, s->cross_capacity, i);
    }
}

/* The token of the prefix at this step, or NM_TARGET_IGNORED after it. */
static int32_t given_token(const beam_search *s, int32_t sentence)
{
    const nm_id_list *prefix = s->prefixes ? &s->prefixes[sentence / s->groups] : NULL;
    return prefix && s->position < prefix->n ? prefix->ids[s->position] : NM_TARGET_IGNORED;
}

static void add_input(beam_search *s, int32_t sentence, const nm_beam_entry *entry)
{
    NM_APPEND(s->nodes, s->n_nodes, s->nodes_capacity,
              (beam_node){entry->node, entry->id, entry->token_score});
    size_t capacity[2] = {s->rows_capacity, s->rows_capacity};
    NM_GROW(s->ids, s->n_rows + 1, capacity[0]);
    NM_GROW(s->self_offsets, s->n_rows + 1, capacity[1]);
    NM_GROW(s->cross_offsets, s->n_rows + 1, s->rows_capacity);
    if (s->prefixes) {
        NM_GROW(s->given, s->n_rows, s->given_capacity);
        s->given[s->n_rows] = given_token(s, sentence);
    }
    NM_GROW(s->row_entries, s->n_rows, s->row_entries_capacity);
    NM_GROW(s->row_constraints, s->n_rows, s->row_constraints_capacity);
    s->row_entries[s->n_rows] = entry;
    s->row_constraints[s->n_rows] = s->constraints ? &s->constraints[sentence / s->groups] : NULL;
    s->ids[s->n_rows++] = entry->id;
    list_ancestors(s, (int32_t)s->n_nodes - 1);
    list_source(s, sentence / s->groups);
    s->self_offsets[s->n_rows] = (int32_t)s->n_self;
    s->cross_offsets[s->n_rows] = (int32_t)s->n_cross;
}

/* Lists the decoder inputs of the next step; returns the node, which is the cache row, of the first. */
static int32_t list_inputs(beam_search *s)
{
    int32_t first_node = (int32_t)s->n_nodes;
    s->n_rows = s->n_self = s->n_cross = 0;
    for (int32_t i = 0; i < s->sources->n_seqs * s->groups; i++) {
        nm_beam_sentence *sentence = &s->sentences[i];
        sentence->first_row = (int32_t)s->n_rows;
        for (int32_t e = 0; !sentence->done && e < sentence->n_live; e++)
            if (!sentence->live[e].finished)
                add_input(s, i, &sentence->live[e]);
    }
    if (s->n_rows)
        s->self_offsets[0] = s->cross_offsets[0] = 0;
    return first_node;
}

/* Writes the tokens of the hypothesis of a row to s->history; returns their number. */
static int32_t list_history(beam_search *s, int32_t row)
{
    int32_t n = s->position, at = n;
    NM_RESERVE(s->history, (size_t)n, s->history_capacity);
    for (int32_t node = s->first_node + row; at > 0; node = s->nodes[node].parent)
        s->history[--at] = s->nodes[node].id;
    return n;
}

/* The repetition penalty r of Keskar et al. 2019, section 4.1, on the logits x as in CTranslate2: each token
 * of the history, once, has the logit
 *     x / r   if x > 0
 *     x r     otherwise
 * and the log probabilities are normalized again. */
static void penalize(beam_search *s, int32_t n, const double *logits, double *log_p)
{
    const double r = s->options->repetition_penalty;
    const int32_t words = s->scorer->vocab_size;
    for (int32_t i = 0; i < n; i++) {
        const int32_t id = s->history[i];
        const double x = logits ? logits[id] : log_p[id];
        if (!s->repeated[id] && log_p[id] > -INFINITY)
            log_p[id] += (x > 0 ? x / r : x * r) - x;
        s->repeated[id] = true;
    }
    double high = -INFINITY, sum = 0;
    for (int32_t v = 0; v < words; v++)
        high = log_p[v] > high ? log_p[v] : high;
    for (int32_t v = 0; v < words; v++)
        sum += exp(log_p[v] - high);
    for (int32_t v = 0; v < words && high > -INFINITY; v++)
        log_p[v] -= high + log(sum);
    for (int32_t i = 0; i < n; i++)
        s->repeated[s->history[i]] = false;
}

/* No n-gram twice (Paulus et al. 2018), as in fairseq: the tokens that would repeat one have no probability,
 * which is not given to other tokens. Those that continue a constraint are exempt. */
static void block_ngrams(beam_search *s, int32_t row, int32_t n, double *log_p)
{
    const int32_t size = (int32_t)s->options->no_repeat_ngram_size, context = size - 1;
    const nm_constraints *constraints = s->row_constraints[row];
    int32_t exempt[NM_PHRASES_MAX];
    int32_t n_exempt =
        constraints ? nm_constraints_next(constraints, s->row_entries[row]->constraints, exempt) : 0;
    for (int32_t at = 0; at + context < n; at++) {
        const int32_t id = s->history[at + context];
        if (memcmp(s->history + at, s->history + n - context, (size_t)context * sizeof *s->history))
            continue;
        bool allowed = false;
        for (int32_t i = 0; i < n_exempt; i++)
            allowed |= exempt[i] == id;
        if (!allowed)
            log_p[id] = -INFINITY;
    }
}

static void adjust_row(void *context, int32_t row, const double *logits, double *log_p)
{
    beam_search *s = context;
    int32_t n = list_history(s, row);
    if (s->options->repetition_penalty != 1)
        penalize(s, n, logits, log_p);
    if (s->options->no_repeat_ngram_size)
        block_ngrams(s, row, n, log_p);
}

static bool limits_repetitions(const nm_decode_options *options)
{
    return options->repetition_penalty != 1 || options->no_repeat_ngram_size;
}

static int by_rank(const void *a, const void *b)
{
    const nm_beam_candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Number of hypotheses of earlier groups of the sentence that were extended by the token at this step. */
static int32_t chosen_before(const beam_search *s, const nm_beam_sentence *sentence, int32_t id,
                             int32_t first_node)
{
    int32_t group = (int32_t)(sentence - s->sentences) % s->groups, n = 0;
    for (const nm_beam_sentence *other = sentence - group; other < sentence; other++)
        for (int32_t e = 0; e < other->n_live; e++)
            n += other->live[e].node >= first_node && other->live[e].id == id;
    return n;
}

static void add_candidate(beam_search *s, int32_t *n, const nm_beam_entry *entry, int32_t parent,
                          int32_t rank, double diversity)
{
    double key = s->rule->ranks_by_score ? entry->score : entry->sum;
    s->candidates[(*n)++] =
        (nm_beam_candidate){.entry = *entry, .key = key - diversity, .parent = parent, .rank = rank};
}

/* Whether the search may choose the token; a prefix and constraints may contain others. */
static bool may_be_output(const beam_search *s, int32_t id)
{
    return id != s->special->pad && (id != s->special->unk || s->options->unknown) &&
           !(s->special->excluded && s->special->excluded[id]);
}

static const nm_constraints *constraints_of(const beam_search *s, const nm_beam_sentence *sentence)
{
    return s->constraints ? &s->constraints[(sentence - s->sentences) / s->groups] : NULL;
}

static nm_beam_entry extended(const beam_search *s, const nm_beam_sentence *sentence,
                              const nm_beam_entry *entry, int32_t node, int32_t id, double value)
{
    const nm_constraints *constraints = constraints_of(s, sentence);
    double sum = entry->sum + value;
    nm_beam_entry next = {.node = node,
                          .id = id,
                          .token_score = value,
                          .sum = sum,
                          .score = sum / nm_length_penalty(s->options, s->position + 1),
                          .finished = id == s->special->eos};
    if (constraints)
        next.constraints = nm_constraints_advance(constraints, entry->constraints, id);
    return next;
}

/* Appends the successors by tokens that continue constraints, except those among the `added` successors
 * appended before. */
static void extend_constraints(beam_search *s, int32_t *n, const nm_beam_sentence *sentence, int32_t parent,
                               int32_t row, int32_t node, int32_t added)
{
    const nm_beam_entry *entry = &sentence->live[parent];
    const double *all = s->scorer->all + (size_t)row * (size_t)s->scorer->vocab_size;
    int32_t ids[NM_PHRASES_MAX];
    int32_t n_ids = nm_constraints_next(constraints_of(s, sentence), entry->constraints, ids);
    const nm_beam_candidate *before = s->candidates + *n - added;
    for (int32_t i = 0; i < n_ids; i++) {
        bool known = !(all[ids[i]] > -INFINITY);
        for (int32_t c = 0; c < added; c++)
            known |= before[c].entry.id == ids[i];
        const nm_beam_entry next = extended(s, sentence, entry, node, ids[i], all[ids[i]]);
        if (!known)
            add_candidate(s, n, &next, parent, s->scorer->k + i, 0);
    }
}

/* Appends the successors of the hypothesis at index `parent` of the beam, which is row `row` of the step. */
static void extend(beam_search *s, int32_t *n, const nm_beam_sentence *sentence, int32_t parent, int32_t row,
                   int32_t first_node)
{
    const nm_token_scorer *scorer = s->scorer;
    const nm_beam_entry *entry = &sentence->live[parent];
    int32_t given = given_token(s, (int32_t)(sentence - s->sentences));
    if (given != NM_TARGET_IGNORED) {
        const nm_beam_entry next =
            extended(s, sentence, entry, first_node + row, given, scorer->given_values[row]);
        add_candidate(s, n, &next, parent, 0, 0);
        return;
    }
    const nm_constraints *constraints = constraints_of(s, sentence);
    const bool may_end = !constraints || nm_constraints_are_met(constraints, entry->constraints);
    if (s->rule->forces_eos && s->position >= sentence->limit) {
        const nm_beam_entry next =
            extended(s, sentence, entry, first_node + row, s->special->eos, scorer->eos_values[row]);
        if (scorer->eos_values[row] > -INFINITY && may_end)
            add_candidate(s, n, &next, parent, 0, 0);
        return;
    }
    bool diverse = s->groups > 1 && s->options->diverse_strength != 0;
    int32_t limit = diverse ? scorer->k : s->rule->candidates * s->beam, added = 0;
    for (int32_t rank = 0; rank < scorer->k && added < limit; rank++) {
        size_t at = (size_t)row * (size_t)scorer->k + (size_t)rank;
        int32_t id = scorer->columns[at];
        double value = scorer->values[at];
        if (!may_be_output(s, id) || !(value > -INFINITY) ||
            (id == s->special->eos && (s->position < s->options->min_length || !may_end)))
            continue;
        const nm_beam_entry next = extended(s, sentence, entry, first_node + row, id, value);
        double lower =
            diverse ? s->options->diverse_strength * chosen_before(s, sentence, id, first_node) : 0;
        add_candidate(s, n, &next, parent, rank, lower);
        added++;
    }
    if (constraints)
        extend_constraints(s, n, sentence, parent, row, first_node + row, added);
}

static int by_bank(const void *a, const void *b)
{
    const nm_beam_candidate *x = a, *y = b;
    if (x->bank_rank != y->bank_rank)
        return x->bank_rank < y->bank_rank ? -1 : 1;
    int32_t more = x->entry.constraints.n_met, less = y->entry.constraints.n_met;
    return (more < less) - (more > less);
}

/* Orders the n sorted candidates by their rank in their bank; of equal ranks those with more constraint
 * tokens met first. */
static void order_by_bank(beam_search *s, const nm_constraints *constraints, int32_t n)
{
    size_t banks = (size_t)nm_constraints_tokens(constraints) + 1;
    memset(s->bank_sizes, 0, banks * sizeof *s->bank_sizes);
    for (int32_t i = 0; i < n; i++)
        s->candidates[i].bank_rank = s->bank_sizes[s->candidates[i].entry.constraints.n_met]++;
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_bank);
}

static void advance(beam_search *s, nm_beam_sentence *sentence, int32_t first_node)
{
    int32_t n = 0, row = sentence->first_row;
    for (int32_t e = 0; e < sentence->n_live; e++) {
        if (!sentence->live[e].finished)
            extend(s, &n, sentence, e, row++, first_node);
        else if (s->rule->keeps_finished)
            add_candidate(s, &n, &sentence->live[e], e, 0, 0);
    }
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_rank);
    if (s->constraints)
        order_by_bank(s, constraints_of(s, sentence), n);
    s->rule->choose(sentence, s->candidates, n, s->beam, s->position + 1);
}

/* Samples the next token; eos is forced at the length limit. */
static void sample_next(beam_search *s, nm_beam_sentence *sentence, int32_t first_node)
{
    const nm_decode_options *o = s->options;
    int32_t number = (int32_t)(sentence - s->sentences), words = s->scorer->vocab_size, n = 0;
    int32_t id = given_token(s, number);
    const double *all = s->scorer->all + (size_t)sentence->first_row * (size_t)words;
    if (id == NM_TARGET_IGNORED && s->position >= sentence->limit)
        id = s->special->eos;
    if (id == NM_TARGET_IGNORED) {
        const nm_sampling how = {.temperature = o->temperature,
                                 .top_p = o->top_p,
                                 .min_p = o->min_p,
                                 .top_k = o->top_k,
                                 .seed = (uint64_t)o->seed};
        for (int32_t v = 0; v < words; v++)
            if (may_be_output(s, v) && all[v] > -INFINITY &&
                (v != s->special->eos || s->position >= o->min_length))
                s->sampled[n++] = (nm_sample_candidate){all[v], v};
        const nm_sample_position at = {(uint32_t)(number % s->groups), (uint32_t)s->position,
                                       s->hashes[number / s->groups]};
        id = n ? nm_token_sample(&how, s->sampled, n, at) : s->special->eos;
    }
    sentence->live[0] =
        extended(s, sentence, &sentence->live[0], first_node + sentence->first_row, id, all[id]);
    sentence->done = id == s->special->eos;
    if (sentence->done)
        sentence->finals[sentence->n_finals++] = sentence->live[0];
}

static nm_hypothesis hypothesis_of(const beam_search *s, const nm_beam_entry *entry)
{
    int32_t n = 1;
    for (int32_t node = entry->node; s->nodes[node].parent >= 0; node = s->nodes[node].parent)
        n++;
    nm_hypothesis out = {.ids = nm_allocate((size_t)n * sizeof(int32_t)),
                         .n = n,
                         .score = entry->score,
                         .token_scores = nm_allocate((size_t)n * sizeof(double))};
    out.ids[n - 1] = entry->id;
    out.token_scores[n - 1] = entry->token_score;
    for (int32_t node = entry->node, i = n - 2; i >= 0; node = s->nodes[node].parent, i--) {
        out.ids[i] = s->nodes[node].id;
        out.token_scores[i] = s->nodes[node].token_score;
    }
    return out;
}

static bool have_equal_tokens(const beam_search *s, const nm_beam_entry *a, const nm_beam_entry *b)
{
    const beam_node *nodes = s->nodes;
    int32_t x = a->node, y = b->node;
    bool equal = a->id == b->id;
    for (; equal && x != y; x = nodes[x].parent, y = nodes[y].parent)
        equal = x >= 0 && y >= 0 && nodes[x].id == nodes[y].id;
    return equal;
}

/* Removes hypotheses of groups of beam search that another group has found, too. Returns the number of the
 * others. */
static int32_t remove_equal(const beam_search *s, const nm_beam_entry **best, int32_t n)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        bool found = false;
        for (int32_t k = 0; k < kept; k++)
            found |= have_equal_tokens(s, best[k], best[i]);
        if (!found)
            best[kept++] = best[i];
    }
    return kept;
}

/* The best finished hypotheses of all groups of a sentence. */
static void collect(const beam_search *s, const nm_beam_sentence *groups, nm_translation *out)
{
    NM_AUTO_FREE const nm_beam_entry **best =
        nm_allocate((size_t)s->groups * (size_t)s->beam * sizeof(const nm_beam_entry *));
    int32_t n = 0, nbest = (int32_t)s->options->nbest;
    for (int32_t g = 0; g < s->groups; g++)
        for (int32_t i = 0; i < groups[g].n_finals; i++) { /* stable sort by score */
            int32_t at = n++;
            for (; at > 0 && best[at - 1]->score < groups[g].finals[i].score; at--)
                best[at] = best[at - 1];
            best[at] = &groups[g].finals[i];
        }
    if (s->groups > 1 && s->options->search != NM_SEARCH_SAMPLE)
        n = remove_equal(s, best, n);
    out->n = n < nbest ? n : nbest;
    out->list = nm_allocate((size_t)out->n * sizeof *out->list);
    for (int32_t i = 0; i < out->n; i++)
        out->list[i] = hypothesis_of(s, best[i]);
}

static void search_begin(beam_search *s, const nm_beam_batch *batch)
{
    size_t n = (size_t)s->sources->n_seqs * (size_t)s->groups, beam = (size_t)s->beam;
    s->sentences = nm_allocate(n * sizeof *s->sentences);
    s->entries = nm_allocate(2 * n * beam * sizeof *s->entries);
    if (limits_repetitions(s->options))
        s->repeated = nm_allocate((size_t)s->scorer->vocab_size * sizeof *s->repeated);
    size_t successors = (size_t)s->scorer->k + 1 + (s->constraints ? NM_PHRASES_MAX : 0), banks = 1;
    s->candidates = nm_allocate(beam * successors * sizeof *s->candidates);
    for (int32_t i = 0; s->constraints && i < s->sources->n_seqs; i++) {
        size_t tokens = (size_t)nm_constraints_tokens(&s->constraints[i]);
        banks = tokens + 1 > banks ? tokens + 1 : banks;
    }
    s->bank_sizes = nm_allocate(banks * sizeof *s->bank_sizes);
    for (size_t i = 0; i < n; i++) {
        nm_beam_sentence *sentence = &s->sentences[i];
        *sentence = (nm_beam_sentence){.live = s->entries + 2 * i * beam,
                                       .finals = s->entries + (2 * i + 1) * beam,
                                       .n_live = 1,
                                       .limit = batch->limits[i / (size_t)s->groups]};
        sentence->live[0] = (nm_beam_entry){.node = -1, .id = s->special->first};
    }
    if (s->options->search != NM_SEARCH_SAMPLE)
        return;
    s->sampled = nm_allocate((size_t)s->scorer->vocab_size * sizeof *s->sampled);
    s->hashes = nm_allocate((size_t)s->sources->n_seqs * sizeof *s->hashes);
    for (int32_t i = 0; i < s->sources->n_seqs; i++) {
        const int32_t *at = s->sources->offsets + i;
        s->hashes[i] = XXH3_64bits(batch->ids + at[0], (size_t)(at[1] - at[0]) * sizeof *batch->ids);
    }
}

static void search_end(beam_search *s)
{
    void *blocks[] = {s->sentences, s->entries,        s->candidates, s->nodes,         s->ids,
                      s->self_rows, s->self_offsets,   s->cross_rows, s->cross_offsets, s->given,
                      s->sampled,   s->hashes,         s->bank_sizes, s->row_entries,   s->history,
                      s->repeated,  s->row_constraints};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

static nm_status search_step(beam_search *s, bool *more, nm_error *err)
{
    int32_t first_node = list_inputs(s);
    *more = s->n_rows > 0;
    if (!*more)
        return NM_OK;
    nm_decode_step step = {.n = (int32_t)s->n_rows,
                           .position = s->position,
                           .ids = s->ids,
                           .first_row = first_node,
                           .self_rows = s->self_rows,
                           .self_offsets = s->self_offsets,
                           .cross_rows = s->cross_rows,
                           .cross_offsets = s->cross_offsets,
                           .given = s->given,
                           .adjust = limits_repetitions(s->options) ? adjust_row : NULL,
                           .adjust_context = s,
                           .adjusts_logits = s->options->repetition_penalty != 1,
                           .scores = s->options->search == NM_SEARCH_SAMPLE ? NM_SCORES_ALL
                                     : s->constraints || limits_repetitions(s->options)
                                         ? NM_SCORES_ALL_AND_BEST
                                         : NM_SCORES_BEST};
    s->first_node = first_node;
    NM_TRY(nm_token_scorer_step(s->scorer, &step, err));
    for (int32_t i = 0; i < s->sources->n_seqs * s->groups; i++) {
        if (s->sentences[i].done)
            continue;
        if (s->options->search == NM_SEARCH_SAMPLE)
            sample_next(s, &s->sentences[i], first_node);
        else
            advance(s, &s->sentences[i], first_node);
    }
    s->position++;
    return NM_OK;
}

/* Number of groups of the beam; for sampling, the number of samples. */
static int32_t groups_of(const nm_decode_options *options)
{
    int64_t groups = options->search == NM_SEARCH_SAMPLE ? options->nbest : options->diverse_groups;
    return groups > 1 ? (int32_t)groups : 1;
}

int32_t nm_beam_tokens(const nm_beam_rule *rule, const nm_decode_options *options)
{
    /* Two more than the rule uses, because pad and an eos before min_length may be among the best ones; one
     * more for unk if it may not be output; and one more per hypothesis of the other groups, because
     * diversity may rank its token lower. */
    int64_t of_group = options->beam / groups_of(options);
    if (options->search == NM_SEARCH_SAMPLE)
        return 1;
    return (int32_t)(rule->candidates * of_group + 2 + !options->unknown + (options->beam - of_group));
}

nm_status nm_beam_run(nm_token_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_special_tokens *special, const nm_beam_batch *batch, nm_translation *out,
                      nm_error *err)
{
    int32_t groups = groups_of(options);
    beam_search s = {.scorer = scorer,
                     .rule = rule,
                     .options = options,
                     .special = special,
                     .sources = batch->sources,
                     .prefixes = batch->prefixes,
                     .constraints = batch->constraints,
                     .groups = groups,
                     .beam = options->search == NM_SEARCH_SAMPLE ? 1 : (int32_t)options->beam / groups};
    NM_TRY(nm_token_scorer_start(scorer, batch->sources, batch->ids, err));
    search_begin(&s, batch);
    bool more = true;
    nm_status status = NM_OK;
    while (more && status == NM_OK)
        status = search_step(&s, &more, err);
    for (int32_t i = 0; i < s.sources->n_seqs && status == NM_OK; i++)
        collect(&s, &s.sentences[(size_t)i * (size_t)groups], &out[i]);
    search_end(&s);
    return status;
}
