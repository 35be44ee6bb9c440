/* Learning-rate schedules.
 *
 *     n     number of the update, from 1         W     warm-up in updates
 *     lr    schedule.lr                          T     planned updates, estimated by nm_schedule_plan
 *     f     schedule.scale (lambda)              d     model.width
 *     init  schedule.init_lr                     c     product of the decays so far
 *
 *     name             rate of update n
 *     inverse-sqrt     init + (n-1) (lr-init)/W   if n <= W,   lr sqrt(W/(n-1))                  otherwise
 *     inv-sqrt-decay   f d^-0.5 min(n^-0.5, n W^-1.5)
 *     val-decay        c f d^-0.5 min(n, W-1) W^-1.5
 *     no-warmup        c lr
 *     cosine           lr n/W                     if n < W,    lr F(1/2 (1 + cos(pi
 *                      (n-W)/(T-W))))   otherwise
 *     cosine-ma2019    lr                         if n = 1,
 *                      lr (n-1)/W                 if n <= W,   lr F(1/2 (1 + cos(pi
 *                      (n-1)/T)))       otherwise
 *     linear           lr n/W                     if n <= W,   lr
 *                      F((T-n)/(T-W))                     otherwise
 *     constant         lr
 *     wsd              lr min(n/W, F(min(1, (T-n)/(D T))))    D = schedule.decay_fraction
 *
 *     F(x) = x + r (1 - x), from 1 to r    r = schedule.final_fraction
 *
 * inverse-sqrt is that of fairseq; inv-sqrt-decay is eq. 7 of Nguyen and Salazar 2019; val-decay and
 * no-warmup are those of their section 3.3, as in their code; cosine-ma2019 is that of the code of Ma et al.
 * 2019; linear is that of fastNLP; wsd (warm-up, stable, decay) is that of Hu et al. 2024 (MiniCPM) with the
 * linear decay of Hägele et al. 2024.
 *
 * The schedules with T end when training ends. Before update n of a training run limited to N updates and S
 * seconds, after s seconds,
 *
 *     b = max(n/N, s/S n/(n-1))          fraction of the limits
 *     p = q + (1-q) (b-a)/(1-a)          position in the schedule
 *     T = n/p
 *
 * b = n/N while s/S < 0.05, because the first updates are slower. a and q are 0 until schedule.early_stopping
 * skips ahead: then a is b, and q the new position. Without skips, T = N exactly while n/N is the larger
 * fraction: the rates of such a run do not depend on time. */
#include "train/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "norma/norm_type.h"
#include "train/train_options.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_schedule_config, field, initial, min, max, help)
#define RULE(field, names, reason)                                                                           \
    {                                                                                                        \
        "schedule." #field, "schedule.name", names, reason, NULL                                             \
    }

/* clang-format off */
const nm_option nm_schedule_options[] = {
    NM_CHOICE(nm_schedule_config, name, "inverse-sqrt",
              NM_SCHEDULES,
              "Learning-rate schedule. inverse-sqrt, cosine and linear: warm-up to lr, then decay with "
                  "1/sqrt(update), a cosine or a line; inv-sqrt-decay: as inverse-sqrt, with the peak scale "
                  "/ sqrt(model.width warmup); val-decay: the same warm-up, then decay by validation scores; "
                  "no-warmup: lr, with decay by validation scores; "
                  "cosine-ma2019: the cosine of the tensorized Transformer's code; constant: lr; "
                  "wsd (warm-up, stable, decay): warm-up to lr, then lr, which decreases linearly in the "
                  "last decay_fraction of the planned updates."),
    ROW(lr, "0.0005", 0, 100,
        "Peak learning rate; not used by inv-sqrt-decay and val-decay, which have schedule.scale."),
    ROW(init_lr, "0", 0, 100, "Learning rate of the first update (inverse-sqrt)."),
    ROW(warmup, "4000", 0, 1e12,
        "Number of warm-up updates, in which the learning rate rises linearly to its peak; "
        "0 disables warm-up."),
    ROW(warmup_fraction, "0", 0, 1,
        "Warm-up as a fraction of the planned updates, in place of schedule.warmup; "
        "0: schedule.warmup applies."),
    ROW(scale, "1", 0, 1e6, "Factor of the learning rate (inv-sqrt-decay, val-decay)."),
    ROW(decay, "0.8", 0, 1, "Factor of the learning rate at each decay (val-decay, no-warmup)."),
    ROW(patience, "3", 1, NM_SCHEDULE_MAX_PATIENCE,
        "Number of previous validations that a score must be worse than to cause a decay (val-decay, "
        "no-warmup)."),
    ROW(decay_fraction, "0.2", 0, 1,
        "Fraction of the planned updates in which the rate decreases (wsd); 0: constant after the warm-up."),
    ROW(final_fraction, "0", 0, 1,
        "Final learning rate as a fraction of schedule.lr (cosine, cosine-ma2019, linear, wsd)."),
    ROW(updates, "0", 0, 1e12,
        "Planned updates of cosine, cosine-ma2019, linear and wsd; "
        "0: those of train.updates or train.epochs. With train.seconds the schedule follows updates or time, "
        "whichever is further, which is reproducible only if the updates are always further."),
    ROW(early_stopping, "false", 0, 1,
        "Shortening of cosine, cosine-ma2019, linear and wsd by each validation without a new best, so that "
        "the rate is final when train.patience ends the training."),
    ROW(min_lr, "0", 0, 100,
        "Learning rate below which training stops after the warm-up; 0 disables the limit."),
    {0}};
