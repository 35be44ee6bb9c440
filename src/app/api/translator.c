#include "norma/translator.h"

#include <stdlib.h>
#include <string.h>

#include "api/constraint_texts.h"
#include "api/inference.h"
#include "api/sections.h"
#include "api/translations.h"
#include "model/decode.h"
#include "model/seq2seq.h"
#include "task/translation.h"
#include "text/bpe.h"
#include "text/word_spans.h"
#include "base/words.h"

enum { TEXT_BYTES_MAX = 1 << 20 }; /* longer texts are too long to be translated and are not tokenized */

typedef struct format_config {
    NM_TRANSLATE_FIELDS;
} format_config;

static const nm_option format_rows[] = {
    NM_TRANSLATE_FORMAT_ROWS(format_config), NM_TRANSLATE_ROWS(format_config), {0}};

/* Workspace of one call. */
typedef struct workspace {
    nm_decoder *decoder;
    nm_text_coder source;
    nm_tokenizer target;
    nm_text_coder targets;           /* for given translations; opened when needed */
    nm_buffer subwords, words, text; /* steps of the conversion of a hypothesis to text */
    const nm_stop *stop;             /* of the call */
} workspace;

struct nm_translator {
    nm_inference inference;
    nm_decode_options search;
    const format_config *formats;
    nm_attention_choice attention;     /* with translate.alignment */
    nm_shortlist shortlist;            /* with translate.shortlist */
    const nm_translation_parts *parts; /* of the first model */
    workspace *main;                   /* its decoder owns the tables that all decoders share */
    nm_workspaces pool;
};

static void add_options(nm_options *options)
{
    nm_options_add(options, "translate", format_rows, NULL, sizeof(format_config));
}

static const nm_inference_type inference_type = {.task = &nm_task_translation,
                                                 .ensemble = true,
                                                 .sections = "translate,decode,device",
                                                 .add_options = add_options};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static nm_status check_models(const nm_inference *inference, nm_error *err)
{
    static const int shared[] = {NM_TEXT_SOURCE, NM_TEXT_TARGET, NM_TEXT_CODES};
    static const char *const names[] = {"source dictionaries", "target dictionaries", "BPE codes"};
    for (int32_t m = 0; m < inference->n_models; m++) {
        const nm_translation_parts *parts = inference->models[m].task.parts,
                                   *first = inference->models[0].task.parts;
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
            if (!same_text(parts->texts[shared[i]], first->texts[shared[i]]))
                return nm_fail(err, NM_MISMATCH, "models 1 and %d have different %s", m + 1, names[i]);
        if (!nm_model_spm_equal(&parts->spm[0], &first->spm[0]) ||
            !nm_model_spm_equal(&parts->spm[1], &first->spm[1]))
            return nm_fail(err, NM_MISMATCH, "models 1 and %d have different SentencePiece models", m + 1);
    }
    return NM_OK;
}

/* The search options are those of the first model, overridden by those of the caller. A preset of the caller
 * replaces all of them. batch_tokens does not change results and is always that of the caller. */
static nm_status choose_search(nm_translator *self, nm_error *err)
{
    const nm_decode_options *given = nm_options_find(self->inference.options, "decode");
    self->search = *(const nm_decode_options *)nm_options_find(self->inference.models[0].options, "decode");
    if (nm_options_origin(self->inference.options, "decode.preset") == NM_ORIGIN_COMMAND)
        self->search = *given;
    self->search.batch_tokens = given->batch_tokens;
    NM_TRY(nm_decode_options_check(&self->search, err));
    NM_AUTO_FREE char *warning = NULL; /* about options of the model file, which the training accepted */
    return nm_options_check(self->inference.models[0].options, &warning, err);
}

static nm_status open_decoder(const nm_translator *self, nm_decoder **decoder, nm_error *err)
{
    if (self->main)
        return nm_decoder_create_worker(decoder, self->main->decoder, err);
    const nm_inference *inference = &self->inference;
    bool *excluded;
    const nm_special_tokens words = nm_translation_special_tokens(self->parts->target_vocab, &excluded);
    nm_model **models = nm_allocate((size_t)inference->n_models * sizeof(nm_model *));
    for (int32_t m = 0; m < inference->n_models; m++)
        models[m] = inference->models[m].model;
    nm_status status = nm_decoder_create(decoder, models, inference->n_models, &self->search, &words, err);
    NM_FREE(excluded, models);
    if (status == NM_OK && *self->formats->shortlist)
        nm_decoder_set_shortlist(*decoder, &self->shortlist);
    return status;
}

