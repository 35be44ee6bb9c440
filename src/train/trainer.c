#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "backend/device.h"
#include "base/file.h"
#include "train/run_config.h"
#include "train/trainer_private.h"

#define TRAIN(field, initial, min, max, help) NM_OPTION(nm_train_config, field, initial, min, max, help)
#define OPTIM(field, initial, min, max, help) NM_OPTION(nm_optim_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option train_options[] = {
    TRAIN(updates, "0", 0, 1e12, "stop after so many updates; 0: no limit"),
    TRAIN(epochs, "0", 0, 1e9, "stop after so many epochs; 0: no limit"),
    TRAIN(seconds, "0", 0, 1e9, "stop after so many seconds of training, counted over resumes; 0: no limit"),
    TRAIN(max_tokens, "4096", 1, 1 << 24, "tokens of a batch per side: the batch that statistics are taken over"),
    TRAIN(accumulate, "1", 1, 1 << 20, "batches of an update: the optimizer's batch"),
    NM_CHOICE(nm_train_config, activation_checkpointing, "none", "none|layer", "what backward computes again instead of keeping it: nothing, or whole layers; same bits, less memory, more time"),
    TRAIN(seed, "1", 0, 4294967295.0, "of everything that is drawn"),
    TRAIN(label_smoothing, "0.1", 0, 0.99, "epsilon"),
    NM_CHOICE(nm_train_config, smoothing, "uniform", "uniform|others", "over all words (uniform; with data.mask_words over allowed ones, Tears' form), or over the other words"),
    TRAIN(max_grad_norm, "0", 0, 1e9, "largest gradient norm; 0: no clipping"),
    TRAIN(clip_value, "0", 0, 1e9, "largest size of each number of the gradient (sgd only); 0: no clipping"),
    TRAIN(divergence_factor, "4", 0, 1e9, "a loss above this many times ln(vocabulary) counts as diverged; 0: only what is not finite"),
    TRAIN(log_every, "50", 1, 1e9, "updates between lines of the log"),
    TRAIN(validate_every, "0", 0, 1e12, "updates between validations; 0: after every epoch"),
    TRAIN(validate_examples, "0", 0, 1e12, "examples scored at a validation; 0: all"),
    TRAIN(score, "true", 0, 1, "compute the task's score (BLEU, F1, accuracy) at validations"),
    TRAIN(batch_loss, "true", 0, 1, "at validations also the loss with batch statistics, for norms that use them"),
    NM_CHOICE(nm_train_config, best_by, "loss", "loss|score", "what the best checkpoint is best at"),
    TRAIN(patience, "0", 0, 1e9, "stop at so many validations in a row that bring no new best; 0: never"),
    TRAIN(save_every, "0", 0, 1e12, "updates between checkpoints; 0: at validations only"),
    TRAIN(keep_last, "2", 1, 1e6, "newest checkpoints to keep"),
    TRAIN(save_initial, "false", 0, 1, "Write a checkpoint of update 0 before training and keep it, for norma inspect --checkpoints."),
    {0}};
static const nm_option optim_options[] = {
    NM_CHOICE(nm_optim_config, name, "adam-fairseq", "adam|adam-fairseq|adamw|sgd", "torch's Adam, fairseq's (decoupled decay), torch's AdamW, or momentum SGD"),
    OPTIM(beta1, "0.9", 0, 0.999999, "decay of the first moment"),
    OPTIM(beta2, "0.98", 0, 0.999999999, "decay of the second moment"),
    OPTIM(eps, "1e-8", 0, 1, "in the denominator"),
    OPTIM(weight_decay, "0", 0, 1, "on every parameter"),
    OPTIM(momentum, "0.9", 0, 1, "of sgd"),
    {0}};
/* clang-format on */

static bool best_by_applies(const nm_options *options)
{
    const nm_train_config *train = nm_options_find(options, "train");
    return train->score || train->best_by != NM_BEST_BY_SCORE;
}

