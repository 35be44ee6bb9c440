/* Comparisons: variants of one recipe, such as several norms, each trained with several seeds, scored on the
 * test set and summarized as a table with intervals and tests. `norma compare` is a program over this header.
 * examples/compare.c is a complete program.
 *
 * Every run is trained by a process of the program `norma`, so that it has its own memory and threads and its
 * failure does not affect the others. Models are scored in the calling process, each after its training,
 * while other runs are training; grid points after the training of all runs, unless all of them are scored.
 * All progress is stored in the run folders: a comparison that was interrupted or killed continues with the
 * same calls, and finished runs are neither trained nor scored again. */
#ifndef NORMA_COMPARE_H
#define NORMA_COMPARE_H

#include "norma/record.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_comparison nm_comparison;

typedef enum nm_run_state { NM_RUN_WAITING, NM_RUN_RUNNING, NM_RUN_FINISHED } nm_run_state;

/* Measured in every run, from its log and on the test set. Variants have their means over the finished seeds,
 * with "_mean" after the key. To add a measurement, add a row and assign the member of nm_run_result
 * (src/lab/experiment/run_result.c). */
#define NM_LOG_MEASUREMENTS(F)                                                                               \
    F(real, loss, "Loss of the best validation", "valid_loss")                                               \
    F(real, nll, "The same without label smoothing, per target token", "valid_nll")                          \
    F(real, tokens_per_second, "Throughput in tokens per second")                                            \
    F(real, step_mib, "Memory of a training step, MiB")                                                      \
    F(real, valid_score, "Score of the best validation, if one was computed")                                \
    F(real, gap, "Loss of the best validation minus its loss with batch statistics")                         \
    F(real, grad_norm, "Median L2 norm of the gradient")                                                     \
    F(real, train_seconds, "Training time in seconds")
#define NM_TEST_MEASUREMENTS(F)                                                                              \
    F(real, tid_mean, "TID of the mean, last encoder layer, 0 to 1")                                         \
    F(real, tid_variance, "TID of the variance, last encoder layer, 0 to 1")

/* A run. Numbers are NaN, and texts NULL, if they are not known. Texts are valid until nm_comparison_close,
 * `line` until the next call for the comparison. */
#define NM_RUN_IDENTITY(F)                                                                                   \
    F(text, variant,                                                                                         \
      "Name of the variant as in the option compare.norms; with the settings of a grid point", "norm")       \
    F(int, seed, "Random seed")                                                                              \
    F(text, folder, "Run folder", "")                                                                        \
    F(other(nm_run_state), state, "State of the run", "")                                                    \
    F(code, exit_code, "Exit code of the process, 128 + N for signal N; 0 without a failure")                \
    F(text, failure, "Why there is no result", "error?")                                                     \
    F(text, line, "Last message or score of the run; before the run, what it waits for", "")
/* After the run was scored, and after the training of all runs. */
#define NM_RUN_LOG(F)                                                                                        \
    F(int, updates, "Number of updates")                                                                     \
    NM_LOG_MEASUREMENTS(F)
/* After the test set was scored. */
#define NM_RUN_SCORE(F)                                                                                      \
    F(flag, scored, "The test set was scored", "")                                                           \
    F(text, score_name, "Name of the score, for example bleu", "")                                           \
    F(real, score, "Score of the test set", "")                                                              \
    F(real, low, "95 % bootstrap interval over test segments")                                               \
    F(real, high, "Upper end of the interval")                                                               \
    F(real, p,                                                                                               \
      "One-sided p against the first variant's run with this seed: the fraction of bootstrap "               \
      "resamples in which the better system is not better",                                                  \
      "p_against_first")                                                                                     \
    NM_TEST_MEASUREMENTS(F)                                                                                  \
    F(text, signature, "How the score was computed")                                                         \
    F(hash, weights, "Hash of the trained tensors")                                                          \
    F(text, same_weights_as, "Another variant with identical weights", "same_weights_as?")
#define NM_COMPARED_RUN(F) NM_RUN_IDENTITY(F) NM_RUN_LOG(F) NM_RUN_SCORE(F)
NM_RECORD(nm_compared_run, NM_COMPARED_RUN)

/* The runs of a variant, or of a grid point: means over the finished seeds. NaN: not known. p is compared
 * with the first scored variant: with several seeds it is from a two-sided t test over seeds and segments;
 * with one seed it is one-sided: the fraction of paired bootstrap resamples over segments in which the better
 * system is not better. */
