/* The result of one run of a comparison: values of its log, measurements on the test set, and RUN/test.json,
 * which stores the measurements so that no run is scored twice. */
#pragma once

#include <jansson.h>

#include "norma/compare.h"
#include "train/task.h"

typedef struct nm_run_result {
    const char *variant, *against; /* names, not owned; against: the variant that p tests against, or NULL */
    int64_t seed, updates, segments;          /* segments: of the test set */
    int exit_code;                            /* of training; 0: finished */
    bool measured, lower_is_better;           /* measured: the values from the test set are valid */
    char failure[512];                        /* why there is no score */
    char name[32], title[48], signature[256]; /* of the score: "bleu", "BLEU" */
    char *samples;                            /* examples from the test set, or NULL */
    json_t *tid;                              /* TID of every site */
    double value, low, high;                  /* score on the test set and its 95 % bootstrap interval */
    double *draws; /* [n_resamples of nm_bootstrap_default], scores of the resamples; NULL until measured */
    double p;      /* paired test against the first variant's run with this seed; NaN for that run */
    double p_holm; /* of the variant: test of the means over the seeds, with Holm's correction; set with p */
    double update_seconds, validation_seconds; /* medians in the log; NaN: unknown */
    bool bf16;                                 /* trained in bf16 */
    uint64_t weights;                          /* hash of the scored model's tensors; 0: unknown */
    const struct nm_run_result *same_weights;  /* a run of another variant with identical weights, or NULL */
    NM_LOG_MEASUREMENTS(NM_MEMBER)
    NM_TEST_MEASUREMENTS(NM_MEMBER)
} nm_run_result;

typedef struct nm_run_measurement {
    int64_t tid_batches; /* training batches for TID; 0: one epoch */
    int64_t average;     /* score the mean of the last `average` checkpoints; 0: the best model */
    int64_t threads;     /* of scoring; 0: one per core. The results do not depend on it. */
} nm_run_measurement;

enum { NM_RUN_KEY_BYTES = 64 };

/* The updates of a run by train.updates, or by train.epochs and its training data; 0: unknown. */
nm_status nm_run_planned_updates(const nm_task_type *type, const nm_options *options, int64_t *updates,
                                 nm_error *err);
/* Computes a hash of everything that determines a score except the model: program version, settings, data,
 * measurement. *last (heap, first NULL; freed by the caller) and *data store the text of section [data] and
 * the hash of its files between calls; the data is opened only if the text has changed. NM_USAGE if there is
 * no test set. */
nm_status nm_run_key(char key[NM_RUN_KEY_BYTES], const nm_task_type *type, const nm_options *options,
                     const nm_run_measurement *measurement, char **last, uint64_t *data, nm_error *err);

/* The result for users of the library: without folder, state and line; values are not known before they are
 * valid. */
nm_compared_run nm_run_result_describe(const nm_run_result *result);

/* Records the status and the message of a run that has failed. */
void nm_run_result_fail(nm_run_result *result, const nm_error *err);

/* Reads updates, loss, throughput and memory from the log of the run. NM_IO. */
nm_status nm_run_result_read_log(nm_run_result *result, const char *folder, nm_error *err);
/* NM_MISMATCH if the run in the folder was started from another initial model than the current file of
 * model.init_from. */
nm_status nm_run_check_initial_model(const nm_options *options, const char *folder, nm_error *err);
/* Reads the measurements from test.json and sets `measured` if it exists, its key matches and the scored
 * model file is unchanged. NM_IO if a file cannot be read. */
nm_status nm_run_result_load(nm_run_result *result, const char *folder, const char *key,
                             const nm_run_measurement *measurement, nm_error *err);
/* Reads the measurements from test.json regardless of its key, and without the model file. NM_MISMATCH if
 * there is no such file, NM_FORMAT if it is not of this version. */
nm_status nm_run_result_read(nm_run_result *result, const char *folder, nm_error *err);
/* Scores the run's model on the test set and measures TID. Takes ownership of options. With
 * measurement->average, the mean of the last checkpoints is written to average.safetensors first; NM_MISMATCH
 * if there are fewer. NM_INTERRUPTED soon after *stop becomes nonzero; stop may be NULL. */
nm_status nm_run_result_measure(nm_run_result *result, const char *folder, const nm_task_type *type,
                                nm_options *options, const nm_run_measurement *measurement,
                                const nm_stop *stop, nm_error *err);
/* Writes test.json with the key and the hash of the scored model file. NM_IO. */
nm_status nm_run_result_save(const nm_run_result *result, const char *folder, const char *key,
                             const nm_run_measurement *measurement, nm_error *err);
void nm_run_result_release(nm_run_result *result);
