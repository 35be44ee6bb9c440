/* Kernels of the CPU backend: time, rate, speedup over `ref`, and fraction of the ceiling measured just
 * before: the GEMM rate for matrix multiplications, the rate of a copy of the same size for the other
 * kernels. */
#include <string.h>

#include "bench.h"

typedef struct bench_case {
    const char *kernel, *variant;
    int32_t rows, in, out; /* in: width; out: depends on the kernel */
    void (*run)(const bench *on, const struct bench_case *c, int32_t rows);
    double flops, floats; /* per row; one of them is 0 */
} bench_case;

static const nm_dropout third = {0.3, 1, 2, 3};

static nm_mat mat(const bench *on, int buffer, int32_t rows, int32_t cols)
{
    return nm_mat_of(on->data[buffer], rows, cols);
}

static void run_linear(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, linear, .x = mat(on, 0, rows, c->in), .weight = mat(on, 1, c->out, c->in),
            .bias = on->data[2], .y = mat(on, 3, rows, c->out));
}

static void run_linear_relu_drop(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, linear, .x = mat(on, 0, rows, c->in), .weight = mat(on, 1, c->out, c->in),
            .bias = on->data[2], .act = NM_ACT_RELU, .drop = &third, .y = mat(on, 3, rows, c->out));
}

/* Every backend reads the same packed layout. */
static void pack_int8(const bench *on, const bench_case *c)
{
    size_t bytes;
    NM_CALL(on->cpu, pack_int8, .weight = mat(on, 1, c->out, c->in), .bytes = &bytes, .packed = on->data[7]);
}

static void run_linear_int8(const bench *on, const bench_case *c, int32_t rows)
{
    const nm_int8 weight = {.packed = on->data[7], .rows = c->out, .cols = c->in};
    NM_CALL(on->cpu, linear_int8, .x = mat(on, 0, rows, c->in), .weight = &weight, .bias = on->data[2],
            .y = mat(on, 3, rows, c->out));
}

static void run_linear_dx(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, linear_grad_input, .dy = mat(on, 0, rows, c->out), .weight = mat(on, 1, c->out, c->in),
            .dx = mat(on, 3, rows, c->in));
}

static void run_linear_dw(const bench *on, const bench_case *c, int32_t rows)
{
    nm_backend_zero(on->cpu, on->data[3], (size_t)c->out * (size_t)c->in * sizeof(float));
    NM_CALL(on->cpu, linear_grad_weight, .dy = mat(on, 0, rows, c->out), .x = mat(on, 1, rows, c->in),
            .dw = mat(on, 3, c->out, c->in));
}

static void run_loss(const bench *on, const bench_case *c, int32_t rows)
{
    nm_softmax_loss_args loss = {.hidden = mat(on, 0, rows, c->in),
                                 .weight = mat(on, 1, c->out, c->in),
                                 .bias = on->data[2],
                                 .targets = on->ids,
                                 .eps = 0.1,
                                 .grad_scale = 1.0 / rows,
                                 .sums = (double *)(void *)on->data[4],
                                 .d_hidden = on->data[3],
                                 .d_weight = on->data[5],
                                 .d_bias = on->data[6]};
    on->cpu->k.softmax_loss(on->cpu, &loss);
}

static nm_packing packing_of(const bench *on, int32_t rows, int32_t length)
{
    return (nm_packing){rows / length, rows, length, on->host_offsets, on->offsets};
}

static void run_attention(const bench *on, const bench_case *c, int32_t rows)
{
    nm_packing packing = packing_of(on, rows, c->out);
    NM_CALL(on->cpu, attention, .q = mat(on, 0, rows, c->in), .k = mat(on, 1, rows, c->in),
            .v = mat(on, 2, rows, c->in), .q_packing = &packing, .k_packing = &packing, .heads = c->in / 64,
            .causal = true, .scale = 0.125, .drop = &third, .out = mat(on, 3, rows, c->in),
            .lse = on->data[4]);
}

static void run_attention_grad(const bench *on, const bench_case *c, int32_t rows)
{
    nm_packing packing = packing_of(on, rows, c->out);
    NM_CALL(on->cpu, attention_grad,
            .forward = {.q = mat(on, 0, rows, c->in),
                        .k = mat(on, 1, rows, c->in),
                        .v = mat(on, 2, rows, c->in),
                        .q_packing = &packing,
                        .k_packing = &packing,
                        .heads = c->in / 64,
                        .causal = true,
                        .scale = 0.125,
                        .drop = &third,
                        .out = mat(on, 3, rows, c->in),
                        .lse = on->data[4]},
            .dout = mat(on, 0, rows, c->in), .dq = mat(on, 5, rows, c->in), .dk = mat(on, 6, rows, c->in),
            .dv = mat(on, 7, rows, c->in));
}

static void run_dropout(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, dropout, .x = mat(on, 0, rows, c->in), .drop = &third, .y = mat(on, 3, rows, c->in));
}

static void run_add_dropout(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, add_dropout, .x = mat(on, 0, rows, c->in), .f = mat(on, 5, rows, c->in), .drop = &third,
            .y = mat(on, 3, rows, c->in));
}

