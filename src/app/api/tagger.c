#include "norma/tagger.h"

#include <stdlib.h>
#include <string.h>

#include "api/inference.h"
#include "api/sections.h"
#include "task/tagging.h"

typedef struct tag_config { /* section [tag] */
    const char *scheme;
} tag_config;

/* clang-format off */
static const nm_option tag_rows[] = {
    NM_TAG_ROWS(tag_config),
    {0}};
/* clang-format on */

/* Workspace of one call: copies of the task and the model of the tagger, with the word forms of the call and
 * a separate backend. */
typedef struct workspace {
    nm_tagging_parts parts;
    nm_task task;
    nm_model *model;
    nm_tag_corpus corpus;
} workspace;

struct nm_tagger {
    nm_inference inference;
    const nm_tagging_parts *parts;
    nm_tag_scheme scheme; /* of results */
    char **tags;          /* [parts->n_tags], as files have them */
    nm_workspaces pool;
};

struct nm_tagged {
    size_t n;
    struct tagged_sentence {
        size_t length, n_spans;
        char **tags;
        nm_span *spans; /* [n_spans]; labels point into tags */
        bool in_pieces;
    } * sentences;
};

static void add_options(nm_options *options)
{
    nm_options_add(options, "tag", tag_rows, NULL, sizeof(tag_config));
}

static const nm_inference_type inference_type = {
    .task = &nm_task_tagging, .sections = "tag,device", .add_options = add_options};

static void workspace_free(void *space)
{
    workspace *w = space;
    nm_counter_release(&w->parts.forms);
    NM_FREE(w->parts.form_words, w->parts.form_chars, w->parts.char_starts);
    nm_tag_corpus_release(&w->corpus);
    nm_model_free_worker(w->model);
    free(w);
}

static nm_status workspace_create(const nm_tagger *self, workspace **out, nm_error *err)
{
    const nm_loaded_model *loaded = &self->inference.models[0];
    workspace *w = nm_allocate(sizeof *w);
    w->parts = (nm_tagging_parts){.scheme = self->parts->scheme,
                                  .words = self->parts->words,
                                  .chars = self->parts->chars,
                                  .bigrams = self->parts->bigrams,
                                  .tags = self->parts->tags,
                                  .n_tags = self->parts->n_tags,
                                  .sizes = self->parts->sizes};
    w->task = loaded->task;
    w->task.parts = &w->parts;
    nm_status status = nm_model_create_worker(&w->model, loaded->model, err);
    NM_RETURN_NEW(status, out, w, workspace_free);
}

nm_status nm_tagger_open(nm_tagger **tagger, const char *path, const char *const *options, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!tagger)
        return nm_fail(err, NM_USAGE, "nm_tagger_open: tagger is NULL");
    nm_tagger *self = nm_allocate(sizeof *self);
    nm_workspaces_init(&self->pool);
    nm_status status = nm_inference_open(&self->inference, &inference_type, path, options, err);
    if (status != NM_OK) {
        nm_tagger_close(self);
        return status;
    }
    const tag_config *config = nm_options_find(self->inference.options, "tag");
    self->parts = self->inference.models[0].task.parts;
    self->tags = nm_allocate(((size_t)self->parts->n_tags + 1) * sizeof *self->tags);
    for (int32_t t = 0; t < self->parts->n_tags; t++)
        self->tags[t] = nm_tag_written(self->parts->scheme, self->parts->tags[t]);
    self->scheme =
        strcmp(config->scheme, "auto") ? nm_tag_scheme_find(config->scheme) : self->parts->file_scheme;
    if ((self->scheme == NM_TAGS_NONE) != (self->parts->scheme == NM_TAGS_NONE)) {
        status = nm_fail(err, NM_MISMATCH, "%s: the tags are %s, so tag.scheme = %s is not possible", path,
                         self->scheme == NM_TAGS_NONE ? "spans" : "classes without spans", config->scheme);
        nm_tagger_close(self);
        return status;
    }
    *tagger = self;
    return NM_OK;
}

void nm_tagger_close(nm_tagger *self)
{
    if (!self)
        return;
    nm_workspaces_release(&self->pool, workspace_free);
    if (self->tags)
        nm_tags_free(self->tags, self->parts->n_tags);
    nm_inference_close(&self->inference);
    free(self);
}

NM_INFERENCE_FUNCTIONS(nm_tagger)

const char *nm_tagger_file_scheme(const nm_tagger *self)
{
    return self ? nm_tag_scheme_name(self->parts->file_scheme) : NULL;
}

size_t nm_tagger_n_tags(const nm_tagger *self)
{
    return self ? (size_t)self->parts->n_tags : 0;
}

const char *nm_tagger_tag(const nm_tagger *self, size_t index)
{
    return index < nm_tagger_n_tags(self) ? self->tags[index] : NULL;
}

static nm_status check_tokens(const char *const *tokens, const size_t *lengths, size_t n, nm_error *err)
{
    size_t total = 0;
    if (n && !lengths)
        return nm_fail(err, NM_USAGE, "the array of lengths is NULL");
    for (size_t s = 0; s < n; s++) {
        if (lengths[s] > NM_SENTENCE_MAX)
            return nm_fail(err, NM_FORMAT, "sentence %zu: %zu tokens, the limit is %d", s, lengths[s],
                           NM_SENTENCE_MAX);
        total += lengths[s];
    }
    NM_TRY(nm_texts_check(tokens, total, "token", err));
    for (size_t i = 0; i < total; i++)
        if (!*tokens[i] || strchr(tokens[i], '\n'))
            return nm_fail(err, NM_FORMAT, "token %zu: %s", i, *tokens[i] ? "has a line break" : "is empty");
    return NM_OK;
}

