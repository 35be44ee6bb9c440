/* include/norma/train.h, compare.h: a training that is stopped and resumed, its events, and errors. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

#include "norma/backend.h"
#include "norma/compare.h"
#include "norma/train.h"
#include "support/tiny_run.h"
#include "base/buffer.h"

static char *corpus; /* folder of table.tsv */

static int setup(void **state)
{
    (void)state;
    nm_buffer table = {0};
    for (int i = 0; i < 40; i++) {
        char *row = nm_format("%s\tw%d w%d w%d\n", i % 2 ? "good" : "bad", i % 2, 2 + i % 3, 5 + i % 5);
        nm_buffer_append(&table, row, strlen(row));
        free(row);
    }
    corpus = tiny_folder();
    tiny_write_text(corpus, "table.tsv", table.data);
    free(table.data);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tiny_data_remove(corpus);
    return 0;
}

typedef struct observer {
    nm_training *training;
    int64_t stop_after; /* 0: never */
    int progress, announced, validations, best;
    int64_t best_update;
    double best_loss, last_validation; /* last_validation: duration of the last one */
} observer;

static void count_progress(void *user, const nm_training_progress *progress)
{
    observer *self = user;
    self->progress++;
    assert_true(progress->update > 0 && isfinite(progress->loss) && progress->updates == 12);
    assert_true(isnan(progress->perplexity) && progress->batch >= 1 && progress->batch <= progress->batches);
    assert_true(fabs(progress->fraction - (double)progress->update / 12) < 1e-9);
    if (progress->update == self->stop_after)
        nm_training_stop(self->training);
}

static void check_announcement(void *user, int64_t update, double last_seconds)
{
    observer *self = user;
    assert_int_equal(update, 4 * (self->announced++ + 1));
    assert_true(last_seconds == self->last_validation);
}

static void count_validation(void *user, const nm_training_validation *validation)
{
    observer *self = user;
    assert_int_equal(self->announced, self->validations + 1);
    self->last_validation = validation->seconds;
    assert_true(validation->loss > 0 && isnan(validation->perplexity));
    assert_true(validation->nll > 0 && validation->seconds > 0 && !validation->noncausal);
    assert_true(isnan(validation->batch_nll) && isnan(validation->batch_loss) && !validation->masked);
    assert_string_equal(validation->score_name, "accuracy");
    assert_string_equal(validation->score_title, "accuracy");
    self->validations++;
    self->best += validation->best;
    if (validation->best) {
        self->best_update = validation->update;
        self->best_loss = validation->loss;
    }
}

static char *recipe_text(void)
{
    return nm_format("[run]\ntask = classification\n[data]\ntrain = %s/table.tsv\n[model]\npreset = tiny\n"
                     "[train]\nmax_tokens = 64\nupdates = 12\nvalidate_every = 4\n[device]\nthreads = 1\n",
                     corpus);
}

/* Trains in a new folder, in two parts if stop_after; the bytes of last.safetensors, heap. */
static char *train_parts(int64_t stop_after, size_t *bytes)
{
    char *folder = tiny_folder(), *run = nm_path_join(folder, "run"), *recipe = recipe_text(), *file;
    nm_error err;
    observer seen = {.stop_after = stop_after};
    const nm_training_events events = {.user = &seen,
                                       .progress = count_progress,
                                       .validating = check_announcement,
                                       .validated = count_validation};
    assert_int_equal(nm_training_open(&seen.training, recipe, run, NULL, NM_TRAINING_NEW, &events, &err),
                     NM_OK);
    assert_true(nm_training_parameters(seen.training) > 100 && nm_training_bytes(seen.training) > 1000);
    assert_int_equal(nm_training_run(seen.training, &err), stop_after ? NM_INTERRUPTED : NM_OK);
    assert_int_equal(nm_training_updates(seen.training), stop_after ? stop_after : 12);
    assert_string_equal(nm_training_folder(seen.training), run);
    assert_string_equal(nm_training_option(seen.training, "train.max_tokens"), "64");
    assert_null(nm_training_option(seen.training, "train.max_token"));
    assert_non_null(strstr(nm_training_device(seen.training), "1 thread"));
    const nm_training_summary summary = nm_training_summarize(seen.training);
    assert_int_equal(summary.updates, stop_after ? stop_after : 12);
    assert_int_equal(summary.best_update, seen.best_update);
    assert_true(summary.best_loss == seen.best_loss && summary.tokens > 0);
    assert_string_equal(summary.score_title, "accuracy");
    assert_int_equal(nm_training_get_profile(seen.training).updates, 0);
    nm_training_close(seen.training);
    seen.stop_after = 0;
    seen.last_validation = 0; /* of this session */
    if (stop_after) {
        assert_int_equal(nm_training_open(&seen.training, recipe, run, NULL, NM_TRAINING_NEW, &events, &err),
                         NM_USAGE);
        const char *const others[] = {"train.label_smoothing", "0.3", NULL};
        const char *const same_run[] = {"run.resume",     "yes",  "run.folder", run,
                                        "device.profile", "true", NULL};
        assert_int_equal(
            nm_training_open(&seen.training, recipe, run, others, NM_TRAINING_RESUME, &events, &err),
            NM_USAGE);
        assert_int_equal(
            nm_training_open(&seen.training, recipe, NULL, same_run, NM_TRAINING_NEW, &events, &err), NM_OK);
        assert_int_equal(nm_training_run(seen.training, &err), NM_OK);
        const nm_training_profile profile = nm_training_get_profile(seen.training);
        assert_int_equal(profile.updates, 12 - stop_after - 1);
        assert_true(profile.n_kernels > 5 && profile.kernels[0].seconds >= profile.kernels[1].seconds);
        nm_training_close(seen.training);
    }
    assert_int_equal(seen.progress, 12);
    assert_int_equal(seen.validations, 3);
    assert_true(seen.best >= 1);
    char *path = nm_path_join(run, "last.safetensors");
    assert_int_equal(nm_file_read(path, &file, bytes, &err), NM_OK);
    free(path);
    free(recipe);
    free(run);
    tiny_data_remove(folder);
    return file;
}

