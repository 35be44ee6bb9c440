/* Measurements of saved models: TID, condition numbers, Lemma 2, Theorem 4 and confidence against values
 * computed here in double precision from copies of the activations; and the advice for given measurements. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <xxhash.h>

#include "probe/advice.h"
#include "base/sort.h"
#include "probe/numbers.h"
#include "probe/eval_pass.h"
#include "probe/spectrum.h"
#include "support/tiny_run.h"
#include "task/model_loader.h"

typedef struct trained {
    char *folder, *path;
    nm_backend *backend;
    nm_loaded_model loaded;
    double valid_loss, valid_nll; /* of the validation by the trainer at the end */
} trained;

/* more: one further pair of option and value, or NULL. */
static void train_with(trained *t, const char *norm, const char *norm_position, const char *const *more)
{
    const char *settings[] = {"model.norm",
                              norm,
                              "model.norm_position",
                              norm_position,
                              "train.updates",
                              "12",
                              more ? more[0] : NULL,
                              more ? more[1] : NULL,
                              NULL};
    nm_options *options = tiny_options(settings);
    nm_trainer *trainer;
    nm_training_validation v;
    nm_task_score score;
    nm_error err;
    *t = (trained){.folder = tiny_folder()};
    if (nm_trainer_open(&trainer, &nm_task_translation, options, t->folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK || nm_trainer_validate(trainer, &v, &score, &err) != NM_OK)
        fail_msg("%s", err.text);
    t->valid_loss = v.loss;
    t->valid_nll = v.nll;
    nm_trainer_close(trainer);
    nm_options_free(options);
    char *last = nm_format("%s/last.safetensors", t->folder);
    const nm_task_type *task;
    nm_options *saved;
    const nm_backend_options device = {.name = "cpu", .threads = 1};
    if (nm_backend_create(&t->backend, &device, &err) != NM_OK ||
        nm_loaded_model_options(last, &saved, &task, &t->path, &err) != NM_OK ||
        nm_loaded_model_open_run(&t->loaded, t->path, task, saved, t->backend, true, &err) != NM_OK)
        fail_msg("%s", err.text);
    free(last);
}

static void train(trained *t, const char *norm, const char *norm_position)
{
    train_with(t, norm, norm_position, NULL);
}

static void release(trained *t)
{
    nm_loaded_model_close(&t->loaded);
    nm_backend_free(t->backend);
    free(t->path);
    tiny_data_remove(t->folder);
}

static nm_eval_pass pass_over(trained *t, nm_split split, nm_eval_pass_kind kind, int64_t batches)
{
    return (nm_eval_pass){.task = &t->loaded.task,
                          .model = t->loaded.model,
                          .split = split,
                          .kind = kind,
                          .max_batches = batches};
}

static void walk(const nm_eval_pass *pass)
{
    nm_error err;
    if (nm_eval_pass_run(pass, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
}

static uint64_t model_hash(const nm_model *model)
{
    const nm_params *p = &model->params;
    size_t unit = nm_dtype_bytes(p->backend->dtype);
    uint64_t hash = XXH3_64bits(p->values, nm_params_bytes(p)) ^ XXH3_64bits(p->state, p->n_state * unit);
    for (size_t i = 0; i < p->n_norms; i++)
        hash = XXH3_64bits_withSeed(p->norms[i]->counters, sizeof p->norms[i]->counters, hash);
    return hash;
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (1e-9 + fabs(b));
}

enum { BATCHES = 5, WIDTH = 16 };

typedef struct dump { /* the inputs or outputs of one site, by batch */
    const char *name;
    bool output;
    double *x[BATCHES];
    int32_t rows[BATCHES];
    int n;
} dump;

static void dump_site(void *user, const nm_norm_call *call, bool backward)
{
    dump *d = user;
    if (backward || strcmp(call->norm->site.name, d->name))
        return;
    nm_mat m = d->output ? call->y : call->x;
    assert_true(d->n < BATCHES && m.cols == WIDTH && m.stride == WIDTH);
    size_t n = (size_t)m.rows * WIDTH;
    d->x[d->n] = nm_allocate(n * sizeof(double));
    for (size_t i = 0; i < n; i++)
        d->x[d->n][i] = (double)((const float *)m.data)[i];
    d->rows[d->n++] = m.rows;
}

static void dump_release(dump *d)
{
    for (int i = 0; i < d->n; i++)
        free(d->x[i]);
}

static void moments(const dump *d, int batch, int32_t i, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int32_t r = 0; r < d->rows[batch]; r++)
        *mean += d->x[batch][r * WIDTH + i] / d->rows[batch];
    for (int32_t r = 0; r < d->rows[batch]; r++)
        *variance += pow(d->x[batch][r * WIDTH + i] - *mean, 2) / d->rows[batch];
}

/* Mean square of feature i over the rows, each divided by the root mean square of its head's features. */
static double scaled_square(const dump *d, int batch, int32_t i)
{
    const int32_t size = WIDTH / 2, first = i / size * size; /* two heads */
    double square = 0;
    for (int32_t r = 0; r < d->rows[batch]; r++) {
        const double *row = d->x[batch] + (size_t)r * WIDTH;
        double head = 0;
        for (int32_t k = 0; k < size; k++)
            head += row[first + k] * row[first + k] / size;
        square += row[i] * row[i] / (head + 1e-5) / d->rows[batch];
    }
    return square;
}

static void expected_tid(const dump *d, double *mean_tid, double *variance_tid, double *square_tid)
{
    double mean[WIDTH] = {0}, variance[WIDTH] = {0}, square[WIDTH] = {0};
    *mean_tid = *variance_tid = *square_tid = 0;
    for (int b = 0; b < BATCHES; b++)
        for (int32_t i = 0; i < WIDTH; i++) {
            double m, v;
            moments(d, b, i, &m, &v);
            mean[i] += m / BATCHES;
            variance[i] += v / BATCHES;
            square[i] += scaled_square(d, b, i) / BATCHES;
        }
    for (int b = 0; b < BATCHES; b++) {
        double above[3] = {0}, sigma = 0, psi = 0;
        for (int32_t i = 0; i < WIDTH; i++) {
            double m, v;
            moments(d, b, i, &m, &v);
            above[0] += pow(m - mean[i], 2);
            above[1] += pow(sqrt(v) - sqrt(variance[i]), 2);
            above[2] += pow(sqrt(scaled_square(d, b, i)) - sqrt(square[i]), 2);
            sigma += variance[i];
            psi += square[i];
        }
        *mean_tid += sqrt(above[0] / sigma) / BATCHES;
        *variance_tid += sqrt(above[1] / sigma) / BATCHES;
        *square_tid += sqrt(above[2] / psi) / BATCHES;
    }
}

/* Scales rows to unit mean square, as a norm with scaling "layer" does. */
static void scale_rows(dump *d)
{
    for (int b = 0; b < d->n; b++)
        for (int32_t r = 0; r < d->rows[b]; r++) {
            double *row = d->x[b] + (size_t)r * WIDTH, square = 0;
            for (int32_t i = 0; i < WIDTH; i++)
                square += row[i] * row[i] / WIDTH;
            for (int32_t i = 0; i < WIDTH; i++)
                row[i] /= sqrt(square + 1e-5);
        }
}

static void dump_inputs(trained *t, dump *d)
{
    nm_eval_pass pass = pass_over(t, NM_SPLIT_TRAIN, NM_EVAL_PASS_BATCH, BATCHES);
    pass.user = d;
    pass.norm = dump_site;
    walk(&pass);
}

static void test_tid_of_norm_inputs(void **state)
{
    (void)state;
    trained t;
    nm_tid tid;
    nm_error err;
    double mean, variance, square;
    train(&t, "batch", "post");
    uint64_t before = model_hash(t.loaded.model);
    assert_int_equal(nm_tid_measure(&tid, &t.loaded.task, t.loaded.model, BATCHES, &err), NM_OK);
    assert_true(model_hash(t.loaded.model) == before);
    dump d = {.name = "enc.1.ffn.norm"};
    dump_inputs(&t, &d);
    expected_tid(&d, &mean, &variance, &square);
    const nm_tid_site *last = nm_tid_last(&tid);
    assert_string_equal(last->name, "enc.1.ffn.norm");
    assert_true(near(last->mean, mean, 1e-5) && near(last->variance, variance, 1e-5));
    assert_true(near(last->square, square, 1e-5));
    nm_tid_release(&tid);
    dump_release(&d);
    release(&t);
}

/* The statistics of a norm with layer scaling are those of the scaled rows, which it normalizes. */
static void test_tid_after_layer_scaling(void **state)
{
    (void)state;
    static const char *const scaling[] = {"norm.batch.scaling", "layer"};
    trained t;
    nm_tid tid;
    nm_error err;
    double mean, variance, square;
    train_with(&t, "batch", "post", scaling);
    assert_int_equal(nm_tid_measure(&tid, &t.loaded.task, t.loaded.model, BATCHES, &err), NM_OK);
    dump d = {.name = "enc.1.ffn.norm"};
    dump_inputs(&t, &d);
    scale_rows(&d);
    expected_tid(&d, &mean, &variance, &square);
    const nm_tid_site *last = nm_tid_last(&tid);
    assert_true(near(last->mean, mean, 1e-5) && near(last->variance, variance, 1e-5));
    nm_tid_release(&tid);
    dump_release(&d);
    release(&t);
}

/* The mean of the variance TID over the sites whose names start with `prefix`. */
static double mean_over(const nm_tid *tid, const char *prefix)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < tid->n; i++)
        if (!strncmp(tid->sites[i].name, prefix, strlen(prefix))) {
            sum += tid->sites[i].variance;
            n++;
        }
    return sum / n;
}

