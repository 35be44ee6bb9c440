#include "experiment/experiment.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "experiment/run_match.h"
#include "experiment/slurm_array.h"
#include "probe/probe.h"
#include "train/option_check.h"
#include "train/train_options.h"

/* If FixNorm distinguishes the variants, those that do not set it are without it, although the recipe has
 * it. */
static void set_fixnorm(nm_variants *variants, const nm_options *options)
{
    static const char key[] = "model.fixnorm";
    NM_AUTO_FREE char *value = nm_options_row(options, key) ? nm_options_get(options, key) : NULL;
    if (value && !strcmp(value, "true") && nm_options_origin(options, key) != NM_ORIGIN_COMMAND)
        nm_variants_set_default(variants, key, "false");
}

static nm_status parse_variants(nm_experiment *c, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    NM_TRY(nm_run_queue_options(&c->queue, NULL, 1, &options, err));
    bool factorial = c->config.factorial && *c->config.factorial;
    nm_status status = NM_OK;
    if (factorial && c->config.norms)
        status = nm_fail(err, NM_USAGE, "compare.norms has no effect with compare.factorial");
    else if (factorial)
        status = nm_factorial_parse(&c->factorial, c->config.factorial, err);
    const char *norms = factorial ? c->factorial.norms : c->config.norms;
    c->queue.norm_option = nm_norm_option(options);
    if (!norms && c->config.tune)
        norms = "tuned=" NM_RECIPE_NORMS;
    else if (!norms) /* FixNorm exists for translation models only */
        norms = nm_options_row(options, "model.fixnorm") ? "layer,scale+fix,batch,power,rbn"
                                                         : "layer,scale,batch,power,rbn";
    NM_THEN(status, nm_variants_parse(&c->variants, norms, err));
    NM_THEN(status, nm_variants_check_names(&c->variants, options, err));
    if (status == NM_OK)
        set_fixnorm(&c->variants, options);
    return status;
}

/* Whether a setting norm.X.* applies to a variant depends on all its norms, including those that the recipe
 * sets. */
static nm_status expand_grid(nm_experiment *c, nm_error *err)
{
    nm_grid grid = {0};
    size_t n = 0;
    NM_AUTO_FREE nm_options **options = nm_allocate((c->variants.n + 1) * sizeof(nm_options *));
    nm_status status = NM_OK;
    for (size_t i = 0; i < c->config.n_grids && status == NM_OK; i++)
        status = nm_grid_parse(&grid, c->config.grids[i], err);
    if (status == NM_OK && c->factorial.rates)
        status = nm_grid_parse(&grid, c->factorial.rates, err);
    for (; n < c->variants.n && status == NM_OK; n++) {
        status = nm_run_queue_options(&c->queue, &c->variants.list[n], 1, &options[n], err);
        if (status != NM_OK)
            nm_error_prefix(err, "%.100s", c->variants.list[n].name);
    }
    NM_THEN(status, nm_variants_exclude(&c->variants, &c->queue.settings, options, err));
    NM_THEN(status, nm_grid_expand(&grid, &c->variants, options, &c->points, err));
    for (size_t i = 0; i < n; i++)
        nm_options_free(options[i]);
    nm_grid_release(&grid);
    return status;
}

/* Whether the names differ at most in '/' and '_'. */
static bool same_folder(const char *a, const char *b)
{
    while (*a && (*a == *b || (strchr("/_", *a) && *b && strchr("/_", *b)))) {
        a++;
        b++;
    }
    return *a == *b;
}

/* Two points with the same configuration would train the same model twice. texts: configurations of the
 * points up to i. */
static nm_status check_distinct(const nm_experiment *c, char *const *texts, size_t i, nm_error *err)
{
    const char *name = c->points.list[i].name;
    for (size_t k = 0; k < i; k++) {
        const char *other = c->points.list[k].name;
        if (!strcmp(name, other))
            return nm_fail(err, NM_USAGE, "norms: %.100s is listed twice", name);
        if (!strcmp(texts[i], texts[k]))
            return nm_fail(err, NM_USAGE,
                           "norms: %.100s and %.100s have the same configuration with this recipe", other,
                           name);
        if (same_folder(name, other))
            return nm_fail(err, NM_USAGE, "norms: %.100s and %.100s have the same run folder", other, name);
    }
    return NM_OK;
}

