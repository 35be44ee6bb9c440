/* Tape operations of Transformer blocks (scales, gated linear units, rotary position embeddings, grouped
 * heads, column copies) in double on fenced memory: values against their definitions, gradients against
 * central differences, exhausted memory. The same on the backend `emulated`, whose gradients in float are
 * compared with those of ref.
 *
 * The objective is sum(weights z) with z = 1.3 y. The operation reads a parameter, whose gradient is added,
 * or an intermediate, whose gradient is assigned. Data that the backward pass must not read is freed before
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "nn/tape.h"

enum { ROWS = 5, COLS = 12, HEADS = 3, WIDTH = COLS / HEADS, LENGTH = 7, MAX_ELEMENTS = ROWS * 4 * COLS };
enum { X, SCALE, N_INPUTS };

static const double STEP = 1e-5, TOLERANCE = 1e-7, BEFORE = 0.5, AFTER = 1.3;
static const uint64_t seed = 21;
static const uint32_t micro_batch = 4;

typedef struct op_case op_case;
struct op_case {
    const char *name;
    nm_tensor *(*run)(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale);
    /* Element (row, col) of y, from the data of x and scale. */
    double (*expected)(const op_case *c, const double *x, const double *scale, int row, int col);
    int y_cols, scale_cols;
    nm_map_op op;
    int heads, key_heads;
    double rate;
    bool interleaved;
    bool alone;   /* no other operation may read x */
    bool reads_x; /* in the backward pass */
};

static double random_normal(uint32_t site, int i)
{
    nm_random_words words = nm_random4(3, NM_RANDOM_TEST, site, 0, (uint64_t)i);
    return nm_random_normal(words.w[0], words.w[1]);
}

static nm_tensor *run_scaled(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)c, (void)scale;
    return nm_scaled(tape, x, -1.7);
}

static double expect_scaled(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)c, (void)scale;
    return -1.7 * x[row * COLS + col];
}

static nm_tensor *run_feature_scaled(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)c;
    return nm_feature_scaled(tape, x, scale);
}

static double expect_feature_scaled(const op_case *c, const double *x, const double *scale, int row, int col)
{
    return x[row * COLS + col] * scale[c->scale_cols == 1 ? 0 : col];
}

static nm_tensor *run_column_copy(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)c, (void)scale;
    return nm_column_copy(tape, x, 5, 3);
}

static double expect_column_copy(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)c, (void)scale;
    return x[row * COLS + 5 + col];
}

/* Three copies, of which two have columns in common. */
static nm_tensor *run_column_copies(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)c, (void)scale;
    nm_tensor *parts[] = {nm_column_copy(tape, x, 4, 8), nm_column_copy(tape, x, 0, 2),
                          nm_column_copy(tape, x, 3, 4)};
    return nm_concat(tape, parts, 3);
}

static double expect_column_copies(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)c, (void)scale;
    return x[row * COLS + (col < 8 ? 4 + col : col < 10 ? col - 8 : 3 + col - 10)];
}

static nm_tensor *run_repeated_heads(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)scale;
    return nm_repeated_heads(tape, x, c->key_heads, c->heads);
}

static double expect_repeated_heads(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)scale;
    int width = COLS / c->key_heads, head = col / width, key_head = head * c->key_heads / c->heads;
    return x[row * COLS + key_head * width + col % width];
}

static const int32_t positions[ROWS] = {0, 3, 6, 3, 1};

/* The angle of pair k at a position (Su et al. 2021, equation 15). */
static double angle(int position, int k)
{
    return position * pow(10000, -2.0 * k / WIDTH);
}

static nm_tensor *run_rotated(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)scale;
    double table[LENGTH][WIDTH];
    for (int p = 0; p < LENGTH; p++)
        for (int k = 0; k < WIDTH / 2; k++) {
            table[p][k] = cos(angle(p, k));
            table[p][WIDTH / 2 + k] = sin(angle(p, k));
        }
    nm_mat device_table = nm_mat_of(nm_tape_upload(tape, table, sizeof table), LENGTH, WIDTH);
    if (device_table.data) /* in the precision of the backend */
        nm_backend_write(tape->backend, device_table.data, table[0], LENGTH * WIDTH);
    const int32_t *device_positions = nm_tape_upload(tape, positions, sizeof positions);
    return nm_rotated(tape, x, &device_table, device_positions, HEADS, c->interleaved);
}

static double expect_rotated(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)scale;
    int j = col % WIDTH, first = col - j;
    int k = c->interleaved ? j / 2 : j % (WIDTH / 2), is_second = c->interleaved ? j % 2 : j >= WIDTH / 2;
    int a = c->interleaved ? 2 * k : k, b = c->interleaved ? 2 * k + 1 : k + WIDTH / 2;
    const double *pair = x + row * COLS + first;
    double phi = angle(positions[row], k), length = hypot(pair[a], pair[b]),
           turned = atan2(pair[b], pair[a]) + phi;
    return length * (is_second ? sin(turned) : cos(turned));
}