static const nm_option_rule rules[] = {
    {"train.clip_value", "optim.name", "sgd",
     "gradient values are clipped for SGD only; train.max_grad_norm clips the gradient norm", NULL},
    {"train.smoothing", "train.label_smoothing", "!", "there is no label smoothing", NULL},
    {"train.validate_examples", "train.score", "true", "validations compute no score", NULL},
    {"train.best_by", NULL, NULL, "train.score = false, so validations compute no score", best_by_applies},
    {"optim.momentum", "optim.name", "sgd", "only SGD has momentum; Adam has optim.beta1", NULL},
    {"optim.beta1", "optim.name", "!sgd", "SGD has optim.momentum", NULL},
    {"optim.beta2", "optim.name", "!sgd", "SGD has no second moment", NULL},
    {"optim.eps", "optim.name", "!sgd", "SGD has no denominator", NULL},
    {"optim.weight_decay", "optim.name", "!sgd", "weight decay is implemented for Adam only", NULL},
    {0}};

void nm_trainer_options_add(nm_options *options, const nm_task_type *task)
{
    nm_options_add(options, "data", task->options, NULL, task->config_size);
    nm_model_options_add(options, task->model);
    nm_options_add(options, "train", train_options, NULL, sizeof(nm_train_config));
    nm_options_add(options, "optim", optim_options, NULL, sizeof(nm_optim_config));
    nm_options_add(options, "schedule", nm_schedule_options, NULL, sizeof(nm_schedule_config));
    if (task->more_options)
        task->more_options(options);
    nm_options_add_rules(options, rules);
    nm_options_add_rules(options, nm_schedule_rules);
    nm_device_options_add(options);
}

nm_loss_spec nm_train_loss(const nm_options *options, const int32_t *targets, bool smoothed)
{
    const nm_train_config *train = nm_options_find(options, "train");
    return (nm_loss_spec){
        .smoothing = train->smoothing, .eps = smoothed ? train->label_smoothing : 0, .targets = targets};
}

double nm_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void nm_trainer_message(const nm_trainer *trainer, const char *format, ...)
{
    if (!trainer->listener.message)
        return;
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    trainer->listener.message(trainer->listener.user, text);
}

/* ---- opening ---- */

static nm_status open_task(nm_trainer *trainer, const nm_task_type *task, nm_error *err)
{
    trainer->task = (nm_task){.type = task,
                              .options = trainer->options,
                              .config = nm_options_find(trainer->options, "data"),
                              .seed = (uint64_t)trainer->config->seed,
                              .max_tokens = trainer->config->max_tokens};
    return task->open(&trainer->task, err);
}

/* Runs of parameters between fixed ones. */
static void find_spans(nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    trainer->spans = nm_allocate((params->n + 1) * sizeof *trainer->spans);
    for (size_t i = 0; i < params->n; i++) {
        size_t end = i + 1 < params->n ? params->list[i + 1]->offset : params->n_elements;
        if (params->list[i]->fixed)
            continue;
        nm_span *next = &trainer->spans[trainer->n_spans];
        if (trainer->n_spans && next[-1].first + next[-1].n == params->list[i]->offset) {
            next[-1].n = end - next[-1].first;
        } else {
            *next = (nm_span){params->list[i]->offset, end - params->list[i]->offset};
            trainer->n_spans++;
        }
    }
}

static nm_status open_model(nm_trainer *trainer, nm_error *err)
{
    nm_model_sizes sizes = trainer->task.type->sizes(&trainer->task);
    NM_TRY(nm_model_create(&trainer->model, trainer->task.type->model, trainer->backend, trainer->options,
                           &sizes, true, err));
    if (trainer->task.type->prepare_model)
        NM_TRY(trainer->task.type->prepare_model(&trainer->task, trainer->model, err));
    nm_params_initialize(&trainer->model->params, (uint64_t)trainer->config->seed);
    if (trainer->task.type->first_values)
        NM_TRY(trainer->task.type->first_values(&trainer->task, trainer->model, err));
    size_t bytes = nm_params_bytes(&trainer->model->params);
    NM_TRY(nm_backend_alloc(trainer->backend, bytes, &trainer->m, err));
    NM_TRY(nm_backend_alloc(trainer->backend, bytes, &trainer->v, err));
    find_spans(trainer);
    return NM_OK;
}

