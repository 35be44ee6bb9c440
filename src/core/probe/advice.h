/* Recommends remedies of the papers according to the measurements of a run: one entry per remedy, with the
 * values that justify it. The thresholds and their sources are in advice.c. */
#pragma once

#include "probe/inspection.h"

typedef struct nm_advice_inputs { /* NaN: unknown */
    bool uses_batch;              /* a norm trains with batch statistics */
    bool centers;                 /* it subtracts the mean, as BatchNorm does; otherwise it only divides */
    bool has_penalty;
    bool pre_norm; /* norms at any position but post */
    bool small_init;
    bool varies_encoder;                       /* the model has model.encoder_norm: the advice names it */
    char tid_site[128];                        /* nm_tid_last */
    double tid_mean, tid_variance, tid_square; /* TID at that site, as ratios */
    double loss, batch_loss; /* best validation loss: with running and with batch statistics */
    /* Gradient norm divided by the loss: maximum over the first 5 % of the updates, median over the
     * others. */
    double early_gradient, later_gradient;
    double warmup_fraction; /* fraction of the updates that are warm-up */
    double first_loss;      /* of the first update */
    double chance_loss;     /* loss of uniform probabilities; NaN for losses of whole sequences */
    char first_layer[96], last_layer[96]; /* names, in the first stack */
    double first_layer_gradient, last_layer_gradient;
} nm_advice_inputs;

typedef enum nm_verdict {
    NM_VERDICT_UNKNOWN,
    NM_VERDICT_NOT_NEEDED,
    NM_VERDICT_ENABLED,
    NM_VERDICT_INDICATED
} nm_verdict;

typedef struct nm_advice {
    const char *remedy, *setting; /* "RBN penalty", "model.norm = rbn" */
    nm_verdict verdict;
    char why[400];
} nm_advice;

enum { NM_N_ADVICE = 5 };

/* Collects the inputs from the measurements, the model and the run's log.jsonl; without a log its values are
 * NaN. NM_IO, NM_FORMAT: the log cannot be read. */
nm_status nm_advice_inputs_collect(nm_advice_inputs *inputs, const nm_inspection *inspection,
                                   const nm_task *task, const nm_model *model, const char *log_path,
                                   nm_error *err);
/* Fills all entries of advice; their strings are static or part of the entry. */
void nm_advise(const nm_advice_inputs *inputs, nm_advice advice[NM_N_ADVICE]);
const char *nm_verdict_text(nm_verdict verdict); /* "indicated" */
