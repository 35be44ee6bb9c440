/* Sums over shards: the tree of every number of shards equals its recursive definition, bit for bit, on every
 * number of processes (here threads); statistics of norms are those of the joined rows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "train/shards.h"
#include "thread_comm.h"

enum { WIDTH = 5, MAX_SHARDS = 19, MAX_ROWS = 7 };

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_params params;
    nm_norm *norms[2];
} rig;

static void rig_open(rig *r)
{
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F32, .threads = 1};
    nm_error err;
    *r = (rig){.options = nm_options_create()};
    nm_norm_options_add(r->options);
    assert_int_equal(nm_backend_create(&r->backend, &device, &err), NM_OK);
    nm_params_init(&r->params, r->backend);
    nm_params_add(&r->params, 3, WIDTH, (nm_init){.kind = NM_INIT_CONSTANT}, "weight");
    const nm_norm_site first = {.name = "a", .width = WIDTH, .groups = 1},
                       second = {.name = "b", .width = WIDTH, .groups = 1};
    assert_int_equal(nm_params_add_norm(&r->params, "batch", r->options, &first, &r->norms[0], &err), NM_OK);
    assert_int_equal(nm_params_add_norm(&r->params, "power", r->options, &second, &r->norms[1], &err), NM_OK);
    assert_int_equal(nm_params_allocate(&r->params, true, &err), NM_OK);
}

static void rig_close(rig *r)
{
    nm_params_release(&r->params);
    nm_backend_free(r->backend);
    nm_options_free(r->options);
}

static float value_of(int64_t shard, size_t i)
{
    return (float)sin(1e3 * (double)shard + 7 * (double)i) * (float)(1 << shard % 5);
}

static int rows_of(int64_t shard)
{
    return shard == 3 ? 1 : 1 + (int)(shard * 5 % MAX_ROWS);
}

/* Sums of the values of element i over the shards [first, last) of `all`, by the recursive definition. */
static float tree_sum(int64_t all, int level, int64_t index, size_t i)
{
    if (!level)
        return value_of(index, i);
    float left = tree_sum(all, level - 1, 2 * index, i);
    bool has_right = (2 * index + 1) << (level - 1) < all;
    return has_right ? left + tree_sum(all, level - 1, 2 * index + 1, i) : left;
}

/* Results of a pass of a shard in the parameters: gradients; statistics of `rows` values per feature. */
static void fill_shard(rig *r, int64_t shard)
{
    float *grads = r->params.grads;
    for (size_t i = 0; i < r->params.n_elements; i++)
        grads[i] += value_of(shard, i);
    int rows = rows_of(shard);
    float *mean = r->norms[0]->statistics[0], *variance = r->norms[0]->statistics[1];
    for (int f = 0; f < WIDTH; f++) {
        double sum = 0, square = 0;
        for (int k = 0; k < rows; k++)
            sum += value_of(shard, (size_t)(100 * k + f));
        for (int k = 0; k < rows; k++)
            square += pow(value_of(shard, (size_t)(100 * k + f)) - sum / rows, 2);
        mean[f] = (float)(sum / rows);
        variance[f] = (float)(square / rows);
        ((float *)r->norms[1]->statistics[0])[f] = mean[f];
        ((float *)r->norms[1]->statistics[2])[f] = (float)sum;
    }
    for (int i = 0; i < 2; i++)
        r->norms[0]->collected_rows[i] = rows;
    r->norms[1]->collected_rows[0] = r->norms[1]->collected_rows[2] = rows;
}

static void check_statistics(const rig *r, int64_t n_shards)
{
    for (int f = 0; f < WIDTH; f++) {
        double sum = 0, square = 0;
        int n = 0;
        for (int64_t s = 0; s < n_shards; s++)
            for (int k = 0; k < rows_of(s); k++, n++)
                sum += value_of(s, (size_t)(100 * k + f));
        for (int64_t s = 0; s < n_shards; s++)
            for (int k = 0; k < rows_of(s); k++)
                square += pow(value_of(s, (size_t)(100 * k + f)) - sum / n, 2);
        assert_true(r->norms[0]->collected_rows[0] == n && r->norms[1]->collected_rows[2] == n);
        assert_true(fabs(((float *)r->norms[0]->statistics[0])[f] - sum / n) < 1e-4);
        assert_true(fabs(((float *)r->norms[0]->statistics[1])[f] - square / n) < 1e-3 * (1 + square / n));
        assert_true(fabs(((float *)r->norms[1]->statistics[0])[f] - sum / n) < 1e-4);
        assert_true(fabs(((float *)r->norms[1]->statistics[2])[f] - sum) < 1e-3);
    }
    assert_true(r->norms[1]->collected_rows[1] == 0); /* a statistic that no shard collects */
}

