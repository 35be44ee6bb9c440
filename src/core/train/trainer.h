/* Training of any task: batches, loss, gradients, updates, validations, checkpoints. The files of a run
 * folder are documented in docs/formats.md. A checkpoint contains the complete training state: a resumed run
 * is bitwise identical to an uninterrupted one. */
#pragma once

#include <signal.h>
#include <stdio.h>

#include "base/record.h"
#include "train/comm.h"
#include "norma/train.h"
#include "train/hooks.h"
#include "train/train_options.h"
#include "train/schedule.h"

/* The training state except tensors: named values of a checkpoint (train_state.c). */
#define NM_TRAIN_STATE(F)                                                                                    \
    F(int, update, "Number of finished updates")                                                             \
    F(int, epoch, "Epoch, from 0")                                                                           \
    F(int, batch, "Index of the next batch of the epoch")                                                    \
    F(int, step, "Number of finished micro-batches")                                                         \
    F(int, tokens, "Number of tokens so far")                                                                \
    F(int, bad_checks, "Consecutive validations without a new best")                                         \
    F(int, log_bytes, "Length of log.jsonl")                                                                 \
    F(int, checked_epochs, "Finished epochs at the last validation")                                         \
    F(int, checked_update, "Update of the last validation, or 0")                                            \
    F(real, best_loss, "Validation loss at best_update")                                                     \
    F(real, best_score, "By train.best_by at best_update: score or negative loss; higher is better")         \
    F(real, seconds, "Training time")                                                                        \
    F(int, best_update, "Update of the best validation, or 0")                                               \
    F(real, best_value, "Score of the task at best_update; NaN if none was computed")                        \
    F(chars(16), score_title, "Name of best_value, for example BLEU")                                        \
    F(int, best_by_score, "Whether best_score is a score")                                                   \
    F(int, schedule_by_score, "Whether schedule.scores are scores; otherwise negative losses")               \
    F(int, optimizer, "Kind of the stored moments, see optim.name")                                          \
    F(real, sum_loss, "Sums since the last record of the log: loss")                                         \
    F(real, sum_nll, "negative log-likelihood")                                                              \
    F(real, sum_penalty, "penalty")                                                                          \
    F(real, sum_norm, "gradient norm")                                                                       \
    F(int, sum_tokens, "tokens")                                                                             \
    F(int, sum_targets, "targets")                                                                           \
    F(int, sum_updates, "updates")                                                                           \
    F(real, warned_level,                                                                                    \
      "Root mean square of a running gradient statistic above which a warning is issued")                    \
    F(other(nm_schedule_state), schedule, "State of the schedule")
NM_RECORD(nm_train_state, NM_TRAIN_STATE)
const nm_field *nm_train_state_fields(void);

/* Writes and reads all values of the state. state: initialized, because values that the file lacks remain.
 * States of versions up to 0.1, which stored the bytes of the struct, are read, too.
 *
 * NM_FORMAT  the file has no training state, or an invalid one */
void nm_train_state_write(const nm_train_state *state, nm_safetensors_writer *writer);
nm_status nm_train_state_read(nm_train_state *state, const nm_safetensors *file, nm_error *err);

/* Any member may be NULL. */
typedef struct nm_train_callbacks {
    void *user;          /* first argument of the callbacks */
    const char *command; /* command line, for the log */
    void (*progress)(void *user, const nm_training_progress *progress);
    /* before a validation; last_seconds: the duration of the one before in this session, 0 if there was
     * none */
    void (*validating)(void *user, int64_t update, double last_seconds);
    void (*validated)(void *user, const nm_training_validation *validation);
    void (*message)(void *user, const char *text);
    /* Nonzero requests to finish the update, or to end the validation, to save and to return NM_INTERRUPTED.
     * A resumed run repeats the validation. With several processes, the score of a validation does not end
     * early. */
    const nm_stop *stop;
    const nm_train_hooks *hooks;
    /* The processes that train together, all with the same options; NULL: a single process. Rank 0 writes the
     * files and calls the callbacks; `stop` may be set in any process. After an error the caller calls
     * nm_comm_finish. */
    nm_comm *comm;
    /* The trainer is opened to measure the model only: no folder, no files, and it must not run. */
    bool dry_run;
    /* nm_trainer_run ends with a checkpoint after this update, as if it had not ended; 0: with the run. */
    int64_t last_update;
    bool shard_optimizer; /* each process has the optimizer state of a part of the parameters */
} nm_train_callbacks;

typedef struct nm_trainer nm_trainer;

/* Opens the data, creates the model, measures and allocates memory, creates and locks the folder. NM_USAGE
 * without resume if the folder contains a run. With resume the newest intact checkpoint is loaded; if there
 * is no checkpoint the run starts from the beginning. options and task must outlive the trainer; callbacks
 * are copied and may be NULL. */
nm_status nm_trainer_open(nm_trainer **trainer, const nm_task_type *task, const nm_options *options,
                          const char *folder, bool resume, const nm_train_callbacks *callbacks,
                          nm_error *err);
/* Trains until a limit of [train] or schedule.min_lr is reached. NM_INTERRUPTED after a stop request;
 * NM_DIVERGED if the loss, a penalty or the gradient norm is not finite, or if the loss exceeds the
 * divergence threshold. */
nm_status nm_trainer_run(nm_trainer *trainer, nm_error *err);
/* NULL is accepted. */
void nm_trainer_close(nm_trainer *trainer);

const nm_backend *nm_trainer_backend(const nm_trainer *trainer);
nm_model *nm_trainer_model(const nm_trainer *trainer);
const nm_task *nm_trainer_task(const nm_trainer *trainer);
const nm_train_state *nm_trainer_state(const nm_trainer *trainer);
/* Maximum memory of an update in bytes: parameters, gradients, optimizer state and activations, measured by a
 * dry run. */
size_t nm_trainer_peak_bytes(const nm_trainer *trainer);
size_t nm_trainer_parameters(const nm_trainer *trainer); /* number of learned parameters */
/* XXH3-64 of the parameters. */
uint64_t nm_trainer_weights_hash(const nm_trainer *trainer);

/* Time per kernel over all updates except the first, which allocates memory. */
typedef struct nm_profile {
    int64_t updates, tokens;
    double seconds;
    nm_kernel_time kernels[NM_N_KERNELS]; /* in descending order of time; their sum is less than `seconds` */
    int n_kernels;
} nm_profile;
/* All zero unless device.profile is set. */
nm_profile nm_trainer_profile(const nm_trainer *trainer);

/* NM_DIVERGED for a validation loss that is not finite; the message names a running statistic that is not. */
nm_status nm_fail_validation(nm_trainer *trainer, double loss, nm_error *err);
/* One update without logging or checkpoints, for tests and benchmarks. */
nm_status nm_trainer_update(nm_trainer *trainer, nm_training_progress *progress, nm_error *err);
/* The texts of the validation are those of the score, which the caller releases. */
nm_status nm_trainer_validate(nm_trainer *trainer, nm_training_validation *validation, nm_task_score *score,
                              nm_error *err);
nm_status nm_trainer_save(nm_trainer *trainer, nm_error *err);
