/* Confidence and calibration: the probabilities of the tokens (or classes) at each target of a split, at
 * inference with the reference prefix. With label smoothing epsilon over V tokens the loss is minimal at the
 * target probability
 *     1 - epsilon + epsilon / V
 * instead of 1; the measured mean is to be compared with this value. */
#ifndef NM_CONFIDENCE_H
#define NM_CONFIDENCE_H

#include "train/task.h"

typedef struct nm_confidence {
    /* false: the model's output is not a softmax with one target per row, or there are no targets */
    bool measured;
    int64_t targets, batches;
    /* targets that the model may not output (data.mask_words) or that are ignored; not in `targets` */
    int64_t masked;
    double confidence;         /* mean of the largest probability */
    double accuracy;           /* fraction of the targets that have the largest probability */
    double target_probability; /* mean of p(target) */
    double entropy;            /* mean, in nats */
    double nll;                /* mean of -ln p(target), in nats */
    double smoothed_nll;       /* mean loss with the label smoothing of the training, in nats */
    /* expected calibration error: weighted mean of |confidence - accuracy| over ten bins */
    double calibration_error;
    double epsilon;         /* label smoothing of the training */
    double smoothed_target; /* mean of the target probability at which the smoothed loss is minimal */
} nm_confidence;

/* max_batches 0: all. Errors as nm_eval_pass_run, and NM_DIVERGED if log probabilities are not finite. */
nm_status nm_confidence_measure(nm_confidence *confidence, nm_task *task, nm_model *model, nm_split split,
                                int64_t max_batches, nm_error *err);

#endif
