#include "api/language_model_comm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/inference.h"
#include "api/sections.h"
#include "api/stop_strings.h"
#include "base/text_input.h"
#include "model/sampler.h"
#include "base/bootstrap.h"
#include "model/lm.h"
#include "task/lm_task.h"
#include "task/sampler_tokens.h"
#include "base/words.h"

typedef struct scoring_config {
    NM_PERPLEXITY_FIELDS;
} scoring_config;

static const nm_option scoring_rows[] = {NM_PERPLEXITY_ROWS(scoring_config), {0}};

static const nm_option_rule scoring_rules[] = {NM_LM_DOCUMENT_RULE, {0}};

/* Workspace of one call. */
typedef struct workspace {
    nm_model *model;
    nm_lm_text *text;
    nm_sampler *sampler; /* NULL: a non-causal model */
} workspace;

struct nm_language_model {
    nm_inference inference;
    const nm_lm_parts *parts;
    const scoring_config *scoring;
    nm_comm *comm;       /* nm_language_model_set_comm */
    nm_sampler *sampler; /* owns the packed weights of all workspaces; NULL: a non-causal model */
    nm_workspaces pool;
    nm_lm_text *text;           /* not of a workspace: owns the separator of `trained` */
    nm_document_rule trained;   /* documents of the training text */
    int32_t first_input;        /* from which the first token of a text is predicted */
    nm_document_rule documents; /* those of texts to score */
    nm_stop_strings stops;
};

struct nm_lm_scores {
    size_t n;
    size_t *begins;    /* [n + 1], index of the first token of each line */
    char **tokens;     /* [begins[n]] */
    double *log_probs; /* [begins[n]] */
};

struct nm_perplexity {
    nm_lm_scored scored;
    nm_lm_counts counts;
};

struct nm_lm_texts {
    size_t n;
    char **texts, **whole; /* [n], without and with the prompts */
};

static void add_options(nm_options *options)
{
    nm_options_add(options, "perplexity", scoring_rows, NULL, sizeof(scoring_config));
    nm_options_add_rules(options, scoring_rules);
}

static const nm_inference_type inference_type = {
    .task = &nm_task_lm, .sections = "sample,perplexity,device", .add_options = add_options};

static void workspace_free(void *space)
{
    workspace *w = space;
    nm_sampler_free(w->sampler);
    nm_lm_text_free(w->text);
    nm_model_free_worker(w->model);
    free(w);
}

static nm_status workspace_create(const nm_language_model *self, workspace **out, nm_error *err)
{
    workspace *w = nm_allocate(sizeof *w);
    nm_status status = nm_model_create_worker(&w->model, self->inference.models[0].model, err);
    NM_THEN(status, nm_lm_text_create(&w->text, self->parts, err));
    if (status == NM_OK && self->sampler)
        status = nm_sampler_create_worker(&w->sampler, self->sampler, w->model, err);
    NM_RETURN_NEW(status, out, w, workspace_free);
}

static nm_status set_documents(nm_language_model *self, nm_error *err)
{
    const scoring_config *config = self->scoring;
    NM_TRY(nm_lm_text_create(&self->text, self->parts, err));
    self->trained = self->documents = nm_lm_document_rule(self->text);
    if (config->documents == NM_DOCUMENTS_AS_TRAINED)
        return NM_OK;
    self->documents =
        (nm_document_rule){(nm_document_unit)(config->documents - 1), config->document_separator};
    return self->documents.unit == NM_DOCUMENT_LINE
               ? NM_OK
               : nm_lm_check_documents(self->text, "perplexity.documents", err);
}

static nm_status open_model(nm_language_model *self, const char *path, const char *const *options,
                            nm_error *err)
{
    NM_TRY(nm_inference_open(&self->inference, &inference_type, path, options, err));
    NM_AUTO_FREE char *warning = NULL; /* is about options of files */
    NM_TRY(nm_options_check(self->inference.options, &warning, err));
    NM_TRY(nm_stop_strings_read(&self->stops, self->inference.options, inference_type.sections, "sample.stop",
                                options, err));
    nm_model *model = self->inference.models[0].model;
    const nm_lm_config *config = nm_lm_config_of(model);
    self->parts = self->inference.models[0].task.parts;
    self->scoring = nm_options_find(self->inference.options, "perplexity");
    if (self->scoring->context > config->context)
        return nm_fail(err, NM_USAGE, "perplexity.context = %lld is more than model.context = %lld",
                       (long long)self->scoring->context, (long long)config->context);
    NM_TRY(set_documents(self, err));
    self->first_input = nm_lm_first_input(config, self->parts->vocab);
    if (!config->causal)
        return NM_OK;
    const nm_sampler_texts texts = {self->parts->vocab, self->first_input,
                                    self->trained.unit != NM_DOCUMENT_LINE, self->parts->spm.spm};
    const nm_sample_options *sample = nm_options_find(self->inference.options, "sample");
    return nm_sampler_create(&self->sampler, model, sample, nm_lm_sampler_tokens(&texts, sample->unknown),
                             err);
}

