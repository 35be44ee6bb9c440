/* Golden cases of family "attention", method "block_term_tensor_attention": the tensorized Transformer's
 * attention sublayer with its projections, residual and norm (pre- or post-norm), as published (non-causal);
 * forward and backward. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"

enum { X, POSITIONS, DY, CORE, QKV, OUT, GAIN, BIAS, PLACE_NET, CONTENT, PLACE, N_PARTS };
enum { FIRST_PARAM = CORE };

typedef struct part { /* [outer, inner, unit] in the file, [inner, outer, unit] here */
    const char *name;
    int32_t outer, inner, unit;
} part;

typedef struct problem {
    bool pre;
    int32_t batch, length, width, h, tokens, *offsets;
    part parts[N_PARTS];
    void *value[N_PARTS], *grad[N_PARTS];
    void *normed, *qkv, *positions, *found, *sum, *shift, *scale; /* forward */
    void *d_in, *d_qkv, *d_places, *d_sum;
} problem;

static size_t count_of(const part *a)
{
    return (size_t)a->outer * (size_t)a->inner * (size_t)a->unit;
}

/* Values of the file in Norma's order; free. */
static golden_result read_part(golden_case *test, const json_t *from, const char *name, const part *a,
                               double **turned)
{
    golden_tensor tensor;
    GOLDEN_TRY(golden_read(test, json_object_get(from, name), name, &tensor));
    size_t outer = (size_t)a->outer, inner = (size_t)a->inner, unit = (size_t)a->unit;
    if (tensor.count != count_of(a)) {
        golden_release(&tensor);
        return golden_fail(test, "%s: unexpected shape", name);
    }
    *turned = nm_allocate(tensor.count * sizeof **turned);
    for (size_t i = 0; i < outer; i++)
        for (size_t j = 0; j < inner; j++)
            memcpy(*turned + (j * outer + i) * unit, tensor.data + (i * inner + j) * unit,
                   unit * sizeof **turned);
    golden_release(&tensor);
    return GOLDEN_PASSED;
}

static golden_result compare_part(golden_case *test, const json_t *from, const char *name, const part *a,
                                  const void *got, double tolerance)
{
    double *want;
    GOLDEN_TRY(read_part(test, from, name, a, &want));
    golden_result result = golden_compare(test, name, got, want, count_of(a), tolerance);
    free(want);
    return result;
}

static golden_result read_sizes(golden_case *test, problem *p)
{
    int32_t cores = golden_whole(test, "cores", 0);
    p->batch = golden_whole(test, "B", 0);
    p->length = golden_whole(test, "L", 0);
    p->width = golden_whole(test, "d_model", 0);
    p->h = golden_whole(test, "d_head", 0);
    int32_t sizes[] = {cores, p->batch, p->length, p->width, p->h};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] < 1 || sizes[i] > 100)
            return golden_fail(test, "config: cores, B, L, d_model or d_head");
    const char *norm = golden_text(test, "norm", "");
    p->pre = !strcmp(norm, "pre");
    if (!p->pre && strcmp(norm, "post"))
        return golden_fail(test, "config: norm '%.60s'", norm);
    const part parts[N_PARTS] = {[X] = {"x", p->length, p->batch, p->width},
                                 [POSITIONS] = {"positions_embedding", 1, p->length, p->width},
                                 [DY] = {"dy", p->length, p->batch, p->width},
                                 [CORE] = {"core_value", 1, cores, p->h},
                                 [QKV] = {"qkv_net.weight", 1, 3 * p->h, p->width},
                                 [OUT] = {"o_net.weight", p->width, p->length * p->length, 1},
                                 [GAIN] = {"layer_norm.weight", 1, 1, p->width},
                                 [BIAS] = {"layer_norm.bias", 1, 1, p->width},
                                 [PLACE_NET] = {"r_net.weight", 1, p->h, p->width},
                                 [CONTENT] = {"r_w_bias", 1, 1, p->h},
                                 [PLACE] = {"r_r_bias", 1, 1, p->h}};
    memcpy(p->parts, parts, sizeof parts);
    return GOLDEN_PASSED;
}

