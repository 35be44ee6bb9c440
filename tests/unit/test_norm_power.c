/* PowerNorm against a row-by-row reference implementation: the released code with warm-up and group scaling,
 * and Algorithm 2 as printed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "near.h"
#include "base/random.h"
#include "norma/norm_type.h"

enum { ROWS = 5, WIDTH = 8, HEADS = 2, N = ROWS * WIDTH, STEPS = 9 };

static const double EPSILON = 1e-5;

typedef struct recursion {
    bool paper;
    int64_t warmup, t;
    int groups; /* 0: no scaling */
    double forward, backward;
    double gain[WIDTH], bias[WIDTH], phi[WIDTH], e[WIDTH];
    double h[N], s[ROWS][HEADS], z[N], y[N], dx[N], p[WIDTH], used[WIDTH];
} recursion;

static void random_values(double *values, int count, uint32_t step, uint32_t site)
{
    for (int i = 0; i < count; i++) {
        nm_random_words words = nm_random4(3, NM_RANDOM_TEST, site, step, (uint64_t)i);
        values[i] = (1 + 0.2 * step) * nm_random_normal(words.w[0], words.w[1]);
    }
}

static void scale_rows(recursion *r, const double *x)
{
    memcpy(r->h, x, sizeof r->h);
    for (int n = 0; n < ROWS; n++)
        for (int g = 0; g < r->groups; g++) {
            int size = WIDTH / r->groups;
            double square = 0;
            for (int i = g * size; i < (g + 1) * size; i++)
                square += x[n * WIDTH + i] * x[n * WIDTH + i] / size;
            r->s[n][g] = sqrt(square + EPSILON);
            for (int i = g * size; i < (g + 1) * size; i++)
                r->h[n * WIDTH + i] = x[n * WIDTH + i] / r->s[n][g];
        }
}

static void forward(recursion *r, const double *x)
{
    double t = (double)++r->t;
    scale_rows(r, x);
    for (int i = 0; i < WIDTH; i++) {
        r->p[i] = 0;
        for (int n = 0; n < ROWS; n++)
            r->p[i] += r->h[n * WIDTH + i] * r->h[n * WIDTH + i] / ROWS;
        r->used[i] = r->t <= r->warmup ? r->p[i] : r->phi[i];
        for (int n = 0; n < ROWS; n++) {
            r->z[n * WIDTH + i] = r->h[n * WIDTH + i] / sqrt(r->used[i] + EPSILON);
            r->y[n * WIDTH + i] = r->gain[i] * r->z[n * WIDTH + i] + r->bias[i];
        }
        if (r->t < r->warmup)
            r->phi[i] = r->phi[i] * (t - 1) / t + r->p[i] / t;
        r->phi[i] = r->forward * r->phi[i] + (1 - r->forward) * r->p[i];
    }
}

static void backward(recursion *r, const double *dy)
{
    double dh[N];
    for (int i = 0; i < WIDTH; i++) {
        double divisor = sqrt((r->paper ? r->used[i] : r->p[i]) + EPSILON), mean = 0;
        for (int n = 0; n < ROWS; n++) {
            int k = n * WIDTH + i;
            double a = r->gain[i] * dy[k] - (1 - r->backward) * r->e[i] * r->z[k];
            mean += a * r->z[k] / ROWS;
            dh[k] = a / divisor;
        }
        r->e[i] += mean;
    }
    memcpy(r->dx, dh, sizeof dh);
    for (int n = 0; n < ROWS; n++)
        for (int g = 0; g < r->groups; g++) {
            int size = WIDTH / r->groups, first = n * WIDTH + g * size;
            double mean = 0;
            for (int k = first; k < first + size; k++)
                mean += dh[k] * r->h[k] / size;
            for (int k = first; k < first + size; k++)
                r->dx[k] = (dh[k] - r->h[k] * mean) / r->s[n][g];
        }
}

static void assert_close(const double *got, const double *want, int count)
{
    for (int i = 0; i < count; i++)
        assert_near(got[i], want[i], 1e-11 * (1 + fabs(want[i])));
}

