/* Times every kernel of the CPU backend beside the plain one and prints JSON: rate, time, how many times
 * faster than `ref` in float, and the share of the machine's ceiling (the rate of CBLAS in blocks of rows for
 * products, of plain copies for what is limited by memory), taken in the same minutes. Well under a minute.
 *
 *     norma-bench-kernels [threads [level [words in the name of a case]]]        0 threads: all */
#include <cblas.h>
#include <jansson.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/random.h"
#include "norma/backend.h"

enum { BUFFERS = 8, MOST_REPEATS = 41, WORDS = 8000 };
static const size_t buffer_floats = (size_t)16384 * 1024;

typedef struct bench {
    nm_backend *backend;
    float *data[BUFFERS];
    int32_t *ids, *offsets, *device_offsets;
} bench;

typedef struct bench_case {
    const char *kernel, *form;
    int32_t rows, in, out; /* in: the width; out: another number, by kernel */
    void (*run)(const bench *on, const struct bench_case *c, int32_t rows);
    double flops, floats; /* per row; of those, one is the measure */
    double fixed_floats;  /* per call */
} bench_case;

static const nm_dropout third = {0.3, 1, 2, 3};

static nm_mat mat(const bench *on, int buffer, int32_t rows, int32_t cols)
{
    return nm_mat_of(on->data[buffer], rows, cols);
}

static void run_linear(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.linear(on->backend, mat(on, 0, rows, c->in), mat(on, 1, c->out, c->in), on->data[2],
                          NM_ACT_NONE, NULL, mat(on, 3, rows, c->out));
}

static void run_linear_relu_drop(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.linear(on->backend, mat(on, 0, rows, c->in), mat(on, 1, c->out, c->in), on->data[2],
                          NM_ACT_RELU, &third, mat(on, 3, rows, c->out));
}

static void run_linear_dx(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.linear_grad_input(on->backend, mat(on, 0, rows, c->out), mat(on, 1, c->out, c->in), false,
                                     mat(on, 3, rows, c->in));
}

static void run_linear_dw(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.zero(on->backend, on->data[3], (size_t)c->out * (size_t)c->in * sizeof(float));
    on->backend->k.linear_grad_weight(on->backend, mat(on, 0, rows, c->out), mat(on, 1, rows, c->in),
                                      mat(on, 3, c->out, c->in), NULL);
}

static void run_loss(const bench *on, const bench_case *c, int32_t rows)
{
    nm_softmax_loss loss = {.hidden = mat(on, 0, rows, c->in),
                            .weight = mat(on, 1, c->out, c->in),
                            .bias = on->data[2],
                            .targets = on->ids,
                            .eps = 0.1,
                            .grad_scale = 1.0 / rows,
                            .sums = (double *)(void *)on->data[4],
                            .d_hidden = on->data[3],
                            .d_weight = on->data[5],
                            .d_bias = on->data[6]};
    on->backend->k.softmax_loss(on->backend, &loss);
}

static nm_packing packing_of(const bench *on, int32_t rows, int32_t length)
{
    return (nm_packing){rows / length, rows, length, on->offsets, on->device_offsets};
}

static void run_attention(const bench *on, const bench_case *c, int32_t rows)
{
    nm_packing packing = packing_of(on, rows, c->out);
    on->backend->k.attention(on->backend, mat(on, 0, rows, c->in), mat(on, 1, rows, c->in),
                             mat(on, 2, rows, c->in), &packing, &packing, c->in / 64, true, 0.125, &third,
                             mat(on, 3, rows, c->in), on->data[4]);
}

static void run_attention_grad(const bench *on, const bench_case *c, int32_t rows)
{
    nm_packing packing = packing_of(on, rows, c->out);
    on->backend->k.attention_grad(on->backend, mat(on, 0, rows, c->in), mat(on, 1, rows, c->in),
                                  mat(on, 2, rows, c->in), &packing, &packing, c->in / 64, true, 0.125,
                                  &third, mat(on, 3, rows, c->in), on->data[4], mat(on, 0, rows, c->in),
                                  mat(on, 5, rows, c->in), mat(on, 6, rows, c->in), mat(on, 7, rows, c->in));
}

