#include "text/score_metric.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/classes.h"
#include "text/span_f1.h"
#include "base/words.h"

static int bleu_n_counts(const nm_score_config *config)
{
    (void)config;
    return NM_BLEU_COUNTS;
}

static void *bleu_create(const nm_score_config *config)
{
    return nm_bleu_create(&config->bleu);
}

static void bleu_free(void *workspace)
{
    nm_bleu_free(workspace);
}

static nm_status bleu_count(void *workspace, const char *hypothesis, const char *const *references,
                            int n_references, int64_t *row, nm_error *err)
{
    (void)err;
    nm_bleu_count(workspace, hypothesis, references, n_references, (nm_bleu_stats *)row);
    return NM_OK;
}

static double bleu_score(const nm_score_config *config, const int64_t *counts)
{
    return nm_bleu_of_counts(counts, &config->bleu);
}

static char *bleu_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    nm_bleu_stats stats;
    memcpy(&stats, sum, sizeof stats);
    nm_bleu_score score = nm_bleu_compute(&config->bleu, &stats);
    return nm_bleu_line(&config->bleu, &score, n_references);
}

static char *bleu_signature(const nm_score_config *config, int n_references)
{
    return nm_bleu_signature(&config->bleu, n_references);
}

static const nm_score_metric metric_bleu = {
    .name = "bleu",
    .options = "metric_variant tokenize spm_model mecab_dictionary mecab_library lowercase split_compounds ",
    .n_counts = bleu_n_counts,
    .create = bleu_create,
    .free = bleu_free,
    .count = bleu_count,
    .score = bleu_score,
    .line = bleu_line,
    .signature = bleu_signature};

static int chrf_n_counts(const nm_score_config *config)
{
    return nm_chrf_n_counts(&config->chrf);
}

static void *chrf_create(const nm_score_config *config)
{
    return nm_chrf_create(&config->chrf);
}

static void chrf_free(void *workspace)
{
    nm_chrf_free(workspace);
}

static nm_status chrf_count(void *workspace, const char *hypothesis, const char *const *references,
                            int n_references, int64_t *row, nm_error *err)
{
    (void)err;
    nm_chrf_count(workspace, hypothesis, references, n_references, row);
    return NM_OK;
}

static double chrf_score(const nm_score_config *config, const int64_t *counts)
{
    return nm_chrf_of_counts(counts, &config->chrf);
}

static char *chrf_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    return nm_chrf_line(&config->chrf, chrf_score(config, sum), n_references);
}

static char *chrf_signature(const nm_score_config *config, int n_references)
{
    return nm_chrf_signature(&config->chrf, n_references);
}

static const nm_score_metric metric_chrf = {.name = "chrf",
                                            .options = "lowercase char_order word_order beta ",
                                            .n_counts = chrf_n_counts,
                                            .create = chrf_create,
                                            .free = chrf_free,
                                            .count = chrf_count,
                                            .score = chrf_score,
                                            .line = chrf_line,
                                            .signature = chrf_signature};

static int ter_n_counts(const nm_score_config *config)
{
    (void)config;
    return NM_TER_COUNTS;
}

static void *ter_create(const nm_score_config *config)
{
    return nm_ter_create(&config->ter);
}

static void ter_free(void *workspace)
{
    nm_ter_free(workspace);
}

static nm_status ter_count(void *workspace, const char *hypothesis, const char *const *references,
                           int n_references, int64_t *row, nm_error *err)
{
    (void)err;
    nm_ter_count(workspace, hypothesis, references, n_references, row);
    return NM_OK;
}

static double ter_score(const nm_score_config *config, const int64_t *counts)
{
    return nm_ter_of_counts(counts, &config->ter);
}

static char *ter_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    return nm_ter_line(&config->ter, ter_score(config, sum), n_references);
}

static char *ter_signature(const nm_score_config *config, int n_references)
{
    return nm_ter_signature(&config->ter, n_references);
}

static const nm_score_metric metric_ter = {.name = "ter",
                                           .options = "ter_ ",
                                           .n_counts = ter_n_counts,
                                           .create = ter_create,
                                           .free = ter_free,
                                           .count = ter_count,
                                           .score = ter_score,
                                           .line = ter_line,
                                           .signature = ter_signature};

static int accuracy_n_counts(const nm_score_config *config)
{
    (void)config;
    return NM_ACCURACY_COUNTS;
}

