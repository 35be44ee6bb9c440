/* Golden cases of family "model": logits, losses, gradients of all parameters and running state of whole
 * encoder-decoders. Padding of the source programs is removed: batches are packed. */
#include "golden_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/batch.h"

/* A padded matrix of ids [sentences, columns], packed without the positions that `where` marks as padding. */
typedef struct packed {
    int32_t *ids, *pos, *from; /* from: position in the padded matrix */
    int32_t *offsets;
    nm_packing packing;
    bool padded;
} packed;

typedef struct step {
    const json_t *root;
    char label[32];
    bool train;
    packed source, target, gold;
} step;

static void packed_release(packed *p)
{
    free(p->ids);
    free(p->pos);
    free(p->from);
    free(p->offsets);
    *p = (packed){0};
}

static golden_result pack(golden_case *test, const step *now, const char *key, const char *where, int32_t pad,
                          packed *p)
{
    golden_tensor ids, mask;
    *p = (packed){0};
    GOLDEN_TRY(golden_read(test, json_object_get(now->root, key), key, &ids));
    if (golden_read(test, json_object_get(now->root, where), where, &mask) != GOLDEN_PASSED) {
        golden_release(&ids);
        return GOLDEN_FAILED;
    }
    golden_result result = GOLDEN_PASSED;
    if (ids.rank != 2 || mask.count != ids.count) {
        result = golden_fail(test, "%s: not the shape of %s", key, where);
    } else {
        p->ids = nm_allocate(ids.count * sizeof(int32_t));
        p->pos = nm_allocate(ids.count * sizeof(int32_t));
        p->from = nm_allocate(ids.count * sizeof(int32_t));
        p->offsets = nm_allocate(((size_t)ids.shape[0] + 1) * sizeof(int32_t));
        int32_t n = 0, columns = (int32_t)ids.shape[1];
        for (int32_t s = 0; s < (int32_t)ids.shape[0]; s++) {
            for (int32_t c = 0; c < columns; c++) {
                int32_t at = s * columns + c;
                if ((int32_t)mask.data[at] == pad)
                    continue;
                p->pos[n] = n - p->offsets[s];
                p->from[n] = at;
                p->ids[n++] = (int32_t)ids.data[at];
            }
            int32_t length = n - p->offsets[s];
            p->offsets[s + 1] = n;
            p->packing.longest = length > p->packing.longest ? length : p->packing.longest;
        }
        p->padded = (size_t)n < ids.count;
        p->packing = (nm_packing){(int32_t)ids.shape[0], n, p->packing.longest, p->offsets, NULL};
    }
    golden_release(&ids);
    golden_release(&mask);
    return result;
}

static golden_result read_step(golden_case *test, const golden_model *made, step *now)
{
    const char *in = made->tears ? "tgt_in" : "prev_output_tokens", *out = made->tears ? "targets" : "target";
    GOLDEN_TRY(pack(test, now, "src", "src", made->pad, &now->source));
    GOLDEN_TRY(pack(test, now, in, out, made->pad, &now->target));
    GOLDEN_TRY(pack(test, now, out, out, made->pad, &now->gold));
    int32_t words = made->model->target_size;
    const packed *all[] = {&now->source, &now->target, &now->gold};
    for (int i = 0; i < 3; i++)
        for (int32_t t = 0; t < all[i]->packing.n_tokens; t++)
            if (all[i]->ids[t] < 0 || all[i]->ids[t] >= words)
                return golden_fail(test, "%s: word %d is out of range", now->label, all[i]->ids[t]);
    const char *norm = nm_seq2seq_of(made->model)->encoder.config.norm;
    bool powernorm = !made->tears && !json_object_get(made->config, "other_norms");
    if (now->source.padded && powernorm && !strcmp(norm, "power"))
        return golden_skip(test, "nu runs over padding rows (nu_scope all_rows)");
    if (now->source.padded && powernorm && !strcmp(norm, "batch"))
        return golden_skip(test, "padding rows are counted in the statistics");
    return GOLDEN_PASSED;
}

