/* Norms of tokens and of features: values, statistics, gradients. */
#include "kernel_checks.h"

enum { PART = 1 }; /* n_used: two thirds of a group */

static const nm_token_norm token_kinds[] = {{.kind = NM_TOKEN_CENTER},
                                            {.kind = NM_TOKEN_CENTER_UNBIASED},
                                            {.kind = NM_TOKEN_RMS},
                                            {.kind = NM_TOKEN_RMS_OUTSIDE},
                                            {.kind = NM_TOKEN_L2},
                                            {.kind = NM_TOKEN_CENTER_OUTSIDE},
                                            {.kind = NM_TOKEN_RMS, .n_used = PART},
                                            {.kind = NM_TOKEN_RMS_OUTSIDE, .n_used = PART},
                                            {.kind = NM_TOKEN_L2, .n_used = PART, .power = 1.5},
                                            {.kind = NM_TOKEN_L2, .power = 0.5},
                                            {.kind = NM_TOKEN_CENTER, .ada_c = 1.3, .ada_k = 0.1},
                                            {.kind = NM_TOKEN_CENTER_OUTSIDE, .ada_c = 0.8, .ada_k = 0.3}};
enum { N_TOKEN_KINDS = sizeof token_kinds / sizeof *token_kinds };

typedef struct token_inputs {
    nm_token_norm spec;
    test_mat x, weight, bias, y, shift, scale;
} token_inputs;

/* 1 to 12 groups: fewer than a kernel computes together, as many, and more. */
static int32_t token_groups(int variant, int32_t cols)
{
    if (variant >= N_TOKEN_KINDS || cols < 14 || heads_for(cols) == 4)
        return 1;
    return cols == 600 ? (variant % 2 ? 8 : 12) : heads_for(cols);
}

/* Variants 0 .. 2 N_TOKEN_KINDS - 1: every kind with weights of length d, groups and no bias; with a
 * scalar weight and bias. In matrices of three rows and more the second row is zero, and in the third all
 * features are 3.3: sums about 0 are not accurate enough for their variance. AdaNorm has no weight and no
 * bias. */
static void token_init(pair *p, token_inputs *in, int variant, size z)
{
    bool single = variant >= N_TOKEN_KINDS;
    nm_token_norm *spec = &in->spec;
    *spec = token_kinds[variant % N_TOKEN_KINDS];
    int32_t groups = spec->groups = token_groups(variant, z.cols), width = z.cols / groups;
    spec->eps = single ? 0.1 : spec->kind == NM_TOKEN_RMS_OUTSIDE ? 1e-8 : 1e-5;
    spec->n_used = spec->n_used ? (2 * width + 2) / 3 : 0;
    if (!(spec->ada_c > 0)) {
        spec->weight_len = single ? 1 : z.cols;
        spec->bias_len = single ? 0 : z.cols;
    }
    in->x = pair_make(p, z.rows, z.cols, z.gap, shifted);
    if (z.rows > 2) {
        mat_fill_row(p, in->x, 1, 0);
        mat_fill_row(p, in->x, 2, 3.3f);
    }
    in->weight = random_vector(p, z.cols);
    in->bias = random_vector(p, z.cols);
    in->y = pair_random(p, z.rows, z.cols, z.gap);
    in->shift = pair_random(p, z.rows, groups, 0);
    in->scale = pair_random(p, z.rows, groups, 0);
}

static void token_forward(pair *p, const token_inputs *in)
{
    BOTH(p, token_norm, .spec = &in->spec, .x = in->x.m[s], .weight = in->weight.m[s].data,
         .bias = in->bias.m[s].data, .y = in->y.m[s],
         .shift = nm_token_norm_centers(in->spec.kind) ? in->shift.m[s].data : NULL,
         .scale = in->scale.m[s].data);
}

/* Largest |scale| of every row. An error in the last place of x is one of `scale` times this size in y; in
 * the gradient, `scale` is the magnitude of the terms before they cancel. */
