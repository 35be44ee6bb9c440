/* norma-bench: what the machine can do, how near to it the kernels, the norms, a training step and decoding come, and how
 * far they are ahead of the plain kernels. The parts measure and give JSON; table.c prints it. */
#ifndef BENCH_H
#define BENCH_H

#include <jansson.h>

#include "base/memory.h"
#include "base/random.h"
#include "norma/norm_type.h"

enum { BENCH_BUFFERS = 8, BENCH_WORDS = 8000, BENCH_MAX_SETTINGS = 32 };

typedef struct bench_options {
    bool quick, profile;
    int32_t threads;
    const char *isa, *json, *parts, *match;
    const char *settings[2 * BENCH_MAX_SETTINGS]; /* pairs, for training and decoding */
    int n_settings;
} bench_options;

typedef struct bench {
    const bench_options *options;
    nm_backend *cpu, *ref;
    float *data[BENCH_BUFFERS]; /* of bench_floats each, numbers between 0 and 1 */
    int32_t *ids, *offsets;
} bench;

enum { bench_floats = 16384 * 1024 };

double bench_now(void); /* seconds */
/* Median; sorts. */
double bench_median(double *values, int n);
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Calls f(context) at least `least` times and as often as fits into `budget` seconds; the median of the times. */
double bench_time(void (*f)(void *context), void *context, int least, double budget);

/* ---- ceilings.c ---- */

/* GFLOP/s over the products of a model's layers, weighted by their operations: our kernel's, CBLAS's, the larger. 0: no
 * CBLAS. */
typedef struct bench_gemm {
    double own, cblas, ceiling;
} bench_gemm;
bench_gemm bench_gemm_ceiling(const bench *on, bool quick);
/* GB/s, reading and writing counted, of a copy that moves so many bytes: with plain stores, with stores past the caches. */
typedef struct bench_copy {
    double plain, streaming, ceiling;
} bench_copy;
bench_copy bench_copy_ceiling(const bench *on, double bytes);
json_t *bench_ceilings(const bench *on);

/* ---- the other parts ---- */

json_t *bench_kernels(const bench *on);
json_t *bench_norms(const bench *on);
/* Training steps, or decoding, of the presets on a made-up corpus. */
json_t *bench_models(const bench *on, bool train);

void bench_table_ceilings(const json_t *ceilings);
void bench_table_kernels(const json_t *kernels);
void bench_table_norms(const json_t *norms);
void bench_table_steps(const json_t *steps);
void bench_table_profile(const json_t *steps);
void bench_table_decoding(const json_t *decoding);

#endif
