/* Golden cases of family "crf": loss of a linear chain by sentence, gradients of their sum, best paths under
 * the tag scheme with their scores, and which transitions the scheme allows. Packing removes the padding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "task/tag_chain.h"
#include "golden.h"
#include "nn/tape.h"

enum { EMISSIONS, TRANSITIONS, START, END, N_INPUTS };

static const char *const param_names[] = {NULL, "trans_m", "start_scores", "end_scores"};

typedef struct problem {
    int32_t batch, length, tags, n_tokens;
    int32_t *offsets, *gold;
    size_t *position;             /* [tokens] position in the file */
    golden_tensor want[N_INPUTS]; /* values, then by `expect` gradients */
    nm_tensor inputs[N_INPUTS];
    nm_tape tape;
    const char **names;
    nm_tag_scheme scheme;
} problem;

static golden_result read_sizes(golden_case *test, problem *p)
{
    const json_t *tags = json_object_get(test->config, "tags");
    golden_tensor mask, target;
    p->batch = golden_whole(test, "B", 0);
    p->length = golden_whole(test, "L", 0);
    p->tags = (int32_t)json_array_size(tags);
    p->scheme = nm_tag_scheme_find(test->variant);
    if (p->batch < 1 || p->length < 1 || p->tags < 1 || p->batch > 1000 || p->length > 1000)
        return golden_fail(test, "config: B, L or tags");
    p->names = nm_allocate((size_t)p->tags * sizeof *p->names);
    for (int32_t t = 0; t < p->tags; t++) {
        p->names[t] = json_string_value(json_array_get(tags, (size_t)t));
        if (!p->names[t] || !nm_tag_valid(p->names[t]))
            return golden_fail(test, "config.tags[%d]: no tag", t);
    }
    size_t all = (size_t)p->batch * (size_t)p->length;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "mask"), "mask", &mask));
    golden_result result = golden_read(test, json_object_get(test->root, "target"), "target", &target);
    if (result == GOLDEN_PASSED && (mask.count != all || target.count != all))
        result = golden_fail(test, "mask or target: unexpected shape");
    p->offsets = nm_allocate(((size_t)p->batch + 1) * sizeof *p->offsets);
    p->gold = nm_allocate(all * sizeof *p->gold);
    p->position = nm_allocate(all * sizeof *p->position);
    for (size_t i = 0; result == GOLDEN_PASSED && i < all; i++) {
        if (mask.data[i] != 0) {
            p->position[p->n_tokens] = i;
            p->gold[p->n_tokens++] = (int32_t)target.data[i];
        }
        p->offsets[i / (size_t)p->length + 1] = p->n_tokens;
    }
    golden_release(&mask);
    golden_release(&target);
    return result;
}

static golden_result read_input(golden_case *test, problem *p, int i)
{
    const json_t *from = i == EMISSIONS ? test->root : json_object_get(test->root, "params");
    const char *name = i == EMISSIONS ? "emissions" : param_names[i];
    size_t tags = (size_t)p->tags,
           counts[] = {(size_t)p->batch * (size_t)p->length * tags, tags * tags, tags, tags};
    GOLDEN_TRY(golden_read(test, json_object_get(from, name), name, &p->want[i]));
    return p->want[i].count == counts[i] ? GOLDEN_PASSED : golden_fail(test, "%s: unexpected shape", name);
}

static void make_input(const golden_case *test, problem *p, int i)
{
    size_t tags = (size_t)p->tags;
    int32_t rows = i == EMISSIONS ? p->n_tokens : i == TRANSITIONS ? p->tags : 1;
    size_t count = (size_t)rows * tags;
    double *values = nm_allocate(count * sizeof *values);
    for (size_t k = 0; k < count; k++)
        values[k] = p->want[i].data[i == EMISSIONS ? p->position[k / tags] * tags + k % tags : k];
    p->inputs[i] = (nm_tensor){.data = golden_reals(test, values, count), .rows = rows, .cols = p->tags};
    if (i == EMISSIONS) /* the operation computes this gradient */
        p->inputs[i].pooled = true;
    else
        p->inputs[i].grad = golden_reals(test, NULL, count);
    p->inputs[i].grad_started = i != EMISSIONS;
    free(values);
}