static golden_result compare_number(golden_case *test, const step *now, const char *key, double got)
{
    const json_t *expected = json_object_get(now->root, key);
    if (!json_is_number(expected))
        return GOLDEN_PASSED;
    double want = json_number_value(expected);
    if (!(fabs(got - want) <= test->value_tolerance * (1 + fabs(want))))
        return golden_fail(test, "%s%s: got %.12g, expected %.12g", now->label, key, got, want);
    return GOLDEN_PASSED;
}

/* Compares packed rows with their rows of the padded tensor; excluded tokens are skipped. */
static golden_result compare_rows(golden_case *test, const step *now, const char *key, nm_mat ours,
                                  const uint8_t *allowed)
{
    golden_tensor want;
    const json_t *value = json_object_get(now->root, key);
    if (!value)
        return GOLDEN_PASSED;
    GOLDEN_TRY(golden_read(test, value, key, &want));
    size_t columns = (size_t)ours.cols;
    void *got = golden_download(test, ours.data, (size_t)ours.rows * columns);
    golden_result result = GOLDEN_PASSED;
    for (int32_t i = 0; i < ours.rows && result == GOLDEN_PASSED; i++)
        for (size_t c = 0; c < columns && result == GOLDEN_PASSED; c++) {
            size_t at = (size_t)now->target.from[i] * columns + c;
            if (at >= want.count) {
                result = golden_fail(test, "%s%s is too short", now->label, key);
                break;
            }
            double a = golden_real(test, got, (size_t)i * columns + c), b = want.data[at];
            if ((!allowed || allowed[c]) && !(fabs(a - b) <= test->value_tolerance * (1 + fabs(b))))
                result = golden_fail(test, "%s%s[%zu]: got %.10g, expected %.10g", now->label, key, at, a, b);
        }
    free(got);
    golden_release(&want);
    return result;
}

static golden_result compare_grads(golden_case *test, const golden_model *made, const step *now,
                                   const json_t *grads)
{
    if (!json_is_object(grads))
        return golden_fail(test, "%sno gradients", now->label);
    size_t unit = nm_dtype_bytes(test->backend->dtype);
    golden_result result = GOLDEN_PASSED;
    for (size_t i = 0; i < made->n_pieces && result == GOLDEN_PASSED; i++) {
        const golden_piece *piece = &made->pieces[i];
        const nm_param *param = nm_params_find(&made->model->params, piece->ours);
        char what[160];
        golden_tensor want;
        snprintf(what, sizeof what, "%sgradient of %s", now->label, piece->source);
        GOLDEN_TRY(golden_read(test, json_object_get(grads, piece->source), what, &want));
        void *got = golden_download(test, (char *)param->tensor.grad + piece->first * unit, piece->count);
        if (piece->source_first + piece->count > want.count)
            result = golden_fail(test, "%s is too short", what);
        else
            result = golden_compare(test, what, got, want.data + piece->source_first, piece->count,
                                    test->gradient_tolerance);
        free(got);
        golden_release(&want);
    }
    return result;
}

static golden_result compare_vector(golden_case *test, const char *what, const json_t *value,
                                    const void *device, int32_t length)
{
    golden_tensor want;
    GOLDEN_TRY(golden_read(test, value, what, &want));
    golden_result result = GOLDEN_PASSED;
    if (want.count != (size_t)length) {
        result = golden_fail(test, "%s: %zu numbers, ours has %d", what, want.count, length);
    } else {
        void *got = golden_download(test, device, want.count);
        result = golden_compare(test, what, got, want.data, want.count, test->gradient_tolerance);
        free(got);
    }
    golden_release(&want);
    return result;
}

static golden_result compare_state(golden_case *test, const golden_model *made, const step *now)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(now->root, "state_after"), name, value)
    {
        golden_state ours;
        int64_t expected;
        char what[160];
        snprintf(what, sizeof what, "%sstate_after.%.100s", now->label, name);
        GOLDEN_TRY(golden_model_state(test, made, name, &ours));
        if (ours.vector) {
            GOLDEN_TRY(compare_vector(test, what, value, ours.vector, ours.length));
            continue;
        }
        GOLDEN_TRY(golden_counter(test, value, what, &expected));
        if (*ours.counter != expected)
            return golden_fail(test, "%s: got %lld, expected %lld", what, (long long)*ours.counter,
                               (long long)expected);
    }
    return GOLDEN_PASSED;
}