/* clang-format on */

static bool rate_decreases(const nm_options *options)
{
    const nm_schedule_config *config = nm_options_find(options, "schedule");
    return config->name != NM_SCHEDULE_WSD || config->decay_fraction > 0;
}

/* clang-format off */
const nm_option_rule nm_schedule_rules[] = {
    RULE(lr, "!inv-sqrt-decay|val-decay",
        "the rate follows from schedule.scale, schedule.warmup and model.width"),
    RULE(init_lr, "inverse-sqrt", "only inverse-sqrt has an initial rate"),
    RULE(warmup, "!no-warmup|constant", "the schedule has no warm-up"),
    {"schedule.warmup", "schedule.warmup_fraction", "0",
        "the warm-up is a fraction of the planned updates; set schedule.warmup_fraction = 0 to give a number "
        "of updates", NULL},
    RULE(warmup_fraction, "!no-warmup|constant", "the schedule has no warm-up"),
    RULE(scale, "inv-sqrt-decay|val-decay", "the peak rate is schedule.lr"),
    RULE(decay, "val-decay|no-warmup", "the rate does not depend on validations"),
    RULE(patience, "val-decay|no-warmup", "the rate does not depend on validations"),
    RULE(decay_fraction, "wsd", "only wsd has a constant rate before its decay"),
    RULE(final_fraction, "cosine|cosine-ma2019|linear|wsd", "the rate does not decrease to a final value"),
    {"schedule.final_fraction", "schedule.decay_fraction", NULL, "the rate does not decrease",
        rate_decreases},
    RULE(updates, "cosine|cosine-ma2019|linear|wsd",
        "the rate does not depend on the number of updates of the run"),
    RULE(early_stopping, "cosine|cosine-ma2019|linear|wsd",
        "the rate does not depend on the number of updates of the run"),
    {"schedule.early_stopping", "train.patience", "!0", "early stopping is disabled", NULL},
    {0}};
/* clang-format on */

/* W, which may be fractional. */
static double warmup_length(const nm_schedule *s)
{
    double fraction = s->config.warmup_fraction;
    return fraction > 0 ? fmax(fraction * s->total, 1) : (double)s->config.warmup;
}

static double inv_sqrt_decay(const nm_schedule *s, double n)
{
    double w = warmup_length(s), peak = s->config.scale / sqrt((double)s->width);
    double rise = w > 0 ? n * pow(w, -1.5) : INFINITY, fall = 1 / sqrt(n);
    return peak * (rise < fall ? rise : fall);
}

/* In the authors' code the warm-up ends at n = W - 1. */
static double val_decay(const nm_schedule *s, double n)
{
    double w = warmup_length(s), last = w > 1 ? w - 1 : 1;
    double rise = s->config.scale / sqrt((double)s->width) * (n < last ? n : last) * pow(w > 0 ? w : 1, -1.5);
    return rise * s->state.factor;
}

static double no_warmup(const nm_schedule *s, double n)
{
    (void)n;
    return s->config.lr * s->state.factor;
}

