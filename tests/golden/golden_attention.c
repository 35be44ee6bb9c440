/* Golden cases of family "attention": multi-head attention with its four projections, forward and backward.
 * Padding keys are removed. Padding queries are kept, as in the source programs, except in causal
 * self-attention: there
 *  - they are left out if their dy is zero, so that queries and keys are the same tokens,
 *  - otherwise every query, padding included, is a sequence of one token with the keys that it attends to.
 * A padding query without any key has no defined output and is left out. Variants: "fairseq" ([time, batch,
 * feature], four projections by name) and "tears" ([batch, time, feature], stacked projections). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"

enum { Q, K, V, O, N_MAPS };

typedef struct side { /* queries or keys: rows of all sequences, concatenated */
    int32_t length;   /* positions per sequence in the file */
    nm_packing packing;
    int32_t *offsets; /* [batch + 1] */
    size_t *index;    /* [rows] row of the file */
    void *x, *dx;
} side;

typedef struct problem {
    bool tears, self, causal; /* causal: with the causal mask of the kernel */
    golden_tensor padding;    /* [batch, keys], 1 at padding; or empty */
    int32_t batch, width, heads;
    side query, key;
    void *weight[N_MAPS], *bias[N_MAPS], *d_weight[N_MAPS], *d_bias[N_MAPS];
    void *mapped[N_MAPS], *d_mapped[N_MAPS]; /* q, k, v and the attention's output */
    void *lse, *y, *dy;
} problem;

/* Row of the file for a position of a sequence. */
static size_t file_row(const problem *p, int32_t length, int32_t sequence, int32_t position)
{
    return p->tears ? (size_t)sequence * (size_t)length + (size_t)position
                    : (size_t)position * (size_t)p->batch + (size_t)sequence;
}

static bool is_padding(const problem *p, int32_t sequence, int32_t position)
{
    return p->padding.data && p->padding.data[sequence * p->key.length + position] != 0;
}

/* All positions of a side, or those that are not padding. */
static void pack(const problem *p, side *s, bool without_padding)
{
    size_t all = (size_t)p->batch * (size_t)s->length, n = 0;
    s->offsets = nm_allocate(((size_t)p->batch + 1) * sizeof *s->offsets);
    s->index = nm_allocate((all + 1) * sizeof *s->index);
    for (int32_t b = 0; b < p->batch; b++) {
        for (int32_t t = 0; t < s->length; t++)
            if (!without_padding || !is_padding(p, b, t))
                s->index[n++] = file_row(p, s->length, b, t);
        s->offsets[b + 1] = (int32_t)n;
    }
    s->packing = (nm_packing){p->batch, (int32_t)n, s->length, s->offsets, s->offsets};
}

/* One sequence per query: the query, and the keys up to its position that are not padding. */
static void pack_single_queries(problem *p)
{
    side *q = &p->query, *k = &p->key;
    size_t all = (size_t)p->batch * (size_t)q->length, n_queries = 0, n_keys = 0;
    q->offsets = nm_allocate((all + 1) * sizeof *q->offsets);
    k->offsets = nm_allocate((all + 1) * sizeof *k->offsets);
    q->index = nm_allocate((all + 1) * sizeof *q->index);
    k->index = nm_allocate((all * (size_t)k->length + 1) * sizeof *k->index);
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t t = 0; t < q->length; t++) {
            size_t before = n_keys;
            for (int32_t j = 0; j <= t; j++)
                if (!is_padding(p, b, j))
                    k->index[n_keys++] = file_row(p, k->length, b, j);
            if (n_keys == before)
                continue;
            q->index[n_queries++] = file_row(p, q->length, b, t);
            q->offsets[n_queries] = (int32_t)n_queries;
            k->offsets[n_queries] = (int32_t)n_keys;
        }
    q->packing = (nm_packing){(int32_t)n_queries, (int32_t)n_queries, 1, q->offsets, q->offsets};
    k->packing = (nm_packing){(int32_t)n_queries, (int32_t)n_keys, k->length, k->offsets, k->offsets};
    p->causal = false;
}

static bool padding_queries_have_gradients(const problem *p, const golden_tensor *dy)
{
    for (int32_t b = 0; b < p->batch; b++)
        for (int32_t t = 0; t < p->query.length; t++)
            for (size_t i = 0; is_padding(p, b, t) && i < (size_t)p->width; i++)
                if (dy->data[file_row(p, p->query.length, b, t) * (size_t)p->width + i] != 0)
                    return true;
    return false;
}

