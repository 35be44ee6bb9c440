/* Kernel calls and waits of the host in an update: the host waits once, after the optimizer's step, whatever
 * the norm and the number of shards. Calls are the same on all backends, launches on a GPU are not; the
 * backend `emulated`, which counts waits itself, is slow and runs once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>

#include "support/tiny_run.h"
#include "train/trainer_private.h"

typedef struct counts {
    int64_t calls; /* of kernels, without those that kernels call */
    int64_t waits; /* of the host for a result */
    int64_t early; /* of them, those before the last kernel of the optimizer */
    int64_t own;   /* counted by the backend */
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
        if (NM_KERNEL_##name == NM_KERNEL_adam || NM_KERNEL_##name == NM_KERNEL_sgd)                         \
            now.early = now.waits;                                                                           \
        depth++;                                                                                             \
        counted.name(b, args);                                                                               \
        depth--;                                                                                             \
    }
NM_KERNELS(K)
#undef K

static nm_trainer *open_trainer(nm_options *options, const char *folder)
{
    nm_trainer *trainer;
    nm_training_progress progress;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_update(trainer, &progress, &err) != NM_OK)
        fail_msg("%s", err.text);
    return trainer;
}

/* Of the second update; the first one allocates memory. */
static counts count(const char *backend, const char *norm, const char *shards, const char *const *more)
{
    static const nm_kernels counting = {
#define K(name) .name = count_##name,
        NM_KERNELS(K)
#undef K
    };
    const char *const settings[] = {
        "device.backend",      backend, "model.norm", norm, "train.shards", shards,
        "train.max_grad_norm", "1",     NULL};
    nm_options *options = tiny_options(settings);
    for (; more && *more; more += 2)
        tiny_set(options, more[0], more[1]);
    char *folder = tiny_folder();
    nm_training_progress progress;
    nm_error err;
    nm_trainer *trainer = open_trainer(options, folder);
    counted = trainer->backend->k;
    trainer->backend->k = counting;
    now = (counts){.own = -nm_backend_waits(trainer->backend)};
    if (nm_trainer_update(trainer, &progress, &err) != NM_OK)
        fail_msg("%s: %s", norm, err.text);
    trainer->backend->k = counted;
    now.own += nm_backend_waits(trainer->backend);
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
    } rows[] = {{"layer", 132}, {"batch", 192}, {"power", 217}, {"rbn", 277}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const counts one = count("ref", rows[i].norm, "1", NULL),
                     three = count("ref", rows[i].norm, "3", NULL);
        printf("%s: %lld kernel calls, %lld waits; three shards: %lld, %lld\n", rows[i].norm,
               (long long)one.calls, (long long)one.waits, (long long)three.calls, (long long)three.waits);
        assert_int_equal(one.waits, 1);
        assert_int_equal(three.waits, 1);
        assert_int_equal(one.early + three.early, 0);
        assert_int_equal(one.calls, rows[i].calls);
    }
}

static void the_emulated_backend_waits_as_often(void **state)
{
    (void)state;
    const counts expected = count("ref", "rbn", "1", NULL), actual = count("emulated", "rbn", "1", NULL);
    assert_int_equal(actual.calls, expected.calls);
    assert_int_equal(actual.waits, expected.waits);
    assert_int_equal(actual.own, 1);
}

/* In lockstep the host waits for each pass. Muon could not skip its step after the update has diverged, and
 * parameters that decay to 1 would be rounded: there the host waits before the step. */
static void some_options_wait_earlier(void **state)
{
    (void)state;
    static const char *const lockstep[] = {"norm.statistics", "update", NULL};
    static const char *const sgd_name[] = {"optim.name", "sgd", NULL};
    static const char *const muon_name[] = {"optim.name", "muon", NULL};
    static const char *const to_one[] = {"norm.rms.decay_to_one", "true", "optim.weight_decay", "0.01", NULL};
    assert_int_equal(count("ref", "batch", "3", lockstep).waits, 3 + 1);
    const counts sgd = count("ref", "layer", "1", sgd_name), muon = count("ref", "layer", "1", muon_name),
                 decay = count("ref", "rms", "1", to_one);
    assert_int_equal(sgd.waits, 1);
    assert_int_equal(sgd.early, 0);
    assert_int_equal(muon.waits, 1);
    assert_int_equal(muon.early, 1);
    assert_int_equal(decay.waits, 1);
    assert_int_equal(decay.early, 1);
}

/* Kernels that the backend `cuda` launches in the second update, on the stub of its libraries. While workers
 * use the GPU, every operation on vectors is one launch. */
static int launches(const char *norm, bool worker)
{
    static int (*calls)(const char *function);
    void *stub = dlopen(STUB_FOLDER "/libcuda.so.1", RTLD_NOW);
    if (!stub || !dlopen(STUB_FOLDER "/libnvrtc.so.13", RTLD_NOW))
        fail_msg("%s", dlerror());
    *(void **)&calls = dlsym(stub, "stub_calls");
    const char *const settings[] = {
        "device.backend", "cuda", "device.gemm", "own", "device.precision",    "float",
        "device.cache",   "none", "model.norm",  norm,  "train.max_grad_norm", "1",
        "train.shards",   "1",    NULL};
    nm_options *options = tiny_options(settings);
    char *folder = tiny_folder();
    nm_trainer *trainer = open_trainer(options, folder);
    nm_backend *other = NULL;
    nm_training_progress progress;
    nm_error err;
    if (worker)
        assert_int_equal(nm_backend_create_worker(&other, trainer->backend, 1, &err), NM_OK);
    const int before = calls("cuLaunchKernel");
    assert_int_equal(nm_trainer_update(trainer, &progress, &err), NM_OK);
    const int n = calls("cuLaunchKernel") - before;
    nm_backend_free(other);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
    return n;
}

static void operations_on_vectors_are_launched_together(void **state)
{
    (void)state;
    static const struct {
        const char *norm;
        int together, each;
    } rows[] = {{"power", 245, 309}, {"rbn", 305, 379}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int together = launches(rows[i].norm, false), each = launches(rows[i].norm, true);
        printf("%s: %d launches, %d with a launch for each operation on vectors\n", rows[i].norm, together,
               each);
        assert_int_equal(together, rows[i].together);
        assert_int_equal(each, rows[i].each);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_waits_once),
        cmocka_unit_test(the_emulated_backend_waits_as_often),
        cmocka_unit_test(some_options_wait_earlier),
        cmocka_unit_test(operations_on_vectors_are_launched_together),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
