#include "experiment/comparison_plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "experiment/run_plan.h"
#include "experiment/study_trainer.h"
#include "train/train_options.h"

typedef struct measured { /* a variant, or a point of a grid */
    int64_t updates;      /* of a run; 0: unknown */
    double seconds;       /* of a run with its test score; NaN: not measured */
    bool waits;           /* a run has no result */
} measured;

static size_t point_of(const nm_experiment *c, size_t job)
{
    return job / (size_t)c->config.seeds;
}

static nm_planned_run row_of(const nm_experiment *c, const nm_run_job *job)
{
    nm_planned_run row;
    const char *slash = strrchr(job->folder, '/');
    size_t i = (size_t)(job - c->queue.jobs);
    nm_record_clear(nm_planned_run_fields(), &row);
    row.type = "run";
    row.phase = "compare";
    row.variant = job->result.variant;
    row.seed = job->result.seed;
    row.folder = slash ? slash + 1 : job->folder;
    row.seconds = c->plan.seconds ? c->plan.seconds[point_of(c, i)] : NAN;
    row.state = job->state == NM_RUN_RUNNING   ? "running"
                : job->state == NM_RUN_WAITING ? "planned"
                : job->result.exit_code        ? "failed"
                                               : "finished";
    return row;
}

void nm_comparison_journal_add(nm_experiment *c, const nm_run_job *job)
{
    nm_error ignored; /* the results are in the run folders */
    nm_planned_run row = row_of(c, job);
    if (job->state == NM_RUN_FINISHED) {
        row.took = job->seconds > 0 ? job->seconds + job->score_seconds : NAN;
        row.score_seconds = job->score_seconds > 0 ? job->score_seconds : NAN;
        row.value = job->result.measured ? job->result.value : NAN;
        row.note = job->result.exit_code ? job->result.failure : NULL;
    }
    nm_run_journal_add_run(&c->journal, &row, &ignored);
}

nm_status nm_comparison_journal_open(nm_experiment *c, nm_error *err)
{
    NM_TRY(nm_run_journal_open(&c->journal, c->folder, NULL, err));
    for (size_t i = 0; i < c->queue.n; i++) {
        nm_planned_run row = row_of(c, &c->queue.jobs[i]);
        const char *state = nm_run_journal_state(&c->journal, &row);
        if (!state || strcmp(state, row.state))
            NM_TRY(nm_run_journal_add_run(&c->journal, &row, err));
    }
    return NM_OK;
}

static bool changes_length(const nm_variant *variant)
{
    for (size_t i = 0; i < variant->settings.n; i++)
        if (!strncmp(variant->settings.list[i].key, "train.", 6) ||
            !strncmp(variant->settings.list[i].key, "data.", 5))
            return true;
    return false;
}

static nm_status find_lengths(const nm_experiment *c, measured *points, nm_error *err)
{
    int64_t common = -1;
    for (size_t i = 0; i < c->queue.n; i++)
        points[point_of(c, i)].waits |= c->queue.jobs[i].state == NM_RUN_WAITING;
    for (size_t p = 0; p < c->points.n; p++) {
        const nm_variant *point = &c->points.list[p];
        nm_options *options;
        if (common < 0 || changes_length(point)) {
            NM_TRY(nm_run_queue_options(&c->queue, point, 1, &options, err));
            nm_status status = nm_run_planned_updates(c->queue.task, options, &points[p].updates, err);
            nm_options_free(options);
            NM_TRY(status);
            common = common < 0 ? points[p].updates : common;
        } else {
            points[p].updates = common;
        }
        points[p].seconds = NAN;
    }
    return NM_OK;
}

static void on_started(void *user, nm_trial *trial)
{
    nm_experiment *c = user;
    trial->row.state = "running";
    nm_run_journal_add_run(&c->journal, &trial->row, NM_IGNORED);
}

static nm_status on_finished(void *user, nm_trial *trial, nm_error *err)
{
    nm_experiment *c = user;
    if (!strcmp(trial->row.state, "failed")) {
        NM_AUTO_FREE char *text =
            nm_format("warning: %s cannot be trained: %s", trial->row.variant, trial->row.note);
        nm_run_queue_send_message(&c->queue, text);
    }
    return nm_run_journal_add_run(&c->journal, &trial->row, err);
}

static nm_trial *new_trial(const nm_experiment *c, size_t p, char *folder)
{
    nm_trial *trial = nm_allocate(sizeof *trial);
    nm_record_clear(nm_planned_run_fields(), &trial->row);
    for (char *at = folder + strlen("speed/"); *at; at++)
        *at = *at == '/' ? '_' : *at;
    trial->variant = p;
    trial->row.type = "run";
    trial->row.phase = "speed";
    trial->row.variant = c->points.list[p].name;
    trial->row.seed = 1;
    trial->row.updates = NM_SPEED_UPDATES;
    trial->row.folder = folder;
    trial->row.state = "planned";
    return trial;
}

