/* norma generate: continues prompts with a language model. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/line_numbers.h"
#include "cli/model_command.h"
#include "api/language_model_comm.h"
#include "base/json.h"
#include "base/record.h"
#include "base/text_input.h"
#include "base/line_list.h"
#include "base/words.h"
#include "norma/language_model.h"
#include "task/tasks.h"
#include "text/documents.h"

typedef struct generate_config { /* section [generate] */
    const char *prompt, *output, *encoding, *document_separator;
    nm_document_unit documents;
    int64_t samples, buffer;
    bool bare, json;
    nm_on_invalid on_invalid;
} generate_config;

#define ROW(field, initial, min, max, help) NM_OPTION(generate_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option generate_rows[] = {
    ROW(prompt, "", 0, 0, "Prompt, used instead of the lines of an input file."),
    NM_CHOICE(generate_config, documents, "line", NM_DOCUMENT_UNITS,
        "Prompts in the input: every line, the lines between separators, or the whole file."),
    ROW(document_separator, "", 0, 0, "Line that separates prompts; empty: an empty line."),
    NM_TEXT_ENCODING_OPTION(generate_config),
    ROW(output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    ROW(samples, "1", 1, 1e6, "Number of continuations of each prompt."),
    ROW(buffer, "64", 1, 1 << 20,
        "Number of prompts read before they are continued, from a terminal 1; "
        "1: each prompt is continued immediately."),
    ROW(bare, "false", 0, 1, "Write the continuation without its prompt."),
    ROW(json, "false", 0, 1, "Write one JSON object per continuation, with prompt and text."),
    NM_CHOICE(generate_config, on_invalid, "error", NM_ON_INVALID_CHOICES,
        "Treatment of prompts that are not UTF-8, contain zero bytes, are longer than 1 MiB, or have unknown "
        "tokens if the model has no <unk>: stop with an error after the preceding prompts, or skip: write an "
        "empty line."),
    {0}};
static const nm_option_rule generate_rules[] = {
    {"generate.documents", "generate.prompt", "", "a prompt on the command line is not read from a file",
        NULL},
    {"generate.document_separator", "generate.documents", "separated", "only those prompts have separators",
        NULL},
    {"generate.encoding", "generate.prompt", "", "a prompt on the command line is not read from a file",
        NULL},
    {"generate.buffer", "generate.prompt", "", "a prompt on the command line is not read from a file", NULL},
    {"generate.on_invalid", "generate.prompt", "", "a prompt on the command line is not read from a file",
        NULL},
    {"sample.top_k", "sample.temperature", "!", "greedy search always chooses the most probable token", NULL},
    {"sample.top_p", "sample.temperature", "!", "greedy search always chooses the most probable token", NULL},
    {"sample.min_p", "sample.temperature", "!", "greedy search always chooses the most probable token", NULL},
    {"sample.seed", "sample.temperature", "!", "greedy search has no random numbers", NULL},
    {0}};
/* clang-format on */

typedef struct job {
    const generate_config *config;
    nm_model_session *session;
    nm_language_model *model;
    bool reads_prompts; /* prompts are the lines of a file; false: --prompt */
    uint64_t number;    /* number of the next continuation, from 0 */
    bool *invalid;      /* [generate.buffer] whether a prompt of the buffer is skipped; NULL: none is */
    nm_cli_line_numbers skipped;
} job;

static nm_status open_language_model(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    job *self = state;
    NM_AUTO_FREE const char **settings = nm_cli_settings(session->cli, "generate");
    nm_status status = nm_language_model_open(&self->model, path, settings, err);
    nm_cli_warn(nm_language_model_warning(self->model));
    return status;
}

static void write_skipped(const job *self)
{
    fputs(self->config->json ? "{\"prompt\":null,\"text\":null}\n" : "\n", self->session->output.stream);
}

#define GENERATED(F)                                                                                         \
    F(text, prompt, "Prompt")                                                                                \
    F(text, text, "Text that continues the prompt")
NM_RECORD(generated, GENERATED)
static NM_FIELDS(generated, GENERATED)

static void write_one(const job *self, const char *prompt, const nm_lm_texts *texts, size_t i)
{
    FILE *output = self->session->output.stream;
    if (self->config->json) {
        const generated record = {prompt, nm_lm_texts_get(texts, i)};
        nm_json_print(nm_record_json(generated_fields(), &record), JSON_COMPACT, output);
        return;
    }
    const char *text = self->config->bare ? nm_lm_texts_get(texts, i) : nm_lm_texts_with_prompt(texts, i);
    size_t bytes = strlen(text);
    fputs(text, output);
    if (!bytes || text[bytes - 1] != '\n')
        putc('\n', output);
}

static nm_status continue_prompts(job *self, const nm_line_list *lines, nm_error *err)
{
    size_t samples = (size_t)self->config->samples, n = lines->n * samples;
    NM_AUTO_FREE const char **prompts = nm_allocate(n * sizeof *prompts);
    nm_lm_texts *texts;
    size_t bytes;
    for (size_t i = 0; i < n; i++)
        prompts[i] = nm_line_list_get(lines, i / samples, &bytes);
    nm_status status = nm_language_model_generate(self->model, prompts, n, self->number, &texts, err);
    for (size_t i = 0; i < n && status == NM_OK; i++)
        if (self->invalid && self->invalid[i / samples])
            write_skipped(self);
        else
            write_one(self, prompts[i], texts, i);
    self->number += n;
    NM_TRY(status);
    nm_lm_texts_free(texts);
    return nm_file_flush(self->session->output.stream, self->session->output.name, err);
}

