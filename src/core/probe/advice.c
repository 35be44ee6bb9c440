#include "probe/advice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/file.h"
#include "base/sort.h"
#include "probe/numbers.h"
#include "train/train_options.h"
#include "train/schedule.h"

/* Limits and their sources.
 * TID: variance TID at the last layer. Wang et al. 2022, table 1, post-norm: at least 9.5 % on the tasks on
 * which BatchNorm is worse than LayerNorm by 0.4 or more, at most 4.0 % on those on which it is as good or
 * better; 4 % is also the deviation that section 3.1 reports for ResNet. GAP: increase of the loss with
 * running instead of batch statistics, in nats per target. SQUARE: ratio of the TID of the quadratic mean to
 * that of the variance. PowerNorm's argument (Shen et al. 2020, section 4.1) requires that the quadratic mean
 * varies clearly less than the variance. SPIKE: ratio of early to later gradients. Nguyen and Salazar 2019,
 * figure 2: several times as large in runs that fail without warm-up. DEPTH: ratio of the gradient norms of
 * the first and the last layer, in either direction. LOSS: ratio of the loss of the first update to ln V. Far
 * above 1 the logits are too large, which a smaller initialization avoids. MIN_WARMUP: fraction of the
 * updates from which warm-up counts as enabled. USUAL_WARMUP: fraction that is recommended. */
static const double TID_LIMIT = 0.04, GAP_LIMIT = 0.02, SQUARE_LIMIT = 0.7, SPIKE_LIMIT = 5, DEPTH_LIMIT = 5,
                    LOSS_LIMIT = 1.2, MIN_WARMUP = 0.005, USUAL_WARMUP = 0.1;

/* norms: gradient norms divided by the loss, [n], overwritten; updates: [n], ascending. */
static void read_gradients(nm_advice_inputs *f, double *norms, const double *updates, size_t n)
{
    double last = updates[n - 1], early = NAN;
    size_t rest = 0;
    for (size_t i = 0; i < n; i++)
        if (updates[i] <= last / 20 || !i)
            early = fmax(early, norms[i]);
        else
            norms[rest++] = norms[i];
    f->early_gradient = early;
    if (!rest)
        return;
    nm_sort_doubles(norms, rest);
    f->later_gradient = nm_quantile(norms, rest, 0.5);
}

static nm_status read_log(nm_advice_inputs *f, const char *path, nm_error *err)
{
    FILE *stream;
    if (!nm_file_may_exist(path))
        return NM_OK;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    NM_AUTO(nm_lines_release) nm_lines lines = {0};
    nm_lines_init(&lines, stream, path);
    NM_AUTO_FREE double *norms = NULL, *updates = NULL;
    size_t n = 0, capacity = 0, update_capacity = 0;
    nm_status status;
    for (bool more; (status = nm_lines_next(&lines, &more, err)) == NM_OK && more;) {
        json_auto_t *object = json_loadb(lines.text, lines.bytes, 0, NULL);
        const char *type = json_string_value(json_object_get(object, "type"));
        double norm = nm_json_number_of(object, "grad_norm") / nm_json_number_of(object, "nll");
        if (type && !strcmp(type, "train") && isfinite(norm)) {
            NM_GROW(norms, n, capacity);
            NM_GROW(updates, n, update_capacity);
            norms[n] = norm;
            updates[n] = nm_json_number_of(object, "update");
            if (updates[n++] == 1)
                f->first_loss = nm_json_number_of(object, "nll");
        } else if (type && json_is_true(json_object_get(object, "best"))) {
            f->loss = nm_json_number_of(object, "nll");
            f->batch_loss = nm_json_number_of(object, "batch_nll");
        }
    }
    if (n)
        read_gradients(f, norms, updates, n);
    fclose(stream);
    return status;
}

/* Gradient norms of the first and the last layer of the first stack. */
static void read_depth(nm_advice_inputs *f, const nm_gradient_bounds *bounds)
{
    char stack[32] = "";
    for (size_t i = 0; i < bounds->n_groups; i++) {
        const nm_group_gradient *group = &bounds->groups[i];
        nm_site site = nm_site_parse(group->name);
        if (site.layer < 0 || (*stack && strcmp(stack, site.stack)))
            continue;
        if (!*stack) {
            snprintf(f->first_layer, sizeof f->first_layer, "%s", group->name);
            f->first_layer_gradient = group->norm;
        }
        snprintf(stack, sizeof stack, "%s", site.stack);
        snprintf(f->last_layer, sizeof f->last_layer, "%s", group->name);
        f->last_layer_gradient = group->norm;
    }
    if (!strcmp(f->last_layer, f->first_layer))
        f->last_layer_gradient = NAN; /* a single layer */
}

static void read_norms(nm_advice_inputs *f, const nm_model *model)
{
    for (size_t i = 0; i < model->params.n_norms; i++) {
        const nm_norm *norm = model->params.norms[i];
        if (!(norm->type->traits & NM_USES_BATCH))
            continue;
        f->uses_batch = true;
        f->has_penalty |= (norm->type->traits & NM_HAS_PENALTY) != 0;
        for (int k = 0; k < norm->shape.n_state; k++)
            f->centers |= !strcmp(norm->shape.state[k].name, "running_mean");
    }
}

