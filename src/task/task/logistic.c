#include "task/logistic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void nm_sparse_release(nm_sparse *matrix)
{
    NM_FREE(matrix->starts, matrix->at, matrix->values);
    *matrix = (nm_sparse){0};
}

/* The transposed matrix, with entries sorted by row. */
static nm_sparse transpose(const nm_sparse *x)
{
    size_t entries = x->starts[x->n];
    nm_sparse t = {.n = x->n_columns,
                   .n_columns = x->n,
                   .starts = nm_allocate((x->n_columns + 2) * sizeof *t.starts),
                   .at = nm_allocate((entries + 1) * sizeof *t.at),
                   .values = nm_allocate((entries + 1) * sizeof *t.values)};
    /* next entry of each column; finally its end, which is starts[column + 1] */
    uint64_t *next = t.starts + 1;
    for (size_t e = 0; e < entries; e++)
        next[x->at[e] + 1]++;
    for (size_t column = 0; column < x->n_columns; column++)
        next[column + 1] += next[column];
    for (size_t row = 0; row < x->n; row++)
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++) {
            uint64_t to = next[x->at[e]]++;
            t.at[to] = (int32_t)row;
            t.values[to] = x->values[e];
        }
    return t;
}

/* The columns with entries in several rows. A column of a single row i, such as most bigrams, only adds the
 * square of its value to K[i, i] below. */
typedef struct shared_columns {
    nm_sparse x, transposed;
    double *diagonal; /* [n]: sums of the squares of the other columns */
} shared_columns;

enum { NOT_SHARED = -1 };

/* Sets index [n_columns] to the new index of each shared column, or NOT_SHARED, and adds the squares of the
 * other columns to diagonal [n]. Returns the number of shared columns. */
static size_t index_shared_columns(const nm_sparse *x, int32_t *index, double *diagonal)
{
    enum { NO_ROW = -1, SEVERAL = -2 };
    NM_AUTO_FREE double *sums = nm_allocate((x->n_columns + 1) * sizeof *sums);
    int32_t n = 0, *row_of = index; /* the only row of each column, until its index is known */
    for (size_t column = 0; column < x->n_columns; column++)
        row_of[column] = NO_ROW;
    for (size_t row = 0; row < x->n; row++)
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++) {
            int32_t *only = &row_of[x->at[e]];
            *only = *only == NO_ROW || *only == (int32_t)row ? (int32_t)row : SEVERAL;
            sums[x->at[e]] += (double)x->values[e];
        }
    for (size_t column = 0; column < x->n_columns; column++) {
        if (row_of[column] >= 0)
            diagonal[row_of[column]] += sums[column] * sums[column];
        index[column] = row_of[column] == SEVERAL ? n++ : NOT_SHARED;
    }
    return (size_t)n;
}

static shared_columns find_shared_columns(const nm_sparse *x)
{
    size_t entries = x->starts[x->n] + 1;
    NM_AUTO_FREE int32_t *index = nm_allocate((x->n_columns + 1) * sizeof *index);
    shared_columns out = {.diagonal = nm_allocate((x->n + 1) * sizeof *out.diagonal)};
    out.x = (nm_sparse){.n = x->n,
                        .n_columns = index_shared_columns(x, index, out.diagonal),
                        .starts = nm_allocate((x->n + 1) * sizeof *out.x.starts),
                        .at = nm_allocate(entries * sizeof *out.x.at),
                        .values = nm_allocate(entries * sizeof *out.x.values)};
    uint64_t end = 0;
    for (size_t row = 0; row < x->n; row++) {
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++)
            if (index[x->at[e]] != NOT_SHARED) {
                out.x.at[end] = index[x->at[e]];
                out.x.values[end++] = x->values[e];
            }
        out.x.starts[row + 1] = end;
    }
    out.transposed = transpose(&out.x);
    return out;
}

static void release_shared_columns(shared_columns *self)
{
    nm_sparse_release(&self->x);
    nm_sparse_release(&self->transposed);
    free(self->diagonal);
}

/* The weights are sums over rows, W = X^T A with a matrix A [n, classes] (representer theorem): all points
 * and directions of the search are vectors (A, X W, b) with X W = K A, K = X X^T. They are shorter than W,
 * because there are more n-grams than texts, and an inner product of two W is one of A and X W. */
