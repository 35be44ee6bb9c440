/* Each step runs the decoder on the unfinished hypotheses of all sentences, ranks their successors, and applies the rule.
 * Node i of the tree of decoder inputs is row i of the KV cache. */
#include "decode/beam.h"

#include <math.h>
#include <stdlib.h>

typedef struct beam_node { /* a decoder input */
    int32_t parent, id;
    double token_score;
} beam_node;

typedef struct beam_search {
    nm_scorer *scorer;
    const nm_beam_rule *rule;
    const nm_decode_options *options;
    const nm_special_tokens *special;
    const nm_packing *sources;
    nm_beam_sentence *sentences;
    nm_beam_entry *entries; /* storage of all live and finals */
    nm_beam_candidate *candidates;
    beam_node *nodes;
    size_t n_nodes, nodes_capacity;
    int32_t beam, position; /* position: number of decoder inputs before this step */
    int32_t *ids, *self_rows, *self_offsets, *cross_rows, *cross_offsets; /* of the step */
    size_t n_rows, rows_capacity, n_self, self_capacity, n_cross, cross_capacity;
} beam_search;

/* ---- the rules ---- */

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

/* ---- decoder inputs ---- */

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
        NM_GROW(s->cross_rows, s->n_cross, s->cross_capacity);
        s->cross_rows[s->n_cross++] = i;
    }
}

static void add_input(beam_search *s, int32_t sentence, const nm_beam_entry *entry)
{
    NM_GROW(s->nodes, s->n_nodes, s->nodes_capacity);
    s->nodes[s->n_nodes++] = (beam_node){entry->node, entry->id, entry->token_score};
    size_t capacity[2] = {s->rows_capacity, s->rows_capacity};
    NM_GROW(s->ids, s->n_rows + 1, capacity[0]);
    NM_GROW(s->self_offsets, s->n_rows + 1, capacity[1]);
    NM_GROW(s->cross_offsets, s->n_rows + 1, s->rows_capacity);
    s->ids[s->n_rows++] = entry->id;
    list_ancestors(s, (int32_t)s->n_nodes - 1);
    list_source(s, sentence);
    s->self_offsets[s->n_rows] = (int32_t)s->n_self;
    s->cross_offsets[s->n_rows] = (int32_t)s->n_cross;
}

