/* Normalization inside training runs: length of the warm-up, running state and gradient accumulation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "support/tiny_run.h"

static nm_trainer *open_run(const nm_options *options, const char *folder, bool resume)
{
    nm_trainer *trainer;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, resume, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    return trainer;
}

typedef struct fresh_run {
    char *folder;
    nm_options *options;
    nm_trainer *trainer;
} fresh_run;

static fresh_run open_fresh(const char *const *settings)
{
    fresh_run r = {.folder = tiny_folder(), .options = tiny_options(settings)};
    r.trainer = open_run(r.options, r.folder, false);
    return r;
}

static void close_fresh(fresh_run *r)
{
    nm_trainer_close(r->trainer);
    nm_options_free(r->options);
    tiny_data_remove(r->folder);
}

/* Warm-up length of the norms in a run. */
static int64_t norm_warmup(const char *const *settings)
{
    fresh_run r = open_fresh(settings);
    int64_t warmup = nm_trainer_model(r.trainer)->params.norms[0]->site.plan.warmup_updates;
    close_fresh(&r);
    return warmup;
}

static void test_norm_warmup_is_that_of_the_schedule(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int64_t warmup;
    } cases[] = {{"inverse-sqrt", 7}, {"inv-sqrt-decay", 7}, {"val-decay", 7}, {"cosine", 7},
                 {"linear", 10},      {"no-warmup", 0},      {"constant", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool linear = !strcmp(cases[i].schedule, "linear");
        const char *option = linear ? "schedule.warmup_fraction" : cases[i].warmup ? "schedule.warmup" : NULL;
        const char *const settings[] = {
            "model.norm",          "power", "schedule.name", cases[i].schedule, "train.updates", "40", option,
            linear ? "0.25" : "7", NULL};
        assert_int_equal(norm_warmup(settings), cases[i].warmup);
    }
}

/* train.epochs is the only limit: the updates are counted in batches. */
static void test_norm_warmup_of_a_run_limited_by_epochs(void **state)
{
    (void)state;
    const char *const settings[] = {"model.norm",
                                    "power",
                                    "schedule.name",
                                    "linear",
                                    "train.updates",
                                    "0",
                                    "train.epochs",
                                    "8",
                                    "schedule.warmup_fraction",
                                    "0.5",
                                    NULL};
    fresh_run r = open_fresh(settings);
    nm_training_progress progress;
    nm_error err;
    assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), NM_OK);
    assert_true(progress.batches > 1);
    assert_int_equal(nm_trainer_model(r.trainer)->params.norms[0]->site.plan.warmup_updates,
                     4 * progress.batches);
    close_fresh(&r);
}

/* Counter of the first norm after three updates of four micro-batches each. */
static int64_t updates_counted(const char *norm, const char *state)
{
    const char *const settings[] = {"model.norm", norm, "train.shards", "4", "norm.state", state, NULL};
    fresh_run r = open_fresh(settings);
    nm_training_progress progress;
    nm_error err;
    for (int i = 0; i < 3; i++)
        assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), NM_OK);
    int64_t counted = nm_trainer_model(r.trainer)->params.norms[0]->counters[0];
    close_fresh(&r);
    return counted;
}

static void test_warmup_counts_updates(void **state)
{
    (void)state;
    static const char *const norms[] = {"power", "mabn", "renorm", "progressive", "un"};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        assert_int_equal(updates_counted(norms[i], "update"), 3);
        assert_int_equal(updates_counted(norms[i], "micro-batch"), 12);
    }
}

/* Weights of a run of nine updates at its end, or when it is stopped after `stop` updates. */
static uint64_t hash_of_run(const char *const *settings, const char *folder, int64_t stop, bool resume)
{
    nm_options *options = tiny_options(settings);
    tiny_set(options, "train.updates", "9");
    nm_trainer *trainer = open_run(options, folder, resume);
    nm_error err;
    nm_training_progress progress;
    nm_status status = NM_OK;
    while (status == NM_OK && nm_trainer_state(trainer)->update < stop)
        status = nm_trainer_update(trainer, &progress, &err);
    if (status == NM_OK)
        status = nm_trainer_save(trainer, &err);
    if (status != NM_OK)
        fail_msg("%s", err.text);
    uint64_t hash = nm_trainer_weights_hash(trainer);
    nm_trainer_close(trainer);
    nm_options_free(options);
    return hash;
}

