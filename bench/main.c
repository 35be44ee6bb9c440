/* Arguments, common memory and order of the parts; see bench.h. The exit code does not depend on the
 * results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

static const char usage[] =
    "usage: norma-bench [--quick] [--json FILE] [--parts LIST] [--match WORDS] [--threads N] [--isa LEVEL]\n"
    "                   [--precision float|bf16] [--profile] [--set SECTION.KEY=VALUE ...]\n"
    "Measures kernels, norms, training steps and decoding, and prints tables.\n"
    "  --quick     Run less than a minute: fewer repetitions, one training step.\n"
    "  --json      Also write the results to FILE; -: to standard output, without tables.\n"
    "  --parts     Comma-separated parts: ceilings, kernels, norms, step, decode (default: these), scaling.\n"
    "  --scaling   Only training steps with 1, 2, 4, ... threads up to --threads: --parts scaling.\n"
    "  --match     Only kernels and norms whose name contains this text.\n"
    "  --threads   Number of threads; 0: one per core.\n"
    "  --isa       CPU level: auto, base, avx2, avx512, vnni, avx512_bf16, amx.\n"
    "  --precision Precision of matrix multiplications.\n"
    "  --profile   Print the time of a training step by kernel.\n"
    "  --set       Set an option of training or decoding, e.g. model.norm=power.\n";

static void read_setting(bench_options *options, const char *text)
{
    char *key = nm_duplicate(text), *equals = strchr(key, '='); /* lives until the program ends */
    if (!equals || options->n_settings == BENCH_MAX_SETTINGS)
        bench_fail("--set expects SECTION.KEY=VALUE, at most %d times: %s", BENCH_MAX_SETTINGS, text);
    *equals = 0;
    options->settings[2 * options->n_settings] = key;
    options->settings[2 * options->n_settings++ + 1] = equals + 1;
}

static void read_threads(bench_options *options, const char *value)
{
    char *end;
    long threads = strtol(value, &end, 10);
    if (!*value || *end || threads < 0 || threads > 4096)
        bench_fail("--threads %s: expected a number from 0 to 4096", value);
    options->threads = (int32_t)threads;
}

static void read_value(bench_options *options, const char *name, const char *value)
{
    const struct {
        const char *name, **text;
    } texts[] = {{"--isa", &options->isa},
                 {"--precision", &options->precision},
                 {"--json", &options->json},
                 {"--parts", &options->parts},
                 {"--match", &options->match}};
    size_t i = 0, n = sizeof texts / sizeof *texts;
    while (i < n && strcmp(name, texts[i].name))
        i++;
    bool threads = !strcmp(name, "--threads"), setting = !strcmp(name, "--set");
    if (i == n && !threads && !setting)
        bench_fail("unknown option %s; see --help", name);
    if (!value)
        bench_fail("%s requires a value", name);
    if (threads)
        read_threads(options, value);
    else if (setting)
        read_setting(options, value);
    else
        *texts[i].text = value;
}

static bench_options read_arguments(int argc, char **argv)
{
    bench_options options = {.isa = "auto", .precision = "float", .match = ""};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            exit(0);
        }
        if (!strcmp(argv[i], "--quick"))
            options.quick = true;
        else if (!strcmp(argv[i], "--scaling"))
            options.parts = "scaling";
        else if (!strcmp(argv[i], "--profile"))
            options.profile = true;
        else {
            read_value(&options, argv[i], argv[i + 1]);
            i++;
        }
    }
    return options;
}

static const char *const part_names[] = {"ceilings", "kernels", "norms", "step", "decode", "scaling"};
enum { CEILINGS, KERNELS, NORMS, STEP, DECODE, SCALING, N_PARTS };

static void choose_parts(const char *list, bool wanted[N_PARTS])
{
    for (int i = 0; i < N_PARTS; i++)
        wanted[i] = !list && i != SCALING;
    char *copy = nm_duplicate(list), *rest = copy;
    for (char *name; copy && (name = strsep(&rest, ",")) != NULL;) {
        int i = 0;
        while (i < N_PARTS && strcmp(part_names[i], name))
            i++;
        if (i == N_PARTS)
            bench_fail("--parts: unknown part %s; available: ceilings, kernels, norms, step, decode, scaling",
                       name);
        wanted[i] = true;
    }
    free(copy);
}

static nm_backend *open_backend(const nm_backend_options *options)
{
    nm_backend *backend;
    nm_error err;
    if (nm_backend_create(&backend, options, &err) != NM_OK)
        bench_fail("%s", err.text);
    return backend;
}

