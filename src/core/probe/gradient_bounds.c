#include "probe/gradient_bounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/numbers.h"
#include "probe/eval_pass.h"

NM_FIELDS(nm_lemma_site, NM_LEMMA_SITE)
NM_FIELDS(nm_theorem_site, NM_THEOREM_SITE)
NM_FIELDS(nm_group_gradient, NM_GROUP_GRADIENT)

typedef struct nu_history { /* of one site, [width] each: |nu_0|, maximum |Lambda|, minimum Gamma */
    double *start, *lambda, *gamma_least;
} nu_history;

typedef struct bounds_pass {
    nm_gradient_bounds *bounds;
    const nm_model *model;
    nu_history *histories; /* of bounds->theorem */
    size_t lemma_capacity, theorem_capacity, history_capacity, group_capacity;
} bounds_pass;

typedef struct columns { /* host copies of a norm call, in double */
    size_t rows, width, groups;
    double *h, *z, *dy, *dx; /* [rows, width] */
    double *row_scale;       /* [rows, groups]; NULL without row scaling */
    /* [width]; zeros if the norm does not publish the statistic. scale: 1 / psi_B or 1 / sigma_B */
    double *weight, *scale, *mean, *penalty_mean, *penalty_z;
    bool centered, penalized;
} columns;

static double *stat_or_zeros(const nm_norm_call *call, const char *name, bool *found)
{
    const void *stat = nm_call_stat(call, name, call->x.cols);
    *found = stat != NULL;
    return stat ? nm_vector_values(call->backend, stat, (size_t)call->x.cols)
                : nm_allocate((size_t)call->x.cols * sizeof(double));
}

/* dL/dx of this norm only, [rows, width], heap, by a second call of its backward: the tape's dx may contain
 * other gradients. The second call adds the gradients of parameters to separate memory. NULL if the tape is
 * exhausted. */
static double *backward_alone(const nm_norm_call *call)
{
    nm_norm shadow = *call->norm;
    nm_norm_call again = *call;
    size_t element_bytes = nm_dtype_bytes(call->backend->dtype);
    for (int i = 0; i < shadow.shape.n_params; i++)
        if (shadow.param_grads[i])
            shadow.param_grads[i] =
                call->alloc(call->allocator, (size_t)shadow.shape.params[i].length * element_bytes);
    again.norm = &shadow;
    again.n_published = 0;
    for (int i = 0; i < call->n_published; i++) /* backward publishes these again */
        if (strncmp(call->published[i].name, "grad_", 5))
            again.published[again.n_published++] = call->published[i];
    again.add = false;
    again.recomputed = true;
    void *dx = call->alloc(call->allocator, (size_t)call->x.rows * (size_t)call->x.cols * element_bytes);
    if (!dx)
        return NULL;
    again.dx = nm_mat_of(dx, call->x.rows, call->x.cols);
    call->norm->type->backward(&again);
    return nm_mat_values(call->backend, again.dx);
}

