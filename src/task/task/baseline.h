/* Baselines: simple models of each task, fitted in seconds, with which the scores of trained models are
 * compared.
 *
 * A baseline is one file with an nm_baseline_type, and one line in baselines.c. It is fitted to the training
 * split of the task's data, its settings are chosen on the validation split, and it is scored with the
 * function that scores the task's models. */
#pragma once

#include "task/tasks.h"

enum { NM_BASELINE_SPLITS = 3 };

typedef struct nm_baseline_config { /* section [baseline] */
    double regularization;
    int64_t max_features, order;
    int64_t threads; /* device.threads, not an option of this section; 0: all cores */
} nm_baseline_config;

typedef struct nm_baseline_result {
    nm_task_score scores[NM_BASELINE_SPLITS]; /* by nm_split; name NULL: not scored */
    char *settings;                           /* such as "C 4, 20183 n-grams", heap; NULL: none */
} nm_baseline_result;

typedef struct nm_baseline_type {
    const char *name, *title; /* "majority", "majority class" */
    const nm_task_type *task;
    /* Fits the baseline and scores the validation and the test split, if the data has them. The caller
     * releases the result, also after an error. */
    nm_status (*run)(const nm_task *task, const nm_baseline_config *config, nm_baseline_result *result,
                     nm_error *err);
} nm_baseline_type;

/* All baselines, the simplest of each task first. */
/* clang-format off */
#define NM_BASELINES(B) \
    B(majority) B(bag_of_words) B(frequent_tag) B(hmm) B(unigram) B(kneser_ney) B(nearest) B(class_mean) \
    B(logistic_pixels)
/* clang-format on */
#define NM_DECLARE_BASELINE(name) extern const nm_baseline_type nm_baseline_##name;
NM_BASELINES(NM_DECLARE_BASELINE)
/* NULL at the end. */
extern const nm_baseline_type *const nm_baseline_types[];

/* Rows of section [baseline]. */
extern const nm_option nm_baseline_options[];

void nm_baseline_result_release(nm_baseline_result *result);
