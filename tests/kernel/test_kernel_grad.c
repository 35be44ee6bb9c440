/* Backward kernels of `ref` in double against central differences of the forward kernels. The objective is
 * sum(weights * y); every element of every input is varied. Memory of `ref` is host memory, so plain
 * arrays are used. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "norma/backend.h"

enum { ROWS = 6, WIDTH = 8, OUT = 5, MAX_INPUTS = 6, MAX_ELEMENTS = 64 };

static const double STEP = 1e-5, TOLERANCE = 1e-6;

typedef struct grad_case {
    nm_backend *b;
    int variant;
    int n[MAX_INPUTS], n_out; /* elements of inputs (0: none) and of y */
    double in[MAX_INPUTS][MAX_ELEMENTS], grad[MAX_INPUTS][MAX_ELEMENTS];
    double y[MAX_ELEMENTS], dy[MAX_ELEMENTS];
    double saved[2][MAX_ELEMENTS]; /* saved by forward for backward */
} grad_case;

typedef void grad_step(grad_case *c);

static void fill(double *to, int n, uint32_t site)
{
    for (int i = 0; i < n; i++) {
        nm_random_words words = nm_random4(11, NM_RANDOM_TEST, site, 0, (uint64_t)i);
        to[i] = nm_random_normal(words.w[0], words.w[1]);
    }
}

static double objective(grad_case *c, grad_step *forward)
{
    double sum = 0;
    forward(c);
    for (int i = 0; i < c->n_out; i++)
        sum += c->dy[i] * c->y[i];
    return sum;
}

/* c holds the sizes and the variant. */
static void check_case(const char *name, grad_case *c, grad_step *forward, grad_step *backward)
{
    const nm_backend_options options = {.name = "ref", .dtype = NM_F64};
    nm_error err;
    assert_int_equal(nm_backend_create(&c->b, &options, &err), NM_OK);
    for (int k = 0; k < MAX_INPUTS; k++)
        fill(c->in[k], c->n[k], (uint32_t)k);
    fill(c->dy, c->n_out, MAX_INPUTS);
    forward(c);
    backward(c);
    for (int k = 0; k < MAX_INPUTS; k++)
        for (int i = 0; i < c->n[k]; i++) {
            double here = c->in[k][i];
            c->in[k][i] = here + STEP;
            double above = objective(c, forward);
            c->in[k][i] = here - STEP;
            double below = objective(c, forward), slope = (above - below) / (2 * STEP);
            c->in[k][i] = here;
            if (!(fabs(slope - c->grad[k][i]) <= TOLERANCE * (1 + fabs(slope))))
                fail_msg(
                    "%s, variant %d: gradient of input %d, element %d is %.12g, finite differences: %.12g",
                    name, c->variant, k, i, c->grad[k][i], slope);
        }
    nm_backend_free(c->b);
}

static const nm_dropout half = {0.5, 3, 4, 5};

static nm_act act_of(const grad_case *c)
{
    return c->variant & 1 ? NM_ACT_RELU : NM_ACT_NONE;
}

static const nm_dropout *drop_of(const grad_case *c)
{
    return c->variant & 2 ? &half : NULL;
}

static void linear_forward(grad_case *c)
{
    NM_CALL(c->b, linear, .x = nm_mat_of(c->in[0], ROWS, WIDTH), .weight = nm_mat_of(c->in[1], OUT, WIDTH),
            .bias = c->in[2], .act = act_of(c), .drop = drop_of(c), .y = nm_mat_of(c->y, ROWS, OUT));
}

static void linear_backward(grad_case *c)
{
    nm_mat dz = nm_mat_of(c->saved[0], ROWS, OUT), x = nm_mat_of(c->in[0], ROWS, WIDTH);
    NM_CALL(c->b, act_grad, .act = act_of(c), .drop = drop_of(c), .y = nm_mat_of(c->y, ROWS, OUT),
            .dy = nm_mat_of(c->dy, ROWS, OUT), .dz = dz);
    NM_CALL(c->b, linear_grad_input, .dy = dz, .weight = nm_mat_of(c->in[1], OUT, WIDTH),
            .dx = nm_mat_of(c->grad[0], ROWS, WIDTH));
    NM_CALL(c->b, linear_grad_weight, .dy = dz, .x = x, .dw = nm_mat_of(c->grad[1], OUT, WIDTH),
            .db = c->grad[2]);
}