static void training_stops_and_resumes(void **state)
{
    (void)state;
    size_t whole_bytes, parts_bytes, tail = 2000;
    char *whole = train_parts(0, &whole_bytes), *parts = train_parts(5, &parts_bytes);
    assert_true(whole_bytes > tail && parts_bytes > tail);
    assert_memory_equal(whole + whole_bytes - tail, parts + parts_bytes - tail, tail);
    free(whole);
    free(parts);
}

static void bad_recipes(void **state)
{
    (void)state;
    nm_error err;
    nm_training *training = NULL;
    char *run = nm_path_join(corpus, "run"), *recipe = recipe_text();
    static const struct {
        const char *recipe, *message;
        nm_status status;
    } cases[] = {
        {"/nowhere.ini", "/nowhere.ini", NM_IO},
        {"[run]\ntask = dancing\n", "run.task = dancing: no such task; available: translation, lm", NM_USAGE},
        {"[train]\nupdate = 3\n", "update", NM_USAGE},
        {"[train]\nupdates = many\n", "many", NM_USAGE},
        {NULL, "recipe is NULL", NM_USAGE},
        {"", "recipe is empty", NM_USAGE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(nm_training_open(&training, cases[i].recipe, run, NULL, NM_TRAINING_NEW, NULL, &err),
                         cases[i].status);
        if (!strstr(err.text, cases[i].message))
            fail_msg("'%s' is not in '%s'", cases[i].message, err.text);
        assert_null(training);
    }
    const char *const unknown[] = {"train.update", "3", NULL}, *const no_value[] = {"train.updates", NULL};
    assert_int_equal(nm_training_open(&training, recipe, run, unknown, NM_TRAINING_NEW, NULL, &err),
                     NM_USAGE);
    assert_int_equal(nm_training_open(&training, recipe, run, no_value, NM_TRAINING_NEW, NULL, &err),
                     NM_USAGE);
    assert_int_equal(nm_training_open(&training, recipe, NULL, NULL, NM_TRAINING_NEW, NULL, NULL), NM_USAGE);
    assert_int_equal(nm_training_open(NULL, recipe, run, NULL, NM_TRAINING_NEW, NULL, NULL), NM_USAGE);
    /* Not the root folder. A dry run would write no files. */
    const char *const dry[] = {"run.dry_run", "true", NULL};
    assert_int_equal(nm_training_open(&training, recipe, "", dry, NM_TRAINING_NEW, NULL, &err), NM_USAGE);
    assert_string_equal(err.text, "nm_training_open: folder is empty");
    assert_int_equal(nm_training_open(&training, recipe, run, dry, (nm_training_resume)7, NULL, &err),
                     NM_USAGE);
    assert_string_equal(err.text, "nm_training_open: resume is 7");
    /* A data folder, also before its data are read. */
    char *settings = nm_path_join(corpus, "data.ini");
    assert_int_equal(nm_file_write(settings, "", 0, &err), NM_OK);
    assert_int_equal(nm_training_open(&training, recipe, corpus, dry, NM_TRAINING_NEW, NULL, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "is a data folder"));
    assert_int_equal(nm_training_open(&training, recipe, corpus, NULL, NM_TRAINING_RESUME, NULL, &err),
                     NM_USAGE);
    assert_non_null(strstr(err.text, "is a data folder"));
    unlink(settings);
    free(settings);
    assert_null(training);
    assert_int_equal(nm_training_run(NULL, NULL), NM_USAGE);
    nm_training_stop(NULL);
    nm_training_close(NULL);
    free(run);
    free(recipe);
}

/* The list of options ends at a name without a value; what is after it in memory is not read. */
static void bad_comparisons(void **state)
{
    (void)state;
    nm_error err;
    nm_comparison *comparison = NULL;
    const char *const no_value[] = {"format", NULL, "seeds", NULL}, *const no_effect[] = {"seeds", "3", NULL};
    assert_int_equal(nm_comparison_open_results(&comparison, corpus, no_value, NULL, &err), NM_USAGE);
    assert_string_equal(err.text, "option format has no value");
    assert_int_equal(nm_comparison_open_results(&comparison, corpus, no_effect, NULL, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "--compare.seeds has no effect with --results"));
    assert_int_equal(nm_comparison_open_results(&comparison, "", NULL, NULL, &err), NM_USAGE);
    assert_string_equal(err.text, "nm_comparison_open_results: folder is empty");
    assert_null(comparison);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_stops_and_resumes),
        cmocka_unit_test(bad_recipes),
        cmocka_unit_test(bad_comparisons),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
