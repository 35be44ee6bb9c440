/* norma translate: translates lines of text with a model or an ensemble. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/sections.h"
#include "cli/translation_lines.h"
#include "base/json.h"
#include "base/record.h"
#include "base/text_input.h"
#include "cli/line_numbers.h"
#include "norma/translator.h"

typedef struct translate_config { /* section [translate] */
    NM_TRANSLATE_FIELDS;
    const char *output, *encoding, *prefix, *constraints;
    int64_t buffer;
    bool json;
    nm_on_invalid on_invalid;
} translate_config;

/* clang-format off */
static const nm_option translate_rows[] = {
    NM_OPTION(translate_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_TEXT_ENCODING_OPTION(translate_config),
    NM_TRANSLATE_FORMAT_ROWS(translate_config),
    NM_OPTION(translate_config, buffer, "2000", 1, 1 << 24,
        "Number of lines read before translation starts, from a terminal 1: large values batch sentences of "
        "similar length; 1: each line is translated immediately."),
    NM_OPTION(translate_config, json, "false", 0, 1,
        "Write one JSON object per line of input: translations with scores, tokens and their log "
        "probabilities."),
    NM_TRANSLATE_ROWS(translate_config),
    NM_OPTION(translate_config, prefix, "", 0, 0,
        "File with the first words of the translation of each line; an empty line sets none."),
    NM_OPTION(translate_config, constraints, "", 0, 0,
        "File with the phrases that the translation of each line must contain, separated by tabs; "
        "an empty line sets none."),
    NM_CHOICE(translate_config, on_invalid, "error", NM_ON_INVALID_CHOICES,
        "Treatment of lines of the input that are not UTF-8 or contain zero bytes: stop with an error after "
        "the preceding lines, or skip: treat them as empty lines, which keeps the output aligned."),
    {0}};
/* clang-format on */

typedef struct job {
    const translate_config *config;
    nm_translator *translator;
    nm_model_session *session;
    FILE *input;
    struct companion { /* file with one line per line of the input; stream NULL: none */
        FILE *stream;
        nm_lines reader;
        nm_line_list lines;
    } prefixes, constraints;
    int64_t first_line;
    nm_cli_line_numbers too_long, skipped;
} job;

static nm_status open_translator(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    job *self = state;
    NM_AUTO_FREE const char **settings =
        nm_cli_settings(session->cli, "translate.output,translate.buffer,translate.json,translate.prefix,"
                                      "translate.constraints,translate.on_invalid,translate.encoding");
    nm_status status = nm_translator_open(&self->translator, path, settings, err);
    nm_cli_warn(nm_translator_warning(self->translator));
    return status;
}

#define TRANSLATED(F)                                                                                        \
    F(int, line, "Line number")                                                                              \
    F(text, source, "Source text")                                                                           \
    F(flag, too_long, "Whether the source is too long for the model")                                        \
    F(json, translations, "Translations, best first")
NM_RECORD(translated, TRANSLATED)
static NM_FIELDS(translated, TRANSLATED)

static void write_json(const nm_translations *all, size_t i, int64_t number, const char *source,
                       bool alignment, FILE *output)
{
    json_t *translations = json_array();
    for (size_t rank = 0; rank < nm_translations_count(all, i); rank++)
        json_array_append_new(translations, nm_cli_translation_json(all, i, rank, alignment));
    const translated record = {number, source, nm_translations_too_long(all, i), translations};
    nm_json_print(nm_record_json(translated_fields(), &record), JSON_COMPACT, output);
}

static void end_line(const job *self, const nm_translations *all, size_t i, size_t rank, FILE *output)
{
    if (self->config->alignment)
        nm_cli_write_alignment(all, i, rank, output);
    putc('\n', output);
}

static void write_translations(job *self, const char *const *sources, const nm_translations *all)
{
    FILE *output = self->session->output.stream;
    for (size_t i = 0; i < nm_translations_n(all); i++) {
        size_t n = nm_translations_count(all, i);
        int64_t number = self->first_line++;
        if (nm_translations_too_long(all, i))
            nm_cli_line_numbers_add(&self->too_long, number + 1);
        if (self->config->json) {
            write_json(all, i, number, sources[i], self->config->alignment, output);
            continue;
        }
        if (nm_translator_nbest(self->translator) == 1) {
            fputs(n ? nm_translations_text(all, i, 0) : "", output);
            end_line(self, all, i, 0, output);
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            fprintf(output, "%lld ||| %s ||| %.6f", (long long)number, nm_translations_text(all, i, k),
                    nm_translations_score(all, i, k));
            end_line(self, all, i, k, output);
        }
        if (!n) /* with as many fields as the others */
            fprintf(output, "%lld |||  ||| 0%s\n", (long long)number, self->config->alignment ? " |||" : "");
    }
}

/* The lines *first to *last - 1 of this process: contiguous parts of about equal numbers of bytes. */
static void part_of_process(const nm_comm *comm, const nm_line_list *lines, size_t *first, size_t *last)
{
    size_t all = 0, done = 0, bytes;
    for (size_t i = 0; i < lines->n; i++, all += bytes)
        nm_line_list_get(lines, i, &bytes);
    *first = *last = 0;
    for (size_t i = 0; i < lines->n; i++, done += bytes) {
        int32_t rank = (int32_t)(done * (size_t)comm->size / (all + 1));
        nm_line_list_get(lines, i, &bytes);
        *first += rank < comm->rank;
        *last += rank <= comm->rank;
    }
}

static nm_status companion_open(struct companion *self, const char *path, const char *encoding, nm_error *err)
{
    if (!*path)
        return NM_OK;
    NM_TRY(nm_text_open_checked(&self->stream, path, encoding, err));
    nm_lines_init(&self->reader, self->stream, nm_input_name(path));
    return NM_OK;
}

static void companion_close(struct companion *self)
{
    nm_lines_release(&self->reader);
    nm_line_list_release(&self->lines);
    nm_input_close(self->stream);
}

/* The texts of the lines, heap; NULL without a file. */
static const char **companion_texts(const struct companion *self)
{
    return self->stream ? nm_line_list_texts(&self->lines) : NULL;
}

/* Errors of constraints begin with "text N: ", N from 0, which becomes file and line. */
static void name_line_of_constraint(const job *self, nm_error *err)
{
    size_t text;
    int after = 0;
    if (err->status == NM_FORMAT || sscanf(err->text, "text %zu: %n", &text, &after) != 1 || !after)
        return;
    const nm_error copy = *err;
    nm_fail(err, copy.status, "%s:%lld: %s", nm_input_name(self->config->constraints),
            (long long)self->first_line + (long long)text + 1, copy.text + after);
}

static nm_status translate_lines(job *self, const nm_line_list *lines, nm_error *err)
{
    size_t first, last;
    part_of_process(self->session->comm, lines, &first, &last);
    NM_AUTO_FREE const char **texts = nm_line_list_texts(lines);
    self->first_line += (int64_t)first;
    nm_translations *translations;
    const char **prefixes = companion_texts(&self->prefixes),
               **constraints = companion_texts(&self->constraints);
    nm_status status =
        constraints ? nm_translator_run_constraints(self->translator, texts + first,
                                                    prefixes ? prefixes + first : NULL, constraints + first,
                                                    last - first, &translations, err)
        : prefixes  ? nm_translator_run_prefixes(self->translator, texts + first, prefixes + first,
                                                 last - first, &translations, err)
                    : nm_translator_run(self->translator, texts + first, last - first, &translations, err);
    if (constraints && status != NM_OK)
        name_line_of_constraint(self, err);
    NM_FREE(prefixes, constraints);
    if (status == NM_OK) {
        write_translations(self, texts + first, translations);
        nm_translations_free(translations);
    }
    NM_TRY(status);
    self->first_line += (int64_t)(lines->n - last);
    return nm_model_session_flush(self->session, err);
}

/* Reads the next lines of all files. After an error the lists have the preceding lines. */
static nm_status read_lines(job *self, nm_lines *reader, nm_line_list *lines, nm_error *err)
{
    const int64_t most = self->config->buffer * self->session->comm->size;
    const bool skips = self->config->on_invalid == NM_INVALID_IS_SKIPPED;
    nm_status status = nm_cli_read_lines(reader, most, lines, skips ? &self->skipped : NULL, err);
    for (int i = 0; i < 2; i++) {
        struct companion *other = i ? &self->constraints : &self->prefixes;
        if (!other->stream || (status != NM_OK && !lines->n))
            continue;
        nm_error earlier; /* of a line before that of another error */
        nm_status read = nm_cli_read_other(&other->reader, reader, lines, &other->lines, &earlier);
        if (read != NM_OK) {
            status = read;
            *err = earlier;
        }
    }
    return status;
}

/* The lines that were not translated. All processes have read all lines. */
static nm_status report_empty(job *self, nm_error *err)
{
    NM_TRY(nm_cli_line_numbers_gather(&self->too_long, self->session->comm, err));
    if (self->session->comm->rank)
        return NM_OK;
    char *lines = nm_cli_line_numbers_text(&self->too_long);
    if (self->too_long.n)
        fprintf(stderr, "norma: %lld of %lld lines have more than %d tokens and were not translated (%s)\n",
                (long long)self->too_long.n, (long long)self->first_line,
                nm_translator_max_tokens(self->translator), lines);
    free(lines);
    lines = nm_cli_line_numbers_text(&self->skipped);
    if (self->skipped.n)
        fprintf(
            stderr,
            "norma: %lld of %lld lines are not UTF-8 or contain zero bytes and were not translated (%s)\n",
            (long long)self->skipped.n, (long long)self->first_line, lines);
    free(lines);
    return NM_OK;
}

static nm_status translate(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    const char *const paths[] = {session->inputs[0], self->config->prefix, self->config->constraints};
    int n_standard_input = 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        n_standard_input += !strcmp(paths[i], "-");
    if (n_standard_input > 1)
        return nm_fail(err, NM_USAGE, "translate: standard input cannot be read twice; name a file");
    const char *encoding = self->config->encoding;
    NM_TRY(nm_text_open_checked(&self->input, session->inputs[0], encoding, err));
    NM_TRY(companion_open(&self->prefixes, self->config->prefix, encoding, err));
    NM_TRY(companion_open(&self->constraints, self->config->constraints, encoding, err));
    NM_AUTO(nm_lines_release) nm_lines reader = {0};
    NM_AUTO(nm_line_list_release) nm_line_list lines = {0};
    nm_lines_init(&reader, self->input, nm_input_name(session->inputs[0]));
    nm_status status;
    do {
        nm_error unread = {0};
        nm_status read = read_lines(self, &reader, &lines, &unread);
        status = lines.n ? translate_lines(self, &lines, err) : NM_OK;
        if (status == NM_OK && read != NM_OK) {
            status = read;
            *err = unread;
        }
    } while (status == NM_OK && lines.n);
    return status == NM_OK ? report_empty(self, err) : status;
}

static void release(void *state)
{
    job *self = state;
    nm_translator_close(self->translator);
    companion_close(&self->prefixes);
    companion_close(&self->constraints);
    nm_input_close(self->input);
}

static int translate_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "translate")};
    const nm_model_command command = {.open = open_translator,
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .others = {self.config->prefix, self.config->constraints},
                                      .process = translate,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_translate = {
    .name = "translate",
    .summary = "translate lines of text with a model or an ensemble",
    .usage = "MODEL[,MODEL...] [FILE] [--output FILE] [--beam N] [--nbest N] [--json] [OPTION ...]",
    .details =
        "Reads one sentence per line, UTF-8 or --encoding, from FILE or standard input, and writes one "
        "translation per "
        "line. MODEL is a model file or a run folder, of which the best model is used, or else the last "
        "one. Dictionary, BPE codes, tokenizer and the search options come from the (first) model file; "
        "the command line may change the search. Several models form an ensemble: their probabilities "
        "are averaged, and they must have the same dictionaries.\n\n"
        "With --alignment every translation is followed by \" ||| \" and its word alignment in Pharaoh "
        "format: "
        "pairs SOURCE-TARGET of word numbers from 0, for words separated by whitespace. A word of the "
        "translation is aligned to the source word with the highest cross-attention weight "
        "(--alignment-layer, --alignment-head).\n\n"
        "With --search sample the N translations of --nbest are samples; with --diverse-groups G the beam is "
        "divided into groups with a penalty for equal tokens (Vijayakumar et al. 2018). --prefix FILE gives "
        "the "
        "beginning of each translation, --constraints FILE the phrases that it must contain, separated by "
        "tabs "
        "(docs/translation.md).\n\n"
        "Empty lines stay empty, and so do lines with more tokens than the model has positions, and with "
        "--on-invalid skip lines that are not UTF-8 or contain zero bytes; both are counted. With --nbest N, "
        "N "
        "> 1, the output lines are NUMBER ||| TRANSLATION ||| SCORE, numbered "
        "from 0, best first. With --json, for any N, every line is an object with the source line, its "
        "number, and the "
        "translations with scores, tokens and log probabilities (docs/json.md); with --buffer 1 it is "
        "written before the next line is read, for programs that keep the model loaded. The defaults of "
        "[decode] below apply if the model has no other value.\n",
    .section = "translate,decode,device",
    .rows = translate_rows,
    .config_bytes = sizeof(translate_config),
    .infers = true,
    .searches = &nm_task_translation,
    .ranks = true,
    .run = translate_run,
};
