/* Matrices in both backends of a pair: filled, guarded, compared. */
#include "kernel_pair.h"

static void *alloc_memory(nm_backend *backend, size_t bytes)
{
    nm_error err;
    void *memory;
    if (nm_backend_alloc(backend, bytes, &memory, &err) != NM_OK)
        fail_msg("%s", err.text);
    return memory;
}

/* Sum of four uniform numbers, which is much faster than the Box-Muller transform. */
double pair_normal(pair *p, uint64_t index)
{
    nm_random_words words = nm_random4(p->seed, NM_RANDOM_TEST, 0, 0, index);
    double sum = -2;
    for (int i = 0; i < 4; i++)
        sum += nm_random_unit(words.w[i]);
    return 1.7320508 * sum;
}

static nm_mat pair_view(void *base, size_t first, size_t bytes, int32_t rows, int32_t cols, int32_t stride)
{
    return (nm_mat){(char *)base + first * bytes, rows, cols, stride};
}

static test_mat pair_mat(const pair *p, int block, size_t first, int32_t rows, int32_t cols, int32_t stride)
{
    const pair_block *at = &p->blocks[block];
    return (test_mat){block,
                      first,
                      {pair_view(at->memory[ACTUAL], first, sizeof(float), rows, cols, stride),
                       pair_view(at->memory[EXPECTED], first, sizeof(double), rows, cols, stride)}};
}

static void pair_upload(pair *p, const pair_block *block)
{
    double *wide = nm_allocate(block->n * sizeof *wide);
    for (size_t i = 0; i < block->n; i++)
        wide[i] = (double)block->before[i];
    nm_backend_upload(p->on[ACTUAL], block->memory[ACTUAL], block->before, block->n * sizeof(float));
    nm_backend_upload(p->on[EXPECTED], block->memory[EXPECTED], wide, block->n * sizeof(double));
    free(wide);
}

/* Index of element (row, col) in the block of the matrix. */
static size_t mat_index(test_mat t, int32_t row, int32_t col)
{
    return t.first + (size_t)row * (size_t)t.m[0].stride + (size_t)col;
}

test_mat pair_make(pair *p, int32_t rows, int32_t cols, int32_t gap, double (*make)(pair *p, uint64_t index))
{
    assert_true(p->n_blocks < PAIR_BLOCKS);
    pair_block *block = &p->blocks[p->n_blocks];
    block->n = (size_t)rows * (size_t)(cols + gap) + 2 * PAIR_GUARD;
    block->before = nm_allocate(block->n * sizeof *block->before);
    block->compared = nm_allocate(block->n * sizeof *block->compared);
    block->memory[ACTUAL] = alloc_memory(p->on[ACTUAL], block->n * sizeof(float));
    block->memory[EXPECTED] = alloc_memory(p->on[EXPECTED], block->n * sizeof(double));
    test_mat t = pair_mat(p, p->n_blocks++, PAIR_GUARD, rows, cols, cols + gap);
    p->seed++;
    for (size_t i = 0; i < block->n; i++)
        block->before[i] = PAIR_SENTINEL;
    for (int32_t r = 0; r < rows; r++)
        for (int32_t c = 0; c < cols; c++)
            block->before[mat_index(t, r, c)] = (float)make(p, (uint64_t)r * (uint64_t)cols + (uint64_t)c);
    pair_upload(p, block);
    return t;
}

test_mat pair_random(pair *p, int32_t rows, int32_t cols, int32_t gap)
{
    return pair_make(p, rows, cols, gap, pair_normal);
}

test_mat mat_slice(const pair *p, test_mat t, int32_t first, int32_t cols)
{
    return pair_mat(p, t.block, t.first + (size_t)first, t.m[0].rows, cols, t.m[0].stride);
}

void mat_fill_row(pair *p, test_mat t, int32_t row, float value)
{
    for (int32_t c = 0; c < t.m[0].cols; c++)
        p->blocks[t.block].before[mat_index(t, row, c)] = value;
    pair_upload(p, &p->blocks[t.block]);
}

pair_list pair_list_of(pair *p, const void *data, size_t bytes)
{
    assert_true(p->n_lists < PAIR_LISTS);
    pair_list *list = &p->lists[p->n_lists++];
    for (int s = ACTUAL; s <= EXPECTED; s++) {
        list->memory[s] = alloc_memory(p->on[s], bytes);
        nm_backend_upload(p->on[s], list->memory[s], data, bytes);
    }
    return *list;
}

pair_list pair_ids(pair *p, int32_t n, int32_t below)
{
    int32_t *ids = nm_allocate(((size_t)n + 1) * sizeof *ids);
    p->seed++;
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)nm_random_below(nm_random4(p->seed, NM_RANDOM_TEST, 0, 0, (uint64_t)i).w[0],
                                          (uint32_t)below);
    pair_list list = pair_list_of(p, ids, (size_t)n * sizeof *ids);
    free(ids);
    return list;
}

