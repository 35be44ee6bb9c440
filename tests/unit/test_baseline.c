/* Baselines: the minimum of the logistic regression is scikit-learn's, n-gram probabilities are those of an
 * independent program in Python, distributions sum to one, and no result depends on the number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "task/kneser_ney.h"
#include "task/logistic.h"

static nm_sparse sparse_of(size_t n, size_t n_columns, const float *dense)
{
    nm_sparse x = {.n = n,
                   .n_columns = n_columns,
                   .starts = nm_allocate((n + 1) * sizeof *x.starts),
                   .at = nm_allocate(n * n_columns * sizeof *x.at),
                   .values = nm_allocate(n * n_columns * sizeof *x.values)};
    uint64_t end = 0;
    for (size_t row = 0; row < n; row++) {
        for (size_t column = 0; column < n_columns; column++)
            if (dense[row * n_columns + column] != 0) {
                x.at[end] = (int32_t)column;
                x.values[end++] = dense[row * n_columns + column];
            }
        x.starts[row + 1] = end;
    }
    return x;
}

/* LogisticRegression(C=2, tol=1e-14, solver="newton-cg"); coef_ and, as the last row, intercept_. */
static void the_minimum_is_that_of_scikit_learn(void **state)
{
    static const float dense[] = {1, 0, 0.5f, 0, 0, 2, 0, 1, 0.5f, 0.5f, 0, 0, 0, 0,
                                  1, 1, 1,    1, 0, 0, 0, 0, 0,    2,    2, 0, 0, 0.5f};
    static const int32_t labels[] = {0, 1, 0, 2, 1, 2, 0};
    static const double expected[] = {0.57774726,  0.09365377,  -0.67140103, -0.67544907, 1.27307835,
                                      -0.59762928, -0.18648397, -0.26569063, 0.4521746,   -0.70399271,
                                      -0.21566539, 0.9196581,   0.80388354,  -0.59675763, -0.2071259};
    (void)state;
    nm_sparse x = sparse_of(7, 4, dense);
    const nm_logistic_config config = {.c = 2, .tolerance = 1e-12, .max_steps = 200, .threads = 1};
    double weights[15] = {0};
    nm_logistic_fit(&x, labels, 3, &config, weights);
    for (int i = 0; i < 15; i++) /* the last digit given by scikit-learn */
        assert_true(fabs(weights[i] - expected[i]) < 1e-7);
    int32_t predicted[7];
    nm_logistic_predict(&x, weights, 3, 1, predicted);
    assert_memory_equal(predicted, labels, sizeof labels);
    nm_sparse_release(&x);
}

/* Most columns have entries in one row or none, some rows have two entries of a column: at the minimum, the
 * gradient X^T (q - y) + W / C is 0. */
static void the_gradient_at_the_minimum_is_zero(void **state)
{
    enum { N = 40, COLUMNS = 150, CLASSES = 3, ENTRIES = 6 };
    (void)state;
    uint64_t starts[N + 1];
    int32_t at[N * ENTRIES], labels[N];
    float values[N * ENTRIES];
    for (uint64_t i = 0; i < N * ENTRIES; i++) {
        nm_random_words r = nm_random4(2, NM_RANDOM_TEST, 0, 0, i);
        bool repeated = i % ENTRIES == 5;
        at[i] = repeated ? at[i - 1] : (int32_t)(r.w[0] % (i % 2 ? COLUMNS : 10));
        values[i] = 0.5f + (float)nm_random_unit(r.w[1]);
        labels[i / ENTRIES] = (int32_t)(r.w[2] % CLASSES);
    }
    for (uint64_t row = 0; row <= N; row++)
        starts[row] = row * ENTRIES;
    const nm_sparse x = {.n = N, .n_columns = COLUMNS, .starts = starts, .at = at, .values = values};
    const nm_logistic_config config = {.c = 5, .tolerance = 1e-10, .max_steps = 100, .threads = 2};
    double weights[(COLUMNS + 1) * CLASSES], gradient[(COLUMNS + 1) * CLASSES] = {0};
    nm_logistic_fit(&x, labels, CLASSES, &config, weights);
    for (size_t row = 0; row < N; row++) {
        double q[CLASSES], sum = 0;
        for (size_t k = 0; k < CLASSES; k++) {
            double score = weights[COLUMNS * CLASSES + k];
            for (uint64_t e = starts[row]; e < starts[row + 1]; e++)
                score += (double)values[e] * weights[(size_t)at[e] * CLASSES + k];
            sum += q[k] = exp(score);
        }
        for (size_t k = 0; k < CLASSES; k++) {
            double residual = q[k] / sum - (labels[row] == (int32_t)k);
            gradient[COLUMNS * CLASSES + k] += residual;
            for (uint64_t e = starts[row]; e < starts[row + 1]; e++)
                gradient[(size_t)at[e] * CLASSES + k] += (double)values[e] * residual;
        }
    }
    for (size_t i = 0; i < (COLUMNS + 1) * CLASSES; i++)
        assert_true(fabs(gradient[i] + (i < COLUMNS * CLASSES ? weights[i] / config.c : 0)) < 1e-8);
}

