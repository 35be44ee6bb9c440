#include "norma/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/file.h"
#include "comm/comm_options.h"
#include "experiment/variants.h"
#include "probe/probe.h"
#include "report/events.h"
#include "task/tasks.h"
#include "train/run_config.h"
#include "train/trainer.h"

struct nm_training {
    nm_options *options;
    nm_probe *probe;
    nm_trainer *trainer;
    nm_training_events events;
    nm_events *tensorboard; /* NULL: no event files, or writing them has failed */
    volatile sig_atomic_t stop;
};

/* ---- events ---- */

static void on_message(void *user, const char *text)
{
    const nm_training_events *events = &((nm_training *)user)->events;
    if (events->message)
        events->message(events->user, text);
}

/* Training continues if the event files cannot be written. */
static void follow_log(nm_training *self)
{
    nm_error err;
    if (!self->tensorboard || nm_events_follow(self->tensorboard, &err) == NM_OK)
        return;
    nm_error_prefix(&err, "no more events for TensorBoard");
    on_message(self, err.text);
    nm_events_close(self->tensorboard);
    self->tensorboard = NULL;
}

static void on_progress(void *user, const nm_progress *p)
{
    follow_log(user);
    const nm_training_events *events = &((nm_training *)user)->events;
    const nm_training_progress progress = {.update = p->update,
                                           .updates = p->updates,
                                           .epoch = p->epoch,
                                           .tokens = p->tokens,
                                           .loss = p->loss,
                                           .nll = p->nll,
                                           .learning_rate = p->lr,
                                           .grad_norm = p->grad_norm,
                                           .tokens_per_second = p->tokens_per_second,
                                           .seconds = p->seconds,
                                           .seconds_left = p->seconds_left};
    if (events->progress)
        events->progress(events->user, &progress);
}

static void on_validated(void *user, const nm_validation *v)
{
    const nm_training_events *events = &((nm_training *)user)->events;
    const nm_training_validation validation = {.update = v->update,
                                               .epoch = v->epoch,
                                               .loss = v->loss,
                                               .perplexity = v->perplexity,
                                               .score_name = v->score.name,
                                               .score = v->score.name ? v->score.value : NAN,
                                               .best = v->best,
                                               .samples = v->score.samples};
    if (events->validated)
        events->validated(events->user, &validation);
}

/* ---- options ---- */

static nm_options *options_of(const nm_task_type *task)
{
    nm_options *options = nm_options_create();
    nm_run_options_add(options);
    nm_comm_options_add(options); /* accepted as a part of recipes and saved configurations */
    if (task)
        nm_train_options_add(options, task);
    if (task)
        nm_probe_options_add(options);
    return options;
}

static bool is_text(const char *recipe)
{
    return strchr(recipe, '\n') != NULL;
}

static nm_status read_file_or_text(nm_options *options, const char *recipe, nm_error *err)
{
    const nm_run_options *run = nm_options_find(options, "run");
    if (!is_text(recipe))
        return nm_options_read_profile(options, recipe, run->profile, err);
    if (*run->profile)
        return nm_fail(err, NM_USAGE, "run.profile applies to the file of a recipe, not to its text");
    return nm_options_read_text(options, "the recipe", recipe, err);
}

static nm_status read_recipe(nm_training *self, const char *recipe, nm_error *err)
{
    nm_options *own = nm_options_create_like(self->options);
    char *message = NULL, *profile = nm_options_get(self->options, "run.profile");
    nm_status status = nm_options_set(own, "run.profile", profile, NM_ORIGIN_COMMAND, err);
    if (status == NM_OK)
        status = read_file_or_text(own, recipe, err);
    if (status == NM_OK)
        status = nm_norm_option_replace(self->options, own, &message, err);
    if (message)
        on_message(self, message);
    free(message);
    free(profile);
    nm_options_free(own);
    return status == NM_OK ? read_file_or_text(self->options, recipe, err) : status;
}

/* run.task of the settings, else of the recipe, else translation. */
static nm_status find_task(const char *recipe, const char *const *settings, const nm_task_type **task,
                           nm_error *err)
{
    char *name = NULL;
    for (size_t i = 0; settings && settings[i] && settings[i + 1]; i += 2)
        if (!strcmp(settings[i], "run.task")) {
            free(name);
            name = nm_duplicate(settings[i + 1]);
        }
    nm_status status = NM_OK;
    if (!name && is_text(recipe)) {
        nm_options *options = options_of(NULL);
        status = nm_options_read_saved(options, "the recipe", recipe, err);
        name = nm_options_get(options, "run.task");
        nm_options_free(options);
    } else if (!name) {
        status = nm_options_peek(recipe, "run.task", &name, err);
    }
    *task = name ? nm_task_type_find(name) : &nm_task_translation;
    if (status == NM_OK && !*task)
        status = nm_fail(err, NM_USAGE, "run.task = %.100s: no such task", name);
    free(name);
    return status;
}