static golden_result read_problem(golden_case *test, problem *p)
{
    GOLDEN_TRY(read_sizes(test, p));
    for (int i = 0; i < N_PARTS; i++) {
        double *turned;
        const json_t *from = i < FIRST_PARAM ? test->root : json_object_get(test->root, "params");
        GOLDEN_TRY(read_part(test, from, p->parts[i].name, &p->parts[i], &turned));
        p->value[i] = golden_reals(test, turned, count_of(&p->parts[i]));
        p->grad[i] = golden_reals(test, NULL, count_of(&p->parts[i]));
        free(turned);
    }
    p->tokens = p->batch * p->length;
    p->offsets = nm_allocate(((size_t)p->batch + 1) * sizeof *p->offsets);
    for (int32_t b = 0; b <= p->batch; b++)
        p->offsets[b] = b * p->length;
    void **const wide[] = {&p->normed, &p->found, &p->sum, &p->d_in, &p->d_sum};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        *wide[i] = golden_reals(test, NULL, (size_t)p->tokens * (size_t)p->width);
    p->qkv = golden_reals(test, NULL, 3 * (size_t)p->tokens * (size_t)p->h);
    p->d_qkv = golden_reals(test, NULL, 3 * (size_t)p->tokens * (size_t)p->h);
    p->positions = golden_reals(test, NULL, (size_t)p->length * (size_t)p->h);
    p->d_places = golden_reals(test, NULL, (size_t)p->length * (size_t)p->h);
    p->shift = golden_reals(test, NULL, (size_t)p->tokens);
    p->scale = golden_reals(test, NULL, (size_t)p->tokens);
    return GOLDEN_PASSED;
}

/* A value or a gradient of a part as a matrix of `cols` columns. */
static nm_mat mat(const problem *p, void *const *of, int i, int32_t cols)
{
    return nm_mat_of(of[i], (int32_t)count_of(&p->parts[i]) / cols, cols);
}

static nm_mat third(const golden_case *test, const problem *p, void *qkv, int which)
{
    size_t first = (size_t)which * (size_t)p->h * nm_dtype_bytes(test->backend->dtype);
    return (nm_mat){(char *)qkv + first, p->tokens, p->h, 3 * p->h};
}

static nm_block_term_args term_of(const golden_case *test, const problem *p, const nm_packing *packing)
{
    return (nm_block_term_args){.q = third(test, p, p->qkv, 0),
                                .k = third(test, p, p->qkv, 1),
                                .v = third(test, p, p->qkv, 2),
                                .positions = nm_mat_of(p->positions, p->length, p->h),
                                .weight = mat(p, p->value, OUT, p->width),
                                .core = mat(p, p->value, CORE, p->h),
                                .content_bias = p->value[CONTENT],
                                .position_bias = p->value[PLACE],
                                .packing = packing,
                                .length = p->length};
}

static nm_token_norm norm_of(const golden_case *test, const problem *p)
{
    return (nm_token_norm){.kind = NM_TOKEN_CENTER,
                           .groups = 1,
                           .eps = golden_number(test, "layernorm_eps", 0),
                           .weight_len = p->width,
                           .bias_len = p->width};
}

static void norm_backward(const golden_case *test, const problem *p, nm_mat dy, nm_mat x, nm_mat dx)
{
    nm_token_norm spec = norm_of(test, p);
    NM_CALL(test->backend, token_norm_grad, .spec = &spec, .dy = dy, .x = x, .weight = p->value[GAIN],
            .shift = p->shift, .scale = p->scale, .dx = dx, .d_weight = p->grad[GAIN],
            .d_bias = p->grad[BIAS]);
}

