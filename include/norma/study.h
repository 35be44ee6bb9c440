/* Studies: which normalization is best for a corpus, answered within a time budget. `norma study` is a
 * program over this header; docs/study.md describes the procedure and what it guarantees.
 *
 * A study measures the speed of each variant, plans its runs, selects a learning rate for each variant,
 * eliminates variants that are not the best, and confirms the result with fresh seeds. Runs are processes of
 * the program `norma`. All progress is in FOLDER/queue.jsonl: a study that was interrupted or killed
 * continues with the same calls and has the same answer. */
#ifndef NORMA_STUDY_H
#define NORMA_STUDY_H

#include <stddef.h>

#include "norma/record.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_study nm_study;

/* A run of the plan and, after it has ended, its result: a line of queue.jsonl. Later lines of the same run
 * replace earlier ones. NaN: not known. */
#define NM_PLANNED_RUN(F)                                                                                    \
    F(text, type, "`run`")                                                                                   \
    F(text, phase, "`speed`, `rates`, `select` or `confirm`; `compare` in a comparison")                     \
    F(text, variant, "Name of the variant")                                                                  \
    F(real, lr, "Learning rate; null: as in the recipe")                                                     \
    F(int, seed, "Random seed")                                                                              \
    F(int, updates, "Number of updates after which the run ends")                                            \
    F(text, folder, "Run folder, relative to the folder of queue.jsonl")                                     \
    F(text, state, "`planned`, `running`, `finished`, `failed` or `dropped`")                                \
    F(real, seconds, "Estimated duration, seconds")                                                          \
    F(real, took, "Measured duration in seconds, with validation and scoring")                               \
    F(real, train_seconds, "Training time in it")                                                            \
    F(real, score_seconds, "Time of scoring the test set in it")                                             \
    F(real, value, "Compared value, higher is better: the score, or -100 ln(perplexity)")                    \
    F(real, loss, "Loss of the best validation without label smoothing")                                     \
    F(real, at, "Budget used when the line was written, seconds")                                            \
    F(text, note, "Why the run failed", "note?")
NM_RECORD(nm_planned_run, NM_PLANNED_RUN)

/* A part of the plan: hours per part before the study starts. */
#define NM_PLAN_PART(F)                                                                                      \
    F(text, type, "`part`")                                                                                  \
    F(text, phase, "Part of the study")                                                                      \
    F(int, runs, "Number of runs; of `select` and `confirm` the smallest number")                            \
    F(int, updates, "Number of updates of the longest of them")                                              \
    F(real, seconds, "Estimated duration of the part in seconds, with parallel runs")
NM_RECORD(nm_plan_part, NM_PLAN_PART)

/* A decision of the study, in the order in which they were made. */
#define NM_STUDY_DECISION(F)                                                                                 \
    F(text, type, "`decision`")                                                                              \
    F(text, phase, "Part of the study")                                                                      \
    F(text, variant, "Variant that it concerns, or null")                                                    \
    F(text, text, "What was decided and why, one sentence")                                                  \
    F(real, at, "Budget used, seconds")
NM_RECORD(nm_study_decision, NM_STUDY_DECISION)

/* A variant in the answer. Differences are best minus variant, in the units of the score; of a perplexity in
 * percent. NaN: not known. */
#define NM_STUDIED_VARIANT(F)                                                                                \
    F(text, variant, "Name of the variant")                                                                  \
    F(text, state,                                                                                           \
      "`best`, `worse` (significantly), `equivalent` (within delta), `undecided`, `eliminated` (not the "    \
      "best by delta or more), `dropped` (for lack of budget) or `failed`")                                  \
    F(real, lr, "Selected learning rate")                                                                    \
    F(flag, lr_at_edge, "It is the smallest or largest of those that were tried")                            \
    F(int, selected, "Runs of the selection")                                                                \
    F(int, confirmed, "Runs with fresh seeds")                                                               \
    F(real, score, "Mean test score over the fresh seeds")                                                   \
    F(real, deviation, "Its standard deviation over seeds")                                                  \
    F(real, valid_value, "Mean value of the selection, on validation data, higher is better")                \
    F(real, difference, "Best minus this variant, fresh seeds")                                              \
    F(real, low, "95 % interval of the difference")                                                          \
    F(real, high, "Upper end of the interval")                                                               \
    F(real, p, "p of the paired t test with Holm's correction over all pairs of finalists")                  \
    F(real, p_equivalence, "p of the two one-sided tests, with Holm's correction")                           \
    F(real, tid_mean, "TID of the mean, last encoder layer, 0 to 1")                                         \
    F(real, tid_variance, "TID of the variance")                                                             \
    F(real, gap, "Validation loss at inference minus loss with batch statistics")                            \
    F(real, grad_norm, "Median L2 norm of the gradient")                                                     \
    F(real, tokens_per_second, "Throughput of a run while others were running")                              \
    F(real, step_mib, "Memory of a training step, MiB")                                                      \
    F(real, hours, "Hours of all its runs, one after the other")
