/* Golden cases of family "attention", method "relative_multihead_attention": TENER's attention with its one
 * projection, forward and backward. Padding keys are removed; padding queries are kept, as in the source
 * program. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "nn/positions.h"

typedef struct problem {
    int32_t batch, length, width, heads, n_keys;
    int32_t *q_offsets, *k_offsets;
    size_t *position; /* [keys] row of the file */
    void *x, *weight, *a, *b, *positions, *dy;
    void *qkv, *d_qkv, *q, *kv, *dq, *dkv, *y, *lse, *dx, *d_weight, *d_a, *d_b;
} problem;

static golden_result read_reals(golden_case *test, const json_t *from, const char *name, size_t count,
                                void **to)
{
    golden_tensor tensor;
    GOLDEN_TRY(golden_read(test, json_object_get(from, name), name, &tensor));
    golden_result result =
        tensor.count == count ? GOLDEN_PASSED : golden_fail(test, "%s: unexpected shape", name);
    if (result == GOLDEN_PASSED)
        *to = golden_reals(test, tensor.data, count);
    golden_release(&tensor);
    return result;
}

static golden_result compare(golden_case *test, const json_t *from, const char *name, const void *got,
                             size_t count, double tolerance)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(from, name), name, &want));
    golden_result result = want.count == count ? golden_compare(test, name, got, want.data, count, tolerance)
                                               : golden_fail(test, "%s: unexpected shape", name);
    golden_release(&want);
    return result;
}

static golden_result read_mask(golden_case *test, problem *p)
{
    golden_tensor mask;
    size_t rows = (size_t)p->batch * (size_t)p->length;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "mask"), "mask", &mask));
    p->q_offsets = nm_allocate(((size_t)p->batch + 1) * sizeof *p->q_offsets);
    p->k_offsets = nm_allocate(((size_t)p->batch + 1) * sizeof *p->k_offsets);
    p->position = nm_allocate(rows * sizeof *p->position);
    golden_result result = mask.count == rows ? GOLDEN_PASSED : golden_fail(test, "mask: unexpected shape");
    for (size_t i = 0; result == GOLDEN_PASSED && i < rows; i++) {
        size_t s = i / (size_t)p->length;
        if (mask.data[i] != 0)
            p->position[p->n_keys++] = i;
        p->q_offsets[s + 1] = (int32_t)(i + 1);
        p->k_offsets[s + 1] = p->n_keys;
    }
    golden_release(&mask);
    return result;
}

static golden_result read_problem(golden_case *test, problem *p)
{
    const json_t *params = json_object_get(test->root, "params");
    p->batch = golden_whole(test, "B", 0);
    p->length = golden_whole(test, "L", 0);
    p->width = golden_whole(test, "d_model", 0);
    p->heads = golden_whole(test, "heads", 0);
    if (p->batch < 1 || p->length < 1 || p->width < 1 || p->heads < 1 || p->width % p->heads ||
        p->batch > 1000 || p->length > 1000 || p->width > 1000)
        return golden_fail(test, "config: B, L, d_model or heads");
    GOLDEN_TRY(read_mask(test, p));
    size_t d = (size_t)p->width, rows = (size_t)p->batch * (size_t)p->length, keys = (size_t)p->n_keys;
    GOLDEN_TRY(read_reals(test, test->root, "x", rows * d, &p->x));
    GOLDEN_TRY(read_reals(test, test->root, "dy", rows * d, &p->dy));
    GOLDEN_TRY(read_reals(test, params, "qkv_linear.weight", 3 * d * d, &p->weight));
    GOLDEN_TRY(read_reals(test, params, "r_r_bias", d, &p->a));
    GOLDEN_TRY(read_reals(test, params, "r_w_bias", d, &p->b));
    struct {
        void **to;
        size_t count;
    } made[] = {{&p->qkv, 3 * rows * d},
                {&p->d_qkv, 3 * rows * d},
                {&p->q, rows * d},
                {&p->dq, rows * d},
                {&p->kv, 2 * keys * d},
                {&p->dkv, 2 * keys * d},
                {&p->y, rows * d},
                {&p->dx, rows * d},
                {&p->lse, rows * (size_t)p->heads},
                {&p->d_a, d},
                {&p->d_b, d},
                {&p->d_weight, 3 * d * d}};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        *made[i].to = golden_reals(test, NULL, made[i].count);
    return GOLDEN_PASSED;
}

/* The table of distances is computed by Norma; the case contains that of the source program, from -L to L -
 * 1. */
static golden_result make_positions(golden_case *test, problem *p)
{
    int32_t size = p->width / p->heads;
    size_t count = 2 * (size_t)p->length * (size_t)size;
    p->positions = golden_reals(test, NULL, count);
    nm_positions_fill(test->backend, NM_POSITIONS_RELATIVE, 2 * p->length, size, p->positions);
    return compare(test, test->root, "relative_embedding_offsets_minus_L_to_L_minus_1", p->positions, count,
                   test->value_tolerance);
}

