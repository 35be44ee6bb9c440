/* norma tag: tags tokenized text or files of columns; columns are kept and the predicted tag is appended. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_command.h"
#include "base/text_input.h"
#include "data/line_list.h"
#include "metric/span_f1.h"
#include "task/tagging.h"
#include "text/words.h"

/* Limits of the sentences that are read before they are tagged. */
enum { BUFFER_SENTENCES = 512, BUFFER_TOKENS = 1 << 16 };

typedef enum input_format { FORMAT_AUTO, FORMAT_COLUMNS, FORMAT_TEXT } input_format;

typedef struct tag_config { /* section [tag] */
    const char *output, *scheme;
    input_format input_format;
    int64_t token_column, tag_column;
    bool evaluate;
} tag_config;

/* clang-format off */
static const nm_option tag_rows[] = {
    NM_OPTION(tag_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_CHOICE(tag_config, input_format, "auto", "auto|columns|text", "Format of the input: columns with one token per line, or text with one sentence of tokens per line. auto: columns if the first line has a tab, a single token, or a tag as its last token."),
    NM_CHOICE(tag_config, scheme, "bio", NM_TAG_SCHEMES, "Scheme of the predicted tags."),
    NM_OPTION(tag_config, token_column, "1", 1, NM_COLUMNS_MAX, "Column of the tokens, counted from 1."),
    NM_OPTION(tag_config, tag_column, "0", 0, NM_COLUMNS_MAX, "Column of the gold tags for --evaluate, counted from 1; 0: the last column."),
    NM_OPTION(tag_config, evaluate, "false", 0, 1, "Compare with the gold tags of the columns and print precision, recall and F1 to standard error."),
    {0}};
/* clang-format on */

static void tag_options(nm_options *options)
{
    nm_options_add(options, "tag", tag_rows, NULL, sizeof(tag_config));
    nm_device_options_add(options);
}

typedef struct job {
    const tag_config *config;
    nm_model_session *session;
    nm_loaded_model *loaded;
    FILE *input;
    nm_columns columns;
    bool text;            /* the input has one sentence per line */
    nm_tag_corpus corpus; /* the sentences in the buffer */
    nm_line_list lines;   /* their lines or tokens, unchanged: one per token */
    bool *document;       /* [BUFFER_SENTENCES] a line such as -DOCSTART- */
    const char **tokens, **gold;
    size_t tokens_capacity, gold_capacity;
    nm_span_counts counts;
    int64_t n_cut, sentences, unknown;
} job;

static nm_tagging_parts *parts_of(const job *self)
{
    return nm_tagging_parts_of(&self->loaded->task);
}

/* ---- input ---- */

/* Whether the current line has a tab, a single token, or a tag as its last token. */
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
    NM_TRY(nm_text_open(&self->input, path, NULL, err));
    nm_columns_init(&self->columns, self->input, nm_cli_input_name(path));
    self->text = self->config->input_format == FORMAT_TEXT;
    if (self->config->input_format == FORMAT_AUTO) {
        bool more;
        NM_TRY(nm_columns_peek(&self->columns, &more, err));
        self->text = more && !looks_like_columns(&self->columns.lines);
    }
    if (self->text && self->config->evaluate)
        return nm_fail(err, NM_USAGE, "tag.evaluate needs columns with gold tags, not text");
    return NM_OK;
}

static void release(void *state)
{
    job *self = state;
    nm_columns_release(&self->columns);
    nm_tag_corpus_release(&self->corpus);
    nm_line_list_release(&self->lines);
    free(self->document);
    free(self->tokens);
    free(self->gold);
    if (self->input && self->input != stdin)
        fclose(self->input);
}

static nm_status bad_line(const job *self, int64_t line, const char *what, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", self->columns.lines.path, (long long)line, what);
}

/* Adds the reader's sentence to the corpus. */
static nm_status add_columns(job *self, nm_error *err)
{
    const nm_columns *c = &self->columns;
    const tag_config *config = self->config;
    if (config->token_column > c->n_columns || config->tag_column > c->n_columns)
        return bad_line(self, c->line, "fewer columns than tag.token_column or tag.tag_column", err);
    for (int32_t i = 0; i < c->n; i++) {
        NM_GROW(self->tokens, (size_t)i, self->tokens_capacity);
        NM_GROW(self->gold, (size_t)i, self->gold_capacity);
        self->tokens[i] = nm_columns_field(c, i, (int32_t)config->token_column - 1);
        self->gold[i] = nm_columns_field(c, i, (int32_t)config->tag_column - 1);
        if (config->evaluate && !nm_tag_valid(self->gold[i]))
            return bad_line(self, c->line + i, "tag.evaluate: the column of the gold tags has something else",
                            err);
        const char *line = nm_columns_line(c, i);
        nm_line_list_add(&self->lines, line, strlen(line));
    }
    self->document[self->corpus.forms.n] = nm_columns_document(c);
    nm_tagging_add(parts_of(self), &self->corpus, self->tokens, config->evaluate ? self->gold : NULL, c->n);
    return NM_OK;
}

