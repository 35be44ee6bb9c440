/* norm.statistics = update: norms of several shards on several processes (here threads) equal one norm on the
 * joined batch, and their gradients are those of finite differences, with shards of unequal length and one of
 * a single row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "near.h"
#include "thread_comm.h"
#include "base/random.h"
#include "train/lockstep.h"

enum { WIDTH = 6, N_SHARDS = 5, ROWS = 17, N = ROWS * WIDTH, N_UPDATES = 5, N_BLOCKS = 64, N_GRADS = 96 };

static const int first_row[N_SHARDS + 1] = {0, 3, 4, 11, 13, 17}; /* shard 1 has one row */
static double input[N_UPDATES][N], upstream[N_UPDATES][N];

/* One process with one norm. */
typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_params params;
    nm_norm *norm;
} rig;

/* One pass: the norm on the rows of a shard, or on all. */
typedef struct stage {
    nm_norm_call call;
    void *blocks[N_BLOCKS];
    int n_blocks;
} stage;

typedef struct results { /* of one update */
    double y[N], dx[N], grads[N_GRADS], penalty, state[256];
    int64_t counter;
} results;

typedef struct setting {
    const char *type, *options; /* "key=value key=value" */
} setting;

static void *alloc_block(void *allocator, size_t bytes)
{
    stage *s = allocator;
    assert_true(s->n_blocks < N_BLOCKS);
    return s->blocks[s->n_blocks++] = nm_allocate(bytes);
}

static void rig_open(rig *r, const setting *norm)
{
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F64, .threads = 1};
    const nm_norm_site site = {.name = "a", .width = WIDTH, .groups = 2, .plan = {.warmup_updates = 2}};
    nm_error err = {0};
    char text[256];
    *r = (rig){.options = nm_options_create()};
    nm_norm_options_add(r->options);
    snprintf(text, sizeof text, "%s", norm->options);
    for (char *rest = text, *one; (one = strsep(&rest, " ")) != NULL;) {
        char path[128], *equal = strchr(one, '=');
        if (!equal)
            continue;
        snprintf(path, sizeof path, "norm.%s.%.*s", norm->type, (int)(equal - one), one);
        assert_int_equal(nm_options_set(r->options, path, equal + 1, NM_ORIGIN_COMMAND, &err), NM_OK);
    }
    assert_int_equal(nm_backend_create(&r->backend, &device, &err), NM_OK);
    nm_params_init(&r->params, r->backend);
    assert_int_equal(nm_params_add_norm(&r->params, norm->type, r->options, &site, &r->norm, &err), NM_OK);
    assert_int_equal(nm_params_allocate(&r->params, true, &err), NM_OK);
    nm_params_initialize(&r->params, 1);
    for (int p = 0; p < r->norm->shape.n_params; p++)
        for (int i = 0; i < r->norm->shape.params[p].length; i++)
            ((double *)r->norm->params[p])[i] += 0.1 * (i + 1);
}

static void rig_close(rig *r)
{
    nm_params_release(&r->params);
    nm_backend_free(r->backend);
    nm_options_free(r->options);
}

/* Forward and backward on rows first .. last - 1 of an update. Returns the penalty. */
static double pass(rig *r, int update, int first, int last, nm_norm_joiner *joiner, results *out)
{
    stage s = {0};
    s.call = (nm_norm_call){.backend = r->backend,
                            .norm = r->norm,
                            .alloc = alloc_block,
                            .allocator = &s,
                            .joiner = joiner,
                            .x = nm_mat_of(input[update] + first * WIDTH, last - first, WIDTH),
                            .y = nm_mat_of(out->y + first * WIDTH, last - first, WIDTH),
                            .dy = nm_mat_of(upstream[update] + first * WIDTH, last - first, WIDTH),
                            .dx = nm_mat_of(out->dx + first * WIDTH, last - first, WIDTH),
                            .n_targets = 3 * (last - first),
                            .mean_loss = true,
                            .grad_scale = 1};
    r->norm->type->train(&s.call);
    double penalty = s.call.penalty ? *s.call.penalty : 0;
    r->norm->type->backward(&s.call);
    for (int i = 0; i < s.n_blocks; i++)
        free(s.blocks[i]);
    return penalty;
}

static void read_state(const rig *r, results *out)
{
    assert_true(r->params.n_elements <= N_GRADS && r->params.n_state <= 256);
    memcpy(out->grads, r->params.grads, r->params.n_elements * sizeof(double));
    if (r->params.n_state)
        memcpy(out->state, r->params.state, r->params.n_state * sizeof(double));
    out->counter = r->norm->counters[0];
}

