/* Golden cases of family "optim": parameters after each step of an optimizer. The tensors of a case are
 * concatenated in one vector, as the parameters of a model are. Method muon: all tensors are matrices; a step
 * also has their momentum ("momentum_after") and their updates before the scale ("orthogonal"). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"
#include "train/muon.h"

typedef struct slab { /* the tensors of a list as one vector */
    double *data;
    size_t count;
} slab;

static golden_result read_slab(golden_case *test, const json_t *list, const char *what, slab *all)
{
    size_t index;
    const json_t *value;
    *all = (slab){0};
    json_array_foreach(list, index, value)
    {
        golden_tensor tensor;
        golden_result result = golden_read(test, value, what, &tensor);
        if (result != GOLDEN_PASSED) {
            free(all->data);
            *all = (slab){0};
            return result;
        }
        all->data = nm_reallocate(all->data, (all->count + tensor.count + 1) * sizeof *all->data);
        memcpy(all->data + all->count, tensor.data, tensor.count * sizeof *all->data);
        all->count += tensor.count;
        golden_release(&tensor);
    }
    return all->count ? GOLDEN_PASSED : golden_fail(test, "%s: no tensors", what);
}

typedef struct optimizer {
    void *p, *m, *v; /* parameters and moments; sgd: v is the velocity */
    size_t count;
    double beta[2];
    bool sgd, is_muon;
    nm_adam_variant variant;
    nm_muon muon;
    void *orthogonal; /* updates of all matrices by Muon, before the scale */
} optimizer;

static golden_result read_muon(golden_case *test, nm_muon *muon)
{
    const json_t *coefficients = json_object_get(test->config, "newton_schulz_coefficients");
    const char *scale = golden_text(test, "scale", ""), *mode = golden_text(test, "eps_mode", "added");
    *muon = nm_muon_default();
    for (size_t i = 0; i < 3 && json_array_size(coefficients) == 3; i++)
        muon->coefficients[i] = json_number_value(json_array_get(coefficients, i));
    muon->momentum = golden_number(test, "momentum", muon->momentum);
    muon->nesterov = golden_flag(test, "nesterov");
    muon->steps = golden_whole(test, "newton_schulz_steps", (int32_t)muon->steps);
    muon->eps = golden_number(test, "eps", muon->eps);
    muon->weight_decay = golden_number(test, "weight_decay", 0);
    muon->eps_mode = strcmp(mode, "clamped") ? NM_MUON_EPS_ADDED : NM_MUON_EPS_CLAMPED;
    if (strcmp(mode, "clamped") && strcmp(mode, "added"))
        return golden_skip(test, "eps_mode '%.60s' is not offered", mode);
    if (!strcmp(scale, "sqrt(max(1, rows / columns))"))
        muon->scale = NM_MUON_ORIGINAL;
    else if (!strcmp(scale, "0.2 sqrt(max(rows, columns))"))
        muon->scale = NM_MUON_MATCH_RMS;
    else
        return golden_skip(test, "scale '%.60s' is not offered", scale);
    return GOLDEN_PASSED;
}