static void test_linear(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        grad_case c = {.variant = variant, .n = {ROWS * WIDTH, OUT * WIDTH, OUT}, .n_out = ROWS * OUT};
        check_case("linear", &c, linear_forward, linear_backward);
    }
}

static void add_dropout_forward(grad_case *c)
{
    NM_CALL(c->b, add_dropout, .x = nm_mat_of(c->in[0], ROWS, WIDTH), .f = nm_mat_of(c->in[1], ROWS, WIDTH),
            .drop = &half, .y = nm_mat_of(c->y, ROWS, WIDTH));
}

static void add_dropout_backward(grad_case *c)
{
    nm_mat dy = nm_mat_of(c->dy, ROWS, WIDTH);
    NM_CALL(c->b, add, .alpha = 1, .x = dy, .y = nm_mat_of(c->grad[0], ROWS, WIDTH));
    NM_CALL(c->b, dropout, .x = dy, .drop = &half, .add = true, .y = nm_mat_of(c->grad[1], ROWS, WIDTH));
}

static const int32_t ids[ROWS] = {3, 0, 3, 4, 1, 3}, places[ROWS] = {0, 1, 2, 0, 1, 2};

static void embed_forward(grad_case *c)
{
    NM_CALL(c->b, embed, .ids = ids, .pos = places, .scale = 1.75, .table = nm_mat_of(c->in[0], OUT, WIDTH),
            .positions = nm_mat_of(c->in[1], 3, WIDTH), .drop = &half, .out = nm_mat_of(c->y, ROWS, WIDTH));
}

static void embed_backward(grad_case *c)
{
    nm_mat dy = nm_mat_of(c->dy, ROWS, WIDTH);
    NM_CALL(c->b, embed_grad, .ids = ids, .scale = 1.75, .dout = dy, .drop = &half,
            .dtable = nm_mat_of(c->grad[0], OUT, WIDTH));
    NM_CALL(c->b, embed_grad, .ids = places, .scale = 1, .dout = dy, .drop = &half,
            .dtable = nm_mat_of(c->grad[1], 3, WIDTH));
}

static void test_elementwise(void **state)
{
    (void)state;
    grad_case sum = {.n = {ROWS * WIDTH, ROWS * WIDTH}, .n_out = ROWS * WIDTH};
    check_case("add_dropout", &sum, add_dropout_forward, add_dropout_backward);
    grad_case embed = {.n = {OUT * WIDTH, 3 * WIDTH}, .n_out = ROWS * WIDTH};
    check_case("embed", &embed, embed_forward, embed_backward);
}

static nm_map_args map_args_of(grad_case *c)
{
    return (nm_map_args){.op = (nm_map_op)c->variant,
                         .x = nm_mat_of(c->in[0], ROWS, WIDTH),
                         .alpha = c->in[1],
                         .shift = c->in[1] + 1,
                         .weight = c->in[2],
                         .bias = c->in[3],
                         .y = nm_mat_of(c->y, ROWS, WIDTH)};
}

static void map_forward(grad_case *c)
{
    const nm_map_args args = map_args_of(c);
    c->b->k.map(c->b, &args);
}

static void map_backward(grad_case *c)
{
    NM_CALL(c->b, map_grad, .forward = map_args_of(c), .dy = nm_mat_of(c->dy, ROWS, WIDTH),
            .dx = nm_mat_of(c->grad[0], ROWS, WIDTH), .d_alpha = c->grad[1], .d_shift = c->grad[1] + 1,
            .d_weight = c->grad[2], .d_bias = c->grad[3]);
}

static void test_map(void **state)
{
    (void)state;
    for (int op = 0; op < NM_MAP_OPS_COUNT; op++) {
        grad_case c = {.variant = op, .n = {ROWS * WIDTH, 2, WIDTH, WIDTH}, .n_out = ROWS * WIDTH};
        check_case("map", &c, map_forward, map_backward);
    }
}

