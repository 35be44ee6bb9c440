/* InvSqrtDecay, ValDecay, NoWarmup (Nguyen and Salazar 2019, eq. 7 and section 3.3, as their program has
 * them), fairseq's inverse_sqrt, cosine with linear warm-up (the tensorized language model's program), linear
 * up and down (fastNLP). */
#include "train/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_schedule_config, field, initial, min, max, help)

/* clang-format off */
const nm_option nm_schedule_options[] = {
    NM_CHOICE(nm_schedule_config, name, "inverse-sqrt",
              "inverse-sqrt|inv-sqrt-decay|val-decay|no-warmup|cosine|linear|constant", "how the rate moves"),
    ROW(lr, "0.0005", 0, 100, "peak rate (inverse-sqrt, no-warmup, cosine, linear, constant)"),
    ROW(init_lr, "0", 0, 100, "rate of the first update (inverse-sqrt)"),
    ROW(warmup, "4000", 0, 1e12, "updates until the peak"),
    ROW(warmup_fraction, "0.01", 0, 1, "share of all updates until the peak (linear)"),
    ROW(scale, "1", 0, 1e6, "factor lambda of inv-sqrt-decay and val-decay"),
    ROW(decay, "0.8", 0, 1, "factor at a decay (val-decay, no-warmup)"),
    ROW(patience, "3", 1, NM_SCHEDULE_MAX_PATIENCE, "evaluations a new one is compared with (val-decay, no-warmup)"),
    ROW(updates, "0", 0, 1e12, "length of cosine and linear; 0: as train.updates or train.epochs say"),
    ROW(min_lr, "0", 0, 100, "training stops when the rate falls below"),
    {0}};
#define RULE(field, names, reason) {"schedule." #field, "schedule.name", names, reason, NULL}
const nm_option_rule nm_schedule_rules[] = {
    RULE(lr, "!inv-sqrt-decay|val-decay", "the rate follows from schedule.scale, schedule.warmup and model.width"),
    RULE(init_lr, "inverse-sqrt", "only inverse-sqrt has an initial rate"),
    RULE(warmup_fraction, "linear", "only linear has a warm-up that is a fraction of all updates"),
    RULE(scale, "inv-sqrt-decay|val-decay", "the peak rate is schedule.lr"),
    RULE(decay, "val-decay|no-warmup", "the rate does not depend on validations"),
    RULE(patience, "val-decay|no-warmup", "the rate does not depend on validations"),
    RULE(updates, "cosine|linear", "the rate does not depend on the number of updates of the run"),
    {0}};
/* clang-format on */

typedef double (*rate_function)(const nm_schedule *s, double n);

/* lambda d^-0.5 min(n^-0.5, n W^-1.5) */
static double inv_sqrt_decay(const nm_schedule *s, double n)
{
    double w = (double)s->config.warmup, peak = s->config.scale / sqrt((double)s->width);
    double rise = w > 0 ? n * pow(w, -1.5) : INFINITY, fall = 1 / sqrt(n);
    return peak * (rise < fall ? rise : fall);
}

/* the same rise for n < W; the program freezes the rate at n = W - 1 */
static double val_decay(const nm_schedule *s, double n)
{
    double w = (double)s->config.warmup, last = w > 1 ? w - 1 : 1;
    double rise = s->config.scale / sqrt((double)s->width) * (n < last ? n : last) * pow(w > 0 ? w : 1, -1.5);
    return rise * s->state.factor;
}

static double no_warmup(const nm_schedule *s, double n)
{
    (void)n;
    return s->config.lr * s->state.factor;
}

/* update n uses what stands after n - 1 updates */
static double inverse_sqrt(const nm_schedule *s, double n)
{
    double done = n - 1, w = (double)s->config.warmup, lr = s->config.lr,
           init = w > 0 ? s->config.init_lr : lr;
    if (done < w)
        return init + done * (lr - init) / w;
    return done > 0 ? lr * sqrt(w > 0 ? w : 1) / sqrt(done) : lr;
}