/* By default the average is over the norms with batch statistics, here the encoder's, and not over the
 * LayerNorms of the decoder; without any, over the encoder. */
static void test_tid_average_sites(void **state)
{
    (void)state;
    static const char *const norms[] = {"batch", "layer"};
    for (int n = 0; n < 2; n++) {
        trained t;
        nm_tid tid;
        nm_error err;
        train(&t, norms[n], "pre");
        assert_int_equal(nm_tid_measure(&tid, &t.loaded.task, t.loaded.model, 2, &err), NM_OK);
        double encoder = mean_over(&tid, "enc."), all = mean_over(&tid, "");
        assert_false(near(encoder, all, 1e-3));
        assert_true(near(nm_tid_average(&tid).variance, encoder, 1e-12));
        assert_int_equal(nm_tid_select(&tid, "all", &err), NM_OK);
        assert_true(near(nm_tid_average(&tid).variance, all, 1e-12));
        assert_int_equal(nm_tid_select(&tid, "dec.1", &err), NM_OK);
        assert_true(near(nm_tid_average(&tid).variance, mean_over(&tid, "dec.1."), 1e-12));
        assert_int_equal(nm_tid_select(&tid, "dec.1,encoder", &err), NM_USAGE);
        assert_non_null(strstr(err.text, "'encoder'"));
        nm_tid_release(&tid);
        release(&t);
    }
    const nm_tid none = {.n = 0}; /* a model without norms */
    json_t *json = nm_tid_json(&none);
    assert_true(json_is_null(json_object_get(json, "last")) &&
                json_is_null(json_object_get(json, "average")));
    json_decref(json);
}