static nm_token_norm token_norm_of(const bench_case *c)
{
    bool layer = strcmp(c->form, "layer") == 0, rms = strcmp(c->form, "rms") == 0;
    return (nm_token_norm){.form = layer ? NM_TOKEN_CENTER
                                   : rms ? NM_TOKEN_RMS
                                         : NM_TOKEN_LENGTH,
                           .groups = 1,
                           .eps = 1e-5,
                           .gain_length = layer || rms ? c->in : 1,
                           .bias_length = layer ? c->in : 0};
}

static void run_token_norm(const bench *on, const bench_case *c, int32_t rows)
{
    nm_token_norm spec = token_norm_of(c);
    on->backend->k.token_norm(on->backend, &spec, mat(on, 0, rows, c->in), on->data[1], on->data[2],
                              mat(on, 3, rows, c->in), on->data[4], on->data[4] + rows);
}

static void run_token_norm_grad(const bench *on, const bench_case *c, int32_t rows)
{
    nm_token_norm spec = token_norm_of(c);
    on->backend->k.token_norm_grad(on->backend, &spec, mat(on, 5, rows, c->in), mat(on, 0, rows, c->in),
                                   on->data[1], on->data[4], on->data[4] + rows, false,
                                   mat(on, 3, rows, c->in), on->data[6], on->data[6] + c->in);
}

/* BatchNorm: mean and variance, then the norm. */
static void run_batch_norm(const bench *on, const bench_case *c, int32_t rows)
{
    nm_feature_norm spec = {0};
    float *mean = on->data[4], *square = mean + c->in;
    on->backend->k.feature_moments(on->backend, &spec, mat(on, 0, rows, c->in), NULL, mean, mean, square);
    on->backend->k.feature_norm(on->backend, &spec, mat(on, 0, rows, c->in), NULL, mean, on->data[1],
                                on->data[1], on->data[2], mat(on, 3, rows, c->in), NULL);
}

static void run_batch_norm_grad(const bench *on, const bench_case *c, int32_t rows)
{
    nm_feature_norm spec = {0};
    nm_mat nothing = {0};
    float *sums = on->data[6];
    on->backend->k.feature_norm_grad(on->backend, &spec, mat(on, 5, rows, c->in), mat(on, 0, rows, c->in),
                                     NULL, on->data[4], on->data[1], on->data[1], NULL, NULL, false, nothing,
                                     sums, sums + c->in);
    on->backend->k.feature_norm_grad(on->backend, &spec, mat(on, 5, rows, c->in), mat(on, 0, rows, c->in),
                                     NULL, on->data[4], on->data[1], on->data[1], sums, sums + c->in, false,
                                     mat(on, 3, rows, c->in), NULL, NULL);
}

/* PowerNorm: row scaling, running scale, this batch's mean square on the way. */
static void run_power_norm(const bench *on, const bench_case *c, int32_t rows)
{
    nm_feature_norm spec = {.groups = 1, .eps = 1e-5};
    on->backend->k.feature_norm(on->backend, &spec, mat(on, 0, rows, c->in), on->data[6], NULL, on->data[1],
                                on->data[1], on->data[2], mat(on, 3, rows, c->in), on->data[4]);
}

static void run_power_norm_grad(const bench *on, const bench_case *c, int32_t rows)
{
    nm_feature_norm spec = {.groups = 1, .eps = 1e-5, .row_scale_ready = true};
    on->backend->k.feature_norm_grad(on->backend, &spec, mat(on, 5, rows, c->in), mat(on, 0, rows, c->in),
                                     on->data[6], NULL, on->data[1], on->data[1], NULL, on->data[2], false,
                                     mat(on, 3, rows, c->in), on->data[4], on->data[4] + c->in);
}

static void run_dropout(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.dropout(on->backend, mat(on, 0, rows, c->in), &third, false, mat(on, 3, rows, c->in));
}