/* Of a whole run: start and end of the process, updates, validations, test score. */
static nm_status find_seconds(const nm_experiment *c, const nm_trial *trial, measured *point, nm_error *err)
{
    const nm_planned_run *row = &trial->row;
    nm_run_result result = {0};
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    if (strcmp(row->state, "finished"))
        return NM_OK;
    NM_AUTO_FREE char *folder = nm_path_join(c->folder, row->folder);
    NM_TRY(nm_run_result_read_log(&result, folder, err));
    NM_TRY(nm_run_queue_options(&c->queue, &c->points.list[trial->variant], 1, &options, err));
    const nm_train_config *train = nm_options_find(options, "train");
    double validation = result.validation_seconds > 0 ? result.validation_seconds : 0,
           scoring = isfinite(row->score_seconds) ? row->score_seconds : 0,
           start = row->took - scoring - NM_SPEED_UPDATES * result.update_seconds - 2 * validation,
           validations = train->validate_every ? floor((double)point->updates / (double)train->validate_every)
                                               : fmax(1, (double)train->epochs),
           training = (double)point->updates * result.update_seconds + validations * validation;
    if (train->seconds > 0)
        training = point->updates ? fmin(training, train->seconds) : train->seconds;
    point->seconds = point->updates || train->seconds > 0 ? fmax(0, start) + training + scoring : NAN;
    return NM_OK;
}

static bool differ_in_rate(const nm_variant *a, const nm_variant *b)
{
    bool same = a->origin == b->origin && a->settings.n == b->settings.n;
    for (size_t i = 0; same && i < a->settings.n; i++) {
        const nm_setting *x = &a->settings.list[i], *y = &b->settings.list[i];
        same = !strcmp(x->key, y->key) && (!strcmp(x->key, "schedule.lr") || !strcmp(x->value, y->value));
    }
    return same;
}

/* The first point that differs from p in the learning rate only, and so has the same speed; or p. */
static size_t point_of_speed(const nm_experiment *c, const measured *points, size_t p)
{
    size_t first = 0;
    while (first < p && !(points[first].waits && differ_in_rate(&c->points.list[first], &c->points.list[p])))
        first++;
    return first;
}

static bool is_tried(const nm_experiment *c, const measured *points, size_t p)
{
    return points[p].waits && point_of_speed(c, points, p) == p;
}

/* Trains NM_SPEED_UPDATES updates of each point that has runs without a result; of points that differ in the
 * learning rate only, the first. */
static nm_status measure(nm_experiment *c, nm_stop *stop, measured *points, nm_error *err)
{
    NM_AUTO_FREE nm_trial **trials = nm_allocate((c->points.n + 1) * sizeof *trials),
                          **waiting = nm_allocate((c->points.n + 1) * sizeof *waiting);
    NM_AUTO_FREE char **folders = nm_allocate((c->points.n + 1) * sizeof *folders);
    const nm_run_queue saved = c->queue;
    const nm_experiment_config config = c->config;
    NM_AUTO(nm_settings_release) nm_settings extra = {0};
    nm_options *options;
    nm_study_trainer trainer = {.experiment = c, .stop = stop, .extra = &extra};
    const nm_study_runner runner = nm_study_trainer_runner(&trainer);
    size_t n = 0, n_waiting = 0;
    nm_status status = nm_run_queue_options(&c->queue, &c->points.list[0], 1, &options, err);
    if (status == NM_OK)
        nm_study_set_equal_lengths(&extra, options);
    if (status == NM_OK)
        nm_options_free(options);
    for (size_t p = 0; p < c->points.n && status == NM_OK; p++) {
        if (!is_tried(c, points, p))
            continue;
        folders[n] = nm_format("speed/%s-1", c->points.list[p].name);
        trials[n] = new_trial(c, p, folders[n]);
        if (!nm_run_journal_find(&c->journal, &trials[n]->row))
            waiting[n_waiting++] = trials[n];
        n++;
    }
    if (n_waiting && status == NM_OK) {
        c->queue.jobs = NULL; /* those of the comparison come back below */
        c->queue.n = c->queue.capacity = 0;
        c->config.measurement.average = 0; /* of checkpoints that these runs do not have */
        status = runner.train(&trainer, waiting, n_waiting, INFINITY, on_started, on_finished, c, err);
        c->queue = saved;
        c->config = config;
    }
    for (size_t i = 0; i < n; i++) {
        NM_THEN(status, find_seconds(c, trials[i], &points[trials[i]->variant], err));
        NM_FREE(trials[i], folders[i]);
    }
    for (size_t p = 0; p < c->points.n; p++)
        points[p].seconds = points[point_of_speed(c, points, p)].seconds;
    nm_study_trainer_release(&trainer);
    return status;
}