/* One-sided Jacobi: rotates the columns of x [rows, d] until they are orthogonal; their norms, descending. */
static void jacobi(double *x, size_t rows, size_t d, double *values)
{
    for (int sweep = 0; sweep < 60; sweep++)
        for (size_t p = 0; p < d; p++)
            for (size_t q = p + 1; q < d; q++) {
                double a = 0, b = 0, c = 0;
                for (size_t r = 0; r < rows; r++) {
                    a += x[r * d + p] * x[r * d + p];
                    b += x[r * d + q] * x[r * d + q];
                    c += x[r * d + p] * x[r * d + q];
                }
                double angle = 0.5 * atan2(2 * c, a - b), s = sin(angle), k = cos(angle);
                for (size_t r = 0; r < rows; r++) {
                    double u = x[r * d + p], v = x[r * d + q];
                    x[r * d + p] = k * u + s * v;
                    x[r * d + q] = k * v - s * u;
                }
            }
    for (size_t i = 0; i < d; i++) {
        values[i] = 0;
        for (size_t r = 0; r < rows; r++)
            values[i] += x[r * d + i] * x[r * d + i];
        values[i] = -sqrt(values[i]);
    }
    nm_sort_doubles(values, d);
    for (size_t i = 0; i < d; i++)
        values[i] = -values[i];
}