NM_RECORD(nm_studied_variant, NM_STUDIED_VARIANT)

#define NM_STUDY_ANSWER(F)                                                                                   \
    F(text, best, "Variant with the highest mean over the fresh seeds; null: no variant has a result")       \
    F(text, verdict, "`best`, `equivalent`, `undecided` or `unconfirmed`")                                   \
    F(text, paragraph, "The answer in words")                                                                \
    F(text, score, "Name of the score")                                                                      \
    F(real, delta, "Indifference zone, and margin of the equivalence tests")                                 \
    F(real, within, "With 95 % confidence, the best is at most this far below the truly best variant")       \
    F(int, seeds, "Fresh seeds of each finalist")                                                            \
    F(int, more_seeds, "Fresh seeds in all that would decide, with 80 % probability; 0: it is decided")      \
    F(int, updates, "Updates of a complete run")                                                             \
    F(real, budget, "Budget, seconds")                                                                       \
    F(real, used, "Budget used, seconds")                                                                    \
    F(real, planned, "Duration that the plan predicted, seconds")                                            \
    F(text, model, "Run folder of the trained winner")
NM_RECORD(nm_study_answer, NM_STUDY_ANSWER)

/* Called from nm_study_plan and nm_study_run, in the calling thread; what they receive is valid during the
 * call. Any function may be NULL. */
typedef struct nm_study_events {
    void *user;
    void (*run)(void *user, const nm_planned_run *run); /* a run has started or ended */
    /* Also earlier decisions of a continued study. */
    void (*decided)(void *user, const nm_study_decision *decision);
    void (*message)(void *user, const char *text); /* one line; warnings as "warning: ..." */
} nm_study_events;

/* Opens a study. program, recipe, options: as in nm_comparison_open; options belong to [study], whose prefix
 * "study." may be omitted, or to norma train for all runs: "budget" (seconds, or "90m", "2h"), "norms",
 * "delta", "folder", "data.folder". events: copied; may be NULL.
 *
 * NM_USAGE: an unknown option or value, no test set, another study in the folder
 * NM_IO: a file cannot be read or written
 * NM_FORMAT: a file is malformed
 * NM_MISMATCH: the folder has a study with other options */
NM_API nm_status nm_study_open(nm_study **study, const char *program, const char *recipe,
                               const char *const *options, const nm_study_events *events, nm_error *err);
/* Measures the speed of each variant on a few updates, which takes a minute or so, and plans the study.
 *
 * NM_USAGE: the budget is too small; the message has a sufficient one
 * NM_INTERRUPTED: after nm_study_stop */
NM_API nm_status nm_study_plan(nm_study *study, nm_error *err);
/* The parts of the plan. false: there is no such index. */
NM_API bool nm_study_get_part(const nm_study *study, size_t index, nm_plan_part *out);
/* The runs so far, in the order in which they were planned. false: there is no such index. */
NM_API bool nm_study_get_run(const nm_study *study, size_t index, nm_planned_run *out);
/* Runs the study, after nm_study_plan, and writes answer.json, answer.md and winner.ini.
 *
 * NM_INTERRUPTED: after nm_study_stop; the same calls continue */
NM_API nm_status nm_study_run(nm_study *study, nm_error *err);
/* The answer, and its variants from the best to the worst. false: there is none, or no such index. */
NM_API bool nm_study_get_answer(const nm_study *study, nm_study_answer *out);
NM_API bool nm_study_get_variant(const nm_study *study, size_t index, nm_studied_variant *out);
/* The plan, or the answer if there is one, as Markdown. Valid until the next call. */
NM_API const char *nm_study_text(nm_study *study);
NM_API const char *nm_study_folder(const nm_study *study);
/* Requests the end of nm_study_plan or nm_study_run. May be called from another thread or a signal
 * handler. */
NM_API void nm_study_stop(nm_study *study);
NM_API void nm_study_close(nm_study *study); /* NULL is accepted */

#ifdef __cplusplus
}
#endif
#endif
