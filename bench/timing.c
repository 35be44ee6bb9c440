/* Measuring time, and the end after an error. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

double bench_now(void)
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

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_wait(const bench *on)
{
    float ignored;
    if (on->device)
        nm_backend_download(on->cpu, &ignored, on->data[0], sizeof ignored);
}

double bench_time(const bench *on, void (*f)(void *context), void *context, int least, double budget)
{
    enum { MOST = 101, CALLS = 10 };
    double times[MOST], begin = bench_now();
    const int calls = on->device && !on->options->quick ? CALLS : 1;
    int n = 0;
    f(context); /* warm-up: allocates memory, fills caches */
    bench_wait(on);
    while (n < MOST && (n < least || bench_now() - begin < budget)) {
        double start = bench_now();
        for (int i = 0; i < calls; i++)
            f(context);
        bench_wait(on);
        times[n++] = (bench_now() - start) / calls;
    }
    return bench_median(times, n);
}

void bench_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("norma-bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(NM_USAGE);
}
