/* Tables of the results. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value ? value : "";
}

static int at(const json_t *object, const char *key, size_t i)
{
    return (int)json_integer_value(json_array_get(json_object_get(object, key), i));
}

static void print_rate(const json_t *object, const char *key)
{
    if (json_object_get(object, key))
        printf(" %8.1f", number(object, key));
    else
        printf(" %8s", "-");
}

void bench_table_ceilings(const json_t *ceilings)
{
    const json_t *gemm = json_object_get(ceilings, "gemm"), *one;
    size_t i;
    printf("\nGEMM, GFLOP/s                own    CBLAS\n");
    json_array_foreach(json_object_get(gemm, "shapes"), i, one)
    {
        printf("[%4d %4d] x [%4d %4d]", at(one, "shape", 0), at(one, "shape", 2), at(one, "shape", 1),
               at(one, "shape", 2));
        print_rate(one, "own");
        print_rate(one, "cblas");
        putchar('\n');
    }
    printf("weighted mean          ");
    print_rate(gemm, "own");
    print_rate(gemm, "cblas");
    if (!json_object_get(gemm, "cblas"))
        printf("\nNo CBLAS: norma-bench was built without one. Install OpenBLAS or BLIS and build again.");
    printf("\n\ncopy, GB/s          MiB   stores  non-temporal stores\n");
    json_array_foreach(json_object_get(ceilings, "copy"), i, one)
        printf("%-10s %12.1f %8.1f %20.1f\n", text(one, "where"), number(one, "bytes") / (1 << 20),
               number(one, "plain"), number(one, "streaming"));
}

void bench_table_kernels(const json_t *kernels)
{
    const json_t *one;
    size_t i;
    printf("\n%-16s %-15s %-18s %10s %15s %6s %8s\n", "kernel", "", "shape", "us", "rate", "ceil", "x ref");
    json_array_foreach(kernels, i, one)
    {
        char shape[32];
        snprintf(shape, sizeof shape, "%d %d %d", at(one, "shape", 0), at(one, "shape", 1),
                 at(one, "shape", 2));
        printf("%-16s %-15s %-18s %10.1f %7.1f %-7s %5.0f%% %8.1f\n", text(one, "kernel"),
               text(one, "variant"), shape, number(one, "microseconds"), number(one, "rate"),
               text(one, "unit"), 100 * number(one, "of_ceiling"), number(one, "times_ref"));
    }
}

static void print_direction(const json_t *one)
{
    printf(" | %8.0f %6.1f %6.1f %5.0f%% %6.1f %6.2f", number(one, "microseconds"),
           number(one, "bytes") / (1 << 20), number(one, "rate"), 100 * number(one, "of_copy"),
           number(one, "times_ref"), json_object_get(one, "layernorms") ? number(one, "layernorms") : 1.0);
}

void bench_table_norms(const json_t *norms)
{
    static const char titles[] = "       us    MiB   GB/s   copy  x ref  layer";
    const json_t *one;
    size_t i;
    printf("\nnorm, forward and backward   | %s | %s\n", titles, titles);
    json_array_foreach(norms, i, one)
    {
        printf("%-16s [%5d %4d]", text(one, "norm"), at(one, "shape", 0), at(one, "shape", 1));
        print_direction(json_object_get(one, "forward"));
        print_direction(json_object_get(one, "backward"));
        putchar('\n');
    }
}

void bench_table_steps(const json_t *steps)
{
    const json_t *one;
    size_t i;
    printf("\ntraining step  tokens       ms   tokens/s  GFLOP/s  ceiling   ceil    MiB  calls  waits\n");
    json_array_foreach(steps, i, one)
        printf("%-14s %6s %8.1f %10.0f %8.1f %8.1f %5.0f%% %6.0f %6.0f %6.1f\n", text(one, "preset"),
               text(one, "max_tokens"), number(one, "milliseconds"), number(one, "tokens_per_second"),
               number(one, "gflops"), number(one, "ceiling"), 100 * number(one, "of_ceiling"),
               number(one, "mib"), number(one, "calls"), number(one, "waits"));
}

void bench_table_scaling(const json_t *scaling)
{
    const json_t *one, *row;
    size_t i, k;
    json_array_foreach(scaling, i, one)
    {
        printf("\n%s, %s tokens   threads   tokens/s   speedup  per thread\n", text(one, "preset"),
               text(one, "max_tokens"));
        json_array_foreach(json_object_get(one, "rows"), k, row)
            printf("%*s %9.0f %10.0f %9.2f %10.0f%%\n",
                   (int)(strlen(text(one, "preset")) + strlen(text(one, "max_tokens")) + 9), "",
                   number(row, "threads"), number(row, "tokens_per_second"), number(row, "speedup"),
                   100 * number(row, "efficiency"));
        printf("--device.threads %.0f is within 5 %% of the highest throughput\n", number(one, "enough"));
    }
}

void bench_table_profile(const json_t *steps)
{
    const json_t *one, *kernel;
    size_t i, k;
    json_array_foreach(steps, i, one)
    {
        printf("\n%s, %s tokens, by kernel   calls       ms   time\n", text(one, "preset"),
               text(one, "max_tokens"));
        json_array_foreach(json_object_get(one, "kernels"), k, kernel)
        {
            printf("%-24s %9.1f %8.2f %5.1f%%", text(kernel, "kernel"), number(kernel, "calls"),
                   number(kernel, "milliseconds"), 100 * number(kernel, "share"));
            if (*text(kernel, "unit"))
                printf(" %8.1f %s", number(kernel, "rate"), text(kernel, "unit"));
            putchar('\n');
        }
    }
}

void bench_table_decoding(const json_t *decoding)
{
    const json_t *one;
    size_t i;
    printf("\ndecoding       beam   batch size        tokens/s\n");
    json_array_foreach(decoding, i, one)
        printf("%-14s %4.0f %18.0f %10.0f\n", text(one, "preset"), number(one, "beam"), number(one, "batch"),
               number(one, "tokens_per_second"));
}
