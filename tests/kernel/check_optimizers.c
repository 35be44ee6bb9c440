/* Operations on vectors, and the steps of the optimizers. */
#include "kernel_checks.h"

void check_vec(pair *p, size z)
{
    for (int op = NM_VEC_FILL; op <= NM_VEC_ABOVE; op++) {
        bool compares = op >= NM_VEC_CLIP, roots = op >= NM_VEC_DIV && op <= NM_VEC_SQRT;
        twin a = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        twin vb = pair_make(p, 1, z.cols, 0, roots ? positive : compares ? coarse : pair_normal);
        twin c = random_vector(p, z.cols), out = z.gap ? random_vector(p, z.cols) : a;
        double low = op == NM_VEC_RSQRT_CLAMP ? 0.9 : op == NM_VEC_CLIP ? -0.75 : 0.25;
        BOTH(p, vec, .op = (nm_vec_op)op, .n = z.cols, .out = out.m[s].data, .a = a.m[s].data,
             .b = op == NM_VEC_LINEAR && z.gap ? NULL : vb.m[s].data, .c = c.m[s].data, .s = low, .t = 0.5);
        twin_compare(p, "out", out, 4, 1);
        pair_close(p);
    }
}

void check_dot(pair *p, size z)
{
    twin a = pair_random(p, z.rows, z.cols, 0), c = pair_random(p, z.rows, z.cols, 0);
    size_t n = (size_t)z.rows * (size_t)z.cols;
    double got[2] = {7, 7};
    BOTH(p, dot, .n = n, .a = a.m[s].data, .b = c.m[s].data, .out = &got[s]);
    if (!(fabs(got[SUBJECT] - got[JUDGE]) <= 1e-12 * sqrt((double)n) * (1 + fabs(got[JUDGE]))))
        fail_msg("%s: %.17g, should be %.17g", p->what, got[SUBJECT], got[JUDGE]);
}

void check_adam(pair *p, size z)
{
    for (int form = NM_ADAM_TORCH; form <= NM_ADAMW_TORCH; form++)
        for (int64_t step = 1; step < 1000; step += 900) {
            nm_adam adam = {(nm_adam_variant)form, 0.5, 0.9, 0.98, 1e-3, 0.1, 0.3, step};
            twin w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
            twin m = pair_make(p, z.rows, z.cols, 0, small), v = pair_make(p, z.rows, z.cols, 0, positive);
            BOTH(p, adam, .config = &adam, .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data,
                 .g = g.m[s].data, .m = m.m[s].data, .v = v.m[s].data);
            twin_compare(p, "p", w, 16, 1);
            twin_compare(p, "m", m, 8, 0.1);
            twin_compare(p, "v", v, 8, 0);
        }
}

void check_sgd(pair *p, size z)
{
    for (int clips = 0; clips < 2; clips++) {
        twin w = pair_random(p, z.rows, z.cols, 0), g = pair_random(p, z.rows, z.cols, 0);
        twin v = pair_random(p, z.rows, z.cols, 0);
        BOTH(p, sgd, .lr = 0.5, .momentum = 0.9, .grad_scale = 1.5, .clip = clips ? 0.8 : 0.0,
             .n = (size_t)z.rows * (size_t)z.cols, .p = w.m[s].data, .g = g.m[s].data, .v = v.m[s].data);
        twin_compare(p, "p", w, 8, 1);
        twin_compare(p, "v", v, 8, 1);
    }
}
