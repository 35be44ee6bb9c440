#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "train/option_check.h"
#include "train/run_config.h"
#include "train/trainer_private.h"

/* Reports a warning, heap, and frees it; NULL: none. */
static void warn(nm_trainer *trainer, char *warning)
{
    if (warning)
        nm_trainer_message(trainer, "warning: %s", warning);
    free(warning);
}

/* The model whose dictionary entries a run keeps, heap; NULL: none. The checkpoint of a run that is resumed
 * has all of them, in the same order, so that the model which it trains further is not needed again. */
static char *find_tuned_model(const nm_trainer *trainer, const char *folder, bool resume)
{
    const nm_run_options *run = nm_options_find(trainer->options, "run");
    if (!run || !*run->tune || nm_options_row(trainer->options, "data.folder"))
        return NULL;
    char *last = resume && folder ? nm_path_join(folder, "last.safetensors") : NULL;
    nm_safetensors *file;
    if (last && nm_safetensors_open(&file, last, NM_IGNORED) == NM_OK) {
        nm_safetensors_close(file);
        return last;
    }
    free(last);
    const nm_stack_options *model = nm_options_find(trainer->options, "model");
    return nm_duplicate(model->init_from);
}

static nm_status open_task(nm_trainer *trainer, const nm_task_type *task, const char *folder, bool resume,
                           nm_error *err)
{
    NM_AUTO_FREE char *tuned = find_tuned_model(trainer, folder, resume);
    trainer->task = (nm_task){.type = task,
                              .options = trainer->options,
                              .config = nm_options_find(trainer->options, "data"),
                              .seed = (uint64_t)trainer->config->seed,
                              .max_tokens = trainer->config->max_tokens,
                              .kept_entries_of = tuned,
                              .comm = trainer->comm,
                              .stop = trainer->callbacks.stop};
    nm_status status = task->open(&trainer->task, err);
    trainer->task.kept_entries_of = NULL;
    return status;
}

/* The shard that is checked is computed without the others of its update. */
static nm_status check_options(const nm_trainer *trainer, nm_error *err)
{
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    return trainer->config->check_shard && (trainer->lockstep || norms->state != NM_STATE_UPDATE)
               ? nm_fail(err, NM_USAGE,
                         "train.check_shard requires norm.statistics = shard and norm.state = update: "
                         "otherwise the "
                         "gradient of a shard depends on other shards")
               : NM_OK;
}

/* With one shard, and without norms that use batch statistics, norm.statistics = update has no effect. */
static nm_status open_lockstep(nm_trainer *trainer, nm_error *err)
{
    bool joint;
    NM_TRY(nm_model_check_statistics(&trainer->model->params, trainer->options, &joint, err));
    if (!joint)
        return NM_OK;
    const nm_shard_range own = nm_shard_range_of(trainer->config->shards, trainer->comm);
    trainer->n_lanes = (int32_t)(own.last - own.first);
    trainer->lanes = nm_allocate((size_t)trainer->n_lanes * sizeof *trainer->lanes);
    return nm_lockstep_create(&trainer->lockstep, &trainer->shards, err);
}

static nm_status open_model(nm_trainer *trainer, nm_error *err)
{
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    nm_model_sizes sizes = trainer->task.type->sizes(&trainer->task);
    NM_TRY(nm_model_create(&trainer->model, trainer->task.type->model, trainer->backend, trainer->options,
                           &sizes, true, err));
    warn(trainer, trainer->model->type->warning ? trainer->model->type->warning(trainer->model) : NULL);
    warn(trainer, nm_stack_init_warning(trainer->options));
    if (trainer->task.type->prepare_model)
        NM_TRY(trainer->task.type->prepare_model(&trainer->task, trainer->model, err));
    nm_params_initialize(&trainer->model->params, (uint64_t)trainer->config->seed);
    if (trainer->task.type->init_params)
        NM_TRY(trainer->task.type->init_params(&trainer->task, trainer->model, err));
    NM_TRY(nm_shard_tree_init(&trainer->shards, &trainer->model->params, trainer->config->shards,
                              trainer->comm, trainer->callbacks.shard_optimizer, err));
    NM_TRY(nm_optimizer_init(&trainer->optimizer, nm_options_find(trainer->options, "optim"),
                             trainer->config->clip_value, &trainer->shards, err));
    NM_TRY(nm_ema_init(&trainer->ema, &trainer->model->params, trainer->config->ema_decay, err));
    NM_TRY(open_lockstep(trainer, err));
    NM_TRY(check_options(trainer, err));
    if (norms->state == NM_STATE_WORKER)
        nm_workers_init(&trainer->workers, &trainer->model->params, trainer->config->shards);
    return NM_OK;
}

