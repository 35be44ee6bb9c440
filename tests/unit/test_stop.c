/* A request to stop during a validation: the run ends at once with a checkpoint, and the resumed run repeats
 * the validation, so that its weights, schedule and validations are those of an uninterrupted run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "support/tiny_run.h"
#include "train/trainer_private.h"

/* A schedule with decays by validations, in a run whose loss rises. */
#define SETTINGS                                                                                             \
    "schedule.name", "no-warmup", "schedule.patience", "1", "schedule.decay", "0.5", "schedule.lr", "0.2",   \
        "train.divergence_factor", "0", "decode.beam", "2", "model.norm", "batch", "device.threads", "1"

typedef struct run {
    const char *const *settings;
    char *folder;
    nm_stop stop;
    int64_t stop_after; /* update at whose end the stop is requested, before its validation; 0: none */
    int64_t resumed_at;
    uint64_t weights;
    double factor; /* of the schedule */
} run;

static void request_stop(void *user, const nm_training_progress *progress)
{
    run *r = user;
    r->stop.requested |= progress->update == r->stop_after;
}

static nm_status train(run *r, bool resume)
{
    nm_options *options = tiny_options(r->settings);
    const nm_train_callbacks callbacks = {.user = r, .progress = request_stop, .stop = &r->stop};
    nm_trainer *trainer;
    nm_error err;
    r->stop.requested = 0;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, r->folder, resume, &callbacks, &err) !=
        NM_OK)
        fail_msg("%s", err.text);
    r->resumed_at = nm_trainer_state(trainer)->update;
    nm_status status = nm_trainer_run(trainer, &err);
    r->weights = nm_trainer_weights_hash(trainer);
    r->factor = nm_trainer_state(trainer)->schedule.factor;
    nm_trainer_close(trainer);
    nm_options_free(options);
    return status;
}

/* The validations in the log; heap. */
static char *validations(const char *folder)
{
    char *log = tiny_log(folder), *text = nm_duplicate("");
    for (char *rest = log, *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (!strstr(line, "\"type\":\"valid\""))
            continue;
        char *longer = nm_format("%s%s\n", text, line);
        free(text);
        text = longer;
    }
    free(log);
    return text;
}

static void assert_stop_is_harmless(const char *const *settings, int64_t stop_after)
{
    run whole = {.settings = settings, .folder = tiny_folder()};
    run part = {.settings = settings, .folder = tiny_folder(), .stop_after = stop_after};
    assert_int_equal(train(&whole, false), NM_OK);
    char *expected = validations(whole.folder), *name = nm_format("\"update\":%d,", (int)stop_after);
    assert_non_null(strstr(expected, name));

    assert_int_equal(train(&part, false), NM_INTERRUPTED);
    char *until = validations(part.folder);
    assert_null(strstr(until, name));
    part.stop_after = 0;
    assert_int_equal(train(&part, true), NM_OK);
    assert_int_equal(part.resumed_at, stop_after); /* the checkpoint was written when the run stopped */
    char *actual = validations(part.folder);
    assert_string_equal(actual, expected);
    assert_true(part.weights == whole.weights);
    assert_true(part.factor == whole.factor);

    tiny_data_remove(whole.folder);
    tiny_data_remove(part.folder);
    free(expected);
    free(name);
    free(until);
    free(actual);
}

static void test_stop_during_a_validation(void **state)
{
    (void)state;
    static const char *const settings[] = {SETTINGS, "train.updates", "24", "train.validate_every", "5",
                                           NULL};
    assert_stop_is_harmless(settings, 5);
    assert_stop_is_harmless(settings, 15);
}

static void test_stop_during_the_last_validation(void **state)
{
    (void)state;
    static const char *const due[] = {SETTINGS, "train.updates", "24", "train.validate_every", "8", NULL};
    static const char *const extra[] = {SETTINGS, "train.updates", "24", "train.validate_every", "10", NULL};
    assert_stop_is_harmless(due, 24);
    assert_stop_is_harmless(extra, 24);
}

/* The first update of the second epoch would otherwise precede the validation of the first. */
static void test_stop_during_the_validation_of_an_epoch(void **state)
{
    (void)state;
    static const char *const settings[] = {SETTINGS, "train.epochs", "3", "train.validate_every", "0", NULL};
    run whole = {.settings = settings, .folder = tiny_folder()};
    assert_int_equal(train(&whole, false), NM_OK);
    char *text = validations(whole.folder), *update = strstr(text, "\"update\":");
    assert_non_null(update);
    assert_stop_is_harmless(settings, atoll(update + strlen("\"update\":")));
    free(text);
    tiny_data_remove(whole.folder);
}

static void test_stop_ends_translations(void **state)
{
    (void)state;
    static const char *const settings[] = {SETTINGS, "train.updates", "1", NULL};
    nm_options *options = tiny_options(settings);
    char *folder = tiny_folder();
    nm_trainer *trainer;
    nm_task_score score;
    nm_error err;
    nm_stop stop = {.requested = 1};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_task *task = &trainer->task;
    task->stop = &stop;
    assert_int_equal(task->type->score(task, trainer->model, NM_SPLIT_VALID, 0, &score, &err),
                     NM_INTERRUPTED);
    stop.requested = 0;
    assert_int_equal(task->type->score(task, trainer->model, NM_SPLIT_VALID, 0, &score, &err), NM_OK);
    nm_task_score_release(&score);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop_during_a_validation),
        cmocka_unit_test(test_stop_during_the_last_validation),
        cmocka_unit_test(test_stop_during_the_validation_of_an_epoch),
        cmocka_unit_test(test_stop_ends_translations),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
