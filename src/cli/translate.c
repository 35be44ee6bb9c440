/* norma translate: lines of text through one model or an ensemble. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/open_model.h"
#include "decode/decode.h"
#include "task/translator.h"
#include "text/words.h"

static const size_t bytes_at_once = (size_t)16 << 20;

typedef struct translate_config { /* section [translate] */
    const char *input, *output, *input_format, *output_format;
    int64_t buffer;
} translate_config;

/* clang-format off */
static const nm_option translate_rows[] = {
    NM_OPTION(translate_config, input, "-", 0, 0, "file of lines to translate; - is standard input"),
    NM_OPTION(translate_config, output, "-", 0, 0, "file for the translations; - is standard output"),
    NM_CHOICE(translate_config, input_format, "raw", "raw|tokenized|subword", "Format of the input: raw text, tokenized text as norma prepare writes it, or subwords."),
    NM_CHOICE(translate_config, output_format, "raw", "raw|tokenized|subword", "Format of the translations: raw text, tokenized text, or subwords."),
    NM_OPTION(translate_config, buffer, "2000", 1, 1 << 24, "lines read before any is translated: many give batches of similar length, 1 answers each line at once, as at a terminal"),
    {0}};
/* clang-format on */

static void translate_options(nm_options *options)
{
    nm_options_add(options, "translate", translate_rows, NULL, sizeof(translate_config));
    nm_decode_options_add(options);
    nm_device_options_add(options);
}

/* ---- models ---- */

typedef struct job {
    const nm_cli *cli;
    const translate_config *config;
    nm_decode_options decode;
    nm_backend *backend;
    nm_loaded_model *models;
    int32_t n_models;
    nm_translator *translator;
    FILE *input, *output;
    int64_t first_line, too_long;
} job;

static nm_text_format form_of(const char *name)
{
    return !strcmp(name, "raw")         ? NM_FORMAT_RAW
           : !strcmp(name, "tokenized") ? NM_FORMAT_TOKENIZED
                                        : NM_FORMAT_SUBWORD;
}

/* The first model's, with the command line's changes. A preset asked for there replaces all that the model says, and what
 * changes no result is not the model's matter. */
static nm_decode_options decode_options(const job *self)
{
    const nm_decode_options *asked = nm_options_find(self->cli->options, "decode");
    nm_decode_options options =
        *(const nm_decode_options *)nm_options_find(self->models[0].options, "decode");
    for (size_t i = 0; i < self->cli->n_settings; i += 2)
        if (!strcmp(self->cli->settings[i], "decode.preset"))
            options = *asked;
    options.batch_tokens = asked->batch_tokens;
    return options;
}

static nm_status job_open(job *self, int n_paths, char **paths, nm_error *err)
{
    NM_TRY(nm_cli_open_backend(self->cli, &self->backend, err));
    self->models = calloc((size_t)n_paths, sizeof *self->models);
    NM_ASSERT(self->models);
    for (; self->n_models < n_paths; self->n_models++)
        NM_TRY(nm_cli_open_model(self->cli, paths[self->n_models], &nm_task_translation, "does not translate",
                                 self->backend, &self->models[self->n_models], err));
    self->decode = decode_options(self);
    const nm_translator_config config = {form_of(self->config->input_format),
                                         form_of(self->config->output_format), &self->decode};
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): job_release frees the models */
    NM_TRY(nm_translator_create(&self->translator, self->models, self->n_models, &config, err));
    NM_TRY(nm_file_open(&self->input, self->config->input, "rb", err));
    return nm_file_open(&self->output, self->config->output, "wb", err);
}

static void job_release(job *self)
{
    nm_translator_free(self->translator);
    for (int32_t m = 0; m < self->n_models; m++)
        nm_loaded_model_close(&self->models[m]);
    free(self->models);
    nm_backend_free(self->backend);
    if (self->input && self->input != stdin)
        fclose(self->input);
}

/* ---- lines ---- */

