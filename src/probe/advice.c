#include "probe/advice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/sort.h"
#include "probe/numbers.h"
#include "train/trainer.h"

/* Limits. In Wang et al. 2022, table 1, post-norm, the tasks on which BatchNorm loses by 0.4 and more have a variance
 * TID of 9.5 % and more at the last layer, those on which it wins or ties at most 4.0 %, which is also the deviation that
 * section 3.1 gives for a ResNet. The loss gap is in nats per target. PowerNorm's argument (Shen et al. 2020, section 4.1) needs the quadratic mean to move clearly less
 * than the variance. Nguyen and Salazar 2019, figure 2, show gradients of several times the later ones where a run
 * without warm-up fails. A soft-max that starts far above ln V has logits too large, which small first values cure. */
static const double TID_LIMIT = 0.04, GAP_LIMIT = 0.02, SQUARE_SHARE = 0.7, SPIKE_LIMIT = 5, DEPTH_LIMIT = 5,
                    LOSS_LIMIT = 1.2, WARMUP_LEAST = 0.005;

/* ---- findings ---- */

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void read_gradients(nm_findings *f, double *norms, const double *updates, size_t n)
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
    f->later_gradient = nm_numbers_quantile(norms, rest, 0.5);
}

static void read_log(nm_findings *f, const char *path)
{
    nm_error ignored;
    FILE *stream;
    if (nm_file_open(&stream, path, "rb", &ignored) != NM_OK)
        return;
    nm_lines lines;
    nm_lines_init(&lines, stream, path);
    double *norms = NULL, *updates = NULL;
    size_t n = 0, capacity = 0, update_capacity = 0;
    for (bool more; nm_lines_next(&lines, &more, &ignored) == NM_OK && more;) {
        json_t *object = json_loadb(lines.text, lines.bytes, 0, NULL);
        const char *type = json_string_value(json_object_get(object, "type"));
        double share = number_of(object, "grad_norm") / number_of(object, "nll");
        if (type && !strcmp(type, "train") && isfinite(share)) {
            NM_GROW(norms, n, capacity);
            NM_GROW(updates, n, update_capacity);
            norms[n] = share;
            updates[n] = number_of(object, "update");
            f->first_loss = n++ ? f->first_loss : number_of(object, "nll");
        } else if (type && json_is_true(json_object_get(object, "best"))) {
            f->loss = number_of(object, "nll");
            f->batch_loss = number_of(object, "batch_nll");
        }
        json_decref(object);
    }
    if (n)
        read_gradients(f, norms, updates, n);
    free(norms);
    free(updates);
    nm_lines_release(&lines);
    fclose(stream);
}

static bool setting_is(const nm_model *model, const char *path, const char *value)
{
    char *text = nm_options_get(model->options, path);
    bool is = text && !strcmp(text, value);
    free(text);
    return is;
}

/* Lowest and highest layer of the first stack. */
static void read_depth(nm_findings *f, const nm_gradient_bounds *bounds)
{
    char stack[32] = "";
    for (size_t i = 0; i < bounds->n_groups; i++) {
        const nm_group_gradient *group = &bounds->groups[i];
        nm_site site = nm_site_parse(group->name);
        if (site.layer < 0 || (*stack && strcmp(stack, site.stack)))
            continue;
        if (!*stack) {
            snprintf(f->bottom, sizeof f->bottom, "%s", group->name);
            f->bottom_gradient = group->norm;
        }
        snprintf(stack, sizeof stack, "%s", site.stack);
        snprintf(f->top, sizeof f->top, "%s", group->name);
        f->top_gradient = group->norm;
    }
    if (!strcmp(f->top, f->bottom))
        f->top_gradient = NAN; /* one layer tells nothing of depth */
}

static void read_norms(nm_findings *f, const nm_model *model)
{
    for (size_t i = 0; i < model->params.n_norms; i++) {
        const nm_norm *norm = model->params.norms[i];
        if (!(norm->type->traits & NM_USES_BATCH))
            continue;
        f->uses_batch = true;
        f->has_penalty |= (norm->type->traits & NM_HAS_PENALTY) != 0;
        for (int k = 0; k < norm->shape.n_state; k++)
            f->takes_mean |= !strcmp(norm->shape.state[k].name, "running_mean");
    }
}