static nm_status check_seed(const nm_settings *settings, nm_error *err)
{
    for (size_t i = 0; i < settings->n; i++)
        if (!strcmp(settings->list[i].key, "train.seed"))
            return nm_fail(
                err, NM_USAGE,
                "train.seed has no effect: the runs of a variant have the seeds 1, 2, ..., N of --seeds N "
                "(compare.seeds)");
    return NM_OK;
}

/* The seeds of the runs are those of the comparison. */
static nm_status check_seeds(const nm_experiment *c, nm_error *err)
{
    NM_TRY(check_seed(&c->queue.settings, err));
    for (size_t i = 0; i < c->points.n; i++)
        NM_TRY(check_seed(&c->points.list[i].settings, err));
    return NM_OK;
}

/* Whether a run can write n checkpoints: at validations, every save_every updates, and at its end. Without
 * train.validate_every, it validates after epochs, whose length is not known without data. */
static bool can_write_checkpoints(const nm_train_config *train, int64_t n)
{
    const int64_t every = train->validate_every, save = train->save_every;
    if (!train->updates || !every)
        return true;
    n -= train->save_initial;
    for (int64_t update = 0; n > 0; n--) {
        if (update >= train->updates)
            return false;
        int64_t validation = (update / every + 1) * every,
                next = save ? (update / save + 1) * save : validation;
        update = next < validation ? next : validation;
    }
    return true;
}

static nm_status check_average(const nm_experiment *c, const nm_options *options, nm_error *err)
{
    int64_t average = c->config.measurement.average;
    if (can_write_checkpoints(nm_options_find(options, "train"), average))
        return NM_OK;
    return nm_fail(err, NM_USAGE,
                   "compare.average is %lld, but a run writes fewer checkpoints; see train.updates, "
                   "train.validate_every and train.save_every",
                   (long long)average);
}

static nm_status check_options(const nm_experiment *c, const nm_variant *point, const nm_options *options,
                               nm_error *err)
{
    nm_probe *probe = NULL;
    nm_status status = nm_train_options_check(c->queue.task, options, err);
    NM_THEN(status, nm_probe_create(&probe, options, err));
    nm_probe_free(probe);
    NM_THEN(status, check_average(c, options, err));
    return status == NM_OK ? NM_OK : nm_error_prefix(err, "%.100s", point->name);
}

/* Errors in the options of one point are reported before the others are trained. */
static nm_status check_points(const nm_experiment *c, nm_error *err)
{
    char **texts = nm_allocate((c->points.n + 1) * sizeof *texts);
    nm_status status = check_seeds(c, err);
    NM_AUTO(nm_options_release) nm_options *like = nm_options_create();
    nm_train_options_add(like, c->queue.task);
    for (size_t i = 0; i < c->points.n && status == NM_OK; i++) {
        const nm_variant *point = &c->points.list[i];
        nm_options *options;
        status = nm_run_queue_options(&c->queue, point, 1, &options, err);
        if (status != NM_OK)
            break;
        texts[i] = nm_configuration_text(options, like);
        status = check_distinct(c, texts, i, err);
        NM_THEN(status, check_options(c, point, options, err));
        nm_options_free(options);
    }
    nm_free_list(texts, c->points.n);
    return status;
}

/* Checkpoints to be averaged must be kept. */
static nm_status keep_checkpoints(nm_experiment *c, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    NM_TRY(nm_run_queue_options(&c->queue, NULL, 1, &options, err));
    const nm_train_config *train = nm_options_find(options, "train");
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)c->config.measurement.average);
    if (train->keep_last < c->config.measurement.average)
        nm_settings_add(&c->queue.settings, "train.keep_last", number);
    return NM_OK;
}

static bool by_slurm(const nm_experiment *c)
{
    return c->config.slurm && *c->config.slurm;
}