nm_status nm_language_model_open(nm_language_model **model, const char *path, const char *const *options,
                                 nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!model)
        return nm_fail(err, NM_USAGE, "nm_language_model_open: model is NULL");
    nm_language_model *self = nm_allocate(sizeof *self);
    nm_workspaces_init(&self->pool);
    nm_status status = open_model(self, path, options, err);
    NM_RETURN_NEW(status, model, self, nm_language_model_close);
}

void nm_language_model_close(nm_language_model *self)
{
    if (!self)
        return;
    nm_workspaces_release(&self->pool, workspace_free);
    nm_sampler_free(self->sampler);
    nm_lm_text_free(self->text);
    nm_stop_strings_release(&self->stops);
    nm_inference_close(&self->inference);
    free(self);
}

NM_INFERENCE_FUNCTIONS(nm_language_model)

static nm_status acquire_workspace(nm_language_model *self, workspace **w, nm_error *err)
{
    *w = nm_workspaces_acquire(&self->pool);
    return *w ? NM_OK : workspace_create(self, w, err);
}

/* Acquires a workspace for a call that needs a causal model; otherwise NM_UNSUPPORTED. cannot: end of the
 * message, "cannot generate text". */
static nm_status begin_call(nm_language_model *self, const char *cannot, workspace **w, nm_error *err)
{
    if (!self->sampler)
        return nm_fail(err, NM_UNSUPPORTED, "the model is not causal (model.causal = false): it %s", cannot);
    return acquire_workspace(self, w, err);
}

/* Appends the ids of all lines, each with the EOS token. ends [n]: index after the last id of each line. */
static nm_status encode_lines(const nm_language_model *self, workspace *w, const char *const *lines, size_t n,
                              const nm_stop *stop, nm_ids *ids, int64_t *ends, nm_error *err)
{
    for (size_t i = 0; i < n; i++) {
        NM_TRY(nm_check_stop(stop, err));
        bool is_line = self->documents.unit == NM_DOCUMENT_LINE;
        nm_lm_encode(w->text, lines[i], is_line ? nm_text_length(lines[i]) : strlen(lines[i]), ids);
        nm_ids_append(ids, self->parts->vocab->eos);
        ends[i] = (int64_t)ids->n;
    }
    return NM_OK;
}

static nm_lm_scores *scores_of(const nm_language_model *self, const nm_ids *ids, const int64_t *ends,
                               size_t n, double *token_nll)
{
    nm_lm_scores *scores = nm_allocate(sizeof *scores);
    *scores = (nm_lm_scores){.n = n,
                             .begins = nm_allocate((n + 1) * sizeof *scores->begins),
                             .tokens = nm_allocate(ids->n * sizeof *scores->tokens),
                             .log_probs = token_nll};
    for (size_t i = 0; i < n; i++)
        scores->begins[i + 1] = (size_t)ends[i];
    for (size_t t = 0; t < ids->n; t++) {
        scores->tokens[t] = nm_duplicate(nm_vocab_symbol(self->parts->vocab, ids->data[t]));
        token_nll[t] = -token_nll[t];
    }
    return scores;
}

