/* norma bench: executes norma-bench, a separate program in the same folder, which is linked with a BLAS as a
 * baseline. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_folder.h"
#include "cli/cli.h"

typedef struct bench_config {
    bool quick, profile, scaling, all;
    const char *parts, *match, *json, *isa, *precision;
    int64_t threads;
} bench_config;

/* The part of [device] that norma-bench has; the other options are in [bench]. */
typedef struct bench_device {
    const char *backend, *gemm;
    int64_t ordinal;
} bench_device;

#define ROW(field, initial, min, max, help) NM_OPTION(bench_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option bench_rows[] = {
    ROW(quick, "false", 0, 1, "Finish in less than a minute: fewer repetitions, one training step."),
    ROW(profile, "false", 0, 1, "Print the time of a training step by kernel."),
    ROW(all, "false", 0, 1, "Also measure larger models."),
    ROW(scaling, "false", 0, 1, "Measure only training steps with 1, 2, 4, ... threads, up to --threads."),
    ROW(parts, "ceilings,kernels,norms,step,decode", 0, 0,
        "Parts to measure, comma-separated; also: scaling."),
    ROW(match, "", 0, 0, "Measure only kernels and norms whose name contains this text; empty: all."),
    ROW(json, "", 0, 0,
        "File for all results as JSON; - writes JSON to standard output instead of tables; empty: none."),
    ROW(isa, "auto", 0, 0,
        "CPU instruction set: auto, base, avx2, avx512, vnni, avx512_bf16, amx, neon or dotprod."),
    ROW(precision, "float", 0, 0, "Precision of matrix multiplications: float, bf16, or tf32 on a GPU."),
    ROW(threads, "0", 0, 4096, "Number of threads; 0: one per core, at most the CPU limit of the container."),
    {0}};
static const nm_option device_rows[] = {
    NM_WORD(bench_device, backend, "cpu", "cpu|emulated|cuda", "Backend to measure."),
    NM_WORD(bench_device, gemm, "cublas", "cublas|own", "Matrix multiplications of the backend cuda."),
    NM_OPTION(bench_device, ordinal, "0", 0, 1023, "Number of the GPU of the backend cuda."),
    {0}};
/* clang-format on */

static void bench_options(nm_options *options)
{
    nm_options_add(options, "device", device_rows, NULL, sizeof(bench_device));
    nm_options_add(options, "bench", bench_rows, NULL, sizeof(bench_config));
}

static int run(nm_cli *cli, int argc, char **argv)
{
    (void)argv;
    nm_error err = {0};
    const bench_config *config = nm_options_find(cli->options, "bench");
    if (nm_cli_check_arguments(cli, argc, argv, 0, 0, &err) != NM_OK)
        return nm_cli_fail(&err);
    const bench_device *device = nm_options_find(cli->options, "device");
    char threads[16], ordinal[16], *program = nm_cli_beside_program("norma-bench");
    snprintf(threads, sizeof threads, "%d", (int)config->threads);
    snprintf(ordinal, sizeof ordinal, "%d", (int)device->ordinal);
    const char *list[32] = {"norma-bench", "--parts",        config->scaling ? "scaling" : config->parts,
                            "--match",     config->match,    "--isa",
                            config->isa,   "--threads",      threads,
                            "--precision", config->precision};
    const char *const target[] = {
        "--backend", device->backend, "--gemm",  device->gemm,
        "--ordinal", ordinal,         "--cache", nm_cache_folder() ? nm_cache_folder() : "none"};
    int n = 11;
    for (size_t i = 0; strcmp(device->backend, "cpu") && i < sizeof target / sizeof *target; i++)
        list[n++] = target[i];
    if (config->all)
        list[n++] = "--all";
    if (*config->json) {
        list[n++] = "--json";
        list[n++] = config->json;
    }
    if (config->quick)
        list[n++] = "--quick";
    if (config->profile)
        list[n] = "--profile";
    if (program)
        execv(program, (char **)(uintptr_t)list);
    nm_fail(&err, errno == ENOENT ? NM_UNSUPPORTED : NM_IO,
            "cannot start %s: %s (norma-bench is built with cmake -D NORMA_BENCH=ON)",
            program ? program : "norma-bench", strerror(errno));
    free(program);
    return nm_cli_fail(&err);
}

static const char *const outputs[] = {"bench.json", NULL};

const nm_command nm_command_bench = {
    .name = "bench",
    .summary = "measure kernels, norms, training steps and decoding",
    .usage = "[--quick] [--parts LIST] [--json FILE] [--profile] [--scaling]",
    .details = "Prints tables; docs/performance.md describes what each part measures.\n"
               "norma-bench --help lists further options.\n",
    .section = "bench",
    .options = bench_options,
    .outputs = outputs,
    .run = run,
};
