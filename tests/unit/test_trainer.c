/* Training runs on a generated corpus: bitwise identical for any number of threads; the loss decreases;
 * divergence is reported and keeps the last checkpoint; what ends a run and its schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "support/tiny_job.h"

static void test_threads_are_exact(void **state)
{
    (void)state;
    static const char *const threads[] = {"1", "2", "3"};
    uint64_t hashes[3];
    nm_error err;
    for (int i = 0; i < 3; i++) {
        job j = {.threads = threads[i], .updates = "20", .folder = tiny_folder(), .norm = "batch"};
        hashes[i] = run(&j, NM_OK, &err);
        tiny_data_remove(j.folder);
    }
    assert_true(hashes[0] == hashes[1] && hashes[0] == hashes[2]);
}

/* Without learning the first validation stays the best: two more without a new best end the run. */
static void test_early_stopping(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "schedule.name", "constant", "schedule.lr", "0", "train.patience", "2", "train.validate_every", "3",
        "train.score",   "false",    NULL};
    nm_error err;
    job j = {.updates = "30", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(j.ended.best_update, 3);
    assert_int_equal(j.ended.update, 9);
    tiny_data_remove(j.folder);
}

/* A new best validation after worse ones begins the count again. The learning rate is so high that the loss
 * goes up and down. */
static void test_a_new_best_resets_the_patience(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "constant",
                                           "schedule.lr",
                                           "0.03",
                                           "train.patience",
                                           "100",
                                           "train.validate_every",
                                           "1",
                                           "train.score",
                                           "false",
                                           NULL};
    nm_error err;
    job j = {.updates = "24", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder);
    int64_t worse_before = 0, validations = 0;
    for (const char *at = log; (at = strstr(at, "\"type\":\"valid\"")) != NULL; at++) {
        const char *end = at + strcspn(at, "\n"), *best = strstr(at, "\"best\":true");
        worse_before += ++validations < j.ended.best_update && !(best && best < end);
    }
    assert_true(worse_before > 0);
    assert_int_equal(j.ended.bad_checks, j.ended.update - j.ended.best_update);
    free(log);
    tiny_data_remove(j.folder);
}

static void test_the_newest_checkpoints_are_kept(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "train.save_every", "2", "train.keep_last", "3", "train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "12", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    for (int update = 2; update <= 12; update += 2)
        for (int part = 0; part < 2; part++) {
            char *path =
                nm_format("%s/checkpoints/%08d.%ssafetensors", j.folder, update, part ? "state." : "");
            assert_true((access(path, F_OK) == 0) == (update >= 8));
            free(path);
        }
    tiny_data_remove(j.folder);
}

static void test_reversal_is_learned(void **state)
{
    (void)state;
    nm_error err;
    static const char *const settings[] = {"train.max_tokens",
                                           "400",
                                           "model.dropout",
                                           "0",
                                           "model.embedding_dropout",
                                           "0",
                                           "train.validate_every",
                                           "150",
                                           "schedule.name",
                                           "constant",
                                           NULL};
    job j = {.updates = "300", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *text = tiny_log(j.folder), *last = NULL;
    for (char *at = text; (at = strstr(at, "\"nll\":")) != NULL; at++)
        last = at;
    assert_non_null(last);
    assert_true(atof(last + 6) < 0.7 * 2.3); /* ln 10 = 2.3: chance level of ten words */
    free(text);
    tiny_data_remove(j.folder);
}

static void test_divergence_keeps_the_checkpoint(void **state)
{
    (void)state;
    nm_error err;
    static const char *const wild[] = {"schedule.lr", "100", "schedule.warmup", "0", "optim.name",
                                       "sgd",         NULL};
    job j = {.updates = "6", .folder = tiny_folder(), .norm = "batch"};
    run(&j, NM_OK, &err);
    char *kept = nm_format("%s/checkpoints/00000006.safetensors", j.folder);
    assert_int_equal(access(kept, F_OK), 0);
    j.resume = true;
    j.updates = "400";
    j.settings = wild;
    run(&j, NM_DIVERGED, &err);
    assert_non_null(strstr(err.text, "update "));
    assert_int_equal(access(kept, F_OK), 0);
    free(kept);
    tiny_data_remove(j.folder);
}

/* A training step that needs more memory than the limit ends before the first update, with both numbers. */
static void test_the_memory_of_a_step_is_limited(void **state)
{
    (void)state;
    static const char *const limits[] = {"1", "4096"};
    for (int i = 0; i < 2; i++) {
        /* wide enough to need more than 1 MiB on every CPU level */
        const char *const settings[] = {"device.memory_mib", limits[i], "model.width", "64",
                                        "model.ff",          "256",     NULL};
        nm_error err = {0};
        job j = {.settings = settings, .updates = "1", .folder = tiny_folder()};
        run(&j, i ? NM_OK : NM_MEMORY, &err);
        assert_int_equal(strstr(err.text, "an update needs up to ") != NULL, !i);
        assert_int_equal(
            strstr(err.text, " MiB of memory, 1 MiB are available: lower train.max_tokens") != NULL, !i);
        tiny_data_remove(j.folder);
    }
}

static void test_run_is_not_overwritten(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "2", .folder = tiny_folder()};
    run(&j, NM_OK, &err);
    run(&j, NM_USAGE, &err);
    assert_non_null(strstr(err.text, "--resume"));
    tiny_data_remove(j.folder);
}

