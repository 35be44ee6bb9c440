/* What the emulator finds: kernels with planted faults end the process with a message, or have results that
 * depend on the order of threads; correct ones do not. Races and overruns are found with the sanitizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/device/dialect.h"
#include "support/sanitizer.h"

enum { THREADS = 128 };

struct out_args {
    dptr out; /* float [THREADS] */
};
#define ARGUMENTS(name)                                                                                      \
    struct name##_args {                                                                                     \
        dptr out;                                                                                            \
    }
ARGUMENTS(correct);
ARGUMENTS(no_barrier);
ARGUMENTS(unwritten);
ARGUMENTS(some_at_barrier);
ARGUMENTS(half_a_warp);
ARGUMENTS(barrier_without_fibers);
ARGUMENTS(much_memory);
ARGUMENTS(overrun);
ARGUMENTS(shuffle_only);

KERNEL(correct, THREADS)
{
    SHARED(float, x, THREADS);
    x[THREAD] = (float)THREAD;
    BARRIER();
    PTR(float, a.out)[THREAD] = x[THREADS - 1 - THREAD];
}

KERNEL(no_barrier, THREADS)
{
    SHARED(float, x, THREADS);
    x[THREAD] = (float)THREAD;
    PTR(float, a.out)[THREAD] = x[THREADS - 1 - THREAD];
}

KERNEL(unwritten, THREADS)
{
    SHARED(float, x, THREADS);
    BARRIER();
    PTR(float, a.out)[THREAD] = x[THREAD];
}

KERNEL(some_at_barrier, THREADS)
{
    if (THREAD < THREADS / 2)
        BARRIER();
    PTR(float, a.out)[THREAD] = 1;
}

KERNEL(half_a_warp, THREADS)
{
    if (LANE < 16)
        WARP_SYNC();
    PTR(float, a.out)[THREAD] = 1;
}

EACH(barrier_without_fibers, THREADS)
{
    BARRIER();
    PTR(float, a.out)[THREAD] = 1;
}

KERNEL(much_memory, THREADS)
{
    SHARED(float, x, 25000);
    x[THREAD] = 1;
    PTR(float, a.out)[THREAD] = x[THREAD];
}

KERNEL(overrun, THREADS)
{
    SHARED(float, x, THREADS);
    x[THREAD + 1] = 1;
    BARRIER();
    PTR(float, a.out)[THREAD] = x[THREAD];
}

/* A shuffle does not order accesses to memory. */
KERNEL(shuffle_only, THREADS)
{
    SHARED(float, x, THREADS);
    x[THREAD] = (float)THREAD;
    const float zero = WARP_XOR(0.0f, 1);
    PTR(float, a.out)[THREAD] = x[THREAD ^ 1] + zero;
}

static float out[THREADS];

static void run(const nm_device_kernel *kernel, nm_emulator_order order)
{
    nm_emulator_set_order(order);
    nm_emulator_run(kernel, 1, 1, 1, &(struct out_args){(dptr)(uintptr_t)out});
    nm_emulator_set_order(NM_EMULATOR_ASCENDING);
}

/* Runs a kernel in a child process, which must not end well. text: what it prints */
static void expect_failure(const nm_device_kernel *kernel, const char *text)
{
    int ends[2], status = 0;
    char message[4096];
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        run(kernel, NM_EMULATOR_ASCENDING);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got;
         n < sizeof message - 1 && (got = read(ends[0], message + n, sizeof message - 1 - n)) > 0;)
        n += (size_t)got;
    message[n] = 0;
    close(ends[0]);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (status == 0 || !strstr(message, text))
        fail_msg("%s: status %d, \"%s\"", kernel->name, status, message);
}

static void test_orders(void **state)
{
    (void)state;
    float first[THREADS];
    for (int order = NM_EMULATOR_ASCENDING; order <= NM_EMULATOR_SHUFFLED; order++) {
        run(&nm_device_correct, (nm_emulator_order)order);
        for (int i = 0; i < THREADS; i++)
            assert_true(out[i] == (float)(THREADS - 1 - i));
    }
    if (THREAD_SANITIZER)
        return;
    run(&nm_device_no_barrier, NM_EMULATOR_ASCENDING);
    memcpy(first, out, sizeof first);
    run(&nm_device_no_barrier, NM_EMULATOR_DESCENDING);
    assert_memory_not_equal(out, first, sizeof first);
    run(&nm_device_unwritten, NM_EMULATOR_ASCENDING);
    for (int i = 0; i < THREADS; i++)
        assert_true(isnan(out[i]));
}

static void test_messages(void **state)
{
    (void)state;
    if (THREAD_SANITIZER) /* which loses the order of fibers in a forked process */
        return;
    expect_failure(&nm_device_some_at_barrier,
                   "emulator: kernel some_at_barrier, block (0, 0), thread 64: not all threads of the block "
                   "reach a barrier");
    expect_failure(&nm_device_half_a_warp, "not all threads of the warp reach a warp operation");
    expect_failure(&nm_device_barrier_without_fibers, "a barrier in a kernel whose threads do not meet");
    expect_failure(&nm_device_much_memory, "more than 96 KiB of shared memory");
}

static void test_sanitizers(void **state)
{
    (void)state;
    if (ADDRESS_SANITIZER)
        expect_failure(&nm_device_overrun, "AddressSanitizer");
    if (THREAD_SANITIZER) {
        expect_failure(&nm_device_no_barrier, "ThreadSanitizer: data race");
        expect_failure(&nm_device_shuffle_only, "ThreadSanitizer: data race");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sanitizers), cmocka_unit_test(test_orders),
                                       cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
