/* norma tag: tags for tokenized text or for files of columns, which keep what they have. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/open_model.h"
#include "data/line_list.h"
#include "metric/span_f1.h"
#include "task/tagging.h"
#include "text/words.h"

/* So many sentences and tokens are read before any is tagged. */
enum { SENTENCES_AT_ONCE = 512, TOKENS_AT_ONCE = 1 << 16 };

typedef struct tag_config { /* section [tag] */
    const char *output, *input_format, *scheme;
    int64_t token_column, tag_column;
    bool score;
} tag_config;

/* clang-format off */
static const nm_option tag_rows[] = {
    NM_OPTION(tag_config, output, "-", 0, 0, "file for the result; - is standard output"),
    NM_CHOICE(tag_config, input_format, "auto", "auto|columns|text", "columns, a token a line; or text, a sentence of tokens a line. auto: columns when the first line has a tab, a single word, or a tag as its last word"),
    NM_CHOICE(tag_config, scheme, "bio", NM_TAG_SCHEMES, "of the tags written"),
    NM_OPTION(tag_config, token_column, "1", 1, NM_COLUMNS_MAX, "column of the tokens"),
    NM_OPTION(tag_config, tag_column, "0", 0, NM_COLUMNS_MAX, "column of the right tags, for score; 0: the last"),
    NM_OPTION(tag_config, score, "false", 0, 1, "compare with the right tags that the columns have, and say precision, recall and F1 on standard error"),
    {0}};
/* clang-format on */

static void tag_options(nm_options *options)
{
    nm_options_add(options, "tag", tag_rows, NULL, sizeof(tag_config));
    nm_device_options_add(options);
}

typedef struct job {
    const tag_config *config;
    nm_backend *backend;
    nm_loaded_model loaded;
    FILE *input, *output;
    nm_columns columns;
    bool text;            /* input is a sentence a line */
    nm_tag_corpus corpus; /* sentences at hand */
    nm_line_list lines;   /* their lines as they stand, a token each */
    bool *document;       /* [SENTENCES_AT_ONCE] a line like -DOCSTART- */
    const char **tokens, **gold;
    size_t tokens_capacity, gold_capacity;
    nm_span_counts counts;
    int64_t n_cut, sentences, unknown;
} job;

static nm_tagging_parts *parts_of(const job *self)
{
    return nm_tagging_parts_of(&self->loaded.task);
}

/* ---- opening ---- */

/* Whether the line looks like one of columns. */
static bool looks_like_columns(const nm_lines *lines)
{
    const char *word, *last = NULL;
    size_t at = 0, bytes, last_bytes = 0;
    int64_t n = 0;
    while (nm_word_next(lines->text, lines->bytes, &at, &word, &bytes)) {
        last = word;
        last_bytes = bytes;
        n++;
    }
    if (n <= 1 || memchr(lines->text, '\t', lines->bytes))
        return true;
    char *tag = nm_allocate(last_bytes + 1);
    memcpy(tag, last, last_bytes);
    bool valid = nm_tag_valid(tag);
    free(tag);
    return valid;
}

static nm_status open_input(job *self, const char *path, nm_error *err)
{
    NM_TRY(nm_file_open(&self->input, path, "rb", err));
    nm_columns_init(&self->columns, self->input, strcmp(path, "-") ? path : "standard input");
    self->text = !strcmp(self->config->input_format, "text");
    if (!strcmp(self->config->input_format, "auto")) {
        bool more;
        NM_TRY(nm_columns_peek(&self->columns, &more, err));
        self->text = more && !looks_like_columns(&self->columns.lines);
    }
    if (self->text && self->config->score)
        return nm_fail(err, NM_USAGE, "tag.score needs columns with the right tags, not text");
    return nm_file_open(&self->output, self->config->output, "wb", err);
}

static nm_status job_open(job *self, const nm_cli *cli, int argc, char **argv, nm_error *err)
{
    self->document = nm_allocate(SENTENCES_AT_ONCE * sizeof *self->document);
    NM_TRY(nm_cli_open_backend(cli, &self->backend, err));
    NM_TRY(
        nm_cli_open_model(cli, argv[0], &nm_task_tagging, "does not tag", self->backend, &self->loaded, err));
    return open_input(self, argc > 1 ? argv[1] : "-", err);
}