nm_status nm_experiment_load(nm_experiment *c, nm_error *err)
{
    NM_AUTO_FREE char *section = NULL;
    uint64_t data = 0;
    nm_status status = NM_OK;
    for (size_t i = 0; i < c->queue.n && status == NM_OK; i++) {
        nm_run_job *job = &c->queue.jobs[i];
        nm_options *options;
        status = nm_run_queue_options(&c->queue, job->variant, job->result.seed, &options, err);
        if (status != NM_OK)
            break;
        c->table.perplexity = nm_task_has_perplexity(c->queue.task, options);
        status = nm_run_match(options, job->folder, &job->continued, err);
        if (status == NM_MISMATCH && by_slurm(c)) {
            c->queue.mismatch = *err;
            status = NM_OK;
        }
        if (status == NM_OK)
            status =
                nm_run_key(job->key, c->queue.task, options, &c->config.measurement, &section, &data, err);
        NM_THEN(status, nm_run_check_initial_model(options, job->folder, err));
        nm_options_free(options);
        NM_THEN(status, nm_run_result_load(&job->result, job->folder, job->key, &c->config.measurement, err));
        job->state = job->result.measured ? NM_RUN_FINISHED : NM_RUN_WAITING;
    }
    return status;
}

nm_status nm_experiment_share_cores(nm_experiment *c, int64_t n, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    NM_TRY(nm_run_queue_options(&c->queue, &c->points.list[0], 1, &options, err));
    NM_AUTO_FREE char *text = nm_options_get(options, "device.threads");
    int64_t threads = atoll(text);
    if (by_slurm(c))
        c->queue.share = (nm_core_share){c->config.jobs ? c->config.jobs : n, threads};
    else
        c->queue.share = nm_core_share_of(n, c->config.jobs, threads, c->config.cores);
    return NM_OK;
}

nm_status nm_experiment_begin(nm_experiment *c, nm_error *err)
{
    NM_TRY(parse_variants(c, err));
    NM_TRY(expand_grid(c, err));
    NM_TRY(check_points(c, err));
    NM_TRY(keep_checkpoints(c, err));
    NM_TRY(nm_folder_create(c->folder, err));
    return nm_run_queue_lock(&c->queue, c->folder, err);
}

nm_status nm_experiment_plan(nm_experiment *c, nm_error *err)
{
    int64_t waiting = 0;
    NM_TRY(nm_experiment_begin(c, err));
    NM_TRY(nm_experiment_add_runs(c, err));
    NM_TRY(nm_experiment_load(c, err));
    NM_TRY(nm_experiment_save(c, err));
    for (size_t i = 0; i < c->queue.n; i++)
        waiting += c->queue.jobs[i].state == NM_RUN_WAITING;
    return nm_experiment_share_cores(c, waiting, err);
}

/* The exit codes of processes are lost if the caller of the library ignores SIGCHLD. */
static nm_status check_signals(nm_error *err)
{
    struct sigaction action;
    if (!sigaction(SIGCHLD, NULL, &action) &&
        (action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT))
        return nm_fail(err, NM_USAGE, "SIGCHLD is ignored: the exit codes of the runs would be lost");
    return NM_OK;
}

static void report_scored(const nm_experiment *c, nm_run_job *job)
{
    snprintf(job->last_line, sizeof job->last_line, "%s %.2f on the test set", job->result.title,
             job->result.value);
    if (c->queue.on_scored)
        c->queue.on_scored(c->queue.user, job);
}

/* The run is scored again after the training of all runs, and the error is then that of the comparison. */
static void warn_not_scored(const nm_experiment *c, nm_run_job *job, const nm_error *why)
{
    NM_AUTO_FREE char *text = nm_format("warning: %s, seed %lld is not scored: %s", job->variant->name,
                                        (long long)job->result.seed, why->text);
    job->score_failed = true;
    nm_run_queue_send_message(&c->queue, text);
}

/* Stores the result of the run that was scored during the training of others. */
static void collect_score(nm_experiment *c, bool wait)
{
    nm_error err;
    nm_run_job *job = nm_background_scoring_collect(&c->scoring, wait, &err);
    if (!job)
        return;
    if (job->result.measured)
        report_scored(c, job);
    else if (err.status != NM_INTERRUPTED)
        warn_not_scored(c, job, &err);
}