static double inverse_sqrt(const nm_schedule *s, double n)
{
    double done = n - 1, w = warmup_length(s), lr = s->config.lr, init = w > 0 ? s->config.init_lr : lr;
    if (done < w)
        return init + done * (lr - init) / w;
    return done > 0 ? lr * sqrt(w > 0 ? w : 1) / sqrt(done) : lr;
}

/* F. factor: from 1 to 0. */
static double to_final(const nm_schedule *s, double factor)
{
    return factor + s->config.final_fraction * (1 - factor);
}

static double half_cosine(double done, double length)
{
    if (done <= 0)
        return 1;
    return done >= length ? 0 : 0.5 * (1 + cos(3.14159265358979323846 * done / length));
}

static double cosine(const nm_schedule *s, double n)
{
    double total = s->total, w = warmup_length(s);
    return n < w ? s->config.lr * n / w : s->config.lr * to_final(s, half_cosine(n - w, total - w));
}

/* The authors' code sets the rate after each update, so that the first update uses the peak rate. */
static double cosine_ma2019(const nm_schedule *s, double n)
{
    double done = n - 1, w = warmup_length(s), total = s->total;
    if (done == 0)
        return s->config.lr;
    return done < w ? s->config.lr * done / w : s->config.lr * to_final(s, half_cosine(done, total));
}

static double linear(const nm_schedule *s, double n)
{
    double total = s->total, w = fmax(warmup_length(s), 1);
    double factor = n <= w ? n / w : isinf(total) ? 1 : to_final(s, fmax((total - n) / (total - w), 0));
    return s->config.lr * factor;
}

static double constant(const nm_schedule *s, double n)
{
    (void)n;
    return s->config.lr;
}

static double warmup_stable_decay(const nm_schedule *s, double n)
{
    double decay = s->config.decay_fraction * s->total, w = fmax(warmup_length(s), 1);
    double factor = decay > 0 && !isinf(decay) ? fmax(fmin(1, (s->total - n) / decay), 0) : 1;
    return s->config.lr * fmin(n / w, to_final(s, factor));
}

static const struct {
    double (*rate)(const nm_schedule *s, double n);
    bool warms_up;
    bool decays;     /* by validation scores, after the warm-up */
    bool has_length; /* the rate depends on the planned updates */
} schedules[] = {
    [NM_SCHEDULE_INVERSE_SQRT] = {inverse_sqrt, .warms_up = true},
    [NM_SCHEDULE_INV_SQRT_DECAY] = {inv_sqrt_decay, .warms_up = true},
    [NM_SCHEDULE_VAL_DECAY] = {val_decay, .warms_up = true, .decays = true},
    [NM_SCHEDULE_NO_WARMUP] = {no_warmup, .decays = true},
    [NM_SCHEDULE_COSINE] = {cosine, .warms_up = true, .has_length = true},
    [NM_SCHEDULE_COSINE_MA2019] = {cosine_ma2019, .warms_up = true, .has_length = true},
    [NM_SCHEDULE_LINEAR] = {linear, .warms_up = true, .has_length = true},
    [NM_SCHEDULE_CONSTANT] = {constant, .warms_up = false},
    [NM_SCHEDULE_WSD] = {warmup_stable_decay, .warms_up = true, .has_length = true},
};

void nm_schedule_init(nm_schedule *schedule, const nm_schedule_config *config, int64_t width,
                      int64_t planned_updates)
{
    *schedule = (nm_schedule){.config = *config, .width = width, .state.factor = 1};
    if (!schedule->config.updates)
        schedule->config.updates = planned_updates;
    schedule->total = schedule->config.updates ? (double)schedule->config.updates : INFINITY;
}

/* Fraction of train.seconds from which the time is used to estimate the number of updates. */
static const double MEASURED = 0.05;

static double update_fraction(const nm_schedule *s, double n)
{
    return s->config.updates ? n / (double)s->config.updates : 0;
}

/* b. */
static double limit_fraction(const nm_schedule *s, double n, double time)
{
    double by_updates = update_fraction(s, n);
    return fmin(by_updates > 0 && time < MEASURED ? by_updates : fmax(by_updates, time), 1);
}

/* p. */
static double position(const nm_schedule *s, double b)
{
    double a = s->state.skip_from, q = s->state.skip_to;
    return a < 1 ? q + (1 - q) * (b - a) / (1 - a) : 1;
}

