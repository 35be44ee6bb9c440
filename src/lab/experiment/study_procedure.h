/* The procedure of a study: plan, selection, confirmation, answer. It trains nothing itself: runs are started
 * by a runner, so that tests simulate the whole procedure. docs/study.md has the reasons.
 *
 *     speed    a few updates of each variant: seconds per update, of validation and of scoring;
 *              one run more with nothing but a validation loss
 *     rates    learning rates of each variant: all at a quarter of the schedule, the better half at one half
 *     select   complete runs with common seeds; Kim-Nelson elimination (base/selection.h); validation score
 *     confirm  fresh seeds of the finalists in the last third of the budget, their number fixed before they
 *              start; test score; paired t tests over seeds and segments with Holm's correction
 *
 * Every decision is a function of the configuration and of the results in queue.jsonl, so a study that was
 * killed repeats its decisions and continues. The clock of the budget is that of the last result: time lost
 * between it and a kill is not counted. Error probabilities: alpha / 2 for the elimination, alpha / 4 each
 * for the bounds of dropped variants and of finalists, and alpha for the tests of the finalists. */
#pragma once

#include "experiment/run_journal.h"
#include "base/selection.h"

enum {
    NM_STUDY_MAX_RATES = 8,
    NM_STUDY_MAX_FINALISTS = 4,
    NM_STUDY_LONG = 1000, /* updates of a run, from which its length is no caveat */
    NM_PLAIN_SEED = 2     /* of a run of speed with nothing but a validation loss at its end */
};

typedef struct nm_trial {
    nm_planned_run row; /* texts not owned */
    size_t variant;     /* index */
    const double
        *draws; /* [n_draws] resamples of the test score on the scale of value; NULL: none. Not owned. */
    size_t n_draws;
    char note[256];
} nm_trial;

typedef struct nm_study_runner {
    void *user;
    double (*clock)(void *user); /* seconds */
    /* Trains the runs, and scores those of speed and confirm; sets the rows and calls finished after each.
     * Runs that are not finished after `seconds` are stopped; their state is "dropped". started and finished
     * are called with `study`. */
    nm_status (*train)(void *user, nm_trial *const *runs, size_t n, double seconds,
                       void (*started)(void *study, nm_trial *run),
                       nm_status (*finished)(void *study, nm_trial *run, nm_error *err), void *study,
                       nm_error *err);
    /* Reads score and draws of a run of speed or confirm that was finished earlier; NULL: there are none. */
    nm_status (*load)(void *user, nm_trial *run, nm_error *err);
    /* Sets the instruments of a variant from its runs; NULL: none. */
    void (*describe)(void *user, const nm_trial *const *runs, size_t n, nm_studied_variant *variant);
} nm_study_runner;

typedef struct nm_study_config {
    const char *const *variants; /* [n] names */
    size_t n, n_rates;
    double lr[NM_STUDY_MAX_RATES]; /* [n_rates], ascending */
    double budget, delta, alpha;   /* seconds; units of value; 0.05 */
    int64_t jobs;                  /* parallel runs */
    int64_t updates, fresh;        /* of a complete run; fresh seeds; 0: chosen */
    int64_t speed_updates, min_updates, max_updates;
    const char *folder, *key; /* of queue.jsonl; folder NULL: no file (simulations) */
    const char *score;        /* its name, for the text; may be set after the speed was measured */
    const char *unit;         /* of differences: "BLEU", "% of perplexity" */
    bool perplexity;          /* value is -100 ln(perplexity) */
} nm_study_config;

typedef struct nm_study_state {           /* of a variant */
    double per_update, overhead, scoring; /* seconds */
    double lr;
    bool lr_at_edge, failed;
    const char *outcome; /* "eliminated", "dropped", "failed", or NULL: a finalist */
    double used;         /* seconds of all runs */
} nm_study_state;

typedef struct nm_study_procedure {
    nm_study_config config;
    nm_study_runner runner;
    nm_study_events events;
    nm_run_journal journal;
    nm_study_state *states; /* [n] */
    nm_trial **runs;        /* [n_runs], all runs so far */
    size_t n_runs, runs_capacity;
    double now;          /* budget used */
    double base, start;  /* during a batch: now and clock at its beginning */
    double plain;        /* seconds of a run of rates besides its updates; INFINITY: unknown */
    int64_t updates;     /* of a complete run */
    int64_t first_seeds; /* of the selection */
    size_t n_rates;      /* that are tried: the middle ones of config.lr */
    nm_plan_part parts[4];
    size_t n_parts;
    double planned;
    size_t finalists[NM_STUDY_MAX_FINALISTS], n_finalists;
    int64_t fresh;        /* planned seeds of each finalist */
    double unseen_within; /* bound of variants that were dropped for lack of budget */
    bool selection_done;  /* the elimination ended before its budget */
    nm_study_answer answer;
    nm_studied_variant *variants; /* [n], from the best; set with the answer */
    char *paragraph;
    json_t *texts; /* texts of decisions and folders, kept alive */
} nm_study_procedure;

/* Opens the queue. */
nm_status nm_study_procedure_open(nm_study_procedure *study, nm_error *err);
/* Measures the speed and plans. NM_USAGE: the budget is too small. */
nm_status nm_study_procedure_plan(nm_study_procedure *study, nm_error *err);
/* Trains, decides, and computes the answer (study_answer.c). */
nm_status nm_study_procedure_run(nm_study_procedure *study, nm_error *err);
void nm_study_procedure_release(nm_study_procedure *study);

bool nm_trial_is_finished(const nm_trial *run); /* with a value */
/* The runs of a part and a variant with a result, in the order of their seeds; n_out of them. Heap. */
nm_trial **nm_study_trials(const nm_study_procedure *study, const char *phase, size_t variant, size_t *n_out);
/* Computes the answer from the confirmed runs. */
nm_status nm_study_answer_compute(nm_study_procedure *study, nm_error *err);
/* Appends a decision to the queue. */
nm_status nm_study_decide(nm_study_procedure *study, const char *phase, const char *variant, nm_error *err,
                          const char *format, ...) __attribute__((format(printf, 5, 6)));
