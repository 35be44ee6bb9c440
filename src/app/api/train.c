#include "api/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/option_values.h"
#include "api/recipe.h"
#include "backend/device_options.h"
#include "base/file.h"
#include "convert/convert.h"
#include "experiment/variants.h"
#include "probe/probe.h"
#include "report/events.h"
#include "task/tune.h"
#include "train/run_config.h"
#include "train/trainer.h"

struct nm_training {
    const nm_task_type *task;
    nm_options *options;
    char *folder, *command, device[256];
    nm_option_values values;
    nm_probe *probe;
    nm_trainer *trainer;
    nm_training_events events;
    nm_events *tensorboard; /* NULL: no event files, or writing them failed */
    bool silent;            /* this process is not rank 0: no messages and no event files */
    nm_profile profile;
    nm_stop stop;
};

static void on_message(void *user, const char *text)
{
    const nm_training *self = user;
    if (self->events.message && !self->silent)
        self->events.message(self->events.user, text);
}

static void warn(nm_training *self, const char *text)
{
    NM_AUTO_FREE char *line = nm_format("warning: %s", text);
    on_message(self, line);
}

/* Training continues if the event files cannot be written. */
static void follow_log(nm_training *self)
{
    nm_error err;
    if (!self->tensorboard || nm_events_follow(self->tensorboard, &err) == NM_OK)
        return;
    nm_error_prefix(&err, "no more events for TensorBoard");
    warn(self, err.text);
    nm_events_close(self->tensorboard);
    self->tensorboard = NULL;
}

static void on_progress(void *user, const nm_training_progress *progress)
{
    nm_training *self = user;
    follow_log(self);
    if (self->events.progress)
        self->events.progress(self->events.user, progress);
}

static void on_validating(void *user, int64_t update, double last_seconds)
{
    const nm_training_events *events = &((const nm_training *)user)->events;
    if (events->validating)
        events->validating(events->user, update, last_seconds);
}

static void on_validated(void *user, const nm_training_validation *validation)
{
    const nm_training_events *events = &((const nm_training *)user)->events;
    if (events->validated)
        events->validated(events->user, validation);
}

static nm_options *options_of(const nm_task_type *task)
{
    nm_options *options = nm_options_create();
    nm_recipe_options_add(options);
    nm_train_options_add(options, task);
    nm_probe_options_add(options);
    return options;
}

static nm_status read_file_or_text(nm_options *options, const char *recipe, nm_error *err)
{
    const nm_run_options *run = nm_options_find(options, "run");
    if (!nm_recipe_is_text(recipe))
        return nm_options_read_profile(options, recipe, run->profile, err);
    if (*run->profile)
        return nm_fail(err, NM_USAGE, "run.profile applies to the file of a recipe, not to its text");
    return nm_options_read_text(options, "the recipe", recipe, err);
}