static double *row_scales(pair *p, const token_inputs *in)
{
    int32_t rows = in->scale.m[0].rows, groups = in->scale.m[0].cols;
    double *scales = mat_expected(p, in->scale), *largest = nm_allocate((size_t)rows * sizeof *largest);
    for (int32_t i = 0; i < rows * groups; i++)
        largest[i / groups] = fmax(largest[i / groups], fabs(scales[i]));
    free(scales);
    return largest;
}

void check_token_norm(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_TOKEN_KINDS; variant++) {
        token_inputs in;
        token_init(p, &in, variant, z);
        token_forward(p, &in);
        double *sizes = row_scales(p, &in); /* large for a row of two features that are nearly equal */
        for (int32_t r = 0; r < z.rows; r++)
            sizes[r] = fmax(sizes[r], 1);
        mat_compare_sized(p, "y", in.y, 64, sizes);
        free(sizes);
        mat_compare(p, "scale", in.scale, 64, 0);
        if (nm_token_norm_centers(in.spec.kind))
            mat_compare(p, "shift", in.shift, 32, 1);
        pair_close(p);
    }
}

void check_token_norm_grad(pair *p, size z)
{
    for (int variant = 0; variant < 2 * N_TOKEN_KINDS; variant++) {
        token_inputs in;
        token_init(p, &in, variant, z);
        test_mat dy = pair_random(p, z.rows, z.cols, z.gap), dx = pair_random(p, z.rows, z.cols, z.gap);
        test_mat d_weight = random_vector(p, in.spec.weight_len), d_bias = random_vector(p, z.cols);
        token_forward(p, &in);
        BOTH(p, token_norm_grad, .spec = &in.spec, .dy = dy.m[s], .x = in.x.m[s],
             .weight = in.weight.m[s].data,
             .shift = nm_token_norm_centers(in.spec.kind) ? in.shift.m[s].data : NULL,
             .scale = in.scale.m[s].data, .add = variant % 2 == 1, .dx = dx.m[s],
             .d_weight = variant == 0 ? NULL : d_weight.m[s].data,
             .d_bias = in.spec.bias_len ? d_bias.m[s].data : NULL);
        double *sizes = row_scales(p, &in);
        mat_compare_sized(p, "dx", dx, 64, sizes);
        if (variant != 0 && in.spec.weight_len)
            mat_compare(p, "d_weight", d_weight, 32, sqrt(z.rows * (in.spec.weight_len == 1 ? z.cols : 1)));
        if (in.spec.bias_len)
            mat_compare(p, "d_bias", d_bias, 8, sqrt(z.rows));
        pair_mark(p, in.y);
        pair_mark(p, in.shift);
        pair_mark(p, in.scale);
        free(sizes);
        pair_close(p);
    }
}

typedef struct seed_inputs {
    test_mat x, weight, alpha, beta, y, scale, gate;
} seed_inputs;

/* Small beta: |x . beta| is about 1, so that tanh is not saturated. */
static void seed_forward(pair *p, seed_inputs *in, size z)
{
    *in = (seed_inputs){.x = pair_make(p, z.rows, z.cols, z.gap, shifted),
                        .weight = random_vector(p, z.cols),
                        .alpha = random_vector(p, z.cols),
                        .beta = pair_make(p, 1, z.cols, 0, small),
                        .y = pair_random(p, z.rows, z.cols, z.gap),
                        .scale = pair_random(p, z.rows, 1, 0),
                        .gate = pair_random(p, z.rows, 1, 0)};
    if (z.rows > 2)
        mat_fill_row(p, in->x, 1, 0);
    BOTH(p, seed_norm, .x = in->x.m[s], .eps = 1e-5, .weight = in->weight.m[s].data,
         .alpha = in->alpha.m[s].data, .beta = in->beta.m[s].data, .y = in->y.m[s],
         .scale = in->scale.m[s].data, .gate = in->gate.m[s].data);
}