/* The decoding of the source program adds the scores of the first tag and of forbidden transitions to the
 * emissions of the first token in place, before the cases were written: the emissions of the loss are
 * restored. */
static void restore_emissions(problem *p)
{
    size_t tags = (size_t)p->tags;
    for (int32_t s = 0; s < p->batch; s++)
        for (size_t t = 0; t < tags; t++)
            p->want[EMISSIONS].data[(size_t)s * (size_t)p->length * tags + t] -=
                p->want[START].data[t] + (nm_tag_allowed(p->scheme, NULL, p->names[t]) ? 0 : -10000);
}

static double loss_of(problem *p, int32_t first, int32_t n, bool training)
{
    int32_t *offsets = nm_allocate(((size_t)n + 1) * sizeof *offsets);
    nm_packing packing = {.n_seqs = n, .longest = p->length, .offsets = offsets};
    nm_tensor rows = p->inputs[EMISSIONS];
    size_t unit = nm_dtype_bytes(p->tape.backend->dtype);
    for (int32_t s = 0; s <= n; s++)
        offsets[s] = p->offsets[first + s] - p->offsets[first];
    packing.n_tokens = rows.rows = offsets[n];
    rows.data = (char *)rows.data + (size_t)p->offsets[first] * (size_t)p->tags * unit;
    const nm_crf_scores scores = {&p->inputs[TRANSITIONS], &p->inputs[START], &p->inputs[END]};
    nm_error err;
    nm_tape_start(&p->tape, training, 1, 0);
    double *sums = nm_crf_loss(&p->tape, training ? &p->inputs[EMISSIONS] : &rows, &scores, &packing,
                               p->gold + p->offsets[first]);
    double loss = sums ? sums[0] : NAN;
    if (training && nm_tape_backward(&p->tape, &err) != NM_OK)
        loss = NAN;
    free(offsets);
    return loss;
}

static golden_result compare_losses(golden_case *test, problem *p)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "nll_per_sentence"), "nll", &want));
    golden_result result = GOLDEN_PASSED;
    double sum = 0;
    for (int32_t s = 0; result == GOLDEN_PASSED && s < p->batch; s++) {
        double loss = loss_of(p, s, 1, false);
        sum += want.data[s];
        if (!(fabs(loss - want.data[s]) <= test->value_tolerance * (1 + fabs(want.data[s]))))
            result = golden_fail(test, "nll[%d]: got %.12g, expected %.12g", s, loss, want.data[s]);
    }
    double all = loss_of(p, 0, p->batch, true);
    if (result == GOLDEN_PASSED && !(fabs(all - sum) <= test->value_tolerance * (1 + fabs(sum))))
        result = golden_fail(test, "sum of nll: got %.12g, expected %.12g", all, sum);
    golden_release(&want);
    return result;
}

static golden_result compare_gradients(golden_case *test, problem *p)
{
    const json_t *params = json_object_get(test->root, "dparams_of_sum");
    size_t tags = (size_t)p->tags;
    for (int i = 0; i < N_INPUTS; i++) {
        golden_tensor want;
        const json_t *from = i == EMISSIONS ? json_object_get(test->root, "demissions_of_sum")
                                            : json_object_get(params, param_names[i]);
        const char *what = i == EMISSIONS ? "demissions" : param_names[i];
        GOLDEN_TRY(golden_read(test, from, what, &want));
        size_t count = (size_t)p->inputs[i].rows * tags;
        /* positions increase, so that nothing is overwritten before it is read */
        for (size_t k = 0; i == EMISSIONS && k < count; k++)
            want.data[k] = want.data[p->position[k / tags] * tags + k % tags];
        golden_result result =
            golden_compare(test, what, p->inputs[i].grad, want.data, count, test->gradient_tolerance);
        golden_release(&want);
        GOLDEN_TRY(result);
    }
    return GOLDEN_PASSED;
}