static void check_matrix(const double *x, int64_t rows, int32_t d)
{
    double *copy = nm_allocate((size_t)rows * (size_t)d * sizeof *copy),
           *want = nm_allocate((size_t)d * sizeof *want), *got = nm_allocate((size_t)d * sizeof *got);
    nm_gram gram;
    memcpy(copy, x, (size_t)rows * (size_t)d * sizeof *copy);
    jacobi(copy, (size_t)rows, (size_t)d, want);
    nm_gram_init(&gram, d);
    nm_gram_add(&gram, x, rows / 3); /* in parts of odd size */
    nm_gram_add(&gram, x + rows / 3 * d, rows - rows / 3);
    nm_gram_singular(&gram, got);
    for (int32_t i = 0; i < d; i++)
        if (!(fabs(got[i] * got[i] - want[i] * want[i]) <= 1e-13 * want[0] * want[0]))
            fail_msg("[%lld, %d]: value %d is %.12g, expected %.12g", (long long)rows, d, i, got[i], want[i]);
    assert_true(gram.rows == rows);
    nm_gram_release(&gram);
    free(copy);
    free(want);
    free(got);
}

static void test_singular_values_equal_jacobi(void **state)
{
    (void)state;
    static const int sizes[][2] = {{40, 1}, {50, 2}, {31, 17}, {12, 20}, {90, 40}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = (size_t)sizes[s][0] * (size_t)sizes[s][1];
        double *x = nm_allocate(n * sizeof *x);
        for (size_t i = 0; i < n; i++) {
            nm_random_words w = nm_random4(7, NM_RANDOM_TEST, (uint32_t)s, 0, i);
            x[i] = nm_random_normal(w.w[0], w.w[1]) * pow(0.7, (double)(i % (size_t)sizes[s][1]));
        }
        check_matrix(x, sizes[s][0], sizes[s][1]);
        for (size_t i = 0; i < n; i++) /* multiple and zero eigenvalues */
            x[i] = i / (size_t)sizes[s][1] % (size_t)sizes[s][1] == i % (size_t)sizes[s][1] ? 1 : 0;
        check_matrix(x, sizes[s][0], sizes[s][1]);
        x[0] = NAN;
        nm_gram gram;
        double *got = nm_allocate((size_t)sizes[s][1] * sizeof *got);
        nm_gram_init(&gram, sizes[s][1]);
        nm_gram_add(&gram, x, sizes[s][0]);
        nm_gram_singular(&gram, got);
        assert_true(isnan(got[0]));
        nm_gram_release(&gram);
        free(got);
        free(x);
    }
    const double values[] = {8, 4, 2, 1};
    assert_true(nm_condition(values, 4, 0.5) == 2 && nm_condition(values, 4, 0.8) == 8);
}

/* The input of the second layer: the input of its first norm, or the output of the last norm of the first
 * layer. */