#define NM_VARIANT_SCORE(F)                                                                                  \
    F(text, name, "Name of the variant", "norm")                                                             \
    F(int, finished, "Number of runs with a result", "n")                                                    \
    F(int, seeds, "Number of runs")                                                                          \
    F(flag, grid_point, "One of several points of a grid", "")                                               \
    F(flag, selected, "A row of the table; of a grid, the point with the lowest validation loss", "")        \
    F(real, score, "Test score", "score_mean")                                                               \
    F(real, score_deviation, "Standard deviation over seeds")                                                \
    F(real, low, "95 % interval", "interval_low")                                                            \
    F(real, high, "Upper end of the interval", "interval_high")                                              \
    F(real, difference, "Difference from the first scored variant")                                          \
    F(real, difference_low, "95 % interval of the difference")                                               \
    F(real, difference_high, "Upper end of the interval")                                                    \
    F(real, p,                                                                                               \
      "p of the difference: of a two-sided t test over seeds and test segments with several seeds; "         \
      "with one seed the one-sided fraction of resamples in which the better system is not better")          \
    F(real, p_holm, "The same with Holm's correction over the rows")                                         \
    F(real, p_equivalence, "p of the equivalence test (--margin)")                                           \
    F(real, loss_deviation, "Standard deviation of the validation loss", "valid_loss_deviation")             \
    F(real, perplexity, "Perplexity of the best validation", "")
#define NM_COMPARED_VARIANT(F) NM_VARIANT_SCORE(F) NM_LOG_MEASUREMENTS(F) NM_TEST_MEASUREMENTS(F)
NM_RECORD(nm_compared_variant, NM_COMPARED_VARIANT)

/* An effect of a factorial comparison (compare.factorial), paired over seeds. NaN: not known. */
#define NM_FACTOR_EFFECT(F)                                                                                  \
    F(text, term, "Factor, or two factors of an interaction: `norm`, `norm x site`")                         \
    F(text, contrast, "Level minus the first level; of an interaction the product of two")                   \
    F(text, level, "Level of the factor, or of the first factor of an interaction")                          \
    F(text, second_level, "Level of the second factor of an interaction")                                    \
    F(real, effect, "Difference of the mean scores; of an interaction the difference of differences")        \
    F(real, low, "95 % interval over seeds and test segments")                                               \
    F(real, high, "Upper end of the interval")                                                               \
    F(real, p, "p of a two-sided t test over seeds and test segments")                                       \
    F(real, p_holm, "The same with Holm's correction over all effects")                                      \
    F(real, p_equivalence, "p of the equivalence test (--margin) with Holm's correction")                    \
    F(real, deviation, "Standard deviation over seeds")                                                      \
    F(int, seeds, "Seeds that all cells have")                                                               \
    F(int, seeds_needed, "Seeds that find a difference of the margin with 80 % power; 0: no margin")
NM_RECORD(nm_factor_effect, NM_FACTOR_EFFECT)

/* Called from nm_comparison_run, in the thread that called it; what they receive is valid during the call.
 * Any function may be NULL. They may call the functions below that read the comparison, and
 * nm_comparison_stop. */
typedef struct nm_comparison_events {
    void *user; /* first argument of the functions */
    /* About ten times per second while runs are training, and before each run is scored. */
    void (*progress)(void *user, nm_comparison *comparison);
    void (*finished)(void *user, const nm_compared_run *run); /* the training of a run has ended */
    void (*scored)(void *user, const nm_compared_run *run);   /* a run has a score; others may be training */
    /* All runs have ended and the best grid points are selected; n_unscored runs remain to be scored. */
    void (*trained)(void *user, nm_comparison *comparison, size_t n_unscored);
    void (*message)(void *user, const char *text); /* notes, and warnings as "warning: ...", one line each */
} nm_comparison_events;

/* Reads the recipe and the results that exist, and creates and locks the folder; nothing is trained. program:
 * of the runs, path of `norma` of this version; NULL: "norma", found in PATH. recipe: path of an INI file.
 * options: alternating names and values that end with NULL, or NULL. Names: see `norma compare --help`. The
 * prefix "compare." may be omitted; "compare.grid" may be repeated:
 *     const char *const options[] = {"norms", "layer,power,rbn", "seeds", "3", "folder", "runs/compared",
 *                                    "train.updates", "1000", NULL};
 * events: copied; may be NULL. err may be NULL in all functions.
 *
 * NM_USAGE: unknown option or value, no test set, two variants with the same configuration, another
 *     comparison that uses the folder
 * NM_IO: a file cannot be read
 * NM_FORMAT: a file is malformed
 * NM_MISMATCH: a run that began with another initial model
 * NM_MEMORY */