static void report_muon(nm_trainer *trainer)
{
    const nm_optimizer *optimizer = &trainer->optimizer;
    const double learned = (double)nm_params_learned(&trainer->model->params);
    double n = 0;
    for (size_t i = 0; i < optimizer->n_blocks; i++)
        n += (double)optimizer->blocks[i].rows * (double)optimizer->blocks[i].cols;
    if (optimizer->n_blocks)
        nm_trainer_message(trainer,
                           "muon updates %zu matrices with %.2f M of %.2f M parameters, AdamW the others",
                           optimizer->n_blocks, 1e-6 * n, 1e-6 * learned);
}

static nm_status open_tape(nm_trainer *trainer, nm_error *err)
{
    /* The tape reuses blocks by size. Batches whose sides have different lengths reuse fewer blocks than the
     * largest batch, whose sides have equal lengths, and instruments allocate some memory. Pages that are not
     * accessed use address space only. */
    enum { RESERVE_FACTOR = 2, RESERVE_EXTRA = 64 << 20 };
    size_t available = nm_device_memory_bytes(trainer->device, trainer->backend);
    bool recompute = trainer->config->activation_checkpointing == NM_CHECKPOINTING_LAYER;
    nm_arena_init(&trainer->host, SIZE_MAX);
    NM_TRY(nm_results_init(&trainer->results, trainer->backend, err));
    nm_tape_init_dry(&trainer->tape, trainer->backend);
    trainer->tape.recompute = recompute;
    NM_TRY(nm_trainer_dry_run(trainer, err));
    if (trainer->peak_bytes > available)
        return nm_fail(
            err, NM_MEMORY,
            "an update needs up to %zu MiB of memory, %zu MiB are available: lower train.max_tokens (and "
            "raise train.shards)",
            trainer->peak_bytes >> 20, available >> 20);
    size_t reserved = RESERVE_FACTOR * nm_tape_peak(&trainer->tape) + RESERVE_EXTRA;
    nm_tape_release(&trainer->tape);
    NM_TRY(nm_tape_init(&trainer->tape, trainer->backend, reserved, err));
    trainer->tape.recompute = recompute;
    for (int32_t i = 0; i < trainer->n_lanes; i++) {
        nm_lane *lane = &trainer->lanes[i];
        nm_arena_init(&lane->host, SIZE_MAX);
        NM_TRY(nm_tape_init(&lane->tape, trainer->backend, reserved, err));
        lane->tape.recompute = recompute;
    }
    return NM_OK;
}

/* NM_USAGE for a data folder, whose files the run would be mixed with. One that has a run already is
 * accepted, for resuming. */
static nm_status check_folder(const char *folder, nm_error *err)
{
    bool is_data, has_log, has_checkpoints;
    NM_TRY(nm_file_find_in(folder, "data.ini", &is_data, err));
    NM_TRY(nm_file_find_in(folder, "log.jsonl", &has_log, err));
    NM_TRY(nm_file_find_in(folder, "checkpoints", &has_checkpoints, err));
    if (!is_data || has_log || has_checkpoints)
        return NM_OK;
    return nm_fail(err, NM_USAGE,
                   "%s is a data folder of norma prepare: choose another folder for the run (run.folder), "
                   "which may be a folder in it",
                   folder);
}

