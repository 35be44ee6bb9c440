/* A comparison: variants of one recipe, optionally at the points of a grid, trained with several seeds,
 * scored on the test set and summarized. The steps are separate functions, so that the caller can report
 * between them:
 *
 *     nm_experiment_plan    determines variants and run folders, loads saved results, checks all options
 *     nm_experiment_train   trains the runs that are not finished; scores each after its training, unless a
 *                           grid point must be
 *                           selected first
 *     nm_experiment_select  reads the logs and selects the best grid point of each variant
 *     nm_experiment_score   scores the other models on the test set and compares the variants
 *
 * Finished work is reused: an interrupted comparison continues with the same calls. A comparison whose folder
 * has comparison.json can also be read without recipe, data and models: nm_experiment_open,
 * nm_experiment_select, nm_experiment_test. */
#pragma once

#include "experiment/background_scoring.h"
#include "experiment/comparison_table.h"
#include "experiment/run_journal.h"
#include "experiment/run_queue.h"

typedef struct nm_experiment_config {
    const char *norms;        /* variants, comma-separated; NULL: five that suit the task; with `tune`, one */
    const char *const *grids; /* [n_grids], axes of the grid: "key=value,value;..." */
    size_t n_grids;
    const char *factorial; /* in place of norms; "" or NULL: none */
    int64_t tuning_seeds;  /* seeds of all grid points; the others train the best one; 0: all */
    int64_t seeds;         /* runs of each variant, with seeds 1, 2, ... */
    int64_t jobs;          /* parallel runs; 0: as many as keep all cores busy */
    int64_t cores;         /* CPU cores */
    const char *slurm;     /* options of sbatch: the runs are trained by Slurm; "" or NULL: no Slurm */
    nm_run_measurement measurement;
    double margin;   /* of the equivalence tests, in units of the score; 0: none */
    bool score_grid; /* score all grid points, not only the selected ones */
    bool tune;       /* the runs train a model further, by default with its own norms */
} nm_experiment_config;

typedef struct nm_run_plan { /* experiment/comparison_plan.h */
    nm_plan_part parts[3];
    size_t n;
    double *seconds; /* of a run of each point; NaN: not measured. NULL: there is no plan */
} nm_run_plan;

typedef struct nm_experiment {
    nm_experiment_config config;
    char *folder; /* contains the run folders; heap, owned */
    nm_run_queue queue;
    nm_variants variants, points; /* those of config.norms; the same expanded by the grid */
    nm_comparison_table table;
    nm_factorial factorial;
    nm_run_journal journal; /* of a comparison; a study has its own */
    nm_run_plan plan;
    nm_background_scoring scoring; /* of a run while others are training */
    nm_error unreadable;           /* of the first log that exists and cannot be read; status NM_OK: none */
} nm_experiment;

/* Needs config, folder and the fields of queue up to settings. Creates and locks the folder. NM_USAGE for
 * wrong options, missing test data, or two variants with the same configuration. */
nm_status nm_experiment_plan(nm_experiment *experiment, nm_error *err);
/* Parts of nm_experiment_plan and nm_experiment_score for a queue whose runs are added later: variants,
 * folder and lock; the shares of n parallel runs; the saved results of the jobs, with checks of their
 * options (runs with valid results are not started; wrong options and missing test data are reported here,
 * before training); the test score of one run. */
nm_status nm_experiment_begin(nm_experiment *experiment, nm_error *err);
nm_status nm_experiment_share_cores(nm_experiment *experiment, int64_t n, nm_error *err);
nm_status nm_experiment_load(nm_experiment *experiment, nm_error *err);
nm_status nm_experiment_score_run(nm_experiment *experiment, nm_run_job *job, nm_error *err);
/* Trains the runs and calls the callbacks of the queue. A run that cannot be scored now is left to
 * nm_experiment_score, after a warning. NM_USAGE if SIGCHLD is ignored; errors of nm_run_queue_train and
 * nm_slurm_array_train. */
nm_status nm_experiment_train(nm_experiment *experiment, nm_error *err);
/* A run without a readable log becomes a failed run; see nm_experiment_check. */
void nm_experiment_select(nm_experiment *experiment);
/* The number of runs that nm_experiment_score will score. */
size_t nm_experiment_unscored(const nm_experiment *experiment);
/* Scores the runs and stores the results. NM_INTERRUPTED as for the queue. */
nm_status nm_experiment_score(nm_experiment *experiment, nm_error *err);
/* The error of the first log that exists and could not be read, so that the table is incomplete, or of the
 * first run if no run was scored. */
nm_status nm_experiment_check(const nm_experiment *experiment, nm_error *err);
/* Writes comparison.json: the variants, settings and measurement. */
nm_status nm_experiment_save(const nm_experiment *experiment, nm_error *err);
/* Needs folder and config.margin. Reads comparison.json and the test.json of every run; runs without one have
 * no score. NM_IO without comparison.json, NM_FORMAT if a file is not of this version's format. */
nm_status nm_experiment_open(nm_experiment *experiment, nm_error *err);
/* Adds the runs of all variants and seeds, and the rows of the table. NM_USAGE for more than 10,000 runs. */
nm_status nm_experiment_add_runs(nm_experiment *experiment, nm_error *err);
/* Compares the variants by their scored runs. */
void nm_experiment_test(nm_experiment *experiment);
void nm_experiment_release(nm_experiment *experiment);