static void run_add_dropout(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.add_dropout(on->backend, mat(on, 0, rows, c->in), mat(on, 5, rows, c->in), &third,
                               mat(on, 3, rows, c->in));
}

static void run_act_grad(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.act_grad(on->backend, NM_ACT_RELU, &third, mat(on, 0, rows, c->in),
                            mat(on, 5, rows, c->in), mat(on, 3, rows, c->in));
}

static void run_add(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.add(on->backend, 0.5, mat(on, 0, rows, c->in), mat(on, 3, rows, c->in));
}

static void run_embed(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.embed(on->backend, on->ids, on->ids, 16, mat(on, 1, c->out, c->in),
                         mat(on, 2, c->out, c->in), &third, mat(on, 3, rows, c->in));
}

static void run_embed_grad(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.embed_grad(on->backend, on->ids, 16, mat(on, 0, rows, c->in), &third,
                              mat(on, 5, c->out, c->in));
}

static void run_log_softmax(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.log_softmax(on->backend, mat(on, 0, rows, c->in), NULL, mat(on, 3, rows, c->in));
}

static void run_top_k(const bench *on, const bench_case *c, int32_t rows)
{
    on->backend->k.top_k(on->backend, mat(on, 0, rows, c->in), c->out, on->data[3], on->ids + 65536);
}

static void run_adam(const bench *on, const bench_case *c, int32_t rows)
{
    nm_adam adam = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .grad_scale = 1, .step = 100};
    on->backend->k.adam(on->backend, &adam, (size_t)rows * (size_t)c->in, on->data[0], on->data[1],
                        on->data[2], on->data[7]);
}

static void run_dot(const bench *on, const bench_case *c, int32_t rows)
{
    double sum;
    on->backend->k.dot(on->backend, (size_t)rows * (size_t)c->in, on->data[0], on->data[0], &sum);
}

#define LINEAR(tokens, n, k)                                                                                 \
    {"linear", "forward", tokens, k, n, run_linear, 2.0 * (n) * (k), 0, 0},                                  \
        {"linear", "dx", tokens, k, n, run_linear_dx, 2.0 * (n) * (k), 0, 0},                                \
    {                                                                                                        \
        "linear", "dw", tokens, k, n, run_linear_dw, 2.0 * (n) * (k), 0, 0                                   \
    }
#define FEW(rows, n, k)                                                                                      \
    {                                                                                                        \
        "linear", "few rows", rows, k, n, run_linear, 2.0 * (n) * (k), 0, 0                                  \
    }
#define ATTENTION(tokens, d, length)                                                                         \
    {"attention", "forward", tokens, d, length, run_attention, 4.0 * (d) * (length), 0, 0},                  \
    {                                                                                                        \
        "attention", "backward", tokens, d, length, run_attention_grad, 10.0 * (d) * (length), 0, 0          \
    }
#define TOKEN_NORM(form, rows, d)                                                                            \
    {"token_norm", form, rows, d, 0, run_token_norm, 0, 2.0 * (d), 0},                                       \
    {                                                                                                        \
        "token_norm_grad", form, rows, d, 0, run_token_norm_grad, 0, 3.0 * (d), 0                            \
    }
#define FEATURE_NORM(rows, d)                                                                                \
    {"feature_norm", "batch", rows, d, 0, run_batch_norm, 0, 2.0 * (d), 0},                                  \
        {"feature_norm_grad", "batch", rows, d, 0, run_batch_norm_grad, 0, 3.0 * (d), 0},                    \
        {"feature_norm", "power", rows, d, 0, run_power_norm, 0, 2.0 * (d), 0},                              \
    {                                                                                                        \
        "feature_norm_grad", "power", rows, d, 0, run_power_norm_grad, 0, 3.0 * (d), 0                       \
    }
#define NORMS(rows, d)                                                                                       \
    TOKEN_NORM("layer", rows, d), TOKEN_NORM("rms", rows, d), TOKEN_NORM("length", rows, d),                 \
        FEATURE_NORM(rows, d)