/* The rows of a side from a tensor of the file. */
static void *gather(const golden_case *test, const problem *p, const side *s, const double *data)
{
    size_t columns = (size_t)p->width, rows = (size_t)s->packing.n_tokens;
    double *packed = nm_allocate((rows * columns + 1) * sizeof *packed);
    for (size_t i = 0; i < rows; i++)
        memcpy(packed + i * columns, data + s->index[i] * columns, columns * sizeof *packed);
    void *reals = golden_reals(test, packed, rows * columns);
    free(packed);
    return reals;
}

/* Reads the shape of a side, and x unless NULL. */
static golden_result read_side(golden_case *test, problem *p, const char *name, side *s, golden_tensor *input)
{
    golden_tensor x;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, name), name, &x));
    golden_result result = GOLDEN_PASSED;
    int32_t batch = (int32_t)x.shape[p->tears ? 0 : 1];
    s->length = (int32_t)x.shape[p->tears ? 1 : 0];
    if (x.rank != 3 || x.shape[2] != p->width || !x.count || (p->batch && batch != p->batch))
        result = golden_fail(test, "%s: unexpected shape", name);
    p->batch = batch;
    *input = x;
    return result;
}

static golden_result read_padding(golden_case *test, problem *p)
{
    const json_t *mask = json_object_get(test->root, "key_padding_mask");
    if (!mask || json_is_null(mask))
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_read(test, mask, "key_padding_mask", &p->padding));
    if (p->padding.count != (size_t)p->batch * (size_t)p->key.length)
        return golden_fail(test, "key_padding_mask: unexpected shape");
    return GOLDEN_PASSED;
}

static void pack_sides(problem *p, const golden_tensor *dy)
{
    bool padded_causal = p->self && p->causal && p->padding.data;
    if (padded_causal && padding_queries_have_gradients(p, dy)) {
        pack_single_queries(p);
    } else {
        pack(p, &p->query, padded_causal);
        pack(p, &p->key, true);
    }
}

static golden_result read_sides(golden_case *test, problem *p)
{
    golden_tensor query = {0}, key = {0}, dy = {0};
    const char *query_name = p->tears ? "x" : "query";
    golden_result result = read_side(test, p, query_name, &p->query, &query);
    if (result == GOLDEN_PASSED)
        result = read_side(test, p, p->self ? query_name : "key_value", &p->key, &key);
    if (result == GOLDEN_PASSED)
        result = read_padding(test, p);
    if (result == GOLDEN_PASSED)
        result = golden_read(test, json_object_get(test->root, "dy"), "dy", &dy);
    if (result == GOLDEN_PASSED && dy.count != query.count)
        result = golden_fail(test, "dy: unexpected shape");
    if (result == GOLDEN_PASSED) {
        pack_sides(p, &dy);
        p->dy = gather(test, p, &p->query, dy.data);
        p->query.x = gather(test, p, &p->query, query.data);
        p->key.x = gather(test, p, &p->key, key.data);
        p->query.dx = golden_reals(test, NULL, (size_t)p->query.packing.n_tokens * (size_t)p->width);
        p->key.dx = golden_reals(test, NULL, (size_t)p->key.packing.n_tokens * (size_t)p->width);
    }
    golden_release(&query);
    golden_release(&key);
    golden_release(&dy);
    return result;
}

static const char *const projections[N_MAPS] = {"q_proj", "k_proj", "v_proj", "out_proj"};

/* Parameters (or their gradients) of projection `map`: a slice of a stack, or a separate tensor. */
static golden_result read_part(golden_case *test, const problem *p, const json_t *params, int map, bool bias,
                               golden_tensor *tensor)
{
    size_t count = (size_t)p->width * (bias ? 1 : (size_t)p->width);
    char name[64];
    if (p->tears)
        snprintf(name, sizeof name, "%s", bias ? "biases" : "weights");
    else
        snprintf(name, sizeof name, "%s.%s", projections[map], bias ? "bias" : "weight");
    GOLDEN_TRY(golden_read(test, json_object_get(params, name), name, tensor));
    size_t first = p->tears ? (size_t)map * count : 0;
    if (tensor->count != (p->tears ? N_MAPS * count : count)) {
        golden_release(tensor);
        return golden_fail(test, "%s: unexpected shape", name);
    }
    memmove(tensor->data, tensor->data + first, count * sizeof *tensor->data);
    tensor->count = count;
    return GOLDEN_PASSED;
}

