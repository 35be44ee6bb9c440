/* Kernel calls and waits of the host in an update: the host waits once for results, whatever the norm and the
 * number of shards. Calls are the same on all backends; the backend `emulated` is slow and runs once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "support/tiny_run.h"
#include "train/trainer_private.h"

typedef struct counts {
    int64_t calls; /* of kernels, without those that kernels call */
    int64_t waits; /* of the host for a result */
} counts;

static nm_kernels counted; /* what the counting kernels call */
static counts now;
static int depth;

static bool is_wait(int kernel, const void *args)
{
    const nm_dot_args *dot = args;
    return kernel == NM_KERNEL_download || (kernel == NM_KERNEL_dot && (dot->out || dot->blocks));
}

#define K(name)                                                                                              \
    static void count_##name(nm_backend *b, const nm_##name##_args *args)                                    \
    {                                                                                                        \
        now.calls += depth == 0;                                                                             \
        now.waits += depth == 0 && is_wait(NM_KERNEL_##name, args);                                          \
        depth++;                                                                                             \
        counted.name(b, args);                                                                               \
        depth--;                                                                                             \
    }
NM_KERNELS(K)
#undef K

/* Of the second update; the first one allocates memory. */
static counts count(const char *backend, const char *norm, const char *shards, const char *more,
                    const char *value)
{
    static const nm_kernels counting = {
#define K(name) .name = count_##name,
        NM_KERNELS(K)
#undef K
    };
    const char *const settings[] = {"device.backend",
                                    backend,
                                    "model.norm",
                                    norm,
                                    "train.shards",
                                    shards,
                                    "train.max_grad_norm",
                                    "1",
                                    more,
                                    value,
                                    NULL};
    nm_options *options = tiny_options(settings);
    char *folder = tiny_folder();
    nm_trainer *trainer;
    nm_training_progress progress;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_update(trainer, &progress, &err) != NM_OK)
        fail_msg("%s: %s", norm, err.text);
    counted = trainer->backend->k;
    trainer->backend->k = counting;
    now = (counts){0};
    if (nm_trainer_update(trainer, &progress, &err) != NM_OK)
        fail_msg("%s: %s", norm, err.text);
    trainer->backend->k = counted;
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
    return now;
}

static void the_host_waits_once(void **state)
{
    (void)state;
    static const struct {
        const char *norm;
        int64_t calls;
    } rows[] = {{"layer", 131}, {"batch", 191}, {"power", 216}, {"rbn", 276}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const counts one = count("ref", rows[i].norm, "1", NULL, NULL),
                     three = count("ref", rows[i].norm, "3", NULL, NULL);
        printf("%s: %lld kernel calls, %lld waits; three shards: %lld, %lld\n", rows[i].norm,
               (long long)one.calls, (long long)one.waits, (long long)three.calls, (long long)three.waits);
        assert_int_equal(one.waits, 1);
        assert_int_equal(three.waits, 1);
        assert_int_equal(one.calls, rows[i].calls);
    }
}

static void the_emulated_backend_waits_as_often(void **state)
{
    (void)state;
    const counts expected = count("ref", "rbn", "1", NULL, NULL),
                 actual = count("emulated", "rbn", "1", NULL, NULL);
    assert_int_equal(actual.calls, expected.calls);
    assert_int_equal(actual.waits, expected.waits);
}

/* What still waits: each pass in lockstep, and each matrix of Muon. */
static void some_options_wait_more(void **state)
{
    (void)state;
    assert_int_equal(count("ref", "batch", "3", "norm.statistics", "update").waits, 3 + 1);
    assert_true(count("ref", "layer", "1", "optim.name", "muon").waits > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_waits_once),
        cmocka_unit_test(the_emulated_backend_waits_as_often),
        cmocka_unit_test(some_options_wait_more),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
