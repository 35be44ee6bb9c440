/* Golden cases of family "optim": parameters after each step of an optimizer. The tensors of a case are concatenated
 * in one vector, as the parameters of a model are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "golden.h"

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
    bool sgd;
    nm_adam_variant variant;
} optimizer;

static golden_result choose(golden_case *test, optimizer *o)
{
    const json_t *betas = json_object_get(test->config, "betas");
    o->sgd = !strcmp(test->method, "sgd");
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
                .clip = golden_number(test, "clip_value", 0), .n = o->count, .p = o->p, .g = g, .v = o->v);
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
        update(test, o, g, json_number_value(lr), factor, index);
        free(g);
    }
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
    golden_result result = json_array_size(steps) ? GOLDEN_PASSED : golden_fail(test, "no steps");
    json_array_foreach(steps, index, step) if (result == GOLDEN_PASSED) result =
        run_step(test, &o, index, step);
    free(first.data);
    free(o.p);
    free(o.m);
    free(o.v);
    return result;
}

const golden_family golden_optim = {.name = "optim", .run = run, .computes = true};
