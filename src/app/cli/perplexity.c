/* norma perplexity: the perplexity of text under a language model, or of the splits of its data folder under
 * a translation model. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/language_model_comm.h"
#include "api/sections.h"
#include "base/json.h"
#include "base/record.h"
#include "base/text_input.h"
#include "cli/compare_inputs.h"
#include "cli/model_command.h"
#include "cli/open_backend.h"
#include "base/line_list.h"
#include "task/model_loader.h"
#include "task/lm_task.h"
#include "task/split_loss.h"
#include "task/translation.h"

typedef struct perplexity_config { /* section [perplexity] */
    NM_PERPLEXITY_FIELDS;
    int split;
    const char *data;
    bool json, interval, tokens, each_line;
} perplexity_config;

/* Values of perplexity.split: an nm_split, or all. */
enum { ALL_SPLITS = NM_SPLITS_COUNT };
#define SCORED_SPLITS(C) NM_SPLITS(C) C(ALL_SPLITS, "all")
typedef int SCORED_SPLITS_ENUM;

#define ROW(field, initial, min, max, help) NM_OPTION(perplexity_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option perplexity_rows[] = {
    NM_PERPLEXITY_ROWS(perplexity_config),
    ROW(interval, "false", 0, 1, "Print the 95 % bootstrap interval over blocks of tokens."),
    NM_CHOICE(perplexity_config, split, "all", SCORED_SPLITS,
        "Split of a translation model's data folder to score."),
    ROW(data, "", 0, 0,
        "Data folder of a translation model, if it has moved since training; empty: that of the run."),
    ROW(json, "false", 0, 1, "Print one JSON object per file or split, and one for all files."),
    ROW(tokens, "false", 0, 1,
        "Print one JSON object per document of the text (by default per line) with the log probability of "
        "every token, instead of the perplexity."),
    ROW(each_line, "false", 0, 1,
        "With --tokens: each document is a separate text, without earlier ones as context."),
    {0}};
static const nm_option_rule perplexity_rules[] = {
    {"perplexity.each_line", "perplexity.tokens", "true",
        "only single tokens are scored document by document", NULL},
    {"perplexity.interval", "perplexity.tokens", "false", "the perplexity is not printed", NULL},
    {"perplexity.drop_incomplete", "perplexity.tokens", "false", "all tokens are printed", NULL},
    NM_LM_DOCUMENT_RULE,
    {0}};
/* clang-format on */

typedef struct job {
    const nm_cli *cli;
    const perplexity_config *config;
    nm_comm *comm; /* processes that divide the text; the first one prints */
    nm_language_model *model;
    nm_backend *backend; /* for a translation model, as loaded */
    nm_loaded_model loaded;
} job;

static nm_status job_open(job *self, const char *path, nm_error *err)
{
    NM_AUTO_FREE const char **settings =
        nm_cli_settings(self->cli, "perplexity.interval,perplexity.split,perplexity.data,perplexity.json,"
                                   "perplexity.tokens,perplexity.each_line");
    nm_status status = nm_language_model_open(&self->model, path, settings, err);
    nm_cli_warn(nm_language_model_warning(self->model));
    if (status == NM_OK)
        nm_language_model_set_comm(self->model, self->comm);
    return status;
}

static void job_release(job *self)
{
    nm_language_model_close(self->model);
    nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
}

static bool is_causal(const job *self)
{
    return !strcmp(nm_language_model_option(self->model, "model.causal"), "true");
}

static double bits_per_character(nm_perplexity_sums s)
{
    return s.spelled_nll / (log(2) * (double)s.characters);
}