nm_status nm_language_model_score(nm_language_model *self, const char *const *lines, size_t n,
                                  nm_lm_context context, nm_lm_scores **scores, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !scores)
        return nm_fail(err, NM_USAGE, "nm_language_model_score: %s is NULL", self ? "scores" : "model");
    if (context != NM_LM_LINES && context != NM_LM_TEXT)
        return nm_fail(err, NM_USAGE, "nm_language_model_score: context is %d", (int)context);
    workspace *w;
    NM_TRY(self->documents.unit == NM_DOCUMENT_LINE ? nm_lines_check(lines, n, "line", err)
                                                    : nm_texts_check(lines, n, "document", err));
    NM_TRY(begin_call(self, "has no probabilities of text", &w, err));
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    NM_AUTO(nm_ids_release) nm_ids ids = {0};
    NM_AUTO_FREE int64_t *ends = nm_allocate(n * sizeof *ends);
    nm_status status = encode_lines(self, w, lines, n, &call.stop, &ids, ends, err);
    double *token_nll = nm_allocate(ids.n * sizeof *token_nll);
    nm_lm_scored scored = {0};
    const nm_lm_scoring how = {.context = self->scoring->context,
                               .max_tokens = self->scoring->batch_tokens,
                               .before = self->first_input,
                               .vocab = self->parts->vocab,
                               .ends = context == NM_LM_LINES ? ends : NULL,
                               .n_ends = n,
                               .token_nll = token_nll,
                               .stop = &call.stop};
    if (status == NM_OK && n)
        status = nm_lm_score_ids(w->model, ids.data, (int64_t)ids.n, &how, &scored, err);
    if (status == NM_OK)
        *scores = scores_of(self, &ids, ends, n, token_nll);
    else
        free(token_nll);
    nm_lm_scored_release(&scored);
    nm_workspaces_return(&self->pool, w);
    return status;
}

void nm_lm_scores_free(nm_lm_scores *self)
{
    if (!self)
        return;
    for (size_t t = 0; t < self->begins[self->n]; t++)
        free(self->tokens[t]);
    NM_FREE(self->begins, self->tokens, self->log_probs, self);
}

size_t nm_lm_scores_n(const nm_lm_scores *self)
{
    return self ? self->n : 0;
}

size_t nm_lm_scores_n_tokens(const nm_lm_scores *self, size_t line)
{
    return line < nm_lm_scores_n(self) ? self->begins[line + 1] - self->begins[line] : 0;
}

const char *nm_lm_scores_token(const nm_lm_scores *self, size_t line, size_t token)
{
    return token < nm_lm_scores_n_tokens(self, line) ? self->tokens[self->begins[line] + token] : NULL;
}

const double *nm_lm_scores_tokens(const nm_lm_scores *self, size_t line)
{
    return line < nm_lm_scores_n(self) ? self->log_probs + self->begins[line] : NULL;
}

double nm_lm_scores_line(const nm_lm_scores *self, size_t line)
{
    double sum = 0;
    const double *log_probs = nm_lm_scores_tokens(self, line);
    for (size_t t = 0; t < nm_lm_scores_n_tokens(self, line); t++)
        sum += log_probs[t];
    return sum;
}

double nm_lm_scores_perplexity(const nm_lm_scores *self)
{
    double sum = 0;
    size_t n = self ? self->begins[self->n] : 0;
    for (size_t t = 0; t < n; t++)
        sum += self->log_probs[t];
    return n ? exp(-sum / (double)n) : NAN;
}

static nm_status score_file(nm_language_model *self, workspace *w, const char *path, nm_perplexity *out,
                            nm_error *err)
{
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    const nm_lm_scoring how = {.context = self->scoring->context,
                               .max_tokens = self->scoring->batch_tokens,
                               .drop_incomplete = self->scoring->drop_incomplete || !self->sampler,
                               .before = self->first_input,
                               .vocab = self->parts->vocab,
                               .comm = self->comm,
                               .stop = &call.stop};
    NM_AUTO(nm_ids_release) nm_ids ids = {0};
    const nm_lm_file file = {path, self->scoring->encoding, self->documents};
    nm_status status = nm_lm_encode_file(w->text, &file, &call.stop, &ids, &out->counts, err);
    if (status == NM_OK && !ids.n)
        status = nm_fail(err, NM_FORMAT, "%s: no text to score", nm_input_name(path));
    NM_THEN(status, nm_lm_score_ids(w->model, ids.data, (int64_t)ids.n, &how, &out->scored, err));
    if (status == NM_MISMATCH)
        nm_error_prefix(err, "%s", nm_input_name(path));
    if (status == NM_OK && !out->scored.tokens)
        status = nm_fail(err, NM_MISMATCH, "%s: %zu tokens are less than one segment", path, ids.n);
    return status;
}