/* These schedules depend on the planned updates; a limit of time determines them, but not a fraction of them
 * in advance. */
static void test_schedule_without_a_length_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"cosine", "cosine-ma2019", "linear", "wsd"};
    nm_error err;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        const char *const unlimited[] = {"schedule.name", names[i / 2], "train.patience", "1", NULL};
        const char *const fraction[] = {
            "schedule.name", names[i / 2], "train.seconds", "1", "schedule.warmup_fraction", "0.1", NULL};
        job j = {.updates = "0", .folder = tiny_folder(), .settings = i % 2 ? fraction : unlimited};
        run(&j, NM_USAGE, &err);
        assert_non_null(strstr(err.text, "schedule.updates"));
        tiny_data_remove(j.folder);
    }
}

/* The value of the last record of the log with the key. */
static double last_value(const char *log, const char *key)
{
    const char *found = NULL;
    for (const char *at = log; (at = strstr(at, key)) != NULL; at++)
        found = at;
    return found ? atof(found + strlen(key)) : NAN;
}

/* A limit of time ends the schedule, and a resumed run continues from the recorded position. */
static void test_schedule_ends_with_the_time(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "linear",
                                           "schedule.warmup",
                                           "1",
                                           "train.seconds",
                                           "0.4",
                                           "train.log_every",
                                           "1",
                                           NULL};
    static const char *const longer[] = {"schedule.name",
                                         "linear",
                                         "schedule.warmup",
                                         "1",
                                         "train.seconds",
                                         "0.8",
                                         "train.log_every",
                                         "1",
                                         NULL};
    nm_error err;
    job j = {.updates = "1000000", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    char *log = tiny_log(j.folder);
    double end = last_value(log, "\"schedule_position\":");
    free(log);
    assert_true(end > 0 && end <= 1);
    j.resume = true;
    j.settings = longer;
    run(&j, NM_OK, &err);
    log = tiny_log(j.folder);
    const char *resumed = strstr(log, "\"type\":\"resume\"");
    assert_non_null(resumed);
    const char *first = strstr(resumed, "\"schedule_position\":");
    assert_non_null(first);
    double begin = atof(first + strlen("\"schedule_position\":"));
    assert_true(begin > 0.25); /* about half of the doubled time, not the beginning */
    /* On a machine without free CPU the resumed session may have a single update. */
    bool several = strstr(first + 1, "\"schedule_position\":") != NULL;
    double last = last_value(log, "\"schedule_position\":");
    assert_true(several ? last > begin : last == begin);
    free(log);
    tiny_data_remove(j.folder);
}

/* Early stopping with a best validation that is never exceeded ends the schedule. */
static void test_schedule_ends_with_early_stopping(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.name",
                                           "linear",
                                           "schedule.warmup",
                                           "1",
                                           "schedule.early_stopping",
                                           "true",
                                           "train.patience",
                                           "3",
                                           "train.validate_every",
                                           "2",
                                           "train.log_every",
                                           "1",
                                           "model.dropout",
                                           "0.5",
                                           NULL};
    nm_error err;
    job once = {.updates = "400", .folder = tiny_folder(), .settings = settings};
    run(&once, NM_OK, &err);
    char *log = tiny_log(once.folder);
    double position = last_value(log, "\"schedule_position\":");
    assert_true(position > 0.6);
    assert_true(last_value(log, "\"update\":") < 400);
    free(log);
    tiny_data_remove(once.folder);
}

static void test_the_initial_checkpoint_is_kept(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.save_initial",
                                           "true",
                                           "train.save_every",
                                           "2",
                                           "train.keep_last",
                                           "1",
                                           "train.score",
                                           "false",
                                           NULL};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    for (int update = 0; update <= 6; update += 2) {
        char *name = nm_format("%08d.safetensors", update), *path = checkpoint_file(j.folder, name);
        assert_true((access(path, F_OK) == 0) == (update % 6 == 0));
        free(name);
        free(path);
    }
    tiny_data_remove(j.folder);
}

