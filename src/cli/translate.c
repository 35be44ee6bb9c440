/* norma translate: translates lines of text with a model or an ensemble. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_command.h"
#include "decode/decode.h"
#include "task/translator.h"
#include "text/words.h"

static const size_t max_buffer_bytes = (size_t)16 << 20;

typedef struct translate_config { /* section [translate] */
    const char *output;
    nm_text_format input_format, output_format;
    int64_t buffer;
} translate_config;

/* clang-format off */
static const nm_option translate_rows[] = {
    NM_OPTION(translate_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_CHOICE(translate_config, input_format, "raw", NM_TEXT_FORMATS, "Format of the input: raw text, tokenized text as norma prepare writes it, or subwords."),
    NM_CHOICE(translate_config, output_format, "raw", NM_TEXT_FORMATS, "Format of the translations: raw text, tokenized text, or subwords."),
    NM_OPTION(translate_config, buffer, "2000", 1, 1 << 24, "Number of lines read before translation starts: large values batch sentences of similar length, 1 answers each line immediately."),
    {0}};
/* clang-format on */

static void translate_options(nm_options *options)
{
    nm_options_add(options, "translate", translate_rows, NULL, sizeof(translate_config));
    nm_decode_options_add(options);
    nm_device_options_add(options);
}

typedef struct job {
    const translate_config *config;
    nm_decode_options decode;
    nm_translator *translator;
    nm_model_session *session;
    FILE *input;
    int64_t first_line, too_long;
} job;

/* The search options inside the first model, overridden by the command line. A preset on the command line replaces all of
 * them. batch_tokens does not change results and is never taken from the model. */
static nm_decode_options decode_options(const nm_model_session *session)
{
    const nm_decode_options *given = nm_options_find(session->cli->options, "decode");
    nm_decode_options options =
        *(const nm_decode_options *)nm_options_find(session->models[0].options, "decode");
    if (nm_options_origin(session->cli->options, "decode.preset") == NM_ORIGIN_COMMAND)
        options = *given;
    options.batch_tokens = given->batch_tokens;
    return options;
}

/* ---- lines ---- */

static nm_status read_lines(const job *self, nm_lines *reader, nm_line_list *lines, nm_error *err)
{
    size_t max_lines = isatty(fileno(self->input)) ? 1 : (size_t)self->config->buffer, bytes = 0;
    nm_line_list_clear(lines);
    while (lines->n < max_lines && bytes < max_buffer_bytes) {
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

static void write_translated(FILE *output, int64_t number, const nm_translated *one, int64_t nbest)
{
    if (nbest == 1) {
        fprintf(output, "%s\n", one->n ? one->list[0].text : "");
        return;
    }
    for (int32_t i = 0; i < one->n; i++)
        fprintf(output, "%lld ||| %s ||| %.6f\n", (long long)number, one->list[i].text, one->list[i].score);
    if (!one->n)
        fprintf(output, "%lld |||  ||| 0\n", (long long)number);
}

static nm_status translate_lines(job *self, const nm_line_list *lines, nm_error *err)
{
    nm_translated *out = calloc(lines->n + 1, sizeof *out);
    NM_ASSERT(out);
    nm_status status = nm_translator_run(self->translator, lines, out, err);
    for (size_t i = 0; i < lines->n && status == NM_OK; i++) {
        write_translated(self->session->output.stream, self->first_line + (int64_t)i, &out[i],
                         self->decode.nbest);
        self->too_long += out[i].too_long;
        nm_translated_release(&out[i]);
    }
    self->first_line += (int64_t)lines->n;
    free(out);
    const nm_cli_output *output = &self->session->output;
    return status == NM_OK ? nm_file_flush(output->stream, output->name, err) : status;
}

static nm_status translate(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    self->decode = decode_options(session);
    const nm_translator_config config = {self->config->input_format, self->config->output_format,
                                         &self->decode};
    NM_TRY(nm_translator_create(&self->translator, session->models, session->n_models, &config, err));
    NM_TRY(nm_file_open(&self->input, session->inputs[0], "rb", err));
    nm_lines reader;
    nm_line_list lines = {0};
    nm_lines_init(&reader, self->input, nm_cli_input_name(session->inputs[0]));
    nm_status status;
    do {
        status = read_lines(self, &reader, &lines, err);
        if (status == NM_OK && lines.n)
            status = translate_lines(self, &lines, err);
    } while (status == NM_OK && lines.n);
    nm_lines_release(&reader);
    nm_line_list_release(&lines);
    if (status == NM_OK && self->too_long)
        fprintf(stderr, "norma: %lld of %lld lines have more than %d tokens and were not translated\n",
                (long long)self->too_long, (long long)self->first_line,
                nm_translator_longest(self->translator));
    return status;
}

static void release(void *state)
{
    job *self = state;
    nm_translator_free(self->translator);
    if (self->input && self->input != stdin)
        fclose(self->input);
}

static int translate_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "translate")};
    const nm_model_command command = {.task = &nm_task_translation,
                                      .refusal = "does not translate",
                                      .ensemble = true,
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .process = translate,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_translate = {
    .name = "translate",
    .summary = "translate lines of text with a model or an ensemble",
    .usage = "MODEL[,MODEL...] [FILE] [--output FILE] [--beam N] [OPTION ...]",
    .details =
        "Reads one sentence per line, UTF-8, from FILE or standard input, and writes one translation per "
        "line. MODEL is a model file or a run folder, of which the best model is used, or else the last "
        "one. Dictionary, BPE codes, tokenizer and the search options come from the (first) model file; "
        "the command line may change the search. Several models form an ensemble: their probabilities "
        "are averaged, and they must have the same dictionaries.\n\n"
        "Empty lines stay empty, and so do lines with more tokens than the model has positions; these "
        "are counted. With --nbest N the output lines are NUMBER ||| TRANSLATION ||| SCORE, numbered "
        "from 0, best first. The defaults of [decode] below apply if the model has no other value.\n",
    .section = "translate,decode,device",
    .options = translate_options,
    .run = translate_run,
};
