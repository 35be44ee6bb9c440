/* Int8 linear layers: bitwise identical on every backend. */
#include "kernel_checks.h"

void check_round_int8(pair *p, size z)
{
    test_mat m = pair_random(p, z.rows, z.cols, z.gap);
    BOTH(p, round_int8, .m = m.m[s]);
    mat_compare(p, "m", m, 0, 0);
}

static void *take_int8(nm_backend *b, nm_mat weight)
{
    size_t bytes = 0;
    nm_error err;
    void *variant;
    NM_CALL(b, pack_int8, .weight = weight, .bytes = &bytes);
    assert_int_equal(nm_backend_alloc(b, bytes, &variant, &err), NM_OK);
    NM_CALL(b, pack_int8, .weight = weight, .packed = variant, .bytes = &bytes);
    return variant;
}

/* The packed layout is the same on every backend. */
void check_pack_int8(pair *p, size z)
{
    test_mat w = pair_random(p, z.rows, z.cols, 0);
    size_t bytes[2];
    char *copy[2];
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        nm_backend *b = p->on[s];
        void *variant = take_int8(b, w.m[s]);
        NM_CALL(b, pack_int8, .weight = w.m[s], .bytes = &bytes[s]);
        copy[s] = nm_allocate(bytes[s]);
        nm_backend_download(b, copy[s], variant, bytes[s]);
        nm_backend_dealloc(b, variant);
    }
    assert_int_equal(bytes[ACTUAL], bytes[EXPECTED]);
    assert_memory_equal(copy[ACTUAL], copy[EXPECTED], bytes[EXPECTED]);
    p->hash = XXH64(copy[ACTUAL], bytes[ACTUAL], p->hash);
    free(copy[ACTUAL]);
    free(copy[EXPECTED]);
}

/* All rows of a weight and some of them, by the kernel and by `linear` with a registered weight. */
void check_linear_int8(pair *p, size z)
{
    int32_t out = other_width(z.cols);
    test_mat x = pair_random(p, z.rows, z.cols, z.gap), w = pair_random(p, out, z.cols, 0);
    test_mat bias = random_vector(p, out);
    void *packed[2] = {take_int8(p->on[ACTUAL], w.m[ACTUAL]), take_int8(p->on[EXPECTED], w.m[EXPECTED])};
    for (int variant = 0; variant < 4; variant++) {
        int32_t first = variant % 2 ? out / 3 : 0, rows = variant % 2 ? (out - first + 1) / 2 : out;
        test_mat y = pair_random(p, z.rows, rows, z.gap);
        for (int s = ACTUAL; s <= EXPECTED; s++) {
            const nm_int8 weight = {packed[s], out, z.cols, first};
            NM_CALL(p->on[s], linear_int8, .x = x.m[s], .weight = &weight,
                    .bias = variant / 2 ? bias.m[s].data : NULL,
                    .act = variant == 3 ? NM_ACT_RELU : NM_ACT_NONE, .y = y.m[s]);
        }
        mat_compare(p, "y", y, 0, 0);
    }
    test_mat y = pair_random(p, z.rows, out, z.gap);
    for (int s = ACTUAL; s <= EXPECTED; s++)
        nm_backend_register_weight_int8(p->on[s], w.m[s], packed[s]);
    BOTH(p, linear, .x = x.m[s], .weight = w.m[s], .bias = bias.m[s].data, .drop = &none, .y = y.m[s]);
    mat_compare(p, "y of linear", y, 0, 0);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        nm_backend_unregister_weight(p->on[s], packed[s]);
        nm_backend_dealloc(p->on[s], packed[s]);
    }
}
