/* norma generate: a language model writes on from prompts. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/open_model.h"
#include "decode/sampler.h"
#include "task/lm_task.h"
#include "text/words.h"

typedef struct generate_config { /* section [generate] */
    const char *prompt, *input;
    int64_t samples;
    bool bare, json;
} generate_config;

#define ROW(field, initial, min, max, help) NM_OPTION(generate_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option generate_rows[] = {
    ROW(prompt, "", 0, 0, "text to go on from"),
    ROW(input, "", 0, 0, "file of prompts, one a line; - is standard input; empty: only --prompt"),
    ROW(samples, "1", 1, 1e6, "continuations of every prompt"),
    ROW(bare, "false", 0, 1, "write the continuation without its prompt"),
    ROW(json, "false", 0, 1, "one JSON object a continuation: prompt and text"),
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
    nm_backend *backend;
    nm_loaded_model loaded;
    nm_lm_text *text;
    nm_sampler *sampler;
    uint64_t number; /* of the next continuation */
} job;

static nm_status job_open(job *self, nm_cli *cli, const char *path, nm_error *err)
{
    NM_TRY(nm_cli_open_backend(cli, &self->backend, err));
    NM_TRY(
        nm_cli_open_model(cli, path, &nm_task_lm, "is no language model", self->backend, &self->loaded, err));
    const nm_lm_parts *parts = self->loaded.task.parts;
    NM_TRY(nm_lm_text_create(&self->text, parts, err));
    return nm_sampler_create(&self->sampler, self->loaded.model, self->sample, parts->vocab, err);
}

static void job_release(job *self)
{
    nm_sampler_free(self->sampler);
    nm_lm_text_free(self->text);
    nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
}

static void write_one(job *self, const char *prompt, const nm_ids *head, const nm_ids *found)
{
    nm_ids all = {0};
    nm_buffer out = {0};
    nm_buffer_clear(&out);
    bool bare = self->config->bare || self->config->json;
    for (size_t i = 0; !bare && i < head->n; i++)
        nm_ids_append(&all, head->data[i]);
    for (size_t i = 0; i < found->n; i++)
        nm_ids_append(&all, found->data[i]);
    nm_lm_decode(self->text, all.data, all.n, &out);
    if (self->config->json) {
        json_t *o = json_pack("{s:s, s:s%}", "prompt", prompt, "text", out.data, out.bytes);
        json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
        json_decref(o);
    } else {
        fwrite(out.data, 1, out.bytes, stdout);
    }
    if (self->config->json || !out.bytes || out.data[out.bytes - 1] != '\n')
        putchar('\n');
    nm_buffer_release(&out);
    nm_ids_release(&all);
}

/* Goes on from some prompts. */
static nm_status run_prompts(job *self, const nm_line_list *lines, nm_error *err)
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
    return status == NM_OK ? nm_file_flush(stdout, "standard output", err) : status;
}

static nm_status check_prompt(const char *text, size_t bytes, const char *where, nm_error *err)
{
    enum { LONGEST = 1 << 20 };
    if (bytes > LONGEST)
        return nm_fail(err, NM_FORMAT, "%s: a prompt of %zu bytes, the limit is %d", where, bytes, LONGEST);
    if (memchr(text, 0, bytes))
        return nm_fail(err, NM_FORMAT, "%s: not text: holds a zero byte", where);
    return nm_text_check(text, bytes, where, err);
}

static nm_status run_file(job *self, FILE *stream, nm_error *err)
{
    enum { AT_ONCE = 64 };
    const char *path = strcmp(self->config->input, "-") ? self->config->input : "standard input";
    nm_lines reader;
    nm_line_list lines = {0};
    nm_lines_init(&reader, stream, path);
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        nm_line_list_clear(&lines);
        while (lines.n < AT_ONCE) {
            status = nm_lines_next(&reader, &more, err);
            if (status != NM_OK || !more)
                break;
            char *where = nm_format("%s:%lld", path, (long long)reader.number);
            status = check_prompt(reader.text, reader.bytes, where, err);
            free(where);
            if (status != NM_OK)
                break;
            nm_line_list_add(&lines, reader.text, reader.bytes);
        }
        if (status == NM_OK && lines.n)
            status = run_prompts(self, &lines, err);
    }
    nm_lines_release(&reader);
    nm_line_list_release(&lines);
    return status;
}

static nm_status run_all(job *self, nm_error *err)
{
    const generate_config *config = self->config;
    if (*config->prompt && *config->input)
        return nm_fail(err, NM_USAGE, "--prompt and --input exclude each other");
    if (*config->input) {
        FILE *stream;
        NM_TRY(nm_file_open(&stream, config->input, "rb", err));
        nm_status status = run_file(self, stream, err);
        if (stream != stdin)
            fclose(stream);
        return status;
    }
    nm_line_list one = {0};
    nm_status status = check_prompt(config->prompt, strlen(config->prompt), "--prompt", err);
    nm_line_list_add(&one, config->prompt, strlen(config->prompt));
    if (status == NM_OK)
        status = run_prompts(self, &one, err);
    nm_line_list_release(&one);
    return status;
}

static int generate_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.config = nm_options_find(cli->options, "generate"),
                .sample = nm_options_find(cli->options, "sample")};
    nm_status status = nm_cli_want(cli, argc, 1, 1, &err);
    if (status == NM_OK)
        status = job_open(&self, cli, argv[0], &err);
    if (status == NM_OK)
        status = run_all(&self, &err);
    job_release(&self);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_generate = {
    .name = "generate",
    .summary = "let a language model write on from prompts",
    .usage = "RUN|MODEL [--prompt TEXT | --input FILE] [--tokens N] [--temperature T] [--top-k K] [--top-p "
             "P] [--seed N]",
    .details = "Draws one token after the other until --tokens are there or --lines line ends. A "
               "continuation depends on its "
               "prompt, its number and the seed alone: batches and threads don't change it. When the context "
               "is full "
               "(model.context), it begins again with its second half. A prompt is text as the model was "
               "trained on; its "
               "unknown words become <unk>.",
    .section = "generate,sample,device",
    .options = generate_options,
    .run = generate_run,
};