static void check_condition(const char *norm_position)
{
    trained t;
    nm_error err;
    nm_conditioning c;
    train(&t, "layer", norm_position);
    bool pre = !strcmp(norm_position, "pre");
    assert_int_equal(
        nm_conditioning_measure(&c, &t.loaded.task, t.loaded.model, NM_SPLIT_VALID, BATCHES, &err), NM_OK);
    dump d = {.name = pre ? "enc.1.self.norm" : "enc.0.ffn.norm", .output = !pre};
    nm_eval_pass pass = pass_over(&t, NM_SPLIT_VALID, NM_EVAL_PASS_INFER, BATCHES);
    pass.user = &d;
    pass.norm = dump_site;
    walk(&pass);
    const nm_layer_condition *layer = NULL;
    for (size_t i = 0; i < c.n; i++)
        if (c.layers[i].layer == 1 && !strcmp(c.layers[i].stack, "enc"))
            layer = &c.layers[i];
    assert_non_null(layer);
    assert_int_equal(c.n, pre ? 4 : 2);
    size_t rows = 0;
    double *all = NULL, want[WIDTH];
    for (int b = 0; b < d.n; b++) {
        all = nm_reallocate(all, (rows + (size_t)d.rows[b]) * WIDTH * sizeof *all);
        memcpy(all + rows * WIDTH, d.x[b], (size_t)d.rows[b] * WIDTH * sizeof *all);
        rows += (size_t)d.rows[b];
    }
    jacobi(all, rows, WIDTH, want);
    assert_true(layer->rows == (int64_t)rows && near(layer->c_max, want[0], 1e-9));
    assert_true(near(layer->c50, want[0] / want[7], 1e-9) && near(layer->c80, want[0] / want[12], 1e-9));
    free(all);
    dump_release(&d);
    nm_conditioning_release(&c);
    release(&t);
}

static void test_condition_numbers_of_layer_inputs(void **state)
{
    (void)state;
    check_condition("pre");
    check_condition("post");
}

static void check_bounds(const char *norm, const char *norm_position, size_t n_lemma, size_t n_theorem)
{
    trained t;
    nm_error err;
    nm_gradient_bounds bounds;
    train(&t, norm, norm_position);
    uint64_t before = model_hash(t.loaded.model);
    assert_int_equal(nm_gradient_bounds_measure(&bounds, &t.loaded.task, t.loaded.model, 8, &err), NM_OK);
    assert_true(model_hash(t.loaded.model) == before);
    assert_int_equal(bounds.n_lemma, n_lemma);
    assert_int_equal(bounds.n_theorem, n_theorem);
    if (n_lemma) /* in the order of the forward pass */
        assert_string_equal(bounds.lemma[0].name, "enc.0.self.norm");
    if (n_theorem)
        assert_string_equal(bounds.theorem[0].name, "enc.0.self.norm");
    for (size_t i = 0; i < n_lemma; i++) {
        const nm_lemma_site *s = &bounds.lemma[i];
        if (!(s->ratio > 0 && s->ratio <= 1 + 1e-5 && s->equality < 1e-4 && s->backward < 1e-4 &&
              s->batches == 8))
            fail_msg("%s %s: ratio %.9g, equality %.3g, backward %.3g", norm, s->name, s->ratio, s->equality,
                     s->backward);
        assert_true(s->below_one >= 0 && s->below_one <= 1 + 1e-12 && s->shrink > 0);
    }
    for (size_t i = 0; i < n_theorem; i++) {
        const nm_theorem_site *s = &bounds.theorem[i];
        if (!(s->ratio > 0 && s->ratio <= 1 + 1e-5 && s->nu > 0 && s->gamma_least > 0 &&
              s->gamma_least < 1.5))
            fail_msg("%s %s: ratio %.9g, nu %.3g, Gamma from %.3g", norm, s->name, s->ratio, s->nu,
                     s->gamma_least);
        assert_true(fabs(s->assumption - 1) < 1e-12);
    }
    nm_gradient_bounds_release(&bounds);
    release(&t);
}

static void test_bounds_and_backward_formulas(void **state)
{
    (void)state;
    check_bounds("pnv", "pre", 5, 0);
    check_bounds("batch", "post", 4, 0);
    check_bounds("rbn", "pre", 5, 0);
    check_bounds("power", "pre", 0, 5);
    check_bounds("layer", "pre", 0, 0);
    check_bounds("mabn", "pre", 0, 0); /* neither the gradient of the lemma nor the nu of the theorem */
}