typedef struct job { /* of one rank */
    thread_comm comm;
    int64_t n_shards;
} job;

/* Two updates; no value of the first one affects the second one. */
static void *run_rank(void *argument)
{
    job *j = argument;
    nm_comm *comm = &j->comm.base;
    int64_t n_shards = j->n_shards;
    rig r;
    nm_shard_tree tree;
    nm_error err;
    rig_open(&r);
    assert_int_equal(nm_shard_tree_init(&tree, &r.params, n_shards, comm, false, &err), NM_OK);
    assert_true(comm->size == 1 || nm_shard_tree_slabs(n_shards, comm) >= 2);
    nm_shard_range own = nm_shard_range_of(n_shards, comm);
    for (int update = 0; update < 2; update++) {
        nm_shard_tree_start(&tree);
        for (int64_t s = own.first; s < own.last; s++) {
            nm_shard_tree_begin(&tree);
            fill_shard(&r, s);
            const nm_shard_sums sums = {.loss = value_of(s, 1),
                                        .nll = 1,
                                        .penalty = 0.5,
                                        .tokens = s,
                                        .targets = 2,
                                        .stop = s == 2,
                                        .seconds = (double)(s % 5)};
            nm_shard_tree_end(&tree, s, &sums);
        }
        assert_int_equal(nm_shard_tree_complete(&tree, &err), NM_OK);
    }
    int level = 0;
    while (1 << level < n_shards)
        level++;
    for (size_t i = 0; i < r.params.n_elements; i++)
        assert_true(((float *)r.params.grads)[i] == tree_sum(n_shards, level, 0, i));
    const nm_shard_sums *sums = &tree.current.sums;
    assert_true(sums->tokens == n_shards * (n_shards - 1) / 2);
    assert_true(sums->targets == 2 * n_shards && sums->nll == (double)n_shards);
    assert_true(sums->penalty == 0.5 * (double)n_shards && sums->stop == (n_shards > 2));
    assert_true(sums->seconds == (n_shards > 4 ? 4 : (double)(n_shards - 1)));
    check_statistics(&r, n_shards);
    nm_shard_tree_release(&tree);
    rig_close(&r);
    return NULL;
}

static void run_ranks(void *(*function)(void *), int64_t n_shards, int32_t size)
{
    hub *h = hub_create();
    static job jobs[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    for (int32_t rank = 0; rank < size; rank++) {
        jobs[rank] =
            (job){{{.type = &threads_type, .rank = rank, .size = size}, .hub = h}, .n_shards = n_shards};
        assert_int_equal(pthread_create(&threads[rank], NULL, function, &jobs[rank]), 0);
    }
    for (int32_t rank = 0; rank < size; rank++)
        pthread_join(threads[rank], NULL);
    free(h);
}

static void test_every_number_of_shards(void **state)
{
    (void)state;
    for (int64_t n_shards = 1; n_shards <= MAX_SHARDS; n_shards++)
        run_ranks(run_rank, n_shards, 1);
}

static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int64_t n_shards = 2; n_shards <= MAX_SHARDS; n_shards++)
        for (int32_t size = 2; size <= MAX_RANKS && size <= n_shards; size++)
            run_ranks(run_rank, n_shards, size);
}

static void test_more_ranks_than_shards(void **state)
{
    (void)state;
    rig r;
    nm_shard_tree tree;
    nm_error err;
    nm_comm comm = {.type = &threads_type, .size = 3};
    rig_open(&r);
    assert_int_equal(nm_shard_tree_init(&tree, &r.params, 2, &comm, false, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "train.shards is 2"));
    nm_shard_tree_release(&tree);
    rig_close(&r);
}

/* Every rank has the blocks of all, and the data of rank 0. */
static void *run_gather(void *argument)
{
    job *j = argument;
    nm_comm *comm = &j->comm.base;
    nm_error err;
    int64_t blocks[MAX_RANKS] = {0}, first = comm->rank ? 0 : 77;
    blocks[comm->rank] = 10 + comm->rank;
    assert_int_equal(nm_comm_gather(comm, blocks, sizeof *blocks, &err), NM_OK);
    for (int32_t rank = 0; rank < comm->size; rank++)
        assert_true(blocks[rank] == 10 + rank);
    assert_int_equal(nm_comm_broadcast(comm, &first, sizeof first, &err), NM_OK);
    assert_true(first == 77);
    return NULL;
}