static nm_status read_columns(job *self, bool *more, nm_error *err)
{
    NM_TRY(nm_columns_next(&self->columns, more, err));
    return *more ? add_columns(self, err) : NM_OK;
}

/* The next line that is not blank. Splits the reader's copy of it into tokens. */
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

static nm_status read_sentences(job *self, nm_error *err)
{
    int64_t max_sentences = isatty(fileno(self->input)) ? 1 : BUFFER_SENTENCES;
    nm_tag_corpus_clear(&self->corpus);
    nm_tagging_clear_forms(parts_of(self));
    nm_line_list_clear(&self->lines);
    for (bool more = true; more && self->corpus.forms.n < max_sentences && self->lines.n < BUFFER_TOKENS;)
        NM_TRY(self->text ? read_text(self, &more, err) : read_columns(self, &more, err));
    return NM_OK;
}

/* ---- output ---- */

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
    FILE *output = self->session->output.stream;
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
        fprintf(output, "%.*s%c%s\n", (int)bytes, line, blanks ? ' ' : '\t', written[i]);
        free(written[i]);
    }
    fputc('\n', output);
    free(written);
    if (self->config->evaluate)
        count_spans(self, s, found);
}

static nm_status tag_sentences(job *self, nm_error *err)
{
    int64_t n = self->corpus.forms.n;
    int32_t *tags;
    nm_tagging_look_up(parts_of(self), nm_options_find(self->loaded->options, "data"));
    NM_TRY(nm_tagging_predict(&self->loaded->task, self->loaded->model, &self->corpus, n, &tags, &self->n_cut,
                              err));
    for (int64_t s = 0; s < n; s++)
        write_sentence(self, s, tags);
    free(tags);
    self->sentences += n;
    return nm_file_flush(self->session->output.stream, self->session->output.name, err);
}

static void print_evaluation(const job *self)
{
    nm_span_score score = nm_span_compute(&self->counts);
    fprintf(stderr, "precision %.2f  recall %.2f  F1 %.2f  (%lld gold spans, %lld predicted, %lld correct)\n",
            100 * score.precision, 100 * score.recall, 100 * score.f1, (long long)self->counts.gold,
            (long long)self->counts.predicted, (long long)self->counts.correct);
    if (self->unknown)
        fprintf(stderr, "norma: %lld gold tags are not among the model's tags; they count as missed\n",
                (long long)self->unknown);
}

static nm_status tag(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    self->loaded = &session->model;
    self->document = nm_allocate(BUFFER_SENTENCES * sizeof *self->document);
    NM_TRY(open_input(self, session->inputs[0], err));
    do {
        NM_TRY(read_sentences(self, err));
        if (self->corpus.forms.n)
            NM_TRY(tag_sentences(self, err));
    } while (self->corpus.forms.n);
    if (self->n_cut)
        fprintf(stderr,
                "norma: %lld of %lld sentences have more than %lld tokens and were tagged in pieces\n",
                (long long)self->n_cut, (long long)self->sentences,
                (long long)nm_tagger_config_of(self->loaded->model)->max_positions);
    if (self->config->evaluate)
        print_evaluation(self);
    return NM_OK;
}

static int tag_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "tag")};
    const nm_model_command command = {.task = &nm_task_tagging,
                                      .refusal = "does not tag",
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .process = tag,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_tag = {
    .name = "tag",
    .summary = "tag named entities in text or in files of columns",
    .usage = "MODEL [FILE] [--evaluate] [--output FILE] [OPTION ...]",
    .details =
        "Reads tokenized text with one sentence per line, or CoNLL columns with one token per line and a "
        "blank line after each sentence, from FILE or standard input. Writes columns: those of the "
        "input, unchanged, and the predicted tag as the last one. MODEL is a model file or a run folder, "
        "of which the best model is used, or else the last one.\n\n"
        "With --evaluate precision, recall and F1 of the spans are printed to standard error, computed "
        "against the gold tags in --tag-column.\n",
    .section = "tag,device",
    .options = tag_options,
    .run = tag_run,
};
