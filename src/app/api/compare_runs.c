#include "norma/compare.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "api/inference.h"
#include "api/recipe.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/option_value.h"
#include "api/comparison_options.h"
#include "experiment/comparison_plan.h"
#include "experiment/experiment.h"

struct nm_comparison {
    nm_options *options; /* sections [compare] and [run] */
    const nm_comparison_options *config;
    char *program, *recipe;
    const char **grids;
    nm_experiment experiment;
    nm_comparison_events events;
    bool results_only;
    bool selected, complete; /* the table of the grid exists; the table of the scores exists */
    char *text;              /* result of the last call of nm_comparison_text or nm_comparison_grid_text */
    nm_stop stop;
    volatile sig_atomic_t suspend;
};

bool nm_comparison_scores_grid(const nm_comparison *self)
{
    return self && self->experiment.config.score_grid;
}

/* While a run is not finished, its test results are those of an earlier comparison. */
static nm_compared_run describe_run(const nm_run_job *job, const char *line)
{
    nm_compared_run run = nm_run_result_describe(&job->result);
    run.folder = job->folder;
    run.state = job->state;
    run.line = line;
    return run;
}

size_t nm_comparison_n_runs(const nm_comparison *self)
{
    return self ? self->experiment.queue.n : 0;
}

bool nm_comparison_get_run(nm_comparison *self, size_t index, nm_compared_run *out)
{
    if (index >= nm_comparison_n_runs(self) || !out)
        return false;
    nm_run_job *job = &self->experiment.queue.jobs[index];
    if (job->state == NM_RUN_RUNNING)
        nm_last_line(job->log_path, job->last_line, sizeof job->last_line);
    *out = describe_run(job, job->last_line);
    return true;
}

size_t nm_comparison_n_variants(const nm_comparison *self)
{
    return self && self->selected ? self->experiment.table.n : 0;
}

bool nm_comparison_get_variant(const nm_comparison *self, size_t index, nm_compared_variant *out)
{
    if (index >= nm_comparison_n_variants(self) || !out)
        return false;
    *out = nm_variant_summary_describe(&self->experiment.table.summaries[index]);
    return true;
}

bool nm_comparison_get_effect(const nm_comparison *self, size_t index, nm_factor_effect *out)
{
    if (!self || !self->complete || !out || index >= self->experiment.factorial.n_effects)
        return false;
    *out = self->experiment.factorial.effects[index];
    return true;
}

const char *nm_comparison_folder(const nm_comparison *self)
{
    return self ? self->experiment.folder : NULL;
}

int64_t nm_comparison_parallel(const nm_comparison *self)
{
    return self ? self->experiment.queue.share.jobs : 0;
}

static const char *const formats[] = {NM_TABLE_FORMATS(NM_CHOICE_NAME)};

static bool find_format(const nm_comparison *self, const char *name, nm_table_format *format)
{
    *format = self->config->format;
    for (int i = 0; name && i < NM_TABLE_FORMATS_COUNT; i++)
        if (!strcmp(name, formats[i])) {
            *format = (nm_table_format)i;
            return true;
        }
    return !name;
}

static const char *table_text(nm_comparison *self, const char *format_name, bool grid)
{
    nm_table_format format;
    if (!self || !(grid ? self->selected : self->complete) || !find_format(self, format_name, &format))
        return NULL;
    free(self->text);
    size_t bytes;
    FILE *out = nm_text_stream_open(&self->text, &bytes);
    if (grid)
        nm_comparison_table_print_grid(&self->experiment.table, format, out);
    else
        nm_comparison_table_print(&self->experiment.table, format, self->config->samples, out);
    nm_text_stream_close(out);
    return self->text;
}

const char *nm_comparison_text(nm_comparison *self, const char *format)
{
    return table_text(self, format, false);
}

const char *nm_comparison_grid_text(nm_comparison *self, const char *format)
{
    return table_text(self, format, true);
}

static void on_tick(void *user, const nm_run_queue *queue)
{
    nm_comparison *self = user;
    (void)queue;
    if (self->events.progress)
        self->events.progress(self->events.user, self);
}