static golden_result compare_paths(golden_case *test, const problem *p)
{
    golden_tensor path, score;
    size_t tags = (size_t)p->tags;
    nm_chain chain;
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "viterbi_path"), "viterbi_path", &path));
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "viterbi_score"), "viterbi_score", &score));
    nm_chain_init(&chain, p->tags);
    memcpy(chain.transitions, p->want[TRANSITIONS].data, tags * tags * sizeof(double));
    memcpy(chain.start, p->want[START].data, tags * sizeof(double));
    memcpy(chain.end, p->want[END].data, tags * sizeof(double));
    nm_chain_forbid(&chain, p->scheme, p->names);
    int32_t *found = nm_allocate((size_t)p->length * sizeof *found);
    golden_result result = GOLDEN_PASSED;
    for (int32_t s = 0; result == GOLDEN_PASSED && s < p->batch; s++) {
        size_t first = (size_t)s * (size_t)p->length;
        int32_t n = p->offsets[s + 1] - p->offsets[s];
        double got = nm_viterbi(&chain, p->want[EMISSIONS].data + first * tags, n, found);
        if (!(fabs(got - score.data[s]) <= 1e-9 * (1 + fabs(score.data[s]))))
            result = golden_fail(test, "viterbi_score[%d]: got %.12g, expected %.12g", s, got, score.data[s]);
        for (int32_t i = 0; result == GOLDEN_PASSED && i < n; i++)
            if (found[i] != (int32_t)path.data[first + (size_t)i])
                result = golden_fail(test, "viterbi_path[%d, %d]: got %d", s, i, found[i]);
    }
    free(found);
    nm_chain_release(&chain);
    golden_release(&path);
    golden_release(&score);
    return result;
}

static bool listed(const json_t *pairs, int32_t from, int32_t to)
{
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);
        if (json_integer_value(json_array_get(pair, 0)) == from &&
            json_integer_value(json_array_get(pair, 1)) == to)
            return true;
    }
    return false;
}

static golden_result compare_allowed(golden_case *test, const problem *p)
{
    const json_t *pairs = json_object_get(test->root, "allowed_transitions");
    int32_t start = golden_whole(test, "start_index", -1), end = golden_whole(test, "end_index", -1);
    for (int32_t from = -1; from < p->tags; from++)
        for (int32_t to = -1; to < p->tags; to++) {
            if (from < 0 && to < 0)
                continue; /* an empty sentence */
            bool allowed =
                nm_tag_allowed(p->scheme, from < 0 ? NULL : p->names[from], to < 0 ? NULL : p->names[to]);
            if (allowed != listed(pairs, from < 0 ? start : from, to < 0 ? end : to))
                return golden_fail(test, "transition %s to %s is %s", from < 0 ? "begin" : p->names[from],
                                   to < 0 ? "end" : p->names[to],
                                   allowed ? "allowed here" : "forbidden here");
        }
    return GOLDEN_PASSED;
}

static golden_result solve(golden_case *test, problem *p)
{
    GOLDEN_TRY(read_sizes(test, p));
    for (int i = 0; i < N_INPUTS; i++)
        GOLDEN_TRY(read_input(test, p, i));
    restore_emissions(p);
    for (int i = 0; i < N_INPUTS; i++)
        make_input(test, p, i);
    GOLDEN_TRY(compare_losses(test, p));
    GOLDEN_TRY(compare_gradients(test, p));
    GOLDEN_TRY(compare_paths(test, p));
    return compare_allowed(test, p);
}

static golden_result run(golden_case *test)
{
    problem p = {0};
    nm_error err;
    if (strcmp(test->method, "linear_chain_crf"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    if (strcmp(test->variant, "bioes") && strcmp(test->variant, "bmeso"))
        return golden_skip(test, "variant '%.60s' is not offered", test->variant);
    if (nm_tape_init(&p.tape, test->backend, (size_t)1 << 24, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    golden_result result = solve(test, &p);
    for (int i = 0; i < N_INPUTS; i++) {
        golden_release(&p.want[i]);
        free(p.inputs[i].data);
        if (i != EMISSIONS) /* the gradient of the emissions belongs to the tape */
            free(p.inputs[i].grad);
    }
    nm_tape_release(&p.tape);
    free(p.offsets);
    free(p.gold);
    free(p.position);
    free((void *)p.names);
    return result;
}

const golden_family golden_crf = {.name = "crf", .run = run, .computes = true};
