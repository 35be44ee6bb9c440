/* Confidence and calibration: the probabilities of the tokens (or classes) at each target of a split, at
 * inference with the reference prefix. With label smoothing epsilon over V tokens the loss is minimal at the
 * target probability
 *     1 - epsilon + epsilon / V
 * instead of 1; the measured mean is to be compared with this value. */
#pragma once

#include "base/record.h"
#include "train/task.h"

/* clang-format off */
#define NM_CONFIDENCE(F)                                                                                     \
    F(flag, measured, "False: no softmax with one target per row, or no targets", "")                        \
    F(int, batches, "Number of batches", "")                                                                 \
    F(int, targets, "Number of targets")                                                                     \
    F(int, masked, "Number of further targets that are ignored or outside the output vocabulary "            \
        "(`data.mask_words`)", "masked_targets")                                                             \
    F(real, confidence, "Mean of the largest probability")                                                   \
    F(real, accuracy, "Fraction of the targets that have the largest probability")                           \
    F(real, target_probability, "Mean probability of the targets")                                           \
    F(real, entropy, "Mean entropy in nats")                                                                 \
    F(real, nll, "Mean negative log-likelihood of the targets in nats")                                      \
    F(real, smoothed_nll, "The same with the label smoothing of the training")                               \
    F(real, calibration_error, "Expected calibration error: weighted mean of the difference of confidence "  \
        "and accuracy over ten bins")                                                                        \
    F(real, epsilon, "Label smoothing of the training", "label_smoothing")                                   \
    F(real, smoothed_target, "Mean target probability at which the smoothed loss is minimal")
/* clang-format on */
NM_RECORD(nm_confidence, NM_CONFIDENCE)
const nm_field *nm_confidence_fields(void);

/* max_batches 0: all. Errors as nm_eval_pass_run, and NM_DIVERGED if log probabilities are not finite. */
nm_status nm_confidence_measure(nm_confidence *confidence, nm_task *task, nm_model *model, nm_split split,
                                int64_t max_batches, nm_error *err);
