/* Kernels at shapes from the input: kernel, CPU level, rows, columns, gap between rows, threads, seed. Every
 * variant of the kernel is compared with `ref` in double by the checks of tests/kernel, which also detect
 * writes outside the outputs. */
#include "fuzz.h"
#include "kernel/kernel_checks.h"
#include "kernel/kernel_levels.h"

enum { MAX_THREADS = 2, MAX_ROWS = 150, MAX_COLS = 150 };

/* NULL if this machine does not support the level. */
static nm_backend *backend_of(uint32_t level, int32_t threads)
{
    static nm_backend *known[N_CPU_LEVELS][MAX_THREADS + 1];
    static bool tried[N_CPU_LEVELS][MAX_THREADS + 1];
    if (!tried[level][threads]) {
        nm_backend_options options = {.name = "cpu", .isa = cpu_levels[level], .threads = threads};
        nm_error err;
        tried[level][threads] = true;
        if (nm_backend_create(&known[level][threads], &options, &err) != NM_OK)
            known[level][threads] = NULL;
    }
    return known[level][threads];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static nm_backend *reference;
    static pair p;
    if (!reference)
        reference = level_create((nm_backend_options){.name = "ref", .dtype = NM_F64});
    const kernel_check *row = &kernel_checks[fuzz_choice(&data, &bytes, N_KERNEL_CHECKS)];
    uint32_t level = fuzz_choice(&data, &bytes, N_CPU_LEVELS);
    int32_t threads = 1 + (int32_t)fuzz_choice(&data, &bytes, MAX_THREADS);
    size z = {1 + (int32_t)fuzz_choice(&data, &bytes, MAX_ROWS),
              1 + (int32_t)fuzz_choice(&data, &bytes, MAX_COLS), (int32_t)fuzz_choice(&data, &bytes, 9)};
    nm_backend *actual = backend_of(level, threads);
    if (!actual)
        return 0;
    char what[128];
    snprintf(what, sizeof what, "%s on %s, %d threads, %d x %d, gap %d", row->name, cpu_levels[level],
             (int)threads, (int)z.rows, (int)z.cols, (int)z.gap);
    p = (pair){.on = {actual, reference}, .what = what, .seed = 1 + fuzz_choice(&data, &bytes, 256)};
    row->check(&p, z);
    pair_close(&p);
    return 0;
}
