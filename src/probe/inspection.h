/* All measurements of one model file. */
#ifndef NM_INSPECTION_H
#define NM_INSPECTION_H

#include "probe/conditioning.h"
#include "probe/confidence.h"
#include "probe/gradient_bounds.h"
#include "probe/tid.h"

typedef struct nm_inspection_plan {
    bool tid, spectrum, condition, bounds, confidence; /* what to measure */
    int64_t batches;                                   /* per measurement; 0: all */
    int64_t gradient_batches;                          /* of bounds; 0: all */
    const char *tid_sites; /* sites of TID's average, see nm_tid_select; NULL: "auto" */
} nm_inspection_plan;

typedef struct nm_inspection {
    nm_inspection_plan plan;
    nm_tid tid;
    char table[96];   /* the embedding matrix of the singular values; "": there is none */
    double *singular; /* [n_singular], descending */
    int32_t n_singular;
    nm_conditioning conditioning;
    nm_gradient_bounds bounds;
    nm_confidence confidence;
} nm_inspection;

/* names: comma-separated measurements, or "all". NM_USAGE: an unknown one. */
nm_status nm_inspection_select(nm_inspection_plan *plan, const char *names, nm_error *err);
/* Condition numbers and confidence use the validation data, or the training data if there are none. The model must have
 * gradients if plan->bounds. Release with nm_inspection_release. */
nm_status nm_inspection_measure(nm_inspection *inspection, const nm_inspection_plan *plan, nm_task *task,
                                nm_model *model, nm_error *err);
void nm_inspection_release(nm_inspection *inspection);

#endif