static void read_smoothing(const golden_case *test, nm_loss_spec *loss)
{
    loss->eps = golden_number(test, "label_smoothing", 0);
    const char *form = golden_text(test, "label_smoothing_form", "");
    loss->smoothing = strstr(form, "V-1") ? NM_SMOOTH_OTHERS : NM_SMOOTH_UNIFORM;
}

static golden_result compare_backward(golden_case *test, golden_model *made, const step *now)
{
    static const char *const keys[] = {"dparams_of_opt_loss", "dparams_of_loss_sum_plus_reg",
                                       "dparams_of_loss_sum"};
    nm_params *params = &made->model->params;
    const json_t *grads = NULL;
    for (int i = 0; i < 3 && !grads; i++)
        grads = json_object_get(now->root, keys[i]);
    GOLDEN_TRY(compare_grads(test, made, now, grads));
    double square;
    NM_CALL(test->backend, dot, .n = params->n_elements, .a = params->grads, .b = params->grads,
            .out = &square);
    return compare_number(test, now, "global_grad_norm", sqrt(square));
}

static golden_result compare_forward(golden_case *test, golden_model *made, const step *now,
                                     nm_model_output out, const double results[3], const uint8_t *allowed)
{
    double tokens = now->gold.packing.n_tokens;
    nm_mat logits = {0};
    void *memory;
    nm_error err = {0};
    nm_backend *b = test->backend;
    size_t bytes = (size_t)out.hidden->rows * (size_t)out.weight->rows * nm_dtype_bytes(b->dtype);
    if (nm_backend_alloc(b, bytes, &memory, &err) != NM_OK)
        return golden_fail(test, "%s", err.text);
    logits = nm_mat_of(memory, out.hidden->rows, out.weight->rows);
    nm_dropout none = {0};
    NM_CALL(b, linear, .x = nm_tensor_mat(out.hidden), .weight = nm_tensor_mat(out.weight),
            .bias = out.bias ? out.bias->data : NULL, .drop = &none, .y = logits);
    golden_result result = compare_rows(test, now, made->tears ? "logits_masked" : "logits", logits, allowed);
    nm_backend_dealloc(b, memory);
    GOLDEN_TRY(result);
    GOLDEN_TRY(compare_rows(test, now, "decoder_output", nm_tensor_mat(out.hidden), NULL));
    GOLDEN_TRY(compare_number(test, now, "loss_sum", results[0]));
    GOLDEN_TRY(compare_number(test, now, "nll_sum", results[1]));
    GOLDEN_TRY(compare_number(test, now, "opt_loss", results[0] / tokens));
    GOLDEN_TRY(compare_number(test, now, "num_words", tokens));
    GOLDEN_TRY(compare_number(test, now, "ntokens", tokens));
    return now->train ? compare_number(test, now, "reg_sum", results[2]) : GOLDEN_PASSED;
}

