/* Instruments of the residual stream and of attention: every logged value equals one that the test computes
 * in double from the matrices of the calls, in an ordinary run; constructed cases of massive activations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "base/file.h"
#include "probe/instrument.h"
#include "support/tiny_run.h"

enum { MAX_CALLS = 32 };

typedef struct values {
    char site[96];
    double expected[8];
    double heads[4];
} values;

static struct recording {
    const nm_train_hooks *hooks;
    bool due;
    values residuals[MAX_CALLS], attentions[MAX_CALLS];
    int n_residuals, n_attentions;
    json_t *lines;
} record;

/* The memory of this backend is host memory, and its numbers are floats. */
static double at(nm_mat m, int32_t row, int32_t col)
{
    return (double)((const float *)m.data)[(size_t)row * (size_t)m.stride + (size_t)col];
}

static double variance(nm_mat m)
{
    double n = (double)m.rows * m.cols, sum = 0, squares = 0;
    for (int32_t r = 0; r < m.rows; r++)
        for (int32_t c = 0; c < m.cols; c++) {
            sum += at(m, r, c);
            squares += at(m, r, c) * at(m, r, c);
        }
    return squares / n - sum / n * (sum / n);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void record_residual(void *user, const nm_residual_call *call)
{
    (void)user;
    nm_mat out = call->out;
    values *v = &record.residuals[record.n_residuals++];
    assert_true(record.n_residuals <= MAX_CALLS);
    *v = (values){.expected = {variance(call->stream), variance(call->branch)}};
    snprintf(v->site, sizeof v->site, "%s", call->site);
    size_t n = (size_t)out.rows * (size_t)out.cols, k = 0;
    double *all = nm_allocate(n * sizeof *all), largest = 0;
    for (int32_t r = 0; r < out.rows; r++)
        for (int32_t c = 0; c < out.cols; c++) {
            all[k] = fabs(at(out, r, c));
            if (all[k++] > largest) {
                largest = all[k - 1];
                v->expected[4] = c;
            }
        }
    qsort(all, n, sizeof *all, ascending);
    v->expected[2] = all[n - 1];
    v->expected[3] = all[n / 2];
    free(all);
    record.hooks->on_residual(record.hooks->user, call);
}

/* The definition, from the probabilities: the kernel's order of keys and causal mask. */
static void record_attention(void *user, const nm_attention_call *call)
{
    (void)user;
    const nm_attention_args *a = call->args;
    values *v = &record.attentions[record.n_attentions++];
    assert_true(record.n_attentions <= MAX_CALLS && a->heads <= 4);
    *v = (values){.expected = {0}};
    snprintf(v->site, sizeof v->site, "%s", call->site);
    double tokens = 0;
    for (int32_t s = 0; s < a->q_packing->n_seqs && tokens < 256; s++)
        for (int32_t i = a->q_packing->offsets[s]; i < a->q_packing->offsets[s + 1]; i++, tokens++) {
            /* Causal attention is self-attention, with equal packings. */
            int32_t first = a->k_packing->offsets[s], end = a->causal ? i + 1 : a->k_packing->offsets[s + 1];
            v->expected[0] += log(end - first);
            for (int32_t h = 0; h < a->heads; h++) {
                int32_t width = a->q.cols / a->heads;
                double p[64], sum = 0;
                assert_true(end - first <= 64);
                for (int32_t j = first; j < end; j++) {
                    double dot = 0;
                    for (int32_t c = h * width; c < (h + 1) * width; c++)
                        dot += at(a->q, i, c) * at(a->k, j, c);
                    sum += p[j - first] = exp(a->scale * dot);
                }
                for (int32_t j = 0; j < end - first; j++)
                    v->heads[h] -= p[j] / sum * log(p[j] / sum);
            }
        }
    v->expected[0] /= tokens;
    v->expected[1] = tokens;
    for (int32_t h = 0; h < a->heads; h++)
        v->heads[h] /= tokens;
    record.hooks->on_attention(record.hooks->user, call);
}

static bool record_is_due(void *user, int64_t update, bool checkpoint)
{
    (void)user;
    return record.due = record.hooks->is_due(record.hooks->user, update, checkpoint);
}

static void record_norm(void *user, const nm_norm_call *call, bool backward)
{
    (void)user;
    record.hooks->on_norm(record.hooks->user, call, backward);
}

static void record_gradients(void *user, const nm_model *model, double units, double learning_rate)
{
    (void)user;
    record.hooks->on_gradients(record.hooks->user, model, units, learning_rate);
}

static json_t *record_updated(void *user, const nm_model *model)
{
    (void)user;
    record.lines = record.hooks->on_update(record.hooks->user, model);
    return json_deep_copy(record.lines);
}

static double value_of(const char *instrument, const char *site, const char *key)
{
    size_t i;
    json_t *line;
    json_array_foreach(record.lines, i, line)
    {
        if (!strcmp(json_string_value(json_object_get(line, "instrument")), instrument) &&
            !strcmp(json_string_value(json_object_get(line, "site")), site))
            return *key == '#' ? json_number_value(
                                     json_array_get(json_object_get(line, "heads"), (size_t)(key[1] - '0')))
                               : json_number_value(json_object_get(line, key));
    }
    fail_msg("no line of %s at %s", instrument, site);
    return 0;
}

static void check(const char *instrument, const char *site, const char *key, double expected)
{
    double got = value_of(instrument, site, key);
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected) + 1e-12)) /* both in double, from equal floats */
        fail_msg("%s of %s at %s: got %.17g, expected %.17g", key, instrument, site, got, expected);
}

