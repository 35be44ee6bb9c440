/* nm_residual_normalize is bitwise identical to nm_residual followed by nm_normalize, and nm_normalize_relu
 * to nm_normalize, nm_residual (if there is a connection) and nm_activated: results, gradients, statistics
 * and running state of every norm type, at every precision of the reference kernels and on the CPU, in
 * training and at inference, and in both uses: only the norm reads the sum (post-norm), or the next residual
 * connection reads it too (pre-norm). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <string.h>

#include <xxhash.h>

#include "nn/params.h"
#include "nn/tape.h"

enum {
    ROWS = 75,
    WIDTH = 136,
    GROUPS = 8,
    UPDATES = 3
}; /* more rows than a block, columns that are no whole vectors */

typedef struct setting {
    nm_backend_options backend;
    const char *norm;
    bool fused, pre_norm, training, relu; /* relu: pre_norm is the residual connection after the norm */
} setting;

static void fill(nm_tape *tape, const nm_tensor *tensor, int seed)
{
    double values[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        values[i] = ((i + seed) * 37 % 101) / 23.0 - 2 + i % WIDTH / 50.0;
    nm_backend_write(tape->backend, tensor->data, values, ROWS * WIDTH);
}

static void hash(uint64_t *value, const nm_backend *b, const void *data, int32_t n)
{
    *value = XXH3_64bits_withSeed(data, (size_t)n * nm_dtype_bytes(b->dtype), *value);
}

/* out = drop(relu(norm(f))), or with the stream drop(relu(stream + norm(f))) */
static nm_tensor *run_relu(nm_tape *tape, nm_norm *norm, const setting *s, nm_tensor *stream, nm_tensor *f)
{
    nm_tensor *y;
    if (s->fused)
        y = nm_normalize_relu(tape, norm, f, s->pre_norm ? stream : NULL);
    else {
        y = nm_normalize(tape, norm, f);
        y = nm_activated(tape, s->pre_norm ? nm_residual(tape, stream, y, 0) : y, NM_MAP_RELU, 0);
    }
    return nm_dropped(tape, y, 0.2);
}

/* One micro-batch: x = stream + drop(f) and its norm; in pre-norm another residual connection of both. */
static void run_pass(nm_tape *tape, nm_norm *norm, const setting *s, uint32_t step, uint64_t *value)
{
    nm_error err;
    nm_tape_start(tape, s->training, 5, step);
    nm_tensor *stream = nm_tape_tensor(tape, ROWS, WIDTH), *f = nm_tape_tensor(tape, ROWS, WIDTH), *out, *sum,
              *y;
    fill(tape, stream, (int)step);
    fill(tape, f, 7 + (int)step);
    if (s->relu)
        sum = out = run_relu(tape, norm, s, stream, f);
    else {
        if (s->fused)
            y = nm_residual_normalize(tape, norm, stream, f, 0.3, &sum);
        else {
            sum = nm_residual(tape, stream, f, 0.3);
            y = nm_normalize(tape, norm, sum);
        }
        out = s->pre_norm ? nm_residual(tape, sum, y, 0.2) : y;
    }
    hash(value, tape->backend, sum->data, ROWS * WIDTH);
    hash(value, tape->backend, out->data, ROWS * WIDTH);
    if (!s->training)
        return;
    bool add;
    nm_tensor *grad = nm_tape_tensor(tape, ROWS, WIDTH);
    fill(tape, grad, 3);
    nm_mat dy = nm_tensor_grad(tape, out, &add),
           df = nm_tensor_grad(tape, f, &add); /* f has another reader */
    nm_backend_copy(tape->backend, dy.data, grad->data, ROWS * WIDTH * nm_dtype_bytes(tape->backend->dtype));
    nm_backend_copy(tape->backend, df.data, grad->data, ROWS * WIDTH * nm_dtype_bytes(tape->backend->dtype));
    if (step % 2)
        f->grad_started = false;
    assert_int_equal(nm_tape_backward(tape, &err), NM_OK);
    if (!s->relu || s->pre_norm)
        hash(value, tape->backend, stream->grad, ROWS * WIDTH);
    hash(value, tape->backend, f->grad, ROWS * WIDTH);
}

static uint64_t outcome(const setting *s)
{
    nm_error err;
    nm_backend *b;
    nm_params params;
    nm_tape tape;
    nm_norm *norm;
    uint64_t value = 0;
    nm_options *options = nm_options_create();
    nm_norm_options_add(options);
    assert_int_equal(nm_options_set(options, "norm.power.warmup", "2", NM_ORIGIN_COMMAND, &err), NM_OK);
    const nm_norm_site site = {.name = "site", .width = WIDTH, .groups = GROUPS};
    assert_int_equal(nm_backend_create(&b, &s->backend, &err), NM_OK);
    nm_params_init(&params, b);
    assert_int_equal(nm_params_add_norm(&params, s->norm, options, &site, &norm, &err), NM_OK);
    assert_int_equal(nm_params_allocate(&params, true, &err), NM_OK);
    nm_params_initialize(&params, 1);
    assert_int_equal(nm_tape_init(&tape, b, 4 << 20, &err), NM_OK);
    for (uint32_t update = 0; update < UPDATES; update++) {
        run_pass(&tape, norm, s, update, &value);
        nm_params_update_norms(&params, 1);
    }
    for (int i = 0; i < norm->shape.n_params; i++)
        hash(&value, b, norm->param_grads[i], norm->shape.params[i].length);
    for (int i = 0; i < norm->shape.n_state; i++)
        hash(&value, b, norm->state[i], norm->shape.state[i].length);
    nm_tape_release(&tape);
    nm_params_release(&params);
    nm_backend_free(b);
    nm_options_free(options);
    return value;
}

static bool is_supported(const nm_backend_options *options)
{
    nm_error err;
    nm_backend *b;
    nm_status status = nm_backend_create(&b, options, &err);
    if (status == NM_OK)
        nm_backend_free(b);
    else
        assert_int_equal(status, NM_UNSUPPORTED);
    return status == NM_OK;
}

static void test_fused_is_exact(void **state)
{
    (void)state;
    static const nm_backend_options backends[] = {{.name = "ref"},
                                                  {.name = "ref", .dtype = NM_F64},
                                                  {.name = "cpu", .isa = "auto", .threads = 2},
                                                  {.name = "cpu", .isa = "avx2", .threads = 1},
                                                  {.name = "cpu", .isa = "neon", .threads = 1},
                                                  {.name = "cpu", .isa = "base", .threads = 1}};
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++)
        for (size_t i = 0; i < 8 * sizeof backends / sizeof *backends; i++) {
            setting s = {.backend = backends[i / 8],
                         .norm = (*type)->name,
                         .pre_norm = i % 2,
                         .training = i / 2 % 2,
                         .relu = i / 4 % 2};
            if (!is_supported(&s.backend))
                continue;
            uint64_t separate = outcome(&s);
            s.fused = true;
            if (outcome(&s) != separate)
                fail_msg("%s on %s: pre_norm %d, training %d, relu %d", s.norm, s.backend.name, s.pre_norm,
                         s.training, s.relu);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused_is_exact)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