static void add_part(nm_run_plan *plan, const char *phase, int64_t runs, int64_t updates, double seconds)
{
    if (runs)
        plan->parts[plan->n++] = (nm_plan_part){"part", phase, runs, updates, seconds};
}

/* Runs without a result in one of the two parts: all points with the first seeds, then the best point of each
 * variant, for which the first one stands. */
static void plan_part(nm_experiment *c, const measured *points, bool tuning)
{
    int64_t runs = 0, updates = 0, tuned = c->config.tuning_seeds;
    NM_AUTO_FREE double *seconds = nm_allocate((c->queue.n + 1) * sizeof *seconds);
    for (size_t i = 0; i < c->queue.n; i++) {
        const nm_run_job *job = &c->queue.jobs[i];
        size_t p = point_of(c, i);
        const nm_variant *point = &c->points.list[p];
        bool grid = tuned && point->point, first = !p || c->points.list[p - 1].origin != point->origin,
             mine = grid && job->result.seed <= tuned ? tuning : !tuning && (!grid || first);
        if (job->state != NM_RUN_WAITING || !mine)
            continue;
        seconds[runs++] = points[p].seconds;
        updates = points[p].updates > updates ? points[p].updates : updates;
    }
    double all = nm_plan_makespan(seconds, (size_t)runs, c->queue.share.jobs);
    for (int64_t i = 0; i < runs; i++)
        all = isfinite(seconds[i]) ? all : NAN;
    add_part(&c->plan, tuning ? "grid" : "compare", runs, updates, all);
}

nm_status nm_comparison_plan_make(nm_experiment *c, nm_stop *stop, bool always, nm_error *err)
{
    nm_run_plan *plan = &c->plan;
    NM_AUTO_FREE measured *points = nm_allocate((c->points.n + 1) * sizeof *points);
    double begun = nm_clock(), all = 0, tried = 0;
    nm_status status = find_lengths(c, points, err);
    for (size_t i = 0; i < c->queue.n; i++)
        all += c->queue.jobs[i].state == NM_RUN_WAITING ? (double)points[point_of(c, i)].updates : 0;
    for (size_t p = 0; p < c->points.n; p++)
        tried += is_tried(c, points, p) * NM_SPEED_UPDATES;
    bool slurm = c->config.slurm && *c->config.slurm, measures = always || (!slurm && all >= 50 * tried);
    if (status == NM_OK && measures && tried > 0)
        status = measure(c, stop, points, err);
    if (status == NM_OK && measures)
        add_part(plan, "speed", (int64_t)tried / NM_SPEED_UPDATES, NM_SPEED_UPDATES, nm_clock() - begun);
    if (status == NM_OK) {
        plan_part(c, points, true);
        plan_part(c, points, false);
        plan->seconds = nm_allocate((c->points.n + 1) * sizeof *plan->seconds);
        for (size_t p = 0; p < c->points.n; p++)
            plan->seconds[p] = points[p].seconds;
    }
    for (size_t i = 0; i < plan->n && status == NM_OK; i++)
        status = nm_run_journal_add(&c->journal, nm_plan_part_fields(), &plan->parts[i], err);
    return status;
}

char *nm_comparison_plan_line(const nm_experiment *c)
{
    int64_t runs = 0, updates = 0;
    double seconds = 0;
    for (size_t i = 0; i < c->plan.n; i++) {
        const nm_plan_part *part = &c->plan.parts[i];
        if (!strcmp(part->phase, "speed"))
            continue;
        runs += part->runs;
        updates = part->updates > updates ? part->updates : updates;
        seconds += part->seconds;
    }
    char *text = nm_format("%lld run%s to train", (long long)runs, runs == 1 ? "" : "s");
    if (updates)
        nm_format_append(&text, ", %lld updates each", (long long)updates);
    nm_format_append(&text, ", %lld at a time", (long long)c->queue.share.jobs);
    if (runs && isfinite(seconds)) {
        NM_AUTO_FREE char *time = nm_plan_duration(seconds);
        nm_format_append(&text, ": about %s", time);
    }
    return text;
}

char *nm_comparison_plan_markdown(const nm_experiment *c)
{
    char *text, *line = nm_comparison_plan_line(c);
    size_t bytes;
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "%zu variant%s%s, %lld seed%s; %s\n\n", c->points.n, c->points.n == 1 ? "" : "s",
            c->points.n > c->variants.n ? " and grid points" : "", (long long)c->config.seeds,
            c->config.seeds == 1 ? "" : "s", line);
    nm_plan_print(c->plan.parts, c->plan.n, false, out);
    nm_text_stream_close(out);
    free(line);
    return text;
}