NM_API nm_status nm_comparison_open(nm_comparison **comparison, const char *program, const char *recipe,
                                    const char *const *options, const nm_comparison_events *events,
                                    nm_error *err);
/* Opens the results in a folder of a comparison, without recipe, data and models; nm_comparison_run then only
 * computes the table. It needs comparison.json, and log.jsonl and test.json of each run. options: format,
 * margin and samples of [compare].
 *
 * NM_USAGE: another option
 * NM_IO: no comparison.json
 * NM_FORMAT: a file is malformed */
NM_API nm_status nm_comparison_open_results(nm_comparison **comparison, const char *folder,
                                            const char *const *options, const nm_comparison_events *events,
                                            nm_error *err);
/* Measures the speed of each variant on a few updates (FOLDER/speed) and plans the runs that have no result.
 * NM_INTERRUPTED: after nm_comparison_stop. */
NM_API nm_status nm_comparison_plan(nm_comparison *comparison, nm_error *err);
/* The plan as Markdown, with the time of each part; NULL before nm_comparison_plan or nm_comparison_run.
 * Valid until the next call of the functions that return texts. */
NM_API const char *nm_comparison_plan_text(nm_comparison *comparison);
/* Trains and scores the runs that have no result yet, and computes the table. A run that fails does not end
 * the others and is shown in the table, with its exit code in nm_compared_run. If no run has a result, the
 * error is the one of the first run. The table exists then, and after NM_IO and NM_FORMAT.
 *
 * NM_INTERRUPTED: nm_comparison_stop was called; the runs have stopped, each with a checkpoint, and the same
 *     calls continue them bitwise identically
 * NM_IO: a log cannot be read
 * NM_FORMAT: a log is malformed
 * NM_USAGE: SIGCHLD is ignored, so that exit codes would be lost */
NM_API nm_status nm_comparison_run(nm_comparison *comparison, nm_error *err);
/* Requests the end of nm_comparison_run: running processes are interrupted. May be called from a function of
 * the events, another thread or a signal handler. */
NM_API void nm_comparison_stop(nm_comparison *comparison);
/* Stops the runs that train on this machine, and the calling process, with SIGSTOP; SIGCONT to the process
 * continues all. For the handler of SIGTSTP (Ctrl-Z), which the terminal does not send to the runs. No effect
 * while models are scored, or with compare.slurm. May be called from another thread or a signal handler. */
NM_API void nm_comparison_suspend(nm_comparison *comparison);
/* The effects of a factorial comparison that has been run. false: there is no such index. */
NM_API bool nm_comparison_get_effect(const nm_comparison *comparison, size_t index, nm_factor_effect *out);
/* Unlocks the folder. NULL is accepted. */
NM_API void nm_comparison_close(nm_comparison *comparison);

/* The table: "text", "markdown", "latex", "csv" (all digits) or "json" (with the runs, docs/json.md); NULL:
 * the option compare.format. compare.samples adds examples to the first two. NULL before nm_comparison_run
 * has computed it, after an interruption, or if the format is unknown. Valid until the next call of these
 * functions. */
NM_API const char *nm_comparison_text(nm_comparison *comparison, const char *format);
/* The grid points with validation losses, and scores with compare.score_grid; "" without a grid, and as
 * "json", whose table has them. Known from the event `trained` on. */
NM_API const char *nm_comparison_grid_text(nm_comparison *comparison, const char *format);
/* Whether all grid points are scored: compare.score_grid, as in the runs if the comparison was opened from
 * its results. */
NM_API bool nm_comparison_scores_grid(const nm_comparison *comparison);

/* The folder of the run folders. And the number of runs that train in parallel. */
NM_API const char *nm_comparison_folder(const nm_comparison *comparison);
NM_API int64_t nm_comparison_parallel(const nm_comparison *comparison);
/* Runs, variant by variant; and variants, with all grid points (0 before the event `trained`). false: there
 * is no such index. */
NM_API size_t nm_comparison_n_runs(const nm_comparison *comparison);
NM_API bool nm_comparison_get_run(nm_comparison *comparison, size_t index, nm_compared_run *out);
NM_API size_t nm_comparison_n_variants(const nm_comparison *comparison);
NM_API bool nm_comparison_get_variant(const nm_comparison *comparison, size_t index,
                                      nm_compared_variant *out);

#ifdef __cplusplus
}
#endif
#endif
