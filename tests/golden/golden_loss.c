/* Golden cases of family "loss": label-smoothed cross entropy of given logits. The loss kernel computes the
 * logits itself: the given logits are the hidden values, and the weight is the identity. Padding targets are
 * removed. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"

typedef struct problem {
    golden_tensor logits, target, gradient;
    int32_t tokens, words;
    int32_t *targets;
    void *hidden, *identity, *computed;
} problem;

static golden_result read_problem(golden_case *test, problem *p)
{
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "logits"), "logits", &p->logits));
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "target"), "target", &p->target));
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "dlogits_of_loss_sum"), "dlogits_of_loss_sum",
                           &p->gradient));
    size_t rows = p->target.count;
    if (p->logits.rank != 2 || (size_t)p->logits.shape[0] != rows || p->gradient.count != p->logits.count ||
        p->logits.shape[1] < 1 || p->logits.shape[1] > 65536)
        return golden_fail(test, "logits, target and gradient do not fit together");
    p->words = (int32_t)p->logits.shape[1];
    double pad = golden_number(test, "pad_index", -1);
    size_t columns = (size_t)p->words;
    p->targets = nm_allocate((rows + 1) * sizeof *p->targets);
    for (size_t i = 0; i < rows; i++) {
        double target = p->target.data[i];
        if (target == pad)
            continue;
        if (!(target >= 0 && target < p->words))
            return golden_fail(test, "target[%zu] is no word", i);
        size_t to = (size_t)p->tokens;
        memmove(p->logits.data + to * columns, p->logits.data + i * columns, columns * sizeof(double));
        memmove(p->gradient.data + to * columns, p->gradient.data + i * columns, columns * sizeof(double));
        p->targets[p->tokens++] = (int32_t)target;
    }
    return p->tokens ? GOLDEN_PASSED : golden_skip(test, "no real targets");
}

static golden_result compare_sum(golden_case *test, const char *key, double got)
{
    const json_t *expected = json_object_get(test->root, key);
    if (!json_is_number(expected))
        return GOLDEN_PASSED;
    double want = json_number_value(expected);
    void *real = golden_reals(test, &got, 1);
    golden_result result = golden_compare(test, key, real, &want, 1, test->value_tolerance);
    free(real);
    return result;
}

static golden_result solve(golden_case *test, problem *p)
{
    size_t count = (size_t)p->tokens * (size_t)p->words;
    double sums[2] = {0, 0};
    bool others = strstr(test->variant, "minus_1") != NULL;
    p->hidden = golden_reals(test, p->logits.data, count);
    p->computed = golden_reals(test, NULL, count);
    double *identity = nm_allocate((size_t)p->words * (size_t)p->words * sizeof *identity);
    for (int32_t v = 0; v < p->words; v++)
        identity[(size_t)v * (size_t)p->words + (size_t)v] = 1;
    p->identity = golden_reals(test, identity, (size_t)p->words * (size_t)p->words);
    free(identity);
    const nm_softmax_loss_args loss = {.hidden = nm_mat_of(p->hidden, p->tokens, p->words),
                                       .weight = nm_mat_of(p->identity, p->words, p->words),
                                       .targets = p->targets,
                                       .smoothing = others ? NM_SMOOTH_OTHERS : NM_SMOOTH_UNIFORM,
                                       .eps = golden_number(test, "epsilon", 0),
                                       .grad_scale = 1,
                                       .sums = sums,
                                       .d_hidden = p->computed};
    test->backend->k.softmax_loss(test->backend, &loss);
    GOLDEN_TRY(compare_sum(test, "loss_sum", sums[0]));
    GOLDEN_TRY(compare_sum(test, "nll_sum", sums[1]));
    return golden_compare(test, "dlogits", p->computed, p->gradient.data, count, test->gradient_tolerance);
}

static golden_result run(golden_case *test)
{
    problem p = {0};
    if (strcmp(test->method, "label_smoothed_cross_entropy"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    golden_result result = read_problem(test, &p);
    if (result == GOLDEN_PASSED)
        result = solve(test, &p);
    golden_release(&p.logits);
    golden_release(&p.target);
    golden_release(&p.gradient);
    free(p.targets);
    free(p.hidden);
    free(p.identity);
    free(p.computed);
    return result;
}

const golden_family golden_loss = {.name = "loss", .run = run, .computes = true};
