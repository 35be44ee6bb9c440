/* Comparisons: variants of one recipe, such as several norms, each trained with several seeds, scored on the test set and
 * summarized as a table with intervals and tests. `norma compare` is a program over this header. examples/compare.c is a
 * complete program.
 *
 * Every run is trained by a process of the program `norma`, so that it has its own memory and threads and its failure does
 * not affect the others. Models are scored in the calling process, each after its training, while other runs are training; grid
 * points after the training of all runs, unless all of them are scored. All progress is stored in the run folders: a comparison
 * that was interrupted or killed continues with the same calls, and finished runs are neither trained nor scored again. */
#ifndef NORMA_COMPARE_H
#define NORMA_COMPARE_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_comparison nm_comparison;

typedef enum nm_run_state { NM_RUN_WAITING, NM_RUN_RUNNING, NM_RUN_FINISHED } nm_run_state;

/* A run. Numbers are NaN, and texts NULL, if they are not known. Texts are valid until nm_comparison_close, `line` until
 * the next call for the comparison. */
typedef struct nm_compared_run {
    const char *variant; /* name, as in the option compare.norms; that of a grid point has its settings */
    int64_t seed;
    const char *folder;
    nm_run_state state;
    int32_t exit_code;   /* of the process, 128 + N for signal N; 0: no failure so far */
    const char *failure; /* why there is no result */
    const char *line;    /* last message of the run, or its score; before the run: what it waits for, or "" */
    /* After the run was scored, and after the training of all runs. */
    int64_t updates;
    double loss, nll; /* of the best validation; nll: without label smoothing, per target token */
    double tokens_per_second, step_mib; /* throughput; memory of a training step in MiB */
    /* After the test set was scored. */
    bool scored;
    const char *score_name, *signature; /* "bleu"; how the score was computed */
    double score, low, high;            /* with its 95 % bootstrap interval over test segments */
    /* Against the first variant's run with this seed, one-sided: the fraction of bootstrap resamples in which the better system
     * is not better. */
    double p;
    double tid_mean, tid_variance; /* of the last encoder layer, 0 to 1 */
    uint64_t weights;              /* hash of the trained tensors; 0: not known */
    const char *same_weights_as;   /* variant whose run has identical weights */
} nm_compared_run;

/* The runs of a variant, or of a grid point: means over the finished seeds. NaN: not known. */
typedef struct nm_compared_variant {
    const char *name;
    int64_t seeds, finished; /* number of runs; of those with a result */
    bool grid_point;         /* one of several points of the grid */
    bool selected;           /* a row of the table; of a grid, the point with the lowest validation loss */
    double score, score_deviation, low, high; /* mean, standard deviation over seeds, 95 % interval */
    /* Compared with the first scored variant: difference and its 95 % interval; p, p with Holm's correction, and p of the
     * equivalence test with compare.margin. With several seeds, p is that of a two-sided t test over seeds and segments. With
     * one seed it is one-sided: the fraction of paired bootstrap resamples over segments in which the better system is not
     * better. */
    double difference, difference_low, difference_high, p, p_holm, p_equivalence;
    double loss, loss_deviation, nll, perplexity; /* of the best validation */
    double tokens_per_second, step_mib, tid_mean, tid_variance;
} nm_compared_variant;

/* Called from nm_comparison_run, in the thread that called it; what they receive is valid during the call. Any function may
 * be NULL. They may call the functions below that read the comparison, and nm_comparison_stop. */
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

/* Reads the recipe and the results that exist, and creates and locks the folder; nothing is trained. program: of the runs,
 * path of `norma` of this version; NULL: "norma", found in PATH. recipe: path of an INI file. options: alternating names and
 * values that end with NULL, or NULL. Names are those of `norma compare --help`, those of [compare] with or without
 * "compare."; "compare.grid" may be repeated:
 *     const char *const options[] = {"norms", "layer,power,rbn", "seeds", "3", "folder", "runs/compared",
 *                                    "train.updates", "1000", NULL};
 * events: copied; may be NULL.
 *
 * NM_USAGE: unknown option or value, no test set, two variants with the same configuration, another comparison that uses the
 * folder; NM_IO, NM_FORMAT: a file cannot be read or is malformed; NM_MISMATCH: a run that began with another initial model;
 * NM_MEMORY. err may be NULL in all functions. */
