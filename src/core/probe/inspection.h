/* All measurements of one model file. */
#pragma once

#include "probe/conditioning.h"
#include "probe/confidence.h"
#include "probe/gradient_bounds.h"
#include "probe/tid.h"

typedef struct nm_inspection_plan {
    bool tid, spectrum, condition, bounds, confidence; /* what to measure */
    bool named;               /* not all: a measurement that is not defined for the model is an error */
    int64_t batches;          /* per measurement; 0: all */
    int64_t gradient_batches; /* of bounds; 0: all */
    const char *tid_sites;    /* sites of the average TID, see nm_tid_select; NULL: "auto" */
} nm_inspection_plan;

typedef struct nm_inspection {
    nm_inspection_plan plan;
    nm_tid tid;
    char table[96];   /* name of the embedding matrix whose singular values are measured; "": none */
    double *singular; /* [n_singular], descending */
    int32_t n_singular;
    nm_conditioning conditioning;
    nm_gradient_bounds bounds;
    nm_confidence confidence;
} nm_inspection;

/* Sets the selected measurements of the plan. names: comma-separated, or "all". NM_USAGE: an unknown name. */
nm_status nm_inspection_select(nm_inspection_plan *plan, const char *names, nm_error *err);
/* Condition numbers and confidence use the validation data, or without them the training data. The model must
 * have gradients if plan->bounds. Release with nm_inspection_release; empty on failure. NM_UNSUPPORTED:
 * plan->named, and a measurement is not defined for the model. Other errors as nm_eval_pass_run and
 * nm_tid_select. */
nm_status nm_inspection_measure(nm_inspection *inspection, const nm_inspection_plan *plan, nm_task *task,
                                nm_model *model, nm_error *err);
void nm_inspection_release(nm_inspection *inspection);