typedef struct problem {
    const nm_sparse *x;
    shared_columns shared;
    const int32_t *labels;
    size_t classes, size, length; /* size: n * classes; length: of a vector, 2 size + classes */
    double decay;                 /* 1 / C */
    int threads;
    double *weights;       /* [shared.x.n_columns, classes] */
    double *probabilities; /* [n, classes] */
    double *losses;        /* [n] */
} problem;

static double *bias_of(const problem *p, double *vector)
{
    return vector + 2 * p->size;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The inner product of the weights, biases included. */
static double inner(const problem *p, const double *u, const double *v)
{
    return dot(u, v + p->size, p->size) + dot(u + 2 * p->size, v + 2 * p->size, p->classes);
}

/* out [n, classes] = X W + b; bias NULL: 0 */
static void scores_of(const nm_sparse *x, const double *w, const double *bias, size_t classes, int threads,
                      double *out)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t row = 0; row < x->n; row++) {
        double *to = out + row * classes;
        for (size_t k = 0; k < classes; k++)
            to[k] = bias ? bias[k] : 0;
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++) {
            const double *from = w + (size_t)x->at[e] * classes, value = (double)x->values[e];
#pragma omp simd
            for (size_t k = 0; k < classes; k++)
                to[k] += value * from[k];
        }
    }
}

/* w [n_columns, classes] = X^T A */
static void weights_of(const nm_sparse *x, const double *a, size_t classes, double *w)
{
    memset(w, 0, x->n_columns * classes * sizeof *w);
    for (size_t row = 0; row < x->n; row++)
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++)
            for (size_t k = 0; k < classes; k++)
                w[(size_t)x->at[e] * classes + k] += (double)x->values[e] * a[row * classes + k];
}

/* out [n, classes] = K A */
static void product_of(const problem *p, const double *a, double *out)
{
    const shared_columns *shared = &p->shared;
    size_t classes = p->classes;
    scores_of(&shared->transposed, a, NULL, classes, p->threads, p->weights);
    scores_of(&shared->x, p->weights, NULL, classes, p->threads, out);
    for (size_t row = 0; row < p->x->n; row++)
        for (size_t k = 0; k < classes; k++)
            out[row * classes + k] += shared->diagonal[row] * a[row * classes + k];
}

/* The objective at the vector w. Sets the probabilities. */
static double value_at(problem *p, double *w)
{
    const double *scores = w + p->size, *bias = bias_of(p, w);
    size_t classes = p->classes;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t row = 0; row < p->x->n; row++) {
        const double *s = scores + row * classes;
        double *q = p->probabilities + row * classes, most = s[0] + bias[0], sum = 0;
        for (size_t k = 1; k < classes; k++)
            most = fmax(most, s[k] + bias[k]);
        for (size_t k = 0; k < classes; k++)
            sum += q[k] = exp(s[k] + bias[k] - most);
        for (size_t k = 0; k < classes; k++)
            q[k] /= sum;
        size_t label = (size_t)p->labels[row];
        p->losses[row] = most + log(sum) - s[label] - bias[label];
    }
    double value = 0.5 * p->decay * dot(w, scores, p->size);
    for (size_t row = 0; row < p->x->n; row++)
        value += p->losses[row];
    return value;
}

/* Completes a vector with the weights X^T R + decay W and the bias of 1^T R, whose part A is R [n, classes]
 * on input. */
static void complete(const problem *p, const double *w, double *out)
{
    double *bias = out + 2 * p->size;
    memset(bias, 0, p->classes * sizeof *bias);
    for (size_t row = 0; row < p->x->n; row++)
        for (size_t k = 0; k < p->classes; k++)
            bias[k] += out[row * p->classes + k];
    product_of(p, out, out + p->size);
    for (size_t i = 0; i < 2 * p->size; i++)
        out[i] += p->decay * w[i];
}

/* The gradient at w, which must be that of the last call of value_at. */
static void gradient_at(problem *p, const double *w, double *gradient)
{
    for (size_t row = 0; row < p->x->n; row++)
        for (size_t k = 0; k < p->classes; k++)
            gradient[row * p->classes + k] =
                p->probabilities[row * p->classes + k] - (p->labels[row] == (int32_t)k);
    complete(p, w, gradient);
}