static golden_result read_problem(golden_case *test, problem *p)
{
    double width = golden_number(test, "embed_dim", 0), heads = golden_number(test, "heads", 0);
    if (!(width >= 1 && width <= 65536 && heads >= 1 && fmod(width, heads) == 0))
        return golden_fail(test, "embed_dim and heads are missing or do not fit together");
    p->width = (int32_t)width;
    p->heads = (int32_t)heads;
    p->self = p->tears || golden_flag(test, "self_attention");
    p->causal = golden_flag(test, "causal");
    GOLDEN_TRY(read_sides(test, p));
    const json_t *params = json_object_get(test->root, "params");
    for (int map = 0; map < N_MAPS; map++) {
        golden_tensor tensor;
        GOLDEN_TRY(read_part(test, p, params, map, false, &tensor));
        p->weight[map] = golden_reals(test, tensor.data, tensor.count);
        p->d_weight[map] = golden_reals(test, NULL, tensor.count);
        golden_release(&tensor);
        GOLDEN_TRY(read_part(test, p, params, map, true, &tensor));
        p->bias[map] = golden_reals(test, tensor.data, tensor.count);
        p->d_bias[map] = golden_reals(test, NULL, tensor.count);
        golden_release(&tensor);
    }
    return GOLDEN_PASSED;
}

static const side *side_of(const problem *p, int map)
{
    return map == K || map == V ? &p->key : &p->query;
}

static nm_mat rows_of(const problem *p, int map, void *data)
{
    return nm_mat_of(data, side_of(p, map)->packing.n_tokens, p->width);
}

static nm_mat square_of(const problem *p, void *data)
{
    return nm_mat_of(data, p->width, p->width);
}

static void compute(golden_case *test, problem *p)
{
    nm_backend *b = test->backend;
    const nm_dropout no_drop = {0};
    double scale = 1 / sqrt((double)p->width / p->heads);
    for (int map = 0; map < N_MAPS; map++) {
        size_t count = (size_t)side_of(p, map)->packing.n_tokens * (size_t)p->width;
        p->mapped[map] = golden_reals(test, NULL, count);
        p->d_mapped[map] = golden_reals(test, NULL, count);
    }
    p->y = golden_reals(test, NULL, (size_t)p->query.packing.n_tokens * (size_t)p->width);
    p->lse = golden_reals(test, NULL, (size_t)p->query.packing.n_tokens * (size_t)p->heads);
    for (int map = Q; map <= V; map++)
        NM_CALL(b, linear, .x = rows_of(p, map, side_of(p, map)->x), .weight = square_of(p, p->weight[map]),
                .bias = p->bias[map], .drop = &no_drop, .y = rows_of(p, map, p->mapped[map]));
    nm_mat q = rows_of(p, Q, p->mapped[Q]), k = rows_of(p, K, p->mapped[K]), v = rows_of(p, V, p->mapped[V]);
    nm_mat out = rows_of(p, O, p->mapped[O]), d_out = rows_of(p, O, p->d_mapped[O]),
           dy = rows_of(p, O, p->dy);
    NM_CALL(b, attention, .q = q, .k = k, .v = v, .q_packing = &p->query.packing,
            .k_packing = &p->key.packing, .heads = p->heads, .causal = p->causal, .scale = scale,
            .drop = &no_drop, .out = out, .lse = p->lse);
    NM_CALL(b, linear, .x = out, .weight = square_of(p, p->weight[O]), .bias = p->bias[O], .act = NM_ACT_NONE,
            .drop = &no_drop, .y = rows_of(p, O, p->y));
    NM_CALL(b, linear_grad_weight, .dy = dy, .x = out, .dw = square_of(p, p->d_weight[O]),
            .db = p->d_bias[O]);
    NM_CALL(b, linear_grad_input, .dy = dy, .weight = square_of(p, p->weight[O]), .dx = d_out);
    NM_CALL(b, attention_grad,
            .forward = {.q = q,
                        .k = k,
                        .v = v,
                        .q_packing = &p->query.packing,
                        .k_packing = &p->key.packing,
                        .heads = p->heads,
                        .causal = p->causal,
                        .scale = scale,
                        .drop = &no_drop,
                        .out = out,
                        .lse = p->lse},
            .dout = d_out, .dq = rows_of(p, Q, p->d_mapped[Q]), .dk = rows_of(p, K, p->d_mapped[K]),
            .dv = rows_of(p, V, p->d_mapped[V]));
    for (int map = Q; map <= V; map++) {
        const side *s = side_of(p, map);
        NM_CALL(b, linear_grad_weight, .dy = rows_of(p, map, p->d_mapped[map]), .x = rows_of(p, map, s->x),
                .dw = square_of(p, p->d_weight[map]), .db = p->d_bias[map]);
        NM_CALL(b, linear_grad_input, .dy = rows_of(p, map, p->d_mapped[map]),
                .weight = square_of(p, p->weight[map]), .add = true, .dx = rows_of(p, map, s->dx));
    }
}

