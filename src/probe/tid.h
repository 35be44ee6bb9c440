/* Training-inference discrepancy of batch statistics (Wang et al. 2022, eq. 5), for the input of every norm of a model,
 * whatever its type:
 *     mean TID = E_B |mu_B - mu| / (|sigma| + 1e-12)      variance TID = E_B |sigma_B - sigma| / (|sigma| + 1e-12)
 * mu_B, sigma_B: per feature over the rows of a training batch; mu, sigma^2: their equal-weight means over the batches
 * of a first pass with frozen parameters; a second pass averages the ratios. Dropout is off, batch-type norms normalize
 * with the batch's statistics. By the side the same for what PowerNorm would divide by here, the quadratic mean of the
 * rows scaled per head:  E_B |psi_B - psi| / (|psi| + 1e-12) */
#ifndef NM_TID_H
#define NM_TID_H

#include "train/task.h"

typedef struct nm_tid_site {
    char name[128];
    double mean, variance, square; /* shares, not per cent */
} nm_tid_site;

typedef struct nm_tid {
    nm_tid_site *sites;
    size_t n;
    int64_t batches; /* that were used */
} nm_tid;

/* max_batches 0: a whole epoch. The model is left as it was. Release with nm_tid_release. */
nm_status nm_tid_measure(nm_tid *tid, nm_task *task, nm_model *model, int64_t max_batches, nm_error *err);
void nm_tid_release(nm_tid *tid);
/* The site RBN reports: the last feed-forward norm of the encoder ("enc.N.ffn.norm"), or the last site; NULL if none. */
const nm_tid_site *nm_tid_last(const nm_tid *tid);
/* The mean over the sites, named "average". */
nm_tid_site nm_tid_average(const nm_tid *tid);

/* The two passes apart, for whoever makes them: listen (to nm_tape.listen) over the batches, turn, listen over the same
 * again, finish, which fills *tid and frees the sums. */
typedef struct nm_tid_sums nm_tid_sums;
nm_tid_sums *nm_tid_begin(void);
void nm_tid_listen(void *sums, const nm_norm_call *call, bool backward);
void nm_tid_turn(nm_tid_sums *sums);
void nm_tid_finish(nm_tid_sums *sums, nm_tid *tid);

#endif