/* out = H v, with the Hessian at the w of the last call of value_at.
 *     H = X^T (diag(q) - q q^T) X + decay I */
static void hessian_times(problem *p, double *v, double *out)
{
    const double *bias = bias_of(p, v);
    size_t classes = p->classes;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t row = 0; row < p->x->n; row++) {
        const double *u = v + p->size + row * classes, *q = p->probabilities + row * classes;
        double *to = out + row * classes, mean = 0;
        for (size_t k = 0; k < classes; k++)
            mean += q[k] * (u[k] + bias[k]);
        for (size_t k = 0; k < classes; k++)
            to[k] = q[k] * (u[k] + bias[k] - mean);
    }
    complete(p, v, out);
}

typedef struct search {
    double *gradient, *step, *residual, *direction, *product, *trial; /* vectors */
} search;

/* Approximate solution of H step = -gradient by conjugate gradients. */
static void find_step(problem *p, search *s, double gradient_norm, double first_norm)
{
    enum { MAX_ITERATIONS = 100 };
    size_t n = p->length;
    double forcing = sqrt(gradient_norm / first_norm),
           limit = gradient_norm * (forcing < 0.5 ? forcing : 0.5);
    memset(s->step, 0, n * sizeof *s->step);
    for (size_t i = 0; i < n; i++)
        s->direction[i] = s->residual[i] = -s->gradient[i];
    double square = inner(p, s->residual, s->residual);
    for (int i = 0; i < MAX_ITERATIONS && square > limit * limit; i++) {
        hessian_times(p, s->direction, s->product);
        double curvature = inner(p, s->direction, s->product), last = square;
        if (curvature <= 0) /* rounding error: H is positive semidefinite */
            break;
        for (size_t k = 0; k < n; k++) {
            s->step[k] += square / curvature * s->direction[k];
            s->residual[k] -= square / curvature * s->product[k];
        }
        square = inner(p, s->residual, s->residual);
        for (size_t k = 0; k < n; k++)
            s->direction[k] = s->residual[k] + square / last * s->direction[k];
    }
}

/* Backtracking line search with Armijo's condition. False if no step length satisfies it, because of rounding
 * errors. */
static bool search_line(problem *p, search *s, double *w, double *value)
{
    double slope = inner(p, s->gradient, s->step);
    for (double length = 1; length > 1e-8; length /= 2) {
        for (size_t i = 0; i < p->length; i++)
            s->trial[i] = w[i] + length * s->step[i];
        double next = value_at(p, s->trial);
        if (next > *value + 1e-4 * length * slope)
            continue;
        memcpy(w, s->trial, p->length * sizeof *w);
        *value = next;
        return true;
    }
    return false;
}

/* The square of a norm can be below 0 by a rounding error. */
static double norm_of(const problem *p, const double *v)
{
    return sqrt(fmax(inner(p, v, v), 0));
}

static double first_gradient_norm(problem *p, search *s)
{
    memset(s->trial, 0, p->length * sizeof *s->trial);
    value_at(p, s->trial);
    gradient_at(p, s->trial, s->gradient);
    return norm_of(p, s->gradient);
}

static int minimize(problem *p, search *s, const nm_logistic_config *config, double *w)
{
    int steps = 0;
    p->decay = 1 / config->c;
    double first_norm = first_gradient_norm(p, s), value = value_at(p, w);
    for (; steps < config->max_steps; steps++) {
        gradient_at(p, w, s->gradient);
        double norm = norm_of(p, s->gradient);
        if (norm <= config->tolerance * first_norm)
            break;
        find_step(p, s, norm, first_norm);
        if (!search_line(p, s, w, &value))
            break;
    }
    return steps;
}

/* Minimizes for each C of an increasing grid, starting at the minimum for the previous one. */
typedef struct fit {
    problem problem;
    search search;
    double *memory, *minimum; /* minimum: a vector, initially 0 */
} fit;