static nm_status open_tape(nm_trainer *trainer, nm_error *err)
{
    enum {
        RESERVE_FACTOR = 4
    }; /* address space only; the dry run compares the need with what the machine has */
    size_t have = nm_device_memory_bytes(trainer->device);
    NM_TRY(nm_tape_init(&trainer->tape, trainer->backend, have * RESERVE_FACTOR, err));
    trainer->tape.recompute = trainer->config->activation_checkpointing == NM_CHECKPOINTING_LAYER;
    NM_TRY(nm_arena_init(&trainer->host, (size_t)1 << 36, err));
    NM_TRY(nm_trainer_dry_run(trainer, err));
    if (trainer->peak_bytes > have)
        return nm_fail(err, NM_MEMORY,
                       "a step needs up to %zu MiB, there are %zu: lower train.max_tokens (and raise "
                       "train.accumulate)",
                       trainer->peak_bytes >> 20, have >> 20);
    return NM_OK;
}

static nm_status open_folder(nm_trainer *trainer, const char *folder, bool resume, nm_error *err)
{
    trainer->folder = nm_duplicate(folder);
    static const char *const files[] = {"log.jsonl", "best.safetensors", "last.safetensors"};
    char *checkpoints = nm_path_join(folder, "checkpoints");
    nm_status status = nm_folder_create(checkpoints, err);
    free(checkpoints);
    bool has_run = false;
    if (status == NM_OK)
        status = nm_folder_lock_acquire(&trainer->lock, folder, err);
    if (status == NM_OK)
        status = nm_trainer_has_checkpoint(trainer, &has_run, err);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = nm_path_join(folder, files[i]);
        has_run |= nm_file_exists(path);
        free(path);
    }
    if (status == NM_OK && has_run && !resume)
        return nm_fail(err, NM_USAGE,
                       "%s already contains a run: continue it with --resume or choose another folder",
                       folder);
    return status;
}

/* Writes config.ini. Changes to the configuration of a resumed run are recorded in the log. */
static nm_status open_log(nm_trainer *trainer, bool resumed, nm_error *err)
{
    json_t *changes = NULL;
    if (resumed)
        NM_TRY(nm_run_config_changes(trainer->options, trainer->folder, &changes, err));
    nm_status status = NM_OK;
    if (!resumed || changes)
        status = nm_run_config_write(trainer->options, trainer->folder, err);
    if (status == NM_OK)
        status = nm_log_open(trainer, err);
    if (status == NM_OK && changes)
        return nm_log_resume(trainer, changes, err);
    json_decref(changes);
    return status;
}

/* Reports once per type what follows for its norms from the planned updates: warm-ups, ramps. */
static void report_norms(const nm_trainer *trainer)
{
    const nm_params *params = &trainer->model->params;
    for (size_t i = 0; i < params->n_norms; i++) {
        const nm_norm *norm = params->norms[i];
        bool first = true;
        for (size_t k = 0; k < i; k++)
            first &= params->norms[k]->type != norm->type;
        char text[256];
        if (!first || !norm->type->note)
            continue;
        norm->type->note(norm, text, sizeof text);
        nm_trainer_message(trainer, "norm %s at %s: %s", norm->type->name, norm->site.name, text);
    }
}