static double warmup_share(const nm_model *model)
{
    const nm_schedule_config *schedule = nm_options_find(model->options, "schedule");
    const nm_train_config *train = nm_options_find(model->options, "train");
    if (schedule->name == NM_SCHEDULE_NO_WARMUP)
        return 0;
    if (schedule->name == NM_SCHEDULE_LINEAR)
        return schedule->warmup_fraction;
    double updates = (double)train->updates, warmup = (double)schedule->warmup;
    return updates > 0  ? fmin(warmup / updates, 1)
           : warmup > 0 ? 1
                        : 0; /* without a limit any warm-up counts */
}

nm_findings nm_findings_gather(const nm_inspection *inspection, const nm_task *task, const nm_model *model,
                               const char *log_path)
{
    nm_findings f = {.tid_mean = NAN,
                     .tid_variance = NAN,
                     .tid_square = NAN,
                     .loss = NAN,
                     .batch_loss = NAN,
                     .early_gradient = NAN,
                     .later_gradient = NAN,
                     .first_loss = NAN,
                     .top_gradient = NAN,
                     .bottom_gradient = NAN,
                     .warmup_share = warmup_share(model),
                     .pre_norm = setting_is(model, "model.norm_position", "pre"),
                     .small_init = setting_is(model, "model.init", "small"),
                     .ignorance = task->type->ignorance ? NAN : log((double)model->target_size)};
    const nm_tid_site *last = nm_tid_last(&inspection->tid);
    if (last) {
        memcpy(f.tid_site, last->name, sizeof f.tid_site);
        f.tid_mean = last->mean;
        f.tid_variance = last->variance;
        f.tid_square = last->square;
    }
    read_norms(&f, model);
    read_depth(&f, &inspection->bounds);
    read_log(&f, log_path);
    return f;
}

/* ---- rules ---- */

#define SAY(advice, what, ...)                                                                               \
    ((advice)->verdict = (what), (void)snprintf((advice)->why, sizeof(advice)->why, __VA_ARGS__))

static void advise_penalty(const nm_findings *f, nm_advice *a)
{
    double gap = f->loss - f->batch_loss;
    bool discrepancy = f->tid_variance >= TID_LIMIT, worse = gap >= GAP_LIMIT;
    char lost[120] = "";
    if (gap > 0)
        snprintf(lost, sizeof lost,
                 "; remembered statistics cost %.3f nats in the best validation (limit %.2f)", gap,
                 GAP_LIMIT);
    else if (isfinite(gap))
        snprintf(lost, sizeof lost, "; remembered statistics cost nothing in the best validation (%.3f nats)",
                 gap);
    if (f->has_penalty)
        a->setting = "larger norm.rbn.lambda and norm.rbn.nu";
    if (!f->uses_batch || !f->takes_mean)
        SAY(a, NM_NOT_NEEDED, "no norm of this model takes mean and variance from the batch");
    else if (!isfinite(f->tid_variance))
        SAY(a, NM_UNKNOWN, "TID was not measured");
    else if (discrepancy || worse)
        SAY(a, NM_INDICATED, "TID at %s: mean %.1f %%, variance %.1f %% (limit %.0f %%)%s%s", f->tid_site,
            100 * f->tid_mean, 100 * f->tid_variance, 100 * TID_LIMIT, lost,
            f->has_penalty ? "; the penalty in use is too weak" : "");
    else
        SAY(a, f->has_penalty ? NM_IN_USE : NM_NOT_NEEDED,
            "TID at %s: mean %.1f %%, variance %.1f %% (limit %.0f %%)%s", f->tid_site, 100 * f->tid_mean,
            100 * f->tid_variance, 100 * TID_LIMIT, lost);
}