static void run_act_grad(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, act_grad, .act = NM_ACT_RELU, .drop = &third, .y = mat(on, 0, rows, c->in),
            .dy = mat(on, 5, rows, c->in), .dz = mat(on, 3, rows, c->in));
}

static void run_add(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, add, .alpha = 0.5, .x = mat(on, 0, rows, c->in), .y = mat(on, 3, rows, c->in));
}

static void run_embed(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, embed, .ids = on->ids, .pos = on->ids, .scale = 16, .table = mat(on, 1, c->out, c->in),
            .positions = mat(on, 2, c->out, c->in), .drop = &third, .out = mat(on, 3, rows, c->in));
}

static void run_embed_grad(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, embed_grad, .ids = on->ids, .scale = 16, .dout = mat(on, 0, rows, c->in), .drop = &third,
            .dtable = mat(on, 5, c->out, c->in));
}

static void run_rotate(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, rotate, .x = mat(on, 0, rows, c->in), .table = mat(on, 1, BENCH_WORDS, c->out),
            .positions = on->ids, .heads = c->in / c->out, .y = mat(on, 3, rows, c->in));
}

static void run_rotate_interleaved(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, rotate, .x = mat(on, 0, rows, c->in), .table = mat(on, 1, BENCH_WORDS, c->out),
            .positions = on->ids, .heads = c->in / c->out, .interleaved = true, .y = mat(on, 3, rows, c->in));
}

/* Half of the columns of a matrix [rows, 2 in]. */
static nm_mat half(const bench *on, int buffer, const bench_case *c, int32_t rows, int which)
{
    return (nm_mat){on->data[buffer] + which * c->in, rows, c->in, 2 * c->in};
}

static void run_gate(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, gate, .op = NM_MAP_SILU, .gate = half(on, 0, c, rows, 0), .x = half(on, 0, c, rows, 1),
            .y = mat(on, 3, rows, c->in));
}

static void run_gate_grad(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, gate_grad,
            .forward = {.op = NM_MAP_SILU, .gate = half(on, 0, c, rows, 0), .x = half(on, 0, c, rows, 1)},
            .dy = mat(on, 3, rows, c->in), .dgate = half(on, 5, c, rows, 0), .dx = half(on, 5, c, rows, 1));
}

static void run_log_softmax(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, log_softmax, .x = mat(on, 0, rows, c->in), .y = mat(on, 3, rows, c->in));
}

static void run_log_top_k(const bench *on, const bench_case *c, int32_t rows)
{
    NM_CALL(on->cpu, log_top_k, .x = mat(on, 0, rows, c->in), .ready = true, .k = c->out,
            .values = on->data[3], .columns = on->ids + 65536, .also_values = on->data[5]);
}

static void run_adam(const bench *on, const bench_case *c, int32_t rows)
{
    nm_adam adam = {.lr = 1e-4, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8, .grad_scale = 1, .step = 100};
    NM_CALL(on->cpu, adam, .config = &adam, .n = (size_t)rows * (size_t)c->in, .p = on->data[0],
            .g = on->data[1], .m = on->data[2], .v = on->data[7]);
}

static void run_dot(const bench *on, const bench_case *c, int32_t rows)
{
    double sum;
    NM_CALL(on->cpu, dot, .n = (size_t)rows * (size_t)c->in, .a = on->data[0], .b = on->data[0], .out = &sum);
}

#define LINEAR(tokens, n, k)                                                                                 \
    {"linear", "forward", tokens, k, n, run_linear, 2.0 * (n) * (k), 0},                                     \
        {"linear", "dx", tokens, k, n, run_linear_dx, 2.0 * (n) * (k), 0},                                   \
    {                                                                                                        \
        "linear", "dw", tokens, k, n, run_linear_dw, 2.0 * (n) * (k), 0                                      \
    }
#define FEW(rows, n, k)                                                                                      \
    {                                                                                                        \
        "linear", "few rows", rows, k, n, run_linear, 2.0 * (n) * (k), 0                                     \
    }
#define INT8(variant, rows, n, k)                                                                            \
    {                                                                                                        \
        "linear_int8", variant, rows, k, n, run_linear_int8, 2.0 * (n) * (k), 0                              \
    }
/* Causal: a token attends to (length + 1) / 2 tokens on average. */
#define ATTENTION(tokens, d, length)                                                                         \
    {"attention", "forward", tokens, d, length, run_attention, 2.0 * (d) * ((length) + 1), 0},               \
    {                                                                                                        \
        "attention", "backward", tokens, d, length, run_attention_grad, 5.0 * (d) * ((length) + 1), 0        \
    }