static bool can_be_scored(const nm_experiment *c, const nm_run_job *job)
{
    return job->state == NM_RUN_FINISHED && !job->result.exit_code && !job->result.measured &&
           !job->score_failed && (c->config.score_grid || !job->variant->point);
}

/* nm_run_queue.score_finished */
static bool score_finished(void *user)
{
    nm_experiment *c = user;
    nm_error err;
    nm_run_measurement measurement = c->config.measurement;
    measurement.threads = c->queue.share.threads;
    collect_score(c, false);
    for (size_t i = 0; i < c->queue.n && !c->scoring.job; i++) {
        nm_run_job *job = &c->queue.jobs[i];
        if (can_be_scored(c, job) &&
            nm_background_scoring_start(&c->scoring, &c->queue, job, &measurement, &err) != NM_OK)
            warn_not_scored(c, job, &err);
    }
    return c->scoring.job != NULL;
}

/* Whether run i waits until its grid point is selected. */
static bool is_held(const nm_experiment *c, size_t i)
{
    const nm_run_job *job = &c->queue.jobs[i];
    return c->config.tuning_seeds && job->variant->point && job->result.seed > c->config.tuning_seeds &&
           !c->table.summaries[i / (size_t)c->config.seeds].selected;
}

static nm_status train_waiting(nm_experiment *c, nm_error *err)
{
    nm_status status = by_slurm(c) ? nm_slurm_array_train(&c->queue, c->folder, c->config.slurm, err)
                                   : nm_run_queue_train(&c->queue, err);
    collect_score(c, true);
    return status;
}

/* A run without a log was not trained. A run whose log cannot be read is shown as failed, and
 * nm_experiment_check returns its error after the table has been printed. */
static void read_logs(nm_experiment *c)
{
    for (size_t i = 0; i < c->queue.n; i++) {
        nm_run_job *job = &c->queue.jobs[i];
        nm_error err, ignored;
        if (is_held(c, i) || job->result.exit_code ||
            nm_run_result_read_log(&job->result, job->folder, &err) == NM_OK)
            continue;
        bool found;
        if (!c->unreadable.status &&
            (nm_file_find_in(job->folder, "log.jsonl", &found, &ignored) != NM_OK || found))
            c->unreadable = err;
        nm_run_result_fail(&job->result, &err);
    }
}

/* Of the grid points, by the seeds that all of them have; then the other seeds belong to the best ones only.
 */
static void select_points(nm_experiment *c)
{
    size_t seeds = (size_t)c->config.seeds, tuning = (size_t)c->config.tuning_seeds;
    for (size_t g = 0; g < c->table.n; g++)
        if (c->table.summaries[g].selected)
            return; /* before the training of the other seeds */
    tuning = tuning && tuning < seeds ? tuning : seeds;
    for (size_t g = 0; g < c->table.n; g++)
        c->table.summaries[g].n = c->table.summaries[g].variant->point ? tuning : seeds;
    nm_comparison_table_summarize_logs(&c->table);
    nm_comparison_table_select(&c->table);
    for (size_t g = 0; g < c->table.n; g++)
        if (c->table.summaries[g].selected)
            c->table.summaries[g].n = seeds;
}

void nm_experiment_select(nm_experiment *c)
{
    read_logs(c);
    select_points(c);
    read_logs(c); /* of the runs that are not held any more */
    nm_comparison_table_summarize_logs(&c->table);
}