/* The gradients of a group in a second pass. */
static double squares;

static void add_squares(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    const nm_model *model = user;
    (void)tape;
    (void)out;
    for (size_t p = 0; p < model->params.n; p++) {
        const nm_tensor *tensor = &model->params.list[p]->tensor;
        for (int32_t i = 0; !strncmp(tensor->name, "enc.0.", 6) && i < tensor->rows * tensor->cols; i++)
            squares += pow((double)((const float *)tensor->grad)[i] / batch->n_targets, 2);
    }
}

static void test_bounds_do_not_change_gradients(void **state)
{
    (void)state;
    trained t;
    nm_error err;
    nm_gradient_bounds bounds;
    train(&t, "batch", "pre");
    assert_int_equal(nm_gradient_bounds_measure(&bounds, &t.loaded.task, t.loaded.model, 3, &err), NM_OK);
    nm_eval_pass pass = pass_over(&t, NM_SPLIT_TRAIN, NM_EVAL_PASS_GRADIENTS, 3);
    pass.user = t.loaded.model;
    pass.batch = add_squares;
    squares = 0;
    walk(&pass);
    double measured = NAN;
    for (size_t i = 0; i < bounds.n_groups; i++)
        measured = strcmp(bounds.groups[i].name, "enc.0") ? measured : bounds.groups[i].norm;
    assert_true(near(measured, sqrt(squares / 3), 1e-6));
    nm_gradient_bounds_release(&bounds);
    release(&t);
}

typedef struct words {
    double largest, right, target, entropy;
    double excess[10]; /* confidence - correct predictions, summed per tenth of the confidence */
    int64_t n;
} words;

static void add_words(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    words *w = user;
    (void)tape;
    const float *hidden = out->hidden->data, *weight = out->weight->data;
    for (int32_t r = 0; r < out->hidden->rows; r++) {
        double logits[64], sum = 0;
        int32_t best = 0;
        assert_true(out->weight->rows <= 64 && !out->bias);
        for (int32_t v = 0; v < out->weight->rows; v++) {
            logits[v] = 0;
            for (int32_t i = 0; i < WIDTH; i++)
                logits[v] += (double)hidden[r * WIDTH + i] * (double)weight[v * WIDTH + i];
            sum += exp(logits[v]);
            best = logits[v] > logits[best] ? v : best;
        }
        for (int32_t v = 0; v < out->weight->rows; v++)
            w->entropy -= exp(logits[v]) / sum * log(exp(logits[v]) / sum);
        w->largest += exp(logits[best]) / sum;
        w->excess[(int)(10 * exp(logits[best]) / sum)] +=
            exp(logits[best]) / sum - (best == batch->target_out[r]);
        w->right += best == batch->target_out[r];
        w->target += exp(logits[batch->target_out[r]]) / sum;
        w->n++;
    }
}

static void test_confidence_equals_softmax(void **state)
{
    (void)state;
    trained t;
    nm_error err;
    nm_confidence c;
    train_with(&t, "layer", "pre", (const char *const[]){"train.updates", "200"});
    words w = {0};
    nm_eval_pass pass = pass_over(&t, NM_SPLIT_VALID, NM_EVAL_PASS_INFER, 0);
    pass.user = &w;
    pass.batch = add_words;
    walk(&pass);
    assert_int_equal(nm_confidence_measure(&c, &t.loaded.task, t.loaded.model, NM_SPLIT_VALID, 0, &err),
                     NM_OK);
    double n = (double)w.n;
    assert_true(c.measured && c.targets == w.n && n > 50);
    assert_true(near(c.confidence, w.largest / n, 1e-5) && near(c.accuracy, w.right / n, 1e-12));
    assert_true(near(c.target_probability, w.target / n, 1e-5) && near(c.entropy, w.entropy / n, 1e-5));
    assert_true(near(c.nll, t.valid_nll, 1e-5) && near(c.smoothed_nll, t.valid_loss, 1e-5));
    assert_true(near(c.smoothed_target, 0.9 + 0.1 / 14, 1e-12)); /* ten words and four special ones */
    /* Some bins are too confident, and others are not confident enough. */
    double error = 0, above = 0, below = 0;
    for (int i = 0; i < 10; i++) {
        error += fabs(w.excess[i]) / n;
        above += fmax(0, w.excess[i]) / n;
        below += fmax(0, -w.excess[i]) / n;
    }
    assert_true(above > 0.01 && below > 0.01);
    assert_true(near(c.calibration_error, error, 1e-5));
    release(&t);
}