#define PERPLEXITY(F)                                                                                        \
    F(text, file, "Name of the file")                                                                        \
    F(flag, causal, "Whether the model is causal")                                                           \
    F(real, perplexity, "exp of `nll` of a causal model", "perplexity?")                                     \
    F(real, not_a_perplexity, "exp of `nll` of a non-causal model", "non_causal_not_a_perplexity?")          \
    F(real, nll, "Mean negative log-likelihood per scored token in nats")                                    \
    F(int, tokens, "Number of scored tokens")                                                                \
    F(int, left_out, "Number of tokens that were not scored")                                                \
    F(int, unknown, "Number of tokens outside the dictionary")                                               \
    F(real, perplexity_without_unknown, "Perplexity of the tokens in the dictionary, of a causal model",     \
      "perplexity_without_unknown?")                                                                         \
    F(int, words, "Number of words before tokenization, separated by whitespace; a newline is a word")       \
    F(int, context, "`--context`")                                                                           \
    F(int, segment, "`model.context`")                                                                       \
    F(real, per_word,                                                                                        \
      "Perplexity per word, if all tokens were scored. Each unknown token costs its own log "                \
      "probability and ln(`alphabet`) for each of its characters and for its end",                           \
      "per_word?")                                                                                           \
    F(int, alphabet,                                                                                         \
      "Distinct characters of the text without whitespace, and one for the end of an unknown "               \
      "token",                                                                                               \
      "alphabet?")                                                                                           \
    F(real, bits_per_character,                                                                              \
      "Cross-entropy in bits per Unicode character, if all tokens were scored; a "                           \
      "newline is a character",                                                                              \
      "bits_per_character?")                                                                                 \
    F(real, low, "95 % bootstrap interval of the perplexity, with `--interval`", "low?")                     \
    F(real, high, "Upper end of the interval", "high?")
NM_RECORD(perplexity_line, PERPLEXITY)
static NM_FIELDS(perplexity_line, PERPLEXITY)

static void print_line(const nm_field *fields, const void *record)
{
    nm_json_print(nm_record_json(fields, record), JSON_COMPACT, stdout);
}

static void print_json(const job *self, const char *name, const nm_perplexity *result)
{
    const nm_perplexity_sums s = nm_perplexity_get_sums(result);
    const bool causal = is_causal(self), whole = !s.left_out;
    const double perplexity = exp(s.nll / (double)s.tokens);
    const nm_interval interval =
        self->config->interval ? nm_perplexity_interval(result) : (nm_interval){NAN, NAN, NAN};
    const perplexity_line line = {.file = name,
                                  .causal = causal,
                                  .perplexity = causal ? perplexity : NAN,
                                  .not_a_perplexity = causal ? NAN : perplexity,
                                  .nll = s.nll / (double)s.tokens,
                                  .tokens = s.tokens,
                                  .left_out = s.left_out,
                                  .unknown = s.unknown,
                                  .perplexity_without_unknown =
                                      causal ? exp(s.known_nll / (double)s.known_tokens) : NAN,
                                  .words = s.words,
                                  .context = self->config->context,
                                  .segment = atoll(nm_language_model_option(self->model, "model.context")),
                                  .per_word = whole ? exp(s.spelled_nll / (double)s.words) : NAN,
                                  .alphabet = whole ? s.alphabet : 0,
                                  .bits_per_character = whole ? bits_per_character(s) : NAN,
                                  .low = interval.low,
                                  .high = interval.high};
    print_line(perplexity_line_fields(), &line);
}

static void print_text(const job *self, const char *name, const nm_perplexity *result)
{
    const nm_perplexity_sums s = nm_perplexity_get_sums(result);
    printf("%s: %s %.4f", name,
           is_causal(self) ? "perplexity" : "non-causal, not a perplexity:", exp(s.nll / (double)s.tokens));
    if (self->config->interval) {
        nm_interval interval = nm_perplexity_interval(result);
        printf(" [%.4f, %.4f]", interval.low, interval.high);
    }
    printf("  nll %.6f  tokens %" PRId64, s.nll / (double)s.tokens, s.tokens);
    if (s.left_out)
        printf("  left out %" PRId64, s.left_out);
    else if (s.words != s.tokens || s.unknown)
        printf("  per word %.4f  bits per character %.4f", exp(s.spelled_nll / (double)s.words),
               bits_per_character(s));
    printf("  unknown %" PRId64, s.unknown);
    if (s.unknown && is_causal(self))
        printf(", without them %.4f", exp(s.known_nll / (double)s.known_tokens));
    putchar('\n');
}

static void print_result(const job *self, const char *name, const nm_perplexity *result)
{
    if (self->comm->rank)
        return;
    if (self->config->json)
        print_json(self, name, result);
    else
        print_text(self, name, result);
}