/* Lists the decoder inputs of the next step; returns the node, which is the cache row, of the first. */
static int32_t list_inputs(beam_search *s)
{
    int32_t first_node = (int32_t)s->n_nodes;
    s->n_rows = s->n_self = s->n_cross = 0;
    for (int32_t i = 0; i < s->sources->n_seqs; i++) {
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

/* ---- ranking ---- */

static int by_rank(const void *a, const void *b)
{
    const nm_beam_candidate *x = a, *y = b;
    if (x->key != y->key)
        return x->key > y->key ? -1 : 1;
    if (x->parent != y->parent)
        return x->parent < y->parent ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void add_candidate(beam_search *s, int32_t *n, const nm_beam_entry *entry, int32_t parent,
                          int32_t rank)
{
    s->candidates[(*n)++] =
        (nm_beam_candidate){*entry, s->rule->ranks_by_score ? entry->score : entry->sum, parent, rank};
}

/* Appends the successors of the hypothesis at index `parent` of the beam, which is this row of the step. */
static void extend(beam_search *s, int32_t *n, const nm_beam_sentence *sentence, int32_t parent, int32_t row,
                   int32_t first_node)
{
    const nm_scorer *scorer = s->scorer;
    int32_t n_tokens = s->position + 1, limit = s->rule->candidates * s->beam, added = 0;
    double before = sentence->live[parent].sum, penalty = nm_length_penalty(s->options, n_tokens);
    bool forced = s->rule->forces_eos && s->position >= sentence->limit;
    for (int32_t rank = 0; rank < (forced ? 1 : scorer->k) && added < limit; rank++) {
        size_t at = (size_t)row * (size_t)scorer->k + (size_t)rank;
        int32_t id = forced ? s->special->eos : scorer->columns[at];
        double value = forced ? scorer->eos_values[row] : scorer->values[at];
        bool ends = id == s->special->eos;
        if (id == s->special->pad || !(value > -INFINITY) ||
            (ends && !forced && s->position < s->options->min_length))
            continue;
        nm_beam_entry entry = {first_node + row, id, value, before + value, (before + value) / penalty, ends};
        add_candidate(s, n, &entry, parent, rank);
        added++;
    }
}

static void advance(beam_search *s, nm_beam_sentence *sentence, int32_t first_node)
{
    int32_t n = 0, row = sentence->first_row;
    for (int32_t e = 0; e < sentence->n_live; e++) {
        if (!sentence->live[e].finished)
            extend(s, &n, sentence, e, row++, first_node);
        else if (s->rule->keeps_finished)
            add_candidate(s, &n, &sentence->live[e], e, 0);
    }
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_rank);
    s->rule->choose(sentence, s->candidates, n, s->beam, s->position + 1);
}

/* ---- results ---- */

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

static void collect(const beam_search *s, const nm_beam_sentence *sentence, nm_translation *out)
{
    int32_t nbest = (int32_t)s->options->nbest;
    for (int32_t i = 1; i < sentence->n_finals; i++) { /* stable sort by score */
        nm_beam_entry entry = sentence->finals[i];
        int32_t at = i;
        for (; at > 0 && sentence->finals[at - 1].score < entry.score; at--)
            sentence->finals[at] = sentence->finals[at - 1];
        sentence->finals[at] = entry;
    }
    out->n = sentence->n_finals < nbest ? sentence->n_finals : nbest;
    out->list = nm_allocate((size_t)out->n * sizeof *out->list);
    for (int32_t i = 0; i < out->n; i++)
        out->list[i] = hypothesis_of(s, &sentence->finals[i]);
}

/* ---- search ---- */

static void search_begin(beam_search *s, const int32_t *limits)
{
    size_t n = (size_t)s->sources->n_seqs, beam = (size_t)s->beam;
    s->sentences = nm_allocate(n * sizeof *s->sentences);
    s->entries = nm_allocate(2 * n * beam * sizeof *s->entries);
    s->candidates = nm_allocate(beam * ((size_t)s->rule->candidates * beam + 1) * sizeof *s->candidates);
    for (size_t i = 0; i < n; i++) {
        nm_beam_sentence *sentence = &s->sentences[i];
        *sentence = (nm_beam_sentence){.live = s->entries + 2 * i * beam,
                                       .finals = s->entries + (2 * i + 1) * beam,
                                       .n_live = 1,
                                       .limit = limits[i]};
        sentence->live[0] = (nm_beam_entry){.node = -1, .id = s->special->first};
    }
}

static void search_end(beam_search *s)
{
    void *blocks[] = {s->sentences, s->entries,      s->candidates, s->nodes,        s->ids,
                      s->self_rows, s->self_offsets, s->cross_rows, s->cross_offsets};
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
                           .cross_offsets = s->cross_offsets};
    NM_TRY(nm_scorer_step(s->scorer, &step, err));
    for (int32_t i = 0; i < s->sources->n_seqs; i++)
        if (!s->sentences[i].done)
            advance(s, &s->sentences[i], first_node);
    s->position++;
    return NM_OK;
}

nm_status nm_beam_run(nm_scorer *scorer, const nm_beam_rule *rule, const nm_decode_options *options,
                      const nm_special_tokens *special, const nm_packing *sources, const int32_t *ids,
                      const int32_t *limits, nm_translation *out, nm_error *err)
{
    beam_search s = {.scorer = scorer,
                     .rule = rule,
                     .options = options,
                     .special = special,
                     .sources = sources,
                     .beam = (int32_t)options->beam};
    NM_TRY(nm_scorer_start(scorer, sources, ids, err));
    search_begin(&s, limits);
    bool more = true;
    nm_status status = NM_OK;
    while (more && status == NM_OK)
        status = search_step(&s, &more, err);
    for (int32_t i = 0; i < sources->n_seqs && status == NM_OK; i++)
        collect(&s, &s.sentences[i], &out[i]);
    search_end(&s);
    return status;
}