nm_status nm_language_model_perplexity(nm_language_model *self, const char *path, nm_perplexity **perplexity,
                                       nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !path || !perplexity)
        return nm_fail(err, NM_USAGE, "nm_language_model_perplexity: %s is NULL",
                       !self   ? "model"
                       : !path ? "path"
                               : "perplexity");
    workspace *w;
    NM_TRY(acquire_workspace(self, &w, err));
    nm_perplexity *out = nm_allocate(sizeof *out);
    nm_status status = score_file(self, w, path, out, err);
    nm_workspaces_return(&self->pool, w);
    NM_RETURN_NEW(status, perplexity, out, nm_perplexity_free);
}

void nm_language_model_set_comm(nm_language_model *self, nm_comm *comm)
{
    self->comm = comm;
}

nm_document_rule nm_language_model_document_rule(const nm_language_model *self)
{
    return self->documents;
}

void nm_perplexity_free(nm_perplexity *self)
{
    if (self) {
        nm_lm_scored_release(&self->scored);
        free(self->counts.alphabet);
    }
    free(self);
}

void nm_perplexity_add(nm_perplexity *total, const nm_perplexity *one)
{
    if (!total || !one)
        return;
    nm_lm_scored *to = &total->scored;
    const nm_lm_scored *from = &one->scored;
    NM_RESERVE(to->counts, 2 * (to->n_blocks + from->n_blocks), to->capacity);
    memcpy(to->counts + 2 * to->n_blocks, from->counts, 2 * from->n_blocks * sizeof *to->counts);
    to->n_blocks += from->n_blocks;
    to->nll += from->nll;
    to->tokens += from->tokens;
    to->unknown_nll += from->unknown_nll;
    to->unknown += from->unknown;
    to->left_out += from->left_out;
    total->counts.words += one->counts.words;
    total->counts.characters += one->counts.characters;
    total->counts.unknown += one->counts.unknown;
    total->counts.hidden += one->counts.hidden;
    for (size_t i = 0; i < NM_LM_ALPHABET_BYTES && total->counts.alphabet && one->counts.alphabet; i++)
        total->counts.alphabet[i] |= one->counts.alphabet[i];
}

nm_perplexity_sums nm_perplexity_get_sums(const nm_perplexity *self)
{
    if (!self)
        return (nm_perplexity_sums){0};
    const nm_lm_scored *scored = &self->scored;
    const nm_lm_counts *counts = &self->counts;
    int64_t alphabet = 1; /* the end of the word */
    for (size_t i = 0; counts->alphabet && i < NM_LM_ALPHABET_BYTES; i++)
        alphabet += __builtin_popcount(counts->alphabet[i]);
    return (nm_perplexity_sums){.nll = scored->nll,
                                .tokens = scored->tokens,
                                .words = counts->words,
                                .characters = counts->characters,
                                .unknown = counts->unknown,
                                .left_out = scored->left_out,
                                .known_nll = scored->nll - scored->unknown_nll,
                                .known_tokens = scored->tokens - scored->unknown,
                                .spelled_nll = scored->nll + (double)counts->hidden * log((double)alphabet),
                                .alphabet = alphabet};
}

nm_interval nm_perplexity_interval(const nm_perplexity *self)
{
    if (!self)
        return (nm_interval){NAN, NAN, NAN};
    const nm_bootstrap_config config = nm_bootstrap_default();
    const nm_interval interval =
        nm_bootstrap_interval((nm_counts){self->scored.counts, self->scored.n_blocks, 2},
                              nm_lm_perplexity_of_counts, NULL, &config);
    double perplexity = exp(self->scored.nll / (double)self->scored.tokens);
    /* the blocks are rounded: the perplexity may be outside an interval without width */
    return interval.low < interval.high ? interval : (nm_interval){perplexity, perplexity, perplexity};
}

/* Appends the ids of a prompt, as in the training text: the beginning of a document, or with the EOS token
 * between lines. where: of messages. */
static nm_status encode_prompt(const nm_language_model *self, workspace *w, const char *prompt,
                               const char *where, nm_ids *ids, nm_error *err)
{
    const char *end = prompt + nm_text_length(prompt);
    if (self->trained.unit != NM_DOCUMENT_LINE) {
        NM_TRY(nm_lm_check_known(w->text, prompt, strlen(prompt), where, err));
        nm_lm_encode(w->text, prompt, strlen(prompt), ids);
        return NM_OK;
    }
    for (const char *line = prompt;; line++) {
        const char *line_end = memchr(line, '\n', (size_t)(end - line));
        line_end = line_end ? line_end : end;
        NM_TRY(nm_lm_check_known(w->text, line, (size_t)(line_end - line), where, err));
        nm_lm_encode(w->text, line, (size_t)(line_end - line), ids);
        if (line_end == end)
            return NM_OK;
        nm_ids_append(ids, self->parts->vocab->eos);
        line = line_end;
    }
}

