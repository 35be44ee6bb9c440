/* norma perplexity: how well a language model predicts text. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/open_model.h"
#include "metric/bootstrap.h"
#include "task/lm_task.h"

typedef struct perplexity_config { /* section [perplexity] */
    int64_t context, batch_tokens;
    bool json, drop_incomplete, interval;
} perplexity_config;

#define ROW(field, initial, min, max, help) NM_OPTION(perplexity_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option perplexity_rows[] = {
    ROW(context, "0", 0, 1024, "slide: every token sees at least so many before it, as far as the text has them; 0: segments as in training, whose first token sees one"),
    ROW(drop_incomplete, "false", 0, 1, "leave out the last segment where it is shorter"),
    ROW(batch_tokens, "2048", 1, 1 << 24, "tokens of a batch; the result doesn't depend on it"),
    ROW(interval, "false", 0, 1, "the 95 % bootstrap interval over runs of tokens"),
    ROW(json, "false", 0, 1, "one JSON object a file, and one for all"),
    {0}};
/* clang-format on */

static void perplexity_options(nm_options *options)
{
    nm_options_add(options, "perplexity", perplexity_rows, NULL, sizeof(perplexity_config));
    nm_device_options_add(options);
}

typedef struct job {
    const nm_cli *cli;
    const perplexity_config *config;
    nm_backend *backend;
    nm_loaded_model loaded;
    nm_lm_text *text;
} job;

typedef struct result {
    nm_lm_scored scored;
    int64_t words, unknown;
} result;

static nm_status job_open(job *self, const char *path, nm_error *err)
{
    NM_TRY(nm_cli_open_backend(self->cli, &self->backend, err));
    NM_TRY(nm_cli_open_model(self->cli, path, &nm_task_lm, "is no language model", self->backend,
                             &self->loaded, err));
    return nm_lm_text_create(&self->text, self->loaded.task.parts, err);
}

static void job_release(job *self)
{
    nm_lm_text_free(self->text);
    nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
}

static bool is_causal(const job *self)
{
    return nm_lm_config_of(self->loaded.model)->causal;
}

static nm_status score_file(job *self, const char *path, result *out, nm_error *err)
{
    const nm_lm_parts *parts = self->loaded.task.parts;
    nm_lm_scoring how = {.context = self->config->context,
                         .max_tokens = self->config->batch_tokens,
                         .drop_incomplete = self->config->drop_incomplete || !is_causal(self),
                         .before = parts->vocab->eos};
    nm_ids ids = {0};
    nm_status status = nm_lm_encode_file(self->text, path, &ids, &out->words, &out->unknown, err);
    if (status == NM_OK && !ids.n)
        status = nm_fail(err, NM_MISMATCH, "%s: no text to score", path);
    if (status == NM_OK)
        status = nm_lm_score_ids(self->loaded.model, ids.data, (int64_t)ids.n, &how, &out->scored, err);
    if (status == NM_OK && !out->scored.tokens)
        status = nm_fail(err, NM_MISMATCH, "%s: %zu tokens are no complete segment", path, ids.n);
    nm_ids_release(&ids);
    return status;
}

static const char *title(const job *self)
{
    return is_causal(self) ? "perplexity" : "non-causal, not a perplexity:";
}

static nm_interval interval_of(const nm_lm_scored *scored)
{
    nm_bootstrap_config config = nm_bootstrap_default();
    nm_counts counts = {scored->counts, scored->n_units, 2};
    return nm_bootstrap_interval(counts, nm_lm_perplexity_of_counts, NULL, &config);
}

static void print_json(const job *self, const char *name, const result *r)
{
    const nm_lm_scored *s = &r->scored;
    json_t *o = json_object();
    json_object_set_new(o, "file", json_string(name));
    json_object_set_new(o, "causal", json_boolean(is_causal(self)));
    json_object_set_new(o, is_causal(self) ? "perplexity" : "non_causal_not_a_perplexity",
                        json_real(exp(s->nll / (double)s->tokens)));
    json_object_set_new(o, "nll", json_real(s->nll / (double)s->tokens));
    json_object_set_new(o, "tokens", json_integer(s->tokens));
    json_object_set_new(o, "left_out", json_integer(s->left_out));
    json_object_set_new(o, "unknown", json_integer(r->unknown));
    json_object_set_new(o, "words", json_integer(r->words));
    json_object_set_new(o, "context", json_integer(self->config->context));
    json_object_set_new(o, "segment", json_integer(nm_lm_config_of(self->loaded.model)->context));
    if (!s->left_out)
        json_object_set_new(o, "per_word", json_real(exp(s->nll / (double)r->words)));
    if (self->config->interval) {
        nm_interval interval = interval_of(s);
        json_object_set_new(o, "low", json_real(interval.low));
        json_object_set_new(o, "high", json_real(interval.high));
    }
    json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(o);
}