void pair_mark(pair *p, test_mat t)
{
    for (int32_t r = 0; r < t.m[0].rows; r++)
        for (int32_t c = 0; c < t.m[0].cols; c++)
            p->blocks[t.block].compared[mat_index(t, r, c)] = true;
}

static double row_rms(const double *row, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += isfinite(row[i]) ? row[i] * row[i] : 0;
    return sqrt(sum / (n ? n : 1));
}

static void compare_row(const pair *p, const char *name, int32_t r, int32_t n, const float *actual,
                        const double *expected, double ulps, double size)
{
    double rms = row_rms(expected, n);
    for (int32_t c = 0; c < n; c++) {
        double base = (fmax(fabs(expected[c]), rms) + size) * (p->looser > 0 ? p->looser : 1),
               error = fabs((double)actual[c] - expected[c]);
        bool same = (isnan(expected[c]) && isnan(actual[c])) || (double)actual[c] == expected[c];
        if (!same && !(error <= ulps * (double)FLT_EPSILON * base))
            fail_msg("%s: %s[%d, %d] of %d columns is %.9g, expected %.9g", p->what, name, (int)r, (int)c,
                     (int)n, (double)actual[c], expected[c]);
    }
}

void mat_compare_sized(pair *p, const char *name, test_mat t, double ulps, const double *sizes)
{
    const pair_block *block = &p->blocks[t.block];
    float *actual = nm_allocate(block->n * sizeof *actual);
    double *expected = nm_allocate(block->n * sizeof *expected);
    nm_backend_download(p->on[ACTUAL], actual, block->memory[ACTUAL], block->n * sizeof *actual);
    nm_backend_download(p->on[EXPECTED], expected, block->memory[EXPECTED], block->n * sizeof *expected);
    for (int32_t r = 0; r < t.m[0].rows; r++)
        compare_row(p, name, r, t.m[0].cols, actual + mat_index(t, r, 0), expected + mat_index(t, r, 0), ulps,
                    sizes ? sizes[r] : 0);
    pair_mark(p, t);
    free(actual);
    free(expected);
}

void mat_compare(pair *p, const char *name, test_mat t, double ulps, double size)
{
    double *sizes = nm_allocate(((size_t)t.m[0].rows + 1) * sizeof *sizes);
    for (int32_t r = 0; r < t.m[0].rows; r++)
        sizes[r] = size;
    mat_compare_sized(p, name, t, ulps, sizes);
    free(sizes);
}

void pair_compare_sums(pair *p, double *const sums[2], int32_t tokens)
{
    double actual[2], expected[2];
    nm_backend_download(p->on[ACTUAL], actual, sums[ACTUAL], sizeof actual);
    nm_backend_download(p->on[EXPECTED], expected, sums[EXPECTED], sizeof expected);
    for (int i = 0; i < 2; i++)
        if (!(fabs(actual[i] - expected[i]) <= 16 * (double)FLT_EPSILON * (fabs(expected[i]) + tokens)))
            fail_msg("%s: sum %d is %.9g, expected %.9g", p->what, i, actual[i], expected[i]);
    p->hash = XXH64(actual, sizeof actual, p->hash);
}

double *mat_expected(pair *p, test_mat t)
{
    const pair_block *block = &p->blocks[t.block];
    double *all = nm_allocate(block->n * sizeof *all),
           *out = nm_allocate((size_t)t.m[0].rows * (size_t)t.m[0].cols * sizeof *out);
    nm_backend_download(p->on[EXPECTED], all, block->memory[EXPECTED], block->n * sizeof *all);
    for (int32_t r = 0; r < t.m[0].rows; r++)
        memcpy(out + (size_t)r * (size_t)t.m[0].cols, all + mat_index(t, r, 0),
               (size_t)t.m[0].cols * sizeof *out);
    free(all);
    return out;
}

void pair_close(pair *p)
{
    for (int i = 0; i < p->n_blocks; i++) {
        pair_block *block = &p->blocks[i];
        float *after = nm_allocate(block->n * sizeof *after);
        nm_backend_download(p->on[ACTUAL], after, block->memory[ACTUAL], block->n * sizeof *after);
        for (size_t j = 0; j < block->n; j++)
            if (!block->compared[j] && memcmp(&after[j], &block->before[j], sizeof(float)) != 0)
                fail_msg("%s: element %zu of matrix %d was written (%g)", p->what, j, i, (double)after[j]);
        p->hash = XXH64(after, block->n * sizeof *after, p->hash);
        for (int s = ACTUAL; s <= EXPECTED; s++)
            nm_backend_dealloc(p->on[s], block->memory[s]);
        free(after);
        free(block->before);
        free(block->compared);
    }
    for (int i = 0; i < p->n_lists; i++) {
        for (int s = ACTUAL; s <= EXPECTED; s++)
            nm_backend_dealloc(p->on[s], p->lists[i].memory[s]);
    }
    p->n_blocks = p->n_lists = 0;
}
