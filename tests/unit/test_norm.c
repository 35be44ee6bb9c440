/* Properties of every registered normalization in training and inference: rows, gradients, running state. */
#include "norm_fixture.h"

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

/* One update of rows first .. first + n - 1 of the input as a micro-batch: forward and backward, no update of
 * the state. */
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

/* The state after two updates of 1, 3 and 2 rows is that after two updates of all six rows, and both count
 * two updates. */
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
    check_state_of_joined_batch("repbn", NULL);
    check_state_of_joined_batch("progressive", NULL);
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

/* All micro-batches of an update read the state as it was at its beginning: their order does not change their
 * outputs. */
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

/* With norm.rbn.scale = mean the penalty is added to the mean loss: its value, and its gradient in that of
 * the sum over the targets, are multiplied by their number. */
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
        cmocka_unit_test(test_penalty_of_a_mean_loss),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
