/* The mean of model files: floating-point tensors element by element, counters and metadata of the newest
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/safetensors.h"
#include "train/model_average.h"

static void write_model(const char *path, const char *update, float first, int64_t counter,
                        const char *config)
{
    const float weight[] = {first, 1};
    const int64_t shape[] = {2};
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_error err;
    nm_safetensors_add(writer, "weight", NM_TENSOR_F32, 1, shape, weight);
    nm_safetensors_add(writer, "iters", NM_TENSOR_I64, 0, NULL, &counter);
    nm_safetensors_add_metadata(writer, "update", update);
    nm_safetensors_add_metadata(writer, "task", "lm");
    nm_safetensors_add_metadata(writer, "config", config);
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
}

static void check(const char *const *paths)
{
    char out[] = "/tmp/norma-average-out-XXXXXX";
    nm_error err;
    nm_safetensors *file;
    float weight[2];
    int64_t counter;
    close(mkstemp(out));
    assert_int_equal(nm_model_average(paths, 3, out, &err), NM_OK);
    assert_int_equal(nm_safetensors_open(&file, out, &err), NM_OK);
    memcpy(weight, nm_safetensors_find(file, "weight")->data, sizeof weight);
    memcpy(&counter, nm_safetensors_find(file, "iters")->data, sizeof counter);
    assert_true(weight[0] == 4 && weight[1] == 1);
    assert_int_equal(counter, 120);
    assert_string_equal(nm_safetensors_metadata(file, "update"), "12");
    nm_safetensors_close(file);
    unlink(out);
}

/* A file of a training state has tensors, but is not a model. */
static void test_not_a_model(void **state)
{
    (void)state;
    char path[] = "/tmp/norma-average-XXXXXX", out[] = "/tmp/norma-average-XXXXXX";
    const char *const paths[] = {path};
    const float value = 1;
    nm_error err;
    close(mkstemp(path));
    close(mkstemp(out));
    unlink(out);
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "optimizer.m", NM_TENSOR_F32, 0, NULL, &value);
    assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
    assert_int_equal(nm_model_average(paths, 1, out, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "not a model"));
    assert_int_equal(access(out, F_OK), -1);
    unlink(path);
}

static void test_counters_of_newest(void **state)
{
    (void)state;
    char names[3][32];
    for (int i = 0; i < 3; i++) {
        strcpy(names[i], "/tmp/norma-average-XXXXXX");
        close(mkstemp(names[i]));
    }
    write_model(names[0], "9", 2, 90, "");
    write_model(names[1], "12", 3, 120, "");
    write_model(names[2], "3", 7, 30, "");
    check((const char *const[]){names[0], names[1], names[2]});
    check((const char *const[]){names[1], names[2], names[0]});
    for (int i = 0; i < 3; i++)
        unlink(names[i]);
}

/* Models with the same tensors that compute different functions, or were trained by different ones. */
static void test_different_norms(void **state)
{
    (void)state;
    static const char *const configs[][2] = {
        {"[norm]\ngroups = 0 ; default\n\n[norm.none]\n\n[norm.batch]\nepsilon = 1e-05 ; default\n",
         "[norm]\ngroups = 0 ; file\n\n[norm.none]\n\n[norm.batch]\nepsilon = 0.001 ; file\n"},
        {"[norm.rms]\nepsilon_inside = true ; file\n\n[train]\nupdates = 3 ; file\n",
         "[norm.rms]\nepsilon_inside = false ; default\n\n[train]\nupdates = 9 ; file\n"},
        {"[norm]\n\n[norm.power]\nscaling = group ; default\n",
         "[norm]\n\n[norm.power]\nscaling = none ; file"}};
    static const char *const differing[] = {"norm.batch.epsilon", "norm.rms.epsilon_inside",
                                            "norm.power.scaling"};
    char names[2][32], out[] = "/tmp/norma-average-out-XXXXXX";
    nm_error err;
    close(mkstemp(out));
    for (int i = 0; i < 2; i++) {
        strcpy(names[i], "/tmp/norma-average-XXXXXX");
        close(mkstemp(names[i]));
    }
    for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
        for (int i = 0; i < 2; i++)
            write_model(names[i], "9", 2, 90, configs[c][i]);
        const char *const paths[] = {names[0], names[1]};
        assert_int_equal(nm_model_average(paths, 2, out, &err), NM_MISMATCH);
        assert_non_null(strstr(err.text, differing[c]));
    }
    /* An option that only one version of the program has is no difference. */
    write_model(names[0], "9", 2, 90, "[norm]\n\n[norm.power]\nscaling = group ; default\n");
    write_model(names[1], "9", 2, 90,
                "[norm]\n\n[norm.power]\nscaling = group ; default\nlag = 1 ; default\n");
    for (int first = 0; first < 2; first++)
        assert_int_equal(nm_model_average((const char *const[]){names[first], names[!first]}, 2, out, &err),
                         NM_OK);
    for (int i = 0; i < 2; i++)
        unlink(names[i]);
    unlink(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_not_a_model),
                                       cmocka_unit_test(test_counters_of_newest),
                                       cmocka_unit_test(test_different_norms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