static void print_text(const job *self, const char *name, const result *r)
{
    const nm_lm_scored *s = &r->scored;
    printf("%s: %s %.4f", name, title(self), exp(s->nll / (double)s->tokens));
    if (self->config->interval) {
        nm_interval interval = interval_of(s);
        printf(" [%.4f, %.4f]", interval.low, interval.high);
    }
    printf("  nll %.6f  tokens %" PRId64, s->nll / (double)s->tokens, s->tokens);
    if (s->left_out)
        printf("  left out %" PRId64, s->left_out);
    else if (r->words != s->tokens)
        printf("  per word %.4f", exp(s->nll / (double)r->words));
    printf("  unknown %" PRId64 "\n", r->unknown);
}

static void print_result(const job *self, const char *name, const result *r)
{
    if (self->config->json)
        print_json(self, name, r);
    else
        print_text(self, name, r);
}

static void add_result(result *total, const result *one)
{
    nm_lm_scored *to = &total->scored;
    size_t n = to->n_units + one->scored.n_units;
    to->counts = nm_reallocate(to->counts, 2 * n * sizeof *to->counts);
    memcpy(to->counts + 2 * to->n_units, one->scored.counts, 2 * one->scored.n_units * sizeof *to->counts);
    to->n_units = n;
    to->nll += one->scored.nll;
    to->tokens += one->scored.tokens;
    to->left_out += one->scored.left_out;
    total->words += one->words;
    total->unknown += one->unknown;
}

static nm_status score_files(job *self, int n, char **paths, nm_error *err)
{
    result total = {0};
    nm_status status = NM_OK;
    for (int i = 0; i < n && status == NM_OK; i++) {
        result one = {0};
        status = score_file(self, paths[i], &one, err);
        if (status == NM_OK) {
            print_result(self, strcmp(paths[i], "-") ? paths[i] : "standard input", &one);
            add_result(&total, &one);
        }
        nm_lm_scored_release(&one.scored);
    }
    if (status == NM_OK && n > 1)
        print_result(self, "all files", &total);
    nm_lm_scored_release(&total.scored);
    return status;
}

static int perplexity_run(nm_cli *cli, int argc, char **argv)
{
    static char *standard_input[] = {"-"};
    nm_error err = {0};
    job self = {.cli = cli, .config = nm_options_find(cli->options, "perplexity")};
    nm_status status = nm_cli_check_arguments(cli, argc, 1, 100000, &err);
    if (status == NM_OK)
        status = job_open(&self, argv[0], &err);
    if (status == NM_OK)
        status = argc > 1 ? score_files(&self, argc - 1, argv + 1, &err)
                          : score_files(&self, 1, standard_input, &err);
    job_release(&self);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_perplexity = {
    .name = "perplexity",
    .summary = "how well a language model predicts text",
    .usage = "RUN|MODEL [FILE ...] [--context N] [--json] [OPTION ...]",
    .details =
        "Reads text as it is, UTF-8, a sentence or paragraph a line (standard input without a file); "
        "tokenizer, BPE and dictionary come from the model. Every line ends in </s>, which is scored as "
        "a word. By default the text is cut into segments as in training and a token sees those before "
        "it in its segment; with --context N windows slide over the text, and every token is scored once "
        "and sees at least the N tokens before it, as far as there are any (N up to model.context). With "
        "BPE the perplexity is per unit; the one per word (and </s>) is printed too, and is what "
        "compares with other vocabularies.\n\n"
        "A model that sees ahead (model.causal = false) has no perplexity; what is printed says so.",
    .section = "perplexity,device",
    .options = perplexity_options,
    .run = perplexity_run,
};
