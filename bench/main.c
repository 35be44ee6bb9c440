/* Arguments, common memory and order of the parts; see bench.h. The exit code does not depend on the
 * results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

static const char usage[] =
    "usage: norma-bench [--quick] [--json FILE] [--parts LIST] [--match WORDS] [--threads N] [--isa LEVEL]\n"
    "                   [--precision float|tf32|bf16] [--backend NAME] [--all] [--profile] [--set "
    "SECTION.KEY=VALUE ...]\n"
    "Measures kernels, norms, training steps and decoding, and prints tables.\n"
    "  --quick     Run less than a minute: fewer repetitions, one training step; on the emulator small "
    "models.\n"
    "  --json      Also write the results to FILE; -: to standard output, without tables.\n"
    "  --parts     Comma-separated parts: ceilings, kernels, norms, step, decode (default: these), scaling.\n"
    "  --scaling   Only training steps with 1, 2, 4, ... threads up to --threads: --parts scaling.\n"
    "  --match     Only kernels and norms whose name contains this text.\n"
    "  --all       Also larger models.\n"
    "  --backend   cpu, emulated or cuda (a GPU; --ordinal N, --gemm cublas|own, --cache FOLDER).\n"
    "  --rows      Largest number of rows of kernels and norms: for the emulator, which is slow.\n"
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

static int32_t read_number(const char *name, const char *value, long least, long most)
{
    char *end;
    long number = strtol(value, &end, 10);
    if (!*value || *end || number < least || number > most)
        bench_fail("%s %s: expected a number from %ld to %ld", name, value, least, most);
    return (int32_t)number;
}

static void read_value(bench_options *options, const char *name, const char *value)
{
    const struct {
        const char *name, **text;
    } texts[] = {
        {"--isa", &options->isa},         {"--precision", &options->precision}, {"--json", &options->json},
        {"--backend", &options->backend}, {"--ordinal", &options->ordinal},     {"--gemm", &options->gemm},
        {"--cache", &options->cache},     {"--parts", &options->parts},         {"--match", &options->match}};
    size_t i = 0, n = sizeof texts / sizeof *texts;
    while (i < n && strcmp(name, texts[i].name))
        i++;
    bool threads = !strcmp(name, "--threads"), rows = !strcmp(name, "--rows"),
         setting = !strcmp(name, "--set");
    if (i == n && !threads && !rows && !setting)
        bench_fail("unknown option %s; see --help", name);
    if (!value)
        bench_fail("%s requires a value", name);
    if (threads)
        options->threads = read_number(name, value, 0, 4096);
    else if (rows)
        options->rows = read_number(name, value, 1, 16384);
    else if (setting)
        read_setting(options, value);
    else
        *texts[i].text = value;
}

enum { SMALL_ROWS = 16 };

static bench_options read_arguments(int argc, char **argv)
{
    bench_options options = {.isa = "auto",
                             .precision = "float",
                             .rows = 16384,
                             .match = "",
                             .backend = "cpu",
                             .ordinal = "0",
                             .gemm = "cublas",
                             .cache = "none"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            exit(0);
        }
        if (!strcmp(argv[i], "--quick"))
            options.quick = true;
        else if (!strcmp(argv[i], "--all"))
            options.all = true;
        else if (!strcmp(argv[i], "--scaling"))
            options.parts = "scaling";
        else if (!strcmp(argv[i], "--profile"))
            options.profile = true;
        else {
            read_value(&options, argv[i], argv[i + 1]);
            i++;
        }
    }
    options.small = options.quick && !strcmp(options.backend, "emulated");
    if (options.small && options.rows > SMALL_ROWS)
        options.rows = SMALL_ROWS;
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
    const bool bf16 = !strcmp(options->precision, "bf16"), tf32 = !strcmp(options->precision, "tf32"),
               cuda = !strcmp(options->backend, "cuda");
    if (!bf16 && !(tf32 && cuda) && strcmp(options->precision, "float"))
        bench_fail("--precision %s: expected float, bf16, or with --backend cuda tf32", options->precision);
    const nm_backend_options fast = {.name = options->backend,
                                     .threads = options->threads,
                                     .isa = options->isa,
                                     .bf16 = bf16,
                                     .tf32 = tf32,
                                     .own_gemm = !strcmp(options->gemm, "own"),
                                     .ordinal = atoi(options->ordinal),
                                     .cache = strcmp(options->cache, "none") ? options->cache : NULL},
                             plain = {.name = "ref"};
    bench made = {.options = options, .cpu = open_backend(&fast), .ref = open_backend(&plain)};
    made.device = !nm_backend_view(made.cpu, &made);
    for (int i = 0; i < BENCH_BUFFERS; i++)
        made.data[i] = take(made.cpu, bench_floats * sizeof(float));
    made.ids = take(made.cpu, 262144 * sizeof(int32_t));
    made.offsets = made.ids + 200000;
    made.host_offsets = nm_allocate(8192 * sizeof *made.host_offsets); /* lives until the program ends */
    int32_t *ids = nm_allocate(65536 * sizeof *ids);
    for (int32_t i = 0; i < 65536; i++)
        ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 8) % BENCH_WORDS;
    nm_backend_upload(made.cpu, made.ids, ids, 65536 * sizeof *ids);
    free(ids);
    return made;
}

/* Buffers of kernels and norms; training allocates its own memory. */
static void fill(const bench *on)
{
    float *host = nm_allocate(bench_floats * sizeof *host);
    for (int i = 0; i < BENCH_BUFFERS; i++) {
        for (size_t j = 0; j < bench_floats; j++)
            host[j] = (float)(((j * 2654435761u + (size_t)i) >> 7) % 1000 + 1) / 1000;
        nm_backend_upload(on->cpu, on->data[i], host, bench_floats * sizeof *host);
    }
    free(host);
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
        /* A run that is cut off leaves what it has measured. */
        if (options.json && strcmp(options.json, "-"))
            write_json(all, options.json);
    }
    if (options.json && !strcmp(options.json, "-"))
        write_json(all, options.json);
    json_decref(all);
    nm_backend_free(on.ref);
    nm_backend_free(on.cpu);
    return 0;
}