static nm_status open_folder(nm_trainer *trainer, const char *folder, bool resume, nm_error *err)
{
    trainer->folder = nm_duplicate(folder);
    static const char *const files[] = {"log.jsonl", "best.safetensors", "last.safetensors"};
    NM_AUTO_FREE char *checkpoints = nm_path_join(folder, "checkpoints");
    trainer->made_folder = !nm_file_may_exist(folder);
    trainer->made_checkpoints = !nm_file_may_exist(checkpoints);
    nm_status status = nm_folder_create(checkpoints, err);
    bool has_run = false;
    NM_THEN(status, nm_folder_lock_acquire(&trainer->lock, folder, err));
    NM_THEN(status, nm_trainer_has_checkpoint(trainer, &has_run, err));
    for (size_t i = 0; status == NM_OK && i < sizeof files / sizeof *files; i++) {
        bool found;
        status = nm_file_find_in(folder, files[i], &found, err);
        has_run |= found;
    }
    if (status == NM_OK && has_run && !resume)
        return nm_fail(err, NM_USAGE,
                       "%s already contains a run: continue it with --resume or choose another folder",
                       folder);
    return status;
}

/* Opens the log, in which changes to the configuration of a resumed run are recorded. A new run writes
 * config.ini; that of a resumed run changes together with the next checkpoint, so that a refused change has
 * no effect. */
static nm_status open_log(nm_trainer *trainer, bool resumed, nm_error *err)
{
    json_t *changes = NULL;
    if (resumed)
        NM_TRY(nm_run_config_changes(trainer->options, trainer->folder, &changes, err));
    nm_status status = NM_OK;
    if (resumed && !changes)
        status = nm_run_config_load(&trainer->config_text, trainer->folder, err);
    if (status == NM_OK && !trainer->config_text)
        status = nm_run_config_text(trainer->options, &trainer->config_text, err);
    if (status == NM_OK && !resumed)
        status = nm_run_config_write(trainer->config_text, trainer->folder, err);
    trainer->config_pending = changes != NULL;
    NM_THEN(status, nm_log_open(trainer, err));
    if (status == NM_OK && changes)
        return nm_log_resume(trainer, changes, err);
    json_decref(changes);
    return status;
}

/* Whether norm i is the first one of its type, and the type has settings that depend on the planned
 * updates. */
static bool is_reported(const nm_params *params, size_t i)
{
    const nm_norm_type *type = params->norms[i]->type;
    for (size_t k = 0; k < i; k++)
        if (params->norms[k]->type == type)
            return false;
    return type->note != NULL;
}

/* Reports once per type of norm the settings that depend on the planned updates: warm-ups, ramps. */
static void report_norms(nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    const nm_norm_config *norms = nm_options_find(trainer->options, "norm");
    const char *unit = norms->state == NM_STATE_MICRO_BATCH && trainer->config->shards > 1
                           ? " (every micro-batch counts as an update)"
                           : "";
    for (size_t i = 0; i < params->n_norms; i++) {
        const nm_norm *norm = params->norms[i];
        char text[256];
        if (!is_reported(params, i))
            continue;
        norm->type->note(norm, text, sizeof text);
        nm_trainer_message(trainer, "norm %s at %s: %s%s", norm->type->name, norm->site.name, text, unit);
    }
}

/* Warns if early stopping may end the training within the transition of a norm. */
static void warn_of_transitions(nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    size_t i = 0;
    while (i < params->n_norms && !(params->norms[i]->type->traits & NM_HAS_TRANSITION))
        i++;
    if (i < params->n_norms && trainer->config->patience)
        nm_trainer_message(
            trainer,
            "warning: norm %s: validation losses may rise until the end of its transition, and "
            "train.patience = %" PRId64 " may end the training before; 0 disables early stopping",
            params->norms[i]->type->name, trainer->config->patience);
}

/* Reports once per type of norm that its warm-up or ramp continues that of the model in model.init_from. */
static void report_earlier_updates(nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    for (size_t i = 0; i < params->n_norms; i++) {
        const nm_norm *norm = params->norms[i];
        if (is_reported(params, i) && norm->counters[0] > 0)
            nm_trainer_message(trainer,
                               "norm %s at %s: the count of updates begins at %" PRId64 ", that of the model",
                               norm->type->name, norm->site.name, norm->counters[0]);
    }
}