static void job_release(job *self)
{
    nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
    nm_columns_release(&self->columns);
    nm_tag_corpus_release(&self->corpus);
    nm_line_list_release(&self->lines);
    free(self->document);
    free(self->tokens);
    free(self->gold);
    if (self->input && self->input != stdin)
        fclose(self->input);
}

/* ---- reading ---- */

static nm_status bad_line(const job *self, int64_t line, const char *what, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", self->columns.lines.path, (long long)line, what);
}

/* The sentence in the reader becomes one of the corpus. */
static nm_status add_columns(job *self, nm_error *err)
{
    const nm_columns *c = &self->columns;
    const tag_config *config = self->config;
    if (config->token_column > c->n_columns || config->tag_column > c->n_columns)
        return bad_line(self, c->line, "fewer columns than tag.token_column or tag.tag_column says", err);
    for (int32_t i = 0; i < c->n; i++) {
        NM_GROW(self->tokens, (size_t)i, self->tokens_capacity);
        NM_GROW(self->gold, (size_t)i, self->gold_capacity);
        self->tokens[i] = nm_columns_field(c, i, (int32_t)config->token_column - 1);
        self->gold[i] = nm_columns_field(c, i, (int32_t)config->tag_column - 1);
        if (config->score && !nm_tag_valid(self->gold[i]))
            return bad_line(self, c->line + i, "tag.score: the column of the right tags has something else",
                            err);
        const char *line = nm_columns_line(c, i);
        nm_line_list_add(&self->lines, line, strlen(line));
    }
    self->document[self->corpus.forms.n] = nm_columns_document(c);
    nm_tagging_add(parts_of(self), &self->corpus, self->tokens, config->score ? self->gold : NULL, c->n);
    return NM_OK;
}

static nm_status read_columns(job *self, bool *more, nm_error *err)
{
    NM_TRY(nm_columns_next(&self->columns, more, err));
    return *more ? add_columns(self, err) : NM_OK;
}

/* The next line that has words. Cuts the reader's copy of it. */
static nm_status read_text(job *self, bool *more, nm_error *err)
{
    nm_lines *lines = &self->columns.lines;
    NM_TRY(nm_columns_peek(&self->columns, more, err));
    self->columns.peeked = false;
    if (!*more)
        return NM_OK;
    size_t at = 0, bytes;
    const char *word;
    int32_t n = 0;
    while (nm_word_next(lines->text, lines->bytes, &at, &word, &bytes)) {
        if (n == NM_SENTENCE_MAX)
            return bad_line(self, lines->number, "a sentence of more than 65536 tokens", err);
        NM_GROW(self->tokens, (size_t)n, self->tokens_capacity);
        self->tokens[n++] = word;
        nm_line_list_add(&self->lines, word, bytes);
        lines->text[word - lines->text + (ptrdiff_t)bytes] = 0;
        at = (size_t)(word - lines->text) + bytes + 1;
    }
    self->document[self->corpus.forms.n] = false;
    nm_tagging_add(parts_of(self), &self->corpus, self->tokens, NULL, n);
    return NM_OK;
}

static nm_status read_some(job *self, nm_error *err)
{
    int64_t most = isatty(fileno(self->input)) ? 1 : SENTENCES_AT_ONCE;
    nm_tag_corpus_clear(&self->corpus);
    nm_tagging_forget_forms(parts_of(self));
    nm_line_list_clear(&self->lines);
    for (bool more = true; more && self->corpus.forms.n < most && self->lines.n < TOKENS_AT_ONCE;)
        NM_TRY(self->text ? read_text(self, &more, err) : read_columns(self, &more, err));
    return NM_OK;
}

/* ---- writing ---- */

