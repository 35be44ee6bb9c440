/* Linear maps in int8: the same bits in every backend. */
#include "kernel_checks.h"

void check_round_int8(pair *p, size z)
{
    twin m = pair_random(p, z.rows, z.cols, z.gap);
    BOTH(p, round_int8, .m = m.m[s]);
    twin_compare(p, "m", m, 0, 0);
}

static void *take_int8(nm_backend *b, nm_mat weight)
{
    size_t bytes = 0;
    nm_error err;
    void *form;
    NM_CALL(b, pack_int8, .weight = weight, .bytes = &bytes);
    assert_int_equal(nm_backend_alloc(b, bytes, &form, &err), NM_OK);
    NM_CALL(b, pack_int8, .weight = weight, .packed = form, .bytes = &bytes);
    return form;
}

/* The form is the same in every backend. */
void check_pack_int8(pair *p, size z)
{
    twin w = pair_random(p, z.rows, z.cols, 0);
    size_t bytes[2];
    char *copy[2];
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend *b = p->on[s];
        void *form = take_int8(b, w.m[s]);
        NM_CALL(b, pack_int8, .weight = w.m[s], .bytes = &bytes[s]);
        copy[s] = nm_allocate(bytes[s]);
        nm_backend_download(b, copy[s], form, bytes[s]);
        nm_backend_dealloc(b, form);
    }
    assert_int_equal(bytes[SUBJECT], bytes[JUDGE]);
    assert_memory_equal(copy[SUBJECT], copy[JUDGE], bytes[JUDGE]);
    p->hash = XXH64(copy[SUBJECT], bytes[SUBJECT], p->hash);
    free(copy[SUBJECT]);
    free(copy[JUDGE]);
}

/* All rows of a weight and some, by the kernel itself and by `linear` over a held weight. */
void check_linear_int8(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    twin x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    twin bias = random_vector(p, out);
    void *forms[2] = {take_int8(p->on[SUBJECT], w.m[SUBJECT]), take_int8(p->on[JUDGE], w.m[JUDGE])};
    for (int form = 0; form < 4; form++) {
        int32_t first = form % 2 ? out / 3 : 0, rows = form % 2 ? (out - first + 1) / 2 : out;
        twin y = pair_random(p, z.rows, rows, z.gap);
        for (int s = SUBJECT; s <= JUDGE; s++) {
            const nm_int8 weight = {forms[s], out, z.cols, first};
            NM_CALL(p->on[s], linear_int8, .x = x.m[s], .weight = &weight,
                    .bias = form / 2 ? bias.m[s].data : NULL, .act = form == 3 ? NM_ACT_RELU : NM_ACT_NONE,
                    .y = y.m[s]);
        }
        twin_compare(p, "y", y, 0, 0);
    }
    twin y = pair_random(p, z.rows, out, z.gap);
    for (int s = SUBJECT; s <= JUDGE; s++)
        nm_backend_register_weight_int8(p->on[s], w.m[s], forms[s]);
    BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = bias.m[s].data, .drop = &none, .y = y.m[s]);
    twin_compare(p, "y of linear", y, 0, 0);
    for (int s = SUBJECT; s <= JUDGE; s++) {
        nm_backend_unregister_weight(p->on[s], forms[s]);
        nm_backend_dealloc(p->on[s], forms[s]);
    }
}
