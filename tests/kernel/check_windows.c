/* Windows of images: patches of convolutions, average pooling. Windows that overlap, that leave positions of
 * the image out, and that begin outside it. */
#include "kernel_checks.h"

#include "backend/patchwise.h"

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

/* As above; with few channels also images with more windows than the chunk of a sum has, and more chunks than
 * the sums of the gradient of a weight have groups. */
static nm_windows convolution_of(size z, int variant)
{
    if (variant < SHAPES)
        return windows_of(z, variant);
    return (nm_windows){.images = variant > SHAPES ? 16 : 2,
                        .height = variant > SHAPES ? 33 : 23,
                        .width = 24 + z.rows % 7,
                        .size = 3,
                        .stride = 1 + z.rows % 2,
                        .padding = 1};
}

static int convolutions(const pair *p, size z)
{
    const bool large = z.rows == 2 && z.cols == 16 && !strcmp(p->on[ACTUAL]->name, "cpu");
    return SHAPES + (z.cols <= 16) + large;
}

/* Memory for the patches; what a backend leaves there is not compared. */
static test_mat room_for(pair *p, const nm_windows *w, int32_t channels)
{
    const int32_t cols = w->size * w->size * channels;
    return pair_random(p, nm_patchwise_images(w, cols) * (nm_windows_count(w) / w->images), cols, 0);
}

void check_convolve(pair *p, size z)
{
    for (int variant = 0; variant < convolutions(p, z); variant++) {
        const nm_windows w = convolution_of(z, variant);
        const int32_t out = other_width(z.cols), products = w.size * w.size * z.cols;
        test_mat x = feature_map(p, &w, z), weight = pair_random(p, out, products, z.gap);
        test_mat bias = random_vector(p, out), y = pair_random(p, nm_windows_count(&w), out, z.gap);
        test_mat room = room_for(p, &w, z.cols);
        BOTH(p, convolve, .windows = &w, .x = x.m[s], .weight = weight.m[s],
             .bias = variant % 2 ? bias.m[s].data : NULL, .room = room.m[s], .y = y.m[s]);
        mat_compare(p, "y", y, sum_ulps(products), 1);
        pair_mark(p, room);
    }
}

void check_convolve_grad_input(pair *p, size z)
{
    for (int variant = 0; variant < convolutions(p, z); variant++) {
        const nm_windows w = convolution_of(z, variant);
        const int32_t out = other_width(z.cols), products = w.size * w.size * z.cols;
        test_mat dx = feature_map(p, &w, z), weight = pair_random(p, out, products, z.gap);
        test_mat dy = pair_random(p, nm_windows_count(&w), out, z.gap), room = room_for(p, &w, z.cols);
        BOTH(p, convolve_grad_input, .windows = &w, .dy = dy.m[s], .weight = weight.m[s], .room = room.m[s],
             .add = (variant + z.rows) % 2, .dx = dx.m[s]);
        mat_compare(p, "dx", dx, sum_ulps(w.size * w.size * out), 2);
        pair_mark(p, room);
    }
}

void check_convolve_grad_weight(pair *p, size z)
{
    for (int variant = 0; variant < convolutions(p, z); variant++) {
        const nm_windows w = convolution_of(z, variant);
        const int32_t out = other_width(z.cols), products = w.size * w.size * z.cols;
        const bool fixed = variant == 3; /* only the gradient of the bias */
        test_mat x = feature_map(p, &w, z), dy = pair_random(p, nm_windows_count(&w), out, z.gap);
        test_mat dw = pair_random(p, out, products, z.gap), db = random_vector(p, out);
        test_mat room = room_for(p, &w, z.cols);
        BOTH(p, convolve_grad_weight, .windows = &w, .dy = dy.m[s], .x = x.m[s], .room = room.m[s],
             .dw = fixed ? (nm_mat){0} : dw.m[s], .db = variant % 2 ? db.m[s].data : NULL);
        if (!fixed)
            mat_compare(p, "dw", dw, sum_ulps(nm_windows_count(&w)), 1);
        if (variant % 2)
            mat_compare(p, "db", db, 4, 1);
        pair_mark(p, room);
    }
}
