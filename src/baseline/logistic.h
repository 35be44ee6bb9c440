/* Multinomial logistic regression with L2 regularization over sparse rows, x_i of row i with label y_i:
 *
 *     minimize  sum_i -log softmax(W x_i + b)[y_i] + |W|^2 / (2 C)
 *
 * as in scikit-learn's LogisticRegression. The bias b is not regularized. The function is convex; the minimum is found by
 * Newton's method with conjugate gradients and a line search (truncated Newton; Nocedal and Wright 2006, algorithm 7.1). Results
 * do not depend on the number of threads: rows and columns are summed in their order. */
#ifndef NM_LOGISTIC_H
#define NM_LOGISTIC_H

#include "norma/status.h"

typedef struct nm_sparse { /* [n, n_columns]: row i has entries starts[i] .. starts[i + 1] - 1 */
    size_t n, n_columns;
    uint64_t *starts; /* [n + 1] */
    int32_t *at;      /* column of each entry */
    float *values;
} nm_sparse;

void nm_sparse_release(nm_sparse *matrix);

typedef struct nm_logistic_config {
    double c;         /* inverse strength of the regularization */
    double tolerance; /* maximum |gradient| / |gradient at 0| */
    int max_steps;    /* of Newton's method */
    int threads;
} nm_logistic_config;

/* weights: [n_columns + 1][classes], the last row is the bias; the start of the search (zero or the minimum for another c) on
 * input. Returns the number of Newton steps. */
int nm_logistic_fit(const nm_sparse *x, const int32_t *labels, int32_t classes,
                    const nm_logistic_config *config, double *weights);
/* The class with the highest score of every row; the first one of equal scores. */
void nm_logistic_predict(const nm_sparse *x, const double *weights, int32_t classes, int threads,
                         int32_t *predicted);

#endif
