/* Golden cases of family "schedule": learning rate of every update. */
#include <math.h>
#include <string.h>

#include "golden.h"
#include "train/schedule.h"

static golden_result compare_rate(golden_case *test, const nm_schedule *schedule, int64_t update,
                                  const json_t *expected)
{
    double got = nm_schedule_lr(schedule, update), want = json_number_value(expected);
    if (!json_is_number(expected))
        return golden_fail(test, "rate of update %lld: no number", (long long)update);
    if (!(fabs(got - want) <= 1e-9 * fabs(want) + 1e-18)) /* rates are far below 1 */
        return golden_fail(test, "rate of update %lld: got %.12g, expected %.12g", (long long)update, got,
                           want);
    return GOLDEN_PASSED;
}

/* rates[i] belongs to update updates[i] + offset; updates NULL: 1, 2, ... */
static golden_result compare_rates(golden_case *test, const nm_schedule *schedule, const char *updates_key,
                                   const char *rates_key, int64_t offset)
{
    const json_t *updates = updates_key ? json_object_get(test->root, updates_key) : NULL;
    const json_t *rates = json_object_get(test->root, rates_key), *rate;
    size_t i;
    if (!json_array_size(rates) || (updates_key && json_array_size(updates) != json_array_size(rates)))
        return golden_fail(test, "%s: no rates", rates_key);
    json_array_foreach(rates, i, rate)
    {
        int64_t update = updates ? json_integer_value(json_array_get(updates, i)) : (int64_t)i + 1;
        GOLDEN_TRY(compare_rate(test, schedule, update + offset, rate));
    }
    return GOLDEN_PASSED;
}

/* Epochs of updates with an evaluation after each. */
static golden_result compare_epochs(golden_case *test, nm_schedule *schedule)
{
    const json_t *used = json_object_get(test->root, "lr_used_by_each_iteration"), *epoch, *rate;
    const json_t *scores = json_object_get(test->root, "dev_bleu_after_each_epoch");
    const json_t *after = json_object_get(test->root, "lr_after_each_evaluation");
    int64_t update = 0;
    size_t e, i;
    if (!json_array_size(used) || json_array_size(scores) != json_array_size(used) ||
        json_array_size(after) != json_array_size(used))
        return golden_fail(test, "rates and evaluations do not fit together");
    json_array_foreach(used, e, epoch)
    {
        json_array_foreach(epoch, i, rate) GOLDEN_TRY(compare_rate(test, schedule, ++update, rate));
        nm_schedule_evaluated(schedule, json_number_value(json_array_get(scores, e)), update);
        GOLDEN_TRY(compare_rate(test, schedule, update, json_array_get(after, e)));
    }
    return GOLDEN_PASSED;
}

static void start(golden_case *test, nm_schedule *schedule, nm_schedule_config config)
{
    config.lr = golden_number(test, "lr", 0);
    config.scale = golden_number(test, "lr_scale", 1);
    config.decay = golden_number(test, "alpha_decay", 0.8);
    config.patience = golden_whole(test, "patience", 3);
    nm_schedule_init(schedule, &config, golden_whole(test, "d", 1), 0);
}

static golden_result run(golden_case *test)
{
    nm_schedule s;
    int64_t warmup = golden_whole(test, "warmup_steps", 0);
    double patience = golden_number(test, "patience", 3), init = golden_number(test, "warmup_init_lr", -1);
    if (!(patience >= 1 && patience <= NM_SCHEDULE_MAX_PATIENCE))
        return golden_skip(test, "patience outside 1 .. %d", NM_SCHEDULE_MAX_PATIENCE);
    if (!strcmp(test->method, "inverse_sqrt")) {
        int64_t updates = golden_whole(test, "warmup_updates", 0);
        double lr = golden_number(test, "lr", 0);
        start(test, &s,
              (nm_schedule_config){.name = NM_SCHEDULE_INVERSE_SQRT,
                                   .warmup = updates,
                                   .init_lr = init >= 0     ? init
                                              : updates > 0 ? 0
                                                            : lr});
        return compare_rates(test, &s, "num_updates", "lr", 1);
    }
    if (!strcmp(test->method, "cosine_with_linear_warmup")) {
        if (golden_number(test, "eta_min", 0) != 0)
            return golden_skip(test, "a lowest rate is not offered");
        start(test, &s,
              (nm_schedule_config){.name = NM_SCHEDULE_COSINE_MA2019,
                                   .warmup = golden_whole(test, "warmup_step", 0),
                                   .updates = golden_whole(test, "max_step", 0)});
        return compare_rates(test, &s, "iteration", "lr_used", 0);
    }
    if (!strcmp(test->method, "linear_warmup_linear_decay")) {
        start(test, &s,
              (nm_schedule_config){.name = NM_SCHEDULE_LINEAR,
                                   .warmup_fraction = golden_number(test, "warmup_fraction", 0),
                                   .updates = golden_whole(test, "total_updates", 0)});
        return compare_rates(test, &s, NULL, "lr_used_by_update", 0);
    }
    static const struct {
        const char *method;
        nm_schedule_name name;
    } epochs[] = {{"inv_sqrt_decay", NM_SCHEDULE_INV_SQRT_DECAY},
                  {"no_warmup_valdecay", NM_SCHEDULE_NO_WARMUP},
                  {"warmup_then_valdecay", NM_SCHEDULE_VAL_DECAY}};
    for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++)
        if (!strcmp(test->method, epochs[i].method)) {
            start(test, &s, (nm_schedule_config){.name = epochs[i].name, .warmup = warmup});
            return compare_epochs(test, &s);
        }
    return golden_skip(test, "method '%.60s' is not offered", test->method);
}

const golden_family golden_schedule = {.name = "schedule", .run = run};