/* A model that is trained further reads its own tokens; data of norma prepare --like have them. */
static void warn_other_dictionary(nm_trainer *trainer)
{
    const nm_run_options *run = nm_options_find(trainer->options, "run");
    const char *name;
    json_t *counts;
    if (!run || !*run->tune || !nm_options_row(trainer->options, "data.folder"))
        return;
    json_object_foreach(json_object_get(trainer->init_from, "entries"), name, counts)
    {
        if (json_equal(json_array_get(counts, 0), json_array_get(counts, 1)))
            continue;
        nm_trainer_message(trainer,
                           "warning: the data folder has another dictionary than the model; norma prepare "
                           "--like %s writes one with that of the model",
                           run->tune);
        return;
    }
}

/* Completes the initialization and loads model.init_from; not called for a resumed run, which has a
 * checkpoint. */
static nm_status start_params(nm_trainer *trainer, nm_error *err)
{
    const nm_stack_options *options = trainer->model->config;
    char *summary;
    NM_TRY(nm_trainer_profile_init(trainer, err));
    if (!*options->init_from)
        return NM_OK;
    NM_TRY(nm_warm_start(trainer->model, &trainer->task, options->init_from, &trainer->init_from, &summary,
                         err));
    nm_trainer_message(trainer, "%s", summary);
    free(summary);
    warn_other_dictionary(trainer);
    report_earlier_updates(trainer);
    return NM_OK;
}

static void warn_without_limit(nm_trainer *trainer)
{
    const nm_train_config *c = trainer->config;
    bool limited =
        c->updates || c->epochs || c->seconds > 0 || c->patience || trainer->schedule.config.min_lr > 0;
    if (!limited)
        nm_trainer_message(trainer, "warning: the training has no end: set train.epochs, train.updates, "
                                    "train.seconds or train.patience, or stop it (Ctrl-C)");
}

/* The checkpoint of a run that is resumed, or the start of a new run; then the log. Only rank 0 has a
 * folder. */
static nm_status open_run(nm_trainer *trainer, const char *folder, bool resume, nm_error *err)
{
    bool root = !trainer->comm->rank, found = false;
    if (root)
        NM_TRY(open_folder(trainer, folder, resume, err));
    trainer->state = (nm_train_state){.best_score = -INFINITY,
                                      .best_loss = INFINITY,
                                      .warned_level = 1e3,
                                      .optimizer = trainer->optimizer.type->state,
                                      .schedule = trainer->schedule.state};
    if (root && resume)
        NM_TRY(nm_trainer_resume(trainer, &found, err));
    trainer->unchanged = found;
    if (found)
        nm_trainer_message(trainer, "resumed at update %" PRId64 ", epoch %" PRId64 ", batch %" PRId64,
                           trainer->state.update, trainer->state.epoch + 1, trainer->state.batch);
    else if (root)
        NM_TRY(start_params(trainer, err));
    if (!found) {
        nm_workers_reset(&trainer->workers, &trainer->model->params);
        nm_ema_start(&trainer->ema);
    }
    return root ? open_log(trainer, found, err) : NM_OK;
}