static void test_gather_and_broadcast(void **state)
{
    (void)state;
    for (int32_t size = 1; size <= MAX_RANKS; size++)
        run_ranks(run_gather, 1, size);
}

/* With `sharded` each rank has the sum of its part, and parts are gathered, collected and distributed. The
 * part of the last rank ends with an incomplete block. */
enum { LARGE = 7 * NM_DOT_BLOCK + 100 };

static void *run_sharded(void *argument)
{
    job *j = argument;
    nm_comm *comm = &j->comm.base;
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F32, .threads = 1};
    nm_backend *backend;
    nm_params params;
    nm_shard_tree tree;
    nm_error err;
    assert_int_equal(nm_backend_create(&backend, &device, &err), NM_OK);
    nm_params_init(&params, backend);
    nm_params_add(&params, 1, LARGE, (nm_init){.kind = NM_INIT_CONSTANT}, "weight");
    assert_int_equal(nm_params_allocate(&params, true, &err), NM_OK);
    assert_int_equal(nm_shard_tree_init(&tree, &params, j->n_shards, comm, true, &err), NM_OK);
    nm_shard_range own = nm_shard_range_of(j->n_shards, comm);
    float *grads = params.grads;
    nm_shard_tree_start(&tree);
    for (int64_t s = own.first; s < own.last; s++) {
        const nm_shard_sums sums = {.whole_gradients = s == 1};
        nm_shard_tree_begin(&tree);
        for (size_t i = 0; i < params.n_elements; i++)
            grads[i] = value_of(s, i % 50);
        nm_shard_tree_end(&tree, s, &sums);
    }
    assert_int_equal(nm_shard_tree_complete(&tree, &err), NM_OK);
    assert_true(tree.current.sums.whole_gradients);
    float expected[50], *part = nm_allocate(LARGE * sizeof *part),
                        *whole = nm_allocate(2 * LARGE * sizeof *whole);
    int level = 0;
    while (1 << level < j->n_shards)
        level++;
    for (size_t i = 0; i < 50; i++)
        expected[i] = tree_sum(j->n_shards, level, 0, i);
    size_t first, n;
    nm_shard_tree_part(&tree, &first, &n);
    assert_true(first % NM_DOT_BLOCK == 0 &&
                n <= (LARGE + (size_t)comm->size - 1) / (size_t)comm->size + NM_DOT_BLOCK);
    for (size_t i = first; i < first + n; i++)
        assert_true(grads[i] == expected[i % 50]);
    memcpy(part, grads + first, n * sizeof *part);
    assert_int_equal(nm_shard_tree_collect(&tree, part, whole, &err), NM_OK);
    assert_int_equal(nm_shard_tree_gather(&tree, grads, 1, sizeof *grads, &err), NM_OK);
    for (size_t i = 0; i < params.n_elements; i++)
        assert_true(grads[i] == expected[i % 50] && (comm->rank || whole[i] == grads[i]));
    memset(part, 0, n * sizeof *part);
    assert_int_equal(nm_shard_tree_distribute(&tree, whole, part, &err), NM_OK);
    assert_memory_equal(part, grads + first, n * sizeof *part);
    double sums[LARGE / NM_DOT_BLOCK + 2] = {0}, total, all[LARGE / NM_DOT_BLOCK + 2] = {0};
    NM_CALL(backend, dot, .n = params.n_elements, .a = grads, .b = grads, .blocks = all, .out = &total);
    NM_CALL(backend, dot, .n = n, .a = grads + first, .b = grads + first,
            .blocks = sums + first / NM_DOT_BLOCK, .out = &total);
    assert_int_equal(nm_shard_tree_gather(&tree, sums, NM_DOT_BLOCK, sizeof *sums, &err), NM_OK);
    assert_memory_equal(sums, all, sizeof sums);
    free(part);
    free(whole);
    nm_shard_tree_release(&tree);
    nm_params_release(&params);
    nm_backend_free(backend);
    return NULL;
}

/* The gradients of the last shard of each rank are sent while its pass runs, in the order that a dry run has
 * observed: here from the last parameter to the first, except that the second one, an embedding, is written
 * to once more at the end. */
enum { N_PARAMS = 40, PARAM_WIDTH = 40 };