static void on_started(void *user, const nm_run_job *job)
{
    nm_comparison *self = user;
    nm_comparison_journal_add(&self->experiment, job);
}

static void on_finished(void *user, const nm_run_job *job)
{
    nm_comparison *self = user;
    nm_comparison_journal_add(&self->experiment, job);
    const nm_compared_run run = describe_run(job, job->last_line);
    if (self->events.finished)
        self->events.finished(self->events.user, &run);
}

static void on_scored(void *user, const nm_run_job *job)
{
    nm_comparison *self = user;
    nm_comparison_journal_add(&self->experiment, job);
    const nm_compared_run run = describe_run(job, job->last_line);
    if (self->events.scored)
        self->events.scored(self->events.user, &run);
}

static void on_message(void *user, const char *text)
{
    const nm_comparison *self = user;
    if (self->events.message)
        self->events.message(self->events.user, text);
}

/* The weights of two variants are identical if the settings in which they differ have no effect in this
 * recipe. */
static void warn_same_weights(const nm_comparison *self)
{
    for (size_t i = 0; i < self->experiment.queue.n; i++) {
        const nm_run_result *run = &self->experiment.queue.jobs[i].result;
        if (!run->same_weights)
            continue;
        NM_AUTO_FREE char *line =
            nm_format("warning: %s and %s, seed %lld: the trained weights are identical",
                      run->same_weights->variant, run->variant, (long long)run->seed);
        on_message((void *)self, line);
    }
}

static bool sets_precision(const nm_variant *variant)
{
    for (size_t i = 0; i < variant->settings.n; i++)
        if (!strcmp(variant->settings.list[i].key, "device.precision"))
            return true;
    return false;
}

/* With device.precision = auto, runs on different CPUs may have different precisions. */
static void warn_precisions(const nm_comparison *self)
{
    const nm_run_job *first = NULL;
    for (size_t i = 0; i < self->experiment.queue.n; i++) {
        const nm_run_job *job = &self->experiment.queue.jobs[i];
        if (job->result.exit_code || sets_precision(job->variant))
            continue;
        first = first ? first : job;
        if (job->result.bf16 == first->result.bf16)
            continue;
        NM_AUTO_FREE char *line =
            nm_format("warning: %s was trained in %s and %s in %s: their CPUs differ, and "
                      "device.precision is auto; set it to compare models of the same precision",
                      first->folder, first->result.bf16 ? "bf16" : "float", job->folder,
                      job->result.bf16 ? "bf16" : "float");
        on_message((void *)self, line);
        return;
    }
}

static const char sections[] = "compare,run";

static char *default_folder(const char *recipe, const char *profile)
{
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe;
    return nm_format("runs/%.*s%s%s-compare", (int)strcspn(name, "."), name, *profile ? "-" : "", profile);
}

/* Sets an option: those of [compare] apply to the comparison, those of [run] to the comparison and its runs,
 * all others to the runs. */
static nm_status set_option(nm_comparison *self, const char *name, const char *value, nm_error *err)
{
    nm_status status = NM_OK;
    NM_AUTO_FREE char *path = nm_option_path(self->options, sections, name);
    bool compare = !strncmp(path, "compare.", 8);
    if (compare || !strncmp(path, "run.", 4))
        status = nm_options_set(self->options, path, value, NM_ORIGIN_COMMAND, err);
    if (!compare)
        nm_settings_add(&self->experiment.queue.settings, path, value);
    return status;
}

static nm_status set_options(nm_comparison *self, const char *const *options, nm_error *err)
{
    size_t n = 0;
    while (options && options[n])
        n++;
    if (n % 2)
        return nm_fail(err, NM_USAGE, "option %s has no value", options[n - 1]);
    self->grids = nm_allocate((n / 2 + 1) * sizeof *self->grids);
    for (size_t i = 0; i < n; i += 2) {
        NM_TRY(set_option(self, options[i], options[i + 1], err));
        if (!strcmp(options[i], "compare.grid") || !strcmp(options[i], "grid"))
            self->grids[self->experiment.config.n_grids++] = options[i + 1];
    }
    return NM_OK;
}