static double cosine(const nm_schedule *s, double n)
{
    double done = n - 1, w = (double)s->config.warmup, total = (double)s->config.updates;
    if (done == 0) /* the program sets the rate after each update, so the first one runs at the full rate */
        return s->config.lr;
    if (done < w)
        return s->config.lr * done / w;
    return done >= total ? 0 : 0.5 * s->config.lr * (1 + cos(3.14159265358979323846 * done / total));
}

static double linear_warmup(const nm_schedule *s)
{
    return fmax(s->config.warmup_fraction * (double)s->config.updates, 1);
}

/* linear warm-up over the first fraction of all updates, then linear decay to 0 */
static double linear(const nm_schedule *s, double n)
{
    double total = (double)s->config.updates, w = linear_warmup(s);
    double factor = n <= w ? n / w : (total - n) / (total - w);
    return s->config.lr * (factor > 0 ? factor : 0);
}

static double constant(const nm_schedule *s, double n)
{
    (void)n;
    return s->config.lr;
}

static double configured_warmup(const nm_schedule *s)
{
    return (double)s->config.warmup;
}

static const struct {
    rate_function rate;
    double (*warmup)(const nm_schedule *s); /* in updates; NULL: no warm-up */
    bool decays;                            /* by evaluations, after the warm-up */
} schedules[] = {
    [NM_SCHEDULE_INVERSE_SQRT] = {inverse_sqrt, configured_warmup, false},
    [NM_SCHEDULE_INV_SQRT_DECAY] = {inv_sqrt_decay, configured_warmup, false},
    [NM_SCHEDULE_VAL_DECAY] = {val_decay, configured_warmup, true},
    [NM_SCHEDULE_NO_WARMUP] = {no_warmup, NULL, true},
    [NM_SCHEDULE_COSINE] = {cosine, configured_warmup, false},
    [NM_SCHEDULE_LINEAR] = {linear, linear_warmup, false},
    [NM_SCHEDULE_CONSTANT] = {constant, NULL, false},
};

void nm_schedule_init(nm_schedule *schedule, const nm_schedule_config *config, int64_t width,
                      int64_t total_updates)
{
    *schedule = (nm_schedule){.config = *config, .width = width, .state.factor = 1};
    if (!schedule->config.updates)
        schedule->config.updates = total_updates;
}

/* Planned number of updates; 0: unknown. */
static nm_status planned_updates(nm_task *task, int64_t *updates, nm_error *err)
{
    const nm_train_config *config = nm_options_find(task->options, "train");
    *updates = config->updates;
    if (config->updates || !config->epochs)
        return NM_OK;
    nm_batches batches;
    NM_TRY(task->type->epoch(task, NM_SPLIT_TRAIN, 0, true, &batches, err));
    *updates = (batches.n * config->epochs + config->accumulate - 1) / config->accumulate;
    nm_batches_release(&batches);
    return NM_OK;
}

nm_status nm_schedule_of_task(nm_schedule *schedule, nm_task *task, nm_error *err)
{
    int64_t updates;
    NM_TRY(planned_updates(task, &updates, err));
    char *width = nm_options_get(task->options, "model.width");
    nm_schedule_init(schedule, nm_options_find(task->options, "schedule"), width ? atoll(width) : 1, updates);
    free(width);
    task->plan = (nm_norm_plan){.updates = updates, .warmup_updates = nm_schedule_warmup(schedule)};
    return NM_OK;
}

double nm_schedule_lr(const nm_schedule *schedule, int64_t update)
{
    return schedules[schedule->config.name].rate(schedule, (double)update);
}

int64_t nm_schedule_warmup(const nm_schedule *schedule)
{
    double (*warmup)(const nm_schedule *s) = schedules[schedule->config.name].warmup;
    return warmup ? (int64_t)warmup(schedule) : 0;
}

/* Decays if at least `patience` earlier scores exist and the new one is below all of the last `patience` of them. */
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
