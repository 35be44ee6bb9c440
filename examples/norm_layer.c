/* A normalization layer of libnorma in your own program: create, train for a few steps, save, load, infer.
 *
 *     cc norm_layer.c -lnorma -lm -o norm_layer    (or: cmake -DNORMA_EXAMPLES=ON, then examples/norm_layer)
 *
 * The layer is PowerNorm (Shen et al. 2020). Other types need other values of the two strings below: a name
 * of the table in docs/norms.md ("layer", "rms", "batch", ...) and settings of [norm.NAME] in `norma train
 * --help all`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "norma/norm.h"

#define TYPE     "power"
#define SETTINGS "warmup=2 decay_forward=0.9"

enum { ROWS = 6, WIDTH = 8 }; /* tokens of a batch, features of a token */

static int fail(const nm_error *err)
{
    fprintf(stderr, "norm_layer: %s\n", err->text);
    return (int)err->status; /* a status is also an exit code */
}

/* In place of the neighboring layers: an input, and a gradient of the loss with respect to the output. */
static void fill(float *values, int step, double phase)
{
    for (int i = 0; i < ROWS * WIDTH; i++)
        values[i] = (float)sin(phase + 0.7 * i + 1.3 * step);
}

/* Three training steps. The layer adds to the gradients of its parameters; the optimizer is the caller's. */
static nm_status train(nm_norm *norm, nm_error *err)
{
    float x[ROWS * WIDTH], y[ROWS * WIDTH], dy[ROWS * WIDTH], dx[ROWS * WIDTH];
    int32_t length;
    float *weight = nm_norm_param(norm, "weight", &length);
    const float *weight_grad = nm_norm_param_grad(norm, "weight", NULL);
    for (int step = 0; step < 3; step++) {
        fill(x, step, 0.0);
        fill(dy, step, 0.5);
        nm_norm_zero_grads(norm);
        NM_TRY(nm_norm_forward(norm, ROWS, x, y, err)); /* y = norm(x); updates running state */
        NM_TRY(nm_norm_backward(norm, dy, dx, err));    /* dx, and gradients of the parameters */
        for (int32_t i = 0; i < length; i++)
            weight[i] -= 0.1f * weight_grad[i];
        printf("step %d  y[0] %.6f  dx[0] %.6f  weight[0] %.6f\n", step, (double)y[0], (double)dx[0],
               (double)weight[0]);
    }
    return NM_OK;
}

/* Inference of one token: it does not depend on other rows. */
static nm_status infer(nm_norm *norm, const char *who, nm_error *err)
{
    float x[WIDTH], y[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = (float)(i + 1);
    NM_TRY(nm_norm_infer(norm, 1, x, y, err));
    printf("%s  y[0] %.6f  y[7] %.6f\n", who, (double)y[0], (double)y[7]);
    return NM_OK;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "norm_layer.safetensors";
    const nm_norm_site place = {
        .name = "encoder.0.norm", .width = WIDTH, .groups = 2, .plan = {.warmup_updates = 2}};
    const nm_backend_options options = {.name = "cpu", .dtype = NM_F32, .isa = "auto", .threads = 1};
    nm_backend *backend = NULL;
    nm_norm *norm = NULL, *copy = NULL;
    nm_error err = {NM_OK, ""};
    int code = 0;
    if (nm_backend_create(&backend, &options, &err) ||
        nm_norm_create(&norm, backend, TYPE, SETTINGS, &place, &err) ||
        nm_norm_create(&copy, backend, TYPE, SETTINGS, &place, &err) || train(norm, &err) ||
        nm_norm_save(norm, path, &err) || nm_norm_load(copy, path, &err) || infer(norm, "trained", &err) ||
        infer(copy, "loaded ", &err))
        code = fail(&err);
    nm_norm_free(copy);
    nm_norm_free(norm);
    nm_backend_free(backend);
    return code;
}
