/* Copies, elementwise kernels and embeddings, rotary position embeddings. */
#include "kernel_checks.h"

void check_upload(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, z.gap);
    mat_compare(p, "x", x, 0, 0);
}

void check_download(pair *p, size z)
{
    check_upload(p, z); /* upload and download can only be checked together */
}

void check_copy(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, 0), y = pair_random(p, z.rows, z.cols, 0);
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        size_t bytes = (size_t)z.rows * (size_t)z.cols * nm_dtype_bytes(p->on[s]->dtype);
        nm_backend_copy(p->on[s], y.m[s].data, x.m[s].data, bytes);
    }
    mat_compare(p, "copy", y, 0, 0);
}

void check_zero(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, 0);
    for (int s = ACTUAL; s <= EXPECTED; s++)
        nm_backend_zero(p->on[s], x.m[s].data,
                        (size_t)z.rows * (size_t)z.cols * nm_dtype_bytes(p->on[s]->dtype));
    mat_compare(p, "zeros", x, 0, 0);
}

void check_scale(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    BOTH(p, scale, .alpha = -1.7, .x = x.m[s], .y = y.m[s]);
    const double factor = 0.4;
    pair_list factors = pair_list_of(p, &factor, sizeof factor);
    BOTH(p, scale, .alpha = 0.3, .factor = factors.memory[s], .x = x.m[s], .y = x.m[s]);
    mat_compare(p, "y", y, 2, 0);
    mat_compare(p, "x in place", x, 2, 0);
}

void check_add(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    const double factor = -0.6;
    pair_list factors = pair_list_of(p, &factor, sizeof factor);
    BOTH(p, add, .alpha = 0.7, .x = x.m[s], .y = y.m[s]);
    BOTH(p, add, .alpha = 0.5, .factor = factors.memory[s], .x = x.m[s], .y = y.m[s]);
    mat_compare(p, "y", y, 4, 1);
}

void check_add_dropout(pair *p, size z)
{
    for (int variant = 0; variant < N_DROPS; variant++) {
        test_mat x = pair_random(p, z.rows, z.cols, z.gap), f = pair_random(p, z.rows, z.cols, 0);
        test_mat y = variant == 1 ? x : pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, add_dropout, .x = x.m[s], .f = f.m[s], .drop = drops[variant], .y = y.m[s]);
        mat_compare(p, "y", y, 4, 1);
    }
}

void check_dropout(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_DROPS; variant++) {
        test_mat x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, dropout, .x = x.m[s], .drop = drops[variant % N_DROPS], .add = variant < N_DROPS,
             .y = y.m[s]);
        mat_compare(p, "y", y, 4, 1);
    }
}

void check_embed(pair *p, size z)
{
    enum { WORDS = 11, POSITIONS = 5 };
    for (int variant = 0; variant < N_DROPS; variant++) {
        pair_list ids = pair_ids(p, z.rows, WORDS), pos = pair_ids(p, z.rows, POSITIONS);
        test_mat table = pair_random(p, WORDS, z.cols, 0), positions = pair_random(p, POSITIONS, z.cols, 0);
        test_mat out = pair_random(p, z.rows, z.cols, z.gap);
        nm_mat no_positions = {NULL, 0, 0, 0};
        BOTH(p, embed, .ids = ids.memory[s], .pos = variant == 1 ? NULL : pos.memory[s], .scale = 3.25,
             .table = table.m[s], .positions = variant == 1 ? no_positions : positions.m[s],
             .drop = drops[variant], .out = out.m[s]);
        mat_compare(p, "out", out, 4, 1);
    }
}

