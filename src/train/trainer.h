/* Training: batches -> loss -> gradients -> update -> checkpoint, for any task. A run lives in a folder:
 *     config.ini, log.jsonl, best.safetensors, last.safetensors, checkpoints/N.safetensors and N.state.safetensors
 * Everything that moves is in the checkpoint: a resumed run computes the same bits as one never stopped. */
#ifndef NM_TRAINER_H
#define NM_TRAINER_H

#include <signal.h>
#include <stdio.h>

#include "train/task.h"
#include "train/schedule.h"
#include "train/hooks.h"

typedef enum nm_best_by { NM_BEST_BY_LOSS, NM_BEST_BY_SCORE } nm_best_by;
typedef enum nm_checkpointing { NM_CHECKPOINTING_NONE, NM_CHECKPOINTING_LAYER } nm_checkpointing;
/* The first three are those of nm_adam_variant. */
typedef enum nm_optimizer { NM_OPTIM_ADAM, NM_OPTIM_ADAM_FAIRSEQ, NM_OPTIM_ADAMW, NM_OPTIM_SGD } nm_optimizer;

typedef struct nm_train_config { /* section [train] */
    nm_smoothing smoothing;
    nm_checkpointing activation_checkpointing;
    nm_best_by best_by;
    double label_smoothing, max_grad_norm, clip_value, divergence_factor;
    int64_t updates, epochs, max_tokens, accumulate, seed, log_every, validate_every, validate_examples,
        patience, save_every, keep_last;
    double seconds;
    bool score, batch_loss, save_initial;
} nm_train_config;

typedef struct nm_optim_config { /* section [optim] */
    nm_optimizer name;
    double beta1, beta2, eps, weight_decay, momentum;
} nm_optim_config;

/* The soft-max loss that [train] asks for; smoothed: with its label smoothing. */
nm_loss_spec nm_train_loss(const nm_options *options, const int32_t *targets, bool smoothed);

/* What moves and isn't a tensor; all of it is saved. */
typedef struct nm_train_state {
    int64_t update, epoch, batch,
        step; /* done updates; epoch from 0; next batch in it; micro-batches so far */
    int64_t tokens, bad_checks, log_bytes, checked_epochs, checked_update;
    double best_loss, best_score, seconds; /* best_score: by train.best_by, higher is better */
    int64_t best_update;                   /* 0: no validation yet */
    double best_value;                     /* score of the task at best_update; NaN: none was computed */
    char score_title[16];                  /* of best_value: "BLEU" */
    int64_t best_by_score;     /* whether best_score is a score; otherwise it is the negative loss */
    int64_t schedule_by_score; /* the same for the scores in schedule */
    int64_t optimizer;         /* nm_optimizer_state_kind of the stored moments */
    double sum_loss, sum_nll, sum_penalty, sum_norm; /* since the last report */
    int64_t sum_tokens, sum_units, sum_updates;
    double watch_level; /* a running vector of gradients with a larger root mean square is worth a word */
    nm_schedule_state schedule;
} nm_train_state;

typedef struct nm_progress { /* told after every update */
    int64_t update, updates, epoch, batch, batches, tokens;
    double loss, nll, penalty, lr, grad_norm, tokens_per_second, seconds;
    double fraction, seconds_left; /* of the whole run that is done; NaN: no limit is set */
    double
        backward_state; /* in the log: largest root mean square of PN's and MABN's running gradient vectors */
} nm_progress;

typedef struct nm_validation {
    int64_t update, epoch;
    double loss, nll, perplexity; /* per target token, running statistics; NaN where there is no perplexity */
    double batch_loss,
        batch_nll; /* the same with the statistics of each batch; NaN when no norm uses the batch */
    nm_task_score score;
    int64_t masked; /* target tokens outside the output vocabulary (data.mask_words): not in the losses */
    bool best;
    double seconds;
} nm_validation;

typedef struct nm_train_listener { /* any may be NULL */
    void *user;
    const char *command; /* command line, for the log; NULL: unknown */
    void (*progress)(void *user, const nm_progress *progress);
    void (*validated)(void *user, const nm_validation *validation);
    void (*message)(void *user, const char *text);
    const volatile sig_atomic_t *stop; /* non-zero: finish the update, save, return NM_INTERRUPTED */
    const nm_train_hooks *watch;       /* instruments */
} nm_train_listener;

typedef struct nm_trainer nm_trainer;

/* Registers [data] and [model] of the task's kind, [norm.*], [train], [optim], [schedule], [decode], [device]. */
void nm_trainer_options_add(nm_options *options, const nm_task_type *task);

/* Opens data, builds the model, takes memory. folder is created; it must hold no run unless resume. With resume the
 * newest complete checkpoint is loaded (none: starts afresh). options must outlive the trainer. */
nm_status nm_trainer_open(nm_trainer **trainer, const nm_task_type *task, const nm_options *options,
                          const char *folder, bool resume, const nm_train_listener *listener, nm_error *err);
/* Trains until updates, epochs, seconds, patience or the schedule says stop. NM_INTERRUPTED after a stop signal,
 * NM_DIVERGED when the loss or a gradient is not finite. */
nm_status nm_trainer_run(nm_trainer *trainer, nm_error *err);
void nm_trainer_close(nm_trainer *trainer);

const nm_backend *nm_trainer_backend(const nm_trainer *trainer);
nm_model *nm_trainer_model(const nm_trainer *trainer);
const nm_train_state *nm_trainer_state(const nm_trainer *trainer);
/* Bytes a step needs at most: parameters, gradients, optimizer, activations; from the dry run. */
size_t nm_trainer_peak_bytes(const nm_trainer *trainer);
uint64_t nm_trainer_weights_hash(const nm_trainer *trainer);

typedef struct
    nm_profile { /* where the time of the updates since opening went, but for the first, which takes the memory */
    int64_t updates, tokens;
    double seconds;
    nm_kernel_time kernels[NM_N_KERNELS]; /* longest first; their sum is less than `seconds` */
    int n_kernels;
} nm_profile;
/* Empty unless device.profile is set. */
nm_profile nm_trainer_profile(const nm_trainer *trainer);

/* One update without logging or checkpoints: for tests and benchmarks. */
nm_status nm_trainer_update(nm_trainer *trainer, nm_progress *progress, nm_error *err);
nm_status nm_trainer_validate(nm_trainer *trainer, nm_validation *validation, nm_error *err);
nm_status nm_trainer_save(nm_trainer *trainer, nm_error *err);

#endif
