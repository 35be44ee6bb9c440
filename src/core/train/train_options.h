/* Training options: the sections [train] and [optim], and the registration of all sections of a task. */
#pragma once

#include "train/muon.h"
#include "train/optimizers.h"
#include "train/task.h"

#define NM_BEST_BYS(C) C(NM_BEST_BY_LOSS, "loss") C(NM_BEST_BY_SCORE, "score")
NM_CHOICES(nm_best_by, NM_BEST_BYS);
#define NM_CHECKPOINTINGS(C) C(NM_CHECKPOINTING_NONE, "none") C(NM_CHECKPOINTING_LAYER, "layer")
NM_CHOICES(nm_checkpointing, NM_CHECKPOINTINGS);

/* Matrices are parameters with more than one row. */
#define NM_DECAYED_PARAMETERS(C) C(NM_DECAYED_ALL, "all") C(NM_DECAYED_MATRICES, "matrices")
NM_CHOICES(nm_decayed, NM_DECAYED_PARAMETERS);

/* Section [train]; the help texts in train_options.c describe the fields. */
typedef struct nm_train_config {
    nm_smoothing smoothing;
    nm_checkpointing activation_checkpointing;
    nm_best_by best_by;
    double label_smoothing, max_grad_norm, clip_value, divergence_factor, seconds, ema_decay;
    int64_t updates, epochs, max_tokens, shards, seed, log_every, validate_every, validate_examples, patience,
        save_every, keep_last;
    bool balance_shards, score, batch_loss, save_initial, check_shard;
} nm_train_config;

/* Section [optim]. */
typedef struct nm_optim_config {
    nm_optimizer_name name;
    nm_muon_scale muon_scale;
    nm_decayed decayed_parameters;
    double beta1, beta2, eps, weight_decay, momentum, muon_momentum, muon_lr_factor;
    int64_t muon_steps;
    bool muon_nesterov;
} nm_optim_config;

/* Registers [data] and [model] of the task, [norm.*], [train], [optim], [schedule], further sections of
 * the task such as [decode], and [device], with their rules. */
void nm_train_options_add(nm_options *options, const nm_task_type *task);

/* Specification of the softmax loss. smoothed: with train.label_smoothing. targets: host, must outlive the
 * result. */
nm_loss_spec nm_train_loss(const nm_options *options, const int32_t *targets, bool smoothed);