static nm_status read_recipe(nm_training *self, const char *recipe, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *own = nm_options_create_like(self->options);
    NM_AUTO_FREE char *message = NULL, *profile = nm_options_get(self->options, "run.profile");
    nm_status status = nm_options_set(own, "run.profile", profile, NM_ORIGIN_COMMAND, err);
    NM_THEN(status, read_file_or_text(own, recipe, err));
    NM_THEN(status, nm_norm_option_replace(self->options, own, &message, err));
    if (message)
        on_message(self, message);
    NM_TRY(status);
    return read_file_or_text(self->options, recipe, err);
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

/* The option run.folder, or runs/NAME or runs/NAME-PROFILE with the name of the recipe, heap; NULL for the
 * text of a recipe without run.folder. */
static char *run_folder(const nm_run_options *run, const char *recipe)
{
    if (*run->folder || nm_recipe_is_text(recipe))
        return *run->folder ? nm_duplicate(run->folder) : NULL;
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe, *dot = strrchr(name, '.');
    return nm_format("runs/%.*s%s%s", (int)(dot ? dot - name : (long)strlen(name)), name,
                     *run->profile ? "-" : "", run->profile);
}

/* NM_MISMATCH if config.ini in the folder has another task, whose options would be unknown. */
static nm_status check_task(const nm_training *self, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(self->folder, "config.ini"), *run_task = NULL;
    bool found;
    NM_TRY(nm_file_find(path, &found, err));
    if (found)
        NM_TRY(nm_options_peek(path, "run.task", &run_task, err));
    if (run_task && strcmp(run_task, self->task->name))
        return nm_fail(err, NM_MISMATCH, "%s: the run has run.task = %s, the recipe %s", self->folder,
                       run_task, self->task->name);
    return NM_OK;
}

static nm_recipe_source source_of(const char *recipe)
{
    return nm_recipe_is_text(recipe) ? (nm_recipe_source){"the recipe", recipe}
                                     : (nm_recipe_source){recipe, NULL};
}

/* Compares config.ini of a run that is resumed with its newest checkpoint. */
static nm_status prove_config(nm_training *self, nm_error *err)
{
    NM_AUTO_FREE char *message = NULL;
    NM_TRY(nm_run_config_prove(self->options, self->folder, &message, err));
    if (message)
        warn(self, message);
    return NM_OK;
}

/* Applies the sections [size.N] of the recipe. A resumed run has its own data, which the recipe need not
 * name. */
static nm_status apply_sizes(nm_training *self, const char *recipe, nm_resume resume, int64_t *size,
                             nm_error *err)
{
    const nm_recipe_source source = source_of(recipe);
    NM_AUTO(nm_options_release) nm_options *run = NULL;
    NM_TRY(resume == NM_RESUME_NO ? NM_OK : check_task(self, err));
    if (resume != NM_RESUME_NO)
        NM_TRY(nm_run_config_read_data(&run, self->options, self->folder, err));
    return nm_recipe_apply_sizes(self->options, self->task, &source,
                                 nm_options_find(run ? run : self->options, "data"), size, err);
}

static void report_sizes(const nm_training *self, int64_t size)
{
    NM_AUTO_FREE char *message = size < 0 ? NULL : nm_recipe_describe_sizes(self->options, self->task, size);
    if (message)
        on_message((void *)self, message);
}

/* A run that exists has the structure of its model, which may have been removed since. */
static nm_status tune(nm_training *self, const char *recipe, nm_resume resume, nm_error *err)
{
    const nm_recipe_source source = source_of(recipe);
    NM_AUTO_FREE char *message = NULL;
    bool exists = false;
    if (resume != NM_RESUME_NO)
        NM_TRY(nm_file_find_in(self->folder, "config.ini", &exists, err));
    if (exists)
        return NM_OK;
    nm_status status = nm_tune_apply(self->options, self->task, &source, &message, err);
    if (status == NM_OK && message)
        on_message(self, message);
    return status;
}

/* Replaces the options with those of the run in the folder, if there is one. */
static nm_status use_run_config(nm_training *self, nm_resume resume, nm_error *err)
{
    nm_options *options;
    char *warning;
    NM_TRY(nm_run_config_merge(&options, self->options, self->folder, resume, &warning, err));
    if (options) {
        if (warning)
            warn(self, warning);
        free(warning);
        nm_options_free(self->options);
        self->options = options;
    }
    return NM_OK;
}

/* Whether the recipe is the configuration of the run itself, which a resumed run without a recipe has. */
static bool is_own_config(const nm_training *self, const char *recipe)
{
    NM_AUTO_FREE char *path = nm_path_join(self->folder, "config.ini");
    return nm_file_is_same(recipe, path);
}

/* NM_USAGE if the recipe sets the task, which must be known before it is read. */
static nm_status check_recipe(const nm_training *self, nm_error *err)
{
    const nm_run_options *run = nm_options_find(self->options, "run");
    return strcmp(run->task, self->task->name)
               ? nm_fail(
                     err, NM_USAGE,
                     "run.task = %.100s cannot be set there: set it in the recipe itself or on the command "
                     "line",
                     run->task)
               : NM_OK;
}

/* The processes are connected before the recipe is read. A recipe with other options [comm] is the
 * configuration of a run, whose processes were those of its session. */
static void use_ranks(nm_training *self, const char *recipe, const nm_training_ranks *ranks)
{
    nm_comm_config *comm = nm_options_find(self->options, "comm");
    const nm_comm_config *used = ranks->config;
    const bool other = comm->backend != used->backend || comm->timeout != used->timeout ||
                       comm->shard_optimizer != used->shard_optimizer;
    *comm = *used;
    if (other && !is_own_config(self, recipe))
        on_message(self,
                   "the section [comm] of the recipe is not used: its options, if they are needed, belong to "
                   "the command line");
}

static bool is_dry_run(const nm_training *self)
{
    return ((const nm_run_options *)nm_options_find(self->options, "run"))->dry_run;
}

static nm_status open_events(nm_training *self, nm_error *err)
{
    const nm_run_options *run = nm_options_find(self->options, "run");
    if (!run->tensorboard || self->silent || run->dry_run)
        return NM_OK;
    NM_AUTO_FREE char *events = nm_path_join(self->folder, "tensorboard");
    return nm_events_open(&self->tensorboard, self->folder, events, err);
}

/* The default warm-up of 4,000 updates is longer than many a short run, whose rate would only rise. */
static void warn_about_warmup(nm_training *self)
{
    const nm_schedule_config *schedule = nm_options_find(self->options, "schedule");
    const nm_norm_plan *plan = &nm_trainer_task(self->trainer)->plan;
    if (!nm_schedule_has_length(schedule) || plan->updates <= 0 || plan->warmup_updates < plan->updates)
        return;
    NM_AUTO_FREE char *text =
        nm_format("the warm-up (%lld updates) does not end in the run (%lld updates), so the learning "
                  "rate never reaches schedule.lr: lower schedule.warmup",
                  (long long)plan->warmup_updates, (long long)plan->updates);
    warn(self, text);
}

/* What norma convert makes of the model at the end of the run. */
static void report_class(const nm_training *self)
{
    nm_error err = {0};
    const char *class;
    const nm_loaded_model view = {.options = self->options,
                                  .task = *nm_trainer_task(self->trainer),
                                  .model = nm_trainer_model(self->trainer)};
    NM_AUTO_FREE char *line =
        nm_huggingface_class(&view, &class, &err) == NM_OK
            ? nm_format("class of the model in transformers: %s (norma convert --to huggingface)", class)
            : nm_format("norma convert --to huggingface will refuse the model: %s", err.text);
    on_message((void *)self, line);
}

static nm_status open_training(nm_training *self, const char *recipe, const char *folder,
                               const char *const *settings, nm_resume resume, const nm_training_ranks *ranks,
                               nm_error *err)
{
    nm_train_callbacks callbacks = {.user = self,
                                    .command = self->command,
                                    .progress = on_progress,
                                    .validating = on_validating,
                                    .validated = on_validated,
                                    .message = on_message,
                                    .stop = &self->stop,
                                    .comm = ranks ? ranks->comm : NULL,
                                    .shard_optimizer = ranks && ranks->config->shard_optimizer,
                                    .last_update = ranks ? ranks->last_update : 0};
    int64_t size;
    if (!recipe)
        return nm_fail(err, NM_USAGE, "nm_training_open: recipe is NULL");
    if (!*recipe || (folder && !*folder)) /* "" would be the root folder */
        return nm_fail(err, NM_USAGE, "nm_training_open: %s is empty", *recipe ? "folder" : "recipe");
    if ((unsigned)resume > NM_RESUME_OVERRIDE)
        return nm_fail(err, NM_USAGE, "nm_training_open: resume is %d", (int)resume);
    NM_TRY(nm_recipe_find_task(recipe, settings, &self->task, err));
    self->options = options_of(self->task);
    NM_TRY(set_options(self->options, settings, err));
    NM_TRY(read_recipe(self, recipe, err));
    const nm_run_options *run = nm_options_find(self->options, "run");
    self->folder = folder ? nm_duplicate(folder) : run_folder(run, recipe);
    if (!self->folder)
        return nm_fail(err, NM_USAGE, "nm_training_open: the text of a recipe needs a folder");
    NM_TRY(check_recipe(self, err));
    if (ranks)
        use_ranks(self, recipe, ranks);
    resume = resume == NM_RESUME_NO ? run->resume : resume;
    if (resume != NM_RESUME_NO && !callbacks.last_update)
        NM_TRY(prove_config(self, err));
    NM_TRY(apply_sizes(self, recipe, resume, &size, err));
    NM_TRY(tune(self, recipe, resume, err));
    report_sizes(self, size);
    if (resume != NM_RESUME_NO)
        NM_TRY(use_run_config(self, resume, err));
    NM_TRY(nm_device_choose_precision(self->options, err));
    NM_TRY(nm_probe_create(&self->probe, self->options, err));
    callbacks.hooks = nm_probe_hooks(self->probe);
    callbacks.dry_run = is_dry_run(self);
    if (callbacks.dry_run && resume != NM_RESUME_NO)
        return nm_fail(err, NM_USAGE, "run.dry_run and run.resume exclude each other");
    NM_TRY(nm_trainer_open(&self->trainer, self->task, self->options, self->folder, resume != NM_RESUME_NO,
                           &callbacks, err));
    if (!self->silent && resume == NM_RESUME_NO) {
        report_class(self);
        warn_about_warmup(self);
    }
    nm_option_values_list(&self->values, self->options);
    nm_backend_describe(nm_trainer_backend(self->trainer), self->device, sizeof self->device);
    return open_events(self, err);
}

nm_status nm_training_open_ranks(nm_training **training, const char *recipe, const char *folder,
                                 const char *const *options, nm_training_resume resume,
                                 const nm_training_events *events, const nm_training_ranks *ranks,
                                 nm_error *err)
{
    nm_training *self = nm_allocate(sizeof *self);
    if (events)
        self->events = *events;
    self->command = nm_duplicate(events && events->command ? events->command : "nm_training_open");
    self->silent = ranks && ranks->comm->rank;
    nm_status status = open_training(self, recipe, folder, options, (nm_resume)resume, ranks, err);
    NM_RETURN_NEW(status, training, self, nm_training_close);
}

nm_status nm_training_open(nm_training **training, const char *recipe, const char *folder,
                           const char *const *options, nm_training_resume resume,
                           const nm_training_events *events, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!training)
        return nm_fail(err, NM_USAGE, "nm_training_open: training is NULL");
    return nm_training_open_ranks(training, recipe, folder, options, resume, events, NULL, err);
}

