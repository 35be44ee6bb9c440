/* Softmax: loss with its gradients, log probabilities, top k. */
#include "kernel_checks.h"

/* Every third word is excluded; no target is excluded. */
static pair_list allowed_words(pair *p, int32_t words)
{
    uint8_t *allowed = nm_allocate((size_t)words);
    for (int32_t v = 0; v < words; v++)
        allowed[v] = v % 3 != 2;
    pair_list list = pair_list_of(p, allowed, (size_t)words);
    free(allowed);
    return list;
}

/* Every seventh target is ignored. */
static pair_list loss_targets(pair *p, int32_t tokens, int32_t words)
{
    int32_t *targets = nm_allocate((size_t)tokens * sizeof *targets);
    for (int32_t i = 0; i < tokens; i++)
        targets[i] = i % 7 == 6 ? NM_TARGET_IGNORED : i * 5 % words % 3 == 2 ? 0 : i * 5 % words;
    pair_list list = pair_list_of(p, targets, (size_t)tokens * sizeof *targets);
    free(targets);
    return list;
}

typedef struct loss_case {
    int32_t words;
    nm_smoothing smoothing;
    double eps;
    bool bias, mask, hidden, weight; /* which gradients are computed */
} loss_case;

static void check_loss_case(pair *p, size z, const loss_case *c)
{
    test_mat hidden = pair_random(p, z.rows, z.cols, z.gap),
             weight = pair_make(p, c->words, z.cols, 0, small);
    test_mat bias = random_vector(p, c->words), d_hidden = pair_random(p, z.rows, z.cols, 0);
    test_mat d_weight = pair_make(p, c->words, z.cols, 0, small),
             d_bias = pair_make(p, 1, c->words, 0, small);
    pair_list targets = loss_targets(p, z.rows, c->words), allowed = allowed_words(p, c->words);
    pair_list sums = pair_list_of(p, (const double[]){77, 78}, 2 * sizeof(double));
    double grad_scale = 1.0 / z.rows;
    BOTH(p, softmax_loss, .hidden = hidden.m[s], .weight = weight.m[s],
         .bias = c->bias ? bias.m[s].data : NULL, .targets = targets.memory[s],
         .allowed = c->mask ? allowed.memory[s] : NULL, .smoothing = c->smoothing, .eps = c->eps,
         .grad_scale = grad_scale, .sums = sums.memory[s], .d_hidden = c->hidden ? d_hidden.m[s].data : NULL,
         .d_weight = c->weight ? d_weight.m[s].data : NULL,
         .d_bias = c->weight && c->bias ? d_bias.m[s].data : NULL);
    double *const memory[] = {sums.memory[ACTUAL], sums.memory[EXPECTED]};
    pair_compare_sums(p, memory, z.rows);
    BOTH(p, softmax_loss, .hidden = hidden.m[s], .weight = weight.m[s], .targets = targets.memory[s],
         .add_sums = true, .sums = sums.memory[s]);
    pair_compare_sums(p, memory, 2 * z.rows);
    if (c->hidden)
        mat_compare(p, "d_hidden", d_hidden, 64, 0.1 * grad_scale);
    if (c->weight)
        mat_compare(p, "d_weight", d_weight, 64, grad_scale * sqrt(z.rows));
    if (c->weight && c->bias)
        mat_compare(p, "d_bias", d_bias, 64, grad_scale * sqrt(z.rows));
}