static nm_status encode_prompts(const nm_language_model *self, workspace *w, const char *const *prompts,
                                size_t n, nm_ids *ids, nm_error *err)
{
    for (size_t i = 0; i < n; i++) {
        char where[64];
        snprintf(where, sizeof where, "prompt %zu", i);
        NM_TRY(encode_prompt(self, w, prompts[i], where, &ids[i], err));
    }
    return NM_OK;
}

nm_status nm_language_model_check_prompt(nm_language_model *self, const char *prompt, const char *where,
                                         nm_error *err)
{
    workspace *w;
    NM_AUTO(nm_ids_release) nm_ids ids = {0};
    if (!nm_vocab_omits(self->parts->vocab, self->parts->vocab->unk))
        return NM_OK;
    NM_TRY(acquire_workspace(self, &w, err));
    nm_status status = encode_prompt(self, w, prompt, where, &ids, err);
    nm_workspaces_return(&self->pool, w);
    return status;
}

static char *text_of(workspace *w, const int32_t *ids, size_t n)
{
    nm_buffer text = {0};
    nm_buffer_clear(&text);
    nm_lm_decode(w->text, ids, n, &text);
    return text.data;
}

/* The text of the tokens from index `begin` on of a prompt and its continuation. */
static char *text_from(workspace *w, const nm_id_list *prompt, const nm_ids *found, size_t begin)
{
    const size_t head = (size_t)prompt->n;
    NM_AUTO(nm_ids_release) nm_ids ids = {0};
    for (size_t i = begin; i < head + found->n; i++)
        nm_ids_append(&ids, i < head ? prompt->ids[i] : found->data[i - head]);
    return text_of(w, ids.data, ids.n);
}

/* The part of `whole` that continues a prompt. A SentencePiece model has no space before the first word of a
 * text, so the continuation alone would lack the space after the prompt. */
static char *continuation_of(workspace *w, const nm_id_list *prompt, const nm_ids *found, const char *whole)
{
    if (!nm_lm_keeps_text(w->text))
        return text_of(w, found->data, found->n);
    NM_AUTO_FREE char *head = text_of(w, prompt->ids, (size_t)prompt->n);
    size_t bytes = strlen(head);
    bool begins = !strncmp(whole, head, bytes);
    return begins ? nm_format("%s", whole + bytes) : text_of(w, found->data, found->n);
}

typedef struct generation {
    const nm_stop_strings *stops;
    int64_t lines; /* limit of sample.lines in documents, whose tokens contain newlines; 0: none */
    int32_t eos;
    workspace *w;
} generation;

/* The continuation in the text with its prompt. */
static char *after_prompt(const generation *g, const nm_id_list *prompt, char *whole)
{
    NM_AUTO_FREE char *head = text_of(g->w, prompt->ids, (size_t)prompt->n);
    size_t begin = 0;
    while (head[begin] && head[begin] == whole[begin])
        begin++;
    return whole + begin;
}

/* The first stop string in the text with its prompt, after the prompt; NULL: there is none. */
static char *find_stop(const generation *g, const nm_id_list *prompt, char *whole)
{
    return nm_stop_strings_find(g->stops, after_prompt(g, prompt, whole));
}

/* What follows the last allowed newline: the token of the newline may contain more. NULL: the text has fewer
 * newlines. */
