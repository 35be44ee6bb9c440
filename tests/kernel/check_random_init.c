/* Random initialization. */
#include "kernel_checks.h"

void check_random_init(pair *p, size z)
{
    static const nm_init inits[] = {{NM_INIT_CONSTANT, 0.3},
                                    {NM_INIT_NORMAL, 0.02},
                                    {NM_INIT_UNIFORM, 0.7},
                                    {NM_INIT_NORMAL_MEAN_ONE, 0.02}};
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        test_mat out = pair_random(p, z.rows, z.cols, 0);
        size_t n = (size_t)z.rows * (size_t)z.cols;
        BOTH(p, random_init, .init = inits[i], .seed = UINT64_C(0x9876543210) + i, .site = (1u << 24) - 5,
             .n = n, .out = out.m[s].data);
        /* the reference is in double: the float may be the adjacent one */
        mat_compare_sized(p, "out", out, 0.5, NULL);
        pair_close(p);
    }
}