/* The label without surrounding whitespace, and its length. */
static const char *label_of(const char *text, size_t *bytes)
{
    while (*text && nm_space_length(text))
        text += nm_space_length(text);
    *bytes = 0;
    for (size_t at = 0, next; text[at]; at = next) {
        size_t space = nm_space_length(text + at);
        next = at + (space ? space : 1);
        if (!space)
            *bytes = next;
    }
    return text;
}

static nm_status accuracy_count(void *workspace, const char *hypothesis, const char *const *references,
                                int n_references, int64_t *row, nm_error *err)
{
    (void)workspace, (void)n_references, (void)err;
    size_t bytes, reference_bytes;
    const char *label = label_of(hypothesis, &bytes), *gold = label_of(references[0], &reference_bytes);
    row[0] = bytes == reference_bytes && !memcmp(label, gold, bytes);
    row[1] = 1;
    return NM_OK;
}

static double accuracy_score(const nm_score_config *config, const int64_t *counts)
{
    (void)config;
    return nm_accuracy_of_counts(counts, NULL);
}

static char *accuracy_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    (void)n_references;
    return nm_format("accuracy = %.2f (%" PRId64 " of %" PRId64 ")", accuracy_score(config, sum), sum[0],
                     sum[1]);
}

static char *accuracy_signature(const nm_score_config *config, int n_references)
{
    (void)config;
    return nm_format("nrefs:%d|version:norma-" NORMA_VERSION, n_references);
}

static const nm_score_metric metric_accuracy = {.name = "accuracy",
                                                .labels = true,
                                                .one_reference = true,
                                                .options = "",
                                                .n_counts = accuracy_n_counts,
                                                .count = accuracy_count,
                                                .score = accuracy_score,
                                                .line = accuracy_line,
                                                .signature = accuracy_signature};

/* Copies of the lines, split into tags. */
typedef struct tag_lines {
    struct tag_line {
        char *text;
        size_t text_capacity;
        const char **tags;
        size_t tags_capacity;
        int32_t n;
    } predicted, gold;
    nm_tag_notation notation;
    int32_t longest;           /* number of gold tags of the longest line */
    bool has_empty, continues; /* an empty line; a gold tag that continues a span in some scheme */
} tag_lines;

static int f1_n_counts(const nm_score_config *config)
{
    (void)config;
    return NM_SPAN_COUNTS;
}

static void *f1_create(const nm_score_config *config)
{
    tag_lines *self = nm_allocate(sizeof *self);
    self->notation = config->tags;
    return self;
}

static void f1_free(void *workspace)
{
    tag_lines *self = workspace;
    NM_FREE(self->predicted.text, self->predicted.tags, self->gold.text, self->gold.tags, self);
}

/* Writes a word of a line as a span tag with its final zero byte, and returns the end. */
static char *put_tag(nm_tag_notation notation, const char *word, size_t bytes, char *out)
{
    bool outside = notation == NM_TAG_NOTATION_IO && bytes == 1 && *word == 'O';
    if (notation != NM_TAG_NOTATION_MARKS && !outside) {
        *out++ = notation == NM_TAG_NOTATION_IO ? 'I' : 'S';
        *out++ = '-';
    }
    memcpy(out, word, bytes);
    out[bytes] = 0;
    return out + bytes + 1;
}

static nm_status split_tags(nm_tag_notation notation, struct tag_line *line, const char *text, nm_error *err)
{
    size_t bytes = strlen(text), at = 0, word_bytes, n = 0;
    const char *word;
    NM_RESERVE(line->text, 3 * bytes + 4, line->text_capacity); /* "a " becomes "S-a" and a zero byte */
    for (char *tag = line->text, *end; nm_word_next(text, bytes, &at, &word, &word_bytes); tag = end) {
        end = put_tag(notation, word, word_bytes, tag);
        if (notation == NM_TAG_NOTATION_MARKS && !nm_tag_valid(tag) && !nm_tag_bare(tag))
            return nm_fail(err, NM_FORMAT,
                           "\"%.40s\" is not a tag such as O or B-PER (--tag-scheme io or none reads tags "
                           "without marks)",
                           tag);
        if (n == INT32_MAX)
            return nm_fail(err, NM_FORMAT, "too many tags");
        NM_APPEND(line->tags, n, line->tags_capacity, tag);
    }
    line->n = (int32_t)n;
    return NM_OK;
}