static golden_result compare_params(golden_case *test, const problem *p)
{
    const json_t *expected = json_object_get(test->root, "dparams");
    for (int map = 0; map < N_MAPS; map++)
        for (int bias = 0; bias < 2; bias++) {
            golden_tensor tensor;
            char what[64];
            snprintf(what, sizeof what, "dparams.%s.%s", projections[map], bias ? "bias" : "weight");
            GOLDEN_TRY(read_part(test, p, expected, map, bias, &tensor));
            golden_result result = golden_compare(test, what, bias ? p->d_bias[map] : p->d_weight[map],
                                                  tensor.data, tensor.count, test->gradient_tolerance);
            golden_release(&tensor);
            GOLDEN_TRY(result);
        }
    return GOLDEN_PASSED;
}

/* Adds the gradients of a side to the rows of the file. */
static void scatter(const golden_case *test, const problem *p, const side *s, double *to)
{
    size_t columns = (size_t)p->width;
    for (size_t i = 0; i < (size_t)s->packing.n_tokens; i++)
        for (size_t c = 0; c < columns; c++)
            to[s->index[i] * columns + c] += golden_real(test, s->dx, i * columns + c);
}

static golden_result compare_input(golden_case *test, const problem *p, const char *name, const side *first,
                                   const side *second)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, name), name, &want));
    size_t count = (size_t)p->batch * (size_t)first->length * (size_t)p->width;
    if (want.count != count) {
        golden_release(&want);
        return golden_fail(test, "%s: unexpected shape", name);
    }
    double *sum = nm_allocate(count * sizeof *sum);
    scatter(test, p, first, sum);
    if (second)
        scatter(test, p, second, sum);
    void *got = golden_reals(test, sum, count);
    golden_result result = golden_compare(test, name, got, want.data, count, test->gradient_tolerance);
    free(got);
    free(sum);
    golden_release(&want);
    return result;
}

static golden_result compare_all(golden_case *test, const problem *p, const golden_tensor *y)
{
    void *want = gather(test, p, &p->query, y->data);
    size_t count = (size_t)p->query.packing.n_tokens * (size_t)p->width;
    double *wanted = nm_allocate(count * sizeof *wanted);
    for (size_t i = 0; i < count; i++)
        wanted[i] = golden_real(test, want, i);
    golden_result result = golden_compare(test, "y", p->y, wanted, count, test->value_tolerance);
    free(want);
    free(wanted);
    GOLDEN_TRY(result);
    GOLDEN_TRY(compare_params(test, p));
    GOLDEN_TRY(compare_input(test, p, p->tears ? "dx" : "dquery", &p->query, p->self ? &p->key : NULL));
    return p->self ? GOLDEN_PASSED : compare_input(test, p, "dkey_value", &p->key, NULL);
}

static golden_result solve(golden_case *test, problem *p)
{
    golden_tensor y = {0};
    size_t count = (size_t)p->batch * (size_t)p->query.length * (size_t)p->width;
    golden_result result = golden_read(test, json_object_get(test->root, "y"), "y", &y);
    if (result == GOLDEN_PASSED && y.count != count)
        result = golden_fail(test, "y: unexpected shape");
    if (result == GOLDEN_PASSED) {
        compute(test, p);
        result = compare_all(test, p, &y);
    }
    golden_release(&y);
    return result;
}

static void release_side(side *s)
{
    free(s->offsets);
    free(s->index);
    free(s->x);
    free(s->dx);
}

static golden_result run(golden_case *test)
{
    problem p = {.tears = !strcmp(test->variant, "tears")};
    if (!strcmp(test->method, "relative_multihead_attention"))
        return golden_relative_attention(test);
    if (!strcmp(test->method, "block_term_tensor_attention"))
        return golden_block_term(test);
    if (!strcmp(test->method, "self_attention"))
        return golden_self_attention(test);
    if (strcmp(test->method, "multihead_attention"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    golden_result result = read_problem(test, &p);
    if (result == GOLDEN_PASSED)
        result = solve(test, &p);
    release_side(&p.query);
    release_side(&p.key);
    golden_release(&p.padding);
    for (int map = 0; map < N_MAPS; map++) {
        void *const owned[] = {p.weight[map], p.bias[map],   p.d_weight[map],
                               p.d_bias[map], p.mapped[map], p.d_mapped[map]};
        for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
            free(owned[i]);
    }
    free(p.lse);
    free(p.y);
    free(p.dy);
    return result;
}

const golden_family golden_attention = {.name = "attention", .run = run, .computes = true};
