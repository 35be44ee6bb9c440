/* Training-inference discrepancy of batch statistics (Wang et al. 2022, eq. 5), for the input of every norm of a model,
 * whatever its type:
 *     mean TID = E_B |mu_B - mu| / (|sigma| + 1e-8)      variance TID = E_B |sigma_B - sigma| / (|sigma| + 1e-8)
 * mu_B, sigma_B: per feature over the rows of a training batch; mu, sigma^2: their equal-weight means over the batches
 * of a first pass with frozen parameters; a second pass averages the ratios. Dropout is off, batch-type norms normalize
 * with the batch's statistics. */
#ifndef NM_TID_H
#define NM_TID_H

#include "train/task.h"

typedef struct nm_tid_site {
    char name[128];
    double mean, variance; /* shares, not per cent */
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

/* The ratio itself, for tests: n features. */
void nm_tid_ratio(int32_t n, const double *batch_mean, const double *batch_variance, const double *mean,
                  const double *variance, double *mean_tid, double *variance_tid);

#endif