static void workspace_free(void *space)
{
    workspace *w = space;
    nm_decoder_free(w->decoder);
    nm_text_coder_close(&w->source);
    nm_tokenizer_close(&w->target);
    nm_text_coder_close(&w->targets);
    nm_buffer_release(&w->subwords);
    nm_buffer_release(&w->words);
    nm_buffer_release(&w->text);
    free(w);
}

static nm_subword_model subword_model(const nm_translation_parts *parts)
{
    return (nm_subword_model){
        .codes = parts->texts[NM_TEXT_CODES],
        .subwords = parts->source_subwords ? parts->source_subwords : parts->source_vocab,
        .target_subwords = parts->target_subwords ? parts->target_subwords : parts->target_vocab,
        .source_spm = parts->spm[0].spm,
        .target_spm = parts->spm[1].spm};
}

static nm_status workspace_create(const nm_translator *self, workspace **out, nm_error *err)
{
    const nm_translation_parts *parts = self->parts;
    workspace *w = nm_allocate(sizeof *w);
    const nm_subword_model subwords = subword_model(parts);
    nm_status status =
        nm_text_coder_open_prepared(&w->source, &w->target, parts->texts[NM_TEXT_SETTINGS], &subwords, err);
    NM_THEN(status, open_decoder(self, &w->decoder, err));
    NM_RETURN_NEW(status, out, w, workspace_free);
}

static bool is_byte_level(const workspace *w)
{
    return w->target.type == &nm_tokenizer_byte_level;
}

/* Opens the coder of the target side, which scoring, prefixes and constraints need. */
static nm_status open_targets(const nm_translator *self, workspace *w, nm_error *err)
{
    const nm_subword_model subwords = subword_model(self->parts);
    if (w->targets.tokenizer.type)
        return NM_OK;
    return nm_text_coder_open_target(&w->targets, self->parts->texts[NM_TEXT_SETTINGS], &subwords, err);
}

static nm_status choose_attention(nm_translator *self, nm_error *err)
{
    const format_config *formats = self->formats;
    int32_t layers = nm_decoder_layers(self->main->decoder), heads = nm_decoder_heads(self->main->decoder);
    if (!formats->alignment && (formats->alignment_layer || formats->alignment_head))
        return nm_fail(err, NM_USAGE, "%s has no effect without translate.alignment",
                       formats->alignment_layer ? "translate.alignment_layer" : "translate.alignment_head");
    if (formats->alignment_layer > layers || formats->alignment_head > heads)
        return nm_fail(err, NM_USAGE, "the decoder has %d layers with %d heads", layers, heads);
    const nm_seq2seq_config *model = self->inference.models[0].model->config;
    if (model->alignment_head && !formats->alignment_layer && !formats->alignment_head) {
        self->attention =
            (nm_attention_choice){nm_seq2seq_alignment_layer(model), (int32_t)model->alignment_head - 1};
        return NM_OK;
    }
    self->attention.layer = formats->alignment_layer ? (int32_t)formats->alignment_layer - 1
                            : layers > 1             ? layers - 2
                                                     : 0;
    self->attention.head = (int32_t)formats->alignment_head - 1;
    return NM_OK;
}

static nm_status open_shortlist(nm_translator *self, nm_error *err)
{
    const format_config *formats = self->formats;
    const nm_translation_parts *parts = self->parts;
    static const char *const of_shortlist[] = {"translate.shortlist_best", "translate.shortlist_frequent"};
    if (*formats->shortlist) {
        char *languages;
        NM_TRY(nm_text_coder_languages(parts->texts[NM_TEXT_SETTINGS], &languages, err));
        const nm_shortlist_config config = {formats->shortlist_best, formats->shortlist_frequent, languages};
        nm_status status = nm_shortlist_read(&self->shortlist, formats->shortlist, &config,
                                             parts->source_vocab, parts->target_vocab, parts->allowed, err);
        free(languages);
        return status;
    }
    for (int i = 0; i < 2; i++)
        if (nm_options_origin(self->inference.options, of_shortlist[i]) == NM_ORIGIN_COMMAND)
            return nm_fail(err, NM_USAGE, "%s has no effect without translate.shortlist", of_shortlist[i]);
    return NM_OK;
}