static const int32_t q_offsets[] = {0, 4, ROWS}, k_offsets[] = {0, 5, WIDTH};
static const nm_packing q_packing = {2, ROWS, 4, q_offsets, q_offsets};
static const nm_packing k_packing = {2, WIDTH, 5, k_offsets, k_offsets};
enum { HEADS = 2, KEYS = WIDTH };

static int32_t window_of(const grad_case *c)
{
    return c->variant & 4 ? 2 : 0;
}

static void attention_forward(grad_case *c)
{
    NM_CALL(c->b, attention, .q = nm_mat_of(c->in[0], ROWS, WIDTH), .k = nm_mat_of(c->in[1], KEYS, WIDTH),
            .v = nm_mat_of(c->in[2], KEYS, WIDTH), .q_packing = &q_packing, .k_packing = &k_packing,
            .heads = HEADS, .causal = c->variant & 1, .window = window_of(c), .scale = 0.6,
            .drop = drop_of(c), .out = nm_mat_of(c->y, ROWS, WIDTH), .lse = c->saved[0]);
}

static void attention_backward(grad_case *c)
{
    NM_CALL(c->b, attention_grad,
            .forward = {.q = nm_mat_of(c->in[0], ROWS, WIDTH),
                        .k = nm_mat_of(c->in[1], KEYS, WIDTH),
                        .v = nm_mat_of(c->in[2], KEYS, WIDTH),
                        .q_packing = &q_packing,
                        .k_packing = &k_packing,
                        .heads = HEADS,
                        .causal = c->variant & 1,
                        .window = window_of(c),
                        .scale = 0.6,
                        .drop = drop_of(c),
                        .out = nm_mat_of(c->y, ROWS, WIDTH),
                        .lse = c->saved[0]},
            .dout = nm_mat_of(c->dy, ROWS, WIDTH), .dq = nm_mat_of(c->grad[0], ROWS, WIDTH),
            .dk = nm_mat_of(c->grad[1], KEYS, WIDTH), .dv = nm_mat_of(c->grad[2], KEYS, WIDTH));
}

static void test_attention(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        if (variant == 4 || variant == 6) /* a window requires causal */
            continue;
        grad_case c = {
            .variant = variant, .n = {ROWS * WIDTH, KEYS * WIDTH, KEYS * WIDTH}, .n_out = ROWS * WIDTH};
        check_case("attention", &c, attention_forward, attention_backward);
    }
}

/* Block-term attention: segments of 3 and 2 tokens (not causal: 3 and 3), h = 2, two cores, d = 4; the
 * two biases are rows of one input. */

enum { TERM_H = 2, TERM_D = 4, TERM_LENGTH = 3 };

static const int32_t term_offsets[2][3] = {{0, 3, 6}, {0, 3, 5}};

static nm_block_term_args term_of(grad_case *c, const nm_packing *packing)
{
    double *qkv = c->in[0], *bias = c->in[4];
    int32_t rows = packing->n_tokens;
    return (nm_block_term_args){.q = {qkv, rows, TERM_H, 3 * TERM_H},
                                .k = {qkv + TERM_H, rows, TERM_H, 3 * TERM_H},
                                .v = {qkv + 2 * TERM_H, rows, TERM_H, 3 * TERM_H},
                                .positions = nm_mat_of(c->in[1], TERM_LENGTH, TERM_H),
                                .weight = nm_mat_of(c->in[2], TERM_LENGTH * TERM_LENGTH, TERM_D),
                                .core = nm_mat_of(c->in[3], 2, TERM_H),
                                .content_bias = bias,
                                .position_bias = bias + TERM_H,
                                .packing = packing,
                                .length = TERM_LENGTH,
                                .causal = c->variant};
}

static nm_packing term_packing(const grad_case *c)
{
    const int32_t *offsets = term_offsets[c->variant];
    return (nm_packing){2, offsets[2], TERM_LENGTH, offsets, offsets};
}

static void block_term_forward(grad_case *c)
{
    nm_packing packing = term_packing(c);
    nm_block_term_args term = term_of(c, &packing);
    term.out = nm_mat_of(c->y, packing.n_tokens, TERM_D);
    c->b->k.block_term(c->b, &term);
}

