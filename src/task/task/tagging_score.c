/* Inference and score of tagging: emissions of the model, the best legal path (Viterbi), F1 of spans. */
#include <math.h>
#include <stdlib.h>

#include "base/c_locale.h"
#include "task/tag_chain.h"
#include "text/span_f1.h"
#include "task/tagging.h"

enum { SAMPLES = 3, PIECES_AT_ONCE = 64, TOKENS_AT_ONCE = 2048 };

typedef struct predictor {
    const nm_task *task;
    nm_model *model;
    const nm_tag_corpus *corpus;
    nm_chain chain;
    nm_tape tape;
    nm_arena arena;
    nm_tag_piece pieces[PIECES_AT_ONCE];
    int32_t n;
    int64_t tokens; /* number of tokens of the pieces */
    int32_t *tags;  /* result, [tokens of the corpus] */
} predictor;

static void open_chain(predictor *p)
{
    const nm_tagging_parts *parts = p->task->parts;
    const nm_crf_scores *crf = &nm_tagger_model_of(p->model)->crf;
    size_t tags = (size_t)parts->n_tags;
    nm_chain_init(&p->chain, parts->n_tags);
    nm_backend_read(p->model->backend, p->chain.transitions, crf->transitions->data, tags * tags);
    nm_backend_read(p->model->backend, p->chain.start, crf->start->data, tags);
    nm_backend_read(p->model->backend, p->chain.end, crf->end->data, tags);
    nm_chain_forbid(&p->chain, parts->scheme, (const char *const *)parts->tags);
}