static void compute_joined(const setting *norm, int n_updates, results *out)
{
    rig r;
    rig_open(&r, norm);
    for (int update = 0; update < n_updates; update++) {
        nm_backend_zero(r.backend, r.params.grads, nm_params_bytes(&r.params));
        out[update].penalty = pass(&r, update, 0, ROWS, NULL, &out[update]);
        nm_params_update_norms(&r.params, 1);
        read_state(&r, &out[update]);
    }
    rig_close(&r);
}

typedef struct job { /* of one rank */
    thread_comm comm;
    const setting *norm;
    int n_updates, update;
    rig rig;
    double penalties[N_SHARDS]; /* of its passes */
    results *out;
} job;

static void run_shard(void *user, int32_t i, nm_norm_joiner *joiner)
{
    job *j = user;
    int64_t shard = nm_shard_range_of(N_SHARDS, &j->comm.base).first + i;
    j->penalties[i] =
        pass(&j->rig, j->update, first_row[shard], first_row[shard + 1], joiner, &j->out[j->update]);
}

static void *run_rank(void *argument)
{
    job *j = argument;
    nm_comm *comm = &j->comm.base;
    rig *r = &j->rig;
    nm_shard_tree tree;
    nm_lockstep *lockstep;
    nm_error err;
    rig_open(r, j->norm);
    assert_int_equal(nm_shard_tree_init(&tree, &r->params, N_SHARDS, comm, false, &err), NM_OK);
    assert_int_equal(nm_lockstep_create(&lockstep, &tree, &err), NM_OK);
    nm_shard_range own = nm_shard_range_of(N_SHARDS, comm);
    for (int update = 0; update < j->n_updates; update++) {
        j->update = update;
        assert_int_equal(nm_lockstep_run(lockstep, run_shard, j, &err), NM_OK);
        nm_shard_tree_start(&tree);
        for (int64_t shard = own.first; shard < own.last; shard++) {
            const nm_shard_sums sums = {.penalty = j->penalties[shard - own.first]};
            nm_shard_tree_begin(&tree);
            nm_lockstep_load(lockstep, (int32_t)(shard - own.first));
            nm_shard_tree_end(&tree, shard, &sums);
        }
        assert_int_equal(nm_shard_tree_complete(&tree, &err), NM_OK);
        nm_params_update_norms(&r->params, 1);
        if (!comm->rank) {
            read_state(r, &j->out[update]);
            j->out[update].penalty = tree.current.sums.penalty;
        }
    }
    nm_lockstep_free(lockstep);
    nm_shard_tree_release(&tree);
    rig_close(r);
    return NULL;
}