static nm_status score_files(job *self, int n, char **paths, nm_error *err)
{
    nm_perplexity *total = NULL;
    nm_status status = NM_OK;
    for (int i = 0; i < n && status == NM_OK; i++) {
        nm_perplexity *one = NULL;
        status = nm_language_model_perplexity(self->model, paths[i], &one, err);
        if (status == NM_OK)
            print_result(self, nm_input_name(paths[i]), one);
        if (total && one) {
            nm_perplexity_add(total, one);
            nm_perplexity_free(one);
        } else if (one) {
            total = one;
        }
    }
    if (status == NM_OK && n > 1)
        print_result(self, "all files", total);
    nm_perplexity_free(total);
    return status;
}

#define TOKENS(F)                                                                                            \
    F(text, file, "Name of the file")                                                                        \
    F(int, line, "Number of the line or document, from 0")                                                   \
    F(text, text, "Its text")                                                                                \
    F(real, log_prob, "Sum of the log probabilities of its tokens, in nats")                                 \
    F(json, tokens, "Subwords as in the dictionary, with `</s>` at the end")                                 \
    F(json, log_probs, "Log probability of each")
NM_RECORD(tokens_line, TOKENS)
static NM_FIELDS(tokens_line, TOKENS)

static void print_tokens(const nm_lm_scores *scores, const char *name, const nm_line_list *lines,
                         int64_t first)
{
    for (size_t i = 0; i < nm_lm_scores_n(scores); i++) {
        size_t bytes;
        const double *log_probs = nm_lm_scores_tokens(scores, i);
        const size_t n = nm_lm_scores_n_tokens(scores, i);
        NM_AUTO_FREE const char **tokens = nm_allocate((n + 1) * sizeof *tokens);
        for (size_t t = 0; t < n; t++)
            tokens[t] = nm_lm_scores_token(scores, i, t);
        const tokens_line line = {name,
                                  first + (int64_t)i,
                                  nm_line_list_get(lines, i, &bytes),
                                  nm_lm_scores_line(scores, i),
                                  nm_json_texts(tokens, n),
                                  nm_json_numbers(log_probs, n)};
        print_line(tokens_line_fields(), &line);
    }
    fflush(stdout);
}

/* With each_line, lines are scored in groups; otherwise all lines are one text and are scored together. */
static nm_status score_tokens_of(job *self, nm_documents *reader, const char *name, nm_line_list *lines,
                                 nm_error *err)
{
    enum { GROUP = 2048 };
    bool more = true;
    for (int64_t first = 0; more; first += (int64_t)lines->n) {
        nm_error unread = {0};
        nm_status read = NM_OK;
        nm_line_list_clear(lines);
        while (more && (!self->config->each_line || lines->n < GROUP)) {
            read = nm_documents_next(reader, &more, &unread);
            if (read != NM_OK || !more)
                break;
            nm_line_list_add(lines, reader->text, reader->bytes + 1);
        }
        if (read != NM_OK && !self->config->each_line) /* the text is not complete */
            nm_line_list_clear(lines);
        NM_AUTO_FREE const char **texts = nm_line_list_texts(lines);
        nm_lm_scores *scores = NULL;
        nm_status status = nm_language_model_score(
            self->model, texts, lines->n, self->config->each_line ? NM_LM_LINES : NM_LM_TEXT, &scores, err);
        if (status == NM_OK)
            print_tokens(scores, name, lines, first);
        nm_lm_scores_free(scores);
        if (status == NM_OK && read != NM_OK)
            *err = unread;
        NM_TRY(status != NM_OK ? status : read);
    }
    return NM_OK;
}

static nm_status score_tokens(job *self, int n, char **paths, nm_error *err)
{
    nm_status status = NM_OK;
    for (int i = 0; i < n && status == NM_OK; i++) {
        FILE *stream;
        NM_AUTO(nm_documents_release) nm_documents reader = {0};
        NM_AUTO(nm_line_list_release) nm_line_list lines = {0};
        NM_TRY(nm_text_open_checked(&stream, paths[i], self->config->encoding, err));
        nm_documents_init(&reader, stream, nm_input_name(paths[i]),
                          nm_language_model_document_rule(self->model));
        reader.checked = true;
        status = score_tokens_of(self, &reader, nm_input_name(paths[i]), &lines, err);
        nm_input_close(stream);
    }
    return status;
}