static double warmup_fraction(const nm_model *model)
{
    const nm_schedule_config *schedule = nm_options_find(model->options, "schedule");
    const nm_train_config *train = nm_options_find(model->options, "train");
    if (schedule->name == NM_SCHEDULE_NO_WARMUP || schedule->name == NM_SCHEDULE_CONSTANT)
        return 0;
    if (schedule->warmup_fraction > 0)
        return schedule->warmup_fraction;
    double updates = (double)train->updates, warmup = (double)schedule->warmup;
    /* Without a maximum number of updates any warm-up counts as enabled. */
    return updates > 0 ? fmin(warmup / updates, 1) : warmup > 0 ? 1 : 0;
}

nm_status nm_advice_inputs_collect(nm_advice_inputs *f, const nm_inspection *inspection, const nm_task *task,
                                   const nm_model *model, const char *log_path, nm_error *err)
{
    const nm_stack_options *stack = model->config; /* the first member of every configuration */
    NM_AUTO_FREE char *encoder_norm = nm_options_get(model->options, "model.encoder_norm");
    *f = (nm_advice_inputs){.tid_mean = NAN,
                            .tid_variance = NAN,
                            .tid_square = NAN,
                            .loss = NAN,
                            .batch_loss = NAN,
                            .early_gradient = NAN,
                            .later_gradient = NAN,
                            .first_loss = NAN,
                            .last_layer_gradient = NAN,
                            .first_layer_gradient = NAN,
                            .warmup_fraction = warmup_fraction(model),
                            .pre_norm = stack->norm_position != NM_POST_NORM,
                            .small_init = nm_model_option_is(model, "model.init", "small"),
                            .varies_encoder = encoder_norm && *encoder_norm,
                            .chance_loss = task->type->chance_loss ? NAN : log((double)model->target_size)};
    const nm_tid_site *last = nm_tid_last(&inspection->tid);
    if (last) {
        memcpy(f->tid_site, last->name, sizeof f->tid_site);
        f->tid_mean = last->mean;
        f->tid_variance = last->variance;
        f->tid_square = last->square;
    }
    read_norms(f, model);
    read_depth(f, &inspection->bounds);
    return read_log(f, log_path, err);
}

#define SET(advice, what, ...)                                                                               \
    ((advice)->verdict = (what), (void)snprintf((advice)->why, sizeof(advice)->why, __VA_ARGS__))

static void advise_penalty(const nm_advice_inputs *f, nm_advice *a)
{
    double gap = f->loss - f->batch_loss;
    bool discrepancy = f->tid_variance >= TID_LIMIT, worse = gap >= GAP_LIMIT;
    char cost[120] = "";
    if (gap > 0)
        snprintf(cost, sizeof cost,
                 "; running statistics cost %.3f nats in the best validation (threshold %.2f)", gap,
                 GAP_LIMIT);
    else if (isfinite(gap))
        snprintf(cost, sizeof cost, "; running statistics cost nothing in the best validation (%.3f nats)",
                 gap);
    if (f->has_penalty)
        a->setting = "larger norm.rbn.lambda and norm.rbn.nu";
    if (!f->uses_batch || !f->centers)
        SET(a, NM_VERDICT_NOT_NEEDED, "no norm of this model uses the mean and variance of the batch");
    else if (!isfinite(f->tid_variance))
        SET(a, NM_VERDICT_UNKNOWN, "TID was not measured");
    else if (discrepancy || worse)
        SET(a, NM_VERDICT_INDICATED, "TID at %s: mean %.1f %%, variance %.1f %% (threshold %.0f %%)%s%s",
            f->tid_site, 100 * f->tid_mean, 100 * f->tid_variance, 100 * TID_LIMIT, cost,
            f->has_penalty ? "; the penalty is too weak" : "");
    else
        SET(a, f->has_penalty ? NM_VERDICT_ENABLED : NM_VERDICT_NOT_NEEDED,
            "TID at %s: mean %.1f %%, variance %.1f %% (threshold %.0f %%)%s", f->tid_site, 100 * f->tid_mean,
            100 * f->tid_variance, 100 * TID_LIMIT, cost);
}

static void advise_power(const nm_advice_inputs *f, nm_advice *a)
{
    bool steadier = f->tid_variance >= TID_LIMIT && f->tid_square <= SQUARE_LIMIT * f->tid_variance;
    if (!isfinite(f->tid_variance))
        SET(a, f->uses_batch && !f->centers ? NM_VERDICT_ENABLED : NM_VERDICT_UNKNOWN,
            "TID was not measured");
    else
        SET(a,
            f->uses_batch && !f->centers ? NM_VERDICT_ENABLED
            : f->uses_batch && steadier  ? NM_VERDICT_INDICATED
                                         : NM_VERDICT_NOT_NEEDED,
            "%sTID at %s: variance %.1f %% (threshold %.0f %%), quadratic mean of scaled rows %.1f %%",
            f->uses_batch ? "" : "no norm of this model uses batch statistics; ", f->tid_site,
            100 * f->tid_variance, 100 * TID_LIMIT, 100 * f->tid_square);
}

