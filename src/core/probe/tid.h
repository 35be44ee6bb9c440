/* Training-inference discrepancy (TID) of batch statistics (Wang et al. 2022, equation 5) at the input of
 * every norm, regardless of its type. A first pass over training batches with fixed parameters estimates the
 * expected statistics, a second pass averages the ratios:
 *     mu           = E_B[mu_B]
 *     sigma^2      = E_B[sigma_B^2]
 *     mean TID     = E_B[|mu_B - mu|_2 / (|sigma|_2 + 1e-12)]
 *     variance TID = E_B[|sigma_B - sigma|_2 / (|sigma|_2 + 1e-12)]
 * mu_B, sigma_B [width] are the mean and standard deviation over the rows of batch B; each batch has equal
 * weight. The rows are the inputs of the norm, after layer or group scaling if the norm scales its rows
 * first. Dropout is off; norms that use batch statistics in training use them here. For comparison, the same
 * is computed for the quadratic mean by which PowerNorm divides:
 *     psi^2         = E_B[psi_B^2]
 *     quadratic TID = E_B[|psi_B - psi|_2 / (|psi|_2 + 1e-12)]
 * psi_B^2 is the mean square over the rows, scaled by the norm's row scaling or, without one, to unit mean
 * square per head. */
#pragma once

#include <jansson.h>

#include "base/record.h"
#include "train/task.h"

#define NM_TID_SITE(F)                                                                                       \
    F(chars(128), name, "Name of the site, or average", "site")                                              \
    F(flag, uses_batch, "Whether the norm uses statistics of the batch in training", "")                     \
    F(real, mean, "TID of the mean, a ratio")                                                                \
    F(real, variance, "TID of the variance")                                                                 \
    F(real, square, "TID of the quadratic mean", "quadratic_mean")                                           \
    F(flag, averaged, "Whether the site is part of the average")
NM_RECORD(nm_tid_site, NM_TID_SITE)

typedef struct nm_tid {
    nm_tid_site *sites; /* in the order of the forward pass */
    size_t n;
    int64_t batches; /* batches in each pass */
} nm_tid;

/* max_batches 0: a whole epoch. Parameters and running statistics of the model do not change. The average is
 * over the default sites, see nm_tid_select. Release with nm_tid_release; empty on failure. Errors as
 * nm_eval_pass_run. */
nm_status nm_tid_measure(nm_tid *tid, nm_task *task, nm_model *model, int64_t max_batches, nm_error *err);
void nm_tid_release(nm_tid *tid);
/* Selects the sites of the average: "auto" (the norms that use batch statistics; without any the encoder;
 * without an encoder all), "all", or comma-separated beginnings of names, "enc,dec.0.self". NM_USAGE: one
 * that matches no site. */
nm_status nm_tid_select(nm_tid *tid, const char *sites, nm_error *err);
/* The site whose TID the RBN paper reports: the last feed-forward norm of the encoder ("enc.N.ffn.norm"),
 * without an encoder the last feed-forward norm, otherwise the last site; NULL if there are no sites. */
const nm_tid_site *nm_tid_last(const nm_tid *tid);
/* The mean over the selected sites, named "average". */
nm_tid_site nm_tid_average(const nm_tid *tid);
/* An object {batches, last, average, sites}; each site has site, mean, variance, quadratic_mean and averaged.
 * last and average are null for a model without norms. The caller releases it. */
json_t *nm_tid_json(const nm_tid *tid);

/* The two passes, for callers with a separate loop: create the accumulator, add every norm call of every
 * batch (nm_tid_accumulate can be nm_tape.listen), start the second pass, add the same calls again, and
 * finish, which fills *tid and frees the accumulator. */
typedef struct nm_tid_accumulator nm_tid_accumulator;
nm_tid_accumulator *nm_tid_accumulator_create(void);
void nm_tid_accumulate(void *accumulator, const nm_norm_call *call, bool backward);
void nm_tid_accumulator_start_second_pass(nm_tid_accumulator *accumulator);
void nm_tid_accumulator_finish(nm_tid_accumulator *accumulator, nm_tid *tid);
