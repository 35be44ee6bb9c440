/* Moving averages of the parameters: the formula, computed again from the checkpoints of all updates;
 * training does not depend on them; a resumed run continues them bitwise. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "support/tiny_job.h"

enum { N = 7 };
static const char *const every_update[] = {"train.validate_every",
                                           "7",
                                           "train.save_every",
                                           "1",
                                           "train.keep_last",
                                           "20",
                                           "train.save_initial",
                                           "true",
                                           "schedule.lr",
                                           "0.01",
                                           "train.ema_decay",
                                           "0.4",
                                           NULL};

static nm_safetensors *open_file(const char *folder, const char *name)
{
    char *path = nm_path_join(folder, name);
    nm_safetensors *file;
    nm_error err;
    assert_int_equal(nm_safetensors_open(&file, path, &err), NM_OK);
    free(path);
    return file;
}

static float value_of(const nm_safetensor *tensor, size_t i)
{
    return ((const float *)tensor->data)[i];
}

/* The average of element i of a tensor over the checkpoints. */
static double average_of(nm_safetensors *const *checkpoints, const char *name, size_t i)
{
    double average = value_of(nm_safetensors_find(checkpoints[0], name), i);
    for (int t = 1; t <= N; t++) {
        const double decay = fmin(0.4, (1.0 + t) / (10.0 + t)); /* below 0.4 before update 5 */
        average = decay * average + (1 - decay) * value_of(nm_safetensors_find(checkpoints[t], name), i);
    }
    return average;
}

static void test_best_model_is_the_average(void **state)
{
    (void)state;
    nm_error err;
    job j = {.updates = "7", .folder = tiny_folder(), .settings = every_update};
    run(&j, NM_OK, &err);
    nm_safetensors *checkpoints[N + 1], *best = open_file(j.folder, "best.safetensors");
    for (int t = 0; t <= N; t++) {
        char *name = nm_format("checkpoints/%08d.safetensors", t);
        checkpoints[t] = open_file(j.folder, name);
        free(name);
    }
    size_t n_moved = 0;
    for (size_t k = 0; k < nm_safetensors_count(best); k++) {
        const nm_safetensor *tensor = nm_safetensors_at(best, k);
        const nm_safetensor *last = nm_safetensors_find(checkpoints[N], tensor->name);
        for (size_t i = 0; tensor->type == NM_TENSOR_F32 && i < tensor->bytes / sizeof(float); i++) {
            assert_true(fabs(value_of(tensor, i) - average_of(checkpoints, tensor->name, i)) < 1e-6);
            n_moved += fabsf(value_of(tensor, i) - value_of(last, i)) > 1e-4F;
        }
    }
    assert_true(n_moved > 1000); /* the average is not the last model */
    for (int t = 0; t <= N; t++)
        nm_safetensors_close(checkpoints[t]);
    nm_safetensors_close(best);
    tiny_data_remove(j.folder);
}

/* frozen: parameters without gradients, whose memory the exchange also uses. */
static void assert_training_is_unchanged(const char *norm, const char *frozen)
{
    const char *const without[] = {"train.validate_every", "4", "model.freeze", frozen, NULL};
    const char *const with[] = {
        "train.validate_every", "4", "model.freeze", frozen, "train.ema_decay", "0.9", NULL};
    nm_error err;
    job plain = {.norm = norm, .updates = "12", .folder = tiny_folder(), .settings = without};
    job averaged = {.norm = norm, .updates = "12", .folder = tiny_folder(), .settings = with};
    const uint64_t hash = run(&plain, NM_OK, &err);
    assert_true(run(&averaged, NM_OK, &err) == hash);
    assert_true(averaged.ended.sum_norm == plain.ended.sum_norm);   /* no gradient has another value */
    assert_true(averaged.ended.best_loss != plain.ended.best_loss); /* the validation has another model */
    tiny_data_remove(plain.folder);
    tiny_data_remove(averaged.folder);
}