static void columns_release(columns *c)
{
    double *all[] = {c->h,      c->z,     c->dy,   c->dx,           c->row_scale,
                     c->weight, c->scale, c->mean, c->penalty_mean, c->penalty_z};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void columns_download(columns *c, const nm_norm_call *call)
{
    nm_backend *b = call->backend;
    bool unused;
    *c = (columns){.rows = (size_t)call->x.rows, .width = (size_t)call->x.cols};
    c->h = nm_mat_values(b, call->x);
    c->dy = nm_mat_values(b, call->dy);
    c->dx = backward_alone(call);
    int32_t groups;
    const void *row_scale = nm_call_row_scale(call, &groups);
    c->groups = (size_t)groups;
    c->row_scale = row_scale ? nm_vector_values(b, row_scale, c->rows * c->groups) : NULL;
    c->weight = nm_call_weight(call);
    c->scale = stat_or_zeros(call, "scale", &unused);
    c->mean = stat_or_zeros(call, "batch_mean", &c->centered);
    c->penalty_mean = stat_or_zeros(call, "penalty_mean", &c->penalized);
    c->penalty_z = stat_or_zeros(call, "penalty_z", &unused);
    for (size_t i = 0; i < c->width; i++) {
        c->penalty_mean[i] *= call->grad_scale;
        c->penalty_z[i] *= call->grad_scale;
    }
    c->z = nm_allocate(c->rows * c->width * sizeof *c->z);
    for (size_t r = 0; r < c->rows; r++)
        for (size_t i = 0; i < c->width; i++) {
            double *h = &c->h[r * c->width + i];
            if (c->groups)
                *h *= c->row_scale[r * c->groups + i * c->groups / c->width];
            c->z[r * c->width + i] = (*h - c->mean[i]) * c->scale[i];
        }
}

/* Writes dL/dh of feature i by the formula to column i of dh; whole: the same with the gradient of the
 * penalty. */
static void formula_dh(const columns *c, size_t i, double *dh, double *whole)
{
    double sum = 0, sum_z = 0, rows = (double)c->rows;
    for (size_t r = 0; r < c->rows; r++) {
        sum += c->dy[r * c->width + i];
        sum_z += c->dy[r * c->width + i] * c->z[r * c->width + i];
    }
    for (size_t r = 0; r < c->rows; r++) {
        size_t at = r * c->width + i;
        dh[at] = c->weight[i] * c->scale[i] *
                 (c->dy[at] - (c->centered ? sum / rows : 0) - c->z[at] * sum_z / rows);
        whole[at] = dh[at] + c->penalty_mean[i] + c->penalty_z[i] * c->z[at];
    }
}

/* Backward pass of the row scaling, from dL/dh to dL/dx, in place. */
static void row_scaling_backward(const columns *c, double *dh)
{
    size_t size = c->groups ? c->width / c->groups : 0;
    for (size_t r = 0; r < c->rows && size; r++)
        for (size_t g = 0; g < c->groups; g++) {
            size_t at = r * c->width + g * size;
            double inner = 0;
            for (size_t i = 0; i < size; i++)
                inner += dh[at + i] * c->h[at + i];
            for (size_t i = 0; i < size; i++)
                dh[at + i] =
                    c->row_scale[r * c->groups + g] * (dh[at + i] - c->h[at + i] * inner / (double)size);
        }
}

/* Maximum of |a - b|, relative to the largest |a|. */
static double relative_difference(const double *a, const double *b, size_t n)
{
    double largest = 0, difference = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs(a[i]));
        difference = fmax(difference, fabs(a[i] - b[i]));
    }
    return largest > 0 ? difference / largest : difference;
}

/* Compares the two sides of the equation, and the left side with the bound, for feature i. */
static void compare_sides(const columns *c, size_t i, const double *dh, nm_lemma_site *site)
{
    double left = 0, square = 0, sum = 0, sum_z = 0, rows = (double)c->rows;
    for (size_t r = 0; r < c->rows; r++) {
        size_t at = r * c->width + i;
        left += dh[at] * dh[at];
        square += c->dy[at] * c->dy[at];
        sum += c->dy[at];
        sum_z += c->dy[at] * c->z[at];
    }
    double factor = c->weight[i] * c->scale[i], bound = factor * factor * square;
    double right = factor * factor * (square - sum_z * sum_z / rows - (c->centered ? sum * sum / rows : 0));
    site->below_one += fabs(factor) <= 1 ? 1 / (double)c->width : 0;
    if (!(bound > 0))
        return;
    site->ratio = fmax(site->ratio, left / bound);
    site->equality = fmax(site->equality, fabs(left - right) / bound);
}

static nm_lemma_site *find_lemma(bounds_pass *l, const char *name)
{
    nm_gradient_bounds *bounds = l->bounds;
    for (size_t i = 0; i < bounds->n_lemma; i++)
        if (!strcmp(bounds->lemma[i].name, name))
            return &bounds->lemma[i];
    NM_GROW(bounds->lemma, bounds->n_lemma, l->lemma_capacity);
    nm_lemma_site *site = &bounds->lemma[bounds->n_lemma++];
    *site = (nm_lemma_site){.ratio = 0};
    snprintf(site->name, sizeof site->name, "%s", name);
    return site;
}

