/* Launches of normalizations. */
#include <float.h>

#include "backend/device/launch.h"

static const double LARGEST_SQUARE = (double)FLT_MAX / 2;

_Static_assert((int)TOKEN_CENTER_UNBIASED == (int)NM_TOKEN_CENTER_UNBIASED &&
                   (int)TOKEN_RMS == (int)NM_TOKEN_RMS &&
                   (int)TOKEN_RMS_OUTSIDE == (int)NM_TOKEN_RMS_OUTSIDE && (int)TOKEN_L2 == (int)NM_TOKEN_L2 &&
                   (int)TOKEN_CENTER_OUTSIDE == (int)NM_TOKEN_CENTER_OUTSIDE,
               "kinds of token norms");

static void check_token_norm(const nm_token_norm *spec, nm_mat x)
{
    NM_ASSERT(spec->groups > 0 && x.cols % spec->groups == 0 && spec->n_used <= x.cols / spec->groups);
    NM_ASSERT(spec->weight_len <= 1 || spec->weight_len == x.cols);
    NM_ASSERT(spec->bias_len <= 1 || spec->bias_len == x.cols);
}

void nm_launch_token_norm(nm_backend *b, const nm_token_norm_args *args)
{
    const nm_token_norm *spec = args->spec;
    const nm_mat x = args->x;
    check_token_norm(spec, x);
    NM_ASSERT(nm_device_same_shape(x, args->y));
    const double group = x.cols / spec->groups;
    LAUNCH(b, token_norm, nm_device_blocks((int64_t)x.rows * spec->groups, ROW_WARPS), 1,
           .x = nm_device_mat(x), MAT(y), ADDRESS(weight), ADDRESS(bias), ADDRESS(shift), ADDRESS(scale),
           .sum = nm_device_sum(args->sum), .eps = (float)spec->eps,
           .power_factor = (float)pow(group, spec->power / 2), .ada_c = (float)spec->ada_c,
           .ada_k = (float)spec->ada_k, .kind = (int)spec->kind, .groups = spec->groups,
           .n_used = spec->n_used, .weight_len = spec->weight_len, .bias_len = spec->bias_len);
}

void nm_launch_token_norm_grad(nm_backend *b, const nm_token_norm_grad_args *args)
{
    enum { PLANES = 2 };
    const nm_token_norm *spec = args->spec;
    const nm_mat x = args->x;
    check_token_norm(spec, x);
    NM_ASSERT(nm_device_same_shape(x, args->dy) && nm_device_same_shape(x, args->dx));
    const bool sums = (args->d_weight && spec->weight_len) || (args->d_bias && spec->bias_len);
    const dptr partial = sums ? nm_device_warp_partials(b, x, PLANES) : 0;
    const double group = x.cols / spec->groups;
    LAUNCH(b, token_norm_grad, nm_device_blocks(x.rows, ROWS_PER_PARTIAL), 1, MAT(dy), .x = nm_device_mat(x),
           MAT(dx), ADDRESS(weight), ADDRESS(shift), ADDRESS(scale), .partial = partial,
           .residual = nm_device_residual(args->residual), .eps = (float)spec->eps,
           .power_factor = (float)pow(group, -spec->power), .ada_c = (float)spec->ada_c,
           .ada_k = (float)spec->ada_k, .kind = (int)spec->kind, .groups = spec->groups,
           .n_used = spec->n_used, .weight_len = spec->weight_len, .add = args->add);
    nm_device_add_plane(b, partial, x, PLANES, 0, spec->weight_len, args->d_weight);
    nm_device_add_plane(b, partial, x, PLANES, 1, spec->bias_len, args->d_bias);
}

void nm_launch_seed_norm(nm_backend *b, const nm_seed_norm_args *args)
{
    NM_ASSERT(nm_device_same_shape(args->x, args->y));
    LAUNCH(b, seed_norm, nm_device_blocks(args->x.rows, ROW_WARPS), 1, MAT(x), MAT(y), ADDRESS(weight),
           ADDRESS(alpha), ADDRESS(beta), ADDRESS(scale), ADDRESS(gate), .sum = nm_device_sum(args->sum),
           .eps = (float)args->eps);
}

void nm_launch_seed_norm_grad(nm_backend *b, const nm_seed_norm_grad_args *args)
{
    enum { PLANES = 3 };
    const nm_mat x = args->x;
    NM_ASSERT(nm_device_same_shape(x, args->dy) && nm_device_same_shape(x, args->dx));
    const bool sums = args->d_weight || args->d_alpha || args->d_beta;
    const dptr partial = sums ? nm_device_warp_partials(b, x, PLANES) : 0;
    LAUNCH(b, seed_norm_grad, nm_device_blocks(x.rows, ROWS_PER_PARTIAL), 1, MAT(dy), .x = nm_device_mat(x),
           MAT(dx), ADDRESS(weight), ADDRESS(alpha), ADDRESS(beta), ADDRESS(scale), ADDRESS(gate),
           .partial = partial, .residual = nm_device_residual(args->residual), .add = args->add);
    nm_device_add_plane(b, partial, x, PLANES, 0, x.cols, args->d_weight);
    nm_device_add_plane(b, partial, x, PLANES, 1, x.cols, args->d_alpha);
    nm_device_add_plane(b, partial, x, PLANES, 2, x.cols, args->d_beta);
}

