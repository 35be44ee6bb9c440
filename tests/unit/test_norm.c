/* Properties of every registered normalization, and standalone layers: create, train, infer, save, load, errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "near.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/safetensors.h"
#include "norma/norm_type.h"

enum { ROWS = 6, WIDTH = 12, HEADS = 3, N = ROWS * WIDTH };

static nm_backend *ref;
static char path[64];
static double input[N], upstream[N];
static const nm_norm_site place = {
    .name = "test", .width = WIDTH, .groups = HEADS, .plan = {.warmup_updates = 2}};

static int open_all(void **unused)
{
    (void)unused;
    nm_error err;
    snprintf(path, sizeof path, "/tmp/norma-norm-%ld", (long)getpid());
    for (int i = 0; i < N; i++) {
        nm_random_words words = nm_random4(11, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        input[i] = 0.2 + nm_random_normal(words.w[0], words.w[1]);
        upstream[i] = nm_random_normal(words.w[2], words.w[3]);
    }
    return nm_backend_create(&ref, &(nm_backend_options){.name = "ref", .dtype = NM_F64, .threads = 1},
                             &err) != NM_OK;
}

static int close_all(void **unused)
{
    (void)unused;
    unlink(path);
    nm_backend_free(ref);
    return 0;
}

static nm_norm *create(const char *type, const char *settings)
{
    nm_norm *norm;
    nm_error err = {0};
    nm_status status = nm_norm_create(&norm, ref, type, settings, &place, &err);
    if (status != NM_OK)
        print_error("%s\n", err.text);
    assert_int_equal(status, NM_OK);
    return norm;
}

/* Parameters and state that differ from the initial values. */
static nm_norm *create_trained(const nm_norm_type *type)
{
    nm_norm *norm = create(type->name, NULL);
    nm_error err;
    double y[N], dx[N];
    for (int p = 0; p < norm->shape.n_params; p++)
        for (int i = 0; i < norm->shape.params[p].length; i++)
            ((double *)norm->params[p])[i] += 0.1 * (i + 1);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_OK);
    }
    return norm;
}

static void for_each_type(void (*check)(const nm_norm_type *type))
{
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        check(*type);
}

/* Bitwise identical: a single row and the same row of a batch. */
static void check_inference_of_rows(const nm_norm_type *type)
{
    nm_norm *norm = create_trained(type);
    double all[N], one[WIDTH];
    nm_error err;
    assert_int_equal(nm_norm_infer(norm, ROWS, input, all, &err), NM_OK);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(nm_norm_infer(norm, 1, input + i * WIDTH, one, &err), NM_OK);
        assert_memory_equal(one, all + i * WIDTH, sizeof one);
    }
    nm_norm_free(norm);
}

static void test_inference_is_independent_of_other_rows(void **unused)
{
    (void)unused;
    for_each_type(check_inference_of_rows);
}

static void check_training_of_rows(const nm_norm_type *type)
{
    if (type->traits & NM_USES_BATCH)
        return;
    nm_norm *norm = create_trained(type);
    double y[N], dx[N], one_y[WIDTH], one_dx[WIDTH];
    nm_error err;
    assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_OK);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(nm_norm_forward(norm, 1, input + i * WIDTH, one_y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, upstream + i * WIDTH, one_dx, &err), NM_OK);
        assert_memory_equal(one_y, y + i * WIDTH, sizeof one_y);
        assert_memory_equal(one_dx, dx + i * WIDTH, sizeof one_dx);
    }
    nm_norm_free(norm);
}

static void test_per_token_training_is_independent_of_other_rows(void **unused)
{
    (void)unused;
    for_each_type(check_training_of_rows);
}

/* ---- calls as in a model ---- */

typedef struct stage { /* one call with limited memory */
    nm_norm_call call;
    void *blocks[64];
    int n_allocated, budget; /* number of allocations; the limit */
    double y[N], dx[N];
} stage;

static void *alloc_limited(void *allocator, size_t bytes)
{
    stage *s = allocator;
    assert_true(s->n_allocated < 64);
    return s->n_allocated < s->budget ? s->blocks[s->n_allocated++] = nm_allocate(bytes) : NULL;
}