nm_status nm_experiment_train(nm_experiment *c, nm_error *err)
{
    NM_TRY(check_signals(err));
    c->queue.score_finished = score_finished;
    c->queue.scorer = c;
    bool *held = nm_allocate(c->queue.n + 1), any = false;
    for (size_t i = 0; i < c->queue.n; i++) {
        nm_run_job *job = &c->queue.jobs[i];
        held[i] = job->state == NM_RUN_WAITING && c->table.n && is_held(c, i);
        any = any || held[i];
        if (held[i]) {
            job->state = NM_RUN_FINISHED;
            snprintf(job->last_line, sizeof job->last_line, "not needed unless its grid point is selected");
        }
    }
    nm_status status = train_waiting(c, err);
    if (any && status == NM_OK) {
        read_logs(c);
        select_points(c);
    }
    for (size_t i = 0; any && i < c->queue.n; i++)
        if (held[i] && !is_held(c, i)) {
            c->queue.jobs[i].state = NM_RUN_WAITING;
            c->queue.jobs[i].last_line[0] = 0;
        }
    free(held);
    return any && status == NM_OK ? train_waiting(c, err) : status;
}

/* Whether run i is in a table with scores. */
static bool needs_score(const nm_experiment *c, size_t i)
{
    const nm_variant_summary *summary = &c->table.summaries[i / (size_t)c->config.seeds];
    return (summary->selected || c->config.score_grid) && !is_held(c, i) &&
           !c->queue.jobs[i].result.exit_code;
}

size_t nm_experiment_unscored(const nm_experiment *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->queue.n; i++)
        n += needs_score(c, i) && !c->queue.jobs[i].result.measured;
    return n;
}

nm_status nm_experiment_score_run(nm_experiment *c, nm_run_job *job, nm_error *err)
{
    nm_options *options;
    double begin = nm_clock();
    nm_status status = nm_check_stop(c->queue.stop, err);
    if (c->queue.on_tick)
        c->queue.on_tick(c->queue.user, &c->queue);
    NM_THEN(status, nm_run_queue_options(&c->queue, job->variant, job->result.seed, &options, err));
    NM_THEN(status, nm_run_result_measure(&job->result, job->folder, c->queue.task, options,
                                          &c->config.measurement, c->queue.stop, err));
    if (status == NM_INTERRUPTED)
        return nm_fail(err, NM_INTERRUPTED, "interrupted; the same command continues the runs");
    NM_TRY(status);
    NM_TRY(nm_run_result_save(&job->result, job->folder, job->key, &c->config.measurement, err));
    job->score_seconds = nm_clock() - begin;
    report_scored(c, job);
    return NM_OK;
}

nm_status nm_experiment_score(nm_experiment *c, nm_error *err)
{
    for (size_t i = 0; i < c->queue.n; i++)
        if (needs_score(c, i) && !c->queue.jobs[i].result.measured)
            NM_TRY(nm_experiment_score_run(c, &c->queue.jobs[i], err));
    nm_experiment_test(c);
    for (size_t i = 0; i < c->queue.n; i++) /* saved again with the p values, which need all scores */
        if (needs_score(c, i) && c->queue.jobs[i].result.measured)
            NM_TRY(nm_run_result_save(&c->queue.jobs[i].result, c->queue.jobs[i].folder, c->queue.jobs[i].key,
                                      &c->config.measurement, err));
    return NM_OK;
}

void nm_experiment_test(nm_experiment *c)
{
    nm_comparison_table_test(&c->table);
}

nm_status nm_experiment_check(const nm_experiment *c, nm_error *err)
{
    if (c->unreadable.status)
        return nm_fail(err, c->unreadable.status, "%s", c->unreadable.text);
    for (size_t i = 0; i < c->queue.n; i++)
        if (needs_score(c, i) && c->queue.jobs[i].result.measured)
            return NM_OK;
    const nm_run_result *first = &c->queue.jobs[0].result;
    bool known = first->exit_code >= NM_USAGE && first->exit_code <= NM_INTERRUPTED;
    return nm_fail(err, known ? (nm_status)first->exit_code : NM_IO,
                   "no run finished; the first one failed: %s", first->failure);
}

void nm_experiment_release(nm_experiment *c)
{
    nm_comparison_table_release(&c->table);
    nm_factorial_release(&c->factorial);
    nm_run_journal_close(&c->journal);
    free(c->plan.seconds);
    nm_run_queue_release(&c->queue);
    nm_variants_release(&c->points);
    nm_variants_release(&c->variants);
    free(c->folder);
    *c = (nm_experiment){0};
}
