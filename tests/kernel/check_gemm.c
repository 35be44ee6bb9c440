/* GEMM and linear layers. */
#include "kernel_checks.h"

void check_gemm(pair *p, size z)
{
    int32_t inner = other_width(z.cols);
    for (int variant = 0; variant < 4; variant++) {
        bool ta = variant & 1, tb = variant & 2;
        test_mat a = pair_random(p, ta ? inner : z.rows, ta ? z.rows : inner, z.gap);
        test_mat bm = pair_random(p, tb ? z.cols : inner, tb ? inner : z.cols, z.gap);
        test_mat c = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, gemm, .ta = ta, .tb = tb, .alpha = 0.5, .a = a.m[s], .b = bm.m[s],
             .beta = variant == 0   ? 0.0
                     : variant == 1 ? 1.0
                                    : -2.0,
             .c = c.m[s]);
        mat_compare(p, "c", c, sum_ulps(inner), 1);
    }
    test_mat a = pair_random(p, z.rows, inner, z.gap), bm = pair_random(p, inner, z.cols, z.gap);
    test_mat c = pair_random(p, z.rows, z.cols, z.gap);
    for (int32_t r = 0; r < z.rows; r++)
        mat_fill_row(p, c, r, NAN);
    BOTH(p, gemm, .alpha = 1, .a = a.m[s], .b = bm.m[s], .beta = 0, .c = c.m[s]);
    mat_compare(p, "c with NaN before and beta 0", c, sum_ulps(inner), 1);
}

void check_linear(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int variant = 0; variant < 2 * N_DROPS; variant++) {
        test_mat x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
        test_mat bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
        nm_act act = variant < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = variant % N_DROPS == 1 ? NULL : bias.m[s].data,
             .act = act, .drop = drops[variant % N_DROPS], .y = y.m[s]);
        mat_compare(p, "y", y, sum_ulps(z.cols), 1);
    }
}

/* More rows of the weight than there are, in any order, with repetitions; a number of them that is no
 * multiple of four. */
void check_linear_selected(pair *p, size z)
{
    int32_t out = other_width(z.cols), n = out + 2;
    for (int variant = 0; variant < 2; variant++) {
        test_mat x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, z.gap);
        test_mat bias = random_vector(p, out), y = pair_random(p, z.rows, n, z.gap);
        pair_list rows = pair_ids(p, n, out);
        BOTH(p, linear_selected, .x = x.m[s], .weight = w.m[s], .bias = variant ? NULL : bias.m[s].data,
             .rows = rows.memory[s], .y = y.m[s]);
        mat_compare(p, "y", y, sum_ulps(z.cols), 1);
    }
}

/* `linear` gives the same result with a packed weight, if the backend has a packed layout. */
void check_pack(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    test_mat x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    test_mat bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
    void *packed[2] = {NULL, NULL};
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        nm_backend *b = p->on[s];
        size_t bytes = 0;
        nm_error err;
        NM_CALL(b, pack, .weight = w.m[s], .bytes = &bytes);
        if (!bytes)
            continue;
        assert_int_equal(nm_backend_alloc(b, bytes, &packed[s], &err), NM_OK);
        NM_CALL(b, pack, .weight = w.m[s], .packed = packed[s], .bytes = &bytes);
        nm_backend_register_weight(b, w.m[s], packed[s]);
    }
    BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = bias.m[s].data, .y = y.m[s]);
    mat_compare(p, "y", y, sum_ulps(z.cols), 1);
    for (int s = ACTUAL; s <= EXPECTED; s++)
        if (packed[s]) {
            nm_backend_unregister_weight(p->on[s], packed[s]);
            nm_backend_dealloc(p->on[s], packed[s]);
        }
}

void check_act_grad(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_DROPS; variant++) {
        test_mat y = pair_make(p, z.rows, z.cols, z.gap, coarse), dy = pair_random(p, z.rows, z.cols, z.gap);
        test_mat dz = variant % 2 ? dy : pair_random(p, z.rows, z.cols, z.gap);
        nm_act act = variant < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, act_grad, .act = act, .drop = drops[variant % N_DROPS], .y = y.m[s], .dy = dy.m[s],
             .dz = dz.m[s]);
        mat_compare(p, "dz", dz, 4, 0);
    }
}

void check_linear_grad_input(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int add = 0; add < 2; add++) {
        test_mat dy = pair_random(p, z.rows, out, z.gap), w = pair_random(p, out, z.cols, 0);
        test_mat dx = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, linear_grad_input, .dy = dy.m[s], .weight = w.m[s], .add = add, .dx = dx.m[s]);
        mat_compare(p, "dx", dx, sum_ulps(out), 1);
    }
}

void check_linear_grad_weight(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int with = 0; with < 2; with++) {
        test_mat dy = pair_random(p, z.rows, out, z.gap), x = pair_random(p, z.rows, z.cols, z.gap);
        test_mat dw = pair_random(p, out, z.cols, 0), db = random_vector(p, out);
        BOTH(p, linear_grad_weight, .dy = dy.m[s], .x = x.m[s], .dw = dw.m[s],
             .db = with ? db.m[s].data : NULL);
        mat_compare(p, "dw", dw, sum_ulps(z.rows), 1);
        if (with)
            mat_compare(p, "db", db, 4, 1);
    }
    test_mat dy = pair_random(p, z.rows, out, z.gap), x = pair_random(p, z.rows, z.cols, z.gap),
             db = random_vector(p, out);
    BOTH(p, linear_grad_weight, .dy = dy.m[s], .x = x.m[s], .db = db.m[s].data); /* a fixed weight */
    mat_compare(p, "db", db, 4, 1);
}
