/* Golden cases of family "analysis": the papers' measurements. The instruments observe a norm on a tape, as
 * in a run; their results are compared with those of the case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "probe/instrument.h"
#include "probe/spectrum.h"
#include "probe/tid.h"

extern const nm_instrument nm_instrument_distance, nm_instrument_gradient_parts;

static golden_result compare_number(golden_case *test, const char *key, double got, double want)
{
    void *real = golden_reals(test, &got, 1);
    golden_result result = golden_compare(test, key, real, &want, 1, test->value_tolerance);
    free(real);
    return result;
}

static golden_result expect(golden_case *test, const char *key, double got)
{
    const json_t *expected = json_object_get(test->root, key);
    if (!json_is_number(expected))
        return golden_fail(test, "%s: no number", key);
    return compare_number(test, key, got, json_number_value(expected));
}

typedef struct bench {
    nm_tape tape;
    nm_norm *norm;
    nm_tensor *x, *y;
} bench;

static golden_result bench_open(golden_case *test, bench *b, const char *type, const char *settings,
                                int32_t width)
{
    nm_error err;
    const nm_norm_site place = {.name = "enc.0.ffn.norm", .width = width, .groups = 1};
    *b = (bench){.norm = NULL};
    if (nm_tape_init(&b->tape, test->backend, (size_t)1 << 24, &err) != NM_OK ||
        nm_norm_create(&b->norm, test->backend, type, settings, &place, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    return GOLDEN_PASSED;
}

static void bench_close(bench *b)
{
    nm_norm_free(b->norm);
    if (b->tape.backend)
        nm_tape_release(&b->tape);
}

static void bench_set(golden_case *test, void *device, const golden_tensor *values)
{
    void *reals = golden_reals(test, values->data, values->count);
    nm_backend_upload(test->backend, device, reals, values->count * nm_dtype_bytes(test->backend->dtype));
    free(reals);
}

static void bench_forward(golden_case *test, bench *b, const golden_tensor *x)
{
    nm_tape_start(&b->tape, true, 1, 0);
    b->x = nm_tape_tensor(&b->tape, (int32_t)x->shape[0], (int32_t)x->shape[1]);
    bench_set(test, b->x->data, x);
    b->y = nm_normalize(&b->tape, b->norm, b->x);
}

static golden_result bench_backward(golden_case *test, bench *b, const golden_tensor *dy)
{
    nm_error err;
    bool add;
    bench_set(test, nm_tensor_grad(&b->tape, b->y, &add).data, dy);
    return nm_tape_backward(&b->tape, &err) == NM_OK ? GOLDEN_PASSED : golden_fail(test, "%s", err.text);
}

static void listen(void *user, const nm_norm_call *call, bool backward)
{
    nm_probe_record *record = user;
    record->instrument->norm(record, call, backward);
}

static void bench_listen(bench *b, nm_probe_record *record, const nm_instrument *instrument)
{
    *record = (nm_probe_record){
        .instrument = instrument, .update = 1, .lines = json_array(), .backend = b->tape.backend};
    b->tape.listen = listen;
    b->tape.listener = record;
}

static double recorded(const nm_probe_record *record, const char *key)
{
    const json_t *value = json_object_get(json_array_get(record->lines, 0), key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

typedef struct parts {
    golden_tensor x, dy, gamma, g_mu, g_sigma2, g_psi2;
} parts;

/* gamma dy / root - the parts */
static golden_result compare_gradient(golden_case *test, const parts *p, const nm_tensor *x, bool centered)
{
    size_t rows = (size_t)p->x.shape[0], width = (size_t)p->x.shape[1];
    double eps = golden_number(test, "eps", 0), *want = nm_allocate(p->x.count * sizeof *want);
    for (size_t i = 0; i < width; i++) {
        double mean = 0, square = 0;
        for (size_t r = 0; r < rows && centered; r++)
            mean += p->x.data[r * width + i] / (double)rows;
        for (size_t r = 0; r < rows; r++)
            square += pow(p->x.data[r * width + i] - mean, 2) / (double)rows;
        for (size_t r = 0; r < rows; r++) {
            size_t at = r * width + i;
            want[at] = p->gamma.data[i] * p->dy.data[at] / sqrt(square + eps) -
                       (centered ? p->g_mu.data[at] + p->g_sigma2.data[at] : p->g_psi2.data[at]);
        }
    }
    golden_result result = golden_compare(test, "dx", x->grad, want, p->x.count, test->gradient_tolerance);
    free(want);
    return result;
}

