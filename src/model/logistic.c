#include "model/logistic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

void nm_sparse_release(nm_sparse *matrix)
{
    free(matrix->starts);
    free(matrix->at);
    free(matrix->values);
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

typedef struct problem {
    const nm_sparse *x;
    nm_sparse transposed;
    const int32_t *labels;
    size_t classes, size; /* size: number of weights with the bias */
    double decay;         /* 1 / C */
    int threads;
    double *scores, *probabilities; /* [n, classes] */
    double *losses;                 /* [n] */
} problem;

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* out [n, classes] = X W + b */
static void scores_of(const nm_sparse *x, const double *w, size_t classes, int threads, double *out)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t row = 0; row < x->n; row++) {
        double *to = out + row * classes;
        memcpy(to, w + x->n_columns * classes, classes * sizeof *to);
        for (uint64_t e = x->starts[row]; e < x->starts[row + 1]; e++) {
            const double *from = w + (size_t)x->at[e] * classes, value = (double)x->values[e];
            for (size_t k = 0; k < classes; k++)
                to[k] += value * from[k];
        }
    }
}

/* out = X^T r + decay w; for the bias, the sum of the rows of r. */
static void weights_of(const problem *p, const double *r, const double *w, double *out)
{
    const nm_sparse *t = &p->transposed;
    size_t classes = p->classes;
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t column = 0; column < t->n; column++) {
        double *to = out + column * classes;
        for (size_t k = 0; k < classes; k++)
            to[k] = p->decay * w[column * classes + k];
        for (uint64_t e = t->starts[column]; e < t->starts[column + 1]; e++) {
            const double *from = r + (size_t)t->at[e] * classes, value = (double)t->values[e];
            for (size_t k = 0; k < classes; k++)
                to[k] += value * from[k];
        }
    }
    double *bias = out + t->n * classes;
    memset(bias, 0, classes * sizeof *bias);
    for (size_t row = 0; row < p->x->n; row++)
        for (size_t k = 0; k < classes; k++)
            bias[k] += r[row * classes + k];
}

/* The objective at w. Sets scores and probabilities. */
static double value_at(problem *p, const double *w)
{
    size_t classes = p->classes, n_weights = p->size - classes;
    scores_of(p->x, w, classes, p->threads, p->scores);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t row = 0; row < p->x->n; row++) {
        const double *s = p->scores + row * classes;
        double *q = p->probabilities + row * classes, most = s[0], sum = 0;
        for (size_t k = 1; k < classes; k++)
            most = s[k] > most ? s[k] : most;
        for (size_t k = 0; k < classes; k++)
            sum += q[k] = exp(s[k] - most);
        for (size_t k = 0; k < classes; k++)
            q[k] /= sum;
        p->losses[row] = most + log(sum) - s[p->labels[row]];
    }
    double value = 0.5 * p->decay * dot(w, w, n_weights);
    for (size_t row = 0; row < p->x->n; row++)
        value += p->losses[row];
    return value;
}

/* The gradient at w, which must be that of the last call of value_at. Overwrites scores. */
static void gradient_at(problem *p, const double *w, double *gradient)
{
    for (size_t row = 0; row < p->x->n; row++)
        for (size_t k = 0; k < p->classes; k++)
            p->scores[row * p->classes + k] =
                p->probabilities[row * p->classes + k] - (p->labels[row] == (int32_t)k);
    weights_of(p, p->scores, w, gradient);
}

/* out = H v, with the Hessian at the w of the last call of value_at. Overwrites scores.
 *     H = X^T (diag(q) - q q^T) X + decay I */
static void hessian_times(problem *p, const double *v, double *out)
{
    size_t classes = p->classes;
    scores_of(p->x, v, classes, p->threads, p->scores);
#pragma omp parallel for num_threads(p->threads) schedule(static)
    for (size_t row = 0; row < p->x->n; row++) {
        double *u = p->scores + row * classes;
        const double *q = p->probabilities + row * classes, mean = dot(q, u, classes);
        for (size_t k = 0; k < classes; k++)
            u[k] = q[k] * (u[k] - mean);
    }
    weights_of(p, p->scores, v, out);
}

typedef struct search {
    double *gradient, *step, *residual, *direction, *product, *trial; /* [size] each */
} search;