void nm_schedule_plan(nm_schedule *s, int64_t update, double time)
{
    double n = (double)update, ends = update > 1 ? time * n / (n - 1) : 0;
    s->total = s->config.updates ? (double)s->config.updates : INFINITY;
    double b = limit_fraction(s, n, ends);
    if (b <= update_fraction(s, n) && s->state.skip_to <= 0)
        return;
    double p = position(s, b);
    if (p > 0)
        s->total = n / p;
}

void nm_schedule_skip(nm_schedule *s, int64_t update, double time, double patience)
{
    double b = limit_fraction(s, (double)update, time), p = position(s, b);
    if (!s->config.early_stopping)
        return;
    if (patience <= 0) {
        s->state.best = p;
        return;
    }
    double to = s->state.best + (1 - s->state.best) * fmin(patience, 1);
    if (to > p) {
        s->state.skip_from = b;
        s->state.skip_to = to;
    }
}

nm_status nm_schedule_planned_updates(nm_task *task, int64_t *updates, nm_error *err)
{
    const nm_train_config *config = nm_options_find(task->options, "train");
    *updates = config->updates;
    if (config->updates || !config->epochs)
        return NM_OK;
    nm_batches batches;
    NM_TRY(task->type->epoch(task, NM_SPLIT_TRAIN, 0, true, &batches, err));
    *updates = (batches.n * config->epochs + config->shards - 1) / config->shards;
    nm_batches_release(&batches);
    return NM_OK;
}

nm_status nm_schedule_of_task(nm_schedule *schedule, nm_task *task, nm_error *err)
{
    int64_t updates;
    NM_TRY(nm_schedule_planned_updates(task, &updates, err));
    NM_AUTO_FREE char *width = nm_options_get(task->options, "model.width");
    nm_schedule_init(schedule, nm_options_find(task->options, "schedule"), width ? atoll(width) : 1, updates);
    const nm_train_config *train = nm_options_find(task->options, "train");
    bool ends_by_time = train->seconds > 0 && schedule->config.warmup_fraction <= 0;
    if (nm_schedule_has_length(&schedule->config) && !schedule->config.updates && !ends_by_time) {
        NM_AUTO_FREE char *name = nm_options_get(task->options, "schedule.name");
        nm_fail(
            err, NM_USAGE,
            "the schedule (schedule.name = %s, schedule.warmup_fraction = %g) needs the planned number of "
            "updates: set train.updates, train.epochs or schedule.updates, or train.seconds with "
            "schedule.warmup",
            name, schedule->config.warmup_fraction);
        return NM_USAGE;
    }
    const nm_norm_config *norms = nm_options_find(task->options, "norm");
    int64_t counted = norms->state == NM_STATE_MICRO_BATCH ? train->shards : 1; /* by the norms, per update */
    task->plan = (nm_norm_plan){.updates = counted * updates, .warmup_updates = nm_schedule_warmup(schedule)};
    return NM_OK;
}

bool nm_schedule_has_length(const nm_schedule_config *config)
{
    return schedules[config->name].has_length || config->warmup_fraction > 0;
}

double nm_schedule_lr(const nm_schedule *schedule, int64_t update)
{
    return schedules[schedule->config.name].rate(schedule, (double)update);
}

int64_t nm_schedule_warmup(const nm_schedule *schedule)
{
    return schedules[schedule->config.name].warms_up ? (int64_t)warmup_length(schedule) : 0;
}

/* Decays if there are at least `patience` earlier scores and the new one is lower than each of the last
 * `patience` ones. */
void nm_schedule_evaluated(nm_schedule *schedule, double score, int64_t update)
{
    nm_schedule_state *state = &schedule->state;
    int64_t patience = schedule->config.patience;
    if (state->n_scores > patience) { /* a resumed run with a smaller patience */
        memmove(state->scores, state->scores + (state->n_scores - patience),
                (size_t)patience * sizeof *state->scores);
        state->n_scores = patience;
    }
    double lowest = INFINITY;
    for (int64_t i = 0; i < state->n_scores; i++)
        lowest = state->scores[i] < lowest ? state->scores[i] : lowest;
    bool warming = update < nm_schedule_warmup(schedule);
    if (schedules[schedule->config.name].decays && !warming && state->n_scores == patience && score < lowest)
        state->factor *= schedule->config.decay;
    if (state->n_scores == patience)
        memmove(state->scores, state->scores + 1, (size_t)--state->n_scores * sizeof *state->scores);
    state->scores[state->n_scores++] = score;
}
