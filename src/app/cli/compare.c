/* norma compare: trains variants of one recipe with several seeds, scores them on the test set, and prints
 * one table. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/compare_progress.h"
#include "cli/model_command.h"
#include "cli/open_comm.h"
#include "api/comparison_options.h"

static nm_comparison *volatile opened; /* for the signal handler */
static volatile sig_atomic_t stop_requested;

/* A second SIGINT or SIGTERM ends the process; the other signals may be sent repeatedly. */
static void on_signal(int number)
{
    if (stop_requested && (number == SIGINT || number == SIGTERM)) {
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_requested = 1;
    nm_comparison_stop(opened);
}

static void on_suspend(int number)
{
    (void)number;
    nm_comparison_suspend(opened);
}

/* While runs are trained on this machine, Ctrl-Z also stops them. An ignored signal stays ignored. */
static void handle_suspend(void)
{
    if (signal(SIGTSTP, on_suspend) == SIG_IGN)
        signal(SIGTSTP, SIG_IGN);
}

static void restore_suspend(void)
{
    if (signal(SIGTSTP, SIG_DFL) == SIG_IGN)
        signal(SIGTSTP, SIG_IGN);
}

/* The table of the grid is printed before the runs are scored, because scoring can take a long time. */
static void on_trained(void *user, nm_comparison *comparison, size_t n_unscored)
{
    compare_progress *progress = user;
    progress->trained = true;
    restore_suspend();
    if (!nm_comparison_scores_grid(comparison))
        fputs(nm_comparison_grid_text(comparison, NULL), stdout);
    fflush(stdout);
    progress->n_unscored = n_unscored;
    if (n_unscored)
        fprintf(stderr, "norma: scoring %zu run%s on the test set\n", n_unscored, n_unscored == 1 ? "" : "s");
}

/* "2 of 6 runs failed: layer, seed 1; batch, seed 2", with the exit code of the first. A run that has
 * diverged is a result. */
static nm_status check_runs(nm_comparison *comparison, nm_error *err)
{
    enum { LISTED = 8 };
    size_t n = 0;
    int code = 0;
    char *names = nm_duplicate("");
    nm_compared_run run;
    for (size_t i = 0; nm_comparison_get_run(comparison, i, &run); i++) {
        if (!run.exit_code || run.exit_code == NM_DIVERGED)
            continue;
        code = code ? code : run.exit_code;
        if (n++ >= LISTED)
            continue;
        char *longer =
            nm_format("%s%s%.60s, seed %lld", names, *names ? "; " : "", run.variant, (long long)run.seed);
        free(names);
        names = longer;
    }
    bool known = code >= NM_USAGE && code <= NM_INTERRUPTED;
    nm_status status = n ? nm_fail(err, known ? (nm_status)code : NM_IO, "%zu of %zu runs failed: %s%s", n,
                                   nm_comparison_n_runs(comparison), names, n > LISTED ? "; ..." : "")
                         : NM_OK;
    free(names);
    return status;
}

static nm_status run_and_print(nm_comparison *comparison, bool results, bool dry_run, nm_error *err)
{
    opened = comparison;
    if (stop_requested)
        nm_comparison_stop(comparison);
    if (dry_run) {
        NM_TRY(nm_comparison_plan(comparison, err));
        fputs(nm_comparison_plan_text(comparison), stdout);
        return nm_file_close(stdout, "standard output", err);
    }
    nm_status status = nm_comparison_run(comparison, err);
    opened = NULL;
    if (!nm_comparison_text(comparison, NULL))
        return status;
    if (nm_comparison_scores_grid(comparison))
        fputs(nm_comparison_grid_text(comparison, NULL), stdout);
    fputs(nm_comparison_text(comparison, NULL), stdout);
    NM_TRY(status);
    NM_TRY(nm_file_close(stdout, "standard output", err));
    return results ? NM_OK : check_runs(comparison, err);
}

/* The runs would inherit the environment of the launcher, and take themselves for its processes. */
static nm_status check_launcher(nm_error *err)
{
    return nm_cli_launched_processes() > 1
               ? nm_fail(err, NM_USAGE,
                         "norma compare starts its runs itself and cannot be started by an MPI launcher; "
                         "--launch \"mpirun -n N\" gives each run several processes")
               : NM_OK;
}

static int compare_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    const nm_comparison_options *config = nm_options_find(cli->options, "compare");
    bool results = *config->results != 0;
    compare_progress progress = compare_progress_begin();
    const nm_comparison_events events = {.user = &progress,
                                         .progress = compare_progress_tick,
                                         .finished = compare_progress_finished,
                                         .scored = compare_progress_scored,
                                         .trained = on_trained,
                                         .message = compare_progress_message};
    NM_AUTO_FREE const char **settings = nm_cli_settings(cli, results ? "compare.results" : "");
    /* The whole path: a launcher may start it on another host. */
    NM_AUTO_FREE char *program = realpath("/proc/self/exe", NULL);
    const int program_error = program ? 0 : errno;
    nm_comparison *comparison = NULL;
    nm_status status;
    if (results && argc)
        status = nm_fail(&err, NM_USAGE, "--results takes no recipe");
    else if (results)
        status = nm_comparison_open_results(&comparison, config->results, settings, &events, &err);
    else
        status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    if (status == NM_OK && !program && !results)
        status =
            nm_fail(&err, nm_file_error_status(program_error), "/proc/self/exe: %s", strerror(program_error));
    if (status == NM_OK && !results)
        status = check_launcher(&err);
    if (!results && status == NM_OK) {
        nm_cli_handle_stops(on_signal);
        status = nm_comparison_open(&comparison, program, argv[0], settings, &events, &err);
    }
    if (!results && !*config->slurm)
        handle_suspend();
    NM_THEN(status, run_and_print(comparison, results, config->dry_run, &err));
    nm_comparison_close(comparison);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

static const char *const common_options[] = {
    "compare.norms",   "compare.grid",   "compare.factorial", "compare.score_grid",  "compare.seeds",
    "compare.average", "compare.jobs",   "compare.slurm",     "compare.folder",      "compare.results",
    "compare.samples", "compare.format", "compare.dry_run",   "compare.tid_batches", "run.profile",
    "run.tune",        "data.folder",    "data.train",        "data.valid",          "data.test",
    "model.preset",    "train.updates",  "train.epochs",      "train.seconds",       "train.max_tokens",
    "train.shards",    "schedule.lr",    "schedule.warmup",   "device.threads",      NULL};

static const char *const outputs[] = {"compare.folder", NULL};

const nm_command nm_command_compare = {
    .name = "compare",
    .summary = "train variants of a recipe and print one table",
    .usage = "[RECIPE] [--profile small] [--tune MODEL] [--norms a,b,c] [--seeds N] [--grid key=v,w] "
             "[--dry-run] [--format "
             "text|markdown|latex|csv|json] [--section.key value ...]",
    .details =
        "Each variant and seed is trained in its own run folder and then scored on the test set. After an "
        "interruption, the same command continues: unfinished runs are resumed, finished runs are not "
        "trained again, and scored runs are not scored again unless their model, data or settings "
        "changed.\n\n"
        "--dry-run measures the speed of each variant on a few updates, prints the runs and the time of each "
        "part, and ends.\n\n"
        "A variant replaces the norm that the recipe varies: model.encoder_norm if the recipe sets it "
        "(the decoder then keeps its norm), else model.norm. Two variants with the same configuration "
        "are an error, and variants with identical weights after training are reported.\n\n"
        "For each variant, the table has the task's score (BLEU, F1, accuracy, perplexity) on the test set: "
        "its mean and standard deviation over the seeds, its 95 % confidence interval, and the test against "
        "the first variant with Holm's correction. It also has loss and perplexity at the best validation, "
        "throughput in tokens/s, memory of a training step in MiB, and TID of the last encoder layer. With "
        "several seeds, the interval is over seeds and test segments, and p is that of a two-sided t test. "
        "With one seed, both are of a bootstrap over test segments, which compares the models and not the "
        "norms; p is one-sided: the fraction of resamples in which the better system is not better.\n\n"
        "The exit code is 0 if all runs have finished or diverged. If a run failed for another reason, it is "
        "that of the first such run (3 after a signal), and a message after the table names these runs.\n\n"
        "A value that contains commas is written in braces: --norms "
        "layer,mixed=layer:norm.at={enc.0=batch,enc.1=rms} is two variants.\n\n"
        "With --tune MODEL, all runs train this model further, by default with its own norms. RECIPE may "
        "then be omitted: it is translate, lm, classify or tag, according to the task of the model.\n\n"
        "With --grid every point is trained, and for each variant only the point with the lowest "
        "validation loss is scored on the test set; --score-grid scores all points. --average N scores "
        "the mean of the last N checkpoints instead of the best one.\n\n"
        "--factorial \"norm=layer,power; site=pre,post; lr=0.001,0.002\" trains the four cells of two "
        "factors, "
        "each with its own best learning rate: all rates with the first seed (--tuning-seeds), the best one "
        "by "
        "validation loss with the others. Below the table are the main effects and interactions with "
        "intervals, "
        "Holm's correction, equivalence within --margin, and the number of seeds that a difference of the "
        "margin "
        "needs.\n\n"
        "--slurm OPTIONS submits the runs to Slurm and waits for them (docs/cluster.md). After an "
        "interruption, the same command waits for the runs in Slurm's queue and submits only those that are "
        "missing.\n\n"
        "norma compare --results FOLDER prints the table of a comparison again. It needs comparison.json, "
        "and "
        "log.jsonl and test.json of each run, but neither models nor data.",
    .section = "compare,run",
    .common = common_options,
    .takes_options = "compare.slurm",
    .options = nm_comparison_options_add,
    .saves = true,
    .trains = true,
    .outputs = outputs,
    .run = compare_run,
};