static void advise_power(const nm_findings *f, nm_advice *a)
{
    bool steadier = f->tid_variance >= TID_LIMIT && f->tid_square <= SQUARE_SHARE * f->tid_variance;
    if (!isfinite(f->tid_variance))
        SAY(a, f->uses_batch && !f->takes_mean ? NM_IN_USE : NM_UNKNOWN, "TID was not measured");
    else
        SAY(a,
            f->uses_batch && !f->takes_mean ? NM_IN_USE
            : f->uses_batch && steadier     ? NM_INDICATED
                                            : NM_NOT_NEEDED,
            "%sat %s the variance varies by %.1f %% from batch to batch (limit %.0f %%), the quadratic mean "
            "of scaled "
            "rows by %.1f %%",
            f->uses_batch ? "" : "no norm of this model depends on the batch; ", f->tid_site,
            100 * f->tid_variance, 100 * TID_LIMIT, 100 * f->tid_square);
}

/* As the loss falls the gradients do: a share of the loss compares early and late ones. */
static void advise_warmup(const nm_findings *f, nm_advice *a)
{
    double spike = f->early_gradient / f->later_gradient;
    if (!isfinite(spike))
        SAY(a, f->warmup_share >= WARMUP_LEAST ? NM_IN_USE : NM_UNKNOWN,
            "warm-up is %.1f %% of the updates; the log has too few gradient norms", 100 * f->warmup_share);
    else if (f->warmup_share >= WARMUP_LEAST && spike < SPIKE_LIMIT)
        SAY(a, NM_IN_USE,
            "%.1f %% of the updates; gradients in shares of the loss begin at %.2f times their later median",
            100 * f->warmup_share, spike);
    else if (spike >= SPIKE_LIMIT)
        SAY(a, NM_INDICATED,
            "gradient norm in shares of the loss: up to %.3g in the first twentieth, later in the median "
            "%.3g, %.1f "
            "times as much (limit %.0f); warm-up is %.1f %% of the updates",
            f->early_gradient, f->later_gradient, spike, SPIKE_LIMIT, 100 * f->warmup_share);
    else
        SAY(a, f->pre_norm ? NM_NOT_NEEDED : NM_INDICATED,
            "gradients in shares of the loss begin at %.2f times their later median (limit %.0f)%s", spike,
            SPIKE_LIMIT,
            f->pre_norm ? "" : ", but post-norm without warm-up is known to fail in deeper models");
}

static void advise_init(const nm_findings *f, nm_advice *a)
{
    double times = f->first_loss / f->ignorance;
    if (!isfinite(times))
        SAY(a, f->small_init ? NM_IN_USE : NM_UNKNOWN,
            isfinite(f->first_loss) ? "the loss is of whole sentences and does not show single choices"
                                    : "the log has no first loss");
    else
        SAY(a,
            f->small_init         ? NM_IN_USE
            : times >= LOSS_LIMIT ? NM_INDICATED
                                  : NM_NOT_NEEDED,
            "the first loss of the log is %.2f, %.2f times that of a model that knows nothing (limit %.1f)",
            f->first_loss, times, LOSS_LIMIT);
}

static void advise_norm_position(const nm_findings *f, nm_advice *a)
{
    double ratio = f->top_gradient / f->bottom_gradient, spread = fmax(ratio, 1 / ratio);
    char depth[160] = "the gradients of several layers were not measured";
    if (isfinite(ratio))
        snprintf(depth, sizeof depth, "gradient norm of %.20s %.3g, of %.20s %.3g: %.1f times (limit %.0f)",
                 f->top, f->top_gradient, f->bottom, f->bottom_gradient, ratio, DEPTH_LIMIT);
    if (f->pre_norm)
        SAY(a, NM_IN_USE, "%s", depth);
    else
        SAY(a,
            !isfinite(ratio)        ? NM_UNKNOWN
            : spread >= DEPTH_LIMIT ? NM_INDICATED
                                    : NM_NOT_NEEDED,
            "%s", depth);
}

void nm_advise(const nm_findings *f, nm_advice advice[NM_N_ADVICE])
{
    static const struct {
        const char *remedy, *setting;
        void (*rule)(const nm_findings *findings, nm_advice *advice);
    } rules[NM_N_ADVICE] = {{"RBN penalty", "model.norm = rbn", advise_penalty},
                            {"PowerNorm", "model.norm = power", advise_power},
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
    static const char *const texts[] = {"not known", "not needed", "in use", "indicated"};
    return texts[verdict];
}
