/* Which of the papers' remedies the measurements of a run point to: one row for each remedy, with the numbers that say so.
 * The limits stand beside the rules in advice.c, with where they come from. */
#ifndef NM_ADVICE_H
#define NM_ADVICE_H

#include "probe/inspection.h"

typedef struct nm_findings { /* NaN: not known */
    bool uses_batch;         /* some norm trains with statistics of the batch */
    bool takes_mean;         /* and subtracts a mean, as BatchNorm; otherwise only divides */
    bool has_penalty;
    bool pre_norm, small_init;
    char tid_site[128];
    double tid_mean, tid_variance, tid_square; /* of the last encoder layer, shares */
    double loss,
        batch_loss; /* at the best validation: with remembered statistics, with those of each batch */
    double
        early_gradient; /* largest gradient norm in shares of the loss, in the first twentieth of the run */
    double later_gradient; /* median of the rest */
    double warmup_share;   /* of the run's updates */
    double first_loss,
        ignorance; /* first of the log; of a model that knows nothing, for losses of single targets */
    char top[96], bottom[96]; /* layers of the first stack */
    double top_gradient, bottom_gradient;
} nm_findings;

typedef enum nm_verdict { NM_UNKNOWN, NM_NOT_NEEDED, NM_IN_USE, NM_INDICATED } nm_verdict;

typedef struct nm_advice {
    const char *remedy, *setting; /* "RBN penalty", "model.norm = rbn" */
    nm_verdict verdict;
    char why[400];
} nm_advice;

enum { NM_N_ADVICE = 5 };

/* What the model, its measurements and the run's log.jsonl (log_path; a missing one leaves NaN) say. */
nm_findings nm_findings_gather(const nm_inspection *inspection, const nm_task *task, const nm_model *model,
                               const char *log_path);
void nm_advise(const nm_findings *findings, nm_advice advice[NM_N_ADVICE]);
const char *nm_verdict_text(nm_verdict verdict); /* "indicated" */

#endif