static void test_resume_is_exact_with_accumulation(void **state)
{
    (void)state;
    static const struct {
        const char *norm, *settings[4];
    } norms[] = {{"batch", {NULL}},
                 {"mabn", {"norm.mabn.window", "3", "norm.mabn.r_hold", "2"}},
                 {"renorm", {"norm.renorm.ramp_start", "1"}},
                 {"repbn", {NULL}},
                 {"progressive", {"norm.progressive.warmup", "1"}},
                 {"un", {"norm.un.window_forward", "3", "norm.un.r_hold", "2"}}};
    static const char *const states[] = {"update", "micro-batch"};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
        for (size_t k = 0; k < 2; k++) {
            const char *const *own = norms[i].settings;
            const char *const settings[] = {"model.norm", norms[i].norm, "train.shards", "3",    "norm.state",
                                            states[k],    own[0],        own[1],         own[2], own[3],
                                            NULL};
            char *whole = tiny_folder(), *part = tiny_folder();
            uint64_t uninterrupted = hash_of_run(settings, whole, 9, false);
            hash_of_run(settings, part, 5, false);
            assert_true(hash_of_run(settings, part, 9, true) == uninterrupted);
            tiny_data_remove(whole);
            tiny_data_remove(part);
        }
}

typedef struct message_log {
    char text[2048];
} message_log;

static void append_message(void *user, const char *text)
{
    message_log *log = user;
    strncat(log->text, text, sizeof log->text - strlen(log->text) - 2);
    strcat(log->text, "\n");
}

/* Whether a run of 40 updates with these settings reports the text. */
static void assert_reported(const char *const *settings, const char *text)
{
    char *folder = tiny_folder();
    nm_options *options = tiny_options(settings);
    message_log log = {0};
    const nm_train_callbacks callbacks = {.user = &log, .message = append_message};
    nm_trainer *trainer;
    nm_error err;
    tiny_set(options, "train.updates", "40");
    assert_int_equal(
        nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, &callbacks, &err), NM_OK);
    if (!strstr(log.text, text))
        print_error("%s\n", log.text);
    assert_non_null(strstr(log.text, text));
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
}

/* The limits of Batch Renormalization are reached after 20 of 40 updates, and the run reports it. */
static void test_ramps_of_a_short_run(void **state)
{
    (void)state;
    static const char *const renorm[] = {"model.norm", "renorm", NULL};
    assert_reported(renorm, "plain BatchNorm for 2 updates; the limit of r rises until update 20, that of d "
                            "until update 12");
}

static void test_early_stopping_within_a_transition(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.norm",     "layer", "norm.at", "dec.0.self=progressive",
                                           "train.patience", "3",     NULL};
    assert_reported(settings,
                    "warning: norm progressive: validation losses may rise until the end of its transition, "
                    "and train.patience = 3 may end the training before");
}

/* If every micro-batch is counted, 20 updates of four micro-batches are 80. */
static void test_ramps_in_micro_batches(void **state)
{
    (void)state;
    static const char *const renorm[] = {"model.norm",  "renorm", "train.shards", "4", "norm.state",
                                         "micro-batch", NULL},
                             *const progressive[] = {"model.norm", "progressive",  "model.norm_position",
                                                     "pre",        "train.shards", "4",
                                                     "norm.state", "micro-batch",  NULL},
                             *const update[] = {"model.norm", "renorm", "train.shards", "4", NULL};
    assert_reported(renorm, "plain BatchNorm for 10 updates; the limit of r rises until update 80, that of d "
                            "until update 50 (every micro-batch counts as an update)\n");
    assert_reported(progressive, "then a transition of 80 updates to RepBN (every micro-batch");
    assert_reported(update, "the limit of r rises until update 20, that of d until update 12\n");
}

/* Penalty of the first update for a value of norm.rbn.scale. */
static double first_penalty(const char *scale)
{
    const char *const settings[] = {"model.norm", "rbn", "norm.rbn.scale", scale, "train.updates", "1", NULL};
    fresh_run r = open_fresh(settings);
    nm_training_progress progress;
    nm_error err;
    assert_int_equal(nm_trainer_update(r.trainer, &progress, &err), NM_OK);
    close_fresh(&r);
    return progress.penalty;
}

static void test_penalty_of_translation_is_added_to_the_sum(void **state)
{
    (void)state;
    double penalty = first_penalty("auto");
    assert_true(penalty == first_penalty("sum"));
    assert_true(penalty < 0.1 * first_penalty("mean"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm_warmup_is_that_of_the_schedule),
        cmocka_unit_test(test_norm_warmup_of_a_run_limited_by_epochs),
        cmocka_unit_test(test_warmup_counts_updates),
        cmocka_unit_test(test_resume_is_exact_with_accumulation),
        cmocka_unit_test(test_ramps_of_a_short_run),
        cmocka_unit_test(test_ramps_in_micro_batches),
        cmocka_unit_test(test_early_stopping_within_a_transition),
        cmocka_unit_test(test_penalty_of_translation_is_added_to_the_sum),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