static const bench_case cases[] = {
    LINEAR(2048, 512, 512),
    LINEAR(2048, 1024, 512),
    LINEAR(2048, 512, 1024),
    LINEAR(2048, 256, 256),
    LINEAR(2048, 1024, 256),
    {"linear", "relu, dropout", 2048, 512, 1024, run_linear_relu_drop, 2.0 * 1024 * 512, 0},
    FEW(1, 512, 512),
    FEW(5, 512, 512),
    FEW(20, 512, 512),
    FEW(1, BENCH_WORDS, 256),
    FEW(5, BENCH_WORDS, 256),
    FEW(20, BENCH_WORDS, 256),
    INT8("", 2048, 512, 512),
    INT8("", 320, 1024, 256),
    INT8("", 320, BENCH_WORDS, 256),
    INT8("few rows", 1, 512, 512),
    INT8("few rows", 20, 512, 512),
    {"softmax_loss", "with gradients", 2048, 256, BENCH_WORDS, run_loss, 6.0 * 256 * BENCH_WORDS, 0},
    ATTENTION(2000, 256, 20),
    ATTENTION(2000, 512, 20),
    ATTENTION(2048, 512, 64),
    ATTENTION(1024, 256, 1024),
    {"dropout", "", 4096, 512, 0, run_dropout, 0, 2.0 * 512},
    {"add_dropout", "", 4096, 512, 0, run_add_dropout, 0, 3.0 * 512},
    {"act_grad", "relu", 4096, 512, 0, run_act_grad, 0, 3.0 * 512},
    {"add", "", 4096, 512, 0, run_add, 0, 3.0 * 512},
    {"embed", "", 4096, 512, BENCH_WORDS, run_embed, 0, 3.0 * 512},
    {"embed_grad", "", 4096, 512, BENCH_WORDS, run_embed_grad, 0, 3.0 * 512},
    {"rotate", "", 4096, 512, 64, run_rotate, 0, 2.0 * 512},
    {"rotate", "interleaved", 4096, 512, 64, run_rotate_interleaved, 0, 2.0 * 512},
    {"gate", "silu", 4096, 512, 0, run_gate, 0, 3.0 * 512},
    {"gate_grad", "silu", 4096, 512, 0, run_gate_grad, 0, 5.0 * 512},
    {"log_softmax", "", 128, BENCH_WORDS, 0, run_log_softmax, 0, 2.0 * BENCH_WORDS},
    {"log_top_k", "ready", 128, BENCH_WORDS, 8, run_log_top_k, 0, 1.0 * BENCH_WORDS},
    {"adam", "", 8192, 1024, 0, run_adam, 0, 7.0 * 1024},
    {"dot", "", 8192, 1024, 0, run_dot, 0, 1.0 * 1024},
};

typedef struct run {
    bench on;
    const bench_case *c;
    int32_t rows;
} run;

static void run_case(void *context)
{
    const run *r = context;
    r->c->run(&r->on, r->c, r->rows);
}

/* Seconds for this number of rows on this backend. */
static double time_case(const bench *on, nm_backend *backend, const bench_case *c, int32_t rows,
                        double budget)
{
    run r = {*on, c, rows};
    r.on.cpu = backend;
    return bench_time(&r.on, run_case, &r, 5, budget);
}

static void set_lengths(const bench *on, int32_t length)
{
    for (int32_t i = 0; i <= 4096; i++)
        on->host_offsets[i] = i * length;
    nm_backend_upload(on->cpu, on->offsets, on->host_offsets, 4097 * sizeof *on->offsets);
}

static json_t *measure(const bench *on, const bench_case *given, double gemm)
{
    bench_case limited = *given;
    const bench_case *c = &limited;
    const bool attention = !strcmp(given->kernel, "attention"), has_flops = given->flops > 0;
    const int32_t most = on->options->rows;
    if (attention && limited.out > most) {
        limited.flops *= (most + 1.0) / (limited.out + 1);
        limited.out = most;
    }
    const int32_t unit = attention ? limited.out : 1;
    if (limited.rows > most)
        limited.rows = most / unit * unit;
    int32_t fewer = c->rows / (has_flops ? 64 : 16);
    int32_t ref_rows = fewer / unit * unit < unit ? unit : fewer / unit * unit;
    if (attention)
        set_lengths(on, c->out);
    if (c->run == run_linear_int8)
        pack_int8(on, c);
    double amount = (has_flops ? c->flops : c->floats * sizeof(float)) * c->rows;
    double ceiling = has_flops ? gemm : bench_copy_ceiling(on, amount).ceiling;
    double seconds = time_case(on, on->cpu, c, c->rows, on->options->quick ? 0.02 : 0.15);
    double plain = on->device ? 0 : time_case(on, on->ref, c, ref_rows, 0) / ref_rows * c->rows;
    double rate = 1e-9 * amount / seconds;
    return json_pack("{ss ss s[iii] sf sf ss sf sf sf}", "kernel", c->kernel, "variant", c->variant, "shape",
                     c->rows, c->in, c->out, "microseconds", seconds * 1e6, "rate", rate, "unit",
                     has_flops ? "GFLOP/s" : "GB/s", "ceiling", ceiling, "of_ceiling", rate / ceiling,
                     "times_ref", plain / seconds);
}

json_t *bench_kernels(const bench *on)
{
    json_t *out = json_array();
    double gemm = bench_gemm_ceiling(on, on->options->quick).ceiling;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strstr(cases[i].kernel, on->options->match))
            json_array_append_new(out, measure(on, &cases[i], gemm));
    return out;
}
