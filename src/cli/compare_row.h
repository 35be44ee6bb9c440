/* One run of norma compare: what its log says, what is measured on the test set, and RUN/test.json, which keeps that so
 * that no run is scored twice. */
#ifndef NM_COMPARE_ROW_H
#define NM_COMPARE_ROW_H

#include <jansson.h>

#include "train/task.h"

typedef struct compare_row {
    const char *variant, *against; /* not owned; against: what p is the test against, or NULL */
    int64_t seed, updates, segments;
    int exit_code;
    bool measured, lower_is_better;
    char trouble[512]; /* why there is no score */
    char name[32], title[48], signature[256];
    char *samples; /* or NULL */
    json_t *tid;   /* of every site */
    double value, low, high;
    double *draws; /* of the bootstrap, NULL before */
    double p;      /* paired test against the first variant's run with this seed; NaN for that one */
    double loss, nll, tokens_per_second, step_mib, tid_mean, tid_variance;
} compare_row;

enum { COMPARE_KEY_BYTES = 64 };

/* What a score stands on but for the model: program, settings, test and training data, what is measured. Opens the data
 * unless its settings are those of *last, the options of an earlier call (or NULL) whose hash of the data is *data.
 * NM_USAGE without test data. */
nm_status compare_key(char key[COMPARE_KEY_BYTES], const nm_task_type *type, const nm_options *options,
                      int64_t tid_batches, char **last, uint64_t *data, nm_error *err);
/* Text of one section; heap. */
char *compare_section_text(const nm_options *options, const char *section);

/* Reads loss, speed and memory from the run's log. */
nm_status compare_row_read_log(compare_row *row, const char *folder, nm_error *err);
/* Takes the measurements from test.json if they are of this key and of the run's best model as it is. */
void compare_row_load(compare_row *row, const char *folder, const char *key);
/* Scores the run's best model on the test set and measures TID. Takes ownership of options. */
nm_status compare_row_measure(compare_row *row, const char *folder, const nm_task_type *type,
                              nm_options *options, int64_t tid_batches, nm_error *err);
nm_status compare_row_save(const compare_row *row, const char *folder, const char *key, nm_error *err);
void compare_row_release(compare_row *row);

json_t *compare_number(double value); /* null when it is not finite */

#endif
