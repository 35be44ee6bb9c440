/* A small model in double on the ref backend with fenced memory, and its gradients against central
 * differences of its loss. With GRADIENTS_ON=emulated in the environment: the gradients of the backend
 * `emulated`, which has float only, in which differences would be too inaccurate, against the gradients on
 * ref in double. */
#ifndef MODEL_GRADIENTS_H
#define MODEL_GRADIENTS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/model.h"

typedef struct model_rig {
    const nm_model_type *type;
    nm_model_sizes sizes;
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
    nm_batch batch; /* for model_softmax_loss */
} model_rig;

static inline void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

/* common, then settings: "section.key", value, ..., NULL */
static inline void model_rig_open(model_rig *r, const nm_model_type *type, const nm_model_sizes *sizes,
                                  const char *const *common, const char *const *settings)
{
    nm_error err;
    nm_backend_options device = {.name = "ref", .dtype = NM_F64, .fenced = true};
    r->type = type;
    r->sizes = *sizes;
    check(nm_backend_create(&r->backend, &device, &err), &err);
    r->options = nm_options_create();
    nm_model_options_add(r->options, type);
    nm_norm_options_add(r->options);
    for (int i = 0; common[i]; i += 2)
        check(nm_options_set(r->options, common[i], common[i + 1], NM_ORIGIN_FILE, &err), &err);
    /* Partial RMSNorm would use a single feature, and differences are inaccurate where it is near 0. RepBN's
     * alpha of 1 would double the vectors at each of its sites. */
    check(nm_options_set(r->options, "norm.prms.fraction", "0.5", NM_ORIGIN_FILE, &err), &err);
    check(nm_options_set(r->options, "norm.repbn.alpha_init", "0.1", NM_ORIGIN_FILE, &err), &err);
    for (int i = 0; settings[i]; i += 2)
        check(nm_options_set(r->options, settings[i], settings[i + 1], NM_ORIGIN_COMMAND, &err), &err);
    check(nm_model_create(&r->model, type, r->backend, r->options, sizes, true, &err), &err);
    nm_params_initialize(&r->model->params, 3);
    check(nm_tape_init(&r->tape, r->backend, (size_t)64 << 20, &err), &err);
}

static inline void model_rig_close(model_rig *r)
{
    nm_tape_release(&r->tape);
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

static inline bool gradients_on_emulated(void)
{
    const char *name = getenv("GRADIENTS_ON");
    return name && !strcmp(name, "emulated");
}

/* Whether the gradients can be checked; for differences, whether the backward pass is the derivative. It
 * treats the running values in RBN's penalty as constants, although they depend on the batch. Post-norm
 * models without norms have unbounded activations. */
static inline bool norm_is_differentiable(const nm_norm_type *type, bool post)
{
    const bool exact = !(type->traits & (NM_APPROX_GRAD | NM_HAS_PENALTY)) && strcmp(type->name, "renorm") &&
                       strcmp(type->name, "fix");
    return (exact || gradients_on_emulated()) && !(post && !strcmp(type->name, "none"));
}

/* The loss of a model; with training, gradients are added. */
typedef double (*model_loss)(void *user, bool training);

typedef struct model_slopes {
    double backward, measured;
} model_slopes;

/* Checks one parameter along a random direction; grads: gradients of the parameter. */
static inline model_slopes model_slopes_along(nm_model *model, size_t p, const double *grads, double step,
                                              model_loss loss, void *user)
{
    nm_backend *b = model->backend;
    nm_tensor *t = &model->params.list[p]->tensor;
    size_t n = (size_t)t->rows * (size_t)t->cols;
    double *value = malloc(n * sizeof *value), *moved = malloc(n * sizeof *moved);
    double expected = 0, square = 0, sides[2];
    nm_backend_download(b, value, t->data, n * sizeof *value);
    for (size_t i = 0; i < n; i++)
        square += value[i] * value[i] / (double)n;
    if (square > 0) /* FixNorm's embeddings are small */
        step *= fmin(1, 10 * sqrt(square));
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < n; i++) {
            nm_random_words w = nm_random4(9, NM_RANDOM_TEST, (uint32_t)p, 0, i);
            double direction = nm_random_normal(w.w[0], w.w[1]);
            moved[i] = value[i] + (side ? -step : step) * direction;
            expected += side ? 0 : direction * grads[i];
        }
        nm_backend_upload(b, t->data, moved, n * sizeof *moved);
        sides[side] = loss(user, false);
    }
    nm_backend_upload(b, t->data, value, n * sizeof *value);
    free(value);
    free(moved);
    return (model_slopes){expected, (sides[0] - sides[1]) / (2 * step)};
}

static inline bool model_slopes_agree(model_slopes s)
{
    return fabs(s.measured - s.backward) <= 1e-6 * (1 + fabs(s.backward));
}