static nm_status f1_count(void *workspace, const char *hypothesis, const char *const *references,
                          int n_references, int64_t *row, nm_error *err)
{
    (void)n_references;
    tag_lines *self = workspace;
    NM_TRY(split_tags(self->notation, &self->predicted, hypothesis, err));
    NM_TRY(split_tags(self->notation, &self->gold, references[0], err));
    if (self->predicted.n != self->gold.n)
        return nm_fail(err, NM_MISMATCH, "%" PRId32 " tags, the reference has %" PRId32, self->predicted.n,
                       self->gold.n);
    int32_t n = self->gold.n;
    self->longest = n > self->longest ? n : self->longest;
    self->has_empty |= !n;
    self->continues |=
        self->notation == NM_TAG_NOTATION_MARKS && n == 1 && strchr("IME", *self->gold.tags[0]);
    nm_span_counts counts = nm_span_count(self->predicted.tags, self->gold.tags, n);
    memcpy(row, &counts, sizeof counts);
    return NM_OK;
}

/* A column of tags, with an empty line after each sentence, would be scored as sentences of one token. */
static nm_status f1_check(const void *workspace, nm_error *err)
{
    const tag_lines *self = workspace;
    if (self->longest != 1 || !self->has_empty || !self->continues)
        return NM_OK;
    return nm_fail(err, NM_FORMAT,
                   "every line has one tag: all tags of a sentence belong on one line, separated by spaces "
                   "(norma tag --evaluate reads columns)");
}

static double f1_score(const nm_score_config *config, const int64_t *counts)
{
    (void)config;
    return nm_span_f1_of_counts(counts, NULL);
}

static char *f1_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    (void)n_references;
    const nm_span_counts counts = {sum[0], sum[1], sum[2]};
    nm_span_score score = nm_span_compute(&counts);
    if (config->tags == NM_TAG_NOTATION_NONE)
        return nm_format("accuracy = %.2f (%" PRId64 " of %" PRId64 " tags)", 100 * score.f1, counts.correct,
                         counts.gold);
    return nm_format("F1 = %.2f (precision %.2f, recall %.2f; %" PRId64 " gold spans, %" PRId64
                     " predicted, %" PRId64 " correct)",
                     100 * score.f1, 100 * score.precision, 100 * score.recall, counts.gold, counts.predicted,
                     counts.correct);
}

static char *f1_signature(const nm_score_config *config, int n_references)
{
    static const char *const spans[] = {"spans:seqeval", "spans:io", "tokens"};
    return nm_format("nrefs:%d|%s|version:norma-" NORMA_VERSION, n_references, spans[config->tags]);
}

static const nm_score_metric metric_f1 = {.name = "f1",
                                          .labels = true,
                                          .one_reference = true,
                                          .options = "tag_scheme ",
                                          .n_counts = f1_n_counts,
                                          .create = f1_create,
                                          .free = f1_free,
                                          .count = f1_count,
                                          .check = f1_check,
                                          .score = f1_score,
                                          .line = f1_line,
                                          .signature = f1_signature};

static const nm_score_metric *const metrics[] = {&metric_bleu, &metric_chrf, &metric_ter, &metric_accuracy,
                                                 &metric_f1};

const nm_score_metric *nm_score_metric_find(const char *name)
{
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (!strcmp(metrics[i]->name, name))
            return metrics[i];
    return NULL;
}

double nm_score_of_config(const int64_t *counts, const void *context)
{
    const nm_score_config *config = context;
    return config->metric->score(config, counts);
}

static bool is_set(const nm_options *options, const char *path)
{
    NM_AUTO_FREE char *value = nm_options_get(options, path);
    return !strcmp(value, "true");
}

static bool uses_asian(const nm_options *options)
{
    return is_set(options, "score.ter_normalized") || is_set(options, "score.ter_no_punctuation");
}

const nm_option_rule nm_score_rules[] = {
    {"score.spm_model", "score.tokenize", "spm", "only that tokenizer has a model", NULL},
    {"score.mecab_dictionary", "score.tokenize", "ja-mecab|ko-mecab",
     "only ja-mecab and ko-mecab have a dictionary", NULL},
    {"score.mecab_library", "score.tokenize", "ja-mecab|ko-mecab", "only ja-mecab and ko-mecab use MeCab",
     NULL},
    {"score.seed", "score.bootstrap", "!", "there is no bootstrap", NULL},
    {"score.seed", "score.sentence", "false", "the scores of single lines have no interval", NULL},
    {"score.bootstrap", "score.sentence", "false", "the scores of single lines have no interval", NULL},
    {"score.ter_asian", NULL, NULL, "it needs ter_normalized or ter_no_punctuation", uses_asian},
    {0}};