static nm_status open_parts(nm_trainer *trainer, const nm_task_type *task, const char *folder, bool resume,
                            nm_error *err)
{
    char *warning;
    NM_TRY(nm_options_check(trainer->options, &warning, err));
    if (warning)
        nm_trainer_message(trainer, "warning: %s", warning);
    free(warning);
    NM_TRY(nm_device_require_float(trainer->device, "training", err));
    NM_TRY(nm_device_open(trainer->device, &trainer->backend, err));
    NM_TRY(open_task(trainer, task, err));
    trainer->total_updates = trainer->config->updates;
    NM_TRY(nm_schedule_of_task(&trainer->schedule, &trainer->task, err));
    NM_TRY(open_model(trainer, err));
    report_norms(trainer);
    NM_TRY(open_tape(trainer, err));
    NM_TRY(open_folder(trainer, folder, resume, err));
    trainer->state = (nm_train_state){.best_score = -INFINITY,
                                      .best_loss = INFINITY,
                                      .watch_level = 1e3,
                                      .optimizer = nm_optimizer_state_kind(trainer->optim),
                                      .schedule = trainer->schedule.state};
    bool found = false;
    if (resume)
        NM_TRY(nm_trainer_resume(trainer, &found, err));
    if (found)
        nm_trainer_message(trainer, "resumed at update %" PRId64 ", epoch %" PRId64 ", batch %" PRId64,
                           trainer->state.update, trainer->state.epoch + 1, trainer->state.batch);
    trainer->seconds_before = trainer->state.seconds;
    return open_log(trainer, found, err);
}

nm_status nm_trainer_open(nm_trainer **out, const nm_task_type *task, const nm_options *options,
                          const char *folder, bool resume, const nm_train_listener *listener, nm_error *err)
{
    nm_trainer *trainer = nm_allocate(sizeof *trainer);
    *trainer = (nm_trainer){.options = options,
                            .config = nm_options_find(options, "train"),
                            .optim = nm_options_find(options, "optim"),
                            .device = nm_options_find(options, "device")};
    if (listener)
        trainer->listener = *listener;
    nm_status status = open_parts(trainer, task, folder, resume, err);
    if (status != NM_OK) {
        nm_trainer_close(trainer);
        return status;
    }
    trainer->started = trainer->report_clock = nm_clock();
    *out = trainer;
    return NM_OK;
}

void nm_trainer_close(nm_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->log)
        fclose(trainer->log);
    nm_batches_release(&trainer->batches);
    if (trainer->backend)
        nm_tape_release(&trainer->tape);
    nm_arena_release(&trainer->host);
    if (trainer->m)
        nm_backend_dealloc(trainer->backend, trainer->m);
    if (trainer->v)
        nm_backend_dealloc(trainer->backend, trainer->v);
    nm_model_free(trainer->model);
    if (trainer->task.type)
        trainer->task.type->close(&trainer->task);
    nm_backend_free(trainer->backend);
    nm_folder_lock_release(&trainer->lock);
    free(trainer->spans);
    free(trainer->folder);
    free(trainer);
}

/* ---- looking in ---- */

const nm_backend *nm_trainer_backend(const nm_trainer *trainer)
{
    return trainer->backend;
}

nm_model *nm_trainer_model(const nm_trainer *trainer)
{
    return trainer->model;
}

const nm_train_state *nm_trainer_state(const nm_trainer *trainer)
{
    return &trainer->state;
}

size_t nm_trainer_peak_bytes(const nm_trainer *trainer)
{
    return trainer->peak_bytes;
}

uint64_t nm_trainer_weights_hash(const nm_trainer *trainer)
{
    nm_host_copies copies = {0};
    size_t bytes = nm_params_bytes(&trainer->model->params);
    const void *host = nm_host_copies_add(&copies, trainer->backend, trainer->model->params.values, bytes);
    uint64_t hash = XXH3_64bits(host, bytes);
    nm_host_copies_release(&copies);
    return hash;
}

nm_profile nm_trainer_profile(const nm_trainer *trainer)
{
    nm_profile profile = {.updates = trainer->profile.updates,
                          .tokens = trainer->profile.tokens,
                          .seconds = trainer->profile.seconds};
    profile.n_kernels = nm_backend_times(trainer->backend, profile.kernels);
    return profile;
}