/* The rate of inverse-sqrt after 4 updates of warm-up is lr sqrt(4/(n - 1)): below lr/2 from update 18 on. */
static void test_the_lowest_learning_rate_ends_the_run(void **state)
{
    (void)state;
    static const char *const settings[] = {"schedule.min_lr", "0.0015", "train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "30", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(j.ended.update, 17);
    tiny_data_remove(j.folder);
}

/* Whatever train.validate_every is; the schedule has only the validation of update 15. It gets negative
 * losses where no score is computed: higher is better. */
static void test_a_run_ends_with_a_validation(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.score", "false", NULL};
    nm_error err;
    job j = {.updates = "20", .folder = tiny_folder(), .settings = settings};
    run(&j, NM_OK, &err);
    assert_int_equal(j.ended.checked_update, 20);
    assert_int_equal(j.ended.schedule.n_scores, 1);
    assert_true(j.ended.schedule.scores[0] < -1);
    assert_true(j.ended.schedule.scores[0] == -j.ended.best_loss || j.ended.best_update == 20);
    tiny_data_remove(j.folder);
}

static void write_text_corpus(const char *folder, const char *split, int sentences)
{
    char *prefix = nm_format("%s/%s.text", folder, split);
    nm_corpus_writer writer;
    nm_error err;
    assert_int_equal(nm_corpus_writer_open(&writer, prefix, &err), NM_OK);
    for (int s = 0; s < sentences; s++) {
        int32_t ids[6];
        for (int t = 0; t < 5; t++) /* each word determines the next one */
            ids[t] = TINY_SPECIAL + (s + t) % 8;
        ids[5] = TINY_EOS;
        nm_corpus_writer_add(&writer, ids, 6);
    }
    assert_int_equal(nm_corpus_writer_commit(&writer, &err), NM_OK);
    free(prefix);
}

/* Perplexity, which the schedule and train.best_by = score get with the opposite sign. */
static void test_a_lower_perplexity_is_better(void **state)
{
    (void)state;
    char *text = tiny_folder(), *folder = tiny_folder();
    tiny_write_text(text, "data.ini", "[prepare]\nformat = text\n");
    tiny_write_text(text, "dict.txt", "a 8\nb 7\nc 6\nd 5\ne 4\nf 3\ng 2\nh 1\n");
    write_text_corpus(text, "train", 60);
    write_text_corpus(text, "valid", 9);
    const char *const settings[] = {"data.folder",
                                    text,
                                    "model.preset",
                                    "tiny",
                                    "model.width",
                                    "16",
                                    "model.context",
                                    "8",
                                    "train.max_tokens",
                                    "64",
                                    "train.best_by",
                                    "score",
                                    "train.validate_every",
                                    "20",
                                    "train.updates",
                                    "60",
                                    "schedule.name",
                                    "constant",
                                    "schedule.lr",
                                    "0.003",
                                    "device.threads",
                                    "1",
                                    NULL};
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_lm);
    nm_probe_options_add(options);
    for (int i = 0; settings[i]; i += 2)
        if (nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_FILE, &err) != NM_OK)
            fail_msg("%s", err.text);
    nm_trainer *trainer;
    if (nm_trainer_open(&trainer, &nm_task_lm, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    const nm_train_state *s = nm_trainer_state(trainer);
    assert_int_equal(s->best_update, 60);
    assert_true(s->best_value > 1 && s->best_score == -s->best_value);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(text);
    tiny_data_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_are_exact),
        cmocka_unit_test(test_early_stopping),
        cmocka_unit_test(test_a_new_best_resets_the_patience),
        cmocka_unit_test(test_the_newest_checkpoints_are_kept),
        cmocka_unit_test(test_reversal_is_learned),
        cmocka_unit_test(test_divergence_keeps_the_checkpoint),
        cmocka_unit_test(test_the_memory_of_a_step_is_limited),
        cmocka_unit_test(test_run_is_not_overwritten),
        cmocka_unit_test(test_schedule_without_a_length_is_refused),
        cmocka_unit_test(test_schedule_ends_with_the_time),
        cmocka_unit_test(test_schedule_ends_with_early_stopping),
        cmocka_unit_test(test_the_initial_checkpoint_is_kept),
        cmocka_unit_test(test_the_lowest_learning_rate_ends_the_run),
        cmocka_unit_test(test_a_run_ends_with_a_validation),
        cmocka_unit_test(test_a_lower_perplexity_is_better),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
