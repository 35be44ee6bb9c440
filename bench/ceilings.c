/* Upper limits of the machine at the time of the benchmark: GEMM throughput, and copy bandwidth by size. All
 * values are medians. */
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#ifdef BENCH_CBLAS
#include <cblas.h>
#endif

#include "bench.h"

typedef struct shape { /* [rows, in] times the transpose of [out, in] */
    int32_t rows, out, in;
} shape;

/* Shapes of the layers of the presets small and iwslt, and of their output layers. */
static const shape shapes[] = {{2048, 512, 512},  {2048, 1536, 512}, {2048, 1024, 512},
                               {2048, 512, 1024}, {2048, 768, 256},  {2048, 1024, 256},
                               {2048, 256, 1024}, {2048, 256, 256},  {512, BENCH_WORDS, 256}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* With few rows, on the emulator, one shape is enough. */
static int shapes_of(const bench *on)
{
    return on->options->rows < 64 ? 1 : N_SHAPES;
}

static shape shape_at(const bench *on, int i)
{
    shape s = shapes[i];
    s.rows = s.rows < on->options->rows ? s.rows : on->options->rows;
    return s;
}

typedef struct gemm_case {
    const bench *on;
    const shape *s;
} gemm_case;

static double flops(const shape *s)
{
    return 2.0 * s->rows * s->out * s->in;
}

static void run_own(void *context)
{
    const gemm_case *p = context;
    const nm_dropout none = {0};
    float *const *data = p->on->data;
    NM_CALL(p->on->cpu, linear, .x = nm_mat_of(data[0], p->s->rows, p->s->in),
            .weight = nm_mat_of(data[1], p->s->out, p->s->in), .drop = &none,
            .y = nm_mat_of(data[3], p->s->rows, p->s->out));
}

#ifdef BENCH_CBLAS
/* Blocks of 256 rows, one thread each, as with a single-threaded BLAS. */
static void run_cblas(void *context)
{
    const gemm_case *p = context;
    float *const *data = p->on->data;
    const int32_t n = p->s->out, k = p->s->in;
#pragma omp parallel for num_threads(p->on->cpu->threads) schedule(dynamic, 1)
    for (int32_t i = 0; i < p->s->rows; i += 256)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 256, n, k, 1, data[0] + (size_t)i * (size_t)k, k,
                    data[1], k, 0, data[3] + (size_t)i * (size_t)n, n);
}
#endif

/* Seconds of one GEMM by the own kernel and by CBLAS; 0 without CBLAS. */
static void time_shape(const bench *on, const shape *s, double budget, double *own, double *cblas)
{
    gemm_case p = {on, s};
    *own = bench_time(on, run_own, &p, 5, budget);
    *cblas = 0;
#ifdef BENCH_CBLAS
    if (!on->device)
        *cblas = bench_time(on, run_cblas, &p, 5, budget);
#endif
}

static bench_gemm weighted(const bench *on, const double own[N_SHAPES], const double cblas[N_SHAPES])
{
    double all = 0, own_seconds = 0, cblas_seconds = 0;
    for (int i = 0; i < shapes_of(on); i++) {
        const shape s = shape_at(on, i);
        all += flops(&s);
        own_seconds += own[i];
        cblas_seconds += cblas[i];
    }
    bench_gemm gemm = {.own = 1e-9 * all / own_seconds,
                       .cblas = cblas_seconds > 0 ? 1e-9 * all / cblas_seconds : 0};
    gemm.ceiling = gemm.own > gemm.cblas ? gemm.own : gemm.cblas;
    return gemm;
}

bench_gemm bench_gemm_ceiling(const bench *on, bool quick)
{
    double own[N_SHAPES], cblas[N_SHAPES];
    for (int i = 0; i < shapes_of(on); i++) {
        const shape s = shape_at(on, i);
        time_shape(on, &s, quick ? 0.01 : 0.1, &own[i], &cblas[i]);
    }
    return weighted(on, own, cblas);
}

static json_t *gemm_ceilings(const bench *on)
{
    double own[N_SHAPES], cblas[N_SHAPES];
    json_t *list = json_array();
    for (int i = 0; i < shapes_of(on); i++) {
        const shape limited = shape_at(on, i), *s = &limited;
        time_shape(on, s, on->options->quick ? 0.02 : 0.3, &own[i], &cblas[i]);
        json_t *one =
            json_pack("{s[iii] sf}", "shape", s->rows, s->out, s->in, "own", 1e-9 * flops(s) / own[i]);
        if (cblas[i] > 0)
            json_object_set_new(one, "cblas", json_real(1e-9 * flops(s) / cblas[i]));
        json_array_append_new(list, one);
    }
    bench_gemm all = weighted(on, own, cblas);
    json_t *gemm =
        json_pack("{ss sf sf so}", "unit", "GFLOP/s", "ceiling", all.ceiling, "own", all.own, "shapes", list);
    if (all.cblas > 0)
        json_object_set_new(gemm, "cblas", json_real(all.cblas));
    return gemm;
}

typedef struct copying {
    const bench *on;
    size_t bytes; /* of source and of destination */
} copying;

static void run_plain(void *context)
{
    const copying *c = context;
    nm_backend *b = c->on->cpu;
    nm_backend_copy(b, c->on->data[3], c->on->data[0], c->bytes);
}

/* Non-temporal stores avoid reading the destination; a normal copy if the machine does not support them. */
static void run_streaming(void *context)
{
#if defined(__x86_64__)
    enum { BLOCK = 16384 }; /* floats */
    const copying *c = context;
    const float *from = c->on->data[0];
    float *to = c->on->data[3];
    int64_t n = (int64_t)(c->bytes / sizeof(float));
#pragma omp parallel for num_threads(c->on->cpu->threads) schedule(static)
    for (int64_t i = 0; i < n; i += BLOCK)
        for (int64_t j = i; j < i + BLOCK && j < n; j += 4)
            _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
    _mm_sfence();
#else
    run_plain(context);
#endif
}

bench_copy bench_copy_ceiling(const bench *on, double bytes)
{
    size_t most = bench_floats * sizeof(float), side = (size_t)(bytes / 2) / 64 * 64;
    copying c = {on, side < most ? side : most};
    double budget = on->options->quick ? 0.02 : 0.1, moved = 2e-9 * (double)c.bytes;
    bench_copy copy = {.plain = moved / bench_time(on, run_plain, &c, 5, budget),
                       .streaming = on->device ? 0 : moved / bench_time(on, run_streaming, &c, 5, budget)};
    copy.ceiling = copy.plain > copy.streaming ? copy.plain : copy.streaming;
    return copy;
}

json_t *bench_ceilings(const bench *on)
{
    static const struct {
        const char *where;
        double bytes;
    } sizes[] = {{"L2", 1 << 20}, {"L3", 12 << 20}, {"memory", 128 << 20}};
    json_t *copies = json_array();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bench_copy copy = bench_copy_ceiling(on, sizes[i].bytes);
        json_array_append_new(copies, json_pack("{ss sf ss sf sf sf}", "where", sizes[i].where, "bytes",
                                                sizes[i].bytes, "unit", "GB/s", "plain", copy.plain,
                                                "streaming", copy.streaming, "ceiling", copy.ceiling));
    }
    return json_pack("{so so}", "gemm", gemm_ceilings(on), "copy", copies);
}