/* Returns the bytes that rank 0 sent. */
static int64_t compute_sharded(const setting *norm, int32_t size, int n_updates, results *out)
{
    hub *h = hub_create();
    static job jobs[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    for (int32_t rank = 0; rank < size; rank++) {
        jobs[rank] = (job){.comm = {.base = {.type = &threads_type, .rank = rank, .size = size}, .hub = h},
                           .norm = norm,
                           .n_updates = n_updates,
                           .out = out};
        assert_int_equal(pthread_create(&threads[rank], NULL, run_rank, &jobs[rank]), 0);
    }
    for (int32_t rank = 0; rank < size; rank++)
        pthread_join(threads[rank], NULL);
    free(h);
    return jobs[0].comm.base.sent_bytes;
}

static const setting settings[] = {
    {"batch", ""},
    {"batch", "preset=pn"},
    {"batch", "preset=rbn"},
    {"pnv", ""},
    {"pnv", "preset=rbn"},
    {"rbn", "lambda=0.3 nu=0.2"},
    {"rbn", "lambda=0.3 nu=0.2 penalty=diff2 reference=before unbiased_running=true"},
    {"rbn", "lambda=0.3 nu=0.2 penalty=reldiff scale=sum clamp=false"},
    {"renorm", "ramp_start=1 r_ramp_end=2 d_ramp_end=2 shorten_ramp=false"},
    {"renorm", "ramp_start=1 r_ramp_end=2 d_ramp_end=2 shorten_ramp=false eps_mode=added epsilon=1e-3"},
    {"mabn", "window=2 warmup=1 r_hold=2"},
    {"mabn", "window=2 warmup=1 r_hold=2 scaling=group center_weights=true"},
    {"power", ""}, /* a warm-up of 2 updates */
    {"power", "warmup=0"},
    {"power", "preset=paper"},
    {"power", "warmup=3 backward_divisor=running clip=0.3"},
    {"repbn", ""},
    {"progressive", "warmup=1 lambda_steps=3"},
    {"progressive", "lambda_steps=8 token_norm=rms"},
    {"un", "warmup=1 window_forward=2 window_backward=3 r_hold=2"},
    {"un", "warmup=0 window_forward=1"},
    {"un", "warmup=1 window_forward=2 window_backward=2 r_hold=2 outlier_filtration=true"},
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void test_equals_the_joined_batch(void **unused)
{
    (void)unused;
    static results joined[N_UPDATES], sharded[N_UPDATES], first[N_UPDATES];
    for (size_t k = 0; k < N_SETTINGS; k++) {
        memset(joined, 0, sizeof joined);
        compute_joined(&settings[k], N_UPDATES, joined);
        for (int32_t size = 1; size <= N_SHARDS; size++) {
            memset(sharded, 0, sizeof sharded);
            compute_sharded(&settings[k], size, N_UPDATES, sharded);
            for (int u = 0; u < N_UPDATES; u++) {
                const results *a = &sharded[u], *b = &joined[u];
                for (int i = 0; i < N; i++) {
                    assert_near(a->y[i], b->y[i], 1e-12);
                    assert_near(a->dx[i], b->dx[i], 1e-12);
                }
                for (int i = 0; i < N_GRADS; i++)
                    assert_near(a->grads[i], b->grads[i], 1e-12);
                for (int i = 0; i < 256; i++)
                    assert_near(a->state[i], b->state[i], 1e-12);
                assert_near(a->penalty, b->penalty, 1e-12);
                assert_true(a->counter == b->counter);
            }
            if (size == 1)
                memcpy(first, sharded, sizeof first);
            assert_memory_equal(sharded, first, sizeof first); /* bitwise, for any number of processes */
        }
    }
}

static double loss_of(const setting *norm, int32_t size)
{
    static results out[1];
    compute_sharded(norm, size, 1, out);
    double sum = out->penalty;
    for (int i = 0; i < N; i++)
        sum += upstream[0][i] * out->y[i];
    return sum;
}

/* Types whose backward pass is the derivative: an element of any shard changes the outputs of all. */
static void test_gradients_by_finite_differences(void **unused)
{
    (void)unused;
    static const setting exact[] = {
        {"batch", ""},
        {"batch", "preset=pn"},
        {"pnv", ""},
        {"renorm", ""},
        {"rbn", "lambda=0.3 nu=0.2 penalty=diff2 reference=before clamp=false"},
        {"power", "warmup=0 backward_divisor=running decay_backward=1 scaling=none"},
        {"repbn", ""},
        {"progressive", "lambda_init=0.4"},
        {"un", "window_forward=1"},
    };
    const double step = 1e-5;
    static results out[1];
    for (size_t k = 0; k < sizeof exact / sizeof *exact; k++)
        for (int i = 0; i < N; i += 5) {
            double original = input[0][i];
            input[0][i] = original + step;
            double above = loss_of(&exact[k], 3);
            input[0][i] = original - step;
            double below = loss_of(&exact[k], 2);
            input[0][i] = original;
            compute_sharded(&exact[k], 3, 1, out);
            assert_near(out->dx[i], (above - below) / (2 * step), 1e-7);
        }
}

/* PowerNorm exchanges nothing except what every norm exchanges at the end of the update, unless the divisor
 * of the gradient is that of the batch, or during its warm-up; BatchNorm in every forward and backward
 * pass. */
static void test_exchanged_bytes(void **unused)
{
    (void)unused;
    static const setting paper = {"power", "preset=paper"}, warm = {"power", "preset=paper warmup=100"},
                         official = {"power", "warmup=0"}, batch = {"batch", ""}, layer = {"layer", ""};
    static results out[N_UPDATES];
    const int64_t record = 64 + 2 * 64; /* of rank 0: shards 0 and 1 of 5 are one node */
    int64_t without = compute_sharded(&paper, 2, N_UPDATES, out);
    assert_true(compute_sharded(&warm, 2, N_UPDATES, out) - without == N_UPDATES * record);
    assert_true(compute_sharded(&official, 2, N_UPDATES, out) - without == N_UPDATES * record);
    int64_t state_bytes = compute_sharded(&batch, 2, 1, out) - 2 * record;
    assert_true(compute_sharded(&batch, 2, N_UPDATES, out) == N_UPDATES * (state_bytes + 2 * record));
    assert_true(compute_sharded(&layer, 2, N_UPDATES, out) < without);
}

/* A pass that ends early: the others end, too, and the caller gets control. The joiner of the first one has
 * not failed, so that the caller can tell its error from the errors that follow from it. */
static const nm_norm_joiner *early_joiner;

static void end_early(void *user, int32_t i, nm_norm_joiner *joiner)
{
    job *j = user;
    if (i == 2) {
        early_joiner = joiner;
        return;
    }
    j->penalties[i] = pass(&j->rig, 0, first_row[i], first_row[i + 1], joiner, j->out);
    assert_true(joiner->failed);
}

static void test_a_pass_that_fails(void **unused)
{
    (void)unused;
    static results out[1];
    static job j;
    j = (job){.comm = {.base = {.type = &nm_comm_none, .size = 1}}, .norm = &settings[0], .out = out};
    nm_shard_tree tree;
    nm_lockstep *lockstep;
    nm_error err;
    rig_open(&j.rig, j.norm);
    assert_int_equal(nm_shard_tree_init(&tree, &j.rig.params, N_SHARDS, &j.comm.base, false, &err), NM_OK);
    assert_int_equal(nm_lockstep_create(&lockstep, &tree, &err), NM_OK);
    assert_int_equal(nm_lockstep_run(lockstep, end_early, &j, &err), NM_OK);
    assert_false(early_joiner->failed);
    nm_lockstep_free(lockstep);
    nm_shard_tree_release(&tree);
    rig_close(&j.rig);
}

/* linear, linear, norm: a lost process fails the join of the norm's backward pass. */
typedef struct lost_joiner {
    nm_norm_joiner base;
    int left; /* joins until the failure */
} lost_joiner;

static void join_until_lost(nm_norm_joiner *joiner, nm_norm_call *call, int n, void *const *vectors,
                            const nm_norm_combination *combinations)
{
    (void)call, (void)n, (void)vectors, (void)combinations;
    joiner->failed |= !((lost_joiner *)joiner)->left--;
}

static void test_a_join_that_fails_ends_the_backward_pass(void **unused)
{
    (void)unused;
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F64, .threads = 1};
    const nm_norm_site site = {.name = "a", .width = WIDTH, .groups = 1};
    nm_error err = {0};
    nm_backend *backend;
    nm_params params;
    nm_norm *norm;
    nm_tensor *weights[2];
    nm_tape tape;
    nm_options *options = nm_options_create();
    nm_norm_options_add(options);
    assert_int_equal(nm_backend_create(&backend, &device, &err), NM_OK);
    nm_params_init(&params, backend);
    /* another width in between: its gradient is new memory, which there is no more after the failure */
    const nm_init init = {.kind = NM_INIT_NORMAL, .scale = 1};
    weights[0] = nm_params_add(&params, WIDTH - 1, WIDTH, init, "first");
    weights[1] = nm_params_add(&params, WIDTH, WIDTH - 1, init, "second");
    assert_int_equal(nm_params_add_norm(&params, "batch", options, &site, &norm, &err), NM_OK);
    assert_int_equal(nm_params_allocate(&params, true, &err), NM_OK);
    nm_params_initialize(&params, 1);
    assert_int_equal(nm_tape_init(&tape, backend, 1 << 20, &err), NM_OK);
    for (int joins = 0; joins <= 2; joins++) { /* one in each pass: the first, the second or none fails */
        lost_joiner joiner = {{.join = join_until_lost}, joins};
        nm_tape_start(&tape, true, 1, 0);
        tape.joiner = &joiner.base;
        nm_tensor *y = nm_tape_tensor(&tape, ROWS, WIDTH);
        nm_backend_upload(backend, y->data, input[0], sizeof input[0]);
        for (int i = 0; i < 2; i++)
            y = nm_linear(&tape, y, weights[i], NULL, NM_ACT_NONE, 0);
        y = nm_normalize(&tape, norm, y);
        if (!nm_tape_exhausted(&tape))
            nm_tensor_grad_sum(&tape, y);
        assert_int_equal(nm_tape_backward(&tape, &err), joins < 2 ? NM_MEMORY : NM_OK);
    }
    nm_tape_release(&tape);
    nm_params_release(&params);
    nm_backend_free(backend);
    nm_options_free(options);
}

int main(void)
{
    for (int u = 0; u < N_UPDATES; u++)
        for (int i = 0; i < N; i++) {
            nm_random_words words = nm_random4(11, NM_RANDOM_TEST, (uint32_t)u, 0, (uint64_t)i);
            input[u][i] = 0.2 + 0.3 * u + nm_random_normal(words.w[0], words.w[1]);
            upstream[u][i] = nm_random_normal(words.w[2], words.w[3]);
        }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_the_joined_batch),
                                       cmocka_unit_test(test_gradients_by_finite_differences),
                                       cmocka_unit_test(test_exchanged_bytes),
                                       cmocka_unit_test(test_a_pass_that_fails),
                                       cmocka_unit_test(test_a_join_that_fails_ends_the_backward_pass)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
