/* Vector operations, plans of updates and optimizer steps. */
#include <xxhash.h>

#include "kernel_checks.h"

void check_vec(pair *p, size z)
{
    for (int op = NM_VEC_FILL; op <= NM_VEC_POW; op++) {
        bool compares = op >= NM_VEC_CLIP && op <= NM_VEC_ABOVE;
        bool roots = (op >= NM_VEC_DIV && op <= NM_VEC_SQRT) || op == NM_VEC_POW;
        test_mat a = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        test_mat vb = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        test_mat c = random_vector(p, z.cols), out = z.gap ? random_vector(p, z.cols) : a;
        double low = op == NM_VEC_RSQRT_CLAMP ? 0.9 : op == NM_VEC_CLIP ? -0.75 : 0.25;
        BOTH(p, vec, .op = (nm_vec_op)op, .n = z.cols, .out = out.m[s].data, .a = a.m[s].data,
             .b = op == NM_VEC_LINEAR && z.gap ? NULL : vb.m[s].data, .c = c.m[s].data, .s = low, .t = 0.5);
        mat_compare(p, "out", out, 4, 1);
        pair_close(p);
    }
}

void check_dot(pair *p, size z)
{
    test_mat a = pair_random(p, z.rows, z.cols, 0), c = pair_random(p, z.rows, z.cols, 0);
    size_t n = (size_t)z.rows * (size_t)z.cols;
    double results[2] = {7, 7}, sum = 0;
    double *blocks = nm_allocate((n / NM_DOT_BLOCK + 1) * sizeof *blocks);
    BOTH(p, dot, .n = n, .a = a.m[s].data, .b = c.m[s].data, .blocks = s == ACTUAL ? blocks : NULL,
         .out = &results[s]);
    for (size_t i = 0; i * NM_DOT_BLOCK < n; i++)
        sum += blocks[i];
    free(blocks);
    if (sum != results[ACTUAL]) /* bitwise */
        fail_msg("%s: blocks %.17g, sum %.17g", p->what, sum, results[ACTUAL]);
    if (!(fabs(results[ACTUAL] - results[EXPECTED]) <=
          1e-12 * sqrt((double)n) * (1 + fabs(results[EXPECTED]))))
        fail_msg("%s: %.17g, expected %.17g", p->what, results[ACTUAL], results[EXPECTED]);
    p->hash = XXH64(&results[ACTUAL], sizeof results[ACTUAL], p->hash);
    /* total = (3 (2 sum) - sum)/2; NaN is not read, and the last call has no elements. */
    const double first = NAN;
    pair_list total = pair_list_of(p, &first, sizeof first);
    BOTH(p, dot, .n = n, .a = a.m[s].data, .b = c.m[s].data, .factor = 2, .total = total.memory[s]);
    BOTH(p, dot, .n = n, .a = a.m[s].data, .b = c.m[s].data, .keep = 3, .factor = -1, .out = &results[s],
         .total = total.memory[s]);
    BOTH(p, dot, .keep = 0.5, .factor = 7, .total = total.memory[s]);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        double value;
        nm_backend_download(p->on[s], &value, total.memory[s], sizeof value);
        if (value != 0.5 * (3 * (2 * results[s]) - results[s])) /* bitwise */
            fail_msg("%s: total %.17g of the sum %.17g", p->what, value, results[s]);
    }
    for (int floored = 0; floored < 2; floored++) {
        BOTH(p, dot, .n = n, .a = a.m[s].data, .b = a.m[s].data, .inverse_norm = true,
             .least = floored ? 1e9 : 0, .eps = 0.25, .out = &results[s], .total = total.memory[s]);
        for (int s = ACTUAL; s <= EXPECTED; s++) {
            double value;
            nm_backend_download(p->on[s], &value, total.memory[s], sizeof value);
            if (value != 1 / ((floored ? 1e9 : sqrt(results[s])) + 0.25)) /* bitwise */
                fail_msg("%s: %.17g is no inverse of the norm of %.17g", p->what, value, results[s]);
        }
    }
}

enum { MAX_PASSES = 13 };