static void test_confidence_with_smoothing_over_others(void **state)
{
    (void)state;
    trained t;
    nm_error err;
    nm_confidence c;
    train_with(&t, "layer", "pre", (const char *const[]){"train.smoothing", "others"});
    assert_int_equal(nm_confidence_measure(&c, &t.loaded.task, t.loaded.model, NM_SPLIT_VALID, 0, &err),
                     NM_OK);
    assert_true(near(c.nll, t.valid_nll, 1e-5) && near(c.smoothed_nll, t.valid_loss, 1e-5));
    assert_true(near(c.smoothed_target, 0.9, 1e-12));
    release(&t);
}

/* A validation target whose word is masked has no probability: it is counted separately. */
static void test_confidence_with_masked_targets(void **state)
{
    (void)state;
    trained t;
    nm_error err;
    nm_confidence all, masked;
    train(&t, "layer", "pre");
    nm_model *model = t.loaded.model;
    assert_int_equal(nm_confidence_measure(&all, &t.loaded.task, model, NM_SPLIT_VALID, 0, &err), NM_OK);
    assert_true(all.masked == 0);
    uint8_t allowed[64];
    assert_true(model->target_size <= 64);
    memset(allowed, 1, sizeof allowed);
    allowed[model->target_size - 1] = 0; /* the rarest word of the dictionary */
    assert_int_equal(nm_model_allow(model, allowed, &err), NM_OK);
    assert_int_equal(nm_confidence_measure(&masked, &t.loaded.task, model, NM_SPLIT_VALID, 0, &err), NM_OK);
    assert_true(masked.masked > 0 && masked.targets + masked.masked == all.targets);
    assert_true(isfinite(masked.nll) && isfinite(masked.smoothed_nll) && isfinite(masked.entropy));
    release(&t);
}

static nm_verdict verdict(const nm_advice_inputs *inputs, const char *remedy, const char *number)
{
    nm_advice advice[NM_N_ADVICE];
    nm_advise(inputs, advice);
    for (int i = 0; i < NM_N_ADVICE; i++)
        if (!strcmp(advice[i].remedy, remedy)) {
            if (number && !strstr(advice[i].why, number))
                fail_msg("%s: '%s' lacks %s", remedy, advice[i].why, number);
            return advice[i].verdict;
        }
    fail_msg("no advice about %s", remedy);
    return NM_VERDICT_UNKNOWN;
}

/* A run is not advised to use the warm-up that it has. */
static void test_advice_exceeds_warmup(void **state)
{
    (void)state;
    const double fractions[] = {0.02, 0.1, 0.3};
    for (size_t i = 0; i < sizeof fractions / sizeof *fractions; i++) {
        nm_advice_inputs f = {.early_gradient = 9, .later_gradient = 1, .warmup_fraction = fractions[i]};
        nm_advice advice[NM_N_ADVICE];
        nm_advise(&f, advice);
        int k = 0;
        while (k < NM_N_ADVICE && strcmp(advice[k].remedy, "warm-up"))
            k++;
        assert_true(k < NM_N_ADVICE);
        assert_int_equal(advice[k].verdict, NM_VERDICT_INDICATED);
        assert_string_equal(advice[k].setting, fractions[i] < 0.1
                                                   ? "schedule.warmup_fraction = 0.1"
                                                   : "larger schedule.warmup_fraction or schedule.warmup");
    }
}