static void block_term_backward(grad_case *c)
{
    nm_packing packing = term_packing(c);
    double *d = c->grad[0];
    NM_CALL(c->b, block_term_grad, .forward = term_of(c, &packing),
            .dout = nm_mat_of(c->dy, packing.n_tokens, TERM_D),
            .dq = {d, packing.n_tokens, TERM_H, 3 * TERM_H},
            .dk = {d + TERM_H, packing.n_tokens, TERM_H, 3 * TERM_H},
            .dv = {d + 2 * TERM_H, packing.n_tokens, TERM_H, 3 * TERM_H},
            .dpositions = nm_mat_of(c->grad[1], TERM_LENGTH, TERM_H),
            .dweight = nm_mat_of(c->grad[2], TERM_LENGTH * TERM_LENGTH, TERM_D),
            .dcore = nm_mat_of(c->grad[3], 2, TERM_H), .dcontent_bias = c->grad[4],
            .dposition_bias = c->grad[4] + TERM_H);
}

static void test_block_term(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        int rows = term_offsets[causal][2];
        grad_case c = {.variant = causal,
                       .n = {rows * 3 * TERM_H, TERM_LENGTH * TERM_H, TERM_LENGTH * TERM_LENGTH * TERM_D,
                             2 * TERM_H, 2 * TERM_H},
                       .n_out = rows * TERM_D};
        check_case("block_term", &c, block_term_forward, block_term_backward);
    }
}

static void loss_call(grad_case *c, bool gradients)
{
    static const int32_t targets[][ROWS] = {{0, 3, 3, 2, 0, 4},
                                            {NM_TARGET_IGNORED, 3, 3, NM_TARGET_IGNORED, 0, 4}};
    static const uint8_t allowed[OUT] = {1, 0, 1, 1, 1};
    nm_softmax_loss_args loss = {.hidden = nm_mat_of(c->in[0], ROWS, WIDTH),
                                 .weight = nm_mat_of(c->in[1], OUT, WIDTH),
                                 .bias = c->in[2],
                                 .targets = targets[c->variant >> 2],
                                 .allowed = c->variant & 2 ? allowed : NULL,
                                 .smoothing = c->variant & 1 ? NM_SMOOTH_OTHERS : NM_SMOOTH_UNIFORM,
                                 .eps = 0.2,
                                 .grad_scale = c->dy[0],
                                 .sums = c->saved[0]};
    if (gradients) {
        loss.d_hidden = c->grad[0];
        loss.d_weight = c->grad[1];
        loss.d_bias = c->grad[2];
    }
    c->b->k.softmax_loss(c->b, &loss);
    c->y[0] = c->saved[0][0];
}

static void loss_forward(grad_case *c)
{
    loss_call(c, false);
}

static void loss_backward(grad_case *c)
{
    loss_call(c, true);
}

static void test_loss(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        grad_case c = {.variant = variant, .n = {ROWS * WIDTH, OUT * WIDTH, OUT}, .n_out = 1};
        check_case("softmax_loss", &c, loss_forward, loss_backward);
    }
}

static const nm_token_norm token_kinds[] = {{.kind = NM_TOKEN_CENTER},
                                            {.kind = NM_TOKEN_CENTER_UNBIASED},
                                            {.kind = NM_TOKEN_CENTER_OUTSIDE},
                                            {.kind = NM_TOKEN_RMS},
                                            {.kind = NM_TOKEN_RMS_OUTSIDE},
                                            {.kind = NM_TOKEN_L2},
                                            {.kind = NM_TOKEN_RMS, .n_used = 2},
                                            {.kind = NM_TOKEN_RMS_OUTSIDE, .n_used = 1},
                                            {.kind = NM_TOKEN_L2, .n_used = 2, .power = 0.7}};
enum { N_TOKEN_KINDS = sizeof token_kinds / sizeof *token_kinds };

static nm_token_norm token_spec(const grad_case *c)
{
    bool single = c->variant >= 2 * N_TOKEN_KINDS;
    nm_token_norm spec = token_kinds[c->variant % N_TOKEN_KINDS];
    spec.groups = c->variant / N_TOKEN_KINDS % 2 ? 2 : 1;
    spec.eps = 0.3;
    spec.weight_len = spec.bias_len = single ? 1 : WIDTH;
    return spec;
}