NM_API nm_status nm_comparison_open(nm_comparison **comparison, const char *program, const char *recipe,
                                    const char *const *options, const nm_comparison_events *events,
                                    nm_error *err);
/* Opens the results in a folder of a comparison, without recipe, data and models; nm_comparison_run then only computes the
 * table. It needs comparison.json, and log.jsonl and test.json of each run. options: format, margin and samples of [compare].
 * NM_USAGE: another option; NM_IO: no comparison.json; NM_FORMAT: a malformed file. */
NM_API nm_status nm_comparison_open_results(nm_comparison **comparison, const char *folder,
                                            const char *const *options, const nm_comparison_events *events,
                                            nm_error *err);
/* Trains and scores the runs that have no result yet, and computes the table. A run that fails does not end the others and is
 * shown in the table, with its exit code in nm_compared_run. NM_INTERRUPTED after nm_comparison_stop: the runs have stopped,
 * each with a checkpoint, and the same calls continue them bitwise identically. The error of the first run if none has a
 * result; NM_IO, NM_FORMAT: a log that cannot be read (the table exists in both cases). NM_USAGE: SIGCHLD is ignored, so that
 * exit codes would be lost. */
NM_API nm_status nm_comparison_run(nm_comparison *comparison, nm_error *err);
/* Requests the end of nm_comparison_run: running processes are interrupted. May be called from a function of the events,
 * another thread or a signal handler. */
NM_API void nm_comparison_stop(nm_comparison *comparison);
/* Stops the runs that train on this machine, and the calling process, with SIGSTOP; SIGCONT to the process continues all. For
 * the handler of SIGTSTP (Ctrl-Z), which the terminal does not send to the runs. No effect while models are scored, or with
 * compare.slurm. May be called from another thread or a signal handler. */
NM_API void nm_comparison_suspend(nm_comparison *comparison);
/* Unlocks the folder. NULL is accepted. */
NM_API void nm_comparison_close(nm_comparison *comparison);

/* The table: "text", "markdown", "latex", "csv" (all digits) or "json" (with the runs, docs/json.md); NULL: the option
 * compare.format. compare.samples adds examples to the first two. NULL before nm_comparison_run has computed it, after an
 * interruption, or if the format is unknown. Valid until the next call of these functions. */
NM_API const char *nm_comparison_text(nm_comparison *comparison, const char *format);
/* The grid points with validation losses, and scores with compare.score_grid; "" without a grid, and as "json", whose
 * table has them. Known from the event `trained` on. */
NM_API const char *nm_comparison_grid_text(nm_comparison *comparison, const char *format);
/* Whether all grid points are scored: compare.score_grid, of a comparison that was opened from its results that of its runs. */
NM_API bool nm_comparison_scores_grid(const nm_comparison *comparison);

/* The folder of the run folders. And the number of runs that train in parallel. */
NM_API const char *nm_comparison_folder(const nm_comparison *comparison);
NM_API int64_t nm_comparison_parallel(const nm_comparison *comparison);
/* Runs, variant by variant; and variants, with all grid points (0 before the event `trained`). false: there is no such index. */
NM_API size_t nm_comparison_n_runs(const nm_comparison *comparison);
NM_API bool nm_comparison_get_run(nm_comparison *comparison, size_t index, nm_compared_run *out);
NM_API size_t nm_comparison_n_variants(const nm_comparison *comparison);
NM_API bool nm_comparison_get_variant(const nm_comparison *comparison, size_t index,
                                      nm_compared_variant *out);

#ifdef __cplusplus
}
#endif
#endif