static nm_status open_translator(nm_translator *self, const char *path, const char *const *options,
                                 nm_error *err)
{
    NM_TRY(nm_inference_open(&self->inference, &inference_type, path, options, err));
    NM_TRY(check_models(&self->inference, err));
    NM_TRY(choose_search(self, err));
    self->parts = self->inference.models[0].task.parts;
    self->formats = nm_options_find(self->inference.options, "translate");
    if (!self->parts->texts[NM_TEXT_SETTINGS])
        return nm_fail(err, NM_FORMAT, "the model has no data.ini: the preparation of its text is unknown");
    NM_TRY(open_shortlist(self, err));
    workspace *main;
    NM_TRY(workspace_create(self, &main, err));
    self->main = main;
    nm_workspaces_return(&self->pool, main);
    return choose_attention(self, err);
}

nm_status nm_translator_open(nm_translator **translator, const char *path, const char *const *options,
                             nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!translator)
        return nm_fail(err, NM_USAGE, "nm_translator_open: translator is NULL");
    nm_translator *self = nm_allocate(sizeof *self);
    nm_workspaces_init(&self->pool);
    nm_status status = open_translator(self, path, options, err);
    NM_RETURN_NEW(status, translator, self, nm_translator_close);
}

void nm_translator_close(nm_translator *self)
{
    if (!self)
        return;
    workspace *main = self->main;
    for (size_t i = 0; i < self->pool.n_idle; i++) /* the main workspace is freed last */
        if (self->pool.idle[i] == main)
            self->pool.idle[i] = self->pool.idle[--self->pool.n_idle];
    nm_workspaces_release(&self->pool, workspace_free);
    if (main)
        workspace_free(main);
    nm_shortlist_release(&self->shortlist);
    nm_inference_close(&self->inference);
    free(self);
}

NM_INFERENCE_FUNCTIONS(nm_translator)

int32_t nm_translator_max_tokens(const nm_translator *self)
{
    return self ? nm_decoder_longest(self->main->decoder) : 0;
}

int32_t nm_translator_nbest(const nm_translator *self)
{
    return self ? (int32_t)self->search.nbest : 0;
}

/* A list of texts as ids: text i has the ids begins[i] to begins[i + 1] - 1, the last one is eos; a text
 * without words has only eos, a text of more than TEXT_BYTES_MAX has none. */
typedef struct encoded {
    nm_ids ids;
    size_t *begins;
} encoded;

/* Encodes the texts [out->n] of a side, and marks those that are too long. */
static nm_status encode(const nm_translator *self, workspace *w, bool target, const char *const *texts,
                        nm_translations *out, encoded *side, nm_error *err)
{
    nm_text_coder *coder = target ? &w->targets : &w->source;
    const nm_vocab *vocab = target ? self->parts->target_vocab : self->parts->source_vocab;
    side->begins = nm_allocate((out->n + 1) * sizeof *side->begins);
    for (size_t i = 0; i < out->n; i++) {
        NM_TRY(nm_check_stop(w->stop, err));
        size_t bytes = nm_text_length(texts[i]);
        if (bytes > TEXT_BYTES_MAX) {
            out->texts[i].too_long = true;
        } else {
            nm_text_coder_run(coder, target ? self->formats->output_format : self->formats->input_format,
                              texts[i], bytes);
            nm_vocab_encode(vocab, coder->subwords.data, coder->subwords.bytes, &side->ids);
            nm_ids_append(&side->ids, vocab->eos);
        }
        side->begins[i + 1] = side->ids.n;
        out->texts[i].too_long |=
            side->begins[i + 1] - side->begins[i] > (size_t)nm_translator_max_tokens(self);
    }
    return NM_OK;
}

static void encoded_release(encoded *side)
{
    nm_ids_release(&side->ids);
    free(side->begins);
}

static nm_id_list encoded_text(const encoded *side, size_t i)
{
    return (nm_id_list){side->ids.data + side->begins[i], (int32_t)(side->begins[i + 1] - side->begins[i])};
}

