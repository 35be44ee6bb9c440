/* The data of norma study: recognizes the task, divides texts without held-out data, and prepares a data
 * folder. */
#pragma once

#include "norma/status.h"

enum { STUDY_MAX_SETTINGS = 8 };

typedef struct study_data {
    const char *recipe; /* name of the built-in recipe: "translate", "lm", "classify", "tag" */
    char *what;         /* what was recognized, one sentence */
    const char *keys[STUDY_MAX_SETTINGS];
    char *values[STUDY_MAX_SETTINGS]; /* options of the runs */
    int n;
} study_data;

/* inputs [n]: a data folder of norma prepare; a folder with train.X, valid.X and test.X; a text, a table of
 * labels and texts, or columns; or two parallel texts. folder: for divided and prepared data; it is kept and
 * found again. *code: exit code of norma prepare, the error if it is not 0.
 * NM_USAGE: the data is not recognized, or a part of the held-out data is missing; NM_FORMAT: other data
 * is in the folder, or a text is malformed; NM_IO. */
nm_status study_data_open(study_data *data, char *const *inputs, int n, const char *folder, int *code,
                          nm_error *err);
void study_data_release(study_data *data);
