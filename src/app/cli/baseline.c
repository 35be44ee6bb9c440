/* norma baseline: scores simple models of the task on the data of a recipe, as baselines for a trained
 * model. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/record.h"
#include "task/baseline.h"
#include "cli/cli.h"
#include "cli/model_command.h"
#include "data/prepare.h"
#include "base/bootstrap.h"
#include "train/train_options.h"

typedef struct output_config { /* section [output] */
    const char *only;
    bool json;
    int64_t bootstrap;
} output_config;

typedef struct run_choice { /* section [run] */
    const char *task, *profile;
} run_choice;

/* clang-format off */
static const nm_option output_rows[] = {
    NM_OPTION(output_config, only, "", 0, 0,
        "Name of the only baseline to compute, such as majority or kneser-ney; empty: all of the task."),
    NM_OPTION(output_config, json, "false", 0, 1, "Print one JSON object."),
    NM_OPTION(output_config, bootstrap, "1000", 0, 10000000,
        "Number of bootstrap resamples for the intervals; 0: no intervals."),
    {0}};
static const nm_option run_rows[] = {
    NM_OPTION(run_choice, task, "translation", 0, 0,
        "Task, if the recipe does not set it; determines the options of [data]."),
    NM_OPTION(run_choice, profile, "", 0, 0,
        "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    {0}};
/* clang-format on */

static void baseline_options(nm_options *options)
{
    nm_options_add(options, "output", output_rows, NULL, sizeof(output_config));
    nm_options_add(options, "baseline", nm_baseline_options, NULL, sizeof(nm_baseline_config));
    nm_options_add(options, "run", run_rows, NULL, sizeof(run_choice));
}

typedef struct job {
    const output_config *output;
    nm_baseline_config config;
    nm_task task;
    json_t *results; /* of the baselines that were computed; NULL: print text */
} job;

static nm_interval interval_of(const job *self, const nm_task_score *score)
{
    nm_bootstrap_config resamples = nm_bootstrap_default();
    resamples.n_resamples = (int)self->output->bootstrap;
    return nm_bootstrap_interval(score->counts, score->of_counts, score->context, &resamples);
}

#define BASELINE_SCORE(F)                                                                                    \
    F(real, low, "95 % bootstrap interval", "low?")                                                          \
    F(real, high, "Upper end of the interval", "high?")                                                      \
    F(text, signature, "How the score was computed")
NM_RECORD(baseline_score, BASELINE_SCORE)
static NM_FIELDS(baseline_score, BASELINE_SCORE)

#define BASELINE(F)                                                                                          \
    F(text, name, "Name")                                                                                    \
    F(text, title, "Description")                                                                            \
    F(text, settings, "Chosen settings", "settings?")                                                        \
    F(json, valid, "Score of the validation set", "valid?")                                                  \
    F(json, test, "Score of the test set", "test?")
NM_RECORD(baseline_line, BASELINE)
static NM_FIELDS(baseline_line, BASELINE)

#define BASELINES(F)                                                                                         \
    F(text, task, "Task of the recipe")                                                                      \
    F(json, baselines, "An object for each baseline")
NM_RECORD(baselines_line, BASELINES)
static NM_FIELDS(baselines_line, BASELINES)

/* The key of the score is the name of the metric. NULL: the split has none. */
static json_t *score_json(const job *self, const nm_task_score *score)
{
    if (!score->name)
        return NULL;
    baseline_score line = {NAN, NAN, score->signature};
    if (self->output->bootstrap) {
        const nm_interval interval = interval_of(self, score);
        line.low = interval.low;
        line.high = interval.high;
    }
    json_t *root = json_pack("{s:f}", score->name, score->value);
    nm_record_add_json(root, baseline_score_fields(), &line);
    return root;
}

static void add_json(job *self, const nm_baseline_type *type, const nm_baseline_result *result)
{
    const baseline_line line = {.name = type->name,
                                .title = type->title,
                                .settings = result->settings,
                                .valid = score_json(self, &result->scores[NM_SPLIT_VALID]),
                                .test = score_json(self, &result->scores[NM_SPLIT_TEST])};
    json_array_append_new(self->results, nm_record_json(baseline_line_fields(), &line));
}

/* Prints a row of the table. */
static void print_text(job *self, const nm_baseline_type *type, const nm_baseline_result *result)
{
    printf("%-33s", type->title);
    for (int split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++) {
        const nm_task_score *score = &result->scores[split];
        if (!score->name)
            continue;
        printf("  %s %s %.2f", nm_prepare_split_names[split], score->title, score->value);
        if (self->output->bootstrap) {
            nm_interval interval = interval_of(self, score);
            printf(" [%.2f, %.2f]", interval.low, interval.high);
        }
    }
    printf("%s%s\n", result->settings ? "  " : "", result->settings ? result->settings : "");
    fflush(stdout);
}

static nm_status run_one(job *self, const nm_baseline_type *type, nm_error *err)
{
    NM_AUTO(nm_baseline_result_release) nm_baseline_result result = {0};
    nm_status status = type->run(&self->task, &self->config, &result, err);
    bool scored = result.scores[NM_SPLIT_VALID].name || result.scores[NM_SPLIT_TEST].name;
    if (status == NM_OK && !scored)
        status = nm_fail(err, NM_USAGE, "the data has neither a validation nor a test set to score");
    if (status == NM_OK && self->results)
        add_json(self, type, &result);
    else if (status == NM_OK)
        print_text(self, type, &result);
    return status;
}

static nm_status unknown_name(const job *self, nm_error *err)
{
    NM_AUTO_FREE char *known = nm_duplicate("");
    for (const nm_baseline_type *const *type = nm_baseline_types; *type; type++)
        if ((*type)->task == self->task.type)
            nm_list_append(&known, (*type)->name);
    nm_fail(err, NM_USAGE, "output.only = %.100s: no such baseline of %s; available: %s", self->output->only,
            self->task.type->name, known);
    return err->status;
}

static nm_status run_all(job *self, nm_error *err)
{
    size_t n = 0;
    NM_TRY(self->task.type->open(&self->task, err));
    NM_AUTO_FREE char *warning =
        self->task.type->data_warning ? self->task.type->data_warning(&self->task) : NULL;
    nm_cli_warn(warning);
    for (const nm_baseline_type *const *type = nm_baseline_types; *type; type++) {
        if ((*type)->task != self->task.type ||
            (*self->output->only && strcmp(self->output->only, (*type)->name)))
            continue;
        NM_TRY(run_one(self, *type, err));
        n++;
    }
    return n ? NM_OK : unknown_name(self, err);
}

static nm_status print_json(const job *self, nm_error *err)
{
    const baselines_line line = {self->task.type->name, json_incref(self->results)};
    nm_json_print(nm_record_json(baselines_line_fields(), &line), JSON_INDENT(1), stdout);
    return nm_file_flush(stdout, "standard output", err);
}

static int baseline_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    char *warning = NULL;
    const run_choice *run = nm_options_find(cli->options, "run");
    if (nm_cli_check_arguments(cli, argc, argv, 1, 1, &err) != NM_OK ||
        nm_options_read_profile(cli->options, argv[0], run->profile, &err) != NM_OK ||
        nm_options_check(cli->options, &warning, &err) != NM_OK)
        return nm_cli_fail(&err);
    nm_cli_warn(warning);
    free(warning);
    const nm_train_config *train = nm_options_find(cli->options, "train");
    const nm_device_config *device = nm_options_find(cli->options, "device");
    job self = {.output = nm_options_find(cli->options, "output"),
                .config = *(const nm_baseline_config *)nm_options_find(cli->options, "baseline"),
                .task = {.type = cli->task,
                         .options = cli->options,
                         .config = nm_options_find(cli->options, "data"),
                         .seed = (uint64_t)train->seed,
                         .max_tokens = train->max_tokens}};
    self.config.threads = device->threads;
    if (self.output->json)
        self.results = json_array();
    nm_status status = run_all(&self, &err);
    NM_THEN(status, self.results ? print_json(&self, &err) : nm_file_flush(stdout, "standard output", &err));
    json_decref(self.results);
    self.task.type->close(&self.task);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

static const char *const common_options[] = {"output.json",
                                             "output.only",
                                             "output.bootstrap",
                                             "baseline.regularization",
                                             "baseline.max_features",
                                             "baseline.order",
                                             "run.profile",
                                             "data.folder",
                                             "data.train",
                                             "data.valid",
                                             "data.test",
                                             "device.threads",
                                             NULL};

const nm_command nm_command_baseline = {
    .name = "baseline",
    .summary = "score simple models on the data of a recipe",
    .usage = "RECIPE [--profile small] [--json] [--section.key value ...]",
    .details =
        "Reads the data as norma train does with the same recipe and options, fits simple models to the "
        "training data and prints their scores on the validation and test sets, with 95 % bootstrap "
        "intervals. A trained model should have a better score than these.\n\n"
        "classification: the majority class; multinomial logistic regression over unigrams and bigrams, "
        "weighted by tf-idf, with L2 regularization chosen on the validation texts.\n\n"
        "tagging: the most frequent tag of each word, with the suffix and shape of rare words; a "
        "hidden Markov model with the same word probabilities.\n\n"
        "lm: unigrams; an n-gram model with modified Kneser-Ney smoothing, of the order with the lowest "
        "perplexity on the validation text. The perplexity is that of the tokens that the Transformer "
        "predicts.\n\n"
        "image: the class whose mean image is nearest; multinomial logistic regression; both over the pixels "
        "of "
        "images that are scaled to 8 x 8.\n\n"
        "translation: the translation of the most similar source sentence of the training data (BM25).\n",
    .section = "output,baseline,run",
    .common = common_options,
    .options = baseline_options,
    .trains = true,
    .run = baseline_run,
};