static nm_status read_lines(const job *self, nm_lines *reader, nm_line_list *lines, nm_error *err)
{
    size_t most = isatty(fileno(self->input)) ? 1 : (size_t)self->config->buffer, bytes = 0;
    nm_line_list_clear(lines);
    while (lines->n < most && bytes < bytes_at_once) {
        bool more;
        NM_TRY(nm_lines_next(reader, &more, err));
        if (!more)
            break;
        NM_TRY(nm_line_check(reader, err));
        const char *nul = memchr(reader->text, 0, reader->bytes);
        if (nul)
            return nm_fail(err, NM_FORMAT, "%s:%lld: not text: byte 0x00 at position %zu", reader->path,
                           (long long)reader->number, (size_t)(nul - reader->text) + 1);
        nm_line_list_add(lines, reader->text, reader->bytes);
        bytes += reader->bytes;
    }
    return NM_OK;
}

static void write_translated(job *self, int64_t number, const nm_translated *one, int64_t nbest)
{
    if (nbest == 1) {
        fprintf(self->output, "%s\n", one->n ? one->list[0].text : "");
        return;
    }
    for (int32_t i = 0; i < one->n; i++)
        fprintf(self->output, "%lld ||| %s ||| %.6f\n", (long long)number, one->list[i].text,
                one->list[i].score);
    if (!one->n)
        fprintf(self->output, "%lld |||  ||| 0\n", (long long)number);
}

static nm_status translate_lines(job *self, const nm_line_list *lines, nm_error *err)
{
    nm_translated *out = calloc(lines->n + 1, sizeof *out);
    NM_ASSERT(out);
    nm_status status = nm_translator_run(self->translator, lines, out, err);
    for (size_t i = 0; i < lines->n && status == NM_OK; i++) {
        write_translated(self, self->first_line + (int64_t)i, &out[i], self->decode.nbest);
        self->too_long += out[i].too_long;
        nm_translated_release(&out[i]);
    }
    self->first_line += (int64_t)lines->n;
    free(out);
    return status == NM_OK ? nm_file_flush(self->output, self->config->output, err) : status;
}

static nm_status translate_all(job *self, nm_error *err)
{
    const char *path = strcmp(self->config->input, "-") ? self->config->input : "standard input";
    nm_lines reader;
    nm_line_list lines = {0};
    nm_lines_init(&reader, self->input, path);
    nm_status status;
    do {
        status = read_lines(self, &reader, &lines, err);
        if (status == NM_OK && lines.n)
            status = translate_lines(self, &lines, err);
    } while (status == NM_OK && lines.n);
    nm_lines_release(&reader);
    nm_line_list_release(&lines);
    return status;
}

static int translate_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.cli = cli, .config = nm_options_find(cli->options, "translate")};
    nm_status status = nm_cli_want(cli, argc, 1, 1000, &err);
    if (status == NM_OK)
        status = job_open(&self, argc, argv, &err);
    if (status == NM_OK)
        status = translate_all(&self, &err);
    if (status == NM_OK && self.too_long)
        fprintf(stderr, "norma: %lld of %lld lines have more than %d tokens and were left untranslated\n",
                (long long)self.too_long, (long long)self.first_line, nm_translator_longest(self.translator));
    status = nm_cli_close(self.output, self.config->output, status, &err);
    job_release(&self);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_translate = {
    .name = "translate",
    .summary = "translate lines of text with a model or an ensemble",
    .usage = "RUN|MODEL [MODEL ...] [--input FILE] [--output FILE] [--beam N] [OPTION ...]",
    .details = "Reads one sentence a line, UTF-8, and writes one translation a line. A run folder stands for "
               "its best\n"
               "model, else its last one. Dictionary, BPE, tokenizer and the options of the search come from "
               "inside\n"
               "the (first) model file; the command line may change the search. The probabilities of several "
               "models\n"
               "are averaged; they must have the same dictionaries. Empty lines stay empty, and so do lines "
               "of more\n"
               "tokens than the model has positions; these are counted. With --nbest N the lines are\n"
               "NUMBER ||| TRANSLATION ||| SCORE, numbered from 0, best first.\n"
               "The defaults of [decode] below hold where the model says nothing else.\n",
    .section = "translate,decode,device",
    .options = translate_options,
    .run = translate_run,
};
