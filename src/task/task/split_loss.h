/* The loss of a model over a split of its data, outside training. */
#pragma once

#include "train/task.h"

typedef struct nm_split_loss {
    double loss, nll; /* means over targets: with label smoothing (train.label_smoothing), and without */
    int64_t targets;  /* target tokens or examples */
    /* target tokens outside the output vocabulary (data.mask_words), excluded from the means */
    int64_t masked;
    /* examples that are too long (data.max_length, train.max_tokens), excluded from the means */
    int64_t skipped;
} nm_split_loss;

/* Evaluation mode: running statistics, no dropout. The task must have been opened with its data
 * (nm_loaded_model_open_run). The processes of task->comm divide the batches. NM_USAGE: the split is empty;
 * NM_MEMORY. */
nm_status nm_split_loss_measure(nm_task *task, nm_model *model, nm_split split, nm_split_loss *loss,
                                nm_error *err);
