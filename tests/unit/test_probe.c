/* Live instruments: training with them gives bitwise identical weights, and every logged value equals one
 * computed here in double precision from copies of the inputs, outputs and gradients of the norms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "base/file.h"
#include "support/tiny_run.h"

enum { HEADS = 2, MAX_SITES = 16 };

static uint64_t train(const char *const *settings, const char *folder, bool resume, char **log)
{
    nm_error err;
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    nm_trainer *trainer;
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    nm_train_callbacks callbacks = {.hooks = nm_probe_hooks(probe)};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, resume, &callbacks, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    uint64_t hash = nm_trainer_weights_hash(trainer);
    nm_probe_free(probe);
    nm_trainer_close(trainer);
    nm_options_free(options);
    char *path = nm_path_join(folder, "log.jsonl");
    assert_int_equal(nm_file_read(path, log, NULL, &err), NM_OK);
    free(path);
    return hash;
}

/* The lines of the instruments, or the other lines without measured times; heap. */
static char *lines_of(const char *log, bool probes)
{
    char *copy = nm_duplicate(log), *rest = copy, *out = nm_duplicate("");
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        char *cut = strstr(line, ",\"tokens_per_second\"");
        cut = cut ? cut : strstr(line, ",\"seconds\"");
        cut = cut ? cut : strstr(line, ",\"host\"");
        if (cut)
            *cut = 0;
        if (*line && (strstr(line, "\"type\":\"probe\"") != NULL) == probes) {
            char *longer = nm_format("%s%s\n", out, line);
            free(out);
            out = longer;
        }
    }
    free(copy);
    return out;
}

static void test_instruments_do_not_change_weights(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        if (!strcmp((*type)->name, "fix"))
            continue;
        const char *settings[] = {
            "model.norm", (*type)->name, "train.updates", "12", "train.shards", "2", "probe.every",
            "0",          NULL};
        char *logs[2], *folders[2] = {tiny_folder(), tiny_folder()};
        uint64_t without = train(settings, folders[0], false, &logs[0]);
        settings[7] = "3";
        uint64_t with = train(settings, folders[1], false, &logs[1]);
        if (without != with)
            fail_msg("instruments changed a run with %s", (*type)->name);
        char *plain = lines_of(logs[0], false), *same = lines_of(logs[1], false),
             *probes = lines_of(logs[1], true);
        assert_string_equal(plain, same);
        assert_null(strstr(logs[0], "\"probe\""));
        assert_non_null(
            strstr(probes, "\"update\":3,\"instrument\":\"moments\",\"site\":\"enc.1.ffn.norm\""));
        assert_null(strstr(probes, "\"update\":4,"));
        char *all[] = {plain, same, probes, logs[0], logs[1]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            free(all[i]);
        tiny_data_remove(folders[0]);
        tiny_data_remove(folders[1]);
    }
}

static void test_resumed_run_has_same_records(void **state)
{
    (void)state;
    const char *settings[] = {
        "model.norm", "rbn", "train.updates", "16", "probe.every", "3", "probe.checkpoints", "true", NULL};
    char *whole_log, *first_log, *log, *whole_folder = tiny_folder(), *folder = tiny_folder();
    train(settings, whole_folder, false, &whole_log);
    settings[3] = "8"; /* an update with a validation and therefore a checkpoint */
    train(settings, folder, false, &first_log);
    settings[3] = "16";
    train(settings, folder, true, &log);
    char *whole = lines_of(whole_log, true), *resumed = lines_of(log, true);
    assert_string_equal(whole, resumed);
    assert_non_null(strstr(whole, "\"update\":8,"));
    assert_non_null(strstr(whole, "\"update\":15,"));
    assert_null(strstr(whole, "\"update\":14,"));
    char *all[] = {whole, resumed, whole_log, first_log, log};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    tiny_data_remove(whole_folder);
    tiny_data_remove(folder);
}

static void test_unknown_instrument_is_error(void **state)
{
    (void)state;
    const char *settings[] = {"probe.instruments", "gain,distanze", NULL};
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    nm_error err;
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "distance"));
    tiny_set(options, "probe.instruments", "gain");
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    assert_null(probe); /* neither every nor checkpoints: disabled */
    nm_options_free(options);
}