static const bench_case cases[] = {
    LINEAR(2048, 512, 512),
    LINEAR(2048, 1024, 512),
    LINEAR(2048, 512, 1024),
    LINEAR(2048, 256, 256),
    LINEAR(2048, 1024, 256),
    {"linear", "relu, dropout", 2048, 512, 1024, run_linear_relu_drop, 2.0 * 1024 * 512, 0, 0},
    FEW(1, 512, 512),
    FEW(5, 512, 512),
    FEW(20, 512, 512),
    FEW(1, WORDS, 256),
    FEW(5, WORDS, 256),
    FEW(20, WORDS, 256),
    {"softmax_loss", "with gradients", 2048, 256, WORDS, run_loss, 6.0 * 256 * WORDS, 0, 0},
    ATTENTION(2000, 256, 20),
    ATTENTION(2000, 512, 20),
    ATTENTION(2048, 512, 64),
    NORMS(1024, 512),
    NORMS(4096, 512),
    NORMS(4096, 1024),
    NORMS(16384, 512),
    {"dropout", "", 4096, 512, 0, run_dropout, 0, 2.0 * 512, 0},
    {"add_dropout", "", 4096, 512, 0, run_add_dropout, 0, 3.0 * 512, 0},
    {"act_grad", "relu", 4096, 512, 0, run_act_grad, 0, 3.0 * 512, 0},
    {"add", "", 4096, 512, 0, run_add, 0, 3.0 * 512, 0},
    {"embed", "", 4096, 512, WORDS, run_embed, 0, 3.0 * 512, 0},
    {"embed_grad", "", 4096, 512, WORDS, run_embed_grad, 0, 3.0 * 512, 0},
    {"log_softmax", "", 128, WORDS, 0, run_log_softmax, 0, 2.0 * WORDS, 0},
    {"top_k", "", 128, WORDS, 8, run_top_k, 0, 1.0 * WORDS, 0},
    {"adam", "", 8192, 1024, 0, run_adam, 0, 7.0 * 1024, 0},
    {"dot", "", 8192, 1024, 0, run_dot, 0, 1.0 * 1024, 0},
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of at least three runs, as many as fit into `budget` seconds. */
static double time_case(const bench *on, const bench_case *c, int32_t rows, double budget)
{
    double times[MOST_REPEATS], begin = now();
    int n = 0;
    while (n < MOST_REPEATS && (n < 3 || now() - begin < budget)) {
        double start = now();
        c->run(on, c, rows);
        times[n++] = now() - start;
    }
    qsort(times, (size_t)n, sizeof *times, compare);
    return times[n / 2];
}

static void fail(const char *what)
{
    fprintf(stderr, "norma-bench-kernels: %s\n", what);
    exit(1);
}

static bench create_bench(const nm_backend_options *options, const bench *shared)
{
    bench made = {0};
    nm_error err;
    if (nm_backend_create(&made.backend, options, &err) != NM_OK)
        fail(err.text);
    if (shared) {
        nm_backend *backend = made.backend;
        made = *shared;
        made.backend = backend;
        return made;
    }
    void *memory;
    for (int i = 0; i < BUFFERS; i++) {
        if (nm_backend_take(made.backend, buffer_floats * sizeof(float), &memory, &err) != NM_OK)
            fail(err.text);
        made.data[i] = memory;
        for (size_t j = 0; j < buffer_floats; j++)
            made.data[i][j] = (float)(((j * 2654435761u + (size_t)i) >> 7) % 1000 + 1) / 1000;
    }
    if (nm_backend_take(made.backend, 262144 * sizeof(int32_t), &memory, &err) != NM_OK)
        fail(err.text);
    made.ids = memory;
    for (int32_t i = 0; i < 65536; i++)
        made.ids[i] = (int32_t)((uint32_t)i * 2654435761u >> 8) % WORDS;
    made.offsets = made.device_offsets = made.ids + 200000;
    return made;
}

static void set_lengths(const bench *on, int32_t length)
{
    for (int32_t i = 0; i <= 4096; i++)
        on->offsets[i] = i * length;
}

/* --- the machine's ceilings --- */

static double copy_rate(const bench *on, size_t bytes)
{
    double best = 0;
    for (int i = 0; i < 7; i++) {
        double start = now();
        on->backend->k.copy(on->backend, on->data[3], on->data[0], bytes);
        double rate = 2.0 * (double)bytes / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* CBLAS on blocks of 256 rows, one thread each: the same cut as any user of a plain BLAS would make. */
static double blas_rate(const bench *on, int32_t rows, int32_t n, int32_t k)
{
    double best = 0;
    for (int repeat = 0; repeat < 7; repeat++) {
        double start = now();
#pragma omp parallel for num_threads(on->backend->threads) schedule(dynamic, 1)
        for (int32_t i = 0; i < rows; i += 256)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 256, n, k, 1,
                        on->data[0] + (size_t)i * (size_t)k, k, on->data[1], k, 0,
                        on->data[3] + (size_t)i * (size_t)n, n);
        double rate = 2.0 * rows * n * k / (now() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* Memory-bound cases are compared with the copy of about their size. */
static double ceiling_for(const bench_case *c, const double copies[3], double blas)
{
    double bytes = c->floats * c->rows * sizeof(float);
    return c->flops > 0 ? blas : bytes < 12e6 ? copies[0] : bytes < 40e6 ? copies[1] : copies[2];
}

static json_t *measure(const bench *cpu, const bench *ref, const bench_case *c, const double copies[3],
                       double blas)
{
    bool flops = c->flops > 0;
    int32_t unit = strcmp(c->kernel, "attention") == 0 ? c->out : 1;
    int32_t ref_rows = c->rows / (flops ? 64 : 16) / unit * unit;
    ref_rows = ref_rows < unit ? unit : ref_rows;
    if (unit > 1)
        set_lengths(cpu, c->out);
    double seconds = time_case(cpu, c, c->rows, 0.15);
    double ref_row = time_case(ref, c, ref_rows, 0) / ref_rows;
    double amount = (flops ? c->flops : c->floats * sizeof(float)) * c->rows;
    double rate = amount / seconds * 1e-9;
    return json_pack("{ss ss s[iii] sf sf ss sf sf}", "kernel", c->kernel, "form", c->form, "shape", c->rows,
                     c->in, c->out, "microseconds", seconds * 1e6, "rate", rate, "unit",
                     flops ? "GFLOP/s" : "GB/s", "of_ceiling", rate / ceiling_for(c, copies, blas),
                     "times_ref", ref_row * c->rows / seconds);
}

int main(int argc, char **argv)
{
    nm_backend_options options = {
        .name = "cpu", .threads = argc > 1 ? atoi(argv[1]) : 0, .isa = argc > 2 ? argv[2] : "auto"};
    bench cpu = create_bench(&options, NULL);
    const nm_backend_options plain = {.name = "ref"};
    bench ref = create_bench(&plain, &cpu);
    char text[256];
    nm_backend_describe(cpu.backend, text, sizeof text);
    double blas = blas_rate(&cpu, 2048, 1024, 512);
    double copies[3] = {copy_rate(&cpu, 4 << 20), copy_rate(&cpu, 12 << 20), copy_rate(&cpu, 64 << 20)};
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (argc < 4 || strstr(cases[i].kernel, argv[3]))
            json_array_append_new(out, measure(&cpu, &ref, &cases[i], copies, blas));
    json_t *all =
        json_pack("{ss si sf s[fff] so}", "backend", text, "threads", (int)cpu.backend->threads,
                  "cblas_gflops", blas, "copy_gbytes", copies[0], copies[1], copies[2], "kernels", out);
    json_dumpf(all, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(4));
    putchar('\n');
    json_decref(all);
    nm_backend_free(ref.backend);
    nm_backend_free(cpu.backend);
    return 0;
}