static nm_status run_pieces(predictor *p, nm_error *err)
{
    if (!p->n)
        return NM_OK;
    NM_TRY(nm_check_stop(p->task->stop, err));
    nm_arena_reset(&p->arena);
    nm_batch batch = nm_tagging_pack(p->task, p->corpus, p->pieces, p->n, NULL, &p->arena);
    nm_tape_start(&p->tape, false, 0, 0);
    nm_tensor *emissions = nm_tagger_model_emissions(p->model, &p->tape, &batch);
    if (nm_tape_exhausted(&p->tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", batch.tokens);
    size_t tags = (size_t)p->chain.tags;
    NM_AUTO_FREE double *scores = nm_allocate((size_t)batch.tokens * tags * sizeof *scores);
    nm_backend_read(p->model->backend, scores, emissions->data, (size_t)batch.tokens * tags);
    bool finite = true;
    for (size_t i = 0; i < (size_t)batch.tokens * tags; i++)
        finite = finite && isfinite(scores[i]);
    for (int32_t i = 0; i < p->n && finite; i++) {
        const nm_tag_piece *piece = &p->pieces[i];
        nm_viterbi(&p->chain, scores + (size_t)batch.source.offsets[i] * tags, piece->n,
                   p->tags + p->corpus->offsets[piece->sentence] + piece->first);
    }
    p->n = 0;
    p->tokens = 0;
    NM_TRY(nm_backend_check(p->model->backend, err));
    return finite ? NM_OK : nm_fail(err, NM_DIVERGED, "the model's logits are not finite");
}

static nm_status predict_all(predictor *p, int64_t n_sentences, int64_t *n_cut, nm_error *err)
{
    int32_t longest = (int32_t)nm_tagger_model_config_of(p->model)->max_positions;
    for (int64_t s = 0; s < n_sentences; s++) {
        int32_t length = (int32_t)nm_corpus_length(&p->corpus->forms, s);
        *n_cut += length > longest;
        for (int32_t first = 0; first < length; first += longest) {
            int32_t n = length - first < longest ? length - first : longest;
            if (p->n == PIECES_AT_ONCE || p->tokens + n > TOKENS_AT_ONCE)
                NM_TRY(run_pieces(p, err));
            p->pieces[p->n++] = (nm_tag_piece){s, first, n};
            p->tokens += n;
        }
    }
    return run_pieces(p, err);
}

nm_status nm_tagging_predict(const nm_task *task, nm_model *model, const nm_tag_corpus *corpus,
                             int64_t n_sentences, int32_t **tags, int64_t *n_cut, nm_error *err)
{
    predictor p = {.task = task, .model = model, .corpus = corpus};
    int64_t cut = 0;
    uint64_t tokens = n_sentences ? corpus->offsets[n_sentences] : 0;
    *tags = p.tags = nm_allocate((size_t)tokens * sizeof *p.tags + 1);
    nm_tape_init_growing(&p.tape, model->backend);
    nm_arena_init(&p.arena, SIZE_MAX);
    open_chain(&p);
    nm_status status = predict_all(&p, n_sentences, &cut, err);
    if (n_cut)
        *n_cut += cut;
    nm_tape_release(&p.tape);
    nm_arena_release(&p.arena);
    nm_chain_release(&p.chain);
    if (status != NM_OK) {
        free(*tags);
        *tags = NULL;
    }
    return status;
}

/* "the/DT cat/NN" */
static void write_classes(const nm_tagging_parts *parts, const nm_tag_corpus *corpus, int64_t s,
                          const char *const *tags, FILE *out)
{
    uint64_t first = corpus->offsets[s], end = corpus->offsets[s + 1];
    for (uint64_t at = first; at < end; at++)
        fprintf(out, "%s%s/%s", at > first ? " " : "", parts->forms.items[corpus->ids[at]].text,
                nm_tag_label(tags[at - first]));
    fputc('\n', out);
}

static void write_spans(const nm_tagging_parts *parts, const nm_tag_corpus *corpus, int64_t s,
                        const char *const *tags, FILE *out)
{
    int32_t n = (int32_t)nm_corpus_length(&corpus->forms, s);
    if (parts->scheme == NM_TAGS_NONE) {
        write_classes(parts, corpus, s, tags, out);
        return;
    }
    NM_AUTO_FREE nm_span *spans = nm_allocate(((size_t)n + 1) * sizeof *spans);
    int32_t found = nm_tag_spans(tags, n, spans), next = 0;
    for (int32_t i = 0; i < n; i++) {
        bool first = next < found && spans[next].first == i;
        fprintf(out, "%s%s%s", i ? " " : "", first ? "[" : "",
                parts->forms.items[corpus->ids[corpus->offsets[s] + (uint64_t)i]].text);
        if (next < found && spans[next].end == i + 1)
            fprintf(out, "]%s", spans[next++].label);
    }
    fputc('\n', out);
}

static void name_tags(const nm_tagging_parts *parts, const nm_tag_corpus *corpus, int64_t s,
                      const int32_t *numbers, const char **names)
{
    for (uint64_t at = corpus->offsets[s]; at < corpus->offsets[s + 1]; at++)
        names[at - corpus->offsets[s]] = parts->gold_names.items[numbers[at]].text;
}

void nm_tagging_count(const nm_tagging_parts *parts, const nm_tag_corpus *corpus, int64_t n,
                      const int32_t *tags, nm_task_score *score)
{
    nm_span_counts *each = nm_allocate(((size_t)n + 1) * sizeof *each), sum = {0};
    const char **found = nm_allocate(2 * NM_SENTENCE_MAX * sizeof *found), **gold = found + NM_SENTENCE_MAX;
    size_t bytes;
    FILE *samples = nm_text_stream_open(&score->samples, &bytes);
    for (int64_t s = 0; s < n; s++) {
        name_tags(parts, corpus, s, tags, found);
        name_tags(parts, corpus, s, corpus->gold, gold);
        each[s] = nm_span_count(found, gold, (int32_t)nm_corpus_length(&corpus->forms, s));
        sum.correct += each[s].correct;
        sum.predicted += each[s].predicted;
        sum.gold += each[s].gold;
        if (s >= SAMPLES)
            continue;
        fputs(s ? "\n  found:  " : "  found:  ", samples);
        write_spans(parts, corpus, s, found, samples);
        fputs("  gold: ", samples);
        write_spans(parts, corpus, s, gold, samples);
    }
    nm_text_stream_close(samples);
    nm_span_score total = nm_span_compute(&sum);
    bool classes = parts->scheme == NM_TAGS_NONE; /* each token is a span: F1 is the accuracy */
    score->name = classes ? "accuracy" : "f1";
    score->title = classes ? "accuracy" : "F1";
    score->value = 100 * total.f1;
    score->counts = (nm_counts){(const int64_t *)each, (size_t)n, NM_SPAN_COUNTS};
    score->of_counts = nm_span_f1_of_counts;
    locale_t before = nm_c_locale_enter();
    if (classes)
        snprintf(score->signature, sizeof score->signature, "accuracy|tokens|unknown tags:%lld",
                 (long long)corpus->unknown_tags);
    else
        snprintf(score->signature, sizeof score->signature,
                 "f1|spans|scheme:%s|unknown tags:%lld|precision:%.2f|recall:%.2f",
                 nm_tag_scheme_name(parts->scheme), (long long)corpus->unknown_tags, 100 * total.precision,
                 100 * total.recall);
    nm_c_locale_leave(before);
    free(found);
}

nm_status nm_tagging_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err)
{
    const nm_tagging_parts *parts = task->parts;
    const nm_tag_corpus *corpus = &parts->splits[split];
    int64_t n = corpus->forms.n;
    *score = (nm_task_score){0};
    n = examples && examples < n ? examples : n;
    NM_AUTO_FREE int32_t *tags = NULL;
    NM_TRY(nm_tagging_predict(task, model, corpus, n, &tags, NULL, err));
    nm_tagging_count(parts, corpus, n, tags, score);
    return NM_OK;
}