typedef struct plan_case {
    int32_t passes;
    double square, max_norm, max_loss;
    int bad; /* number that is infinite; -1: none */
    bool diverges;
} plan_case;

/* The sums over passes first .. first + n - 1 of number k in the tree of shards; ends as in the arguments */
static double tree_sum(const double *numbers, const int32_t *ends, int32_t first, int32_t n, int k)
{
    const double *pass = numbers + (first ? ends[first - 1] : 0);
    int32_t half = 1;
    if (n == 1 && k < 2)
        return pass[k];
    if (n == 1) {
        double penalty = 0;
        for (pass += 3; pass < numbers + ends[first]; pass++)
            penalty += *pass;
        return penalty;
    }
    while (2 * half < n)
        half *= 2;
    return tree_sum(numbers, ends, first, half, k) + tree_sum(numbers, ends, first + half, n - half, k);
}

/* The results are those of the host, bitwise. Passes have different numbers of penalties. */
static void check_plan(pair *p, const plan_case *c)
{
    double numbers[MAX_PASSES * 6], expected[NM_PLAN_SIZE] = {c->square};
    int32_t ends[MAX_PASSES], n = 0;
    for (int32_t i = 0; i < c->passes; i++)
        ends[i] = n += 3 + (i * 2 + 1) % 4;
    for (int32_t i = 0; i < n; i++)
        numbers[i] = i == c->bad ? INFINITY : fabs(pair_normal(p, (uint64_t)i)) * 30;
    for (int k = 0; k < 3; k++)
        expected[NM_PLAN_LOSS + k] = tree_sum(numbers, ends, 0, c->passes, k);
    const double targets = 37, norm = sqrt(c->square) / targets;
    const bool clips = c->max_norm > 0 && norm > c->max_norm;
    expected[NM_PLAN_SCALE] = c->diverges ? NAN : 1 / targets * (clips ? c->max_norm / (norm + 1e-6) : 1);
    pair_list list = pair_list_of(p, numbers, (size_t)n * sizeof *numbers),
              plan = pair_list_of(p, (const double[NM_PLAN_SIZE]){c->square}, sizeof expected);
    BOTH(p, plan_update, .targets = targets, .max_norm = c->max_norm, .max_loss = c->max_loss,
         .passes = c->passes, .ends = ends, .numbers = list.memory[s], .plan = plan.memory[s]);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        double actual[NM_PLAN_SIZE];
        nm_backend_download(p->on[s], actual, plan.memory[s], sizeof actual);
        for (int i = 0; i < NM_PLAN_SIZE; i++)
            if (actual[i] != expected[i] && !(isnan(actual[i]) && isnan(expected[i])))
                fail_msg("%s: %d passes: number %d of the plan is %.17g, expected %.17g", p->what,
                         (int)c->passes, i, actual[i], expected[i]);
        p->hash = s == ACTUAL && !c->diverges ? XXH64(actual, sizeof actual, p->hash) : p->hash;
    }
    pair_close(p);
}

void check_plan_update(pair *p, size z)
{
    (void)z;
    static const plan_case cases[] = {{1, 0, 0, 0, -1, false},
                                      {1, 1e4, 1, 0, -1, false},
                                      {1, 1e4, 3, 1e9, -1, false},
                                      {2, 2, 1, 0, -1, false},
                                      {3, 1e300, 1, 0, -1, false},
                                      {5, 7, 1e-9, 1e9, -1, false},
                                      {6, 7, 0, 0, -1, false},
                                      {7, 7, 0, 0, -1, false},
                                      {MAX_PASSES, 7, 2, 0, -1, false},
                                      {3, 7, 0, 1e-3, -1, true},
                                      {1, INFINITY, 1, 0, -1, true},
                                      {2, (double)NAN, 0, 0, -1, true},
                                      {2, 7, 0, 0, 0, true},
                                      {2, 7, 0, 0, 3, true},
                                      {4, 7, 0, 0, 9, true},
                                      {3, 7, 0, 0, 2, false} /* free */,
                                      {3, 7, 0, 0, 1, false} /* not the loss */};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_plan(p, &cases[i]);
}

