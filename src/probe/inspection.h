/* Everything that is measured of one model file after the fact, in one struct. */
#ifndef NM_INSPECTION_H
#define NM_INSPECTION_H

#include "probe/conditioning.h"
#include "probe/confidence.h"
#include "probe/gradient_bounds.h"
#include "probe/tid.h"

typedef struct nm_inspection_plan {
    bool tid, spectrum, condition, bounds, confidence; /* what to measure */
    int64_t batches;                                   /* of each measurement; 0: all */
    int64_t gradient_batches;                          /* of bounds */
    const char *tid_sites; /* sites of TID's average, see nm_tid_select; NULL: "auto" */
} nm_inspection_plan;

typedef struct nm_inspection {
    nm_inspection_plan plan;
    nm_tid tid;
    char table
        [96]; /* the embedding matrix whose singular values these are, the largest first; "": there is none */
    double *singular;
    int32_t n_singular;
    nm_conditioning conditioning;
    nm_gradient_bounds bounds;
    nm_confidence confidence;
} nm_inspection;

/* The names of the measurements, by comma, or "all". NM_USAGE: unknown. */
nm_status nm_inspection_choose(nm_inspection_plan *plan, const char *names, nm_error *err);
/* Whatever needs validation data is left out where there is none. The model must have gradients if plan->bounds. */
nm_status nm_inspection_measure(nm_inspection *inspection, const nm_inspection_plan *plan, nm_task *task,
                                nm_model *model, nm_error *err);
void nm_inspection_release(nm_inspection *inspection);

#endif
