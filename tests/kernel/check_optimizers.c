/* Vector operations and optimizer steps. */
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
}

void check_adam(pair *p, size z)
{
    for (int variant = NM_ADAM_TORCH; variant <= NM_ADAMW_TORCH; variant++)
        for (int64_t step = 1; step < 1000; step += 900) {
            nm_adam adam = {(nm_adam_variant)variant, 0.5, 0.9, 0.98, 1e-3, 0.1, 0.3, step};
            test_mat w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
            test_mat m = pair_make(p, z.rows, z.cols, 0, small),
                     v = pair_make(p, z.rows, z.cols, 0, positive);
            BOTH(p, adam, .config = &adam, .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data,
                 .g = g.m[s].data, .m = m.m[s].data, .v = v.m[s].data);
            mat_compare(p, "p", w, 16, 1);
            mat_compare(p, "m", m, 8, 0.1);
            mat_compare(p, "v", v, 8, 0);
        }
}

void check_sgd(pair *p, size z)
{
    for (int clips = 0; clips < 2; clips++) {
        test_mat w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
        test_mat v = pair_random(p, z.rows, z.cols, 0);
        BOTH(p, sgd, .lr = 0.5, .momentum = 0.9, .grad_scale = 1.5, .clip = clips ? 0.8 : 0.0,
             .weight_decay = clips ? 0 : 0.05, .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data,
             .g = g.m[s].data, .v = v.m[s].data);
        mat_compare(p, "p", w, 8, 1);
        mat_compare(p, "v", v, 8, 1);
    }
}