static nm_tensor *run_gated(const op_case *c, nm_tape *tape, nm_tensor *x, nm_tensor *scale)
{
    (void)scale;
    return nm_gated(tape, x, c->op, c->rate);
}

static double pointwise(nm_map_op op, double z)
{
    switch (op) {
    case NM_MAP_RELU:
        return fmax(z, 0);
    case NM_MAP_TANH:
        return tanh(z);
    case NM_MAP_ERF:
        return erf(z);
    case NM_MAP_SIGMOID:
        return 1 / (1 + exp(-z));
    case NM_MAP_SILU:
        return z / (1 + exp(-z));
    case NM_MAP_GELU:
        return z * (1 + erf(z / sqrt(2))) / 2;
    case NM_MAP_GELU_TANH:
        return z / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z)));
    case NM_MAP_IDENTITY:
        return z;
    }
    fail();
    return 0;
}

static double expect_gated(const op_case *c, const double *x, const double *scale, int row, int col)
{
    (void)scale;
    const nm_dropout drop = {.rate = c->rate, .seed = seed, .site = 0, .step = micro_batch};
    double y = pointwise(c->op, x[row * COLS + col]) * x[row * COLS + COLS / 2 + col];
    if (c->rate == 0)
        return y;
    return nm_dropout_keeps(&drop, (uint32_t)row, (uint32_t)col) ? y * nm_dropout_scale(c->rate) : 0;
}

#define CASE(operation, ...)                                                                                 \
    .name = #operation, .run = run_##operation, .expected = expect_##operation, __VA_ARGS__
#define GATED(f, drop)                                                                                       \
    {                                                                                                        \
        CASE(gated, .y_cols = COLS / 2, .op = f, .rate = drop, .alone = true, .reads_x = true)               \
    }

static const op_case cases[] = {
    {CASE(scaled, .y_cols = COLS)},
    {CASE(feature_scaled, .y_cols = COLS, .scale_cols = COLS, .reads_x = true)},
    {CASE(feature_scaled, .y_cols = COLS, .scale_cols = 1, .reads_x = true)},
    {CASE(column_copy, .y_cols = 3)},
    {CASE(column_copies, .y_cols = 14)},
    {CASE(repeated_heads, .y_cols = 2 * COLS, .key_heads = 3, .heads = 6)},
    {CASE(repeated_heads, .y_cols = 4 * COLS, .key_heads = 1, .heads = 4)},
    {CASE(repeated_heads, .y_cols = 3 * COLS, .key_heads = 2, .heads = 6)},
    {CASE(rotated, .y_cols = COLS)},
    {CASE(rotated, .y_cols = COLS, .interleaved = true)},
    GATED(NM_MAP_RELU, 0),
    GATED(NM_MAP_TANH, 0),
    GATED(NM_MAP_ERF, 0),
    GATED(NM_MAP_SIGMOID, 0.4),
    GATED(NM_MAP_SILU, 0),
    GATED(NM_MAP_GELU, 0.3),
    GATED(NM_MAP_GELU_TANH, 0),
    GATED(NM_MAP_IDENTITY, 0.5),
};
enum { N_CASES = sizeof cases / sizeof *cases };

typedef struct rig {
    nm_backend *backend;
    nm_tape tape;
    const op_case *c;
    bool direct; /* the operation reads the parameter itself */
    nm_tensor inputs[N_INPUTS];
    int n[N_INPUTS];
    double values[N_INPUTS][MAX_ELEMENTS], grads[N_INPUTS][MAX_ELEMENTS], weights[MAX_ELEMENTS];
    double tolerance; /* of values */
} rig;

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

static void add_input(rig *r, int input, int rows, int cols)
{
    nm_error err;
    size_t bytes = MAX_ELEMENTS * sizeof(double);
    nm_tensor *t = &r->inputs[input];
    *t = (nm_tensor){.rows = rows, .cols = cols, .grad_started = true};
    check(nm_backend_alloc(r->backend, bytes, &t->data, &err), &err);
    check(nm_backend_alloc(r->backend, bytes, &t->grad, &err), &err);
    r->n[input] = rows * cols;
    for (int i = 0; i < r->n[input]; i++)
        r->values[input][i] = random_normal((uint32_t)input, i);
}