/* Approximate solution of H step = -gradient by conjugate gradients. */
static void find_step(problem *p, search *s, double gradient_norm, double first_norm)
{
    enum { MAX_ITERATIONS = 100 };
    size_t n = p->size;
    double forcing = sqrt(gradient_norm / first_norm),
           limit = gradient_norm * (forcing < 0.5 ? forcing : 0.5);
    memset(s->step, 0, n * sizeof *s->step);
    for (size_t i = 0; i < n; i++)
        s->direction[i] = s->residual[i] = -s->gradient[i];
    double square = dot(s->residual, s->residual, n);
    for (int i = 0; i < MAX_ITERATIONS && sqrt(square) > limit; i++) {
        hessian_times(p, s->direction, s->product);
        double curvature = dot(s->direction, s->product, n), last = square;
        if (curvature <= 0) /* rounding error: H is positive semidefinite */
            break;
        for (size_t k = 0; k < n; k++) {
            s->step[k] += square / curvature * s->direction[k];
            s->residual[k] -= square / curvature * s->product[k];
        }
        square = dot(s->residual, s->residual, n);
        for (size_t k = 0; k < n; k++)
            s->direction[k] = s->residual[k] + square / last * s->direction[k];
    }
}

/* Backtracking line search with Armijo's condition. False if no step length satisfies it, because of rounding errors. */
static bool search_line(problem *p, search *s, double *w, double *value)
{
    double slope = dot(s->gradient, s->step, p->size);
    for (double length = 1; length > 1e-8; length /= 2) {
        for (size_t i = 0; i < p->size; i++)
            s->trial[i] = w[i] + length * s->step[i];
        double next = value_at(p, s->trial);
        if (next > *value + 1e-4 * length * slope)
            continue;
        memcpy(w, s->trial, p->size * sizeof *w);
        *value = next;
        return true;
    }
    return false;
}

static double first_gradient_norm(problem *p, search *s)
{
    memset(s->trial, 0, p->size * sizeof *s->trial);
    value_at(p, s->trial);
    gradient_at(p, s->trial, s->gradient);
    return sqrt(dot(s->gradient, s->gradient, p->size));
}

static int minimize(problem *p, search *s, const nm_logistic_config *config, double *w)
{
    int steps = 0;
    double first_norm = first_gradient_norm(p, s), value = value_at(p, w);
    for (; steps < config->max_steps; steps++) {
        gradient_at(p, w, s->gradient);
        double norm = sqrt(dot(s->gradient, s->gradient, p->size));
        if (norm <= config->tolerance * first_norm)
            break;
        find_step(p, s, norm, first_norm);
        if (!search_line(p, s, w, &value))
            break;
    }
    return steps;
}

int nm_logistic_fit(const nm_sparse *x, const int32_t *labels, int32_t classes,
                    const nm_logistic_config *config, double *weights)
{
    size_t k = (size_t)classes, size = (x->n_columns + 1) * k;
    double *memory = nm_allocate(6 * size * sizeof *memory),
           *rows = nm_allocate((2 * k + 1) * (x->n + 1) * sizeof *rows);
    problem p = {.x = x,
                 .transposed = transpose(x),
                 .labels = labels,
                 .classes = k,
                 .size = size,
                 .decay = 1 / config->c,
                 .threads = config->threads,
                 .scores = rows,
                 .probabilities = rows + k * x->n,
                 .losses = rows + 2 * k * x->n};
    search s = {memory,           memory + size, memory + 2 * size, memory + 3 * size, memory + 4 * size,
                memory + 5 * size};
    int steps = minimize(&p, &s, config, weights);
    nm_sparse_release(&p.transposed);
    free(memory);
    free(rows);
    return steps;
}

void nm_logistic_predict(const nm_sparse *x, const double *weights, int32_t classes, int threads,
                         int32_t *predicted)
{
    size_t n_classes = (size_t)classes;
    double *scores = nm_allocate((x->n * n_classes + 1) * sizeof *scores);
    scores_of(x, weights, n_classes, threads, scores);
    for (size_t row = 0; row < x->n; row++) {
        size_t best = 0;
        for (size_t k = 1; k < n_classes; k++)
            best = scores[row * n_classes + k] > scores[row * n_classes + best] ? k : best;
        predicted[row] = (int32_t)best;
    }
    free(scores);
}

static size_t count_correct(const nm_sparse *x, const int32_t *labels, const double *weights, int32_t classes,
                            int threads)
{
    int32_t *predicted = nm_allocate((x->n + 1) * sizeof *predicted);
    nm_logistic_predict(x, weights, classes, threads, predicted);
    size_t correct = 0;
    for (size_t row = 0; row < x->n; row++)
        correct += predicted[row] == labels[row];
    free(predicted);
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
    for (size_t i = 0; i < n && worse < 2; i++) {
        nm_logistic_config config = {.c = c[i], .tolerance = 1e-4, .max_steps = 100, .threads = threads};
        nm_logistic_fit(train, labels, classes, &config, fitted);
        size_t found = count_correct(valid, valid_labels, fitted, classes, threads);
        worse++;
        if (i && found <= best)
            continue;
        worse = 0;
        best = found;
        chosen = c[i];
        memcpy(weights, fitted, bytes);
    }
    free(fitted);
    if (correct)
        *correct = best;
    return chosen;
}
