/* norma generate: continues prompts with a language model. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/model_command.h"
#include "base/text_input.h"
#include "decode/sampler.h"
#include "task/lm_task.h"
#include "text/words.h"

typedef struct generate_config { /* section [generate] */
    const char *prompt, *output;
    int64_t samples;
    bool bare, json;
} generate_config;

#define ROW(field, initial, min, max, help) NM_OPTION(generate_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option generate_rows[] = {
    ROW(prompt, "", 0, 0, "Text to continue instead of the lines of an input file."),
    ROW(output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    ROW(samples, "1", 1, 1e6, "Number of continuations of each prompt."),
    ROW(bare, "false", 0, 1, "Write the continuation without its prompt."),
    ROW(json, "false", 0, 1, "Write one JSON object per continuation, with prompt and text."),
    {0}};
/* clang-format on */

static void generate_options(nm_options *options)
{
    nm_options_add(options, "generate", generate_rows, NULL, sizeof(generate_config));
    nm_sample_options_add(options);
    nm_device_options_add(options);
}

typedef struct job {
    const generate_config *config;
    const nm_sample_options *sample;
    nm_model_session *session;
    nm_lm_text *text;
    nm_sampler *sampler;
    bool reads_prompts; /* prompts are lines of a file; false: --prompt */
    uint64_t number;    /* of the next continuation */
} job;

static void write_one(job *self, const char *prompt, const nm_ids *head, const nm_ids *found)
{
    nm_ids all = {0};
    nm_buffer out = {0};
    nm_buffer_clear(&out);
    FILE *output = self->session->output.stream;
    bool bare = self->config->bare || self->config->json;
    for (size_t i = 0; !bare && i < head->n; i++)
        nm_ids_append(&all, head->data[i]);
    for (size_t i = 0; i < found->n; i++)
        nm_ids_append(&all, found->data[i]);
    nm_lm_decode(self->text, all.data, all.n, &out);
    if (self->config->json) {
        json_t *o = json_pack("{s:s, s:s%}", "prompt", prompt, "text", out.data, out.bytes);
        json_dumpf(o, output, JSON_COMPACT | JSON_PRESERVE_ORDER);
        json_decref(o);
    } else {
        fwrite(out.data, 1, out.bytes, output);
    }
    if (self->config->json || !out.bytes || out.data[out.bytes - 1] != '\n')
        putc('\n', output);
    nm_buffer_release(&out);
    nm_ids_release(&all);
}

static nm_status continue_prompts(job *self, const nm_line_list *lines, nm_error *err)
{
    size_t samples = (size_t)self->config->samples, n = lines->n * samples;
    nm_ids *heads = nm_allocate(lines->n * sizeof *heads), *out = nm_allocate(n * sizeof *out);
    nm_id_list *prompts = nm_allocate(n * sizeof *prompts);
    int64_t words = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(lines, i / samples, &bytes);
        if (i % samples == 0)
            nm_lm_encode(self->text, line, bytes, &heads[i / samples], &words);
        prompts[i] = (nm_id_list){heads[i / samples].data, (int32_t)heads[i / samples].n};
    }
    nm_status status = nm_sampler_run(self->sampler, prompts, n, self->number, out, err);
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(lines, i / samples, &bytes);
        char *prompt = nm_format("%.*s", (int)bytes, line);
        if (status == NM_OK)
            write_one(self, prompt, &heads[i / samples], &out[i]);
        free(prompt);
        nm_ids_release(&out[i]);
    }
    for (size_t i = 0; i < lines->n; i++)
        nm_ids_release(&heads[i]);
    self->number += n;
    free(heads);
    free(out);
    free(prompts);
    const nm_cli_output *output = &self->session->output;
    return status == NM_OK ? nm_file_flush(output->stream, output->name, err) : status;
}

static nm_status check_prompt(const char *text, size_t bytes, const char *where, nm_error *err)
{
    enum { LONGEST = 1 << 20 };
    if (bytes > LONGEST)
        return nm_fail(err, NM_FORMAT, "%s: a prompt of %zu bytes, the limit is %d", where, bytes, LONGEST);
    if (memchr(text, 0, bytes))
        return nm_fail(err, NM_FORMAT, "%s: not text: contains a zero byte", where);
    return nm_text_check(text, bytes, where, err);
}

static nm_status continue_lines(job *self, const char *name, FILE *stream, nm_error *err)
{
    enum { BUFFER_LINES = 64 };
    nm_lines reader;
    nm_line_list lines = {0};
    nm_lines_init(&reader, stream, name);
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        nm_line_list_clear(&lines);
        while (lines.n < BUFFER_LINES) {
            status = nm_lines_next(&reader, &more, err);
            if (status != NM_OK || !more)
                break;
            char *where = nm_format("%s:%lld", name, (long long)reader.number);
            status = check_prompt(reader.text, reader.bytes, where, err);
            free(where);
            if (status != NM_OK)
                break;
            nm_line_list_add(&lines, reader.text, reader.bytes);
        }
        if (status == NM_OK && lines.n)
            status = continue_prompts(self, &lines, err);
    }
    nm_lines_release(&reader);
    nm_line_list_release(&lines);
    return status;
}

static nm_status continue_prompt(job *self, const char *prompt, nm_error *err)
{
    nm_line_list one = {0};
    nm_status status = check_prompt(prompt, strlen(prompt), "--prompt", err);
    nm_line_list_add(&one, prompt, strlen(prompt));
    if (status == NM_OK)
        status = continue_prompts(self, &one, err);
    nm_line_list_release(&one);
    return status;
}

static bool reads_prompts(const void *state)
{
    return ((const job *)state)->reads_prompts;
}

static nm_status generate(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    const nm_loaded_model *loaded = &session->model;
    const nm_lm_parts *parts = loaded->task.parts;
    self->session = session;
    NM_TRY(nm_lm_text_create(&self->text, parts, err));
    NM_TRY(nm_sampler_create(&self->sampler, loaded->model, self->sample, parts->vocab, err));
    if (!self->reads_prompts)
        return continue_prompt(self, self->config->prompt, err);
    FILE *stream;
    NM_TRY(nm_text_open(&stream, session->inputs[0], NULL, err));
    nm_status status = continue_lines(self, nm_cli_input_name(session->inputs[0]), stream, err);
    if (stream != stdin)
        fclose(stream);
    return status;
}

static void release(void *state)
{
    job *self = state;
    nm_sampler_free(self->sampler);
    nm_lm_text_free(self->text);
}

static int generate_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    job self = {.config = nm_options_find(cli->options, "generate"),
                .sample = nm_options_find(cli->options, "sample"),
                .reads_prompts = nm_options_origin(cli->options, "generate.prompt") != NM_ORIGIN_COMMAND};
    const nm_model_command command = {.task = &nm_task_lm,
                                      .refusal = "is no language model",
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
    .usage = "MODEL [FILE] [--prompt TEXT] [--tokens N] [--temperature T] [--top-k K] [--top-p P] [--seed N]",
    .details =
        "Samples one token after another until --tokens tokens or --lines lines have been generated. "
        "Prompts are the lines of FILE or of standard input, or --prompt. A continuation depends on its "
        "prompt, its number and the seed only, not on batches or threads. When the context "
        "(model.context) is full, its second half becomes the new context. A prompt is text as in "
        "training; its unknown tokens become <unk>.",
    .section = "generate,sample,device",
    .options = generate_options,
    .run = generate_run,
};