static char *find_line_limit(const generation *g, const nm_id_list *prompt, char *whole)
{
    char *at = after_prompt(g, prompt, whole);
    for (int64_t i = 0; at && i < g->lines; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return at;
}

/* First token of the part of a text that is searched for a stop string after each token: it is longer than
 * the strings and, where the detokenizer depends on the words before, begins with a line. */
static size_t search_from(const generation *g, const nm_id_list *prompt, const nm_ids *found)
{
    enum { MORE_TOKENS = 8 }; /* those without text, and those in which a string begins and ends */
    const size_t head = (size_t)prompt->n, n = head + found->n, most = g->stops->longest + MORE_TOKENS;
    size_t begin = n > most ? n - most : 0;
    while (begin && !nm_lm_keeps_text(g->w->text) &&
           (begin > head ? found->data[begin - 1 - head] : prompt->ids[begin - 1]) != g->eos)
        begin--;
    return begin;
}

static bool contains_stop(void *user, const nm_id_list *prompt, const nm_ids *found)
{
    const generation *g = user;
    NM_AUTO_FREE char *end = text_from(g->w, prompt, found, search_from(g, prompt, found));
    bool contains = nm_stop_strings_find(g->stops, end) != NULL;
    if (!contains)
        return false;
    NM_AUTO_FREE char *whole = text_from(g->w, prompt, found, 0);
    contains = find_stop(g, prompt, whole) != NULL;
    return contains;
}

/* Removes what follows `at` from the whole text, and from the end of the text without the prompt. They may
 * differ in spaces: the detokenizer writes quotation marks that open or close depending on the prompt. at
 * NULL: nothing happens. */
static void cut_text(char *text, char *whole, char *at)
{
    if (!at)
        return;
    const char *from = whole + strlen(whole);
    size_t n = strlen(text);
    while (from > at && n) {
        const bool space = *--from == ' ';
        while (!space && n && text[n - 1] == ' ')
            n--;
        if (n && (!space || text[n - 1] == ' '))
            n--;
    }
    text[n] = 0;
    *at = 0;
}

static nm_lm_texts *texts_of(const generation *g, const nm_id_list *prompts, const nm_ids *found, size_t n)
{
    nm_lm_texts *texts = nm_allocate(sizeof *texts);
    *texts = (nm_lm_texts){.n = n,
                           .texts = nm_allocate(n * sizeof *texts->texts),
                           .whole = nm_allocate(n * sizeof *texts->whole)};
    for (size_t i = 0; i < n; i++) {
        char *whole = texts->whole[i] = text_from(g->w, &prompts[i], &found[i], 0);
        texts->texts[i] = continuation_of(g->w, &prompts[i], &found[i], whole);
        if (g->lines)
            cut_text(texts->texts[i], whole, find_line_limit(g, &prompts[i], whole));
        if (g->stops->n)
            cut_text(texts->texts[i], whole, find_stop(g, &prompts[i], whole));
    }
    return texts;
}

nm_status nm_language_model_generate(nm_language_model *self, const char *const *prompts, size_t n,
                                     uint64_t number, nm_lm_texts **texts, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !texts)
        return nm_fail(err, NM_USAGE, "nm_language_model_generate: %s is NULL", self ? "texts" : "model");
    workspace *w;
    NM_TRY(nm_texts_check(prompts, n, "prompt", err));
    NM_TRY(begin_call(self, "cannot generate text", &w, err));
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    NM_AUTO_FREE nm_ids *heads = nm_allocate(n * sizeof *heads), *found = nm_allocate(n * sizeof *found);
    NM_AUTO_FREE nm_id_list *lists = nm_allocate(n * sizeof *lists);
    nm_status status = encode_prompts(self, w, prompts, n, heads, err);
    for (size_t i = 0; i < n; i++)
        lists[i] = (nm_id_list){heads[i].data, (int32_t)heads[i].n};
    const nm_sample_options *sample = nm_options_find(self->inference.options, "sample");
    generation g = {&self->stops, self->trained.unit == NM_DOCUMENT_LINE ? 0 : sample->lines,
                    self->parts->vocab->eos, w};
    const nm_sampler_prompts all = {lists, n, number, self->stops.n ? contains_stop : NULL, &g};
    NM_THEN(status, nm_sampler_run(w->sampler, &all, &call.stop, found, err));
    if (status == NM_OK)
        *texts = texts_of(&g, lists, found, n);
    for (size_t i = 0; i < n; i++) {
        nm_ids_release(&heads[i]);
        nm_ids_release(&found[i]);
    }
    nm_workspaces_return(&self->pool, w);
    return status;
}

void nm_lm_texts_free(nm_lm_texts *self)
{
    if (!self)
        return;
    for (size_t i = 0; i < self->n; i++)
        NM_FREE(self->texts[i], self->whole[i]);
    NM_FREE(self->texts, self->whole, self);
}

size_t nm_lm_texts_n(const nm_lm_texts *self)
{
    return self ? self->n : 0;
}

const char *nm_lm_texts_get(const nm_lm_texts *self, size_t prompt)
{
    return prompt < nm_lm_texts_n(self) ? self->texts[prompt] : NULL;
}

const char *nm_lm_texts_with_prompt(const nm_lm_texts *self, size_t prompt)
{
    return prompt < nm_lm_texts_n(self) ? self->whole[prompt] : NULL;
}
