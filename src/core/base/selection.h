/* Ranking and selection: which of several systems with random scores is the best, with a stated error
 * probability, and how many seeds a comparison needs.
 *
 * Kim and Nelson, "A fully sequential procedure for indifference-zone selection in simulation", ACM TOMACS
 * 11(3), 2001, section 3, with c = 1. Observation r of all systems has the same random numbers (seed), which
 * makes the differences less variable. Of k systems with n first observations each:
 *
 *     eta    = ((2 alpha / (k - 1))^(-2 / (n - 1)) - 1) / 2
 *     h^2    = 2 eta (n - 1)
 *     S_il^2 = variance of X_ij - X_lj over the first n observations j
 *     W_il   = max(0, delta / (2 r) (h^2 S_il^2 / delta^2 - r))
 *     system i is eliminated if mean_i(r) < mean_l(r) - W_il for a system l that remains
 *
 * With normal observations the best system remains with a probability of at least 1 - alpha if it is better
 * than all others by at least delta. Looking less often than after every observation does not increase the
 * error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/seed_test.h"

typedef struct nm_selection {
    size_t k, first; /* systems at the start; first observations, at least 2 */
    double alpha, delta;
} nm_selection;

/* values [k][r], higher is better, r >= first; remains [k]: those that are still compared. Clears the
 * elements of eliminated systems and stores in by [k] the system that eliminated them. Returns the number
 * that remain. */
size_t nm_selection_eliminate(const nm_selection *selection, const double *const *values, size_t r,
                              bool *remains, size_t *by);
/* An upper bound of the mean of a minus the mean of b, from n paired observations, that holds with
 * probability 1 - alpha. INFINITY with fewer than two. */
double nm_selection_bound(const double *a, const double *b, size_t n, double alpha);
/* The number of paired observations with which a two-sided t test of level alpha finds a difference of delta
 * with the given power; deviation: of the paired differences. At least 2, at most 1,000,000. */
int64_t nm_seeds_needed(double deviation, double delta, double alpha, double power);