golden_result golden_plain_optimizer(golden_case *test)
{
    static const char *const variants[] = {"amsgrad", "maximize", "dampening"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (golden_flag(test, variants[i]))
            return golden_skip(test, "%s is not offered", variants[i]);
    if (golden_flag(test, "nesterov") && strcmp(test->method, "muon"))
        return golden_skip(test, "nesterov is offered with Muon only");
    return GOLDEN_PASSED;
}

static golden_result choose(golden_case *test, optimizer *o)
{
    const json_t *betas = json_object_get(test->config, "betas");
    o->sgd = !strcmp(test->method, "sgd");
    o->is_muon = !strcmp(test->method, "muon");
    GOLDEN_TRY(golden_plain_optimizer(test));
    if (o->is_muon)
        return read_muon(test, &o->muon);
    if (!o->sgd && golden_number(test, "clip_value", 0) > 0)
        return golden_skip(test, "clip_value is offered with SGD only");
    o->beta[0] = json_array_size(betas) == 2 ? json_number_value(json_array_get(betas, 0)) : 0.9;
    o->beta[1] = json_array_size(betas) == 2 ? json_number_value(json_array_get(betas, 1)) : 0.999;
    if (!strcmp(test->variant, "fairseq"))
        o->variant = NM_ADAM_FAIRSEQ;
    else
        o->variant = strcmp(test->method, "adamw") ? NM_ADAM_TORCH : NM_ADAMW_TORCH;
    if (!o->sgd && strcmp(test->method, "adam") && strcmp(test->method, "adamw"))
        return golden_skip(test, "method '%.60s' is not offered", test->method);
    return GOLDEN_PASSED;
}

/* As in training: gradients whose norm is above the limit are scaled. */
static golden_result clip_factor(golden_case *test, const optimizer *o, const void *g, const json_t *step,
                                 double *factor)
{
    double limit = golden_number(test, "clip_global_norm", 0), square = 0;
    *factor = 1;
    if (!(limit > 0))
        return GOLDEN_PASSED;
    NM_CALL(test->backend, dot, .n = o->count, .a = g, .b = g, .out = &square);
    double norm = sqrt(square);
    *factor = norm > limit ? limit / (norm + 1e-6) : 1;
    const json_t *expected = json_object_get(step, "global_norm");
    if (!json_is_number(expected))
        return GOLDEN_PASSED;
    double want = json_number_value(expected);
    void *got = golden_reals(test, &norm, 1);
    golden_result result = golden_compare(test, "global_norm", got, &want, 1, test->value_tolerance);
    free(got);
    return result;
}

/* One step of Muon for each of the matrices of `init`. */
static golden_result update_matrices(golden_case *test, const optimizer *o, const void *g, double lr,
                                     double factor)
{
    size_t index, at = 0, unit = nm_dtype_bytes(test->backend->dtype);
    const json_t *tensor;
    nm_muon muon = o->muon;
    muon.lr = lr;
    muon.grad_scale = &factor;
    json_array_foreach(json_object_get(test->root, "init"), index, tensor)
    {
        const json_t *shape = json_object_get(tensor, "shape");
        if (json_array_size(shape) != 2)
            return golden_fail(test, "tensor %zu is no matrix", index);
        int32_t rows = (int32_t)json_integer_value(json_array_get(shape, 0)),
                cols = (int32_t)json_integer_value(json_array_get(shape, 1));
        void *workspace = golden_reals(test, NULL, nm_muon_workspace(rows, cols));
        nm_mat x = nm_muon_step(test->backend, &muon, nm_mat_of((char *)o->p + at, rows, cols),
                                nm_mat_of((char *)(uintptr_t)g + at, rows, cols),
                                nm_mat_of((char *)o->m + at, rows, cols), workspace);
        size_t bytes = (size_t)rows * (size_t)cols * unit;
        memcpy((char *)o->orthogonal + at, x.data, bytes);
        free(workspace);
        at += bytes;
    }
    return GOLDEN_PASSED;
}

/* Compares a list of tensors of a step, if the case has it. */
static golden_result compare_list(golden_case *test, const json_t *step, size_t index, const char *name,
                                  const void *got, size_t count)
{
    slab want;
    char what[64];
    const json_t *list = json_object_get(step, name);
    if (!list)
        return GOLDEN_PASSED;
    snprintf(what, sizeof what, "step %zu: %s", index, name);
    GOLDEN_TRY(read_slab(test, list, what, &want));
    golden_result result = want.count == count
                               ? golden_compare(test, what, got, want.data, count, test->value_tolerance)
                               : golden_fail(test, "%s: other length than the parameters", what);
    free(want.data);
    return result;
}

static void update(golden_case *test, const optimizer *o, const void *g, double lr, double factor,
                   size_t index)
{
    nm_backend *b = test->backend;
    const nm_adam adam = {.variant = o->variant,
                          .lr = lr,
                          .beta1 = o->beta[0],
                          .beta2 = o->beta[1],
                          .eps = golden_number(test, "eps", 1e-8),
                          .weight_decay = golden_number(test, "weight_decay", 0),
                          .grad_scale = factor,
                          .step = (int64_t)index + 1};
    if (o->sgd)
        NM_CALL(b, sgd, .lr = lr, .momentum = golden_number(test, "momentum", 0), .grad_scale = factor,
                .clip = golden_number(test, "clip_value", 0),
                .weight_decay = golden_number(test, "weight_decay", 0), .n = o->count, .p = o->p, .g = g,
                .v = o->v);
    else
        NM_CALL(b, adam, .config = &adam, .n = o->count, .p = o->p, .g = g, .m = o->m, .v = o->v);
}

static golden_result run_step(golden_case *test, const optimizer *o, size_t index, const json_t *step)
{
    slab grads, after;
    char what[64];
    double factor;
    const json_t *lr = json_object_get(step, "lr");
    if (!json_is_number(lr))
        return golden_fail(test, "step %zu: no lr", index);
    GOLDEN_TRY(read_slab(test, json_object_get(step, "grads"), "grads", &grads));
    golden_result result = read_slab(test, json_object_get(step, "params_after"), "params_after", &after);
    if (result == GOLDEN_PASSED && (grads.count != o->count || after.count != o->count))
        result = golden_fail(test, "step %zu: other lengths than at first", index);
    if (result == GOLDEN_PASSED) {
        void *g = golden_reals(test, grads.data, grads.count);
        result = clip_factor(test, o, g, step, &factor);
        if (result == GOLDEN_PASSED && o->is_muon)
            result = update_matrices(test, o, g, json_number_value(lr), factor);
        else if (result == GOLDEN_PASSED)
            update(test, o, g, json_number_value(lr), factor, index);
        free(g);
    }
    if (result == GOLDEN_PASSED && o->is_muon)
        result = compare_list(test, step, index, "momentum_after", o->m, o->count);
    if (result == GOLDEN_PASSED && o->is_muon)
        result = compare_list(test, step, index, "orthogonal", o->orthogonal, o->count);
    snprintf(what, sizeof what, "step %zu: params_after", index);
    if (result == GOLDEN_PASSED)
        result = golden_compare(test, what, o->p, after.data, after.count, test->value_tolerance);
    free(grads.data);
    free(after.data);
    return result;
}

static golden_result run(golden_case *test)
{
    optimizer o = {0};
    slab first;
    size_t index;
    const json_t *step, *steps = json_object_get(test->root, "steps");
    GOLDEN_TRY(choose(test, &o));
    GOLDEN_TRY(read_slab(test, json_object_get(test->root, "init"), "init", &first));
    o.count = first.count;
    o.p = golden_reals(test, first.data, o.count);
    o.m = golden_reals(test, NULL, o.count);
    o.v = golden_reals(test, NULL, o.count);
    o.orthogonal = golden_reals(test, NULL, o.count);
    golden_result result = json_array_size(steps) ? GOLDEN_PASSED : golden_fail(test, "no steps");
    json_array_foreach(steps, index, step) if (result == GOLDEN_PASSED) result =
        run_step(test, &o, index, step);
    free(first.data);
    free(o.p);
    free(o.m);
    free(o.v);
    free(o.orthogonal);
    return result;
}

const golden_family golden_optim = {.name = "optim", .run = run, .computes = true};