typedef struct site { /* one norm in the measured update, as doubles */
    const nm_norm *norm;
    int32_t rows, width;
    double *x, *y, *dy, *weight, *before[NM_NORM_CAPACITY], *after[NM_NORM_CAPACITY];
    double units;
} site;

static struct recording {
    nm_trainer *trainer;
    const nm_train_hooks *hooks;
    site sites[MAX_SITES];
    int n;
    double *params, *grads, units, learning_rate;
    json_t *lines;
} record;

static double *copy_floats(const nm_backend *b, const void *device, size_t n)
{
    double *out = nm_allocate((n + 1) * sizeof *out);
    assert_int_equal(b->dtype, NM_F32);
    for (size_t i = 0; i < n; i++) /* the memory of this backend is host memory */
        out[i] = (double)((const float *)device)[i];
    return out;
}

static double *copy_mat(const nm_backend *b, nm_mat m)
{
    assert_int_equal(m.stride, m.cols);
    return copy_floats(b, m.data, (size_t)m.rows * (size_t)m.cols);
}

static bool record_is_due(void *user, int64_t update, bool checkpoint)
{
    (void)user;
    if (!record.hooks->is_due(record.hooks->user, update, checkpoint))
        return false;
    const nm_params *params = &nm_trainer_model(record.trainer)->params;
    assert_true(params->n_norms <= MAX_SITES);
    record.n = (int)params->n_norms;
    for (int i = 0; i < record.n; i++) {
        site *s = &record.sites[i];
        *s = (site){.norm = params->norms[i], .width = params->norms[i]->site.width};
        for (int k = 0; k < s->norm->shape.n_state; k++)
            s->before[k] = copy_floats(params->backend, s->norm->state[k], (size_t)s->width);
        if (s->norm->shape.n_params)
            s->weight =
                copy_floats(params->backend, s->norm->params[0], (size_t)s->norm->shape.params[0].length);
    }
    record.params = copy_floats(params->backend, params->values, params->n_elements);
    return true;
}

static site *site_of(const nm_norm *norm)
{
    for (int i = 0; i < record.n; i++)
        if (record.sites[i].norm == norm)
            return &record.sites[i];
    fail_msg("a norm that is not in the list of the model");
    return NULL;
}

static void record_norm(void *user, const nm_norm_call *call, bool backward)
{
    (void)user;
    site *s = site_of(call->norm);
    if (backward) {
        s->dy = copy_mat(call->backend, call->dy);
    } else {
        s->rows = call->x.rows;
        s->units = call->n_targets;
        s->x = copy_mat(call->backend, call->x);
        s->y = copy_mat(call->backend, call->y);
    }
    record.hooks->on_norm(record.hooks->user, call, backward);
}

static void record_residual(void *user, const nm_residual_call *call)
{
    (void)user;
    record.hooks->on_residual(record.hooks->user, call);
}

static void record_attention(void *user, const nm_attention_call *call)
{
    (void)user;
    record.hooks->on_attention(record.hooks->user, call);
}

static void record_gradients(void *user, const nm_model *model, double units, double learning_rate)
{
    (void)user;
    record.grads = copy_floats(model->backend, model->params.grads, model->params.n_elements);
    for (int i = 0; i < record.n; i++) {
        site *s = &record.sites[i];
        for (int k = 0; k < s->norm->shape.n_state; k++)
            s->after[k] = copy_floats(model->backend, s->norm->state[k], (size_t)s->width);
    }
    record.units = units;
    record.learning_rate = learning_rate;
    record.hooks->on_gradients(record.hooks->user, model, units, learning_rate);
}

static json_t *record_updated(void *user, const nm_model *model)
{
    (void)user;
    record.lines = record.hooks->on_update(record.hooks->user, model);
    return json_deep_copy(record.lines);
}

