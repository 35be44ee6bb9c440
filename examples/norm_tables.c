/* Prints Markdown tables of the registered normalizations from their descriptors:
 *     norm_tables types      name, title, training formula, statistics, source
 *     norm_tables tensors    names and shapes of parameters and running state
 *     norm_tables costs      memory traffic, memory kept for the backward pass, what folding leaves */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "norma/norm_type.h"

enum { WIDTH = 24, GROUPS = 2 };

static const char *statistics_of(const nm_norm_type *type)
{
    bool features = type->token_spec || type->traits & NM_USES_FEATURES;
    return type->traits & NM_USES_BATCH ? "tokens of a batch" : features ? "features of a token" : "";
}

/* A cell of a Markdown table: bars are escaped. */
static void print_cell(const char *text)
{
    for (; *text; text++)
        printf(*text == '|' ? "\\|" : "%c", *text);
    printf(" | ");
}

static void print_types(void)
{
    printf("| `model.norm` | | training | statistics over | source |\n|---|---|---|---|---|\n");
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        printf("| `%s` | ", (*type)->name);
        print_cell((*type)->title);
        print_cell((*type)->formula);
        print_cell(statistics_of(*type));
        printf("%s |\n", (*type)->source);
    }
}

static void print_vectors(const nm_norm_vector *vectors, int n)
{
    for (int i = 0; i < n; i++) {
        printf("%s`%s` ", i ? ", " : "", vectors[i].name);
        if (vectors[i].length == 1)
            printf("[1]");
        else if (vectors[i].length == WIDTH)
            printf("[d]");
        else
            printf("[%d d]", vectors[i].length / WIDTH);
    }
    printf(" | ");
}

static int print_tensors(void)
{
    nm_options *options = nm_options_create();
    const nm_norm_site site = {.name = "table", .width = WIDTH, .groups = GROUPS};
    int failed = 0;
    nm_norm_options_add(options);
    printf("| norm | trainable | running | counters |\n|---|---|---|---|\n");
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        char section[64];
        nm_norm norm;
        nm_error err;
        snprintf(section, sizeof section, "norm.%s", (*type)->name);
        if (nm_norm_prepare(&norm, (*type)->name, nm_options_find(options, section), &site, &err) != NM_OK) {
            fprintf(stderr, "%s\n", err.text);
            failed = 1;
            continue;
        }
        printf("| `%s` | ", (*type)->name);
        print_vectors(norm.shape.params, norm.shape.n_params);
        print_vectors(norm.shape.state, norm.shape.n_state);
        for (int i = 0; i < norm.shape.n_counters; i++)
            printf("%s`%s`", i ? ", " : "", norm.shape.counters[i]);
        printf(" |\n");
    }
    nm_options_free(options);
    return failed;
}

/* Memory of a call: freed after its backward pass. */
typedef struct memory {
    nm_backend *backend;
    void *blocks[64];
    int n;
    size_t bytes;
} memory;

static void *count_alloc(void *allocator, size_t bytes)
{
    memory *m = allocator;
    nm_error err;
    void *block = NULL;
    if (m->n == 64 || nm_backend_alloc(m->backend, bytes ? bytes : 1, &block, &err) != NM_OK)
        return NULL;
    m->blocks[m->n++] = block;
    m->bytes += bytes;
    return block;
}

static void free_blocks(memory *m)
{
    for (int i = 0; i < m->n; i++)
        nm_backend_dealloc(m->backend, m->blocks[i]);
    *m = (memory){.backend = m->backend};
}

/* Traffic of the kernels so far, in numbers of the backend's type. */
static double traffic(const nm_backend *backend)
{
    nm_kernel_time times[NM_N_KERNELS];
    double bytes = 0;
    for (int i = nm_backend_times(backend, times) - 1; i >= 0; i--)
        bytes += times[i].bytes;
    return bytes / (double)nm_dtype_bytes(backend->dtype);
}

typedef struct pass_costs {
    double forward, backward, inference; /* numbers that the kernels read and write */
    double kept;                         /* numbers that a training forward pass allocates */
    bool folds;
} pass_costs;

/* Allocates n numbers at each of the addresses; false: no memory. */
static bool alloc_vector(memory *m, void **vector, int32_t n)
{
    *vector = count_alloc(m, (size_t)n * nm_dtype_bytes(m->backend->dtype));
    return *vector != NULL;
}

static bool bind_vectors(nm_norm *norm, memory *m)
{
    bool ok = true;
    for (int i = 0; i < norm->shape.n_params; i++) {
        ok = ok && alloc_vector(m, &norm->params[i], norm->shape.params[i].length);
        if (!norm->shape.params[i].fixed)
            ok = ok && alloc_vector(m, &norm->param_grads[i], norm->shape.params[i].length);
    }
    for (int i = 0; i < norm->shape.n_state; i++)
        ok = ok && alloc_vector(m, &norm->state[i], norm->shape.state[i].length);
    for (int i = 0; i < norm->shape.n_statistics; i++)
        ok = ok && alloc_vector(m, &norm->statistics[i], norm->site.width);
    return ok;
}

