/* Learning-rate schedules by name. Update numbers count from 1; lr(n) is the rate that update n uses. */
#ifndef NM_SCHEDULE_H
#define NM_SCHEDULE_H

#include "norma/option.h"

typedef struct nm_schedule_config {
    const char *name;
    double lr, init_lr, scale, decay, min_lr, warmup_fraction;
    int64_t warmup, updates, patience;
} nm_schedule_config;

extern const nm_option nm_schedule_options[]; /* section [schedule] */

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
double nm_schedule_lr(const nm_schedule *schedule, int64_t update);
/* Tells the score (higher is better) of an evaluation made after `update` updates; a ValDecay schedule may
 * decay. */
void nm_schedule_evaluated(nm_schedule *schedule, double score, int64_t update);

#endif
