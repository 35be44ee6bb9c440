/* norma rescore: log probabilities of given translations. */
#include <stdlib.h>
#include <string.h>

#include "api/sections.h"
#include "base/json.h"
#include "base/record.h"
#include "base/text_input.h"
#include "cli/line_numbers.h"
#include "cli/translation_lines.h"

typedef struct rescore_config { /* section [rescore] */
    const char *output, *encoding;
    nm_text_format input_format;
    int64_t buffer, batch_tokens;
    bool json;
    NM_ALIGNMENT_FIELDS;
} rescore_config;

/* clang-format off */
static const nm_option rescore_rows[] = {
    NM_OPTION(rescore_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_TEXT_ENCODING_OPTION(rescore_config),
    NM_CHOICE(rescore_config, input_format, "raw", NM_TEXT_FORMATS,
        "Format of both files: raw text; tokenized text as in the .words files of norma prepare, which is "
        "raw text with SentencePiece and byte-level BPE; or subwords."),
    NM_OPTION(rescore_config, buffer, "2000", 1, 1 << 24,
        "Number of pairs read before scoring starts, from a terminal 1: large values batch sentences of "
        "similar length; 1: each pair is scored immediately."),
    NM_OPTION(rescore_config, batch_tokens, "1024", 1, 1 << 24,
        "Maximum number of source tokens in a batch of one thread; changes speed and memory, not results."),
    NM_OPTION(rescore_config, json, "false", 0, 1,
        "Write one JSON object per pair: log probability, tokens and their log probabilities."),
    NM_ALIGNMENT_ROWS(rescore_config),
    {0}};
/* clang-format on */

typedef struct side {
    const char *name; /* for messages */
    FILE *stream;
    nm_lines reader;
    nm_line_list lines;
} side;

typedef struct job {
    const rescore_config *config;
    nm_translator *translator;
    nm_model_session *session;
    side sides[2]; /* source, target */
    int64_t n_pairs;
    nm_cli_line_numbers too_long;
} job;

static nm_status open_translator(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    static const char *const formats[] = {NM_TEXT_FORMATS(NM_CHOICE_NAME)};
    job *self = state;
    if (session->n_inputs != 2)
        return nm_fail(err, NM_USAGE, "rescore: two files are needed, of sources and of targets");
    if (!strcmp(session->inputs[0], "-") && !strcmp(session->inputs[1], "-"))
        return nm_fail(err, NM_USAGE, "rescore: standard input cannot be read twice; name a file");
    const rescore_config *config = self->config;
    char *numbers[] = {nm_format("%lld", (long long)config->batch_tokens),
                       nm_format("%lld", (long long)config->alignment_layer),
                       nm_format("%lld", (long long)config->alignment_head)};
    const char *const own[] = {"translate.input_format",    formats[config->input_format],
                               "translate.output_format",   formats[config->input_format],
                               "translate.alignment",       config->alignment ? "true" : "false",
                               "decode.batch_tokens",       numbers[0],
                               "translate.alignment_layer", numbers[1],
                               "translate.alignment_head",  numbers[2]};
    NM_AUTO_FREE const char **settings = nm_cli_settings(session->cli, "rescore");
    size_t n = 0;
    while (settings[n])
        n++;
    settings = nm_reallocate(settings, (n + sizeof own / sizeof *own + 1) * sizeof *settings);
    memcpy(settings + n, own, sizeof own);
    settings[n + sizeof own / sizeof *own] = NULL;
    nm_status status = nm_translator_open(&self->translator, path, settings, err);
    nm_cli_warn(nm_translator_warning(self->translator));
    for (int i = 0; i < 3; i++)
        free(numbers[i]);
    return status;
}

static double log_probability(const nm_translations *scored, size_t i)
{
    double sum = 0;
    for (size_t k = 0; k < nm_translations_n_tokens(scored, i, 0); k++)
        sum += nm_translations_token_scores(scored, i, 0)[k];
    return sum;
}

#define RESCORED(F)                                                                                          \
    F(int, line, "Line number")                                                                              \
    F(text, source, "Source text")                                                                           \
    F(text, target, "Target text")                                                                           \
    F(flag, too_long, "Whether the pair is too long for the model")                                          \
    F(real, log_prob, "Log-probability of the target")
NM_RECORD(rescored, RESCORED)
static NM_FIELDS(rescored, RESCORED)

static void write_json(const nm_translations *scored, size_t i, int64_t number, const char *const *pair,
                       bool alignment, FILE *output)
{
    bool found = nm_translations_count(scored, i) > 0;
    const rescored record = {number, pair[0], pair[1], nm_translations_too_long(scored, i),
                             found ? log_probability(scored, i) : NAN};
    json_t *root = nm_record_json(rescored_fields(), &record);
    if (found) {
        json_t *translation = nm_cli_translation_json(scored, i, 0, alignment);
        json_object_del(translation, "text");
        json_object_update_new(root, translation);
    }
    nm_json_print(root, JSON_COMPACT, output);
}

static void write_line(const job *self, const nm_translations *scored, size_t i, FILE *output)
{
    if (nm_translations_count(scored, i)) {
        fprintf(output, "%.6f", log_probability(scored, i));
        if (self->config->alignment)
            nm_cli_write_alignment(scored, i, 0, output);
    }
    putc('\n', output);
}

static void write_scores(job *self, const char *const *const *texts, const nm_translations *scored)
{
    FILE *output = self->session->output.stream;
    for (size_t i = 0; i < nm_translations_n(scored); i++) {
        int64_t number = self->n_pairs++;
        if (nm_translations_too_long(scored, i))
            nm_cli_line_numbers_add(&self->too_long, number + 1);
        if (self->config->json)
            write_json(scored, i, number, (const char *const[]){texts[0][i], texts[1][i]},
                       self->config->alignment, output);
        else
            write_line(self, scored, i, output);
    }
}

static nm_status score_lines(job *self, nm_error *err)
{
    const char **texts[] = {nm_line_list_texts(&self->sides[0].lines),
                            nm_line_list_texts(&self->sides[1].lines)};
    nm_translations *scored;
    nm_status status =
        nm_translator_score(self->translator, texts[0], texts[1], self->sides[0].lines.n, &scored, err);
    if (status == NM_OK) {
        write_scores(self, (const char *const *const *)texts, scored);
        nm_translations_free(scored);
    }
    NM_FREE(texts[0], texts[1]);
    NM_TRY(status);
    return nm_file_flush(self->session->output.stream, self->session->output.name, err);
}

/* Reads the next lines of both files. After an error the lists have the pairs before it. */
static nm_status read_pairs(job *self, nm_error *err)
{
    side *source = &self->sides[0], *target = &self->sides[1];
    nm_status status = nm_cli_read_lines(&source->reader, self->config->buffer, &source->lines, NULL, err);
    if (status != NM_OK && !source->lines.n)
        return status;
    nm_error earlier; /* of a line before that of the first error */
    nm_status other =
        nm_cli_read_other(&target->reader, &source->reader, &source->lines, &target->lines, &earlier);
    if (other != NM_OK)
        *err = earlier;
    return other != NM_OK ? other : status;
}

static nm_status rescore(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    for (int i = 0; i < 2; i++) {
        side *one = &self->sides[i];
        one->name = nm_input_name(session->inputs[i]);
        NM_TRY(nm_text_open_checked(&one->stream, session->inputs[i], self->config->encoding, err));
        nm_lines_init(&one->reader, one->stream, one->name);
    }
    do {
        nm_error unread = {0};
        nm_status read = read_pairs(self, &unread);
        if (self->sides[0].lines.n)
            NM_TRY(score_lines(self, err));
        if (read != NM_OK)
            *err = unread;
        NM_TRY(read);
    } while (self->sides[0].lines.n);
    if (!self->too_long.n)
        return NM_OK;
    NM_AUTO_FREE char *lines = nm_cli_line_numbers_text(&self->too_long);
    fprintf(stderr, "norma: %lld of %lld pairs have a side of more than %d tokens and were not scored (%s)\n",
            (long long)self->too_long.n, (long long)self->n_pairs, nm_translator_max_tokens(self->translator),
            lines);
    return NM_OK;
}

static void release(void *state)
{
    job *self = state;
    nm_translator_close(self->translator);
    for (int i = 0; i < 2; i++) {
        side *one = &self->sides[i];
        nm_lines_release(&one->reader);
        nm_line_list_release(&one->lines);
        nm_input_close(one->stream);
    }
}

static int rescore_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "rescore")};
    const nm_model_command command = {.open = open_translator,
                                      .max_inputs = 2,
                                      .output = self.config->output,
                                      .process = rescore,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_rescore = {
    .name = "rescore",
    .summary = "log probabilities of given translations",
    .usage = "MODEL[,MODEL...] SOURCE TARGET [--json] [--alignment] [--output FILE] [OPTION ...]",
    .details =
        "Scores given translations, such as n-best lists of another system or reference translations (forced "
        "decoding). Reads two files of the same number of lines, UTF-8, one sentence per line; - is standard "
        "input. Writes the log probability of every target given its source, in nats: the sum over the "
        "subwords and the EOS token, for a translation of norma translate bitwise identical to the sum of "
        "its token scores. Several models form an ensemble.\n\n"
        "With --alignment every line continues with the word alignment in Pharaoh format, as in norma "
        "translate.\n\n"
        "Pairs with an empty source have an empty line, and so have pairs with more tokens on a side than "
        "the "
        "model has positions; these are counted. The log probability of a token that the model may not "
        "output "
        "(data.mask_words) is -inf. With --json every line is an object with the pair, its number, the "
        "log probability, the score with the length penalty of the model, the tokens and their log "
        "probabilities; numbers that are not finite are null (docs/json.md).\n",
    .section = "rescore,device",
    .rows = rescore_rows,
    .config_bytes = sizeof(rescore_config),
    .infers = true,
    .run = rescore_run,
};