static void test_training_is_unchanged(void **state)
{
    (void)state;
    assert_training_is_unchanged("layer", "");
    assert_training_is_unchanged("power", "");
    assert_training_is_unchanged("rbn", "");
    assert_training_is_unchanged("layer", "enc.?,dec.0.ffn.*");
}

static void assert_equal_files(const char *a, const char *b, const char *name)
{
    nm_safetensors *first = open_file(a, name), *second = open_file(b, name);
    for (size_t i = 0; i < nm_safetensors_count(first); i++) {
        const nm_safetensor *x = nm_safetensors_at(first, i), *y = nm_safetensors_find(second, x->name);
        if (!strcmp(x->name, "state.seconds") || !strcmp(x->name, "state.log_bytes"))
            continue;
        assert_non_null(y);
        if (x->bytes != y->bytes || (x->bytes && memcmp(x->data, y->data, x->bytes) != 0))
            fail_msg("%s: %s differs", name, x->name);
    }
    nm_safetensors_close(first);
    nm_safetensors_close(second);
}

static void test_resume_is_exact(void **state)
{
    (void)state;
    static const char *const settings[] = {"train.validate_every", "9", "train.ema_decay", "0.99", NULL};
    nm_error err;
    job whole = {.updates = "9", .folder = tiny_folder(), .settings = settings};
    job part = {.updates = "4", .folder = tiny_folder(), .settings = settings};
    run(&whole, NM_OK, &err);
    run(&part, NM_OK, &err);
    part.updates = "9";
    part.resume = true;
    run(&part, NM_OK, &err);
    assert_equal_files(whole.folder, part.folder, "checkpoints/00000009.state.safetensors");
    /* The validation that ended the first part may have been better. */
    if (part.ended.best_update == 9)
        assert_equal_files(whole.folder, part.folder, "best.safetensors");
    nm_safetensors *file = open_file(part.folder, "checkpoints/00000009.state.safetensors");
    assert_non_null(nm_safetensors_find(file, "ema"));
    nm_safetensors_close(file);
    tiny_data_remove(whole.folder);
    tiny_data_remove(part.folder);
}

/* A run that gets the option when it is resumed begins with the parameters of the checkpoint. */
static void test_average_begins_at_resume(void **state)
{
    (void)state;
    static const char *const without[] = {"train.validate_every", "9", NULL};
    static const char *const with[] = {"train.validate_every", "9", "train.ema_decay", "0.5", NULL};
    nm_error err;
    job j = {.updates = "6", .folder = tiny_folder(), .settings = without};
    run(&j, NM_OK, &err);
    j.settings = with;
    j.updates = "7";
    j.resume = true;
    run(&j, NM_OK, &err);
    nm_safetensors *before = open_file(j.folder, "checkpoints/00000006.safetensors"),
                   *after = open_file(j.folder, "checkpoints/00000007.safetensors"),
                   *ema = open_file(j.folder, "checkpoints/00000007.state.safetensors"),
                   *best = open_file(j.folder, "best.safetensors");
    assert_non_null(nm_safetensors_find(ema, "ema"));
    if (j.ended.best_update == 7) {
        const double decay = 8.0 / 17; /* (1 + t) / (10 + t) */
        for (size_t k = 0; k < nm_safetensors_count(best); k++) {
            const nm_safetensor *tensor = nm_safetensors_at(best, k);
            const nm_safetensor *a = nm_safetensors_find(before, tensor->name),
                                *b = nm_safetensors_find(after, tensor->name);
            for (size_t i = 0; tensor->type == NM_TENSOR_F32 && i < tensor->bytes / sizeof(float); i++)
                assert_true(
                    fabs(decay * value_of(a, i) + (1 - decay) * value_of(b, i) - value_of(tensor, i)) < 1e-6);
        }
    }
    nm_safetensors_close(before);
    nm_safetensors_close(after);
    nm_safetensors_close(ema);
    nm_safetensors_close(best);
    tiny_data_remove(j.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_model_is_the_average),
        cmocka_unit_test(test_training_is_unchanged),
        cmocka_unit_test(test_resume_is_exact),
        cmocka_unit_test(test_average_begins_at_resume),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