/* Sets the names of the tags of a sentence, in the scheme of the options, and its spans. tags:
 * [sentence->length], ids. */
static void name_tags(const nm_tagger *self, const int32_t *tags, struct tagged_sentence *sentence)
{
    size_t n = sentence->length;
    NM_AUTO_FREE const char **names = nm_allocate(n * sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = self->parts->tags[tags[i]];
    sentence->tags = nm_allocate((n + 1) * sizeof *sentence->tags);
    sentence->spans = nm_allocate((n + 1) * sizeof *sentence->spans);
    nm_tags_convert(self->scheme, names, (int32_t)n, sentence->tags);
    if (self->scheme != NM_TAGS_NONE)
        sentence->n_spans =
            (size_t)nm_tag_spans((const char *const *)sentence->tags, (int32_t)n, sentence->spans);
    for (size_t i = 0; i < n; i++) {
        NM_AUTO_FREE char *tag = sentence->tags[i];
        sentence->tags[i] = nm_tag_written(self->scheme, tag);
    }
    for (size_t i = 0; i < sentence->n_spans; i++) {
        const char *written = sentence->tags[sentence->spans[i].first];
        sentence->spans[i].label = self->scheme == NM_TAGS_IO ? written : nm_tag_label(written);
    }
}

static nm_status tag(const nm_tagger *self, workspace *w, const char *const *tokens, const size_t *lengths,
                     nm_tagged *out, nm_error *err)
{
    NM_AUTO_FREE int32_t *tags = NULL;
    size_t longest = (size_t)nm_tagger_model_config_of(w->model)->max_positions;
    nm_tag_corpus_clear(&w->corpus);
    nm_tagging_clear_forms(&w->parts);
    for (size_t s = 0; s < out->n; s++) {
        nm_tagging_add(&w->parts, &w->corpus, tokens, NULL, (int32_t)lengths[s]);
        tokens += lengths[s];
    }
    nm_tagging_look_up(&w->parts, w->task.config);
    NM_TRY(nm_tagging_predict(&w->task, w->model, &w->corpus, (int64_t)out->n, &tags, NULL, err));
    for (size_t s = 0; s < out->n; s++) {
        out->sentences[s].length = lengths[s];
        out->sentences[s].in_pieces = lengths[s] > longest;
        name_tags(self, tags + w->corpus.offsets[s], &out->sentences[s]);
    }
    return NM_OK;
}

nm_status nm_tagger_run(nm_tagger *self, const char *const *tokens, const size_t *lengths, size_t n,
                        nm_tagged **tagged, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !tagged)
        return nm_fail(err, NM_USAGE, "nm_tagger_run: %s is NULL", self ? "tagged" : "tagger");
    NM_TRY(check_tokens(tokens, lengths, n, err));
    workspace *w = nm_workspaces_acquire(&self->pool);
    if (!w)
        NM_TRY(workspace_create(self, &w, err));
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    w->task.stop = &call.stop;
    nm_tagged *out = nm_allocate(sizeof *out);
    *out = (nm_tagged){.n = n, .sentences = nm_allocate(n * sizeof *out->sentences)};
    nm_status status = n ? tag(self, w, tokens, lengths, out, err) : NM_OK;
    w->task.stop = NULL;
    nm_workspaces_return(&self->pool, w);
    NM_RETURN_NEW(status, tagged, out, nm_tagged_free);
}

void nm_tagged_free(nm_tagged *self)
{
    if (!self)
        return;
    for (size_t s = 0; s < self->n; s++) {
        struct tagged_sentence *sentence = &self->sentences[s];
        nm_free_list(sentence->tags, sentence->length);
        free(sentence->spans);
    }
    NM_FREE(self->sentences, self);
}

size_t nm_tagged_n(const nm_tagged *self)
{
    return self ? self->n : 0;
}

size_t nm_tagged_length(const nm_tagged *self, size_t sentence)
{
    return sentence < nm_tagged_n(self) ? self->sentences[sentence].length : 0;
}

const char *nm_tagged_tag(const nm_tagged *self, size_t sentence, size_t token)
{
    return token < nm_tagged_length(self, sentence) ? self->sentences[sentence].tags[token] : NULL;
}

size_t nm_tagged_n_spans(const nm_tagged *self, size_t sentence)
{
    return sentence < nm_tagged_n(self) ? self->sentences[sentence].n_spans : 0;
}

bool nm_tagged_get_span(const nm_tagged *self, size_t sentence, size_t index, nm_tagged_span *span)
{
    if (!span || index >= nm_tagged_n_spans(self, sentence))
        return false;
    const nm_span *found = &self->sentences[sentence].spans[index];
    *span = (nm_tagged_span){(size_t)found->first, (size_t)found->end, found->label};
    return true;
}

bool nm_tagged_in_pieces(const nm_tagged *self, size_t sentence)
{
    return sentence < nm_tagged_n(self) && self->sentences[sentence].in_pieces;
}
