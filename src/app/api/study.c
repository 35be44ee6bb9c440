#include "norma/study.h"

#include <stdlib.h>
#include <string.h>

#include "api/recipe.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/option_value.h"
#include "experiment/run_plan.h"
#include "api/study_options.h"
#include "experiment/study_text.h"
#include "experiment/study_trainer.h"
#include "train/train_options.h"

struct nm_study {
    nm_options *options; /* sections [study] and [run] */
    const nm_study_options *config;
    char *program, *recipe, *folder, *key, *unit;
    const char **names;
    nm_experiment experiment;
    nm_study_trainer trainer;
    nm_study_procedure procedure;
    nm_study_events events;
    nm_stop stop;
    bool planned, complete;
    char *text; /* of the last call of nm_study_text */
};

static const char sections[] = "study,run";

/* Those of [study] apply to the study, those of [run] also to the runs, all others to the runs. Options that
 * do not determine the results are no part of the key. */
static nm_status set_options(nm_study *self, const char *const *options, nm_error *err)
{
    static const char *const free_options[] = {"study.folder", "study.jobs", "study.launch", "study.slurm"};
    self->key = nm_duplicate(self->recipe);
    for (size_t i = 0; options && options[i]; i += 2) {
        if (!options[i + 1])
            return nm_fail(err, NM_USAGE, "option %s has no value", options[i]);
        NM_AUTO_FREE char *path = nm_option_path(self->options, sections, options[i]);
        bool study = !strncmp(path, "study.", 6), counts = true;
        nm_status status = NM_OK;
        if (study || !strncmp(path, "run.", 4))
            status = nm_options_set(self->options, path, options[i + 1], NM_ORIGIN_COMMAND, err);
        if (!study)
            nm_settings_add(&self->experiment.queue.settings, path, options[i + 1]);
        for (size_t k = 0; k < sizeof free_options / sizeof *free_options; k++)
            counts = counts && strcmp(path, free_options[k]);
        if (counts)
            nm_format_append(&self->key, " %s=%s", path, options[i + 1]);
        if (status == NM_OK && !strcmp(path, "train.updates"))
            status = nm_fail(err, NM_USAGE, "train.updates has no effect: use --updates (study.updates)");
        NM_TRY(status);
    }
    return NM_OK;
}

static void send_run(void *user, const nm_planned_run *run)
{
    const nm_study *self = user;
    if (self->events.run)
        self->events.run(self->events.user, run);
}

static void send_decision(void *user, const nm_study_decision *decision)
{
    const nm_study *self = user;
    if (self->events.decided)
        self->events.decided(self->events.user, decision);
}

/* FixNorm exists for translation models only. */
static const char *default_norms(const nm_task_type *task)
{
    NM_AUTO(nm_options_release) nm_options *options = nm_options_create();
    nm_train_options_add(options, task);
    bool fix = nm_options_row(options, "model.fixnorm") != NULL;
    return fix ? "layer,rms,scale+fix,batch,power,rbn,dyt" : "layer,rms,scale,batch,power,rbn,dyt";
}

static nm_status open_trainer(nm_study *self, double *lr, int64_t *longest, nm_error *err)
{
    const nm_study_options *config = self->config;
    nm_study_trainer *t = &self->trainer;
    nm_run_queue *queue = &self->experiment.queue;
    t->experiment = &self->experiment;
    self->experiment.config =
        (nm_experiment_config){.norms = *config->norms ? config->norms : default_norms(queue->task),
                               .seeds = 1,
                               .jobs = config->jobs,
                               .cores = nm_machine_cpus(),
                               .slurm = config->slurm,
                               .measurement = {.tid_batches = config->tid_batches}};
    self->experiment.folder = nm_duplicate(self->folder);
    queue->program = self->program;
    queue->launch = config->launch;
    queue->recipe = self->recipe;
    queue->profile = ((const nm_compared_recipe *)nm_options_find(self->options, "run"))->profile;
    queue->add_options = nm_recipe_options_add;
    queue->stop = t->stop = &self->stop;
    t->updates = &self->procedure.updates;
    return nm_study_trainer_open(t, lr, longest, err);
}

static nm_status open_procedure(nm_study *self, double lr, int64_t longest, nm_error *err)
{
    enum { MIN_UPDATES = 40, MAX_UPDATES = 200000 };
    const nm_study_options *config = self->config;
    const nm_variants *variants = &self->experiment.points;
    nm_study_procedure *s = &self->procedure;
    self->names = nm_allocate((variants->n + 1) * sizeof *self->names);
    for (size_t v = 0; v < variants->n; v++)
        self->names[v] = variants->list[v].name;
    s->config = (nm_study_config){.variants = self->names,
                                  .n = variants->n,
                                  .delta = config->delta > 0          ? config->delta
                                           : self->trainer.perplexity ? 1
                                                                      : 0.5,
                                  .alpha = 0.05,
                                  .jobs = self->experiment.queue.share.jobs,
                                  .updates = config->updates,
                                  .fresh = config->seeds,
                                  .speed_updates = NM_SPEED_UPDATES,
                                  .min_updates = config->updates ? 1 : MIN_UPDATES,
                                  .max_updates = longest > 0 && longest < MAX_UPDATES ? longest : MAX_UPDATES,
                                  .folder = self->folder,
                                  .key = self->key,
                                  .score = "score",
                                  .unit = self->trainer.perplexity ? "% of perplexity" : "points",
                                  .perplexity = self->trainer.perplexity};
    NM_TRY(nm_study_parse_budget(config->budget, &s->config.budget, err));
    NM_TRY(nm_study_parse_rates(config->rates, s->config.lr, NM_STUDY_MAX_RATES, &s->config.n_rates, err));
    for (size_t i = 0; i < s->config.n_rates; i++)
        s->config.lr[i] *= lr;
    s->runner = nm_study_trainer_runner(&self->trainer);
    s->events = (nm_study_events){.user = self, .run = send_run, .decided = send_decision};
    return nm_study_procedure_open(s, err);
}

