/* Windows of images: patches of convolutions, average pooling. Windows that overlap, that leave positions of
 * the image out, and
 * that begin outside it. */
#include "kernel_checks.h"

enum { SHAPES = 5 };

/* Images of odd sizes, among them some with one window. */
static nm_windows windows_of(size z, int variant)
{
    static const int32_t shapes[SHAPES][3] = {{3, 1, 1}, {3, 2, 1}, {1, 2, 0}, {2, 2, 0}, {2, 1, 1}};
    return (nm_windows){.images = z.rows < 5 ? z.rows : 5,
                        .height = 2 + z.rows % 4,
                        .width = 2 + z.rows / 2 % 6,
                        .size = z.cols < 129 && z.rows > 3 && !variant ? 5 : shapes[variant][0],
                        .stride = shapes[variant][1],
                        .padding = z.cols < 129 && z.rows > 3 && !variant ? 2 : shapes[variant][2]};
}

static test_mat feature_map(pair *p, const nm_windows *w, size z)
{
    return pair_random(p, w->images * w->height * w->width, z.cols, z.gap);
}

void check_patches(pair *p, size z)
{
    for (int variant = 0; variant < SHAPES; variant++) {
        nm_windows w = windows_of(z, variant);
        test_mat x = feature_map(p, &w, z);
        test_mat out = pair_random(p, nm_windows_count(&w), w.size * w.size * z.cols, z.gap);
        BOTH(p, patches, .windows = &w, .x = x.m[s], .out = out.m[s]);
        mat_compare(p, "out", out, 0, 0);
    }
}

void check_patches_grad(pair *p, size z)
{
    for (int variant = 0; variant < 2 * SHAPES; variant++) {
        nm_windows w = windows_of(z, variant / 2);
        test_mat dx = feature_map(p, &w, z);
        test_mat dout = pair_random(p, nm_windows_count(&w), w.size * w.size * z.cols, z.gap);
        BOTH(p, patches_grad, .windows = &w, .dout = dout.m[s], .add = variant % 2, .dx = dx.m[s]);
        mat_compare(p, "dx", dx, sum_ulps(w.size * w.size), 2);
    }
}

void check_window_mean(pair *p, size z)
{
    for (int variant = 0; variant < SHAPES; variant++) {
        nm_windows w = windows_of(z, variant);
        test_mat x = feature_map(p, &w, z), out = pair_random(p, nm_windows_count(&w), z.cols, z.gap);
        BOTH(p, window_mean, .windows = &w, .x = x.m[s], .out = out.m[s]);
        mat_compare(p, "out", out, sum_ulps(w.size * w.size), 1);
    }
}

void check_window_mean_grad(pair *p, size z)
{
    for (int variant = 0; variant < 2 * SHAPES; variant++) {
        nm_windows w = windows_of(z, variant / 2);
        test_mat dx = feature_map(p, &w, z), dout = pair_random(p, nm_windows_count(&w), z.cols, z.gap);
        BOTH(p, window_mean_grad, .windows = &w, .dout = dout.m[s], .add = variant % 2, .dx = dx.m[s]);
        mat_compare(p, "dx", dx, sum_ulps(w.size * w.size), 1);
    }
}