static char *element(const golden_case *test, void *data, size_t index)
{
    return (char *)data + index * nm_dtype_bytes(test->backend->dtype);
}

/* Keys and values of the rows without padding; back: adds their gradients to those rows. */
static void move_keys(const golden_case *test, const problem *p, bool back)
{
    nm_backend *b = test->backend;
    int32_t d = p->width;
    for (int32_t k = 0; k < p->n_keys; k++) {
        nm_mat all = nm_mat_of(
            element(test, back ? p->d_qkv : p->qkv, p->position[k] * 3 * (size_t)d + (size_t)d), 1, 2 * d);
        nm_mat own = nm_mat_of(element(test, back ? p->dkv : p->kv, (size_t)k * 2 * (size_t)d), 1, 2 * d);
        NM_CALL(b, scale, .alpha = 1, .x = back ? own : all, .y = back ? all : own);
    }
}

static nm_mat view(const golden_case *test, void *data, int32_t rows, int32_t stride, int32_t first,
                   int32_t cols)
{
    return (nm_mat){element(test, data, (size_t)first), rows, cols, stride};
}

static void compute(golden_case *test, problem *p)
{
    nm_backend *b = test->backend;
    int32_t d = p->width, rows = p->batch * p->length, keys = p->n_keys;
    const nm_packing q_packing = {p->batch, rows, p->length, p->q_offsets, p->q_offsets},
                     k_packing = {p->batch, keys, p->length, p->k_offsets, p->k_offsets};
    nm_mat x = nm_mat_of(p->x, rows, d), weight = nm_mat_of(p->weight, 3 * d, d),
           y = nm_mat_of(p->y, rows, d);
    NM_CALL(b, linear, .x = x, .weight = weight, .y = nm_mat_of(p->qkv, rows, 3 * d));
    move_keys(test, p, false);
    const nm_relative_attention_args call = {.q = view(test, p->qkv, rows, 3 * d, 0, d),
                                             .k = view(test, p->kv, keys, 2 * d, 0, d),
                                             .v = view(test, p->kv, keys, 2 * d, d, d),
                                             .q_packing = &q_packing,
                                             .k_packing = &k_packing,
                                             .heads = p->heads,
                                             .key_bias = p->a,
                                             .distance_bias = p->b,
                                             .positions =
                                                 nm_mat_of(p->positions, 2 * p->length, d / p->heads),
                                             .zero_row = p->length,
                                             .out = y,
                                             .lse = p->lse};
    b->k.relative_attention(b, &call);
    NM_CALL(b, relative_attention_grad, .forward = call, .dout = nm_mat_of(p->dy, rows, d),
            .dq = view(test, p->d_qkv, rows, 3 * d, 0, d), .dk = view(test, p->dkv, keys, 2 * d, 0, d),
            .dv = view(test, p->dkv, keys, 2 * d, d, d), .d_key_bias = p->d_a, .d_distance_bias = p->d_b);
    move_keys(test, p, true);
    nm_mat d_qkv = nm_mat_of(p->d_qkv, rows, 3 * d);
    NM_CALL(b, linear_grad_weight, .dy = d_qkv, .x = x, .dw = nm_mat_of(p->d_weight, 3 * d, d));
    NM_CALL(b, linear_grad_input, .dy = d_qkv, .weight = weight, .dx = nm_mat_of(p->dx, rows, d));
}

static golden_result solve(golden_case *test, problem *p)
{
    GOLDEN_TRY(read_problem(test, p));
    GOLDEN_TRY(make_positions(test, p));
    compute(test, p);
    const json_t *d_params = json_object_get(test->root, "dparams");
    size_t d = (size_t)p->width, count = (size_t)p->batch * (size_t)p->length * d;
    double tolerance = test->gradient_tolerance;
    GOLDEN_TRY(compare(test, test->root, "y", p->y, count, test->value_tolerance));
    GOLDEN_TRY(compare(test, test->root, "dx", p->dx, count, tolerance));
    GOLDEN_TRY(compare(test, d_params, "qkv_linear.weight", p->d_weight, 3 * d * d, tolerance));
    GOLDEN_TRY(compare(test, d_params, "r_r_bias", p->d_a, d, tolerance));
    return compare(test, d_params, "r_w_bias", p->d_b, d, tolerance);
}

golden_result golden_relative_attention(golden_case *test)
{
    problem p = {0};
    if (strcmp(test->variant, "tener_unscaled"))
        return golden_skip(test, "variant '%.60s' is not offered", test->variant);
    golden_result result = solve(test, &p);
    void *const owned[] = {p.q_offsets, p.k_offsets, p.position, p.x,     p.weight,   p.a,   p.b,
                           p.positions, p.dy,        p.qkv,      p.d_qkv, p.q,        p.kv,  p.dq,
                           p.dkv,       p.y,         p.lse,      p.dx,    p.d_weight, p.d_a, p.d_b};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    return result;
}