static nm_status open_study(nm_study *self, const char *program, const char *recipe,
                            const char *const *options, nm_error *err)
{
    self->program = nm_duplicate(program ? program : "norma");
    self->recipe = nm_duplicate(recipe);
    NM_TRY(set_options(self, options, err));
    NM_TRY(nm_recipe_find_task(recipe, options, &self->experiment.queue.task, err));
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe;
    self->folder = *self->config->folder ? nm_duplicate(self->config->folder)
                                         : nm_format("study-%.*s", (int)strcspn(name, "."), name);
    double lr, ignored;
    int64_t longest;
    NM_TRY(nm_study_parse_budget(self->config->budget, &ignored, err));
    NM_TRY(open_trainer(self, &lr, &longest, err));
    return open_procedure(self, lr, longest, err);
}

nm_status nm_study_open(nm_study **study, const char *program, const char *recipe, const char *const *options,
                        const nm_study_events *events, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!study || !recipe || nm_recipe_is_text(recipe))
        return nm_fail(err, NM_USAGE,
                       "nm_study_open: study or recipe is NULL, or recipe is not the path of a file");
    nm_study *self = nm_allocate(sizeof *self);
    self->options = nm_options_create();
    nm_study_options_add(self->options);
    self->config = nm_options_find(self->options, "study");
    if (events)
        self->events = *events;
    nm_status status = open_study(self, program, recipe, options, err);
    NM_RETURN_NEW(status, study, self, nm_study_close);
}

static void set_score(nm_study *self)
{
    nm_study_config *config = &self->procedure.config;
    if (!*self->trainer.score)
        return;
    config->score = self->trainer.score;
    static const char *const scales[] = {"BLEU", "chrF", "TER"}; /* differences are "0.5 BLEU" */
    bool scale = false;
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        scale = scale || !strcmp(scales[i], config->score);
    free(self->unit);
    self->unit = nm_format("%s%s", scale ? "" : "points of ", config->score);
    if (!self->trainer.perplexity)
        config->unit = self->unit;
}

nm_status nm_study_plan(nm_study *self, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || self->planned)
        return nm_fail(err, NM_USAGE, "nm_study_plan: study is NULL or has been planned");
    NM_TRY(nm_study_procedure_plan(&self->procedure, err));
    self->planned = true;
    set_score(self);
    return NM_OK;
}

bool nm_study_get_part(const nm_study *self, size_t index, nm_plan_part *out)
{
    if (!self || !out || index >= self->procedure.n_parts)
        return false;
    *out = self->procedure.parts[index];
    return true;
}

bool nm_study_get_run(const nm_study *self, size_t index, nm_planned_run *out)
{
    if (!self || !out || index >= self->procedure.n_runs)
        return false;
    *out = self->procedure.runs[index]->row;
    return true;
}

nm_status nm_study_run(nm_study *self, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !self->planned || self->complete)
        return nm_fail(err, NM_USAGE, "nm_study_run: the study is not planned, or has been run");
    NM_TRY(nm_study_procedure_run(&self->procedure, err));
    NM_TRY(nm_study_write_files(&self->procedure, err));
    self->complete = true;
    return NM_OK;
}

bool nm_study_get_answer(const nm_study *self, nm_study_answer *out)
{
    if (!self || !self->complete || !out)
        return false;
    *out = self->procedure.answer;
    return true;
}

bool nm_study_get_variant(const nm_study *self, size_t index, nm_studied_variant *out)
{
    if (!self || !self->complete || !out || index >= self->procedure.config.n)
        return false;
    *out = self->procedure.variants[index];
    return true;
}

const char *nm_study_text(nm_study *self)
{
    if (!self || !self->planned)
        return NULL;
    free(self->text);
    self->text = self->complete ? nm_study_answer_markdown(&self->procedure)
                                : nm_study_plan_markdown(&self->procedure);
    return self->text;
}

const char *nm_study_folder(const nm_study *self)
{
    return self ? self->folder : NULL;
}

void nm_study_stop(nm_study *self)
{
    if (self)
        self->stop.requested = 1;
}

void nm_study_close(nm_study *self)
{
    if (!self)
        return;
    nm_study_procedure_release(&self->procedure);
    nm_study_trainer_release(&self->trainer);
    nm_experiment_release(&self->experiment);
    nm_options_free(self->options);
    NM_FREE(self->names, self->program, self->recipe, self->folder, self->key, self->unit, self->text, self);
}