static void open_fit(fit *self, const nm_sparse *x, const int32_t *labels, int32_t classes, int threads)
{
    enum { VECTORS = 7 };
    shared_columns shared = find_shared_columns(x);
    size_t k = (size_t)classes, size = x->n * k, length = 2 * size + k, n_weights = shared.x.n_columns * k;
    self->memory = nm_allocate((VECTORS * length + size + x->n + n_weights) * sizeof *self->memory);
    double *vectors[VECTORS], *rest = self->memory;
    for (int i = 0; i < VECTORS; i++, rest += length)
        vectors[i] = rest;
    self->minimum = vectors[0];
    self->search = (search){vectors[1], vectors[2], vectors[3], vectors[4], vectors[5], vectors[6]};
    self->problem = (problem){.x = x,
                              .shared = shared,
                              .labels = labels,
                              .classes = k,
                              .size = size,
                              .length = length,
                              .threads = threads,
                              .probabilities = rest,
                              .losses = rest + size,
                              .weights = rest + size + x->n};
}

static void close_fit(fit *self)
{
    release_shared_columns(&self->problem.shared);
    free(self->memory);
}

static int run_fit(fit *self, const nm_logistic_config *config, double *weights)
{
    const problem *p = &self->problem;
    int steps = minimize(&self->problem, &self->search, config, self->minimum);
    weights_of(p->x, self->minimum, p->classes, weights);
    memcpy(weights + p->x->n_columns * p->classes, bias_of(p, self->minimum), p->classes * sizeof *weights);
    return steps;
}

int nm_logistic_fit(const nm_sparse *x, const int32_t *labels, int32_t classes,
                    const nm_logistic_config *config, double *weights)
{
    fit one;
    open_fit(&one, x, labels, classes, config->threads);
    int steps = run_fit(&one, config, weights);
    close_fit(&one);
    return steps;
}

void nm_logistic_predict(const nm_sparse *x, const double *weights, int32_t classes, int threads,
                         int32_t *predicted)
{
    size_t n_classes = (size_t)classes;
    NM_AUTO_FREE double *scores = nm_allocate((x->n * n_classes + 1) * sizeof *scores);
    scores_of(x, weights, weights + x->n_columns * n_classes, n_classes, threads, scores);
    for (size_t row = 0; row < x->n; row++) {
        size_t best = 0;
        for (size_t k = 1; k < n_classes; k++)
            best = scores[row * n_classes + k] > scores[row * n_classes + best] ? k : best;
        predicted[row] = (int32_t)best;
    }
}

static size_t count_correct(const nm_sparse *x, const int32_t *labels, const double *weights, int32_t classes,
                            int threads)
{
    NM_AUTO_FREE int32_t *predicted = nm_allocate((x->n + 1) * sizeof *predicted);
    nm_logistic_predict(x, weights, classes, threads, predicted);
    size_t correct = 0;
    for (size_t row = 0; row < x->n; row++)
        correct += predicted[row] == labels[row];
    return correct;
}

double nm_logistic_choose(const nm_sparse *train, const int32_t *labels, const nm_sparse *valid,
                          const int32_t *valid_labels, int32_t classes, int threads, double *weights,
                          size_t *correct)
{
    static const double grid[] = {0.25, 1, 4, 16, 64, 256}, without_validation[] = {4};
    const double *c = valid->n ? grid : without_validation;
    size_t n = valid->n ? sizeof grid / sizeof *grid : 1, best = 0, worse = 0;
    size_t bytes = (train->n_columns + 1) * (size_t)classes * sizeof *weights;
    double *fitted = nm_allocate(bytes), chosen = 0;
    fit grid_fit;
    open_fit(&grid_fit, train, labels, classes, threads);
    for (size_t i = 0; i < n && worse < 2; i++) {
        nm_logistic_config config = {.c = c[i], .tolerance = 1e-4, .max_steps = 100, .threads = threads};
        run_fit(&grid_fit, &config, fitted);
        size_t found = count_correct(valid, valid_labels, fitted, classes, threads);
        worse++;
        if (i && found <= best)
            continue;
        worse = 0;
        best = found;
        chosen = c[i];
        memcpy(weights, fitted, bytes);
    }
    close_fit(&grid_fit);
    free(fitted);
    if (correct)
        *correct = best;
    return chosen;
}
