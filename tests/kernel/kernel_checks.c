/* Inputs, sizes and tolerances shared by the checks. */
#include "kernel_checks.h"

const kernel_check kernel_checks[N_KERNEL_CHECKS] = {
#define K(name) {#name, check_##name},
    NM_KERNELS(K)
#undef K
};

const nm_dropout third = {0.3, 7, 5, 9}, none = {0, 7, 5, 9};
const nm_dropout *const drops[N_DROPS] = {&third, NULL, &none};

const size hash_sizes[N_HASH_SIZES] = {{1, 7, 0}, {2, 16, 3}, {17, 129, 3}, {130, 64, 0}, {3, 600, 0}};

double bf16_tolerance(const char *row)
{
    static const struct {
        const char *name;
        double tolerance;
    } rows[] = {{"attention", 0x1p11},           {"attention_grad", 0x1p11},       {"convolve", 0x1p15},
                {"convolve_grad_input", 0x1p15}, {"convolve_grad_weight", 0x1p15}, {"linear", 0x1p15},
                {"linear_grad_input", 0x1p15},   {"linear_grad_weight", 0x1p15}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].name, row))
            return rows[i].tolerance;
    return 0;
}

double sum_ulps(int32_t n)
{
    return 16 + 2 * sqrt(n);
}

int32_t other_width(int32_t cols)
{
    return cols > 64 ? 33 : cols * 2 + 1;
}

int32_t heads_for(int32_t cols)
{
    static const int32_t heads[][2] = {{1, 1}, {7, 7}, {16, 4}, {64, 4}, {129, 3}, {512, 8}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        if (heads[i][0] == cols)
            return heads[i][1];
    return 1;
}

double positive(pair *p, uint64_t index)
{
    return fabs(pair_normal(p, index)) + 0.5;
}

double coarse(pair *p, uint64_t index)
{
    return round(4 * pair_normal(p, index)) / 4;
}

double shifted(pair *p, uint64_t index)
{
    return pair_normal(p, index) + 0.5;
}

double small(pair *p, uint64_t index)
{
    return 0.1 * pair_normal(p, index);
}

test_mat random_vector(pair *p, int32_t n)
{
    return pair_random(p, 1, n, 0);
}

void packing_init(pair *p, test_packing *packing, int32_t n_seqs, int32_t first_length, int32_t tokens)
{
    packing->offsets[0] = 0;
    for (int32_t s = 0; s < n_seqs; s++)
        packing->offsets[s + 1] = s + 1 == n_seqs ? tokens : (s + 1) * first_length;
    pair_list list = pair_list_of(p, packing->offsets, ((size_t)n_seqs + 1) * sizeof(int32_t));
    int32_t last = tokens - (n_seqs - 1) * first_length;
    for (int s = ACTUAL; s <= EXPECTED; s++)
        packing->side[s] = (nm_packing){n_seqs, tokens, last > first_length ? last : first_length,
                                        packing->offsets, list.memory[s]};
}