static void configure(nm_comparison *self)
{
    const nm_comparison_options *config = self->config;
    const nm_compared_recipe *run = nm_options_find(self->options, "run");
    nm_experiment *experiment = &self->experiment;
    bool norms_given = nm_options_origin(self->options, "compare.norms") != NM_ORIGIN_DEFAULT;
    experiment->config = (nm_experiment_config){
        .norms = norms_given ? config->norms : NULL,
        .grids = self->grids,
        .n_grids = experiment->config.n_grids,
        .factorial = config->factorial,
        .tuning_seeds = *config->factorial && !config->tuning_seeds ? 1 : config->tuning_seeds,
        .seeds = config->seeds,
        .jobs = config->jobs,
        .cores = nm_machine_cpus(),
        .slurm = config->slurm,
        .measurement = {.tid_batches = config->tid_batches, .average = config->average},
        .margin = config->margin,
        .score_grid = config->score_grid,
        .tune = *run->tune != 0};
    experiment->folder =
        *config->folder ? nm_duplicate(config->folder) : default_folder(self->recipe, run->profile);
    nm_run_queue *queue = &experiment->queue;
    queue->program = self->program;
    queue->launch = config->launch;
    queue->recipe = self->recipe;
    queue->profile = run->profile;
    queue->add_options = nm_recipe_options_add;
}

static nm_comparison *create(const nm_comparison_events *events)
{
    nm_comparison *self = nm_allocate(sizeof *self);
    self->options = nm_options_create();
    nm_comparison_options_add(self->options);
    self->config = nm_options_find(self->options, "compare");
    if (events)
        self->events = *events;
    nm_run_queue *queue = &self->experiment.queue;
    queue->stop = &self->stop;
    queue->suspend = &self->suspend;
    queue->on_started = on_started;
    queue->on_finished = on_finished;
    queue->on_scored = on_scored;
    queue->on_tick = on_tick;
    queue->on_message = on_message;
    queue->user = self;
    return self;
}

static nm_status open_comparison(nm_comparison *self, const char *program, const char *recipe,
                                 const char *const *options, nm_error *err)
{
    if (!recipe)
        return nm_fail(err, NM_USAGE, "nm_comparison_open: recipe is NULL");
    if (nm_recipe_is_text(recipe))
        return nm_fail(err, NM_USAGE, "nm_comparison_open: recipe is the path of a file, not a text");
    self->program = nm_duplicate(program ? program : "norma");
    self->recipe = nm_duplicate(recipe);
    NM_TRY(set_options(self, options, err));
    NM_TRY(nm_recipe_find_task(recipe, options, &self->experiment.queue.task, err));
    if (*self->config->results)
        return nm_fail(err, NM_USAGE, "compare.results has no effect: results are opened without a recipe");
    configure(self);
    NM_TRY(nm_experiment_plan(&self->experiment, err));
    return nm_comparison_journal_open(&self->experiment, err);
}

nm_status nm_comparison_open(nm_comparison **comparison, const char *program, const char *recipe,
                             const char *const *options, const nm_comparison_events *events, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!comparison)
        return nm_fail(err, NM_USAGE, "nm_comparison_open: comparison is NULL");
    nm_comparison *self = create(events);
    nm_status status = open_comparison(self, program, recipe, options, err);
    NM_RETURN_NEW(status, comparison, self, nm_comparison_close);
}

/* NM_USAGE for options that have no effect on saved results. A missing value is reported by
 * nm_settings_apply. */
static nm_status check_results_options(const nm_comparison *self, const char *const *options, nm_error *err)
{
    static const char *const used[] = {"compare.format", "compare.margin", "compare.samples"};
    for (size_t i = 0; options && options[i] && options[i + 1]; i += 2) {
        NM_AUTO_FREE char *path = nm_option_path(self->options, sections, options[i]);
        bool known = false;
        for (size_t k = 0; k < sizeof used / sizeof *used; k++)
            known = known || !strcmp(path, used[k]);
        NM_TRY(known
                   ? NM_OK
                   : nm_fail(err, NM_USAGE, "--%s has no effect with --results, which trains nothing", path));
    }
    return NM_OK;
}