/* The passes of one norm over [rows, width] after all its warm-ups and transitions. */
static bool measure(const nm_norm_type *type, const nm_options *options, nm_backend *backend, int32_t rows,
                    int32_t width, pass_costs *costs)
{
    const nm_norm_site site = {.name = "table", .width = width, .groups = GROUPS};
    char section[64];
    nm_norm norm;
    nm_error err;
    memory own = {.backend = backend}, call_memory = {.backend = backend};
    void *x, *y, *dy, *dx;
    double *values = malloc((size_t)rows * (size_t)width * sizeof *values), penalty = 0;
    snprintf(section, sizeof section, "norm.%s", type->name);
    bool ok = values &&
              nm_norm_prepare(&norm, type->name, nm_options_find(options, section), &site, &err) == NM_OK &&
              bind_vectors(&norm, &own) && alloc_vector(&own, &x, rows * width) &&
              alloc_vector(&own, &y, rows * width) && alloc_vector(&own, &dy, rows * width) &&
              alloc_vector(&own, &dx, rows * width);
    if (ok) {
        for (int32_t i = 0; i < rows * width; i++)
            values[i] = sin(0.7 * i + 0.1 * (i % width));
        nm_backend_write(backend, x, values, (size_t)rows * (size_t)width);
        nm_backend_write(backend, dy, values, (size_t)rows * (size_t)width);
        nm_norm_initialize(&norm, backend);
        for (int i = 0; i < norm.shape.n_counters; i++)
            norm.counters[i] = 1000000;
        nm_norm_call call = {.backend = backend,
                             .norm = &norm,
                             .alloc = count_alloc,
                             .allocator = &call_memory,
                             .x = nm_mat_of(x, rows, width),
                             .y = nm_mat_of(y, rows, width),
                             .dy = nm_mat_of(dy, rows, width),
                             .dx = nm_mat_of(dx, rows, width),
                             .n_targets = 1,
                             .grad_scale = 1,
                             .penalty = &penalty};
        double before = traffic(backend);
        type->train(&call);
        costs->kept = (double)call_memory.bytes / (double)nm_dtype_bytes(backend->dtype);
        costs->forward = traffic(backend) - before;
        before = traffic(backend);
        type->backward(&call);
        costs->backward = traffic(backend) - before;
        free_blocks(&call_memory);
        nm_norm_call inference = {.backend = backend,
                                  .norm = &norm,
                                  .alloc = count_alloc,
                                  .allocator = &call_memory,
                                  .x = call.x,
                                  .y = call.y,
                                  .n_targets = 1,
                                  .grad_scale = 1};
        before = traffic(backend);
        type->infer(&inference);
        costs->inference = traffic(backend) - before;
        double *scale = malloc((size_t)width * sizeof *scale);
        costs->folds = scale && type->affine && type->affine(&norm, backend, scale, values);
        free(scale);
    } else {
        fprintf(stderr, "%s: cannot be measured\n", type->name);
    }
    free_blocks(&call_memory);
    free_blocks(&own);
    free(values);
    return ok;
}

/* "2 n + d": numbers per row n, per feature d, and per element n d. */
static void print_kept(const pass_costs at[3], double rows, double width)
{
    /* at: [rows, width], [2 rows, width], [rows, 2 width]; kept = b n + c d + e n d */
    const double by_rows = (at[1].kept - at[0].kept) / rows, by_width = (at[2].kept - at[0].kept) / width;
    const double both = floor(by_rows / width + 1e-9), per_row = by_rows - both * width,
                 per_feature = by_width - both * rows;
    const char *plus = "";
    const struct {
        double n;
        const char *unit;
    } terms[] = {{both, "n d"}, {per_row, "n"}, {per_feature, "d"}};
    for (int i = 0; i < 3; i++)
        if (terms[i].n > 1e-9) {
            printf("%s", plus);
            if (terms[i].n != 1)
                printf("%.4g ", terms[i].n);
            printf("%s", terms[i].unit);
            plus = " + ";
        }
    printf(*plus ? " | " : "0 | ");
}

static int print_costs(void)
{
    enum { ROWS = 512, COLS = 256 };
    const nm_backend_options device = {.name = "ref", .dtype = NM_F32};
    nm_options *options = nm_options_create();
    nm_backend *backend;
    nm_error err;
    int failed = 0;
    nm_norm_options_add(options);
    if (nm_backend_create(&backend, &device, &err) != NM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    nm_backend_profile(backend, true);
    printf("| norm | forward | backward | inference | kept | after folding |\n|---|---|---|---|---|---|\n");
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        pass_costs at[3] = {{.forward = 0}};
        if (!measure(*type, options, backend, ROWS, COLS, &at[0]) ||
            !measure(*type, options, backend, 2 * ROWS, COLS, &at[1]) ||
            !measure(*type, options, backend, ROWS, 2 * COLS, &at[2])) {
            failed = 1;
            continue;
        }
        /* Bytes per element of further rows: vectors of features, which the kernels count, too, cancel. */
        const double bytes = (double)nm_dtype_bytes(device.dtype) / (ROWS * COLS);
        printf("| `%s` | %.4g | %.4g | %.4g | ", (*type)->name, bytes * (at[1].forward - at[0].forward),
               bytes * (at[1].backward - at[0].backward), bytes * (at[1].inference - at[0].inference));
        print_kept(at, ROWS, COLS);
        printf("%s |\n", at[0].folds ? "0" : "the norm");
    }
    nm_backend_free(backend);
    nm_options_free(options);
    return failed;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "costs"))
        return print_costs();
    if (argc > 1 && !strcmp(argv[1], "tensors"))
        return print_tensors();
    print_types();
    return 0;
}