/* The matrix with the result: the sum of the residual connection, or its norm. */
static nm_mat forward(const golden_case *test, const problem *p, const nm_packing *packing)
{
    nm_backend *b = test->backend;
    nm_token_norm norm = norm_of(test, p);
    nm_mat x = mat(p, p->value, X, p->width), normed = nm_mat_of(p->normed, p->tokens, p->width);
    nm_mat found = nm_mat_of(p->found, p->tokens, p->width), sum = nm_mat_of(p->sum, p->tokens, p->width);
    if (p->pre)
        NM_CALL(b, token_norm, .spec = &norm, .x = x, .weight = p->value[GAIN], .bias = p->value[BIAS],
                .y = normed, .shift = p->shift, .scale = p->scale);
    NM_CALL(b, linear, .x = p->pre ? normed : x, .weight = mat(p, p->value, QKV, p->width),
            .y = nm_mat_of(p->qkv, p->tokens, 3 * p->h));
    NM_CALL(b, linear, .x = mat(p, p->value, POSITIONS, p->width),
            .weight = mat(p, p->value, PLACE_NET, p->width), .act = NM_ACT_NONE,
            .y = nm_mat_of(p->positions, p->length, p->h));
    nm_block_term_args term = term_of(test, p, packing);
    term.out = found;
    b->k.block_term(b, &term);
    NM_CALL(b, add_dropout, .x = x, .f = found, .y = sum);
    if (p->pre)
        return sum;
    NM_CALL(b, token_norm, .spec = &norm, .x = sum, .weight = p->value[GAIN], .bias = p->value[BIAS],
            .y = normed, .shift = p->shift, .scale = p->scale);
    return normed;
}

static void backward(const golden_case *test, const problem *p, const nm_packing *packing)
{
    nm_backend *b = test->backend;
    nm_mat x = mat(p, p->value, X, p->width), dx = mat(p, p->grad, X, p->width);
    nm_mat dy = mat(p, p->value, DY, p->width), d_sum = nm_mat_of(p->d_sum, p->tokens, p->width);
    nm_mat d_qkv = nm_mat_of(p->d_qkv, p->tokens, 3 * p->h),
           d_places = nm_mat_of(p->d_places, p->length, p->h);
    nm_mat d_in = p->pre ? nm_mat_of(p->d_in, p->tokens, p->width) : dx;
    if (p->pre)
        d_sum = dy;
    else
        norm_backward(test, p, dy, nm_mat_of(p->sum, p->tokens, p->width), d_sum);
    NM_CALL(b, block_term_grad, .forward = term_of(test, p, packing), .dout = d_sum,
            .dq = third(test, p, p->d_qkv, 0), .dk = third(test, p, p->d_qkv, 1),
            .dv = third(test, p, p->d_qkv, 2), .dpositions = d_places,
            .dweight = mat(p, p->grad, OUT, p->width), .dcore = mat(p, p->grad, CORE, p->h),
            .dcontent_bias = p->grad[CONTENT], .dposition_bias = p->grad[PLACE]);
    NM_CALL(b, linear_grad_weight, .dy = d_places, .x = mat(p, p->value, POSITIONS, p->width),
            .dw = mat(p, p->grad, PLACE_NET, p->width));
    NM_CALL(b, linear_grad_weight, .dy = d_qkv, .x = p->pre ? nm_mat_of(p->normed, p->tokens, p->width) : x,
            .dw = mat(p, p->grad, QKV, p->width));
    NM_CALL(b, linear_grad_input, .dy = d_qkv, .weight = mat(p, p->value, QKV, p->width), .dx = d_in);
    if (p->pre)
        norm_backward(test, p, d_in, x, dx);
    NM_CALL(b, add, .alpha = 1, .x = d_sum, .y = dx);
}

static golden_result solve(golden_case *test, problem *p)
{
    GOLDEN_TRY(read_problem(test, p));
    const nm_packing packing = {p->batch, p->tokens, p->length, p->offsets, p->offsets};
    nm_mat y = forward(test, p, &packing);
    GOLDEN_TRY(compare_part(test, test->root, "y", &p->parts[X], y.data, test->value_tolerance));
    backward(test, p, &packing);
    GOLDEN_TRY(compare_part(test, test->root, "dx", &p->parts[X], p->grad[X], test->gradient_tolerance));
    for (int i = FIRST_PARAM; i < N_PARTS; i++)
        GOLDEN_TRY(compare_part(test, json_object_get(test->root, "dparams"), p->parts[i].name, &p->parts[i],
                                p->grad[i], test->gradient_tolerance));
    return GOLDEN_PASSED;
}

golden_result golden_block_term(golden_case *test)
{
    problem p = {0};
    golden_result result = solve(test, &p);
    void *const owned[] = {p.offsets, p.normed, p.qkv,  p.positions, p.found,    p.sum,
                           p.shift,   p.scale,  p.d_in, p.d_qkv,     p.d_places, p.d_sum};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    for (int i = 0; i < N_PARTS; i++) {
        free(p.value[i]);
        free(p.grad[i]);
    }
    return result;
}
