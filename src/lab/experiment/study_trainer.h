/* The runner of studies and of the speed of comparisons: runs are jobs of a queue of processes
 * (experiment/run_queue.h), scored while others are training. The queue has no other jobs meanwhile. */
#pragma once

#include "experiment/experiment.h"
#include "experiment/study_procedure.h"

typedef struct nm_study_trainer {
    nm_experiment *experiment; /* of the caller, who sets config, folder and the queue up to settings */
    const nm_settings *extra;  /* of all trials; NULL: none */
    nm_stop *stop;             /* of the queue; requested from outside, or at the end of the budget */
    bool perplexity;
    bool scored_validations; /* the recipe selects checkpoints by score */
    const int64_t *updates;  /* of a complete run: the plan's */
    char score[48];          /* its title, known after the first scored run */
    /* The batch that is being trained: trial i is job i and has variant i. */
    nm_trial *const *trials;
    nm_variant *variants;
    size_t n;
    double end; /* clock */
    bool timed_out;
    void (*started)(void *study, nm_trial *trial);
    nm_status (*finished)(void *study, nm_trial *trial, nm_error *err);
    void *study;
    nm_status status; /* of finished, with its message */
    nm_error err;
    double **draws; /* [n_draws], kept alive */
    size_t n_draws, draws_capacity;
} nm_study_trainer;

/* Determines the variants, and creates and locks the folder. lr, longest: learning rate and number of
 * updates of the recipe; longest 0: its length is a time. Errors of nm_experiment_begin. */
nm_status nm_study_trainer_open(nm_study_trainer *trainer, double *lr, int64_t *longest, nm_error *err);
/* Adds the settings with which runs end by their number of updates alone, and so are trained equally long. */
void nm_study_set_equal_lengths(nm_settings *settings, const nm_options *options);
nm_study_runner nm_study_trainer_runner(nm_study_trainer *trainer);
/* Does not release the experiment. */
void nm_study_trainer_release(nm_study_trainer *trainer);