/* A run with post-norm, or with pre-norm and recomputed layers: reports come once for each call. */
static void check_run(const char *position, const char *checkpointing)
{
    const char *settings[] = {"model.norm_position",
                              position,
                              "train.updates",
                              "5",
                              "probe.every",
                              "5",
                              "model.heads",
                              "2",
                              "train.activation_checkpointing",
                              checkpointing,
                              NULL};
    nm_error err;
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    nm_trainer *trainer;
    char *folder = tiny_folder();
    record = (struct recording){0};
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    record.hooks = nm_probe_hooks(probe);
    const nm_train_hooks around = {.is_due = record_is_due,
                                   .on_norm = record_norm,
                                   .on_residual = record_residual,
                                   .on_attention = record_attention,
                                   .on_gradients = record_gradients,
                                   .on_update = record_updated};
    nm_train_callbacks callbacks = {.hooks = &around};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, &callbacks, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    assert_int_equal(record.n_residuals, 2 * 2 + 2 * 3); /* two layers of two sublayers, two of three */
    assert_int_equal(record.n_attentions, 2 + 2 * 2);
    for (int i = 0; i < record.n_residuals; i++) {
        const values *v = &record.residuals[i];
        const double *e = v->expected;
        check("residual_share", v->site, "stream", e[0]);
        check("residual_share", v->site, "branch", e[1]);
        check("residual_share", v->site, "share", e[1] / (e[0] + e[1]));
        check("massive", v->site, "largest", e[2]);
        check("massive", v->site, "median", e[3]);
        check("massive", v->site, "ratio", e[2] / e[3]);
        check("massive", v->site, "feature", e[4]);
        check("massive", v->site, "count", 0);
        assert_true(e[0] > 0 && e[1] > 0);
    }
    for (int i = 0; i < record.n_attentions; i++) {
        const values *v = &record.attentions[i];
        check("attention_entropy", v->site, "rows", v->expected[1]);
        check("attention_entropy", v->site, "uniform", v->expected[0]);
        check("attention_entropy", v->site, "#0", v->heads[0]);
        check("attention_entropy", v->site, "#1", v->heads[1]);
        check("attention_entropy", v->site, "entropy", (v->heads[0] + v->heads[1]) / 2);
        assert_true(v->heads[0] <= v->expected[0]);
    }
    json_decref(record.lines);
    nm_probe_free(probe);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
}

static void test_values_equal_definitions(void **state)
{
    (void)state;
    check_run("post", "none");
    check_run("pre", "layer");
}

/* Magnitudes around the criterion: more than 100, and at least 1000 times the median. */
static void test_massive_activations_are_counted(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 5 };
    static const struct {
        float large[3], others;
        json_int_t count, feature;
    } cases[] = {{{-3000, 150, 99}, 0.0625F, 2, 2}, /* 99 is not above 100 */
                 {{200, -124, 126}, 0.125F, 2, 2},  /* 124 is below 1000 times 0.125 */
                 {{50, 20, 10}, 0.001F, 0, 2},      /* large ratios of small numbers */
                 {{1000, 1000, 1000}, 8, 0, 2}};
    extern const nm_instrument nm_instrument_massive;
    nm_backend *b;
    nm_error err;
    const nm_backend_options device = {.name = "ref", .dtype = NM_F32};
    assert_int_equal(nm_backend_create(&b, &device, &err), NM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x[ROWS * COLS];
        for (int k = 0; k < ROWS * COLS; k++)
            x[k] = k % 2 ? cases[i].others : -cases[i].others;
        for (int k = 0; k < 3; k++)
            x[2 + k * COLS + (k ? 1 : 0)] = cases[i].large[k];
        nm_probe_record probe = {.instrument = &nm_instrument_massive, .lines = json_array()};
        const nm_residual_call call = {
            .backend = b, .site = "enc.0.ffn.norm", .out = nm_mat_of(x, ROWS, COLS)};
        nm_instrument_massive.residual(&probe, &call);
        const json_t *line = json_array_get(probe.lines, 0);
        assert_int_equal(json_integer_value(json_object_get(line, "count")), cases[i].count);
        assert_int_equal(json_integer_value(json_object_get(line, "feature")), cases[i].feature);
        json_decref(probe.lines);
    }
    nm_backend_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_equal_definitions),
                                       cmocka_unit_test(test_massive_activations_are_counted)};
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
