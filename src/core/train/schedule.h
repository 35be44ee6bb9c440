/* Learning-rate schedules, section [schedule]. */
#pragma once

#include "norma/record.h"
#include "train/task.h"

/* In the order of the option schedule.name. */
#define NM_SCHEDULES(C)                                                                                      \
    C(NM_SCHEDULE_INVERSE_SQRT, "inverse-sqrt")                                                              \
    C(NM_SCHEDULE_INV_SQRT_DECAY, "inv-sqrt-decay")                                                          \
    C(NM_SCHEDULE_VAL_DECAY, "val-decay")                                                                    \
    C(NM_SCHEDULE_NO_WARMUP, "no-warmup")                                                                    \
    C(NM_SCHEDULE_COSINE, "cosine")                                                                          \
    C(NM_SCHEDULE_COSINE_MA2019, "cosine-ma2019")                                                            \
    C(NM_SCHEDULE_LINEAR, "linear") C(NM_SCHEDULE_CONSTANT, "constant") C(NM_SCHEDULE_WSD, "wsd")
NM_CHOICES(nm_schedule_name, NM_SCHEDULES);

typedef struct nm_schedule_config {
    nm_schedule_name name;
    double lr, init_lr, scale, decay, min_lr, warmup_fraction, decay_fraction, final_fraction;
    int64_t warmup, updates, patience;
    bool early_stopping;
} nm_schedule_config;

extern const nm_option nm_schedule_options[];
extern const nm_option_rule nm_schedule_rules[];

enum { NM_SCHEDULE_MAX_PATIENCE = 64 };

/* Named values of a checkpoint. With schedule.early_stopping: at the last skip ahead, the fraction of the
 * limits was skip_from (a of schedule.c), and the position in the schedule became skip_to (q). */
#define NM_SCHEDULE_STATE(F)                                                                                 \
    F(real, factor, "Product of the decays by validation scores so far")                                     \
    F(reals(NM_SCHEDULE_MAX_PATIENCE), scores, "Scores of the last validations, oldest first")               \
    F(int, n_scores, "Number of these scores")                                                               \
    F(real, skip_from, "Fraction of the limits at the last skip ahead; 0 before the first one")              \
    F(real, skip_to, "Position in the schedule after the last skip ahead; 0 before the first one")           \
    F(real, best, "Position in the schedule at the best validation")
NM_RECORD(nm_schedule_state, NM_SCHEDULE_STATE)

typedef struct nm_schedule {
    nm_schedule_config config; /* updates: the planned ones even if the option is 0; 0: unknown */
    int64_t width;             /* model.width, for inv-sqrt-decay and val-decay */
    double total;              /* T of schedule.c: the planned updates as estimated by nm_schedule_plan */
    nm_schedule_state state;
} nm_schedule;

/* planned_updates applies if config->updates is 0; 0: unknown. */
void nm_schedule_init(nm_schedule *schedule, const nm_schedule_config *config, int64_t width,
                      int64_t planned_updates);
/* Initializes the schedule from the options of an open task. Without train.updates, train.epochs times the
 * updates of the first epoch are planned. Sets task->plan, which models read when they are created. NM_USAGE
 * if the schedule depends on the planned updates and neither updates nor epochs nor the time are limited, or
 * if its warm-up is a fraction of them and neither updates nor epochs are limited. */
/* *updates: number of updates that train.updates or train.epochs allows, for a task whose data is open; 0:
 * unknown. */
nm_status nm_schedule_planned_updates(nm_task *task, int64_t *updates, nm_error *err);
nm_status nm_schedule_of_task(nm_schedule *schedule, nm_task *task, nm_error *err);
/* Whether the rates depend on the planned updates. */
bool nm_schedule_has_length(const nm_schedule_config *config);
/* Before an update, from 1: estimates the planned updates, so that the schedule ends when training ends.
 * time: fraction of train.seconds that has passed; 0: the time is not limited. */
void nm_schedule_plan(nm_schedule *schedule, int64_t update, double time);
/* After a validation, with schedule.early_stopping: skips ahead, so that the schedule ends when
 * train.patience ends the training. patience: fraction of train.patience that is used up, 0 after a new
 * best. */
void nm_schedule_skip(nm_schedule *schedule, int64_t update, double time, double patience);
/* Learning rate of an update, from 1. */
double nm_schedule_lr(const nm_schedule *schedule, int64_t update);
/* Length of the warm-up in updates; 0 if the schedule has none. Norms with warmup = lr use it. */
int64_t nm_schedule_warmup(const nm_schedule *schedule);
/* Records the score (higher is better) of a validation after `update` updates, which may cause a decay of
 * val-decay and no-warmup. */
void nm_schedule_evaluated(nm_schedule *schedule, double score, int64_t update);