static char *hypothesis_text(const nm_translator *self, workspace *w, const nm_hypothesis *hypothesis)
{
    nm_buffer_clear(&w->subwords);
    nm_buffer_clear(&w->words);
    nm_buffer_clear(&w->text);
    nm_vocab_decode(self->parts->target_vocab, hypothesis->ids, (size_t)hypothesis->n, &w->subwords);
    if (self->formats->output_format == NM_FORMAT_SUBWORD)
        return nm_duplicate(w->subwords.data);
    if (w->target.type->keeps_text) {
        nm_detokenize(&w->target, w->subwords.data, w->subwords.bytes, &w->text);
        return nm_duplicate(w->text.data);
    }
    nm_bpe_remove(w->subwords.data, w->subwords.bytes, &w->words);
    if (self->formats->output_format == NM_FORMAT_TOKENIZED)
        return nm_duplicate(w->words.data);
    nm_detokenize(&w->target, w->words.data, w->words.bytes, &w->text);
    return nm_duplicate(w->text.data);
}

/* A result with copies of scores and tokens. text: heap, then owned by the result. */
static nm_translated translated_of(const nm_translator *self, char *text, const nm_hypothesis *found)
{
    size_t n = (size_t)found->n;
    nm_translated out = {.text = text,
                         .score = found->score,
                         .token_scores = nm_allocate(n * sizeof *out.token_scores),
                         .tokens = nm_allocate(n * sizeof *out.tokens),
                         .n_tokens = n};
    for (size_t i = 0; i < n; i++) {
        out.token_scores[i] = found->token_scores[i];
        out.tokens[i] = nm_duplicate(nm_vocab_symbol(self->parts->target_vocab, found->ids[i]));
    }
    return out;
}

/* Sets the words of a translation and their alignment by found->attention, [tokens, source tokens]. source:
 * its text; n_source: number of source tokens with eos. Overwrites w->subwords and the result of
 * w->source. */
static void add_words(const nm_translator *self, workspace *w, const char *source, const nm_hypothesis *found,
                      int32_t n_source, nm_translated *out)
{
    nm_word_span *spans[2];
    size_t source_bytes = nm_text_length(source), target_bytes = strlen(out->text);
    size_t n_words[2] = {nm_word_spans(source, source_bytes, &spans[0]),
                         nm_word_spans(out->text, target_bytes, &spans[1])};
    int32_t n_tokens = nm_hypothesis_length(found, self->parts->target_vocab->eos);
    int32_t *words[2] = {nm_allocate((size_t)n_source * sizeof(int32_t)),
                         nm_allocate((size_t)(n_tokens + 1) * sizeof(int32_t))};
    nm_text_coder_run(&w->source, self->formats->input_format, source, source_bytes);
    const nm_subword_line of_source = {w->source.subwords.data, w->source.subwords.bytes, n_source - 1,
                                       is_byte_level(w)};
    nm_word_spans_of_subwords(source, spans[0], n_words[0], &of_source, words[0]);
    nm_buffer_clear(&w->subwords);
    nm_vocab_decode(self->parts->target_vocab, found->ids, (size_t)found->n, &w->subwords);
    const nm_subword_line of_target = {w->subwords.data, w->subwords.bytes, n_tokens, is_byte_level(w)};
    nm_word_spans_of_subwords(out->text, spans[1], n_words[1], &of_target, words[1]);
    NM_AUTO_FREE double *sums = nm_allocate((n_words[1] + 1) * (n_words[0] + 1) * sizeof *sums);
    out->n_words = n_words[1];
    out->words = nm_allocate(n_words[1] * sizeof *out->words);
    for (int32_t t = 0; t < n_tokens && n_words[1]; t++) {
        out->words[words[1][t]].score += found->token_scores[t];
        for (int32_t s = 0; s < n_source - 1 && n_words[0]; s++)
            sums[(size_t)words[1][t] * n_words[0] + (size_t)words[0][s]] +=
                found->attention[(size_t)t * (size_t)n_source + (size_t)s];
    }
    for (size_t i = 0; i < n_words[1]; i++) {
        nm_translation_word *word = &out->words[i];
        const double *weights = sums + i * n_words[0];
        *word = (nm_translation_word){spans[1][i].begin, spans[1][i].end, word->score, -1};
        for (size_t s = 0; s < n_words[0]; s++)
            if (weights[s] > (word->source < 0 ? 0 : weights[word->source]))
                word->source = (int32_t)s;
    }
    for (int side = 0; side < 2; side++)
        NM_FREE(spans[side], words[side]);
}