/* NM_USAGE for an option of the command line that has no effect on this kind of model. */
static nm_status check_model_options(const nm_cli *cli, bool is_translation, nm_error *err)
{
    static const char *const of_translation_models[] = {"perplexity.split", "perplexity.data", NULL};
    static const char *const of_language_models[] = {"perplexity.context",
                                                     "perplexity.drop_incomplete",
                                                     "perplexity.batch_tokens",
                                                     "perplexity.interval",
                                                     "perplexity.documents",
                                                     "perplexity.encoding",
                                                     NULL};
    for (const char *const *path = is_translation ? of_language_models : of_translation_models; *path; path++)
        if (nm_options_origin(cli->options, *path) == NM_ORIGIN_COMMAND)
            return nm_fail(err, NM_USAGE, "%s has no effect on a %s model", *path,
                           is_translation ? "translation" : "language");
    return NM_OK;
}

#define SPLIT_PERPLEXITY(F)                                                                                  \
    F(text, split, "`train`, `valid` or `test`")                                                             \
    F(real, perplexity, "exp of `nll`")                                                                      \
    F(real, smoothed_perplexity, "exp of `smoothed_loss`")                                                   \
    F(real, nll, "Mean negative log-likelihood per target token in nats")                                    \
    F(real, smoothed_loss, "Loss with the label smoothing of the training")                                  \
    F(int, tokens, "Number of scored target tokens")                                                         \
    F(int, masked, "Number of target tokens outside the output vocabulary")                                  \
    F(int, skipped, "Number of sequences that are too long")
NM_RECORD(split_line, SPLIT_PERPLEXITY)
static NM_FIELDS(split_line, SPLIT_PERPLEXITY)

static void print_split(const perplexity_config *config, const char *split, const nm_split_loss *loss)
{
    if (config->json) {
        const split_line line = {split,      exp(loss->nll), exp(loss->loss), loss->nll,
                                 loss->loss, loss->targets,  loss->masked,    loss->skipped};
        print_line(split_line_fields(), &line);
        return;
    }
    printf("%s: perplexity %.4f  smoothed %.4f  nll %.6f  tokens %" PRId64, split, exp(loss->nll),
           exp(loss->loss), loss->nll, loss->targets);
    if (loss->masked)
        printf("  masked %" PRId64, loss->masked);
    if (loss->skipped)
        printf("  skipped sequences %" PRId64, loss->skipped);
    putchar('\n');
}

/* The checksums in the data folder are those of all its files. */
static nm_status compare_data(job *self, const char *model, nm_error *err)
{
    NM_AUTO_FREE char *folder = nm_options_get(self->loaded.options, "data.folder");
    NM_AUTO_FREE char *checksums = nm_path_join(folder, "checksums.xxh128");
    return nm_cli_compare_inputs(self->comm, model, (const char *const *)&checksums, 1, err);
}

static nm_status score_splits(job *self, const char *path, nm_error *err)
{
    static const char *const names[] = {NM_SPLITS(NM_CHOICE_NAME)};
    nm_options *options;
    const nm_task_type *type;
    NM_AUTO_FREE char *file = NULL;
    NM_TRY(nm_loaded_model_options(path, &options, &type, &file, err));
    nm_status status = nm_cli_apply(self->cli, options, err);
    if (status == NM_OK && *self->config->data)
        status = nm_options_set(options, "data.folder", self->config->data, NM_ORIGIN_COMMAND, err);
    NM_THEN(status, nm_cli_open_backend(self->cli, options, &self->backend, err));
    if (status == NM_OK)
        status = nm_loaded_model_open_run(&self->loaded, file, type, options, self->backend, false, err);
    else
        nm_options_free(options);
    NM_TRY(status);
    self->loaded.task.comm = self->comm;
    NM_TRY(compare_data(self, path, err));
    for (int split = NM_SPLIT_TRAIN; split <= NM_SPLIT_TEST; split++) {
        nm_split_loss loss;
        const nm_translation_parts *parts = self->loaded.task.parts;
        bool selected = self->config->split == split ||
                        (self->config->split == ALL_SPLITS && parts->sides[split][0].n > 0);
        if (!selected)
            continue;
        NM_TRY(nm_split_loss_measure(&self->loaded.task, self->loaded.model, (nm_split)split, &loss, err));
        if (!self->comm->rank)
            print_split(self->config, names[split], &loss);
        fflush(stdout);
    }
    return NM_OK;
}

static nm_status is_translation_model(const char *path, bool *is_translation, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    const nm_task_type *type;
    NM_AUTO_FREE char *file = NULL;
    NM_TRY(nm_loaded_model_options(path, &options, &type, &file, err));
    *is_translation = type == &nm_task_translation;
    return NM_OK;
}