void check_embed_grad(pair *p, size z)
{
    enum { WORDS = 11 };
    for (int variant = 0; variant < N_DROPS; variant++) {
        pair_list ids = pair_ids(p, z.rows, variant == 2 ? 1 : WORDS);
        test_mat dout = pair_random(p, z.rows, z.cols, z.gap), dtable = pair_random(p, WORDS, z.cols, 0);
        BOTH(p, embed_grad, .ids = ids.memory[s], .scale = 3.25, .dout = dout.m[s], .drop = drops[variant],
             .dtable = dtable.m[s]);
        mat_compare(p, "dtable", dtable, sum_ulps(z.rows), 4);
    }
}

void check_gather(pair *p, size z)
{
    test_mat x = pair_random(p, 9, z.cols, z.gap), out = pair_random(p, z.rows, z.cols, 0);
    pair_list rows = pair_ids(p, z.rows, 9);
    BOTH(p, gather, .rows = rows.memory[s], .x = x.m[s], .out = out.m[s]);
    mat_compare(p, "out", out, 0, 0);
}

/* Both layouts of pairs and both directions. Heads of an even width: without a gap, several whose x and y are
 * views of columns of a wider matrix; with a gap, one, in place. */
void check_rotate(pair *p, size z)
{
    enum { POSITIONS = 5, BEFORE = 3 };
    const int32_t heads = z.gap ? 1 : 3, width = z.cols + z.cols % 2, cols = heads * width;
    for (int variant = 0; variant < 4; variant++) {
        pair_list positions = pair_ids(p, z.rows, POSITIONS);
        test_mat table = pair_random(p, POSITIONS, width, z.gap);
        test_mat x = mat_slice(p, pair_random(p, z.rows, cols + BEFORE, 0), BEFORE, cols);
        test_mat y = z.gap ? x : mat_slice(p, pair_random(p, z.rows, cols + BEFORE, 0), 1, cols);
        BOTH(p, rotate, .x = x.m[s], .table = table.m[s], .positions = positions.memory[s], .heads = heads,
             .interleaved = variant & 1, .inverse = variant & 2, .y = y.m[s]);
        mat_compare(p, "y", y, 4, 4);
    }
}

/* Rounding must be exact, also for numbers that random matrices do not contain. */
static double special(pair *p, uint64_t index)
{
    static const float values[] = {0,       -0.0f,     FLT_MIN,     -FLT_MIN / 2, 0x1.fffffep-127f,
                                   FLT_MAX, -INFINITY, 1.00390625f, 1.01171875f};
    return index % 3 ? pair_normal(p, index) : (double)values[index / 3 % 9];
}

/* Memory for the bf16 numbers of a matrix. */
static pair_list bf16_list(pair *p, size z)
{
    size_t bytes = (size_t)z.rows * (size_t)z.cols * sizeof(uint16_t);
    uint16_t *zeros = nm_allocate(bytes + 1);
    pair_list list = pair_list_of(p, zeros, bytes);
    free(zeros);
    return list;
}

void check_store_bf16(pair *p, size z)
{
    test_mat x = pair_make(p, z.rows, z.cols, z.gap, special);
    pair_list y = bf16_list(p, z);
    BOTH(p, store_bf16, .x = x.m[s], .y = y.memory[s]);
    size_t bytes = (size_t)z.rows * (size_t)z.cols * sizeof(uint16_t);
    char *numbers[] = {nm_allocate(bytes + 1), nm_allocate(bytes + 1)};
    for (int s = ACTUAL; s <= EXPECTED; s++)
        nm_backend_download(p->on[s], numbers[s], y.memory[s], bytes);
    assert_memory_equal(numbers[ACTUAL], numbers[EXPECTED], bytes);
    free(numbers[ACTUAL]);
    free(numbers[EXPECTED]);
}

void check_load_bf16(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, 0), out = pair_random(p, z.rows, z.cols, z.gap);
    pair_list y = bf16_list(p, z);
    BOTH(p, store_bf16, .x = x.m[s], .y = y.memory[s]);
    BOTH(p, load_bf16, .x = y.memory[s], .y = out.m[s]);
    mat_compare(p, "out", out, 0, 0);
}