static void compare_with_reference(recursion *r, const char *settings, const nm_norm_site *place)
{
    nm_backend *backend;
    nm_norm *norm;
    nm_error err = {0};
    double x[N], dy[N], y[N], dx[N];
    assert_int_equal(nm_backend_create(
                         &backend, &(nm_backend_options){.name = "ref", .dtype = NM_F64, .threads = 1}, &err),
                     NM_OK);
    assert_int_equal(nm_norm_create(&norm, backend, "power", settings, place, &err), NM_OK);
    random_values(r->gain, WIDTH, 0, 1);
    random_values(r->bias, WIDTH, 0, 2);
    memcpy(nm_norm_param(norm, "weight", NULL), r->gain, sizeof r->gain);
    memcpy(nm_norm_param(norm, "bias", NULL), r->bias, sizeof r->bias);
    for (int i = 0; i < WIDTH; i++)
        r->phi[i] = 1;
    for (uint32_t step = 0; step < STEPS; step++) {
        random_values(x, N, step, 3);
        random_values(dy, N, step, 4);
        forward(r, x);
        backward(r, dy);
        assert_int_equal(nm_norm_forward(norm, ROWS, x, y, &err), NM_OK);
        assert_int_equal(nm_norm_backward(norm, dy, dx, &err), NM_OK);
        assert_close(y, r->y, N);
        assert_close(dx, r->dx, N);
        assert_close(nm_norm_state(norm, "running_phi", NULL), r->phi, WIDTH);
        assert_close(nm_norm_state(norm, "ema_gz", NULL), r->e, WIDTH);
        assert_true(*nm_norm_counter(norm, "iters") == (int64_t)step + 1);
    }
    nm_norm_free(norm);
    nm_backend_free(backend);
}

static const nm_norm_site inner_place = {
    .name = "inner", .width = WIDTH, .groups = HEADS, .plan = {.warmup_updates = 4}};

static void test_released_program(void **unused)
{
    (void)unused;
    compare_with_reference(&(recursion){.warmup = 4, .groups = HEADS, .forward = 0.9, .backward = 0.9}, NULL,
                           &inner_place);
    compare_with_reference(&(recursion){.warmup = 2, .groups = 1, .forward = 0.8, .backward = 0.7},
                           "warmup=2 scaling=layer decay_forward=0.8 decay_backward=0.7", &inner_place);
}

static void test_printed_algorithm(void **unused)
{
    (void)unused;
    compare_with_reference(&(recursion){.paper = true, .forward = 0.9, .backward = 0.95},
                           "preset=paper decay_backward=0.95", &inner_place);
}

/* The encoder's final norm warms up for 1000 steps regardless of the learning rate; a number holds
 * everywhere. */
static void test_final_norm_of_the_encoder(void **unused)
{
    (void)unused;
    nm_norm_site final = inner_place;
    final.kind = NM_SITE_ENCODER_FINAL;
    compare_with_reference(&(recursion){.warmup = 1000, .groups = HEADS, .forward = 0.9, .backward = 0.9},
                           NULL, &final);
    compare_with_reference(&(recursion){.warmup = 3, .groups = HEADS, .forward = 0.9, .backward = 0.9},
                           "warmup=3", &final);
}

static void test_clipped_accumulator(void **unused)
{
    (void)unused;
    nm_backend *backend;
    nm_norm *norm;
    nm_error err = {0};
    double x[N], y[N], dx[N];
    assert_int_equal(nm_backend_create(
                         &backend, &(nm_backend_options){.name = "ref", .dtype = NM_F64, .threads = 1}, &err),
                     NM_OK);
    assert_int_equal(nm_norm_create(&norm, backend, "power", "clip=0.25", &inner_place, &err), NM_OK);
    random_values(x, N, 9, 3);
    assert_int_equal(nm_norm_forward(norm, ROWS, x, y, &err), NM_OK);
    assert_int_equal(nm_norm_backward(norm, y, dx, &err), NM_OK); /* mean(z z) is 1 without the limit */
    for (int i = 0; i < WIDTH; i++)
        assert_near(((double *)nm_norm_state(norm, "ema_gz", NULL))[i], 0.25, 0);
    nm_norm_free(norm);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_released_program),
        cmocka_unit_test(test_printed_algorithm),
        cmocka_unit_test(test_final_norm_of_the_encoder),
        cmocka_unit_test(test_clipped_accumulator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
