/* How sure the model is: the soft-max over the vocabulary (or the classes) for every target of a split, as in use, given
 * the true words before it. Label smoothing trains towards 1 - epsilon + epsilon / V for the right word instead of 1, so the
 * distribution is to be compared between runs with and without, and with that number. */
#ifndef NM_CONFIDENCE_H
#define NM_CONFIDENCE_H

#include "train/task.h"

typedef struct nm_confidence {
    bool measured; /* false: the model's output is no soft-max with one target a row */
    int64_t targets, batches;
    int64_t masked;  /* targets whose word the model may not output (data.mask_words): not among `targets` */
    double largest;  /* mean of the largest probability: confidence */
    double right;    /* share of targets that have it: accuracy */
    double target;   /* mean probability of the target */
    double entropy;  /* mean, in nats */
    double nll;      /* mean -ln of the target's probability */
    double smoothed; /* the loss with label smoothing over all words that may be output, as trained */
    double
        calibration; /* expected calibration error: mean |confidence - accuracy| over ten bins of confidence */
    double epsilon, ideal; /* label smoothing; the target's probability that it asks for */
} nm_confidence;

nm_status nm_confidence_measure(nm_confidence *confidence, nm_task *task, nm_model *model, nm_split split,
                                int64_t max_batches, nm_error *err);

#endif