/* Gradients decrease with the loss; divided by it, early and later gradients are comparable. */
static void advise_warmup(const nm_advice_inputs *f, nm_advice *a)
{
    double spike = f->early_gradient / f->later_gradient;
    if (f->warmup_fraction >= USUAL_WARMUP)
        a->setting = "larger schedule.warmup_fraction or schedule.warmup";
    if (!isfinite(spike))
        SET(a, f->warmup_fraction >= MIN_WARMUP ? NM_VERDICT_ENABLED : NM_VERDICT_UNKNOWN,
            "warm-up is %.1f %% of the updates; the log has too few gradient norms",
            100 * f->warmup_fraction);
    else if (f->warmup_fraction >= MIN_WARMUP && spike < SPIKE_LIMIT)
        SET(a, NM_VERDICT_ENABLED,
            "%.1f %% of the updates; the gradient norm relative to the loss is at first %.2f times its later "
            "median",
            100 * f->warmup_fraction, spike);
    else if (spike >= SPIKE_LIMIT)
        SET(a, NM_VERDICT_INDICATED,
            "gradient norm relative to the loss: maximum %.3g in the first 5 %% of the updates, later median "
            "%.3g: %.1f "
            "times as large (threshold %.0f); warm-up is %.1f %% of the updates",
            f->early_gradient, f->later_gradient, spike, SPIKE_LIMIT, 100 * f->warmup_fraction);
    else
        SET(a, f->pre_norm ? NM_VERDICT_NOT_NEEDED : NM_VERDICT_INDICATED,
            "the gradient norm relative to the loss is at first %.2f times its later median (threshold "
            "%.0f)%s",
            spike, SPIKE_LIMIT,
            f->pre_norm ? "" : ", but post-norm without warm-up is known to fail in deeper models");
}

static void advise_init(const nm_advice_inputs *f, nm_advice *a)
{
    double times = f->first_loss / f->chance_loss;
    if (!isfinite(times))
        SET(a, f->small_init ? NM_VERDICT_ENABLED : NM_VERDICT_UNKNOWN,
            isfinite(f->first_loss) ? "the loss is that of whole sequences and has no chance level"
                                    : "the log has no record of the first update (train.log_every = 1)");
    else
        SET(a,
            f->small_init         ? NM_VERDICT_ENABLED
            : times >= LOSS_LIMIT ? NM_VERDICT_INDICATED
                                  : NM_VERDICT_NOT_NEEDED,
            "the loss of the first update is %.2f, %.2f times the chance-level loss (threshold %.1f)",
            f->first_loss, times, LOSS_LIMIT);
}

static void advise_norm_position(const nm_advice_inputs *f, nm_advice *a)
{
    double ratio = f->last_layer_gradient / f->first_layer_gradient, spread = fmax(ratio, 1 / ratio);
    char depth[160] = "the gradients of two or more layers were not measured";
    if (isfinite(ratio))
        snprintf(depth, sizeof depth,
                 "gradient norm of %.20s %.3g, of %.20s %.3g: %.1f times (threshold %.0f)", f->last_layer,
                 f->last_layer_gradient, f->first_layer, f->first_layer_gradient, ratio, DEPTH_LIMIT);
    if (f->pre_norm)
        SET(a, NM_VERDICT_ENABLED, "%s", depth);
    else
        SET(a,
            !isfinite(ratio)        ? NM_VERDICT_UNKNOWN
            : spread >= DEPTH_LIMIT ? NM_VERDICT_INDICATED
                                    : NM_VERDICT_NOT_NEEDED,
            "%s", depth);
}

void nm_advise(const nm_advice_inputs *f, nm_advice advice[NM_N_ADVICE])
{
    const bool encoder = f->varies_encoder;
    const struct {
        const char *remedy, *setting;
        void (*rule)(const nm_advice_inputs *inputs, nm_advice *advice);
    } rules[NM_N_ADVICE] = {
        {"RBN penalty", encoder ? "model.encoder_norm = rbn" : "model.norm = rbn", advise_penalty},
        {"PowerNorm", encoder ? "model.encoder_norm = power" : "model.norm = power", advise_power},
        {"warm-up", "schedule.warmup_fraction = 0.1", advise_warmup},
        {"SmallInit", "model.init = small", advise_init},
        {"pre-norm", "model.norm_position = pre", advise_norm_position}};
    for (int i = 0; i < NM_N_ADVICE; i++) {
        advice[i] = (nm_advice){.remedy = rules[i].remedy, .setting = rules[i].setting};
        rules[i].rule(f, &advice[i]);
    }
}

const char *nm_verdict_text(nm_verdict verdict)
{
    static const char *const texts[] = {"unknown", "not needed", "enabled", "indicated"};
    return texts[verdict];
}