static void check_lemma(bounds_pass *l, const nm_norm_call *call)
{
    NM_AUTO(columns_release) columns c = {0};
    columns_download(&c, call);
    size_t n = c.rows * c.width;
    nm_lemma_site *site = find_lemma(l, call->norm->site.name);
    NM_AUTO_FREE double *dh = nm_allocate(n * sizeof *dh), *whole = nm_allocate(n * sizeof *whole);
    for (size_t i = 0; c.dx && i < c.width; i++)
        formula_dh(&c, i, dh, whole);
    /* The norm's dL/dx where it equals dL/dh of the lemma; otherwise the formula's dL/dh, which
     * nm_lemma_site.backward checks against dL/dx. */
    const double *left = c.groups || c.penalized ? dh : c.dx;
    for (size_t i = 0; c.dx && i < c.width; i++)
        compare_sides(&c, i, left, site);
    if (c.dx) {
        double norm = nm_l2_norm(c.dy, n);
        site->shrink += norm > 0 ? nm_l2_norm(left, n) / norm : 0;
        row_scaling_backward(&c, whole);
        site->backward = fmax(site->backward, relative_difference(c.dx, whole, n));
        site->batches++;
    }
}

static size_t find_theorem(bounds_pass *l, const nm_norm_call *call, const double *nu)
{
    nm_gradient_bounds *bounds = l->bounds;
    const char *name = call->norm->site.name;
    for (size_t i = 0; i < bounds->n_theorem; i++)
        if (!strcmp(bounds->theorem[i].name, name))
            return i;
    size_t width = (size_t)call->x.cols;
    NM_GROW(l->histories, bounds->n_theorem, l->history_capacity);
    NM_GROW(bounds->theorem, bounds->n_theorem, l->theorem_capacity);
    nu_history *history = &l->histories[bounds->n_theorem];
    nm_theorem_site *site = &bounds->theorem[bounds->n_theorem];
    *site = (nm_theorem_site){.gamma_least = INFINITY};
    snprintf(site->name, sizeof site->name, "%s", name);
    *history = (nu_history){nm_allocate(width * sizeof(double)), nm_allocate(width * sizeof(double)),
                            nm_allocate(width * sizeof(double))};
    for (size_t i = 0; i < width; i++) {
        history->start[i] = fabs(nu[i]);
        history->gamma_least[i] = INFINITY;
    }
    return bounds->n_theorem++;
}

/* k = 1 - alpha, from the published vectors nu = k e and e; NaN if e is 0. */
static double step_size(const double *nu, const double *e, size_t n)
{
    double norm = nm_l2_norm(e, n);
    return norm > 0 ? nm_l2_norm(nu, n) / norm : NAN;
}

static void check_theorem(bounds_pass *l, const nm_norm_call *call, const void *published_nu)
{
    nm_backend *b = call->backend;
    size_t width = (size_t)call->x.cols;
    static const char *const names[] = {"ema_gz", "batch_square", "scale", "grad_sum_z"};
    NM_AUTO_FREE double *nu = nm_vector_values(b, published_nu, width), *weight = nm_call_weight(call);
    double *v[4];
    bool found;
    for (int k = 0; k < 4; k++)
        v[k] = stat_or_zeros(call, names[k], &found);
    size_t at = find_theorem(l, call, nu);
    nm_theorem_site *site = &l->bounds->theorem[at];
    nu_history *m = &l->histories[at];
    double k = step_size(nu, v[0], width);
    for (size_t i = 0; i < width; i++) {
        double bound = fmax(m->start[i], m->lambda[i] / m->gamma_least[i]);
        double gamma = v[1][i] * v[2][i] * v[2][i],
               lambda = fabs(weight[i] * v[3][i]) / (call->x.rows * call->grad_scale);
        if (site->batches && bound > 0)
            site->ratio = fmax(site->ratio, fabs(nu[i]) / bound);
        m->lambda[i] = fmax(m->lambda[i], lambda);
        m->gamma_least[i] = fmin(m->gamma_least[i], gamma);
        site->nu = fmax(site->nu, fabs(nu[i]));
        site->lambda = fmax(site->lambda, lambda);
        site->gamma_least = fmin(site->gamma_least, gamma);
        site->assumption += !(k * gamma > 1) ? 1 / (double)width : 0;
    }
    site->batches++;
    for (int i = 0; i < 4; i++)
        free(v[i]);
}

static void on_norm(void *user, const nm_norm_call *call, bool backward)
{
    int32_t width = call->x.cols;
    const void *nu = nm_call_stat(call, "nu", width);
    bool batch = nm_call_stat(call, "batch_square", width) || nm_call_stat(call, "batch_var", width);
    if (!backward)
        return;
    if (nu)
        check_theorem(user, call, nu);
    /* the lemma covers neither a correction r (batch renormalization) nor alpha x (RepBN) */
    else if (batch && !(call->norm->type->traits & NM_APPROX_GRAD) && !nm_call_stat(call, "r", width) &&
             !nm_call_stat(call, "alpha", width))
        check_lemma(user, call);
}