/* Aligns the translations of all texts. lists: ids of the sources. */
static nm_status align(const nm_translator *self, workspace *w, const char *const *texts,
                       const nm_id_list *lists, const nm_translation *found, nm_translations *out,
                       nm_error *err)
{
    size_t n = 0, total = 0;
    for (size_t i = 0; i < out->n; i++)
        total += out->texts[i].n;
    NM_AUTO_FREE nm_id_list *pairs = nm_allocate(2 * total * sizeof *pairs);
    NM_AUTO_FREE nm_translation *scored = nm_allocate(total * sizeof *scored);
    for (size_t i = 0; i < out->n; i++)
        for (size_t k = 0; k < out->texts[i].n; k++, n++) {
            pairs[n] = lists[i];
            pairs[total + n] = (nm_id_list){found[i].list[k].ids, found[i].list[k].n};
        }
    nm_status status =
        nm_decode_score(w->decoder, pairs, pairs + total, total, &self->attention, scored, err);
    n = 0;
    for (size_t i = 0; i < out->n && status == NM_OK; i++)
        for (size_t k = 0; k < out->texts[i].n; k++, n++) {
            if (scored[n].n)
                add_words(self, w, texts[i], &scored[n].list[0], lists[i].n, &out->texts[i].list[k]);
            nm_translation_release(&scored[n]);
        }
    return status;
}

/* Stores the hypotheses of the decoder for one text. target: its given translation, or NULL. */
static void store(const nm_translator *self, workspace *w, const nm_translation *found, const char *target,
                  struct nm_text_translations *text)
{
    text->n = (size_t)found->n;
    text->list = nm_allocate(text->n * sizeof *text->list);
    for (size_t k = 0; k < text->n; k++) {
        const nm_hypothesis *one = &found->list[k];
        char *line =
            target ? nm_format("%.*s", (int)nm_text_length(target), target) : hypothesis_text(self, w, one);
        text->list[k] = translated_of(self, line, one);
    }
}

/* Meaning of the target texts of a call. */
typedef enum target_use { NO_TARGETS, PREFIXES, GIVEN_TRANSLATIONS } target_use;

/* Arguments of a call in addition to the texts. */
typedef struct call_options {
    target_use use;
    const char *const *targets, *const *constraints; /* [texts], or NULL */
} call_options;

/* Translates the texts, or scores the targets. sides: texts and targets as ids. */
static nm_status decode(const nm_translator *self, workspace *w, const char *const *texts,
                        const call_options *options, const encoded *sides, const nm_constraints *constraints,
                        nm_translations *out, nm_error *err)
{
    const target_use use = options->use;
    const char *const *targets = options->targets;
    nm_id_list *lists[2] = {nm_allocate(out->n * sizeof(nm_id_list)),
                            targets ? nm_allocate(out->n * sizeof(nm_id_list)) : NULL};
    NM_AUTO_FREE nm_translation *found = nm_allocate(out->n * sizeof *found);
    for (size_t i = 0; i < out->n; i++) /* the decoder skips empty lists */
        for (int side = 0; side < 1 + (targets != NULL); side++)
            if (!out->texts[i].too_long && encoded_text(&sides[side], i).n > (side ? 0 : 1))
                lists[side][i] = encoded_text(&sides[side], i);
    for (size_t i = 0; use == PREFIXES && i < out->n; i++)
        lists[1][i].n -= lists[1][i].n > 0; /* without eos */
    nm_status status =
        use == GIVEN_TRANSLATIONS
            ? nm_decode_score(w->decoder, lists[0], lists[1], out->n, NULL, found, err)
            : nm_decode_prefixes(w->decoder, lists[0], lists[1], constraints, out->n, found, err);
    for (size_t i = 0; i < out->n && status == NM_OK; i++)
        store(self, w, &found[i], use == GIVEN_TRANSLATIONS ? targets[i] : NULL, &out->texts[i]);
    if (status == NM_OK && self->formats->alignment)
        status = align(self, w, texts, lists[0], found, out, err);
    for (size_t i = 0; i < out->n; i++)
        nm_translation_release(&found[i]);
    NM_FREE(lists[0], lists[1]);
    return status;
}