void check_seed_norm(pair *p, size z)
{
    seed_inputs in;
    seed_forward(p, &in, z);
    mat_compare(p, "y", in.y, 64, 1);
    mat_compare(p, "scale", in.scale, 64, 0);
    mat_compare(p, "gate", in.gate, 16, 0.1 * sqrt(z.cols)); /* terms x beta that cancel */
    pair_close(p);
}

void check_seed_norm_grad(pair *p, size z)
{
    for (int variant = 0; variant < 3; variant++) {
        seed_inputs in;
        seed_forward(p, &in, z);
        test_mat dy = pair_random(p, z.rows, z.cols, z.gap), dx = pair_random(p, z.rows, z.cols, z.gap);
        test_mat d_weight = random_vector(p, z.cols), d_alpha = random_vector(p, z.cols),
                 d_beta = random_vector(p, z.cols);
        BOTH(p, seed_norm_grad, .dy = dy.m[s], .x = in.x.m[s], .weight = in.weight.m[s].data,
             .alpha = in.alpha.m[s].data, .beta = in.beta.m[s].data, .scale = in.scale.m[s].data,
             .gate = in.gate.m[s].data, .add = variant == 1, .dx = dx.m[s],
             .d_weight = variant == 2 ? NULL : d_weight.m[s].data,
             .d_alpha = variant == 2 ? NULL : d_alpha.m[s].data,
             .d_beta = variant == 2 ? NULL : d_beta.m[s].data);
        double *sizes = mat_expected(p, in.scale), rows = sqrt(z.rows);
        mat_compare_sized(p, "dx", dx, 64, sizes);
        if (variant != 2) {
            mat_compare(p, "d_weight", d_weight, 32, rows);
            mat_compare(p, "d_alpha", d_alpha, 32, rows);
            mat_compare(p, "d_beta", d_beta, 32, rows * sqrt(z.cols));
        }
        pair_mark(p, in.y);
        pair_mark(p, in.scale);
        pair_mark(p, in.gate);
        free(sizes);
        pair_close(p);
    }
}

/* Feature norms without groups, with one group, and with as many groups as heads. */
static int32_t group_choice(int i, int32_t cols)
{
    return i == 0 ? 0 : i == 1 ? 1 : heads_for(cols);
}

void check_feature_moments(pair *p, size z)
{
    for (int i = 0; i < 9; i++) {
        nm_feature_norm spec = {.groups = group_choice(i % 3, z.cols), .eps = 1e-5};
        test_mat x = pair_make(p, z.rows, z.cols, z.gap, shifted), center = random_vector(p, z.cols);
        test_mat row_scale = pair_random(p, z.rows, spec.groups ? spec.groups : 1, 0);
        test_mat mean = random_vector(p, z.cols), square = random_vector(p, z.cols);
        bool about_mean = i / 3 == 0, no_mean = i / 3 == 1;
        BOTH(p, feature_moments, .spec = &spec, .x = x.m[s],
             .row_scale = spec.groups ? row_scale.m[s].data : NULL,
             .center = about_mean ? mean.m[s].data
                       : no_mean  ? NULL
                                  : center.m[s].data,
             .mean = no_mean ? NULL : mean.m[s].data, .square = square.m[s].data);
        if (!no_mean)
            mat_compare(p, "mean", mean, 16, 1);
        mat_compare(p, "square", square, 32, 1);
        if (spec.groups)
            mat_compare(p, "row_scale", row_scale, 32, 0);
        pair_close(p);
    }
}