static void test_advice_follows_inputs(void **state)
{
    (void)state;
    nm_advice_inputs f = {.uses_batch = true,
                          .centers = true,
                          .tid_site = "enc.5.ffn.norm",
                          .tid_mean = 0.015,
                          .tid_variance = 0.106,
                          .tid_square = 0.03,
                          .loss = 2.5,
                          .batch_loss = 2.49,
                          .early_gradient = 9,
                          .later_gradient = 1,
                          .first_loss = 13,
                          .chance_loss = 9,
                          .last_layer = "enc.5",
                          .first_layer = "enc.0",
                          .last_layer_gradient = 2,
                          .first_layer_gradient = 0.2};
    assert_int_equal(verdict(&f, "RBN penalty", "10.6 %"), NM_VERDICT_INDICATED);
    assert_int_equal(verdict(&f, "PowerNorm", "3.0 %"), NM_VERDICT_INDICATED);
    assert_int_equal(verdict(&f, "warm-up", "9.0 times"), NM_VERDICT_INDICATED);
    assert_int_equal(verdict(&f, "SmallInit", "1.44"), NM_VERDICT_INDICATED);
    assert_int_equal(verdict(&f, "pre-norm", "10.0 times"), NM_VERDICT_INDICATED);
    f.tid_variance = 0.02;
    f.early_gradient = 2;
    f.first_loss = 9.1;
    f.last_layer_gradient = 0.3;
    f.warmup_fraction = 0.1;
    assert_int_equal(verdict(&f, "RBN penalty", "2.0 %"), NM_VERDICT_NOT_NEEDED);
    assert_int_equal(verdict(&f, "PowerNorm", NULL), NM_VERDICT_NOT_NEEDED);
    assert_int_equal(verdict(&f, "warm-up", "10.0 %"), NM_VERDICT_ENABLED);
    assert_int_equal(verdict(&f, "SmallInit", NULL), NM_VERDICT_NOT_NEEDED);
    assert_int_equal(verdict(&f, "pre-norm", NULL), NM_VERDICT_NOT_NEEDED);
    f.batch_loss = 2.4; /* running statistics cost loss although TID is small */
    f.has_penalty = f.pre_norm = f.small_init = true;
    assert_int_equal(verdict(&f, "RBN penalty", "0.100 nats"), NM_VERDICT_INDICATED);
    assert_int_equal(verdict(&f, "pre-norm", NULL), NM_VERDICT_ENABLED);
    assert_int_equal(verdict(&f, "SmallInit", NULL), NM_VERDICT_ENABLED);
    f.batch_loss = 2.5;
    assert_int_equal(verdict(&f, "RBN penalty", NULL), NM_VERDICT_ENABLED);
    f.tid_variance = f.early_gradient = NAN;
    f.warmup_fraction = 0;
    assert_int_equal(verdict(&f, "RBN penalty", NULL), NM_VERDICT_UNKNOWN);
    assert_int_equal(verdict(&f, "PowerNorm", NULL), NM_VERDICT_UNKNOWN);
    assert_int_equal(verdict(&f, "warm-up", NULL), NM_VERDICT_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tid_of_norm_inputs),
        cmocka_unit_test(test_tid_after_layer_scaling),
        cmocka_unit_test(test_tid_average_sites),
        cmocka_unit_test(test_advice_exceeds_warmup),
        cmocka_unit_test(test_singular_values_equal_jacobi),
        cmocka_unit_test(test_condition_numbers_of_layer_inputs),
        cmocka_unit_test(test_bounds_and_backward_formulas),
        cmocka_unit_test(test_bounds_do_not_change_gradients),
        cmocka_unit_test(test_confidence_equals_softmax),
        cmocka_unit_test(test_confidence_with_smoothing_over_others),
        cmocka_unit_test(test_confidence_with_masked_targets),
        cmocka_unit_test(test_advice_follows_inputs),
    };
    return cmocka_run_group_tests(tests, make_data, drop_data);
}
