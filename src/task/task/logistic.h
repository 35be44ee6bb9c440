/* Multinomial logistic regression with L2 regularization over sparse rows x_i with labels y_i:
 *
 *     minimize  sum_i -log softmax(W x_i + b)[y_i] + |W|^2 / (2 C)
 *
 * as in scikit-learn's LogisticRegression. The bias b is not regularized. The objective is convex; the
 * minimum is found by Newton's method with conjugate gradients and a line search (truncated Newton; Nocedal
 * and Wright 2006, algorithm 7.1). Results do not depend on the number of threads, because sums over rows and
 * columns have a fixed order. */
#pragma once

#include "norma/status.h"

typedef struct nm_sparse { /* CSR matrix [n, n_columns]: row i has entries starts[i] .. starts[i + 1] - 1 */
    size_t n, n_columns;
    uint64_t *starts; /* [n + 1] */
    int32_t *at;      /* column of each entry */
    float *values;
} nm_sparse;

void nm_sparse_release(nm_sparse *matrix);

typedef struct nm_logistic_config {
    double c;         /* inverse strength of the regularization */
    double tolerance; /* maximum |gradient| / |gradient at 0| */
    int max_steps;    /* maximum number of Newton steps */
    int threads;
} nm_logistic_config;

/* Sets weights [n_columns + 1, classes], whose last row is the bias, to the minimum. labels [n]. Returns the
 * number of Newton steps. */
int nm_logistic_fit(const nm_sparse *x, const int32_t *labels, int32_t classes,
                    const nm_logistic_config *config, double *weights);
/* Fits models for a grid of increasing C, each starting at the minimum for the previous one, until the
 * accuracy on the validation rows has not improved for two values; C = 4 without validation rows. weights
 * [n_columns + 1, classes]: those with the best accuracy. *correct: number of validation rows whose predicted
 * class is their label; may be NULL. Returns the C of the weights. */
double nm_logistic_choose(const nm_sparse *train, const int32_t *labels, const nm_sparse *valid,
                          const int32_t *valid_labels, int32_t classes, int threads, double *weights,
                          size_t *correct);
/* Sets predicted [n] to the class with the highest score of each row; of equal scores, the first one. */
void nm_logistic_predict(const nm_sparse *x, const double *weights, int32_t classes, int threads,
                         int32_t *predicted);