/* tape_bytes 0: enough */
static void rig_open_on(rig *r, const nm_backend_options *options, const op_case *c, bool direct,
                        size_t tape_bytes)
{
    nm_error err;
    *r = (rig){.c = c, .direct = direct, .tolerance = options->dtype == NM_F64 ? 1e-13 : 1e-6};
    check(nm_backend_create(&r->backend, options, &err), &err);
    check(nm_tape_init(&r->tape, r->backend, tape_bytes ? tape_bytes : 1 << 20, &err), &err);
    add_input(r, X, ROWS, COLS);
    add_input(r, SCALE, 1, c->scale_cols ? c->scale_cols : 1);
    for (int i = 0; i < ROWS * c->y_cols; i++)
        r->weights[i] = random_normal(N_INPUTS, i);
}

static void rig_open(rig *r, const op_case *c, bool direct, size_t tape_bytes)
{
    rig_open_on(r, &(nm_backend_options){.name = "ref", .dtype = NM_F64, .fenced = true}, c, direct,
                tape_bytes);
}

static void rig_close(rig *r)
{
    nm_tape_release(&r->tape);
    nm_backend_free(r->backend);
}

/* z; *y: the result of the operation, without data if its own backward pass does not read it */
static nm_tensor *forward(rig *r, bool training, nm_tensor **y)
{
    nm_tape_start(&r->tape, training, seed, micro_batch);
    for (int i = 0; i < N_INPUTS; i++)
        nm_backend_write(r->backend, r->inputs[i].data, r->values[i], (size_t)r->n[i]);
    nm_tensor *x = r->direct ? &r->inputs[X] : nm_scaled(&r->tape, &r->inputs[X], BEFORE);
    *y = r->c->run(r->c, &r->tape, x, &r->inputs[SCALE]);
    nm_tensor *z = nm_scaled(&r->tape, *y, AFTER);
    nm_tape_discard(&r->tape, *y);
    if (!r->c->reads_x && x->pooled)
        nm_tape_discard(&r->tape, x);
    return z;
}

static double objective(rig *r)
{
    nm_tensor *y;
    double z[MAX_ELEMENTS], sum = 0;
    const nm_tensor *out = forward(r, true, &y);
    assert_int_equal(out->rows, ROWS);
    assert_int_equal(out->cols, r->c->y_cols);
    nm_backend_read(r->backend, z, out->data, (size_t)(ROWS * r->c->y_cols));
    for (int i = 0; i < ROWS * r->c->y_cols; i++)
        sum += r->weights[i] * z[i];
    return sum;
}

/* The gradients, which the tape adds to those of an earlier pass. */
static nm_status backward(rig *r, nm_tensor *z, nm_error *err)
{
    bool add;
    nm_mat dz = nm_tensor_grad(&r->tape, z, &add);
    double before[MAX_ELEMENTS];
    for (int i = 0; i < MAX_ELEMENTS; i++)
        before[i] = random_normal(6, i);
    for (int i = 0; i < N_INPUTS; i++)
        nm_backend_write(r->backend, r->inputs[i].grad, before, (size_t)r->n[i]);
    if (dz.data)
        nm_backend_write(r->backend, dz.data, r->weights, (size_t)(ROWS * r->c->y_cols));
    NM_TRY(nm_tape_backward(&r->tape, err));
    for (int k = 0; k < N_INPUTS; k++) {
        nm_backend_read(r->backend, r->grads[k], r->inputs[k].grad, (size_t)r->n[k]);
        for (int i = 0; i < r->n[k]; i++)
            r->grads[k][i] -= before[i];
    }
    return NM_OK;
}

/* Training, and inference without dropout. */
static void check_values(rig *r, bool training)
{
    nm_tensor *y;
    double z[MAX_ELEMENTS], x[MAX_ELEMENTS];
    op_case without_dropout = *r->c;
    without_dropout.rate = training ? r->c->rate : 0;
    const nm_tensor *out = forward(r, training, &y);
    nm_backend_read(r->backend, z, out->data, (size_t)(ROWS * r->c->y_cols));
    for (int i = 0; i < ROWS * COLS; i++)
        x[i] = r->values[X][i] * (r->direct ? 1 : BEFORE);
    for (int i = 0; i < ROWS * r->c->y_cols; i++) {
        int row = i / r->c->y_cols, col = i % r->c->y_cols;
        double expected = AFTER * r->c->expected(&without_dropout, x, r->values[SCALE], row, col);
        if (!(fabs(z[i] - expected) <= r->tolerance * (1 + fabs(expected))))
            fail_msg("%s: element [%d, %d] is %.15g, expected %.15g", r->c->name, row, col, z[i], expected);
    }
}