static const json_t *line_of(const char *instrument, const char *name)
{
    size_t i;
    json_t *line;
    json_array_foreach(
        record.lines, i,
        line) if (!strcmp(json_string_value(json_object_get(line, "instrument")), instrument) &&
                  !strcmp(json_string_value(json_object_get(line, "site")), name)) return line;
    return NULL;
}

static void check_value(const json_t *line, const char *key, double expected)
{
    const json_t *value = json_object_get(line, key);
    double got = json_is_number(value) ? json_number_value(value) : NAN;
    if (!(fabs(got - expected) <= 2e-5 * fabs(expected) + 1e-8)) /* single precision; sums of differences */
        fail_msg("%s of %s at '%s': got %.9g, expected %.9g", key,
                 json_string_value(json_object_get(line, "instrument")),
                 json_string_value(json_object_get(line, "site")), got, expected);
}

/* Divides rows by the root mean square of each head's features. */
static void scale_rows(site *s)
{
    int32_t size = s->width / HEADS;
    for (int32_t g = 0; g < s->rows * HEADS; g++) {
        double square = 0, *row = s->x + (size_t)g * (size_t)size;
        for (int32_t i = 0; i < size; i++)
            square += row[i] * row[i] / size;
        for (int32_t i = 0; i < size; i++)
            row[i] /= sqrt(square + 1e-5);
    }
}

typedef struct statistics {                          /* of one feature */
    double mean, variance, square, sum_dy, sum_dy_x; /* sum_dy_x: dy (x - center), center the mean or 0 */
} statistics;