static golden_result run_part(golden_case *test, const parts *p, bool centered)
{
    bench b;
    nm_probe_record record = {.lines = NULL};
    char settings[64];
    snprintf(settings, sizeof settings, "scaling=none epsilon=%.17g", golden_number(test, "eps", 0));
    golden_result result = bench_open(test, &b, centered ? "batch" : "pnv", settings, (int32_t)p->x.shape[1]);
    double root = sqrt((double)p->x.shape[0]);
    if (result == GOLDEN_PASSED) {
        bench_set(test, b.norm->params[0], &p->gamma);
        bench_listen(&b, &record, &nm_instrument_gradient_parts);
        bench_forward(test, &b, &p->x);
        result = bench_backward(test, &b, &p->dy);
    }
    if (result == GOLDEN_PASSED)
        result = compare_gradient(test, p, b.x, centered);
    static const char *const keys[2][2][2] = {
        {{"psi2", "norm_vector_g_psi2_over_d"}},
        {{"mu", "norm_vector_g_mu_over_d"}, {"sigma2", "norm_vector_g_sigma2_over_d"}}};
    for (int k = 0; k < 1 + centered && result == GOLDEN_PASSED; k++)
        result = expect(test, keys[centered][k][1], recorded(&record, keys[centered][k][0]));
    if (centered && result == GOLDEN_PASSED)
        result = expect(test, "norm_g_mu_over_d", root * recorded(&record, "mu"));
    json_decref(record.lines);
    bench_close(&b);
    return result;
}

static golden_result run_parts(golden_case *test)
{
    parts p = {.x = {0}};
    const struct {
        const char *name;
        golden_tensor *tensor;
    } tensors[] = {{"x", &p.x},
                   {"dy", &p.dy},
                   {"gamma", &p.gamma},
                   {"g_mu", &p.g_mu},
                   {"g_sigma2", &p.g_sigma2},
                   {"g_psi2", &p.g_psi2}};
    golden_result result = GOLDEN_PASSED;
    for (size_t i = 0; i < 6 && result == GOLDEN_PASSED; i++) {
        result = golden_read(test, json_object_get(test->root, tensors[i].name), tensors[i].name,
                             tensors[i].tensor);
        size_t count = i == 2 && p.x.rank == 2 ? (size_t)p.x.shape[1] : p.x.count;
        if (result == GOLDEN_PASSED && (p.x.rank != 2 || !p.x.count || tensors[i].tensor->count != count))
            result = golden_fail(test, "%s does not fit x", tensors[i].name);
    }
    for (int centered = 0; centered < 2 && result == GOLDEN_PASSED; centered++)
        result = run_part(test, &p, centered);
    for (size_t i = 0; i < 6; i++)
        golden_release(tensors[i].tensor);
    return result;
}

enum { MAX_BATCHES = 64 };

static golden_result walk(golden_case *test, const golden_tensor *batches, size_t n,
                          const golden_tensor *mean, const golden_tensor *variance)
{
    bench b;
    nm_probe_record record = {.lines = NULL};
    GOLDEN_TRY(bench_open(test, &b, "batch", "scaling=none", (int32_t)mean->count));
    bench_listen(&b, &record, &nm_instrument_distance);
    bench_set(test, nm_norm_state(b.norm, "running_mean", NULL), mean);
    bench_set(test, nm_norm_state(b.norm, "running_var", NULL), variance);
    bench_forward(test, &b, &batches[0]);
    nm_tid_accumulator *sums = nm_tid_accumulator_create();
    b.tape.listen = nm_tid_accumulate;
    b.tape.listener = sums;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++)
            bench_forward(test, &b, &batches[i]);
        if (!pass)
            nm_tid_accumulator_start_second_pass(sums);
    }
    nm_tid tid;
    nm_tid_accumulator_finish(sums, &tid);
    golden_result result = expect(test, "dist_mean_first_batch", recorded(&record, "mean"));
    if (result == GOLDEN_PASSED)
        result = expect(test, "dist_var_first_batch", recorded(&record, "variance"));
    if (result == GOLDEN_PASSED)
        result = expect(test, "mean_tid", nm_tid_last(&tid)->mean);
    if (result == GOLDEN_PASSED)
        result = expect(test, "var_tid", nm_tid_last(&tid)->variance);
    nm_tid_release(&tid);
    json_decref(record.lines);
    bench_close(&b);
    return result;
}