static void start(stage *s, nm_norm *norm, int budget)
{
    *s = (stage){.budget = budget};
    s->call = (nm_norm_call){.backend = ref,
                             .norm = norm,
                             .alloc = alloc_limited,
                             .allocator = s,
                             .x = nm_mat_of(input, ROWS, WIDTH),
                             .y = nm_mat_of(s->y, ROWS, WIDTH),
                             .dy = nm_mat_of(upstream, ROWS, WIDTH),
                             .dx = nm_mat_of(s->dx, ROWS, WIDTH),
                             .n_targets = 1,
                             .grad_scale = 1};
}

static void finish(stage *s)
{
    for (int i = 0; i < s->n_allocated; i++)
        free(s->blocks[i]);
}

/* A new trained norm, with sufficient memory. */
static void open_trained(stage *s, const nm_norm_type *type)
{
    start(s, create_trained(type), 64);
}

static void close_trained(stage *s)
{
    finish(s);
    nm_norm_free(s->call.norm);
}

static void forward_and_backward(stage *s)
{
    s->call.norm->type->train(&s->call);
    s->call.norm->type->backward(&s->call);
    nm_norm_update_state(s->call.norm, ref, s->call.grad_scale);
}

static size_t state_bytes(const nm_norm *norm, int i)
{
    return (size_t)norm->shape.state[i].length * sizeof(double);
}

static void assert_same_state(const nm_norm *a, const nm_norm *b, double tolerance)
{
    for (int i = 0; i < a->shape.n_state; i++)
        for (int k = 0; k < a->shape.state[i].length; k++)
            assert_near(((double *)a->state[i])[k], ((double *)b->state[i])[k], tolerance);
    assert_memory_equal(a->counters, b->counters, sizeof a->counters);
}

static void check_adding_to_a_gradient(const nm_norm_type *type)
{
    stage fresh, added;
    open_trained(&fresh, type);
    open_trained(&added, type);
    added.call.add = true;
    for (int i = 0; i < N; i++)
        added.dx[i] = i;
    forward_and_backward(&fresh);
    forward_and_backward(&added);
    for (int i = 0; i < N; i++)
        assert_near(added.dx[i], fresh.dx[i] + i, 1e-12);
    close_trained(&fresh);
    close_trained(&added);
}

static void test_gradient_is_added(void **unused)
{
    (void)unused;
    for_each_type(check_adding_to_a_gradient);
}

/* The loss scale is a factor of gradients only. */
static void check_loss_scale(const nm_norm_type *type)
{
    stage plain, scaled;
    double up[N];
    open_trained(&plain, type);
    open_trained(&scaled, type);
    nm_norm *one = plain.call.norm, *other = scaled.call.norm;
    for (int i = 0; i < N; i++)
        up[i] = 8 * upstream[i];
    scaled.call.grad_scale = 8;
    scaled.call.dy = nm_mat_of(up, ROWS, WIDTH);
    nm_norm_zero_grads(one);
    nm_norm_zero_grads(other);
    forward_and_backward(&plain);
    forward_and_backward(&scaled);
    for (int i = 0; i < N; i++)
        assert_near(scaled.dx[i], 8 * plain.dx[i], 1e-12);
    for (int p = 0; p < one->shape.n_params; p++)
        for (int i = 0; one->param_grads[p] && i < one->shape.params[p].length; i++)
            assert_near(((double *)other->param_grads[p])[i], 8 * ((double *)one->param_grads[p])[i], 1e-10);
    assert_same_state(one, other, 1e-14);
    close_trained(&plain);
    close_trained(&scaled);
}

static void test_loss_scale(void **unused)
{
    (void)unused;
    for_each_type(check_loss_scale);
}

/* ---- running state of several micro-batches ---- */

