/* Learning-rate schedules by name. Update numbers count from 1; lr(n) is the rate that update n uses. */
#ifndef NM_SCHEDULE_H
#define NM_SCHEDULE_H

#include "train/task.h"

/* In the order of the option schedule.name. */
typedef enum nm_schedule_name {
    NM_SCHEDULE_INVERSE_SQRT,
    NM_SCHEDULE_INV_SQRT_DECAY,
    NM_SCHEDULE_VAL_DECAY,
    NM_SCHEDULE_NO_WARMUP,
    NM_SCHEDULE_COSINE,
    NM_SCHEDULE_LINEAR,
    NM_SCHEDULE_CONSTANT
} nm_schedule_name;

typedef struct nm_schedule_config {
    nm_schedule_name name;
    double lr, init_lr, scale, decay, min_lr, warmup_fraction;
    int64_t warmup, updates, patience;
} nm_schedule_config;

extern const nm_option nm_schedule_options[];    /* section [schedule] */
extern const nm_option_rule nm_schedule_rules[]; /* which options have an effect in which schedule */

enum { NM_SCHEDULE_MAX_PATIENCE = 64 };

/* What must survive a resume: rates that depend on evaluations. */
typedef struct nm_schedule_state {
    double factor;                           /* product of the decays so far */
    double scores[NM_SCHEDULE_MAX_PATIENCE]; /* the last `patience` evaluations, oldest first */
    int64_t n_scores;
} nm_schedule_state;

typedef struct nm_schedule {
    nm_schedule_config config;
    int64_t width; /* d of the model, for inv-sqrt-decay */
    nm_schedule_state state;
} nm_schedule;

/* width: the model's d. total_updates stands in for config updates = 0. */
void nm_schedule_init(nm_schedule *schedule, const nm_schedule_config *config, int64_t width,
                      int64_t total_updates);
/* Initializes the schedule from the options of an open task. Where train.epochs is the only limit, the number of updates
 * is that of the first epoch times the epochs. Sets task->plan, which models read when they are created. */
nm_status nm_schedule_of_task(nm_schedule *schedule, nm_task *task, nm_error *err);
double nm_schedule_lr(const nm_schedule *schedule, int64_t update);
/* Length of the warm-up in updates; 0 if the schedule has none. Norms with warmup = lr use it. */
int64_t nm_schedule_warmup(const nm_schedule *schedule);
/* Tells the score (higher is better) of an evaluation made after `update` updates; a ValDecay schedule may
 * decay. */
void nm_schedule_evaluated(nm_schedule *schedule, double score, int64_t update);

#endif
