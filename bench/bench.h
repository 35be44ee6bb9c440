/* norma-bench: measures the ceilings of the machine, and kernels, norms, training steps and decoding
 * relative to them and to the reference kernels. The parts return JSON; table.c prints it. */
#ifndef BENCH_H
#define BENCH_H

#include <jansson.h>

#include "base/memory.h"
#include "base/random.h"
#include "norma/norm_type.h"

enum { BENCH_BUFFERS = 8, BENCH_WORDS = 8000, BENCH_MAX_SETTINGS = 32 };

typedef struct bench_options {
    bool quick, profile, all, small; /* small: --quick on the emulator */
    int32_t threads, rows;           /* rows: the largest number in kernels and norms */
    const char *isa, *precision, *json, *parts, *match;
    const char *backend, *ordinal, *gemm, *cache; /* of the section [device] */
    const char *settings[2 * BENCH_MAX_SETTINGS]; /* pairs of name and value, for training and decoding */
    int n_settings;
} bench_options;

typedef struct bench {
    const bench_options *options;
    nm_backend *cpu, *ref;      /* cpu: the backend that is measured */
    bool device;                /* with its own memory: no times of ref, the CBLAS and streaming stores */
    float *data[BENCH_BUFFERS]; /* bench_floats each, in [0, 1] */
    int32_t *ids, *offsets, *host_offsets;
} bench;

enum { bench_floats = 16384 * 1024 };

double bench_now(void); /* seconds */
/* Median; sorts the values. */
double bench_median(double *values, int n);
_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits until the calls of the backend have ended. */
void bench_wait(const bench *on);
/* Calls f(context) at least `least` times and until `budget` seconds have passed; returns the median time. On
 * a device, several calls are one measurement, which ends when the device has finished. */
double bench_time(const bench *on, void (*f)(void *context), void *context, int least, double budget);

/* GFLOP/s over the GEMM shapes of a model, weighted by their operations: own kernel, CBLAS (0 if not
 * available), the maximum of both. */
typedef struct bench_gemm {
    double own, cblas, ceiling;
} bench_gemm;
bench_gemm bench_gemm_ceiling(const bench *on, bool quick);
/* GB/s of a copy of this many bytes, reads plus writes: with normal stores, with non-temporal stores, the
 * maximum. */
typedef struct bench_copy {
    double plain, streaming, ceiling;
} bench_copy;
bench_copy bench_copy_ceiling(const bench *on, double bytes);
json_t *bench_ceilings(const bench *on);

json_t *bench_kernels(const bench *on);
json_t *bench_norms(const bench *on);
/* Training steps, decoding, or training steps with 1, 2, 4, ... threads up to those of the backend: the
 * presets on a synthetic corpus. */
typedef enum bench_model_part { BENCH_STEP, BENCH_DECODING, BENCH_SCALING } bench_model_part;
json_t *bench_models(const bench *on, bench_model_part part);

void bench_table_ceilings(const json_t *ceilings);
void bench_table_kernels(const json_t *kernels);
void bench_table_norms(const json_t *norms);
void bench_table_steps(const json_t *steps);
void bench_table_profile(const json_t *steps);
void bench_table_decoding(const json_t *decoding);
void bench_table_scaling(const json_t *scaling);

#endif