static void token_forward(grad_case *c)
{
    nm_token_norm spec = token_spec(c);
    NM_CALL(c->b, token_norm, .spec = &spec, .x = nm_mat_of(c->in[0], ROWS, WIDTH), .weight = c->in[1],
            .bias = c->in[2], .y = nm_mat_of(c->y, ROWS, WIDTH), .shift = c->saved[0], .scale = c->saved[1]);
}

static void token_backward(grad_case *c)
{
    nm_token_norm spec = token_spec(c);
    NM_CALL(c->b, token_norm_grad, .spec = &spec, .dy = nm_mat_of(c->dy, ROWS, WIDTH),
            .x = nm_mat_of(c->in[0], ROWS, WIDTH), .weight = c->in[1], .shift = c->saved[0],
            .scale = c->saved[1], .add = true, .dx = nm_mat_of(c->grad[0], ROWS, WIDTH),
            .d_weight = c->grad[1], .d_bias = c->grad[2]);
}

static void test_token_norm(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4 * N_TOKEN_KINDS; variant++) {
        int n = variant >= 2 * N_TOKEN_KINDS ? 1 : WIDTH;
        grad_case c = {.variant = variant, .n = {ROWS * WIDTH, n, n}, .n_out = ROWS * WIDTH};
        check_case("token_norm", &c, token_forward, token_backward);
    }
}

/* Norms of features: x, weight, bias; batch statistics or (variant 3 and up) fixed ones; groups 0, 1,
 * 2. With batch statistics dh = a (dy - mean(dy) - z mean(dy z)), a = weight * scale (Ioffe and Szegedy
 * 2015). */

typedef struct feature_stats {
    double shift[WIDTH], scale[WIDTH], row_scale[2 * ROWS];
} feature_stats;

static void feature_measure(grad_case *c, feature_stats *stats, const nm_feature_norm *spec)
{
    double square[WIDTH];
    NM_CALL(c->b, feature_moments, .spec = spec, .x = nm_mat_of(c->in[0], ROWS, WIDTH),
            .row_scale = stats->row_scale, .center = stats->shift, .mean = stats->shift, .square = square);
    NM_CALL(c->b, vec, .op = NM_VEC_RSQRT, .n = WIDTH, .out = stats->scale, .a = square, .s = 0.1, .t = 0);
    for (int i = 0; i < WIDTH && c->variant >= 3; i++) {
        stats->shift[i] = 0.1 * i;
        stats->scale[i] = 1 - 0.05 * i;
    }
}

static nm_feature_norm feature_spec(const grad_case *c)
{
    return (nm_feature_norm){.groups = c->variant % 3, .eps = 0.2};
}

static void feature_forward(grad_case *c)
{
    nm_feature_norm spec = feature_spec(c);
    feature_stats stats;
    feature_measure(c, &stats, &spec);
    NM_CALL(c->b, feature_norm, .spec = &spec, .x = nm_mat_of(c->in[0], ROWS, WIDTH),
            .row_scale = stats.row_scale, .shift = stats.shift, .scale = stats.scale, .weight = c->in[1],
            .bias = c->in[2], .y = nm_mat_of(c->y, ROWS, WIDTH));
}

static void feature_backward(grad_case *c)
{
    nm_feature_norm spec = feature_spec(c);
    feature_stats stats;
    double a[WIDTH], c0[WIDTH], c1[WIDTH];
    feature_measure(c, &stats, &spec);
    nm_mat dy = nm_mat_of(c->dy, ROWS, WIDTH), x = nm_mat_of(c->in[0], ROWS, WIDTH), none = {NULL, 0, 0, 0};
    NM_CALL(c->b, feature_norm_grad, .spec = &spec, .dy = dy, .x = x, .row_scale = stats.row_scale,
            .shift = stats.shift, .scale = stats.scale, .dx = none, .sum_dy = c->grad[2],
            .sum_dy_z = c->grad[1]);
    double share = c->variant >= 3 ? 0 : -1.0 / ROWS;
    NM_CALL(c->b, vec, .op = NM_VEC_MUL, .n = WIDTH, .out = a, .a = c->in[1], .b = stats.scale, .s = 1,
            .t = 0);
    NM_CALL(c->b, vec, .op = NM_VEC_MUL, .n = WIDTH, .out = c0, .a = a, .b = c->grad[2], .s = share, .t = 0);
    NM_CALL(c->b, vec, .op = NM_VEC_MUL, .n = WIDTH, .out = c1, .a = a, .b = c->grad[1], .s = share, .t = 0);
    NM_CALL(c->b, feature_norm_grad, .spec = &spec, .dy = dy, .x = x, .row_scale = stats.row_scale,
            .shift = stats.shift, .scale = stats.scale, .a = a, .c0 = c0, .c1 = c1, .add = true,
            .dx = nm_mat_of(c->grad[0], ROWS, WIDTH));
}

