/* Normalization layers over plain arrays: type, site, settings and numbers from the input, in float on `cpu`
 * and in double on `ref`. For inputs of moderate size, results are finite and agree; inference of a row does
 * not depend on other rows; saved layers can be loaded. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "norma/norm.h"
#include "norma/norm_type.h"

enum { MAX_WIDTH = 70, MAX_ROWS = 20, MAX_VALUES = MAX_WIDTH * MAX_ROWS };

typedef struct layer {
    nm_backend *backend;
    nm_norm *norm;
    union {
        float f[MAX_VALUES];
        double d[MAX_VALUES];
    } x, y, dy, dx, inferred, alone;
    bool wide;
} layer;

static double at(const void *values, bool wide, size_t i)
{
    return wide ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static void fill(void *values, bool wide, size_t n, const uint8_t *data, size_t bytes, int exponent)
{
    for (size_t i = 0; i < n; i++) {
        double value = ldexp(bytes ? (double)(int8_t)data[i % bytes] : 0, exponent);
        if (wide)
            ((double *)values)[i] = value;
        else
            ((float *)values)[i] = (float)value;
    }
}

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK) {
        fprintf(stderr, "%s\n", err->text);
        abort();
    }
}

static size_t row_offset(const layer *l, int32_t row, int32_t width)
{
    return (size_t)row * (size_t)width * (l->wide ? sizeof(double) : sizeof(float));
}

/* Several updates, then inference. */
static void run(layer *l, int32_t rows, int32_t width, int updates)
{
    nm_error err;
    for (int i = 0; i < updates; i++) {
        check(nm_norm_forward(l->norm, rows, &l->x, &l->y, &err), &err);
        check(nm_norm_backward(l->norm, &l->dy, &l->dx, &err), &err);
    }
    check(nm_norm_infer(l->norm, rows, &l->x, &l->inferred, &err), &err);
    for (int32_t r = 0; r < rows; r++) {
        size_t offset = row_offset(l, r, width), bytes = row_offset(l, 1, width);
        check(nm_norm_infer(l->norm, 1, (char *)&l->x + offset, &l->alone, &err), &err);
        NM_ASSERT(!memcmp((char *)&l->inferred + offset, &l->alone, bytes));
    }
}

static void save_and_load(layer *l, int32_t rows, int32_t width)
{
    nm_error err;
    const char *path = fuzz_file(0, "norm", NULL, 0);
    check(nm_norm_save(l->norm, path, &err), &err);
    check(nm_norm_load(l->norm, path, &err), &err);
    check(nm_norm_infer(l->norm, rows, &l->x, &l->alone, &err), &err);
    NM_ASSERT(!memcmp(&l->inferred, &l->alone, row_offset(l, rows, width)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static layer layers[2];
    uint32_t n_types = 0;
    while (nm_norm_types[n_types])
        n_types++;
    uint32_t type = fuzz_choice(&data, &bytes, n_types);
    nm_norm_site site = {.width = 1 + (int32_t)fuzz_choice(&data, &bytes, MAX_WIDTH),
                         .groups = 1 + (int32_t)fuzz_choice(&data, &bytes, 8),
                         .kind = (nm_norm_site_kind)fuzz_choice(&data, &bytes, 3),
                         .plan = {fuzz_choice(&data, &bytes, 8), fuzz_choice(&data, &bytes, 4)}};
    int32_t rows = 1 + (int32_t)fuzz_choice(&data, &bytes, MAX_ROWS);
    int updates = (int)fuzz_choice(&data, &bytes, 6), exponent = (int)fuzz_choice(&data, &bytes, 80) - 40;
    char *settings = fuzz_part(&data, &bytes);
    size_t n = (size_t)rows * (size_t)site.width;
    bool created = true;
    for (int k = 0; k < 2 && created; k++) {
        layer *l = &layers[k];
        nm_backend_options options = {
            .name = k ? "ref" : "cpu", .isa = k ? NULL : "auto", .dtype = k ? NM_F64 : NM_F32, .threads = 1};
        nm_error err;
        *l = (layer){.wide = k};
        check(nm_backend_create(&l->backend, &options, &err), &err);
        nm_status status =
            nm_norm_create(&l->norm, l->backend, nm_norm_types[type]->name, settings, &site, &err);
        created = status == NM_OK;
        if (!created) {
            fuzz_check_error(status, &err);
            continue;
        }
        fill(&l->x, l->wide, n, data, bytes, exponent);
        fill(&l->dy, l->wide, n, data + bytes / 2, bytes - bytes / 2, -6);
        run(l, rows, site.width, updates);
        save_and_load(l, rows, site.width);
    }
    for (size_t i = 0; created && i < n && updates == 0; i++) {
        double actual = at(&layers[0].inferred, false, i), expected = at(&layers[1].inferred, true, i);
        NM_ASSERT(!isfinite(expected) || fabs(expected) > 1e30 ||
                  fabs(actual - expected) <= 1e-3 * (1 + fabs(expected)));
    }
    for (int k = 0; k < 2; k++) {
        nm_norm_free(layers[k].norm);
        nm_backend_free(layers[k].backend);
        layers[k] = (layer){0};
    }
    free(settings);
    return 0;
}