static void threads_do_not_change_the_weights(void **state)
{
    enum { N = 60, COLUMNS = 12, CLASSES = 4, WEIGHTS = (COLUMNS + 1) * CLASSES };
    (void)state;
    float dense[N * COLUMNS];
    int32_t labels[N];
    double weights[3][WEIGHTS];
    for (int i = 0; i < N * COLUMNS; i++) {
        nm_random_words r = nm_random4(1, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        dense[i] = r.w[0] % 3 ? 0 : (float)nm_random_unit(r.w[1]);
        labels[i % N] = (int32_t)(r.w[2] % CLASSES);
    }
    nm_sparse x = sparse_of(N, COLUMNS, dense);
    memset(weights, 0, sizeof weights);
    for (int t = 0; t < 3; t++) {
        const nm_logistic_config config = {.c = 8, .tolerance = 1e-6, .max_steps = 50, .threads = t + 1};
        assert_true(nm_logistic_fit(&x, labels, CLASSES, &config, weights[t]) > 1);
        assert_memory_equal(weights[t], weights[0], sizeof weights[0]);
    }
    nm_sparse_release(&x);
}

/* One column whose sign is the class in three of four training rows: a large C fits the fourth by the second
 * column, which misleads in the validation rows. */
static void c_is_chosen_on_the_validation_rows(void **state)
{
    enum { N = 8, COLUMNS = 2 };
    static const float train_rows[] = {1, 0, 1, 0, 1, 0, 1, 0.3f, -1, 0, -1, 0, -1, 0, -1, -0.3f},
                       valid_rows[] = {0.3f, 0.3f, -0.3f, -0.3f};
    static const int32_t labels[] = {1, 1, 1, 0, 0, 0, 0, 1}, valid_labels[] = {1, 0};
    (void)state;
    nm_sparse x = sparse_of(N, COLUMNS, train_rows), valid = sparse_of(2, COLUMNS, valid_rows),
              none = sparse_of(0, COLUMNS, NULL);
    double weights[2 * (COLUMNS + 1)], expected[2 * (COLUMNS + 1)] = {0};
    int32_t predicted[2];
    size_t correct;
    double c = nm_logistic_choose(&x, labels, &valid, valid_labels, 2, 1, weights, &correct);
    assert_true(c == 0.25 && correct == 2);
    nm_logistic_predict(&valid, weights, 2, 1, predicted);
    assert_memory_equal(predicted, valid_labels, sizeof predicted);
    const nm_logistic_config config = {.c = 4, .tolerance = 1e-4, .max_steps = 100, .threads = 1};
    assert_true(nm_logistic_choose(&x, labels, &none, NULL, 2, 1, weights, NULL) == 4);
    nm_logistic_fit(&x, labels, 2, &config, expected);
    assert_memory_equal(weights, expected, sizeof expected);
    const int32_t opposite[] = {0, 1};
    c = nm_logistic_choose(&x, labels, &valid, opposite, 2, 1, weights, &correct);
    nm_logistic_predict(&valid, weights, 2, 1, predicted);
    assert_true(c > 0.25 && correct == (size_t)((predicted[0] == 0) + (predicted[1] == 1)));
    nm_sparse_release(&x);
    nm_sparse_release(&valid);
    nm_sparse_release(&none);
}

enum { EOS = 2, VOCAB = 14 };

static const int32_t train[] = {4, 5,   6,   5, EOS, 4,   5, 6,  EOS, 4,   7,   5, 6, EOS, 5,   6,
                                8, EOS, 4,   5, 9,   EOS, 7, 5,  6,   8,   EOS, 4, 4, 5,   EOS, 10,
                                5, 6,   EOS, 8, 9,   EOS, 7, 11, 6,   EOS, 12,  5, 6, EOS};
static const int32_t test[] = {4, 5, 6, 8, EOS, 7, 5, 13, EOS, 6, EOS};
enum { N_TRAIN = sizeof train / sizeof *train, N_TEST = sizeof test / sizeof *test };

/* Discounts by the formula in order 3, the fixed ones in the other orders. */
static void probabilities_are_those_of_the_formula(void **state)
{
    static const double expected[4][N_TEST] = {
        {2.156899600719, 1.596325499342, 1.837835927526, 2.986458636769, 1.494419218552, 2.986458636769,
         1.596325499342, 4.025351690735, 1.494419218552, 1.837835927526, 1.494419218552},
        {1.055444093239, 0.672401142612, 0.558800902653, 1.881456550002, 0.910227370719, 2.113907905570,
         0.807635958804, 4.727232551264, 1.979062356372, 3.511369000416, 0.714729340596},
        {1.055444093239, 0.377779597360, 0.754750793591, 2.039558002328, 0.690184625614, 2.113907905570,
         0.773565833880, 4.815868623980, 1.979062356372, 3.511369000416, 1.142252692168},
        {1.055444093239, 0.731287731956, 0.629452134224, 2.243998142668, 0.186600886413, 2.113907905570,
         0.748754003708, 5.890383361070, 1.979062356372, 3.511369000416, 1.142252692168}};
    (void)state;
    nm_error err;
    double nll[N_TEST];
    nm_kneser_ney *model = nm_kneser_ney_create(train, N_TRAIN, EOS, VOCAB);
    nm_kneser_ney_score(model, test, N_TEST, nll);
    assert_true(fabs(nll[0] - log(VOCAB)) < 1e-12);
    for (int order = 1; order <= 4; order++) {
        assert_int_equal(nm_kneser_ney_extend(model, &err), NM_OK);
        assert_int_equal(nm_kneser_ney_order(model), order);
        nm_kneser_ney_score(model, test, N_TEST, nll);
        for (int i = 0; i < N_TEST; i++)
            if (!(fabs(nll[i] - expected[order - 1][i]) < 1e-11))
                fail_msg("order %d, token %d: %.12f instead of %.12f", order, i, nll[i],
                         expected[order - 1][i]);
    }
    nm_kneser_ney_free(model);
}

static void distributions_sum_to_one(void **state)
{
    (void)state;
    nm_error err;
    nm_kneser_ney *model = nm_kneser_ney_create(train, N_TRAIN, EOS, VOCAB);
    for (int order = 1; order <= 5; order++) {
        assert_int_equal(nm_kneser_ney_extend(model, &err), NM_OK);
        for (int length = 0; length < N_TEST; length++) {
            int32_t ids[N_TEST];
            double nll[N_TEST], sum = 0;
            memcpy(ids, test, sizeof ids);
            for (ids[length] = 0; ids[length] < VOCAB; ids[length]++) {
                nm_kneser_ney_score(model, ids, length + 1, nll);
                sum += exp(-nll[length]);
            }
            assert_true(fabs(sum - 1) < 1e-12);
        }
    }
    nm_kneser_ney_free(model);
}

/* No text, one empty line, and a text without newlines. */
static void unusual_texts(void **state)
{
    static const int32_t empty[] = {EOS}, stream[] = {4, 5, 4, 5, 4, 6};
    (void)state;
    nm_error err;
    double nll[N_TEST];
    for (int i = 0; i < 3; i++) {
        nm_kneser_ney *model = nm_kneser_ney_create(i == 2 ? stream : empty, i == 2 ? 6 : i, EOS, VOCAB);
        for (int order = 1; order <= 3; order++) {
            assert_int_equal(nm_kneser_ney_extend(model, &err), NM_OK);
            nm_kneser_ney_score(model, test, N_TEST, nll);
            for (int k = 0; k < N_TEST; k++)
                assert_true(isfinite(nll[k]) && nll[k] > 0);
        }
        nm_kneser_ney_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_minimum_is_that_of_scikit_learn),
        cmocka_unit_test(the_gradient_at_the_minimum_is_zero),
        cmocka_unit_test(threads_do_not_change_the_weights),
        cmocka_unit_test(c_is_chosen_on_the_validation_rows),
        cmocka_unit_test(probabilities_are_those_of_the_formula),
        cmocka_unit_test(distributions_sum_to_one),
        cmocka_unit_test(unusual_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