/* One update of rows first .. first + n - 1 of the input as a micro-batch: forward and backward, no update of the state. */
static void micro_batch(stage *s, nm_norm *norm, int first, int n)
{
    start(s, norm, 64);
    s->call.x = nm_mat_of(input + first * WIDTH, n, WIDTH);
    s->call.dy = nm_mat_of(upstream + first * WIDTH, n, WIDTH);
    s->call.y.rows = s->call.dx.rows = n;
    norm->type->train(&s->call);
    norm->type->backward(&s->call);
    finish(s);
}

/* The state after two updates of 1, 3 and 2 rows is that after two updates of all six rows, and both count two updates. */
static void check_state_of_joined_batch(const char *type, const char *settings)
{
    nm_norm *joined = create(type, settings), *split = create(type, settings);
    stage s;
    for (int update = 0; update < 2; update++) {
        micro_batch(&s, joined, 0, ROWS);
        micro_batch(&s, split, 0, 1);
        micro_batch(&s, split, 1, 3);
        micro_batch(&s, split, 4, 2);
        nm_norm_update_state(joined, ref, 1);
        nm_norm_update_state(split, ref, 1);
        assert_same_state(split, joined, 1e-13);
    }
    nm_norm_free(joined);
    nm_norm_free(split);
}

static void test_state_of_several_micro_batches(void **unused)
{
    (void)unused;
    check_state_of_joined_batch("batch", NULL);
    check_state_of_joined_batch("batch", "preset=pn");
    check_state_of_joined_batch("batch", "preset=rbn");
    check_state_of_joined_batch("pnv", NULL);
    check_state_of_joined_batch("rbn", "unbiased_running=true");
    check_state_of_joined_batch("renorm", NULL);
    check_state_of_joined_batch("renorm", "eps_mode=added epsilon=1e-3");
    /* without warm-up the rows of all micro-batches are divided by the same running value */
    check_state_of_joined_batch("power", "warmup=0");
    check_state_of_joined_batch("power", "warmup=0 scaling=none clip=0.3");
}

/* MABN's backward statistic depends on each micro-batch's own mean square, its forward statistics do not. */
static void test_forward_state_of_mabn(void **unused)
{
    (void)unused;
    nm_norm *joined = create("mabn", "window=2"), *split = create("mabn", "window=2");
    stage s;
    for (int update = 0; update < 4; update++) {
        micro_batch(&s, joined, 0, ROWS - update);
        micro_batch(&s, split, 0, 1);
        micro_batch(&s, split, 1, ROWS - update - 1);
        nm_norm_update_state(joined, ref, 1);
        nm_norm_update_state(split, ref, 1);
        for (int i = 0; i < WIDTH; i++)
            assert_near(((double *)split->state[0])[i], ((double *)joined->state[0])[i], 1e-13);
        for (int i = 0; i < 2 * WIDTH; i++)
            assert_near(((double *)split->state[1])[i], ((double *)joined->state[1])[i], 1e-13);
        assert_int_equal(split->counters[0], update + 1);
    }
    nm_norm_free(joined);
    nm_norm_free(split);
}

/* All micro-batches of an update read the state as it was at its beginning: their order does not change their outputs. */
static void check_micro_batches_read_the_same_state(const nm_norm_type *type)
{
    nm_norm *norm = create_trained(type);
    stage first, second;
    micro_batch(&first, norm, 2, 3);
    micro_batch(&second, norm, 0, 2);
    micro_batch(&second, norm, 2, 3);
    assert_memory_equal(first.y, second.y, sizeof first.y);
    assert_memory_equal(first.dx, second.dx, sizeof first.dx);
    nm_norm_free(norm);
}

/* Output of update 12 of a planned number of updates, row 0. */
static void renorm_output(int64_t planned, const char *settings, double *y)
{
    nm_norm *norm;
    nm_error err;
    nm_norm_site short_run = place;
    double all[N];
    short_run.plan.updates = planned;
    assert_int_equal(nm_norm_create(&norm, ref, "renorm", settings, &short_run, &err), NM_OK);
    for (int update = 0; update < 12; update++)
        assert_int_equal(nm_norm_forward(norm, ROWS, input, all, &err), NM_OK);
    memcpy(y, all, WIDTH * sizeof *y);
    nm_norm_free(norm);
}