static nm_status set_options(nm_options *options, const char *const *settings, nm_error *err)
{
    for (size_t i = 0; settings && settings[i]; i += 2) {
        if (!settings[i + 1])
            return nm_fail(err, NM_USAGE, "option %s has no value", settings[i]);
        NM_TRY(nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_COMMAND, err));
    }
    return NM_OK;
}

/* Replaces the options by those of the run in the folder, if it has any. */
static nm_status use_run_config(nm_training *self, const char *folder, nm_resume resume, nm_error *err)
{
    nm_options *options;
    char *warning;
    NM_TRY(nm_run_config_merge(&options, self->options, folder, resume, &warning, err));
    if (options) {
        if (warning)
            on_message(self, warning);
        free(warning);
        nm_options_free(self->options);
        self->options = options;
    }
    return NM_OK;
}

/* ---- open, run and close ---- */

static nm_status open_training(nm_training *self, const char *recipe, const char *folder,
                               const char *const *settings, nm_training_resume resume, nm_error *err)
{
    const nm_task_type *task;
    nm_train_callbacks callbacks = {.user = self,
                                    .command = "nm_training_open",
                                    .progress = on_progress,
                                    .validated = on_validated,
                                    .message = on_message,
                                    .stop = &self->stop};
    if (!recipe || !folder)
        return nm_fail(err, NM_USAGE, "nm_training_open: %s is NULL", recipe ? "folder" : "recipe");
    NM_TRY(find_task(recipe, settings, &task, err));
    self->options = options_of(task);
    NM_TRY(set_options(self->options, settings, err));
    NM_TRY(read_recipe(self, recipe, err));
    const nm_run_options *run = nm_options_find(self->options, "run");
    if (strcmp(run->task, task->name))
        return nm_fail(err, NM_USAGE, "run.task = %.100s cannot be set by a profile or an included file",
                       run->task);
    if (resume != NM_TRAINING_NEW)
        NM_TRY(use_run_config(self, folder, (nm_resume)resume, err));
    NM_TRY(nm_probe_create(&self->probe, self->options, err));
    callbacks.hooks = nm_probe_hooks(self->probe);
    NM_TRY(nm_trainer_open(&self->trainer, task, self->options, folder, resume != NM_TRAINING_NEW, &callbacks,
                           err));
    run = nm_options_find(self->options, "run");
    if (!run->tensorboard)
        return NM_OK;
    char *events = nm_path_join(folder, "tensorboard");
    nm_status status = nm_events_open(&self->tensorboard, folder, events, err);
    free(events);
    return status;
}

nm_status nm_training_open(nm_training **training, const char *recipe, const char *folder,
                           const char *const *options, nm_training_resume resume,
                           const nm_training_events *events, nm_error *err)
{
    nm_error ignored;
    err = err ? err : &ignored;
    if (!training)
        return nm_fail(err, NM_USAGE, "nm_training_open: training is NULL");
    nm_training *self = nm_allocate(sizeof *self);
    if (events)
        self->events = *events;
    nm_status status = open_training(self, recipe, folder, options, resume, err);
    if (status != NM_OK) {
        nm_training_close(self);
        return status;
    }
    *training = self;
    return NM_OK;
}

nm_status nm_training_run(nm_training *self, nm_error *err)
{
    nm_error ignored;
    err = err ? err : &ignored;
    if (!self)
        return nm_fail(err, NM_USAGE, "nm_training_run: training is NULL");
    nm_status status = nm_trainer_run(self->trainer, err);
    follow_log(self);
    return status;
}

void nm_training_stop(nm_training *self)
{
    if (self)
        self->stop = 1;
}

void nm_training_close(nm_training *self)
{
    if (!self)
        return;
    nm_probe_free(self->probe); /* before the trainer, whose model it looks at */
    nm_trainer_close(self->trainer);
    nm_events_close(self->tensorboard);
    nm_options_free(self->options);
    free(self);
}

int64_t nm_training_updates(const nm_training *self)
{
    return self ? nm_trainer_state(self->trainer)->update : 0;
}

size_t nm_training_parameters(const nm_training *self)
{
    return self ? (size_t)nm_params_learned(&nm_trainer_model(self->trainer)->params) : 0;
}

size_t nm_training_bytes(const nm_training *self)
{
    return self ? nm_trainer_peak_bytes(self->trainer) : 0;
}
