/* norma bench: executes norma-bench, a separate program in the same folder, which is linked with a BLAS as a
 * baseline. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/cli.h"

typedef struct bench_config {
    bool quick, profile, scaling;
    const char *parts, *match, *json, *isa, *precision;
    int64_t threads;
} bench_config;

#define ROW(field, initial, min, max, help) NM_OPTION(bench_config, field, initial, min, max, help)

/* clang-format off */
static const nm_option bench_rows[] = {
    ROW(quick, "false", 0, 1, "Finish in less than a minute: fewer repetitions, one training step."),
    ROW(profile, "false", 0, 1, "Print the time of a training step by kernel."),
    ROW(scaling, "false", 0, 1, "Measure only training steps with 1, 2, 4, ... threads, up to --threads."),
    ROW(parts, "ceilings,kernels,norms,step,decode", 0, 0,
        "Parts to measure, comma-separated; also: scaling."),
    ROW(match, "", 0, 0, "Measure only kernels and norms whose name contains this text; empty: all."),
    ROW(json, "", 0, 0,
        "File for all results as JSON; - writes JSON to standard output instead of tables; empty: none."),
    ROW(isa, "auto", 0, 0,
        "CPU instruction set: auto, base, avx2, avx512, vnni, avx512_bf16, amx, neon or dotprod."),
    ROW(precision, "float", 0, 0, "Precision of matrix multiplications: float or bf16."),
    ROW(threads, "0", 0, 4096, "Number of threads; 0: one per core, at most the CPU limit of the container."),
    {0}};
/* clang-format on */

static void bench_options(nm_options *options)
{
    nm_options_add(options, "bench", bench_rows, NULL, sizeof(bench_config));
}

static int run(nm_cli *cli, int argc, char **argv)
{
    (void)argv;
    nm_error err = {0};
    const bench_config *config = nm_options_find(cli->options, "bench");
    if (nm_cli_check_arguments(cli, argc, argv, 0, 0, &err) != NM_OK)
        return nm_cli_fail(&err);
    char threads[16], *program = nm_cli_beside_program("norma-bench");
    snprintf(threads, sizeof threads, "%d", (int)config->threads);
    const char *list[16] = {"norma-bench", "--parts",        config->scaling ? "scaling" : config->parts,
                            "--match",     config->match,    "--isa",
                            config->isa,   "--threads",      threads,
                            "--precision", config->precision};
    int n = 11;
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