void check_feature_norm(pair *p, size z)
{
    for (int i = 0; i < 12; i++) {
        nm_feature_norm spec = {
            .groups = group_choice(i % 3, z.cols), .eps = 1e-5, .row_scale_ready = i % 6 >= 3};
        const bool relu = i >= 6, squares = i % 2 && !relu;
        test_mat x = pair_make(p, z.rows, z.cols, z.gap, shifted);
        test_mat row_scale = pair_make(p, z.rows, spec.groups ? spec.groups : 1, 0, positive);
        test_mat shift = random_vector(p, z.cols), scale = pair_make(p, 1, z.cols, 0, positive);
        test_mat weight = random_vector(p, z.cols), bias = random_vector(p, z.cols),
                 square = random_vector(p, z.cols);
        test_mat y = pair_random(p, z.rows, z.cols, z.gap), added = pair_random(p, z.rows, z.cols, z.gap);
        BOTH(p, feature_norm, .spec = &spec, .x = x.m[s],
             .row_scale = spec.groups ? row_scale.m[s].data : NULL, .shift = i % 2 ? shift.m[s].data : NULL,
             .scale = scale.m[s].data, .weight = i == 2 ? NULL : weight.m[s].data,
             .bias = i == 4 ? NULL : bias.m[s].data, .relu = relu,
             .added = i >= 8 ? added.m[s] : (nm_mat){NULL, 0, 0, 0}, .y = y.m[s],
             .square = squares ? square.m[s].data : NULL);
        mat_compare(p, "y", y, 64, 2);
        if (squares)
            mat_compare(p, "square", square, 32, 1);
        if (spec.groups && !spec.row_scale_ready)
            mat_compare(p, "row_scale", row_scale, 32, 0);
        pair_close(p);
    }
}

void check_feature_norm_grad(pair *p, size z)
{
    for (int i = 0; i < 12; i++) {
        nm_feature_norm spec = {.groups = group_choice(i % 3, z.cols), .eps = 1e-5, .row_scale_ready = true};
        bool relu = i >= 9, only_sums = i / 3 == 0 || relu, only_dx = i / 3 == 1;
        test_mat dy = pair_random(p, z.rows, z.cols, z.gap), x = pair_make(p, z.rows, z.cols, z.gap, shifted);
        test_mat row_scale = pair_make(p, z.rows, spec.groups ? spec.groups : 1, 0, positive);
        test_mat shift = random_vector(p, z.cols), scale = pair_make(p, 1, z.cols, 0, positive);
        test_mat a = random_vector(p, z.cols), c0 = random_vector(p, z.cols), c1 = random_vector(p, z.cols);
        test_mat sum_dy = random_vector(p, z.cols), sum_dy_z = random_vector(p, z.cols);
        test_mat dx = pair_random(p, z.rows, z.cols, z.gap);
        test_mat y = pair_random(p, z.rows, z.cols, z.gap);
        nm_mat no_matrix = {NULL, 0, 0, 0};
        BOTH(p, feature_norm_grad, .spec = &spec, .dy = dy.m[s], .x = x.m[s],
             .relu = relu ? y.m[s] : no_matrix, .row_scale = spec.groups ? row_scale.m[s].data : NULL,
             .shift = i == 4 ? NULL : shift.m[s].data, .scale = scale.m[s].data, .a = a.m[s].data,
             .c0 = i % 2 ? c0.m[s].data : NULL, .c1 = i % 2 ? c1.m[s].data : NULL, .add = i > 6,
             .dx = only_sums ? no_matrix : dx.m[s], .sum_dy = only_dx ? NULL : sum_dy.m[s].data,
             .sum_dy_z = only_dx ? NULL : sum_dy_z.m[s].data);
        if (relu)
            mat_compare(p, "dy", dy, 0, 0);
        if (!only_sums)
            mat_compare(p, "dx", dx, 64, 8);
        if (!only_dx) {
            mat_compare(p, "sum_dy", sum_dy, 8, sqrt(z.rows));
            mat_compare(p, "sum_dy_z", sum_dy_z, 32, 2 * sqrt(z.rows));
        }
        pair_close(p);
    }
}
