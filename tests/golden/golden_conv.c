/* Golden cases of family "conv": convolutions and average pooling of images with all gradients. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "golden_image.h"
#include "nn/tape.h"

void golden_turn_filters(golden_tensor *t, bool to_source)
{
    const size_t in = (size_t)t->shape[1], places = (size_t)(t->shape[2] * t->shape[3]);
    double *turned = nm_allocate(t->count * sizeof *turned);
    for (size_t o = 0; o < (size_t)t->shape[0]; o++)
        for (size_t c = 0; c < in; c++)
            for (size_t k = 0; k < places; k++) {
                size_t source = (o * in + c) * places + k, ours = (o * places + k) * in + c;
                turned[to_source ? source : ours] = t->data[to_source ? ours : source];
            }
    free(t->data);
    t->data = turned;
}

/* A tensor on the tape with the values of the file; *x is set even if it fails. */
static golden_result read_tensor(golden_case *test, nm_tape *tape, const json_t *value, const char *what,
                                 int32_t rows, nm_tensor **x)
{
    golden_tensor t;
    GOLDEN_TRY(golden_read(test, value, what, &t));
    if (t.rank == 4)
        golden_turn_filters(&t, false);
    if (rows < 1 || t.count % (size_t)rows) {
        golden_release(&t);
        return golden_fail(test, "%s: not a multiple of %d rows", what, rows);
    }
    *x = nm_tape_tensor(tape, rows, (int32_t)(t.count / (size_t)rows));
    nm_backend_write(test->backend, (*x)->data, t.data, t.count);
    golden_release(&t);
    return GOLDEN_PASSED;
}

static golden_result compare(golden_case *test, const char *what, const json_t *value, const void *device,
                             double tolerance)
{
    golden_tensor t;
    GOLDEN_TRY(golden_read(test, value, what, &t));
    if (t.rank == 4)
        golden_turn_filters(&t, false);
    void *got = golden_reals(test, NULL, t.count);
    nm_backend_download(test->backend, got, device, t.count * nm_dtype_bytes(test->backend->dtype));
    golden_result result = golden_compare(test, what, got, t.data, t.count, tolerance);
    free(got);
    golden_release(&t);
    return result;
}

typedef struct problem {
    nm_windows windows;
    nm_tensor *x, *y, *weight, *bias;
} problem;

static golden_result forward(golden_case *test, nm_tape *tape, problem *p)
{
    const json_t *params = json_object_get(test->root, "params");
    const nm_windows *w = &p->windows;
    const int32_t positions = w->height * w->width, out = golden_whole(test, "out_channels", 0);
    GOLDEN_TRY(read_tensor(test, tape, json_object_get(test->root, "x"), "x", w->images * positions, &p->x));
    if (!strcmp(test->method, "conv2d")) {
        GOLDEN_TRY(read_tensor(test, tape, json_object_get(params, "weight"), "weight", out, &p->weight));
        if (golden_flag(test, "bias"))
            GOLDEN_TRY(read_tensor(test, tape, json_object_get(params, "bias"), "bias", 1, &p->bias));
        p->y = nm_convolve(tape, p->x, w, p->weight, p->bias);
    } else if (!strcmp(test->method, "average_pool")) {
        p->y = nm_window_mean(tape, p->x, w);
    } else if (!strcmp(test->method, "global_average_pool")) {
        int32_t *offsets = nm_tape_host(tape, ((size_t)w->images + 1) * sizeof *offsets);
        for (int32_t i = 0; i <= w->images; i++)
            offsets[i] = i * positions;
        const nm_packing packing = {
            .n_seqs = w->images, .n_tokens = offsets[w->images], .longest = positions, .offsets = offsets};
        p->y = nm_pool(tape, p->x, &packing, NM_POOL_MEAN);
    } else {
        return golden_skip(test, "method '%.60s' is unknown", test->method);
    }
    return GOLDEN_PASSED;
}

static golden_result run_on(golden_case *test, nm_tape *tape)
{
    nm_error err = {0};
    nm_tensor *dy;
    problem p = {.windows = {golden_whole(test, "images", 0), golden_whole(test, "height", 0),
                             golden_whole(test, "width", 0), golden_whole(test, "kernel", 1),
                             golden_whole(test, "stride", 1), golden_whole(test, "padding", 0)}};
    const json_t *grads = json_object_get(test->root, "dparams");
    GOLDEN_TRY(forward(test, tape, &p));
    GOLDEN_TRY(compare(test, "y", json_object_get(test->root, "y"), p.y->data, test->value_tolerance));
    GOLDEN_TRY(read_tensor(test, tape, json_object_get(test->root, "dy"), "dy", p.y->rows, &dy));
    p.y->grad = dy->data;
    p.y->grad_started = true;
    if (nm_tape_backward(tape, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    GOLDEN_TRY(compare(test, "dx", json_object_get(test->root, "dx"), p.x->grad, test->gradient_tolerance));
    if (p.weight)
        GOLDEN_TRY(compare(test, "dparams.weight", json_object_get(grads, "weight"), p.weight->grad,
                           test->gradient_tolerance));
    return p.bias ? compare(test, "dparams.bias", json_object_get(grads, "bias"), p.bias->grad,
                            test->gradient_tolerance)
                  : GOLDEN_PASSED;
}

static golden_result run(golden_case *test)
{
    nm_tape tape;
    nm_tape_init_growing(&tape, test->backend);
    nm_tape_start(&tape, true, 1, 0);
    golden_result result = run_on(test, &tape);
    nm_tape_release(&tape);
    return result;
}

const golden_family golden_conv = {.name = "conv", .run = run, .computes = true};