static void check_gradients(rig *r)
{
    nm_error err;
    nm_tensor *y, *z = forward(r, true, &y);
    if (y->pooled && r->c->run != run_column_copies && r->c->rate == 0)
        assert_null(y->data);
    check(backward(r, z, &err), &err);
    for (int k = 0; k < N_INPUTS; k++)
        for (int i = 0; i < r->n[k]; i++) {
            double here = r->values[k][i];
            r->values[k][i] = here + STEP;
            double above = objective(r);
            r->values[k][i] = here - STEP;
            double slope = (above - objective(r)) / (2 * STEP);
            r->values[k][i] = here;
            if (!(fabs(slope - r->grads[k][i]) <= TOLERANCE * (1 + fabs(slope))))
                fail_msg("%s, %s: gradient of input %d, element %d is %.12g, finite differences: %.12g",
                         r->c->name, r->direct ? "parameter" : "intermediate", k, i, r->grads[k][i], slope);
        }
}

static void test_values_and_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int direct = 0; direct <= !cases[i].alone; direct++) {
            rig r;
            rig_open(&r, &cases[i], direct, 0);
            check_values(&r, true);
            check_values(&r, false);
            check_gradients(&r);
            rig_close(&r);
        }
}

static void test_emulated(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++)
        for (int direct = 0; direct <= !cases[i].alone; direct++) {
            rig r, f;
            nm_error err;
            nm_tensor *y;
            rig_open(&r, &cases[i], direct, 0);
            rig_open_on(&f, &(nm_backend_options){.name = "emulated"}, &cases[i], direct, 0);
            check_values(&f, true);
            check_values(&f, false);
            check(backward(&r, forward(&r, true, &y), &err), &err);
            check(backward(&f, forward(&f, true, &y), &err), &err);
            for (int k = 0; k < N_INPUTS; k++)
                for (int j = 0; j < r.n[k]; j++)
                    if (!(fabs(f.grads[k][j] - r.grads[k][j]) <= 1e-6 * (1 + fabs(r.grads[k][j]))))
                        fail_msg("%s: gradient of input %d, element %d is %.9g on emulated, %.9g on ref",
                                 r.c->name, k, j, f.grads[k][j], r.grads[k][j]);
            rig_close(&r);
            rig_close(&f);
        }
}

/* With any smaller tape the backward pass returns NM_MEMORY. */
static void test_exhausted_tape(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        int failures = 0;
        nm_status status = NM_MEMORY;
        for (size_t bytes = 64; status != NM_OK; bytes += 64) {
            rig r;
            nm_error err;
            nm_tensor *y;
            rig_open(&r, &cases[i], false, bytes);
            status = backward(&r, forward(&r, true, &y), &err);
            assert_true(status == NM_OK || status == NM_MEMORY);
            failures += status != NM_OK;
            rig_close(&r);
        }
        assert_true(failures > 10);
    }
}

/* Operations without an effect return their input and record nothing. */
static void test_no_effect(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, &cases[0], true, 0);
    nm_tape_start(&r.tape, true, seed, micro_batch);
    assert_ptr_equal(nm_scaled(&r.tape, &r.inputs[X], 1), &r.inputs[X]);
    assert_ptr_equal(nm_repeated_heads(&r.tape, &r.inputs[X], 3, 3), &r.inputs[X]);
    assert_int_equal(r.tape.n_nodes, 0);
    rig_close(&r);
}

/* The dot product of a query at position p and a key at position p + d depends on d only (Su et al. 2021,
 * equation 16). */
static void test_rotation_is_relative(void **state)
{
    (void)state;
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        const op_case c = {.interleaved = interleaved};
        double q[COLS], k[COLS], dots[2] = {0, 0};
        for (int j = 0; j < COLS; j++) {
            q[j] = random_normal(4, j);
            k[j] = random_normal(5, j);
        }
        /* Rows 0 and 1 have the positions 0 and 3, rows 1 and 2 the positions 3 and 6. */
        for (int pair = 0; pair < 2; pair++) {
            double x[ROWS * COLS] = {0};
            memcpy(x + pair * COLS, q, sizeof q);
            memcpy(x + (pair + 1) * COLS, k, sizeof k);
            rig r;
            rig_open(&r, &cases[0], true, 0);
            memcpy(r.values[X], x, sizeof x);
            nm_tape_start(&r.tape, false, seed, micro_batch);
            nm_backend_upload(r.backend, r.inputs[X].data, x, sizeof x);
            const nm_tensor *y = run_rotated(&c, &r.tape, &r.inputs[X], NULL);
            double rotated[ROWS * COLS];
            nm_backend_read(r.backend, rotated, y->data, ROWS * COLS);
            for (int j = 0; j < WIDTH; j++)
                dots[pair] += rotated[pair * COLS + j] * rotated[(pair + 1) * COLS + j];
            rig_close(&r);
        }
        assert_true(fabs(dots[0] - dots[1]) < 1e-13);
        assert_true(fabs(dots[0]) > 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values_and_gradients),
                                       cmocka_unit_test(test_emulated), cmocka_unit_test(test_exhausted_tape),
                                       cmocka_unit_test(test_no_effect),
                                       cmocka_unit_test(test_rotation_is_relative)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
