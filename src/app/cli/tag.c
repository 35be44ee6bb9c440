/* norma tag: tags tokenized text or files in CoNLL columns; the columns are kept, and the predicted tag is
 * appended. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/sections.h"
#include "base/json.h"
#include "base/record.h"
#include "cli/line_numbers.h"
#include "cli/model_command.h"
#include "base/text_input.h"
#include "base/utf8_cut.h"
#include "base/line_list.h"
#include "text/span_f1.h"
#include "norma/tagger.h"
#include "text/columns.h"
#include "text/tags.h"
#include "base/words.h"

/* Maximum size of a buffer: number of sentences and tokens that are read before they are tagged. */
enum { BUFFER_SENTENCES = 512, BUFFER_TOKENS = 1 << 16 };

#define INPUT_FORMATS(C) C(FORMAT_AUTO, "auto") C(FORMAT_COLUMNS, "columns") C(FORMAT_TEXT, "text")
NM_CHOICES(input_format, INPUT_FORMATS);

typedef struct tag_config { /* section [tag] */
    const char *output, *encoding, *scheme;
    input_format input_format;
    int64_t token_column, tag_column;
    bool evaluate, json;
    nm_on_invalid on_invalid;
} tag_config;

/* clang-format off */
static const nm_option tag_rows[] = {
    NM_OPTION(tag_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_TEXT_ENCODING_OPTION(tag_config),
    NM_CHOICE(tag_config, input_format, "auto", INPUT_FORMATS,
        "Format of the input: columns with one token per line, or text with one sentence of tokens per line. "
        "auto: columns if the first line has a tab, a single token, or a tag as its last token: B-PER, or a "
        "tag of the model that has a letter or equals the token."),
    NM_TAG_ROWS(tag_config),
    NM_OPTION(tag_config, token_column, "1", 1, NM_COLUMNS_MAX, "Column of the tokens, counted from 1."),
    NM_OPTION(tag_config, tag_column, "0", 0, NM_COLUMNS_MAX,
        "Column of the gold tags for --evaluate, counted from 1; 0: the last column."),
    NM_OPTION(tag_config, evaluate, "false", 0, 1,
        "Compare with the gold tags of the columns and print precision, recall and F1, of all spans and by "
        "label, or the accuracy of tags that are classes, to standard error, or with --json to the output."),
    NM_OPTION(tag_config, json, "false", 0, 1,
        "Write one JSON object per sentence instead of columns, or one for the evaluation."),
    NM_CHOICE(tag_config, on_invalid, "error", NM_ON_INVALID_CHOICES,
        "Treatment of lines that are not UTF-8 or contain zero bytes: stop with an error after the preceding "
        "sentences, or skip: leave out their sentences."),
    {0}};
static const nm_option_rule tag_rules[] = {
    {"tag.tag_column", "tag.evaluate", "true", "only the evaluation reads gold tags", NULL},
    {"tag.on_invalid", "tag.evaluate", "false", "the evaluation needs all sentences", NULL},
    {"tag.token_column", "tag.input_format", "!text", "text has no columns", NULL},
    {0}};
/* clang-format on */

typedef struct job {
    const tag_config *config;
    nm_model_session *session;
    nm_tagger *tagger;
    /* schemes of the model's tags, of its training file and thus of gold tags, and of the output */
    nm_tag_scheme model_scheme, file_scheme, output_scheme;
    FILE *input;
    nm_columns columns;
    bool text;           /* the input has one sentence per line */
    int64_t blank_lines; /* before the first line of text, read to find out; they have no output yet */
    /* The n sentences in the buffer: */
    nm_line_list tokens, gold; /* NUL-terminated; gold: tags of the input columns */
    nm_line_list lines;        /* unchanged lines of the input columns */
    size_t n, *lengths;        /* [BUFFER_SENTENCES], numbers of tokens */
    bool *document;            /* [BUFFER_SENTENCES], whether it is a line such as -DOCSTART- */
    bool *joined;           /* [BUFFER_SENTENCES], whether the next sentence follows without a blank line */
    int64_t *numbers;       /* [BUFFER_SENTENCES], of their first lines in the file */
    nm_counter labels;      /* evaluate: those of the model and of the gold tags */
    nm_span_counts *counts; /* [labels.n] */
    size_t counts_capacity;
    nm_cli_line_numbers in_pieces, skipped;
    int64_t sentences, unknown;
    int64_t block; /* number of the buffer; rank block % size tags it */
} job;

static nm_status open_tagger(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    job *self = state;
    NM_AUTO_FREE const char **settings = nm_cli_settings(
        session->cli,
        "tag.output,tag.input_format,tag.token_column,tag.tag_column,tag.evaluate,tag.json,tag.encoding,"
        "tag.on_invalid");
    nm_status status = nm_tagger_open(&self->tagger, path, settings, err);
    nm_cli_warn(nm_tagger_warning(self->tagger));
    return status;
}

static bool has_letter(const char *tag)
{
    while (*tag && !((*tag | 32) >= 'a' && (*tag | 32) <= 'z'))
        tag++;
    return *tag;
}

static bool is_tag_of_model(const job *self, const char *tag)
{
    for (size_t i = 0; i < nm_tagger_n_tags(self->tagger); i++)
        if (!strcmp(nm_tagger_tag(self->tagger, i), tag))
            return true;
    return false;
}

/* Whether the current line has a tab, a single token, or a tag as its last token. The tags of a model of
 * parts of speech contain punctuation, which ends sentences of text, but rarely follows itself: ", ,". */
static bool looks_like_columns(const job *self, const nm_lines *lines)
{
    const char *word, *last = NULL;
    size_t at = 0, bytes, last_bytes = 0;
    bool twice = false;
    int64_t n = 0;
    while (nm_word_next(lines->text, lines->bytes, &at, &word, &bytes)) {
        twice = n == 1 && bytes == last_bytes && !memcmp(word, last, bytes);
        last = word;
        last_bytes = bytes;
        n++;
    }
    if (n <= 1 || memchr(lines->text, '\t', lines->bytes))
        return true;
    NM_AUTO_FREE char *tag = nm_allocate(last_bytes + 1);
    memcpy(tag, last, last_bytes);
    bool known = self->file_scheme == NM_TAGS_IO
                     ? nm_counter_find(&self->labels, tag, last_bytes) < self->labels.n
                     : is_tag_of_model(self, tag);
    return nm_tag_valid(tag) || ((has_letter(tag) || twice) && known);
}

static nm_status open_input(job *self, const char *path, nm_error *err)
{
    NM_TRY(nm_text_open_checked(&self->input, path, self->config->encoding, err));
    nm_columns_init(&self->columns, self->input, nm_input_name(path));
    self->columns.skip_invalid = self->config->on_invalid == NM_INVALID_IS_SKIPPED;
    self->text = self->config->input_format == FORMAT_TEXT;
    if (self->config->input_format == FORMAT_AUTO) {
        bool more;
        NM_TRY(nm_columns_peek(&self->columns, &more, &self->blank_lines, err));
        self->text = more && !looks_like_columns(self, &self->columns.lines);
    }
    if (self->text && self->config->evaluate)
        return nm_fail(err, NM_USAGE, "tag.evaluate needs columns with gold tags, not text");
    return NM_OK;
}

static void release(void *state)
{
    job *self = state;
    nm_tagger_close(self->tagger);
    nm_columns_release(&self->columns);
    nm_line_list_release(&self->tokens);
    nm_line_list_release(&self->gold);
    nm_line_list_release(&self->lines);
    NM_FREE(self->lengths, self->document, self->joined, self->numbers, self->counts);
    nm_counter_release(&self->labels);
    nm_input_close(self->input);
}

static nm_status bad_line(const job *self, int64_t line, const char *what, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", self->columns.lines.path, (long long)line, what);
}

static void add_text(nm_line_list *list, const char *text)
{
    nm_line_list_add(list, text, strlen(text) + 1);
}

/* tag: a span tag (text/tags.h). */
static void add_label(job *self, const char *tag)
{
    if (nm_tag_outside(tag))
        return;
    size_t known = self->labels.n;
    nm_counter_add(&self->labels, nm_tag_label(tag), strlen(nm_tag_label(tag)), 1);
    if (self->labels.n == known)
        return;
    NM_GROW(self->counts, known, self->counts_capacity);
    self->counts[known] = (nm_span_counts){0};
}

/* Adds the current sentence of the reader to the buffer. */
static nm_status add_columns(job *self, nm_error *err)
{
    const nm_columns *c = &self->columns;
    const tag_config *config = self->config;
    if (config->token_column > c->n_columns || config->tag_column > c->n_columns)
        return bad_line(self, c->line, "fewer columns than tag.token_column or tag.tag_column", err);
    if (config->evaluate && config->token_column == (config->tag_column ? config->tag_column : c->n_columns))
        return bad_line(self, c->line,
                        "the column of the tokens is that of the tags (tag.token_column, tag.tag_column)",
                        err);
    for (int32_t i = 0; i < c->n; i++) {
        const char *gold = nm_columns_field(c, i, (int32_t)config->tag_column - 1);
        char *tag = config->evaluate ? nm_tag_read(self->file_scheme, gold) : NULL;
        if (config->evaluate && !tag)
            return nm_fail(err, NM_FORMAT,
                           "%s:%lld: '%.60s' is not a tag such as O or B-PER (tag.tag_column)",
                           self->columns.lines.path, (long long)(c->line + i), gold);
        if (tag)
            add_label(self, tag);
        free(tag);
        add_text(&self->tokens, nm_columns_field(c, i, (int32_t)config->token_column - 1));
        add_text(&self->gold, gold);
        add_text(&self->lines, nm_columns_line(c, i));
    }
    self->document[self->n] = nm_columns_document(c);
    self->joined[self->n] = c->joined;
    self->numbers[self->n] = c->line;
    self->lengths[self->n++] = (size_t)c->n;
    return NM_OK;
}

static nm_status read_columns(job *self, bool *more, nm_error *err)
{
    NM_TRY(nm_columns_next(&self->columns, more, err));
    if (self->columns.invalid)
        nm_cli_line_numbers_add(&self->skipped, self->columns.invalid);
    return *more && !self->columns.invalid ? add_columns(self, err) : NM_OK;
}

/* Adds the next line, a blank one as a sentence without tokens, and so an invalid one that is skipped: every
 * line has an output. Modifies the line in the memory of the reader. */
static nm_status read_text(job *self, bool *more, nm_error *err)
{
    nm_lines *lines = &self->columns.lines;
    NM_TRY(nm_columns_next_line(&self->columns, more, err));
    if (!*more)
        return NM_OK;
    bool skipped = self->columns.line_invalid;
    if (skipped)
        nm_cli_line_numbers_add(&self->skipped, lines->number);
    size_t at = 0, bytes, n = 0;
    const char *word;
    for (size_t i = 0; i < lines->bytes; i++) /* a tab would separate columns of the output */
        if (lines->text[i] == '\t')
            lines->text[i] = ' ';
    while (!skipped && nm_word_next(lines->text, lines->bytes, &at, &word, &bytes)) {
        if (n++ == NM_SENTENCE_MAX)
            return bad_line(self, lines->number, "a sentence of more than 65536 tokens", err);
        lines->text[word - lines->text + (ptrdiff_t)bytes] = 0;
        at = (size_t)(word - lines->text) + bytes + 1;
        add_text(&self->tokens, word);
    }
    self->document[self->n] = self->joined[self->n] = false;
    self->numbers[self->n] = lines->number;
    self->lengths[self->n++] = n;
    return NM_OK;
}

static void add_empty(job *self, int64_t line)
{
    self->document[self->n] = self->joined[self->n] = false;
    self->numbers[self->n] = line;
    self->lengths[self->n++] = 0;
}

/* After an error the buffer has the sentences before it. */
static nm_status read_sentences(job *self, nm_error *err)
{
    size_t max_sentences = isatty(fileno(self->input)) ? 1 : BUFFER_SENTENCES;
    self->n = 0;
    nm_line_list_clear(&self->tokens);
    nm_line_list_clear(&self->gold);
    nm_line_list_clear(&self->lines);
    for (; self->text && self->blank_lines && self->n < max_sentences; self->blank_lines--)
        add_empty(self, self->columns.lines.number - self->blank_lines);
    for (bool more = true; more && self->n < max_sentences && self->tokens.n < BUFFER_TOKENS;)
        NM_TRY(self->text ? read_text(self, &more, err) : read_columns(self, &more, err));
    return NM_OK;
}

/* Adds the spans of a sentence of n tokens to the counts; classes are spans of one token. found: [n],
 * predicted tags; first: index of its first token. */
static void count_spans(job *self, size_t first, const char *const *found, size_t n)
{
    NM_AUTO_FREE const char **texts = nm_allocate((n + 1) * sizeof *texts);
    char **converted = nm_allocate((n + 1) * sizeof *converted);
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        texts[i] = nm_line_list_get(&self->gold, first + i, &bytes);
    char **gold = nm_tags_read(self->file_scheme, texts, (int32_t)n),
         **predicted = nm_tags_read(self->output_scheme, found, (int32_t)n);
    nm_tags_convert(self->model_scheme, (const char *const *)gold, (int32_t)n, converted);
    for (size_t i = 0; i < n; i++) {
        NM_AUTO_FREE char *written = nm_tag_written(self->model_scheme, converted[i]);
        self->unknown += !is_tag_of_model(self, written);
    }
    nm_span_count_labels((const char *const *)predicted, (const char *const *)gold, (int32_t)n, &self->labels,
                         self->counts);
    nm_tags_free(gold, (int32_t)n);
    nm_tags_free(predicted, (int32_t)n);
    nm_tags_free(converted, (int32_t)n);
}

static void write_columns(const job *self, size_t s, size_t first, const char *const *found)
{
    FILE *output = self->session->output.stream;
    size_t bytes;
    for (size_t i = 0; i < self->lengths[s]; i++) {
        const char *line = nm_line_list_get(self->text ? &self->tokens : &self->lines, first + i, &bytes);
        bool blanks = !strchr(line, '\t') && strchr(line, ' ');
        fprintf(output, "%s%c%s\n", line, blanks ? ' ' : '\t', found[i]);
    }
    if (!self->joined[s])
        fputc('\n', output);
}

#define SPAN(F)                                                                                              \
    F(int, begin, "First token of the predicted span, from 0")                                               \
    F(int, end, "Token after its last one")                                                                  \
    F(text, label, "Label of the span, for example `PER`")
NM_RECORD(span_record, SPAN)
static NM_FIELDS(span_record, SPAN)

#define TAGGED(F)                                                                                            \
    F(int, line,                                                                                             \
      "Line of the input, from 1; of columns, the first one of the sentence. Text has an "                   \
      "object for every line, also an empty one")                                                            \
    F(json, tokens, "Tokens of the sentence")                                                                \
    F(json, tags, "Predicted tag of each token")                                                             \
    F(json, spans, "Predicted spans")                                                                        \
    F(flag, in_pieces,                                                                                       \
      "Whether the sentence has more tokens than the model has positions and was tagged "                    \
      "in pieces")
NM_RECORD(tagged_record, TAGGED)
static NM_FIELDS(tagged_record, TAGGED)

static json_t *spans_json(const nm_tagged *tagged, size_t s)
{
    json_t *spans = json_array();
    nm_tagged_span span;
    for (size_t i = 0; nm_tagged_get_span(tagged, s, i, &span); i++) {
        const span_record record = {(int64_t)span.first, (int64_t)span.end, span.label};
        json_array_append_new(spans, nm_record_json(span_record_fields(), &record));
    }
    return spans;
}

/* A line that starts a document has no spans. */
static void write_json(const job *self, size_t s, size_t first, const char *const *found,
                       const nm_tagged *tagged)
{
    const size_t n = self->lengths[s];
    NM_AUTO_FREE const char **tokens = nm_allocate((n + 1) * sizeof *tokens);
    for (size_t i = 0, bytes; i < n; i++)
        tokens[i] = nm_line_list_get(&self->tokens, first + i, &bytes);
    const tagged_record record = {self->numbers[s], nm_json_texts(tokens, n), nm_json_texts(found, n),
                                  self->document[s] ? json_array() : spans_json(tagged, s),
                                  nm_tagged_in_pieces(tagged, s)};
    json_t *root = nm_record_json(tagged_record_fields(), &record);
    nm_json_print(root, JSON_COMPACT, self->session->output.stream);
}

static void write_sentence(job *self, size_t s, size_t first, const nm_tagged *tagged)
{
    size_t n = self->lengths[s];
    NM_AUTO_FREE const char **found = nm_allocate(n * sizeof *found);
    for (size_t i = 0; i < n; i++)
        found[i] = self->document[s] ? "O" : nm_tagged_tag(tagged, s, i);
    if (!self->config->json)
        write_columns(self, s, first, found);
    else if (!self->config->evaluate)
        write_json(self, s, first, found, tagged);
    if (self->config->evaluate)
        count_spans(self, first, found, n);
}

static nm_status tag_sentences(job *self, nm_error *err)
{
    NM_AUTO_FREE const char **tokens = nm_allocate(self->tokens.n * sizeof *tokens);
    nm_tagged *tagged;
    size_t bytes, first = 0;
    for (size_t i = 0; i < self->tokens.n; i++)
        tokens[i] = nm_line_list_get(&self->tokens, i, &bytes);
    NM_TRY(nm_tagger_run(self->tagger, tokens, self->lengths, self->n, &tagged, err));
    for (size_t s = 0; s < self->n; s++) {
        write_sentence(self, s, first, tagged);
        if (nm_tagged_in_pieces(tagged, s))
            nm_cli_line_numbers_add(&self->in_pieces, self->numbers[s]);
        first += self->lengths[s];
        self->sentences += !self->document[s];
    }
    nm_tagged_free(tagged);
    return NM_OK;
}

static nm_span_counts sum_of_labels(const job *self)
{
    nm_span_counts sum = {0};
    for (size_t k = 0; k < self->labels.n; k++) {
        sum.correct += self->counts[k].correct;
        sum.predicted += self->counts[k].predicted;
        sum.gold += self->counts[k].gold;
    }
    return sum;
}

static int compare_labels(const void *left, const void *right)
{
    const nm_count *const *a = left, *const *b = right;
    return strcmp((*a)->text, (*b)->text);
}

/* The labels of gold and predicted spans, sorted by name; heap, *n of them. */
static const nm_count **sorted_labels(const job *self, size_t *n)
{
    const nm_count **labels = nm_allocate((self->labels.n + 1) * sizeof *labels);
    *n = 0;
    for (size_t k = 0; k < self->labels.n; k++)
        if (self->counts[k].gold || self->counts[k].predicted)
            labels[(*n)++] = &self->labels.items[k];
    qsort(labels, *n, sizeof *labels, compare_labels);
    return labels;
}

static const nm_span_counts *counts_of_label(const job *self, const nm_count *label)
{
    return &self->counts[label - self->labels.items];
}

static void print_evaluation(const job *self)
{
    nm_span_counts sum = sum_of_labels(self);
    nm_span_score score = nm_span_compute(&sum);
    size_t n;
    NM_AUTO_FREE const nm_count **labels = sorted_labels(self, &n);
    int width = (int)strlen("label");
    if (self->file_scheme == NM_TAGS_NONE)
        fprintf(stderr, "accuracy %.2f  (%lld of %lld tags are correct)\n", 100 * score.f1,
                (long long)sum.correct, (long long)sum.gold);
    else
        fprintf(stderr,
                "precision %.2f  recall %.2f  F1 %.2f  (%lld gold spans, %lld predicted, %lld correct)\n",
                100 * score.precision, 100 * score.recall, 100 * score.f1, (long long)sum.gold,
                (long long)sum.predicted, (long long)sum.correct);
    if (n == 1 && !*labels[0]->text)
        n = 0; /* the spans have no labels */
    for (size_t i = 0; i < n; i++)
        width = nm_utf8_count(labels[i]->text) > width ? nm_utf8_count(labels[i]->text) : width;
    if (n)
        fprintf(stderr, "%-*s  precision  recall      F1    gold  predicted  correct\n", width, "label");
    for (size_t i = 0; i < n; i++) {
        const nm_span_counts *counts = counts_of_label(self, labels[i]);
        score = nm_span_compute(counts);
        fprintf(stderr, "%s%*s  %9.2f %7.2f %7.2f %7lld %10lld %8lld\n", labels[i]->text,
                width - nm_utf8_count(labels[i]->text), "", 100 * score.precision, 100 * score.recall,
                100 * score.f1, (long long)counts->gold, (long long)counts->predicted,
                (long long)counts->correct);
    }
}

#define SPAN_SCORES(F)                                                                                       \
    F(text, label, "Label of the spans; not that of all spans", "label?")                                    \
    F(real, precision, "Precision in percent")                                                               \
    F(real, recall, "Recall in percent")                                                                     \
    F(real, f1, "F1 in percent")                                                                             \
    F(int, gold, "Number of gold spans")                                                                     \
    F(int, predicted, "Number of predicted spans")                                                           \
    F(int, correct, "Number of correct spans")
NM_RECORD(span_scores, SPAN_SCORES)
static NM_FIELDS(span_scores, SPAN_SCORES)

#define TAG_EVALUATION(F)                                                                                    \
    F(real, accuracy, "Percentage of correct tags if the tags are classes, otherwise null")                  \
    F(int, sentences, "Number of sentences")                                                                 \
    F(int, unknown_tags, "Number of gold tags that are not among the tags of the model")                     \
    F(json, labels, "Labels of gold and predicted spans, sorted by name")
NM_RECORD(tag_evaluation, TAG_EVALUATION)
static NM_FIELDS(tag_evaluation, TAG_EVALUATION)

/* label: NULL for all labels. */
static json_t *scores_json(const char *label, const nm_span_counts *counts)
{
    const nm_span_score score = nm_span_compute(counts);
    const span_scores record = {label,
                                100 * score.precision,
                                100 * score.recall,
                                100 * score.f1,
                                (int64_t)counts->gold,
                                (int64_t)counts->predicted,
                                (int64_t)counts->correct};
    return nm_record_json(span_scores_fields(), &record);
}

static void write_evaluation(const job *self)
{
    nm_span_counts sum = sum_of_labels(self);
    size_t n;
    NM_AUTO_FREE const nm_count **labels = sorted_labels(self, &n);
    json_t *root = scores_json(NULL, &sum), *each = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(each, scores_json(labels[i]->text, counts_of_label(self, labels[i])));
    bool classes = self->file_scheme == NM_TAGS_NONE;
    const tag_evaluation record = {classes ? 100 * nm_span_compute(&sum).f1 : NAN, (int64_t)self->sentences,
                                   (int64_t)self->unknown, each};
    nm_record_add_json(root, tag_evaluation_fields(), &record);
    nm_json_print(root, JSON_INDENT(1), self->session->output.stream);
}

static void report_lines(const job *self)
{
    char *lines = nm_cli_line_numbers_text(&self->skipped);
    if (self->skipped.n)
        fprintf(stderr,
                "norma: %lld of %lld sentences are not UTF-8 or contain zero bytes and were left out (%s)\n",
                (long long)self->skipped.n, (long long)(self->skipped.n + self->sentences), lines);
    free(lines);
    lines = nm_cli_line_numbers_text(&self->in_pieces);
    if (self->in_pieces.n)
        fprintf(stderr,
                "norma: %lld of %lld sentences have more than %s tokens and were tagged in pieces (%s)\n",
                (long long)self->in_pieces.n, (long long)self->sentences,
                nm_tagger_option(self->tagger, "model.max_positions"), lines);
    free(lines);
    if (self->unknown)
        fprintf(stderr, "norma: %lld gold tags are not among the model's tags; they count as missed\n",
                (long long)self->unknown);
}

/* Sums the results of all processes, which have read the same sentences and thus have the same labels. */
static nm_status sum_results(job *self, nm_error *err)
{
    nm_comm *comm = self->session->comm;
    int64_t sums[] = {self->sentences, self->unknown};
    NM_TRY(nm_comm_sum(comm, sums, sizeof sums / sizeof *sums, err));
    self->sentences = sums[0];
    self->unknown = sums[1];
    if (self->labels.n)
        NM_TRY(nm_comm_sum(comm, (int64_t *)self->counts, self->labels.n * NM_SPAN_COUNTS, err));
    return nm_cli_line_numbers_gather(&self->in_pieces, comm, err);
}

static void set_schemes(job *self)
{
    const char *output = self->config->scheme;
    self->file_scheme = nm_tag_scheme_find(nm_tagger_file_scheme(self->tagger));
    self->output_scheme = strcmp(output, "auto") ? nm_tag_scheme_find(output) : self->file_scheme;
    self->model_scheme = self->file_scheme == NM_TAGS_NONE
                             ? NM_TAGS_NONE
                             : nm_tag_scheme_find(nm_tagger_option(self->tagger, "data.scheme"));
}

static nm_status tag(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    self->document = nm_allocate(BUFFER_SENTENCES * sizeof *self->document);
    self->joined = nm_allocate(BUFFER_SENTENCES * sizeof *self->joined);
    self->lengths = nm_allocate(BUFFER_SENTENCES * sizeof *self->lengths);
    self->numbers = nm_allocate(BUFFER_SENTENCES * sizeof *self->numbers);
    set_schemes(self);
    for (size_t i = 0; i < nm_tagger_n_tags(self->tagger); i++) {
        NM_AUTO_FREE char *tag = nm_tag_read(self->model_scheme, nm_tagger_tag(self->tagger, i));
        add_label(self, tag);
    }
    NM_TRY(open_input(self, session->inputs[0], err));
    nm_comm *comm = session->comm;
    do {
        nm_error unread = {0};
        nm_status read = read_sentences(self, &unread);
        int32_t rank = (int32_t)(self->block++ % comm->size);
        if (self->n && rank == comm->rank)
            NM_TRY(tag_sentences(self, err));
        if (rank == comm->size - 1 || !self->n || read != NM_OK)
            NM_TRY(nm_model_session_flush(session, err));
        if (read != NM_OK)
            *err = unread;
        NM_TRY(read);
    } while (self->n);
    NM_TRY(sum_results(self, err));
    if (self->config->evaluate && !self->sentences)
        return nm_fail(err, NM_FORMAT, "%s: no sentences to evaluate", nm_input_name(session->inputs[0]));
    if (comm->rank)
        return NM_OK;
    if (self->config->evaluate && self->config->json)
        write_evaluation(self);
    else if (self->config->evaluate)
        print_evaluation(self);
    report_lines(self);
    return NM_OK;
}

static int tag_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "tag")};
    const nm_model_command command = {.open = open_tagger,
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .process = tag,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_tag = {
    .name = "tag",
    .summary = "tag named entities, words or parts of speech in text or in CoNLL columns",
    .usage = "MODEL [FILE] [--evaluate] [--json] [--output FILE] [OPTION ...]",
    .details =
        "Reads tokenized text with one sentence per line, or CoNLL columns with one token per line and a "
        "blank line after each sentence, from FILE or standard input. Writes columns: those of the "
        "input, unchanged, and the predicted tag as the last one; with --json an object per sentence. MODEL "
        "is a model file or a run folder, "
        "of which the best model is used, or else the last one.\n\n"
        "The tags are written as the training file has them, or in another scheme with --scheme.\n\n"
        "With --evaluate precision, recall and F1 of the spans, of all and by label, or the accuracy of tags "
        "that are classes, are printed to standard "
        "error, computed against the gold tags in --tag-column; with --json the output is an object with "
        "these figures instead of the tags.\n",
    .section = "tag,device",
    .rows = tag_rows,
    .config_bytes = sizeof(tag_config),
    .infers = true,
    .rules = tag_rules,
    .ranks = true,
    .run = tag_run,
};