/* The gradients of the model, heap. */
static inline double *model_gradients(nm_model *model, model_loss loss, void *user)
{
    nm_params *params = &model->params;
    nm_backend *b = model->backend;
    nm_backend_zero(b, params->grads, nm_params_bytes(params));
    loss(user, true);
    double *grads = /* the loss adds to gradients whenever it is computed */
        malloc(params->n_elements * sizeof *grads);
    nm_backend_read(b, grads, params->grads, params->n_elements);
    return grads;
}

/* Activation checkpointing gives bitwise identical gradients. */
static inline void model_check_recomputed(nm_model *model, nm_tape *tape, model_loss loss, void *user)
{
    double *kept = model_gradients(model, loss, user);
    tape->recompute = true;
    double *again = model_gradients(model, loss, user);
    tape->recompute = false;
    assert_memory_equal(kept, again, model->params.n_elements * sizeof *kept);
    free(kept);
    free(again);
}

/* Which parameters are fixed: none, every second one, all but norms, all but biases, the first three quarters
 * (lower layers). */
enum {
    FREEZE_NOTHING,
    FREEZE_EVEN,
    FREEZE_ALL_BUT_NORMS,
    FREEZE_ALL_BUT_BIASES,
    FREEZE_BEGINNING,
    N_FREEZES
};

static inline void model_freeze(nm_params *params, int which)
{
    for (size_t i = 0; i < params->n; i++) {
        nm_param *param = params->list[i];
        const bool fixed[N_FREEZES] = {[FREEZE_EVEN] = i % 2 == 0,
                                       [FREEZE_ALL_BUT_NORMS] = !strstr(param->tensor.name, "norm"),
                                       [FREEZE_ALL_BUT_BIASES] = !strstr(param->tensor.name, ".bias"),
                                       [FREEZE_BEGINNING] = 4 * i < 3 * params->n};
        param->fixed = param->tensor.fixed = fixed[which];
        param->tensor.grad_written = false;
    }
    nm_params_bind_norms(params);
}

/* The gradients of learned parameters do not depend on which others are fixed. Those of fixed parameters are
 * not computed, except by operations that set grad_written. */
static inline void model_check_frozen(nm_model *model, model_loss loss, void *user)
{
    nm_params *params = &model->params;
    size_t bytes = params->n_elements * sizeof(double), n_skipped = 0;
    bool *was_fixed = malloc(params->n * sizeof *was_fixed);
    for (size_t i = 0; i < params->n; i++)
        was_fixed[i] = params->list[i]->fixed;
    double *all = model_gradients(model, loss, user), *zero = calloc(1, bytes);
    for (int which = FREEZE_EVEN; which < N_FREEZES; which++) {
        model_freeze(params, which);
        double *grads = model_gradients(model, loss, user);
        for (size_t i = 0; i < params->n; i++) {
            const nm_tensor *t = &params->list[i]->tensor;
            size_t at = params->list[i]->offset, own = (size_t)t->rows * (size_t)t->cols * sizeof *grads;
            if (was_fixed[i] || t->grad_written)
                continue;
            if (memcmp(grads + at, t->fixed ? zero : all + at, own))
                fail_msg("frozen parameters %d: %s has another gradient", which, t->name);
            n_skipped += t->fixed;
        }
        free(grads);
    }
    assert_true(n_skipped > params->n); /* in four passes */
    for (size_t i = 0; i < params->n; i++) {
        params->list[i]->fixed = params->list[i]->tensor.fixed = was_fixed[i];
        params->list[i]->tensor.grad_written = false;
    }
    nm_params_bind_norms(params);
    free(was_fixed);
    free(all);
    free(zero);
}

/* Every parameter. If a kink (of relu or of a maximum) is within the step, a shorter step is used. */
static inline void model_check_gradients(nm_model *model, model_loss loss, void *user)
{
    nm_params *params = &model->params;
    double *grads = model_gradients(model, loss, user);
    for (size_t p = 0; p < params->n; p++) {
        if (params->list[p]->fixed)
            continue;
        const double *own = grads + params->list[p]->offset;
        model_slopes s = model_slopes_along(model, p, own, 1e-5, loss, user);
        if (!model_slopes_agree(s))
            s = model_slopes_along(model, p, own, 1e-6, loss, user);
        if (!model_slopes_agree(s))
            fail_msg("%s: backward %.12g, differences %.12g", params->list[p]->tensor.name, s.backward,
                     s.measured);
    }
    free(grads);
}

/* Both models get the parameters of the first one, rounded to float. */
static inline void model_share_parameters(nm_model *model, nm_model *with)
{
    const size_t n = model->params.n_elements;
    double *values = malloc(n * sizeof *values);
    assert_int_equal(with->params.n_elements, n);
    nm_backend_read(model->backend, values, model->params.values, n);
    for (size_t i = 0; i < n; i++)
        values[i] = (double)(float)values[i];
    nm_backend_write(model->backend, model->params.values, values, n);
    nm_backend_write(with->backend, with->params.values, values, n);
    free(values);
}

/* The largest error of an element, relative to the largest gradient of its parameter, or to a hundredth of
 * that of all. *at: the element */