static nm_status open_parts(nm_trainer *trainer, const nm_task_type *task, const char *folder, bool resume,
                            nm_error *err)
{
    char *warning;
    if (!trainer->comm->rank)
        NM_TRY(check_folder(folder, err));
    NM_TRY(nm_options_check(trainer->options, &warning, err));
    warn(trainer, warning);
    NM_TRY(nm_device_reject_inference(trainer->device, "training", err));
    NM_TRY(nm_device_open(trainer->device, &trainer->backend, err));
    NM_TRY(open_task(trainer, task, folder, resume, err));
    if (task->note && task->note(&trainer->task))
        nm_trainer_message(trainer, "%s", task->note(&trainer->task));
    warn(trainer, task->data_warning ? task->data_warning(&trainer->task) : NULL);
    trainer->total_updates = trainer->config->updates;
    NM_TRY(nm_schedule_of_task(&trainer->schedule, &trainer->task, err));
    warn_without_limit(trainer);
    NM_TRY(open_model(trainer, err));
    NM_TRY(nm_model_check_norm_options(&trainer->model->params, trainer->options, err));
    report_norms(trainer);
    warn_of_transitions(trainer);
    report_muon(trainer);
    NM_TRY(open_tape(trainer, err));
    NM_TRY(nm_ranks_compare_setup(trainer, err));
    if (trainer->callbacks.dry_run)
        return nm_ranks_share_messages(trainer, err);
    NM_TRY(open_run(trainer, folder, resume, err));
    NM_TRY(nm_ranks_share_checkpoint(trainer, err));
    NM_TRY(nm_ranks_share_messages(trainer, err));
    trainer->seconds_before = trainer->state.seconds;
    trainer->earlier_tokens = trainer->state.sum_tokens;
    return NM_OK;
}

/* Removes the folders that a failed start has made, if they are empty. */
static void remove_made_folders(const nm_trainer *trainer)
{
    NM_AUTO_FREE char *checkpoints = nm_path_join(trainer->folder, "checkpoints");
    if (trainer->made_checkpoints)
        rmdir(checkpoints);
    if (trainer->made_folder)
        rmdir(trainer->folder);
}

nm_status nm_trainer_open(nm_trainer **out, const nm_task_type *task, const nm_options *options,
                          const char *folder, bool resume, const nm_train_callbacks *callbacks, nm_error *err)
{
    nm_trainer *trainer = nm_allocate(sizeof *trainer);
    *trainer = (nm_trainer){.options = options,
                            .config = nm_options_find(options, "train"),
                            .device = nm_options_find(options, "device")};
    if (callbacks)
        trainer->callbacks = *callbacks;
    trainer->alone = (nm_comm){.type = &nm_comm_none, .size = 1};
    trainer->comm = trainer->callbacks.comm ? trainer->callbacks.comm : &trainer->alone;
    if (trainer->comm->rank)
        trainer->callbacks = (nm_train_callbacks){.stop = trainer->callbacks.stop,
                                                  .comm = trainer->comm,
                                                  .dry_run = trainer->callbacks.dry_run,
                                                  .last_update = trainer->callbacks.last_update,
                                                  .shard_optimizer = trainer->callbacks.shard_optimizer};
    nm_status status = open_parts(trainer, task, folder, resume, err);
    if (status != NM_OK) {
        nm_folder_lock_release(&trainer->lock);
        if (trainer->folder)
            remove_made_folders(trainer);
        nm_trainer_close(trainer);
        return status;
    }
    trainer->started = trainer->report_clock = nm_clock();
    nm_load_meter_read(&trainer->load);
    *out = trainer;
    return NM_OK;
}

void nm_trainer_close(nm_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->log)
        fclose(trainer->log);
    json_decref(trainer->init_from);
    nm_batches_release(&trainer->batches);
    if (trainer->backend)
        nm_tape_release(&trainer->tape);
    nm_arena_release(&trainer->host);
    nm_results_release(&trainer->results);
    nm_optimizer_release(&trainer->optimizer);
    nm_ema_release(&trainer->ema);
    nm_lockstep_free(trainer->lockstep);
    for (int32_t i = 0; i < trainer->n_lanes; i++) {
        nm_tape_release(&trainer->lanes[i].tape);
        nm_arena_release(&trainer->lanes[i].host);
    }
    free(trainer->lanes);
    nm_workers_release(&trainer->workers);
    nm_shard_tree_release(&trainer->shards);
    nm_model_free(trainer->model);
    if (trainer->task.type)
        trainer->task.type->close(&trainer->task);
    nm_backend_free(trainer->backend);
    nm_folder_lock_release(&trainer->lock);
    NM_FREE(trainer->messages, trainer->config_text, trainer->folder, trainer);
}