static statistics feature(const site *s, int32_t i, bool centered)
{
    statistics t = {0};
    for (int32_t r = 0; r < s->rows; r++) {
        double x = s->x[(size_t)r * (size_t)s->width + (size_t)i];
        t.mean += x / s->rows;
        t.square += x * x / s->rows;
    }
    for (int32_t r = 0; r < s->rows; r++) {
        size_t at = (size_t)r * (size_t)s->width + (size_t)i;
        t.variance += (s->x[at] - t.mean) * (s->x[at] - t.mean) / s->rows;
        t.sum_dy += s->dy[at];
        t.sum_dy_x += s->dy[at] * (s->x[at] - (centered ? t.mean : 0));
    }
    return t;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Distances, gradient terms and gamma over the divisor of a norm with batch statistics. used_running: the
 * forward pass divides by the running statistic (PowerNorm after its warm-up). */
static void check_batch_norm(site *s, bool centered, bool used_running)
{
    double mean = 0, variance = 0, roots = 0, sigma = 0, mu = 0, z_part = 0, ratio[64];
    for (int32_t i = 0; i < s->width; i++) {
        statistics t = feature(s, i, centered);
        const double *running = s->before[centered ? 1 : 0];
        double spread = centered ? t.variance : t.square,
               root = sqrt((used_running ? running[i] : spread) + 1e-5),
               factor = s->weight[i] / (root * s->rows * s->units);
        mean += centered ? pow(t.mean - s->before[0][i], 2) : 0;
        variance += pow(spread - running[i], 2);
        roots += pow(sqrt(spread) - sqrt(running[i]), 2);
        sigma += running[i];
        mu += pow(factor * t.sum_dy, 2);
        z_part += pow(factor * t.sum_dy_x / root, 2);
        ratio[i] = fabs(s->weight[i]) / root;
    }
    const char *name = s->norm->site.name;
    const json_t *distance = line_of("distance", name), *parts = line_of("gradient_parts", name),
                 *relative = line_of("deviation", name);
    if (centered) {
        check_value(distance, "mean", sqrt(mean) / s->width);
        check_value(relative, "mean", sqrt(mean / sigma));
        check_value(parts, "mu", sqrt(mu) / s->width);
    }
    check_value(distance, centered ? "variance" : "quadratic_mean", sqrt(variance) / s->width);
    check_value(relative, centered ? "variance" : "quadratic_mean", sqrt(roots / sigma));
    check_value(parts, centered ? "sigma2" : "psi2", sqrt(z_part) / s->width);
    qsort(ratio, (size_t)s->width, sizeof *ratio, compare);
    const json_t *quantiles = json_object_get(line_of("gain", name), "quantiles");
    assert_int_equal(json_array_size(quantiles), 11);
    assert_true(fabs(json_number_value(json_array_get(quantiles, 0)) - ratio[0]) < 1e-5 * ratio[0]);
    assert_true(fabs(json_number_value(json_array_get(quantiles, 10)) - ratio[s->width - 1]) <
                1e-5 * ratio[s->width - 1]);
    double middle = (ratio[s->width / 2 - 1] + ratio[s->width / 2]) / 2;
    assert_true(fabs(json_number_value(json_array_get(quantiles, 5)) - middle) < 1e-5 * middle);
    int64_t counted = 0;
    size_t bin;
    json_t *count;
    json_array_foreach(json_object_get(json_object_get(line_of("gain", name), "histogram"), "counts"), bin,
                       count) counted += json_integer_value(count);
    assert_int_equal(counted, s->width);
}

static void check_moments(const site *s)
{
    const struct {
        const char *key;
        const double *values;
    } sides[] = {{"input", s->x}, {"output", s->y}};
    for (int k = 0; k < 2; k++) {
        size_t n = (size_t)s->rows * (size_t)s->width;
        double mean = 0, square = 0;
        for (size_t i = 0; i < n; i++)
            mean += sides[k].values[i] / (double)n;
        for (size_t i = 0; i < n; i++)
            square += pow(sides[k].values[i] - mean, 2) / (double)n;
        const json_t *object = json_object_get(line_of("moments", s->norm->site.name), sides[k].key);
        assert_true(fabs(json_number_value(json_object_get(object, "mean")) - mean) < 1e-6);
        assert_true(fabs(json_number_value(json_object_get(object, "deviation")) - sqrt(square)) <
                    1e-5 * sqrt(square));
    }
}

static void check_penalty(const site *s)
{
    double value = 0;
    for (int32_t i = 0; i < s->width; i++) {
        statistics t = feature(s, i, true);
        value += 0.1 * pow(t.mean - s->after[0][i], 2) + 0.01 * fabs(t.variance - s->after[1][i]);
    }
    check_value(line_of("penalty", s->norm->site.name), "value", value / s->units);
}

static void check_parameters(const nm_model *model)
{
    double gradient = 0, layer = 0, moved = 0, length = 0, after = 0, dot = 0;
    for (size_t p = 0; p < model->params.n; p++) {
        const nm_param *param = model->params.list[p];
        size_t n = (size_t)param->tensor.rows * (size_t)param->tensor.cols;
        for (size_t i = param->fixed ? n : 0; i < n; i++) {
            double g = record.grads[param->offset + i] / record.units, w = record.params[param->offset + i],
                   step = (double)((const float *)param->tensor.data)[i] - w;
            gradient += g * g;
            layer += !strncmp(param->tensor.name, "enc.0.ffn.", 10) ? g * g : 0;
            moved += step * step;
            length += w * w;
            after += (w + step) * (w + step);
            dot += w * (w + step);
        }
    }
    check_value(line_of("gradient", ""), "norm", sqrt(gradient));
    check_value(line_of("gradient", "enc.0.ffn"), "norm", sqrt(layer));
    check_value(line_of("update_ratio", ""), "ratio", sqrt(moved / length));
    assert_true(record.learning_rate > 0);
    const json_t *effective = line_of("effective_rate", "");
    check_value(effective, "by_square", record.learning_rate / length);
    check_value(effective, "by_norm", record.learning_rate / sqrt(length));
    /* The angle from its definition; in double, the cosine of small angles is exact enough. */
    const double angle = json_number_value(json_object_get(effective, "angle")),
                 expected = acos(dot / sqrt(length * after));
    assert_true(expected > 1e-4 && expected < 1);
    if (!(fabs(angle - expected) < 1e-3 * expected))
        fail_msg("angle %.9g, expected %.9g", angle, expected);
}

static void check_scale(const site *s)
{
    int32_t n = s->norm->shape.n_params ? s->norm->shape.params[0].length : 0;
    double square = 0;
    for (int32_t i = 0; i < n; i++)
        square += s->weight[i] * s->weight[i];
    const json_t *line = line_of("scale", s->norm->site.name);
    check_value(line, "g", n == 1 ? s->weight[0] : sqrt(square / n) * sqrt(s->width));
    assert_string_equal(json_string_value(json_object_get(line, "stack")),
                        strncmp(s->norm->site.name, "dec", 3) ? "enc" : "dec");
}

static void release_recording(void)
{
    for (int i = 0; i < record.n; i++) {
        site *s = &record.sites[i];
        double *all[] = {s->x, s->y, s->dy, s->weight};
        for (size_t k = 0; k < 4; k++)
            free(all[k]);
        for (int k = 0; k < NM_NORM_CAPACITY; k++) {
            free(s->before[k]);
            free(s->after[k]);
        }
    }
    free(record.params);
    free(record.grads);
    json_decref(record.lines);
    record = (struct recording){0};
}

/* Trains with `norm` for `updates` updates and records the last one. */
static void record_run(const char *norm, const char *updates, void (*check)(void))
{
    const char *settings[] = {
        "model.norm", norm, "train.updates", updates, "probe.every", updates, "model.heads", "2", NULL};
    nm_error err;
    nm_options *options = tiny_options(settings);
    nm_probe *probe;
    char *folder = tiny_folder();
    assert_int_equal(nm_probe_create(&probe, options, &err), NM_OK);
    record.hooks = nm_probe_hooks(probe);
    nm_train_hooks around = {
        NULL,          record_is_due, record_norm, record_residual, record_attention, record_gradients,
        record_updated};
    nm_train_callbacks callbacks = {.hooks = &around};
    if (nm_trainer_open(&record.trainer, &nm_task_translation, options, folder, false, &callbacks, &err) !=
        NM_OK)
        fail_msg("%s", err.text);
    nm_trainer *trainer = record.trainer;
    if (nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    assert_true(record.n > 0 && json_array_size(record.lines) > 0);
    check_parameters(nm_trainer_model(trainer));
    check();
    release_recording();
    nm_probe_free(probe);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
}

static void check_sites(bool centered, bool scaled, bool used_running, bool penalized)
{
    int checked = 0;
    for (int i = 0; i < record.n; i++) {
        site *s = &record.sites[i];
        check_scale(s);
        check_moments(s);
        if (!(s->norm->type->traits & NM_USES_BATCH)) {
            assert_null(line_of("distance", s->norm->site.name)); /* the decoder's LayerNorms */
            continue;
        }
        if (penalized)
            check_penalty(s);
        if (scaled)
            scale_rows(s);
        check_batch_norm(s, centered, used_running);
        checked++;
    }
    assert_int_equal(checked, 5); /* two layers of two, and the final one */
}

static void check_batch(void)
{
    check_sites(true, false, false, false);
}

static void check_rbn(void)
{
    check_sites(true, false, false, true);
}

static void check_pnv(void)
{
    check_sites(false, true, false, false);
}

/* After the warm-up of 4 updates all norms divide by running statistics, except the final one, whose warm-up
 * is longer. */
static void check_power(void)
{
    for (int i = 0; i < record.n; i++) {
        site *s = &record.sites[i];
        if (!(s->norm->type->traits & NM_USES_BATCH))
            continue;
        scale_rows(s);
        check_batch_norm(s, false, strcmp(s->norm->site.name, "enc.final.norm") != 0);
    }
}

static void check_scalenorm(void)
{
    for (int i = 0; i < record.n; i++) {
        check_scale(&record.sites[i]);
        check_moments(&record.sites[i]);
        assert_null(line_of("gain", record.sites[i].norm->site.name));
    }
}

static void test_values_equal_reference(void **state)
{
    (void)state;
    record_run("batch", "6", check_batch);
    record_run("rbn", "6", check_rbn);
    record_run("pnv", "6", check_pnv);
    record_run("power", "7", check_power);
    record_run("scale", "6", check_scalenorm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instruments_do_not_change_weights),
        cmocka_unit_test(test_resumed_run_has_same_records),
        cmocka_unit_test(test_unknown_instrument_is_error),
        cmocka_unit_test(test_values_equal_reference),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