void check_softmax_loss(pair *p, size z)
{
    static const loss_case cases[] = {{2, NM_SMOOTH_UNIFORM, 0, false, false, true, true},
                                      {33, NM_SMOOTH_UNIFORM, 0.1, true, false, true, true},
                                      {33, NM_SMOOTH_OTHERS, 0.1, false, false, true, false},
                                      {257, NM_SMOOTH_UNIFORM, 0.1, true, true, true, true},
                                      {257, NM_SMOOTH_OTHERS, 0.1, true, true, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_loss_case(p, z, &cases[i]);
        pair_close(p);
    }
    if (z.cols == 7 && z.rows == 130) { /* several blocks of rows */
        size tall = {600, 7, z.gap};
        check_loss_case(p, tall, &cases[1]);
    }
}

void check_log_softmax(pair *p, size z)
{
    test_mat x = pair_random(p, z.rows, z.cols, z.gap), y = pair_random(p, z.rows, z.cols, 0);
    pair_list allowed = allowed_words(p, z.cols);
    BOTH(p, log_softmax, .x = x.m[s], .allowed = allowed.memory[s], .y = y.m[s]);
    BOTH(p, log_softmax, .x = x.m[s], .y = x.m[s]);
    mat_compare(p, "y", y, 16, 1);
    mat_compare(p, "x in place", x, 16, 1);
}

/* Three models; in the last column no model has a probability. */
void check_mix(pair *p, size z)
{
    const size_t n = (size_t)z.rows * (size_t)z.cols;
    double *start = nm_allocate(n * sizeof *start);
    for (size_t i = 0; i < n; i++)
        start[i] = NAN; /* not read */
    pair_list mixture = pair_list_of(p, start, n * sizeof *start);
    free(start);
    test_mat y = pair_random(p, z.rows, z.cols, 0);
    for (int32_t m = 0; m < 3; m++) {
        test_mat x = pair_random(p, z.rows, z.cols, z.gap);
        if (z.rows > 2)
            mat_fill_row(p, x, 1, -INFINITY);
        BOTH(p, mix, .x = x.m[s], .m = m, .n = 3, .mixture = mixture.memory[s], .y = y.m[s]);
    }
    mat_compare(p, "y", y, 8, 1);
}

/* The k largest of log probabilities, with ties and rows without probabilities */
static void check_ready(pair *p, size z)
{
    int32_t ks[] = {1, z.cols < 5 ? z.cols : 5, z.cols < 40 ? z.cols : 40};
    for (int i = 0; i < 3; i++) {
        int32_t k = ks[i];
        size_t bytes = (size_t)z.rows * (size_t)k * sizeof(int32_t);
        test_mat x = pair_make(p, z.rows, z.cols, z.gap, coarse), values = pair_random(p, z.rows, k, 0);
        test_mat also = pair_random(p, z.rows, 1, 0);
        if (z.rows > 2)
            mat_fill_row(p, x, 1, -INFINITY);
        int32_t *columns[2] = {nm_allocate(bytes), nm_allocate(bytes)};
        pair_list lists = pair_list_of(p, columns[0], bytes);
        BOTH(p, log_top_k, .x = x.m[s], .ready = true, .k = k, .values = values.m[s].data,
             .columns = lists.memory[s], .also_values = also.m[s].data);
        for (int s = ACTUAL; s <= EXPECTED; s++)
            nm_backend_download(p->on[s], columns[s], lists.memory[s], bytes);
        mat_compare(p, "values", values, 0, 0);
        mat_compare(p, "also", also, 0, 0);
        if (memcmp(columns[ACTUAL], columns[EXPECTED], bytes) != 0)
            fail_msg("%s: columns differ from the reference (k = %d)", p->what, (int)k);
        free(columns[ACTUAL]);
        free(columns[EXPECTED]);
    }
}

/* With ties, and with excluded words; the given words also. */
void check_log_top_k(pair *p, size z)
{
    check_ready(p, z);
    for (int masked = 0; masked < 2; masked++) {
        int32_t k = z.cols < 9 ? 1 : masked ? 9 : 5, also = masked ? 0 : z.cols - 1;
        size_t bytes = (size_t)z.rows * (size_t)k * sizeof(int32_t);
        test_mat x = pair_make(p, z.rows, z.cols, z.gap, masked ? pair_normal : coarse);
        test_mat values = pair_random(p, z.rows, k, 0), also_values = pair_random(p, z.rows, 1, 0);
        test_mat given_values = pair_random(p, z.rows, 1, 0);
        int32_t *words = nm_allocate((size_t)z.rows * sizeof *words);
        for (int32_t i = 0; i < z.rows; i++)
            words[i] = i % 5 == 4 ? NM_TARGET_IGNORED : i * 7 % z.cols;
        pair_list given = pair_list_of(p, words, (size_t)z.rows * sizeof *words);
        pair_list allowed = allowed_words(p, z.cols);
        int32_t *columns[2] = {nm_allocate(bytes), nm_allocate(bytes)};
        pair_list lists = pair_list_of(p, columns[0], bytes);
        BOTH(p, log_top_k, .x = x.m[s], .allowed = masked ? allowed.memory[s] : NULL, .k = k,
             .values = values.m[s].data, .columns = lists.memory[s], .also = also,
             .also_values = also_values.m[s].data, .given = masked ? given.memory[s] : NULL,
             .given_values = given_values.m[s].data);
        for (int s = ACTUAL; s <= EXPECTED; s++)
            nm_backend_download(p->on[s], columns[s], lists.memory[s], bytes);
        mat_compare(p, "values", values, 16, 1);
        mat_compare(p, "also", also_values, 16, 1);
        mat_compare(p, "given", given_values, 16, 1);
        free(words);
        pair_mark(p, x);
        if (memcmp(columns[ACTUAL], columns[EXPECTED], bytes) != 0)
            fail_msg("%s: columns differ from the reference", p->what);
        free(columns[ACTUAL]);
        free(columns[EXPECTED]);
    }
}