static void add_group(bounds_pass *l, const char *name, double square)
{
    nm_gradient_bounds *bounds = l->bounds;
    size_t i = 0;
    while (i < bounds->n_groups && strcmp(bounds->groups[i].name, name))
        i++;
    if (i == bounds->n_groups) {
        NM_GROW(bounds->groups, bounds->n_groups, l->group_capacity);
        bounds->groups[bounds->n_groups] = (nm_group_gradient){.norm = 0};
        snprintf(bounds->groups[bounds->n_groups++].name, sizeof bounds->groups->name, "%s", name);
    }
    bounds->groups[i].norm += square;
}

/* "enc.0" for "enc.0.self.qkv.weight", "enc.final" for "enc.final.norm.weight", otherwise the group. */
static void layer_name(const char *parameter, char *name, size_t bytes)
{
    nm_group_name(parameter, name, bytes);
    char *dot = strchr(name, '.'), *second = dot ? strchr(dot + 1, '.') : NULL;
    if (second)
        *second = 0;
}

static void after_batch(void *user, nm_tape *tape, const nm_batch *batch, const nm_model_output *out)
{
    (void)tape;
    (void)out;
    bounds_pass *l = user;
    for (size_t i = 0; i < l->model->params.n; i++) {
        const nm_param *param = l->model->params.list[i];
        const nm_tensor *t = &param->tensor;
        char name[96];
        double square = 0;
        if (param->fixed)
            continue;
        NM_CALL(l->model->backend, dot, .n = (size_t)t->rows * (size_t)t->cols, .a = t->grad, .b = t->grad,
                .out = &square);
        layer_name(t->name, name, sizeof name);
        add_group(l, name, square / ((double)batch->n_targets * batch->n_targets));
    }
}

/* Reverses the sites, which the backward pass visits in reverse order. */
static void order_sites(nm_gradient_bounds *bounds)
{
    for (size_t i = 0; i < bounds->n_lemma / 2; i++) {
        nm_lemma_site *other = &bounds->lemma[bounds->n_lemma - 1 - i], first = bounds->lemma[i];
        bounds->lemma[i] = *other;
        *other = first;
    }
    for (size_t i = 0; i < bounds->n_theorem / 2; i++) {
        nm_theorem_site *other = &bounds->theorem[bounds->n_theorem - 1 - i], first = bounds->theorem[i];
        bounds->theorem[i] = *other;
        *other = first;
    }
}

static void average(nm_gradient_bounds *bounds)
{
    for (size_t i = 0; i < bounds->n_lemma; i++) {
        bounds->lemma[i].below_one /= (double)bounds->lemma[i].batches;
        bounds->lemma[i].shrink /= (double)bounds->lemma[i].batches;
    }
    for (size_t i = 0; i < bounds->n_theorem; i++)
        bounds->theorem[i].assumption /= (double)bounds->theorem[i].batches;
    for (size_t i = 0; i < bounds->n_groups; i++)
        bounds->groups[i].norm = sqrt(bounds->groups[i].norm / (double)bounds->batches);
}

nm_status nm_gradient_bounds_measure(nm_gradient_bounds *bounds, nm_task *task, nm_model *model,
                                     int64_t max_batches, nm_error *err)
{
    NM_ASSERT(model->params.grads);
    *bounds = (nm_gradient_bounds){0};
    bounds_pass l = {.bounds = bounds, .model = model};
    const nm_eval_pass pass = {.task = task,
                               .model = model,
                               .split = NM_SPLIT_TRAIN,
                               .kind = NM_EVAL_PASS_GRADIENTS,
                               .max_batches = max_batches,
                               .user = &l,
                               .norm = on_norm,
                               .batch = after_batch};
    nm_status status = nm_eval_pass_run(&pass, &bounds->batches, err);
    for (size_t i = 0; i < bounds->n_theorem; i++)
        NM_FREE(l.histories[i].start, l.histories[i].lambda, l.histories[i].gamma_least);
    free(l.histories);
    order_sites(bounds);
    if (status == NM_OK)
        average(bounds);
    else
        nm_gradient_bounds_release(bounds);
    return status;
}

void nm_gradient_bounds_release(nm_gradient_bounds *bounds)
{
    NM_FREE(bounds->lemma, bounds->theorem, bounds->groups);
    *bounds = (nm_gradient_bounds){0};
}