static golden_result run_on_tape(golden_case *test, golden_model *made, nm_tape *tape, const step *now,
                                 const uint8_t *allowed)
{
    nm_batch batch = {.n = now->source.packing.n_seqs,
                      .source = now->source.packing,
                      .target = now->target.packing,
                      .source_ids = now->source.ids,
                      .source_pos = now->source.pos,
                      .target_in = now->target.ids,
                      .target_out = now->gold.ids,
                      .target_pos = now->target.pos};
    nm_loss_spec loss = {.allowed = made->model->allowed, .targets = now->gold.ids};
    read_smoothing(test, &loss);
    nm_tape_start(tape, now->train, 1, 0);
    tape->grad_scale = made->tears ? 1.0 / now->gold.packing.n_tokens : 1;
    nm_model_output out = made->model->type->forward(made->model, tape, &batch);
    if (now->train) { /* the loss has already written gradients of the output embedding */
        nm_params *params = &made->model->params;
        nm_backend_zero(test->backend, params->grads,
                        params->n_elements * nm_dtype_bytes(test->backend->dtype));
    }
    const double *device_sums = nm_softmax_loss_of(tape, out.hidden, out.weight, out.bias, &loss);
    double results[3];
    nm_error err = {0};
    if (nm_tape_results(tape, device_sums, results, &err) != NM_OK)
        return golden_fail(test, "%s%s", now->label, err.text);
    GOLDEN_TRY(compare_forward(test, made, now, out, results, allowed));
    if (now->train && nm_tape_backward(tape, &err) != NM_OK)
        return golden_fail(test, "%s%s", now->label, err.text);
    if (now->train) { /* as at the end of an update */
        nm_params_update_norms(&made->model->params, tape->grad_scale);
        GOLDEN_TRY(compare_backward(test, made, now));
    }
    return compare_state(test, made, now);
}

static golden_result run_step(golden_case *test, golden_model *made, nm_tape *tape, step *now,
                              const uint8_t *allowed)
{
    golden_result result = read_step(test, made, now);
    if (result == GOLDEN_PASSED)
        result = run_on_tape(test, made, tape, now, allowed);
    packed_release(&now->source);
    packed_release(&now->target);
    packed_release(&now->gold);
    return result;
}

static golden_result run_steps(golden_case *test, golden_model *made, nm_tape *tape)
{
    const json_t *steps = json_object_get(test->root, "steps"), *root;
    size_t index;
    if (!json_array_size(steps))
        return golden_fail(test, "no steps");
    json_array_foreach(steps, index, root)
    {
        const char *mode = json_string_value(json_object_get(root, "mode"));
        step now = {.root = root, .train = mode && !strcmp(mode, "train")};
        snprintf(now.label, sizeof now.label, "step %zu: ", index);
        if (!now.train && (!mode || strcmp(mode, "eval")))
            return golden_fail(test, "%smode is neither train nor eval", now.label);
        GOLDEN_TRY(run_step(test, made, tape, &now, NULL));
    }
    return GOLDEN_PASSED;
}

static golden_result run_single(golden_case *test, golden_model *made, nm_tape *tape)
{
    golden_tensor mask;
    nm_error err = {0};
    step now = {.root = test->root, .train = true};
    GOLDEN_TRY(golden_read(test, json_object_get(test->root, "logit_mask_1_allowed"), "logit_mask_1_allowed",
                           &mask));
    uint8_t *allowed = nm_allocate(mask.count);
    for (size_t i = 0; i < mask.count; i++)
        allowed[i] = mask.data[i] != 0;
    golden_result result = GOLDEN_PASSED;
    if (mask.count != (size_t)made->model->target_size)
        result = golden_fail(test, "logit_mask_1_allowed has %zu numbers", mask.count);
    else if (nm_model_allow(made->model, allowed, &err) != NM_OK)
        result = golden_fail(test, "%s", err.text);
    else
        result = run_step(test, made, tape, &now, allowed);
    free(allowed);
    golden_release(&mask);
    return result;
}

static golden_result run(golden_case *test)
{
    golden_model made;
    nm_tape tape;
    nm_error err = {0};
    if (!strcmp(test->method, "tensorized_lm"))
        return golden_lm_run(test);
    if (!strcmp(test->method, "text_classifier"))
        return golden_classifier_run(test);
    golden_result result = golden_model_build(test, test->root, &made);
    if (result == GOLDEN_PASSED && nm_tape_init(&tape, test->backend, (size_t)256 << 20, &err) != NM_OK)
        result = golden_fail(test, "%s", err.text);
    else if (result == GOLDEN_PASSED) {
        result = made.tears ? run_single(test, &made, &tape) : run_steps(test, &made, &tape);
        nm_tape_release(&tape);
    }
    golden_model_release(&made);
    return result;
}

const golden_family golden_model_family = {.name = "model", .run = run, .computes = true};