static void run_pass(rig *r, nm_gradient_observer *observer, int64_t shard)
{
    for (int i = N_PARAMS; i >= 0; i--) {
        const nm_param *param = r->params.list[i ? i - 1 : 1];
        float *grad = param->tensor.grad;
        if (observer)
            observer->written(observer, grad);
        for (size_t k = 0; shard >= 0 && k < PARAM_WIDTH; k++)
            grad[k] += i == 2 ? 1000 : value_of(shard, param->offset + k) - (i ? 0 : 1000);
        if (observer)
            observer->node_finished(observer);
    }
}

static void *run_overlap(void *argument)
{
    job *j = argument;
    nm_comm *comm = &j->comm.base;
    static const nm_backend_options device = {.name = "ref", .dtype = NM_F32, .threads = 1};
    nm_error err;
    rig r = {0};
    nm_shard_tree tree;
    assert_int_equal(nm_backend_create(&r.backend, &device, &err), NM_OK);
    nm_params_init(&r.params, r.backend);
    for (int i = 0; i < N_PARAMS; i++)
        nm_params_add(&r.params, 1, PARAM_WIDTH, (nm_init){.kind = NM_INIT_CONSTANT}, "p%d", i);
    assert_int_equal(nm_params_allocate(&r.params, true, &err), NM_OK);
    assert_int_equal(nm_shard_tree_init(&tree, &r.params, j->n_shards, comm, false, &err), NM_OK);
    run_pass(&r, nm_shard_tree_plan(&tree), -1);
    nm_shard_range own = nm_shard_range_of(j->n_shards, comm);
    int level = 0;
    while (1 << level < j->n_shards)
        level++;
    for (int update = 0; update < 2; update++) {
        nm_shard_tree_start(&tree);
        for (int64_t s = own.first; s < own.last; s++) {
            const nm_shard_sums sums = {.tokens = s};
            int64_t before = comm->sent_bytes;
            nm_shard_tree_begin(&tree);
            bool last = s == own.last - 1;
            run_pass(&r, last ? nm_shard_tree_send_during(&tree, s) : NULL, s);
            assert_true((comm->sent_bytes > before) == last);
            nm_shard_tree_end(&tree, s, &sums);
        }
        assert_int_equal(nm_shard_tree_complete(&tree, &err), NM_OK);
        assert_true(tree.current.sums.tokens == j->n_shards * (j->n_shards - 1) / 2);
        for (int i = 0; i < N_PARAMS; i++)
            for (size_t k = 0; k < PARAM_WIDTH && i != 1; k++)
                assert_true(((float *)r.params.list[i]->tensor.grad)[k] ==
                            tree_sum(j->n_shards, level, 0, r.params.list[i]->offset + k));
        const float *twice = r.params.list[1]->tensor.grad; /* written to at the beginning and at the end */
        for (size_t k = 0; k < PARAM_WIDTH; k++)
            assert_true(fabs((double)twice[k] -
                             (double)tree_sum(j->n_shards, level, 0, r.params.list[1]->offset + k)) < 0.1);
    }
    nm_shard_tree_release(&tree);
    nm_params_release(&r.params);
    nm_backend_free(r.backend);
    return NULL;
}

static void test_exchange_during_the_pass(void **state)
{
    (void)state;
    for (int64_t n_shards = 2; n_shards <= 11; n_shards++)
        for (int32_t size = 2; size <= MAX_RANKS && size <= n_shards; size++)
            run_ranks(run_overlap, n_shards, size);
}

static void test_sharded_optimizer(void **state)
{
    (void)state;
    for (int64_t n_shards = 2; n_shards <= MAX_RANKS; n_shards += 3)
        for (int32_t size = 2; size <= n_shards; size++)
            run_ranks(run_sharded, n_shards, size);
    rig r;
    nm_shard_tree tree;
    nm_error err;
    nm_comm comm = {.type = &nm_comm_none, .size = 1};
    rig_open(&r);
    assert_int_equal(nm_shard_tree_init(&tree, &r.params, 2, &comm, true, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "requires several processes"));
    nm_shard_tree_release(&tree);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_shards),   cmocka_unit_test(test_every_number_of_ranks),
        cmocka_unit_test(test_more_ranks_than_shards),   cmocka_unit_test(test_sharded_optimizer),
        cmocka_unit_test(test_exchange_during_the_pass), cmocka_unit_test(test_gather_and_broadcast)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