static nm_status check_prompt(const job *self, const char *text, size_t bytes, const char *where,
                              nm_error *err)
{
    enum { LONGEST = 1 << 20 };
    if (bytes > LONGEST)
        return nm_fail(err, NM_FORMAT, "%s: a prompt of %zu bytes, the limit is %d", where, bytes, LONGEST);
    if (memchr(text, 0, bytes))
        return nm_fail(err, NM_FORMAT, "%s: not text: contains a zero byte", where);
    NM_TRY(nm_text_check(text, bytes, where, err));
    return nm_language_model_check_prompt(self->model, text, where, err);
}

static nm_status continue_lines(job *self, const char *name, FILE *stream, nm_error *err)
{
    const nm_document_rule rule = {self->config->documents, self->config->document_separator};
    size_t buffer = isatty(fileno(stream)) ? 1 : (size_t)self->config->buffer;
    NM_AUTO(nm_documents_release) nm_documents reader = {0};
    NM_AUTO(nm_line_list_release) nm_line_list lines = {0};
    nm_documents_init(&reader, stream, name, rule);
    reader.prompts = true;
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        nm_line_list_clear(&lines);
        while (lines.n < buffer) {
            status = nm_documents_next(&reader, &more, err);
            if (status != NM_OK || !more)
                break;
            NM_AUTO_FREE char *where = nm_format("%s:%lld", name, (long long)reader.line);
            status = check_prompt(self, reader.text, reader.bytes, where, err);
            const bool skip = status != NM_OK && self->invalid;
            if (status != NM_OK && !skip)
                break;
            status = NM_OK;
            if (skip)
                nm_cli_line_numbers_add(&self->skipped, reader.line);
            if (self->invalid)
                self->invalid[lines.n] = skip;
            nm_line_list_add(&lines, skip ? "" : reader.text, skip ? 1 : reader.bytes + 1);
        }
        nm_error unread = *err;
        nm_status read = status;
        if (lines.n) /* those before an error, too */
            status = continue_prompts(self, &lines, err);
        if (status == NM_OK && read != NM_OK) {
            status = read;
            *err = unread;
        }
    }
    return status;
}

static nm_status continue_prompt(job *self, const char *prompt, nm_error *err)
{
    NM_AUTO(nm_line_list_release) nm_line_list one = {0};
    nm_status status = check_prompt(self, prompt, strlen(prompt), "--prompt", err);
    nm_line_list_add(&one, prompt, strlen(prompt) + 1);
    NM_THEN(status, continue_prompts(self, &one, err));
    return status;
}

static bool reads_prompts(const void *state)
{
    return ((const job *)state)->reads_prompts;
}

static nm_status generate(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    /* A call without prompts reports a model that cannot generate before the input is read. */
    NM_TRY(continue_prompts(self, &(nm_line_list){0}, err));
    if (!self->reads_prompts)
        return continue_prompt(self, self->config->prompt, err);
    FILE *stream;
    NM_TRY(nm_text_open_checked(&stream, session->inputs[0], self->config->encoding, err));
    if (self->config->on_invalid == NM_INVALID_IS_SKIPPED)
        self->invalid = nm_allocate((size_t)self->config->buffer * sizeof *self->invalid);
    nm_status status = continue_lines(self, nm_input_name(session->inputs[0]), stream, err);
    nm_input_close(stream);
    NM_AUTO_FREE char *skipped = nm_cli_line_numbers_text(&self->skipped);
    if (status == NM_OK && self->skipped.n)
        fprintf(stderr, "norma: %lld prompts are not valid text and were not continued (%s)\n",
                (long long)self->skipped.n, skipped);
    return status;
}

static void release(void *state)
{
    job *self = state;
    nm_language_model_close(self->model);
    free(self->invalid);
}

static int generate_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    job self = {.config = nm_options_find(cli->options, "generate"),
                .reads_prompts = nm_options_origin(cli->options, "generate.prompt") != NM_ORIGIN_COMMAND};
    const nm_model_command command = {.open = open_language_model,
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .uses_input = reads_prompts,
                                      .process = generate,
                                      .release = release};
    if (!self.reads_prompts && argc > 1) {
        nm_fail(&err, NM_USAGE, "generate: --prompt and an input file exclude each other");
        return nm_cli_fail(&err);
    }
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_generate = {
    .name = "generate",
    .summary = "continue prompts with a language model",
    .usage = "MODEL [FILE] [--prompt TEXT] [--lines N] [--tokens N] [--temperature T] [--top-k K] "
             "[--top-p P] [--stop STRING] [--seed N]",
    .details =
        "Samples one token after another until --tokens tokens or --lines lines have been generated, or, "
        "with a model of documents of several lines (norma prepare --documents), until the document ends. "
        "--stop ends a text before the first occurrence of a string, several --stop before that of any of "
        "them. docs/generation.md defines the order of penalty, temperature, top-k, top-p and min-p. "
        "Prompts are the lines of FILE or of standard input, with --documents several lines, or --prompt. "
        "Texts may contain newlines: with "
        "--lines 1 the output has one line for each prompt, with --json one object. A continuation depends "
        "on its prompt, its number and the seed only, not on batches or threads. When the context "
        "(model.context) is full, its second half becomes the new context. A prompt is text as in "
        "training; its unknown tokens become <unk>, and are an error if the model has no <unk>.",
    .section = "generate,sample,device",
    .rows = generate_rows,
    .config_bytes = sizeof(generate_config),
    .infers = true,
    .searches = &nm_task_lm,
    .rules = generate_rules,
    .run = generate_run,
};