nm_status nm_comparison_open_results(nm_comparison **comparison, const char *folder,
                                     const char *const *options, const nm_comparison_events *events,
                                     nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!comparison || !folder)
        return nm_fail(err, NM_USAGE, "nm_comparison_open_results: comparison or folder is NULL");
    if (!*folder) /* "" would be the root folder */
        return nm_fail(err, NM_USAGE, "nm_comparison_open_results: folder is empty");
    nm_comparison *self = create(events);
    self->results_only = true;
    self->experiment.folder = nm_duplicate(folder);
    nm_status status = check_results_options(self, options, err);
    NM_THEN(status, nm_settings_apply(self->options, sections, options, err));
    self->experiment.config.margin = self->config->margin;
    NM_THEN(status, nm_experiment_open(&self->experiment, err));
    NM_RETURN_NEW(status, comparison, self, nm_comparison_close);
}

nm_status nm_comparison_plan(nm_comparison *self, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || self->results_only || self->experiment.plan.seconds)
        return nm_fail(err, NM_USAGE, "nm_comparison_plan: comparison is NULL, has no recipe, or is planned");
    return nm_comparison_plan_make(&self->experiment, &self->stop, true, err);
}

const char *nm_comparison_plan_text(nm_comparison *self)
{
    if (!self || !self->experiment.plan.seconds)
        return NULL;
    free(self->text);
    return self->text = nm_comparison_plan_markdown(&self->experiment);
}

/* What will be started and how long it takes. */
static nm_status announce(nm_comparison *self, nm_error *err)
{
    nm_experiment *c = &self->experiment;
    size_t waiting = 0;
    for (size_t i = 0; i < c->queue.n; i++)
        waiting += c->queue.jobs[i].state == NM_RUN_WAITING;
    if (c->config.slurm && *c->config.slurm) /* it reports its submission */
        return NM_OK;
    if (waiting && !c->plan.seconds)
        NM_TRY(nm_comparison_plan_make(c, &self->stop, false, err));
    NM_AUTO_FREE char *line = waiting ? nm_comparison_plan_line(c) : NULL;
    if (line)
        on_message(self, line);
    return NM_OK;
}

static nm_status train_and_score(nm_comparison *self, nm_error *err)
{
    nm_experiment *experiment = &self->experiment;
    if (!self->results_only)
        NM_TRY(announce(self, err));
    if (!self->results_only)
        NM_TRY(nm_experiment_train(experiment, err));
    nm_experiment_select(experiment);
    self->selected = true;
    if (self->events.trained)
        self->events.trained(self->events.user, self,
                             self->results_only ? 0 : nm_experiment_unscored(experiment));
    if (self->results_only)
        nm_experiment_test(experiment);
    else
        NM_TRY(nm_experiment_score(experiment, err));
    self->complete = true;
    warn_same_weights(self);
    warn_precisions(self);
    return nm_experiment_check(experiment, err);
}

nm_status nm_comparison_run(nm_comparison *self, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self)
        return nm_fail(err, NM_USAGE, "nm_comparison_run: comparison is NULL");
    if (self->selected)
        return nm_fail(err, NM_USAGE, "nm_comparison_run: the comparison has been run; open it again");
    return train_and_score(self, err);
}

void nm_comparison_stop(nm_comparison *self)
{
    if (self)
        self->stop.requested = 1;
}

void nm_comparison_suspend(nm_comparison *self)
{
    if (self)
        self->suspend = 1;
}

void nm_comparison_close(nm_comparison *self)
{
    if (!self)
        return;
    nm_experiment_release(&self->experiment);
    nm_options_free(self->options);
    NM_FREE(self->grids, self->program, self->recipe, self->text, self);
}
