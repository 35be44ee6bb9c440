/* Confidence and calibration: the probabilities that the loss head gives to the words (or classes) at every target of a
 * split, at inference with the reference prefix. With label smoothing epsilon over V words the loss is minimal at the
 * target probability
 *     1 - epsilon + epsilon / V
 * instead of 1: compare the measured mean with that, and a run with smoothing with one without. */
#ifndef NM_CONFIDENCE_H
#define NM_CONFIDENCE_H

#include "train/task.h"

typedef struct nm_confidence {
    bool measured; /* false: the model's output is no softmax with one target per row */
    int64_t targets, batches;
    int64_t masked;    /* targets whose word the model may not output (data.mask_words); not in `targets` */
    double confidence; /* mean of the largest probability */
    double accuracy;   /* fraction of the targets that have the largest probability */
    double target_probability; /* mean */
    double entropy;            /* mean, in nats */
    double nll;                /* mean of -ln p(target) */
    double smoothed_nll;       /* the loss with the label smoothing of the training */
    double calibration_error;  /* expected: mean of |confidence - accuracy| over ten bins of confidence */
    double epsilon;            /* label smoothing of the training */
    double smoothed_target;    /* the target probability at which the smoothed loss is minimal */
} nm_confidence;

nm_status nm_confidence_measure(nm_confidence *confidence, nm_task *task, nm_model *model, nm_split split,
                                int64_t max_batches, nm_error *err);

#endif