nm_status nm_training_run(nm_training *self, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self)
        return nm_fail(err, NM_USAGE, "nm_training_run: training is NULL");
    if (is_dry_run(self))
        return NM_OK;
    nm_status status = nm_trainer_run(self->trainer, err);
    follow_log(self);
    return status;
}

void nm_training_stop(nm_training *self)
{
    if (self)
        self->stop.requested = 1;
}

void nm_training_close(nm_training *self)
{
    if (!self)
        return;
    nm_probe_free(self->probe); /* before the trainer, because the probe refers to its model */
    nm_trainer_close(self->trainer);
    nm_events_close(self->tensorboard);
    nm_options_free(self->options);
    nm_option_values_release(&self->values);
    NM_FREE(self->folder, self->command, self);
}

int64_t nm_training_updates(const nm_training *self)
{
    return self ? nm_trainer_state(self->trainer)->update : 0;
}

size_t nm_training_parameters(const nm_training *self)
{
    return self ? nm_trainer_parameters(self->trainer) : 0;
}

size_t nm_training_bytes(const nm_training *self)
{
    return self ? nm_trainer_peak_bytes(self->trainer) : 0;
}

const char *nm_training_folder(const nm_training *self)
{
    return self ? self->folder : NULL;
}

const char *nm_training_option(const nm_training *self, const char *name)
{
    return self ? nm_option_values_find(&self->values, name) : NULL;
}

const char *nm_training_device(const nm_training *self)
{
    return self ? self->device : NULL;
}

const char *nm_training_warning(const nm_training *self)
{
    const char *warning = self ? nm_backend_warning(nm_trainer_backend(self->trainer)) : "";
    return *warning ? warning : NULL;
}

nm_training_summary nm_training_summarize(const nm_training *self)
{
    if (!self)
        return (nm_training_summary){.best_score = NAN};
    const nm_train_state *state = nm_trainer_state(self->trainer);
    bool scored = state->best_update && isfinite(state->best_value);
    return (nm_training_summary){.updates = state->update,
                                 .tokens = state->tokens,
                                 .best_update = state->best_update,
                                 .best_loss = state->best_loss,
                                 .score_title = scored ? state->score_title : NULL,
                                 .best_score = scored ? state->best_value : NAN};
}

nm_training_profile nm_training_get_profile(nm_training *self)
{
    if (!self)
        return (nm_training_profile){0};
    self->profile = nm_trainer_profile(self->trainer);
    return (nm_training_profile){.updates = self->profile.updates,
                                 .tokens = self->profile.tokens,
                                 .seconds = self->profile.seconds,
                                 .kernels = self->profile.kernels,
                                 .n_kernels = self->profile.n_kernels};
}