/* The residual sum and the row scales, before statistics and normalization */
static void prepare_rows(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale)
{
    NM_ASSERT(spec->groups >= 0 && (spec->groups == 0 || (x.cols % spec->groups == 0 && row_scale)));
    if (spec->row_scale_ready)
        return;
    if (spec->sum)
        NM_CALL(b, add_dropout, .x = spec->sum->stream, .f = spec->sum->f, .drop = spec->sum->drop, .y = x);
    if (spec->groups)
        LAUNCH(b, row_scale, nm_device_blocks((int64_t)x.rows * spec->groups, ROW_WARPS), 1,
               .x = nm_device_mat(x), .row_scale = nm_device_address(row_scale), .eps = (float)spec->eps,
               .groups = spec->groups);
}

/* Both sums of feature_sums in blocks of rows; add to vectors with the function below. */
static dptr feature_partials(nm_backend *b, const nm_feature_norm *spec, nm_mat x, nm_mat dy,
                             const void *row_scale, const void *shift, const void *scale)
{
    const int64_t blocks = nm_device_blocks(x.rows, ROWS_PER_PARTIAL);
    dptr partial =
        nm_device_scratch(b, NM_DEVICE_PARTIALS, (size_t)blocks * 2 * (size_t)x.cols * sizeof(float));
    LAUNCH(b, feature_sums, blocks, nm_device_blocks(x.cols, 32), .x = nm_device_mat(x),
           .dy = nm_device_mat(dy), .row_scale = nm_device_address(row_scale),
           .shift = nm_device_address(shift), .scale = nm_device_address(scale), .partial = partial,
           .groups = spec->groups);
    return partial;
}

/* out = factor times the sums of a plane, unless out is NULL */
/* largest: limit of the stored values; 0: none */
static void store_plane(nm_backend *b, dptr partial, nm_mat x, int plane, double factor, double largest,
                        void *out)
{
    if (out)
        LAUNCH(b, column_total, nm_device_blocks(x.cols, 128), 1,
               .partial = partial + (dptr)plane * (dptr)x.cols * sizeof(float), .out = nm_device_address(out),
               .factor = factor, .largest = largest, .stride = 2 * (int64_t)x.cols,
               .blocks = (int)nm_device_blocks(x.rows, ROWS_PER_PARTIAL), .cols = x.cols);
}

void nm_launch_feature_moments(nm_backend *b, const nm_feature_moments_args *args)
{
    const nm_mat x = args->x, none = {0};
    prepare_rows(b, args->spec, x, args->row_scale);
    const bool about_mean = args->center && args->center == args->mean;
    if (args->mean) {
        dptr partial =
            feature_partials(b, args->spec, x, none, args->row_scale, about_mean ? NULL : args->center, NULL);
        store_plane(b, partial, x, 0, 1.0 / x.rows, 0, args->mean);
        if (!about_mean)
            store_plane(b, partial, x, 1, 1.0 / x.rows, LARGEST_SQUARE, args->square);
    }
    if (args->square && (about_mean || !args->mean)) {
        dptr partial = feature_partials(b, args->spec, x, none, args->row_scale, args->center, NULL);
        store_plane(b, partial, x, 1, 1.0 / x.rows, LARGEST_SQUARE, args->square);
    }
}

void nm_launch_feature_norm(nm_backend *b, const nm_feature_norm_args *args)
{
    const nm_mat x = args->x, none = {0};
    prepare_rows(b, args->spec, x, args->row_scale);
    NM_ASSERT(nm_device_same_shape(x, args->y));
    if (args->square) {
        dptr partial = feature_partials(b, args->spec, x, none, args->row_scale, NULL, NULL);
        store_plane(b, partial, x, 1, 1.0 / x.rows, LARGEST_SQUARE, args->square);
    }
    LAUNCH(b, feature_norm, nm_device_elements(x), 1, .x = nm_device_mat(x), MAT(y), ADDRESS(row_scale),
           ADDRESS(shift), ADDRESS(scale), ADDRESS(weight), ADDRESS(bias), .groups = args->spec->groups);
    if (args->added.data)
        NM_CALL(b, add, .alpha = 1, .x = args->added, .y = args->y);
    if (args->relu)
        NM_CALL(b, map, .op = NM_MAP_RELU, .x = args->y, .y = args->y);
}

void nm_launch_feature_norm_grad(nm_backend *b, const nm_feature_norm_grad_args *args)
{
    const nm_mat x = args->x, dx = args->dx;
    NM_ASSERT(nm_device_same_shape(x, args->dy) && (!dx.data || nm_device_same_shape(x, dx)));
    const int32_t groups = args->spec->groups;
    if (args->relu.data)
        NM_CALL(b, map_grad, .forward = {.op = NM_MAP_RELU, .x = args->relu}, .dy = args->dy, .dx = args->dy);
    if (args->sum_dy || args->sum_dy_z) {
        dptr partial =
            feature_partials(b, args->spec, x, args->dy, args->row_scale, args->shift, args->scale);
        store_plane(b, partial, x, 0, 1, 0, args->sum_dy);
        store_plane(b, partial, x, 1, 1, 0, args->sum_dy_z);
    }
    if (dx.data)
        LAUNCH(b, feature_norm_grad, nm_device_blocks((int64_t)x.rows * (groups ? groups : 1), ROW_WARPS), 1,
               MAT(dy), .x = nm_device_mat(x), .dx = nm_device_mat(dx), ADDRESS(row_scale), ADDRESS(shift),
               ADDRESS(scale), ADDRESS(a), ADDRESS(c0), ADDRESS(c1),
               .residual = nm_device_residual(args->residual), .groups = groups, .add = args->add);
}