static void *take(nm_backend *backend, size_t bytes)
{
    void *memory;
    nm_error err;
    if (nm_backend_alloc(backend, bytes, &memory, &err) != NM_OK)
        bench_fail("%s", err.text);
    return memory;
}

static bench open_bench(const bench_options *options)
{
    const bool bf16 = !strcmp(options->precision, "bf16");
    if (!bf16 && strcmp(options->precision, "float"))
        bench_fail("--precision %s: expected float or bf16", options->precision);
    const nm_backend_options fast = {.name = "cpu",
                                     .threads = options->threads,
                                     .isa = options->isa,
                                     .bf16 = bf16},
                             plain = {.name = "ref"};
    bench made = {.options = options, .cpu = open_backend(&fast), .ref = open_backend(&plain)};
    for (int i = 0; i < BENCH_BUFFERS; i++)
        made.data[i] = take(made.cpu, bench_floats * sizeof(float));
    made.ids = take(made.cpu, 262144 * sizeof(int32_t));
    made.offsets = made.ids + 200000;
    for (int32_t i = 0; i < 65536; i++)
        made.ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 8) % BENCH_WORDS;
    return made;
}

/* Buffers of kernels and norms; training allocates its own memory. */
static void fill(const bench *on)
{
    for (int i = 0; i < BENCH_BUFFERS; i++)
        for (size_t j = 0; j < bench_floats; j++)
            on->data[i][j] = (float)(((j * 2654435761u + (size_t)i) >> 7) % 1000 + 1) / 1000;
}

static json_t *describe(const bench *on)
{
    char text[256], date[32], cpu[128] = "";
    nm_backend_describe(on->cpu, text, sizeof text);
    time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    FILE *info = fopen("/proc/cpuinfo", "r");
    for (char line[256]; info && !*cpu && fgets(line, sizeof line, info);)
        sscanf(line, "model name : %127[^\n]", cpu);
    if (info)
        fclose(info);
    return json_pack("{ss ss ss ss ss si sb}", "norma", NORMA_VERSION, "date", date, "cpu", cpu, "backend",
                     text, "level", on->cpu->isa, "threads", (int)on->cpu->threads, "quick",
                     on->options->quick);
}

static void write_json(const json_t *all, const char *path)
{
    FILE *out = strcmp(path, "-") ? fopen(path, "w") : stdout;
    bool bad = !out || json_dumpf(all, out, JSON_INDENT(1) | JSON_REAL_PRECISION(5)) || fputc('\n', out) < 0;
    if (out && out != stdout)
        bad = fclose(out) || bad;
    if (bad)
        bench_fail("cannot write %s", path);
}

int main(int argc, char **argv)
{
    const bench_options options = read_arguments(argc, argv);
    bool wanted[N_PARTS], tables = !options.json || strcmp(options.json, "-");
    choose_parts(options.parts, wanted);
    bench on = open_bench(&options);
    json_t *all = describe(&on), *parts[N_PARTS] = {NULL};
    void (*const print[N_PARTS])(const json_t *) = {bench_table_ceilings, bench_table_kernels,
                                                    bench_table_norms,    bench_table_steps,
                                                    bench_table_decoding, bench_table_scaling};
    if (tables)
        printf("norma " NORMA_VERSION ", %s, %s\n", json_string_value(json_object_get(all, "cpu")),
               json_string_value(json_object_get(all, "backend")));
    if (wanted[CEILINGS] || wanted[KERNELS] || wanted[NORMS])
        fill(&on);
    for (int i = 0; i < N_PARTS; i++) {
        if (!wanted[i])
            continue;
        parts[i] = i == CEILINGS  ? bench_ceilings(&on)
                   : i == KERNELS ? bench_kernels(&on)
                   : i == NORMS   ? bench_norms(&on)
                                  : bench_models(&on, i == STEP     ? BENCH_STEP
                                                      : i == DECODE ? BENCH_DECODING
                                                                    : BENCH_SCALING);
        if (tables)
            print[i](parts[i]);
        if (tables && i == STEP && options.profile)
            bench_table_profile(parts[i]);
        fflush(stdout);
        json_object_set_new(all, part_names[i], parts[i]);
    }
    if (options.json)
        write_json(all, options.json);
    json_decref(all);
    nm_backend_free(on.ref);
    nm_backend_free(on.cpu);
    return 0;
}