/* Halfway through a run the limits are the final ones; without the shorter ramp it is still BatchNorm. */
static void test_renorm_ramp_of_a_short_run(void **unused)
{
    (void)unused;
    double short_run[WIDTH], final_limits[WIDTH], long_run[WIDTH], batch_norm[WIDTH];
    renorm_output(22, NULL, short_run);
    renorm_output(0, "ramp_start=0 r_ramp_end=0 d_ramp_end=0", final_limits);
    renorm_output(22, "shorten_ramp=false", long_run);
    renorm_output(0, "r_max=1 d_max=0", batch_norm);
    assert_memory_equal(short_run, final_limits, sizeof short_run);
    assert_memory_equal(long_run, batch_norm, sizeof long_run);
    assert_memory_not_equal(short_run, long_run, sizeof short_run);
}

static void test_micro_batches_read_the_same_state(void **unused)
{
    (void)unused;
    for_each_type(check_micro_batches_read_the_same_state);
}

static void check_memory_failure(const nm_norm_type *type)
{
    stage s;
    open_trained(&s, type);
    type->train(&s.call);
    int needed = s.n_allocated;
    close_trained(&s);
    nm_norm *norm = create_trained(type), *untouched = create_trained(type);
    for (int budget = 0; budget < needed; budget++) {
        start(&s, norm, budget);
        type->train(&s.call);
        nm_norm_update_state(norm, ref, 1);
        assert_same_state(norm, untouched, 0);
        finish(&s);
    }
    nm_norm_free(norm);
    nm_norm_free(untouched);
}

static void test_memory_failure_leaves_the_state(void **unused)
{
    (void)unused;
    for_each_type(check_memory_failure);
}

static void check_dry_run(const nm_norm_type *type)
{
    nm_norm *untouched = create_trained(type);
    stage s;
    open_trained(&s, type);
    s.call.x.data = s.call.y.data = s.call.dy.data = s.call.dx.data = NULL;
    nm_backend_dry_run(ref, true);
    type->train(&s.call);
    s.call.dx.data = s.dx;
    type->backward(&s.call);
    nm_backend_dry_run(ref, false);
    for (int i = 0; i < untouched->shape.n_state; i++)
        assert_memory_equal(s.call.norm->state[i], untouched->state[i], state_bytes(untouched, i));
    close_trained(&s);
    nm_norm_free(untouched);
}

static void test_dry_run_leaves_the_state(void **unused)
{
    (void)unused;
    for_each_type(check_dry_run);
}

static void test_published_statistics(void **unused)
{
    (void)unused;
    stage s;
    start(&s, create("batch", NULL), 64);
    s.call.norm->type->train(&s.call);
    s.call.norm->type->backward(&s.call);
    const double *mean = NULL, *sum = NULL, *before = NULL;
    for (int i = 0; i < s.call.n_published; i++) {
        const nm_norm_published *stat = &s.call.published[i];
        mean = strcmp(stat->name, "batch_mean") ? mean : stat->data;
        sum = strcmp(stat->name, "grad_sum") ? sum : stat->data;
        before = strcmp(stat->name, "running_mean") ? before : stat->data;
    }
    assert_non_null(mean);
    assert_non_null(sum);
    assert_non_null(before);
    double want_mean = 0, want_sum = 0;
    for (int i = 0; i < ROWS; i++) {
        want_mean += input[i * WIDTH + 5] / ROWS;
        want_sum += upstream[i * WIDTH + 5];
    }
    assert_near(mean[5], want_mean, 1e-14);
    assert_near(sum[5], want_sum, 1e-13);
    assert_near(before[5], 0, 0);
    close_trained(&s);
}

/* ---- files ---- */