static golden_result run_tid(golden_case *test)
{
    golden_tensor batches[MAX_BATCHES] = {{0}}, mean = {0}, variance = {0};
    const json_t *list = json_object_get(test->root, "batches");
    size_t n = json_array_size(list), width = 0;
    if (!n || n > MAX_BATCHES)
        return golden_fail(test, "no batches, or too many");
    golden_result result =
        golden_read(test, json_object_get(test->root, "population_mean"), "population_mean", &mean);
    if (result == GOLDEN_PASSED)
        result =
            golden_read(test, json_object_get(test->root, "population_var"), "population_var", &variance);
    width = mean.count;
    for (size_t i = 0; i < n && result == GOLDEN_PASSED; i++) {
        result = golden_read(test, json_array_get(list, i), "batches", &batches[i]);
        if (result == GOLDEN_PASSED && (batches[i].rank != 2 || (size_t)batches[i].shape[1] != width ||
                                        !width || !batches[i].count || variance.count != width))
            result = golden_fail(test, "batch %zu does not fit", i);
    }
    if (result == GOLDEN_PASSED)
        result = walk(test, batches, n, &mean, &variance);
    for (size_t i = 0; i < n; i++)
        golden_release(&batches[i]);
    golden_release(&mean);
    golden_release(&variance);
    return result;
}

static golden_result compare_condition(golden_case *test, const double *values, int32_t d)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(test->root, "C_p"), key, value)
        GOLDEN_TRY(compare_number(test, key, nm_condition(values, d, atof(key)), json_number_value(value)));
    return expect(test, "C_max", values[0]);
}

static golden_result compare_values(golden_case *test, const char *key, const double *values, size_t n,
                                    double by)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, key), key, &want));
    golden_result result = want.count == n ? GOLDEN_PASSED : golden_fail(test, "%s: not %zu numbers", key, n);
    for (size_t i = 0; i < n && result == GOLDEN_PASSED; i++)
        result = compare_number(test, key, values[i] * by, want.data[i]);
    golden_release(&want);
    return result;
}

static golden_result run_condition(golden_case *test)
{
    golden_tensor x;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "x"), "x", &x));
    if (x.rank != 2 || x.shape[1] < 1 || x.shape[1] > 4096 || !x.count) {
        golden_release(&x);
        return golden_fail(test, "x is no matrix");
    }
    nm_gram gram;
    int32_t d = (int32_t)x.shape[1];
    double *values = nm_allocate((size_t)d * sizeof *values);
    nm_gram_init(&gram, d);
    nm_gram_add(&gram, x.data, x.shape[0]);
    nm_gram_singular(&gram, values);
    golden_result result = compare_values(test, "singular_values_descending", values, (size_t)d, 1);
    if (result == GOLDEN_PASSED)
        result = compare_values(test, "singular_values_normalized", values, (size_t)d, 1 / values[0]);
    if (result == GOLDEN_PASSED)
        result = compare_condition(test, values, d);
    nm_gram_release(&gram);
    golden_release(&x);
    free(values);
    return result;
}

static golden_result run(golden_case *test)
{
    static const struct {
        const char *method;
        golden_result (*run)(golden_case *test);
    } methods[] = {
        {"batch_statistic_gradients", run_parts}, {"tid", run_tid}, {"condition_numbers", run_condition}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (!strcmp(test->method, methods[i].method))
            return methods[i].run(test);
    return golden_skip(test, "method '%.60s' is not offered", test->method);
}

const golden_family golden_analysis = {.name = "analysis", .run = run, .computes = true};