static void count_spans(job *self, int64_t s, const char *const *found)
{
    const nm_tagging_parts *parts = parts_of(self);
    uint64_t first = self->corpus.offsets[s], end = self->corpus.offsets[s + 1];
    for (uint64_t at = first; at < end; at++) {
        self->gold[at - first] = parts->gold_names.items[self->corpus.gold[at]].text;
        self->unknown += self->corpus.gold[at] >= parts->n_tags;
    }
    nm_span_counts one = nm_span_count(found, self->gold, (int32_t)(end - first));
    self->counts.correct += one.correct;
    self->counts.predicted += one.predicted;
    self->counts.gold += one.gold;
}

static void write_sentence(job *self, int64_t s, const int32_t *tags)
{
    const nm_tagging_parts *parts = parts_of(self);
    uint64_t first = self->corpus.offsets[s];
    int32_t n = (int32_t)(self->corpus.offsets[s + 1] - first);
    const char **found = self->tokens; /* no longer needed as tokens */
    char **written = nm_allocate((size_t)n * sizeof *written);
    for (int32_t i = 0; i < n; i++)
        found[i] = self->document[s] ? "O" : parts->tags[tags[first + (uint64_t)i]];
    nm_tags_convert(nm_tag_scheme_find(self->config->scheme), found, n, written);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(&self->lines, (size_t)first + (size_t)i, &bytes);
        bool blanks = !memchr(line, '\t', bytes) && memchr(line, ' ', bytes);
        fprintf(self->output, "%.*s%c%s\n", (int)bytes, line, blanks ? ' ' : '\t', written[i]);
        free(written[i]);
    }
    fputc('\n', self->output);
    free(written);
    if (self->config->score)
        count_spans(self, s, found);
}

static nm_status tag_some(job *self, nm_error *err)
{
    int64_t n = self->corpus.forms.n;
    int32_t *tags;
    nm_tagging_look_up(parts_of(self), nm_options_find(self->loaded.options, "data"));
    NM_TRY(nm_tagging_predict(&self->loaded.task, self->loaded.model, &self->corpus, n, &tags, &self->n_cut,
                              err));
    for (int64_t s = 0; s < n; s++)
        write_sentence(self, s, tags);
    free(tags);
    self->sentences += n;
    return nm_file_flush(self->output, self->config->output, err);
}

static nm_status tag_all(job *self, nm_error *err)
{
    do {
        NM_TRY(read_some(self, err));
        if (self->corpus.forms.n)
            NM_TRY(tag_some(self, err));
    } while (self->corpus.forms.n);
    return NM_OK;
}

static void say_what_was(const job *self)
{
    if (self->n_cut)
        fprintf(stderr,
                "norma: %lld of %lld sentences have more than %lld tokens and were tagged in pieces\n",
                (long long)self->n_cut, (long long)self->sentences,
                (long long)nm_tagger_config_of(self->loaded.model)->max_positions);
    if (!self->config->score)
        return;
    nm_span_score score = nm_span_compute(&self->counts);
    fprintf(stderr, "precision %.2f  recall %.2f  F1 %.2f  (%lld spans, %lld found, %lld of them right)\n",
            100 * score.precision, 100 * score.recall, 100 * score.f1, (long long)self->counts.gold,
            (long long)self->counts.predicted, (long long)self->counts.correct);
    if (self->unknown)
        fprintf(stderr, "norma: %lld tokens have a tag that the model does not know; they count as missed\n",
                (long long)self->unknown);
}

static int tag_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.config = nm_options_find(cli->options, "tag")};
    nm_status status = nm_cli_want(cli, argc, 1, 2, &err);
    if (status == NM_OK)
        status = job_open(&self, cli, argc, argv, &err);
    if (status == NM_OK)
        status = tag_all(&self, &err);
    if (status == NM_OK)
        say_what_was(&self);
    status = nm_cli_close(self.output, self.config->output, status, &err);
    job_release(&self);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_tag = {
    .name = "tag",
    .summary = "tag named entities in text or in files of columns",
    .usage = "MODEL|RUN [FILE] [--tag.score true] [--section.key value ...]",
    .details =
        "Reads tokenized text, a sentence a line, or columns in CoNLL's form, a token a line and a blank "
        "line\n"
        "behind each sentence; FILE may be left out or be - for standard input. Writes columns: those that\n"
        "the file has, as they stand, and the tag behind them.\n",
    .section = "tag,device",
    .options = tag_options,
    .run = tag_run,
};