static inline double model_gradient_error(const nm_params *params, const double *actual,
                                          const double *expected, size_t *at)
{
    double most = 0, worst = -1;
    for (size_t i = 0; i < params->n_elements; i++)
        most = fmax(most, fabs(expected[i]));
    for (size_t p = 0; p < params->n; p++) {
        const nm_tensor *t = &params->list[p]->tensor;
        const size_t first = params->list[p]->offset, end = first + (size_t)t->rows * (size_t)t->cols;
        double size = 1e-2 * most;
        for (size_t i = first; i < end; i++)
            size = fmax(size, fabs(expected[i]));
        for (size_t i = first; i < end; i++)
            if (!(fabs(actual[i] - expected[i]) / size <= worst)) {
                worst = fabs(actual[i] - expected[i]) / size;
                *at = i;
            }
    }
    return worst;
}

/* The model of the rig in float on another backend, with the parameters of the rig, which are rounded to
 * float. */
static inline void model_rig_open_float(model_rig *twin, const model_rig *r, const char *backend)
{
    nm_error err;
    *twin = *r;
    check(nm_backend_create(&twin->backend, &(nm_backend_options){.name = backend, .threads = 1}, &err),
          &err);
    check(nm_model_create(&twin->model, r->type, twin->backend, r->options, &r->sizes, true, &err), &err);
    nm_params_initialize(&twin->model->params, 3);
    model_share_parameters(r->model, twin->model);
    check(nm_tape_init(&twin->tape, twin->backend, (size_t)64 << 20, &err), &err);
}

static inline void model_rig_close_float(model_rig *twin)
{
    nm_tape_release(&twin->tape);
    nm_model_free(twin->model);
    nm_backend_free(twin->backend);
}

/* The largest error of the gradients in float on a backend. *at: the element */
static inline double model_rig_error(model_rig *r, const char *backend, model_loss loss, size_t *at)
{
    model_rig twin;
    model_rig_open_float(&twin, r, backend);
    const double expected_loss = loss(r, false), actual_loss = loss(&twin, false);
    if (!(fabs(actual_loss - expected_loss) <= 1e-5 * fabs(expected_loss)))
        fail_msg("the loss on %s is %.9g instead of %.9g", backend, actual_loss, expected_loss);
    double *expected = model_gradients(r->model, loss, r);
    double *actual = model_gradients(twin.model, loss, &twin);
    const double error = model_gradient_error(&r->model->params, actual, expected, at);
    free(expected);
    free(actual);
    if (!strcmp(backend, "emulated")) {
        model_check_recomputed(twin.model, &twin.tape, loss, &twin);
        model_check_frozen(twin.model, loss, &twin);
    }
    model_rig_close_float(&twin);
    return error;
}

/* Checks all gradients on the backend `emulated`: their errors are rounding, of which some models amplify
 * much, as on ref in float. */
static inline void model_rig_check_emulated(model_rig *r, model_loss loss)
{
    size_t at = 0;
    const double of_ref = model_rig_error(r, "ref", loss, &at);
    const double error = model_rig_error(r, "emulated", loss, &at);
    const nm_params *params = &r->model->params;
    size_t p = params->n - 1;
    while (params->list[p]->offset > at)
        p--;
    if (!(error <= 1e-5 + 4 * of_ref))
        fail_msg("%s[%zu]: the error is %.3g on emulated, and at most %.3g on ref in float",
                 params->list[p]->tensor.name, at - params->list[p]->offset, error, of_ref);
}

/* Checks all gradients and releases the rig. */
static inline void model_rig_check(model_rig *r, model_loss loss)
{
    if (gradients_on_emulated()) {
        model_rig_check_emulated(r, loss);
    } else {
        model_check_gradients(r->model, loss, r);
        model_check_recomputed(r->model, &r->tape, loss, r);
        model_check_frozen(r->model, loss, r);
    }
    model_rig_close(r);
}

/* A model_loss for models whose output is a softmax over the targets of the rig's batch: the loss plus
 * penalties. The running state of norms is restored. */
static inline double model_softmax_loss(void *user, bool training)
{
    model_rig *r = user;
    nm_error err;
    nm_params *params = &r->model->params;
    nm_norm_snapshot memory = nm_norm_snapshot_save(params);
    nm_tape_start(&r->tape, true, 5, 0);
    r->tape.n_targets = r->batch.target.n_tokens;
    nm_model_output out = r->model->type->forward(r->model, &r->tape, &r->batch);
    nm_loss_spec spec = {.eps = 0.1, .targets = r->batch.target_out};
    double *sums = nm_softmax_loss_of(&r->tape, out.hidden, out.weight, out.bias, &spec), results[3];
    assert_non_null(sums);
    check(nm_tape_results(&r->tape, sums, results, &err), &err);
    const double total = results[0] + results[2];
    if (training)
        check(nm_tape_backward(&r->tape, &err), &err);
    nm_norm_snapshot_restore(&memory, params);
    return total;
}

#endif
