/* Products of matrices and the linear layers made of them. */
#include "kernel_checks.h"

void check_gemm(pair *p, size z)
{
    int32_t inner = other_width(z.cols);
    for (int form = 0; form < 4; form++) {
        bool ta = form & 1, tb = form & 2;
        twin a = pair_random(p, ta ? inner : z.rows, ta ? z.rows : inner, z.gap);
        twin bm = pair_random(p, tb ? z.cols : inner, tb ? inner : z.cols, z.gap);
        twin c = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, gemm, .ta = ta, .tb = tb, .alpha = 0.5, .a = a.m[s], .b = bm.m[s],
             .beta = form == 0   ? 0.0
                     : form == 1 ? 1.0
                                 : -2.0,
             .c = c.m[s]);
        twin_compare(p, "c", c, sum_ulps(inner), 1);
    }
    twin a = pair_random(p, z.rows, inner, z.gap), bm = pair_random(p, inner, z.cols, z.gap);
    twin c = pair_random(p, z.rows, z.cols, z.gap);
    for (int32_t r = 0; r < z.rows; r++)
        twin_fill_row(p, c, r, NAN);
    BOTH(p, gemm, .alpha = 1, .a = a.m[s], .b = bm.m[s], .beta = 0, .c = c.m[s]);
    twin_compare(p, "c that was NaN and has beta 0", c, sum_ulps(inner), 1);
}

void check_linear(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int form = 0; form < 2 * N_DROPS; form++) {
        twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
        twin bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
        nm_act act = form < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = form % N_DROPS == 1 ? NULL : bias.m[s].data,
             .act = act, .drop = drops[form % N_DROPS], .y = y.m[s]);
        twin_compare(p, "y", y, sum_ulps(z.cols), 1);
    }
}

/* Whether or not the backend has another form of the weight, `linear` gives the same. */
void check_pack(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    twin bias = random_vector(p, out), y = pair_random(p, z.rows, out, z.gap);
    void *forms[2] = {NULL, NULL};
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend *b = p->on[s];
        size_t bytes = 0;
        nm_error err;
        NM_CALL(b, pack, .weight = w.m[s], .bytes = &bytes);
        if (!bytes)
            continue;
        assert_int_equal(nm_backend_alloc(b, bytes, &forms[s], &err), NM_OK);
        NM_CALL(b, pack, .weight = w.m[s], .packed = forms[s], .bytes = &bytes);
        nm_backend_register_weight(b, w.m[s], forms[s]);
    }
    BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = bias.m[s].data, .y = y.m[s]);
    twin_compare(p, "y", y, sum_ulps(z.cols), 1);
    for (int s = SUBJECT; s <= JUDGE; s++)
        if (forms[s]) {
            nm_backend_unregister_weight(p->on[s], forms[s]);
            nm_backend_dealloc(p->on[s], forms[s]);
        }
}

void check_act_grad(pair *p, size z)
{
    for (int form = 0; form < 2 * N_DROPS; form++) {
        twin y = pair_make(p, z.rows, z.cols, z.gap, coarse), dy = pair_random(p, z.rows, z.cols, z.gap);
        twin dz = form % 2 ? dy : pair_random(p, z.rows, z.cols, z.gap);
        nm_act act = form < N_DROPS ? NM_ACT_NONE : NM_ACT_RELU;
        BOTH(p, act_grad, .act = act, .drop = drops[form % N_DROPS], .y = y.m[s], .dy = dy.m[s],
             .dz = dz.m[s]);
        twin_compare(p, "dz", dz, 4, 0);
    }
}

void check_linear_grad_input(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int add = 0; add < 2; add++) {
        twin dy = pair_random(p, z.rows, out, z.gap), w = pair_random(p, out, z.cols, 0);
        twin dx = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, linear_grad_input, .dy = dy.m[s], .weight = w.m[s], .add = add, .dx = dx.m[s]);
        twin_compare(p, "dx", dx, sum_ulps(out), 1);
    }
}

void check_linear_grad_weight(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    for (int with = 0; with < 2; with++) {
        twin dy = pair_random(p, z.rows, out, z.gap), x = pair_random(p, z.rows, z.cols, z.gap);
        twin dw = pair_random(p, out, z.cols, 0), db = random_vector(p, out);
        BOTH(p, linear_grad_weight, .dy = dy.m[s], .x = x.m[s], .dw = dw.m[s],
             .db = with ? db.m[s].data : NULL);
        twin_compare(p, "dw", dw, sum_ulps(z.rows), 1);
        if (with)
            twin_compare(p, "db", db, 4, 1);
    }
}