static nm_status score_translation(job *self, int argc, char **argv, nm_error *err)
{
    if (argc > 1)
        return nm_fail(
            err, NM_USAGE,
            "%s: a translation model is scored on the splits of its data folder, not on files: give "
            "--split train, valid, test or all",
            argv[0]);
    return score_splits(self, argv[0], err);
}

static nm_status score(job *self, int argc, char **argv, nm_error *err)
{
    static char *standard_input[] = {"-"};
    char **files = argc > 1 ? argv + 1 : standard_input;
    int n = argc > 1 ? argc - 1 : 1;
    bool is_translation;
    NM_TRY(nm_cli_check_arguments(self->cli, argc, argv, 1, NM_CLI_NO_LIMIT, err));
    NM_TRY(is_translation_model(argv[0], &is_translation, err));
    if (is_translation && self->config->tokens)
        return nm_fail(err, NM_USAGE,
                       "%s: --tokens is for language models; norma rescore scores translations", argv[0]);
    NM_TRY(check_model_options(self->cli, is_translation, err));
    if (self->config->tokens && self->comm->size > 1)
        return nm_fail(err, NM_USAGE, "--tokens requires a single process");
    if (is_translation)
        return score_translation(self, argc, argv, err);
    for (int i = 0; i < n && self->comm->size > 1; i++)
        if (!strcmp(files[i], "-"))
            return nm_cli_fail_standard_input(err);
    NM_TRY(job_open(self, argv[0], err));
    NM_TRY(nm_cli_compare_inputs(self->comm, argv[0], (const char *const *)files, (size_t)n, err));
    return self->config->tokens ? score_tokens(self, n, files, err) : score_files(self, n, files, err);
}

static int perplexity_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.cli = cli, .config = nm_options_find(cli->options, "perplexity")};
    bool prints;
    if (nm_cli_join_ranks(&self.comm, cli->command, &err) != NM_OK)
        return nm_cli_fail_to_join(&err);
    nm_status status = nm_comm_finish(self.comm, score(&self, argc, argv, &err), &prints, &err);
    if (prints && status != NM_OK)
        nm_cli_fail(&err);
    job_release(&self);
    nm_comm_free(self.comm);
    return (int)status;
}

const nm_command nm_command_perplexity = {
    .name = "perplexity",
    .summary = "perplexity of text under a language model, or of the data of a translation model",
    .usage = "RUN|MODEL [FILE ...] [--context N] [--split train|valid|test|all] [--json] [OPTION ...]",
    .details =
        "Language models: reads raw text, UTF-8, one sentence or paragraph per line (standard input without "
        "a file); tokenizer, BPE and dictionary come from the model. Every line ends in </s>, which is "
        "scored "
        "as a token; with --documents, every document of several lines. By default the text is cut into "
        "segments as in training, and a token has the earlier "
        "tokens of its segment as context. With --context N windows slide over the text: every token is "
        "scored once, with at least the N preceding tokens as context where the text has them (N up to "
        "model.context). With BPE the perplexity is per subword; the perplexity per word (and newline) and "
        "the bits per character (and newline) are printed too, and can be compared between vocabularies and "
        "tokenizers: the words are those of the raw text, separated by whitespace. Both include the cost of "
        "spelling each unknown token, uniformly over the characters of the text and an end. The perplexity "
        "per token is printed with and without unknown tokens: <unk> is one easy token for many words, so "
        "that a smaller dictionary lowers it. A "
        "non-causal model (model.causal = false) has no perplexity; the output is marked. With --tokens the "
        "output is one JSON object per line of "
        "the "
        "text: tokens and their log probabilities (docs/json.md).\n\n"
        "Translation models: scores the target side of the splits of the run's data folder, given the source "
        "and the preceding reference tokens, per subword: exp of the mean negative log-likelihood, and exp "
        "of the mean loss with the label smoothing of the training. Target tokens outside the output "
        "vocabulary (data.mask_words) and sequences longer than data.max_length are not scored but counted.",
    .section = "perplexity,device",
    .rows = perplexity_rows,
    .config_bytes = sizeof(perplexity_config),
    .infers = true,
    .rules = perplexity_rules,
    .ranks = true,
    .run = perplexity_run,
};