static void check_save_and_load(const nm_norm_type *type)
{
    nm_norm *saved = create_trained(type), *loaded = create(type->name, NULL);
    nm_error err = {0};
    double a[N], b[N];
    assert_int_equal(nm_norm_save(saved, path, &err), NM_OK);
    assert_int_equal(nm_norm_load(loaded, path, &err), NM_OK);
    for (int step = 0; step < 3; step++) { /* bitwise identical further training */
        assert_int_equal(nm_norm_forward(saved, ROWS, input, a, &err), NM_OK);
        assert_int_equal(nm_norm_forward(loaded, ROWS, input, b, &err), NM_OK);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(nm_norm_backward(saved, upstream, a, &err), NM_OK);
        assert_int_equal(nm_norm_backward(loaded, upstream, b, &err), NM_OK);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_same_state(saved, loaded, 0);
    nm_norm_free(saved);
    nm_norm_free(loaded);
}

static void test_save_and_load(void **unused)
{
    (void)unused;
    for_each_type(check_save_and_load);
}

static void load_fails(nm_norm *norm, nm_status expected, const char *word)
{
    nm_error err = {0};
    assert_int_equal(nm_norm_load(norm, path, &err), expected);
    if (!strstr(err.text, word) || !strstr(err.text, path))
        print_error("%s\n", err.text);
    assert_non_null(strstr(err.text, word));
}

static void test_files_that_do_not_fit(void **unused)
{
    (void)unused;
    nm_norm *power = create("power", NULL), *layer = create("layer", NULL),
            *short_window = create("mabn", "window=3");
    nm_norm *long_window = create("mabn", "window=4"), *wide = NULL;
    nm_norm_site other = place;
    nm_error err;
    other.width = 2 * WIDTH;
    assert_int_equal(nm_norm_create(&wide, ref, "power", NULL, &other, &err), NM_OK);
    assert_int_equal(nm_norm_save(power, path, &err), NM_OK);
    load_fails(layer, NM_MISMATCH, "type 'power'");
    load_fails(wide, NM_MISMATCH, "12 features");
    assert_int_equal(nm_norm_save(short_window, path, &err), NM_OK);
    load_fails(long_window, NM_MISMATCH, "buffer_x2");
    *nm_norm_counter(power, "iters") = -3;
    assert_int_equal(nm_norm_save(power, path, &err), NM_OK);
    *nm_norm_counter(power, "iters") = 5;
    load_fails(power, NM_FORMAT, "negative");
    assert_true(*nm_norm_counter(power, "iters") == 5);
    assert_int_equal(nm_safetensors_finish(nm_safetensors_begin(), path, &err), NM_OK);
    load_fails(layer, NM_MISMATCH, "single normalization layer");
    assert_int_equal(nm_file_write(path, "abc", 3, &err), NM_OK);
    load_fails(layer, NM_FORMAT, "malformed");
    nm_norm_free(power);
    nm_norm_free(layer);
    nm_norm_free(short_window);
    nm_norm_free(long_window);
    nm_norm_free(wide);
}

/* ---- errors ---- */

static void create_fails(const char *type, const char *settings, const nm_norm_site *at, const char *word)
{
    nm_norm *norm;
    nm_error err = {0};
    assert_int_equal(nm_norm_create(&norm, ref, type, settings, at, &err), NM_USAGE);
    assert_null(norm);
    if (!strstr(err.text, word))
        print_error("expected '%s' in '%s'\n", word, err.text);
    assert_non_null(strstr(err.text, word));
}

static void test_usage_errors(void **unused)
{
    (void)unused;
    nm_norm_site odd = place, empty = place;
    odd.groups = 5;
    empty.width = 0;
    create_fails("layers", NULL, &place, "unknown norm 'layers'");
    create_fails("layer", "epsilom=1", &place, "norm.layer.epsilon");
    create_fails("layer", "epsilon=x", &place, "epsilon");
    create_fails("layer", "epsilon", &place, "key=value");
    create_fails("power", "warmup=soon", &place, "warmup");
    create_fails("power", "warmup=-1", &place, "warmup");
    create_fails("mabn", "warmup=1e3", &place, "warmup");
    create_fails("power", NULL, &odd, "divide");
    create_fails("pnv", NULL, &odd, "divide");
    create_fails("group", NULL, &odd, "divide");
    create_fails("rms", "groups=5", &place, "divide");
    create_fails("layer", NULL, &empty, "0 features");
    nm_norm *norm = create("layer", "  epsilon=1e-6  unbiased=true ");
    nm_error err;
    double y[N];
    assert_int_equal(nm_norm_backward(norm, upstream, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_forward(norm, 0, input, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_forward(norm, INT32_MAX, input, y, &err), NM_USAGE);
    assert_int_equal(nm_norm_infer(norm, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(norm, upstream, y, &err), NM_USAGE);
    assert_null(nm_norm_param(norm, "scale", NULL));
    assert_null(nm_norm_state(norm, "running_mean", NULL));
    assert_null(nm_norm_counter(norm, "iters"));
    nm_norm_free(norm);
    nm_norm_free(NULL);
}

static void test_fixed_scale(void **unused)
{
    (void)unused;
    nm_norm *inner = create("scale", "trainable=false"), *last = NULL;
    nm_norm_site final = place;
    nm_error err;
    int32_t length = 0;
    final.kind = NM_SITE_BEFORE_OUTPUT;
    assert_int_equal(nm_norm_create(&last, ref, "scale", "trainable=false", &final, &err), NM_OK);
    assert_near(*(double *)nm_norm_param(inner, "scale", &length), sqrt(WIDTH), 1e-15);
    assert_int_equal(length, 1);
    assert_null(nm_norm_param_grad(inner, "scale", NULL));
    assert_non_null(nm_norm_param_grad(last, "scale", NULL));
    nm_norm_free(inner);
    nm_norm_free(last);
}

/* The linear layer with centered weights after the norm gives W_c y = W y_c, y_c the output with center_weights. */
static void test_centered_weights_of_mabn(void **unused)
{
    (void)unused;
    nm_norm *plain = create("mabn", NULL), *centered = create("mabn", "center_weights=true");
    double y[N], y_c[N];
    nm_error err;
    for (int pass = 0; pass < 2; pass++) {
        nm_status (*run)(nm_norm *, int32_t, const void *, void *, nm_error *) =
            pass ? nm_norm_infer : nm_norm_forward;
        assert_int_equal(run(plain, ROWS, input, y, &err), NM_OK);
        assert_int_equal(run(centered, ROWS, input, y_c, &err), NM_OK);
        for (int r = 0; r < ROWS; r++) {
            const double *w = upstream; /* one output unit of a linear layer */
            double mean_w = 0, expected = 0, actual = 0;
            for (int i = 0; i < WIDTH; i++)
                mean_w += w[i] / WIDTH;
            for (int i = 0; i < WIDTH; i++) {
                expected += (w[i] - mean_w) * y[r * WIDTH + i];
                actual += w[i] * y_c[r * WIDTH + i];
            }
            assert_near(actual, expected, 1e-13);
        }
    }
    nm_norm_free(plain);
    nm_norm_free(centered);
}

static void test_presets_of_batch(void **unused)
{
    (void)unused;
    double y[N], var[2];
    const char *const settings[] = {"preset=paper", "preset=paper unbiased_running=true"};
    nm_error err;
    for (int i = 0; i < 2; i++) {
        nm_norm *norm = create("batch", settings[i]);
        assert_int_equal(nm_norm_forward(norm, ROWS, input, y, &err), NM_OK);
        var[i] = ((double *)nm_norm_state(norm, "running_var", NULL))[0] - 0.9;
        nm_norm_free(norm);
    }
    assert_near(var[1], var[0] * ROWS / (ROWS - 1), 1e-12);
}

/* Two pending passes: the results are those of consecutive passes, and x may be moved in between. Types whose backward pass
 * reads running statistics depend on the order of the backward passes by definition. */
static void check_pending_passes(const nm_norm_type *type)
{
    nm_norm *apart = create_trained(type), *norm = create_trained(type);
    nm_norm_pass *first = nm_norm_pass_create(norm), *second = nm_norm_pass_create(norm);
    double y[N], dx[N], y_first[N], y_second[N], dx_first[N], moved[N];
    nm_error err;
    assert_int_equal(nm_norm_pass_forward(first, ROWS, input, y_first, &err), NM_OK);
    assert_int_equal(nm_norm_pass_forward(second, ROWS / 2, upstream, y_second, &err), NM_OK);
    memcpy(moved, input, sizeof moved);
    assert_int_equal(nm_norm_pass_backward(first, moved, upstream, 1, dx_first, &err), NM_OK);

    assert_int_equal(nm_norm_forward(apart, ROWS, input, y, &err), NM_OK);
    assert_memory_equal(y, y_first, sizeof y);
    assert_near(nm_norm_pass_penalty(first), nm_norm_penalty(apart), 0);
    assert_int_equal(nm_norm_backward(apart, upstream, dx, &err), NM_OK);
    if (!(type->traits & NM_APPROX_GRAD))
        assert_memory_equal(dx, dx_first, sizeof dx);
    assert_int_equal(nm_norm_forward(apart, ROWS / 2, upstream, y, &err), NM_OK);
    assert_memory_equal(y, y_second, sizeof y / 2);
    if (!(type->traits & NM_APPROX_GRAD))
        assert_same_state(norm, apart, 0);
    if (!(type->traits & NM_APPROX_GRAD)) { /* a second backward pass */
        assert_int_equal(nm_norm_pass_backward(first, moved, upstream, 1, dx, &err), NM_OK);
        assert_memory_equal(dx, dx_first, sizeof dx);
    }
    assert_int_equal(nm_norm_backward(norm, upstream, dx, &err), NM_USAGE);
    nm_norm_pass_free(second); /* without a backward pass */
    nm_norm_pass_free(first);
    nm_norm_free(norm);
    nm_norm_free(apart);
}

static void test_pending_passes(void **unused)
{
    (void)unused;
    for_each_type(check_pending_passes);
    nm_norm_pass_free(NULL);
}

/* After nm_norm_pass_infer, dx and the gradients of the parameters are those of sum(upstream y) by finite differences. */
static void check_gradient_at_inference(const nm_norm_type *type)
{
    nm_norm *norm = create_trained(type), *untouched = create_trained(type);
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    const double step = 1e-5;
    double x[N], y[N], dx[N];
    nm_error err;
    memcpy(x, input, sizeof x);
    nm_norm_zero_grads(norm);
    assert_int_equal(nm_norm_pass_infer(pass, ROWS, x, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(pass, x, upstream, 1, dx, &err), NM_OK);
    assert_same_state(norm, untouched, 0);
    for (int p = -1; p < norm->shape.n_params; p++) {
        double *values = p < 0 ? x : norm->params[p], *grad = p < 0 ? dx : norm->param_grads[p];
        for (int i = 0; grad && i < (p < 0 ? N : norm->shape.params[p].length); i++) {
            double saved = values[i], sums[2] = {0, 0};
            for (int side = 0; side < 2; side++) {
                values[i] = saved + (side ? step : -step);
                assert_int_equal(nm_norm_infer(norm, ROWS, x, y, &err), NM_OK);
                for (int k = 0; k < N; k++)
                    sums[side] += upstream[k] * y[k];
            }
            values[i] = saved;
            assert_near(grad[i], (sums[1] - sums[0]) / (2 * step), 1e-7);
        }
    }
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
    nm_norm_free(untouched);
}

static void test_gradient_at_inference(void **unused)
{
    (void)unused;
    for_each_type(check_gradient_at_inference);
    nm_norm *norm = create("mabn", "center_weights=true");
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    double y[N];
    nm_error err;
    assert_int_equal(nm_norm_pass_infer(pass, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_pass_backward(pass, input, upstream, 1, y, &err), NM_UNSUPPORTED);
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
}

/* dx is linear in the gradient of the penalty. */
static void test_gradient_of_the_penalty(void **unused)
{
    (void)unused;
    nm_norm *norm = create("rbn", "lambda=3 nu=2"), *batch = create("batch", "preset=rbn");
    nm_norm_pass *pass = nm_norm_pass_create(norm);
    double y[N], dx[3][N], plain[N], largest = 0;
    nm_error err;
    for (int factor = 0; factor < 3; factor++) {
        assert_int_equal(nm_norm_pass_forward(pass, ROWS, input, y, &err), NM_OK);
        assert_int_equal(nm_norm_pass_backward(pass, input, upstream, factor, dx[factor], &err), NM_OK);
        memcpy(nm_norm_state(norm, "running_mean", NULL), nm_norm_state(batch, "running_mean", NULL),
               WIDTH * sizeof(double));
        memcpy(nm_norm_state(norm, "running_var", NULL), nm_norm_state(batch, "running_var", NULL),
               WIDTH * sizeof(double));
    }
    assert_int_equal(nm_norm_forward(batch, ROWS, input, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(batch, upstream, plain, &err), NM_OK);
    for (int i = 0; i < N; i++) {
        assert_near(dx[0][i], plain[i], 1e-13);
        assert_near(dx[2][i] - dx[1][i], dx[1][i] - dx[0][i], 1e-13);
        largest = fmax(largest, fabs(dx[1][i] - dx[0][i]));
    }
    assert_true(largest > 1e-3);
    nm_norm_pass_free(pass);
    nm_norm_free(norm);
    nm_norm_free(batch);
}

/* With norm.rbn.scale = mean the penalty is added to the mean loss: its value, and its gradient in that of the sum over the
 * targets, are multiplied by their number. */
static void test_penalty_of_a_mean_loss(void **unused)
{
    (void)unused;
    enum { TARGETS = 5 };
    static const char *const settings[] = {"scale=mean lambda=3 nu=2", "lambda=0 nu=0",
                                           "scale=mean lambda=3 nu=2"};
    double dx[3][N], penalty[3];
    for (int k = 0; k < 3; k++) {
        stage s;
        start(&s, create("rbn", settings[k]), 64);
        s.call.n_targets = k ? TARGETS : 1;
        forward_and_backward(&s);
        memcpy(dx[k], s.dx, sizeof dx[k]);
        memcpy(&penalty[k], s.call.penalty, sizeof penalty[k]);
        close_trained(&s);
    }
    assert_true(penalty[0] > 1e-3 && penalty[1] == 0);
    assert_near(penalty[2], TARGETS * penalty[0], 1e-12);
    for (int i = 0; i < N; i++)
        assert_near(dx[2][i] - dx[1][i], TARGETS * (dx[0][i] - dx[1][i]), 1e-12);
}

static void test_names_of_vectors(void **unused)
{
    (void)unused;
    nm_norm *norm = create("power", NULL);
    assert_string_equal(nm_norm_param_name(norm, 1), "bias");
    assert_null(nm_norm_param_name(norm, 2));
    assert_string_equal(nm_norm_state_name(norm, 0), "running_phi");
    assert_string_equal(nm_norm_state_name(norm, 1), "ema_gz");
    assert_null(nm_norm_state_name(norm, 2));
    assert_string_equal(nm_norm_counter_name(norm, 0), "iters");
    assert_null(nm_norm_counter_name(norm, 1));
    assert_null(nm_norm_param_name(norm, -1));
    nm_norm_free(norm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inference_is_independent_of_other_rows),
        cmocka_unit_test(test_per_token_training_is_independent_of_other_rows),
        cmocka_unit_test(test_gradient_is_added),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_state_of_several_micro_batches),
        cmocka_unit_test(test_forward_state_of_mabn),
        cmocka_unit_test(test_micro_batches_read_the_same_state),
        cmocka_unit_test(test_renorm_ramp_of_a_short_run),
        cmocka_unit_test(test_memory_failure_leaves_the_state),
        cmocka_unit_test(test_dry_run_leaves_the_state),
        cmocka_unit_test(test_published_statistics),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_files_that_do_not_fit),
        cmocka_unit_test(test_usage_errors),
        cmocka_unit_test(test_fixed_scale),
        cmocka_unit_test(test_presets_of_batch),
        cmocka_unit_test(test_centered_weights_of_mabn),
        cmocka_unit_test(test_pending_passes),
        cmocka_unit_test(test_gradient_at_inference),
        cmocka_unit_test(test_gradient_of_the_penalty),
        cmocka_unit_test(test_penalty_of_a_mean_loss),
        cmocka_unit_test(test_names_of_vectors),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