static void test_feature_norm(void **state)
{
    (void)state;
    for (int variant = 0; variant < 6; variant++) {
        grad_case c = {.variant = variant, .n = {ROWS * WIDTH, WIDTH, WIDTH}, .n_out = ROWS * WIDTH};
        check_case("feature_norm", &c, feature_forward, feature_backward);
    }
}

enum { CHANNELS = 2, POSITIONS = 12 };

static nm_windows windows_of(const grad_case *c)
{
    const bool wide = c->variant & 1;
    return (nm_windows){
        .images = 1, .height = 3, .width = 4, .size = 2, .stride = wide ? 2 : 1, .padding = !wide};
}

static nm_mat map_of(double *data)
{
    return nm_mat_of(data, POSITIONS, CHANNELS);
}

static void window_mean_forward(grad_case *c)
{
    nm_windows w = windows_of(c);
    NM_CALL(c->b, window_mean, .windows = &w, .x = map_of(c->in[0]),
            .out = nm_mat_of(c->y, nm_windows_count(&w), CHANNELS));
}

static void window_mean_backward(grad_case *c)
{
    nm_windows w = windows_of(c);
    NM_CALL(c->b, window_mean_grad, .windows = &w, .dout = nm_mat_of(c->dy, nm_windows_count(&w), CHANNELS),
            .add = c->variant & 2, .dx = map_of(c->grad[0]));
}

/* A convolution to 1 channel, so that all gradients of patches differ. */
static void convolve_forward(grad_case *c)
{
    nm_windows w = windows_of(c);
    double patches[20 * 4 * CHANNELS];
    nm_mat out = nm_mat_of(patches, nm_windows_count(&w), 4 * CHANNELS);
    NM_CALL(c->b, patches, .windows = &w, .x = map_of(c->in[0]), .out = out);
    NM_CALL(c->b, linear, .x = out, .weight = nm_mat_of(c->in[1], 1, out.cols),
            .y = nm_mat_of(c->y, out.rows, 1));
}

static void convolve_backward(grad_case *c)
{
    nm_windows w = windows_of(c);
    double patches[20 * 4 * CHANNELS];
    nm_mat out = nm_mat_of(patches, nm_windows_count(&w), 4 * CHANNELS), dy = nm_mat_of(c->dy, out.rows, 1);
    NM_CALL(c->b, patches, .windows = &w, .x = map_of(c->in[0]), .out = out);
    NM_CALL(c->b, linear_grad_weight, .dy = dy, .x = out, .dw = nm_mat_of(c->grad[1], 1, out.cols));
    NM_CALL(c->b, linear_grad_input, .dy = dy, .weight = nm_mat_of(c->in[1], 1, out.cols), .dx = out);
    NM_CALL(c->b, patches_grad, .windows = &w, .dout = out, .add = c->variant & 2, .dx = map_of(c->grad[0]));
}

static void test_windows(void **state)
{
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        grad_case c = {.variant = variant, .n = {POSITIONS * CHANNELS}};
        nm_windows w = windows_of(&c);
        c.n_out = nm_windows_count(&w) * CHANNELS;
        check_case("window_mean", &c, window_mean_forward, window_mean_backward);
        c = (grad_case){
            .variant = variant, .n = {POSITIONS * CHANNELS, 4 * CHANNELS}, .n_out = nm_windows_count(&w)};
        check_case("patches", &c, convolve_forward, convolve_backward);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_linear),     cmocka_unit_test(test_elementwise),
                                       cmocka_unit_test(test_map),        cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_block_term), cmocka_unit_test(test_loss),
                                       cmocka_unit_test(test_token_norm), cmocka_unit_test(test_feature_norm),
                                       cmocka_unit_test(test_windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