static void expect_unchanged(pair *p, nm_backend *b, const void *memory, size_t n, const float *before)
{
    float *after = nm_allocate(n * sizeof *after);
    nm_backend_download(b, after, memory, n * sizeof *after);
    if (memcmp(before, after, n * sizeof *after))
        fail_msg("%s: a diverged update changes the parameters or their moments", p->what);
    free(after);
}

/* A NaN as scale: p, m and v stay as they are. */
static void check_skipped(pair *p, size z, bool adam)
{
    enum { P, M, V, N };
    const size_t n = (size_t)z.rows * (size_t)z.cols;
    const nm_adam config = {NM_ADAM_TORCH, 0.5, 0.9, 0.98, 1e-3, 0.1, 0.3, 2};
    test_mat g = pair_random(p, z.rows, z.cols, 0), state[N];
    float *before = nm_allocate(N * n * sizeof *before);
    for (int i = 0; i < N; i++) {
        state[i] = pair_make(p, z.rows, z.cols, 0, positive);
        nm_backend_download(p->on[ACTUAL], before + (size_t)i * n, state[i].m[ACTUAL].data,
                            n * sizeof *before);
    }
    const double diverged = (double)NAN;
    pair_list scale = pair_list_of(p, &diverged, sizeof diverged);
    if (adam)
        BOTH(p, adam, .config = &config, .scale = scale.memory[s], .n = n, .p = state[P].m[s].data,
             .g = g.m[s].data, .m = state[M].m[s].data, .v = state[V].m[s].data);
    else
        BOTH(p, sgd, .lr = 0.5, .momentum = 0.9, .grad_scale = 1, .weight_decay = 0.1,
             .scale = scale.memory[s], .n = n, .p = state[P].m[s].data, .g = g.m[s].data,
             .v = state[V].m[s].data);
    for (int i = 0; i < N; i++) {
        expect_unchanged(p, p->on[ACTUAL], state[i].m[ACTUAL].data, n, before + (size_t)i * n);
        mat_compare(p, "state", state[i], 0, 0);
    }
    free(before);
    pair_close(p);
}

void check_adam(pair *p, size z)
{
    check_skipped(p, z, true);
    for (int variant = NM_ADAM_TORCH; variant <= NM_ADAMW_TORCH; variant++)
        for (int64_t step = 1; step < 1000; step += 900) {
            const bool on_device = step > 1;
            const double scale = 0.3;
            nm_adam adam = {(nm_adam_variant)variant, 0.5, 0.9, 0.98, 1e-3, 0.1, on_device ? 7 : scale, step};
            pair_list scales = pair_list_of(p, &scale, sizeof scale);
            test_mat w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
            test_mat m = pair_make(p, z.rows, z.cols, 0, small),
                     v = pair_make(p, z.rows, z.cols, 0, positive);
            BOTH(p, adam, .config = &adam, .scale = on_device ? scales.memory[s] : NULL,
                 .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data, .g = g.m[s].data, .m = m.m[s].data,
                 .v = v.m[s].data);
            mat_compare(p, "p", w, 16, 1);
            mat_compare(p, "m", m, 8, 0.1);
            mat_compare(p, "v", v, 8, 0);
        }
}

void check_sgd(pair *p, size z)
{
    check_skipped(p, z, false);
    for (int clips = 0; clips < 2; clips++) {
        test_mat w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
        test_mat v = pair_random(p, z.rows, z.cols, 0);
        const double scale = 1.5;
        pair_list scales = pair_list_of(p, &scale, sizeof scale);
        BOTH(p, sgd, .lr = 0.5, .momentum = 0.9, .grad_scale = clips ? scale : 7,
             .scale = clips ? NULL : scales.memory[s], .clip = clips ? 0.8 : 0.0,
             .weight_decay = clips ? 0 : 0.05, .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data,
             .g = g.m[s].data, .v = v.m[s].data);
        mat_compare(p, "p", w, 8, 1);
        mat_compare(p, "v", v, 8, 1);
    }
}