static nm_status run(nm_translator *self, const char *const *texts, const call_options *options, size_t n,
                     nm_translations **translations, nm_error *err)
{
    workspace *w = nm_workspaces_acquire(&self->pool);
    if (!w)
        NM_TRY(workspace_create(self, &w, err));
    nm_translations *out = nm_allocate(sizeof *out);
    *out = (nm_translations){.n = n, .texts = nm_allocate(n * sizeof *out->texts)};
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    w->stop = &call.stop;
    nm_decoder_set_stop(w->decoder, &call.stop);
    encoded sides[2] = {0};
    nm_constraint_texts constraints = {.parts = self->parts,
                                       .coder = &w->targets,
                                       .format = self->formats->output_format,
                                       .stop = &call.stop};
    nm_status status = options->targets || options->constraints ? open_targets(self, w, err) : NM_OK;
    if (status == NM_OK && options->constraints)
        status = nm_constraint_texts_encode(&constraints, options->constraints, n, err);
    NM_THEN(status, encode(self, w, false, texts, out, &sides[0], err));
    if (status == NM_OK && options->targets)
        status = encode(self, w, true, options->targets, out, &sides[1], err);
    NM_THEN(status, decode(self, w, texts, options, sides, constraints.lists, out, err));
    encoded_release(&sides[0]);
    encoded_release(&sides[1]);
    nm_constraint_texts_release(&constraints);
    nm_decoder_set_stop(w->decoder, NULL);
    w->stop = NULL;
    nm_workspaces_return(&self->pool, w);
    NM_RETURN_NEW(status, translations, out, nm_translations_free);
}

nm_status nm_translator_run(nm_translator *self, const char *const *texts, size_t n,
                            nm_translations **translations, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !translations)
        return nm_fail(err, NM_USAGE, "nm_translator_run: %s is NULL", self ? "translations" : "translator");
    NM_TRY(nm_lines_check(texts, n, "text", err));
    return run(self, texts, &(call_options){0}, n, translations, err);
}

nm_status nm_translator_run_prefixes(nm_translator *self, const char *const *texts,
                                     const char *const *prefixes, size_t n, nm_translations **translations,
                                     nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !translations)
        return nm_fail(err, NM_USAGE, "nm_translator_run_prefixes: %s is NULL",
                       self ? "translations" : "translator");
    NM_TRY(nm_lines_check(texts, n, "text", err));
    NM_TRY(nm_lines_check(prefixes, n, "prefix", err));
    return run(self, texts, &(call_options){.use = PREFIXES, .targets = prefixes}, n, translations, err);
}

nm_status nm_translator_run_constraints(nm_translator *self, const char *const *texts,
                                        const char *const *prefixes, const char *const *constraints, size_t n,
                                        nm_translations **translations, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !translations)
        return nm_fail(err, NM_USAGE, "nm_translator_run_constraints: %s is NULL",
                       self ? "translations" : "translator");
    NM_TRY(nm_lines_check(texts, n, "text", err));
    NM_TRY(nm_lines_check(constraints, n, "constraints", err));
    if (prefixes)
        NM_TRY(nm_lines_check(prefixes, n, "prefix", err));
    const call_options all = {
        .use = prefixes ? PREFIXES : NO_TARGETS, .targets = prefixes, .constraints = constraints};
    return run(self, texts, &all, n, translations, err);
}

nm_status nm_translator_score(nm_translator *self, const char *const *sources, const char *const *targets,
                              size_t n, nm_translations **translations, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !translations)
        return nm_fail(err, NM_USAGE, "nm_translator_score: %s is NULL",
                       self ? "translations" : "translator");
    NM_TRY(nm_lines_check(sources, n, "source", err));
    NM_TRY(nm_lines_check(targets, n, "target", err));
    return run(self, sources, &(call_options){.use = GIVEN_TRANSLATIONS, .targets = targets}, n, translations,
               err);
}
