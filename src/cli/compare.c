/* norma compare: trains variants of one recipe with several seeds, scores them on the test set, and prints one table. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/device.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/compare_progress.h"
#include "experiment/comparison.h"

typedef struct compare_config { /* section [compare] */
    const char *norms, *grid, *folder, *results, *launch, *slurm;
    nm_table_format format;
    int64_t seeds, jobs, tid_batches, average;
    double margin;
    bool samples, score_grid;
} compare_config;

#define ROW(field, initial, min, max, help) NM_OPTION(compare_config, field, initial, min, max, help)
/* clang-format off */
static const nm_option compare_options[] = {
    ROW(norms, "layer,scale+fix,batch,power,rbn", 0, 0,
        "Variants, comma-separated: NORM, NORM+fix (with FixNorm), or NORM:key=value for further settings; LABEL=NORM... "
        "names a variant."),
    ROW(grid, "", 0, 0,
        "Grid search, KEY=VALUE,VALUE,...: all combinations of the keys (separated by ; or given as repeated options) are "
        "trained, and the one with the lowest validation loss is scored. norm.X.* applies to variants with norm X."),
    ROW(score_grid, "false", 0, 1, "Score all grid points on the test set, not only the selected ones."),
    ROW(seeds, "1", 1, 1000, "Number of runs of each variant, with seeds 1, 2, ..."),
    ROW(margin, "0", 0, 1e6, "Margin of the equivalence tests, in units of the score (0.3 BLEU); 0: no equivalence tests."),
    ROW(average, "0", 0, 1000, "Number of last checkpoints whose averaged weights are scored; 0 scores the best checkpoint."),
    ROW(launch, "", 0, 0, "Command that starts each run, words separated by spaces, for example srun -n4 or mpirun -n 2; empty: none."),
    ROW(slurm, "", 0, 0,
        "Options of sbatch, words separated by spaces, for example --time=2:00:00 --mem=4G: Slurm trains the runs that have no "
        "result yet, as tasks of one job array; empty: no Slurm."),
    ROW(jobs, "0", 0, 1024, "Number of parallel runs, which share the CPU cores; 0 keeps all cores busy. With Slurm: number of parallel tasks; 0: no limit."),
    ROW(folder, "", 0, 0, "Folder of the run folders; empty: runs/NAME-compare, NAME being the recipe's."),
    ROW(results, "", 0, 0,
        "Folder of a comparison whose table is printed again from its logs and results, without training; no recipe is given."),
    ROW(tid_batches, "50", 0, 1e9, "Number of training batches on which TID is measured; 0: one epoch."),
    ROW(samples, "true", 0, 1, "Print examples from the test set below the table."),
    NM_CHOICE(compare_config, format, "text", NM_TABLE_FORMATS, "Format of the table."),
    {0}};
/* clang-format on */

typedef struct run_choice { /* section [run], passed to the runs */
    const char *task;
    const char *profile;
} run_choice;

static const nm_option run_options[] = {
    NM_OPTION(run_choice, task, "translation", 0, 0, "Task, if the recipe does not set it."),
    NM_OPTION(run_choice, profile, "", 0, 0,
              "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    {0}};

static volatile sig_atomic_t stop_requested;

static void on_signal(int number)
{
    if (stop_requested && number != SIGHUP) { /* the second one ends the program at once; SIGHUP may repeat */
        signal(number, SIG_DFL);
        raise(number);
    }
    stop_requested = 1;
}

static int64_t core_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
}

static char *default_folder(const char *recipe, const char *profile)
{
    const char *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe;
    return nm_format("runs/%.*s%s%s-compare", (int)strcspn(name, "."), name, *profile ? "-" : "", profile);
}

/* The weights of two variants are identical if what one of them sets has no effect in this recipe. */
static void warn_same_weights(const nm_comparison *c)
{
    for (size_t i = 0; i < c->queue.n; i++) {
        const nm_run_result *run = &c->queue.jobs[i].result;
        if (run->same_weights)
            fprintf(stderr, "norma: warning: %s and %s, seed %lld: the trained weights are identical\n",
                    run->same_weights->variant, run->variant, (long long)run->seed);
    }
}

static nm_status compare(nm_comparison *c, const compare_config *config, nm_error *err)
{
    compare_progress progress = compare_progress_begin();
    NM_TRY(nm_comparison_plan(c, err));
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction inherited;
    if (!sigaction(SIGHUP, NULL, &inherited) && inherited.sa_handler != SIG_IGN) /* nohup ignores it */
        sigaction(SIGHUP, &action, NULL);
    c->queue.on_finished = compare_progress_finished;
    c->queue.on_tick = compare_progress_tick;
    c->queue.on_message = compare_progress_message;
    c->queue.user = &progress;
    NM_TRY(nm_comparison_train(c, err));
    nm_comparison_select(c);
    if (!config->score_grid)
        nm_comparison_table_print_grid(&c->table, config->format, stdout);
    fflush(stdout);
    size_t unscored = nm_comparison_unscored(c);
    if (unscored)
        fprintf(stderr, "norma: scoring %zu runs on the test set\n", unscored);
    NM_TRY(nm_comparison_score(c, err));
    if (config->score_grid)
        nm_comparison_table_print_grid(&c->table, config->format, stdout);
    nm_comparison_table_print(&c->table, config->format, config->samples, stdout);
    warn_same_weights(c);
    NM_TRY(nm_comparison_check(c, err));
    return nm_file_close(stdout, "standard output", err);
}

/* The table of a comparison's folder, from comparison.json, the logs and the test.json files. */
static nm_status print_results(nm_comparison *c, const compare_config *config, nm_error *err)
{
    NM_TRY(nm_comparison_open(c, err));
    nm_comparison_select(c);
    nm_comparison_test(c);
    nm_comparison_table_print_grid(&c->table, config->format, stdout);
    nm_comparison_table_print(&c->table, config->format, config->samples, stdout);
    warn_same_weights(c);
    NM_TRY(nm_comparison_check(c, err));
    return nm_file_close(stdout, "standard output", err);
}

/* Options that would have no effect with --results. */
static nm_status check_results_options(const nm_cli *cli, nm_error *err)
{
    static const char *const used[] = {"compare.results", "compare.format", "compare.margin",
                                       "compare.samples"};
    for (size_t i = 0; i < cli->n_settings; i += 2) {
        bool known = false;
        for (size_t k = 0; k < sizeof used / sizeof *used; k++)
            known = known || !strcmp(cli->settings[i], used[k]);
        if (!known)
            return nm_fail(err, NM_USAGE, "--%s has no effect with --results, which trains nothing",
                           cli->settings[i]);
    }
    return NM_OK;
}

static int results_run(nm_cli *cli, int argc, const compare_config *config)
{
    nm_error err;
    nm_comparison c = {.config = {.margin = config->margin}, .folder = nm_duplicate(config->results)};
    nm_status status =
        argc ? nm_fail(&err, NM_USAGE, "--results takes no recipe") : check_results_options(cli, &err);
    if (status == NM_OK)
        status = print_results(&c, config, &err);
    nm_comparison_release(&c);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

static void compare_options_add(nm_options *options)
{
    nm_options_add(options, "compare", compare_options, NULL, sizeof(compare_config));
    nm_options_add(options, "run", run_options, NULL, sizeof(run_choice));
}

extern const nm_command nm_command_train;

static int compare_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    const run_choice *run = nm_options_find(cli->options, "run");
    const compare_config *config = nm_options_find(cli->options, "compare");
    if (*config->results)
        return results_run(cli, argc, config);
    if (nm_cli_check_arguments(cli, argc, 1, 1, &err) != NM_OK)
        return nm_cli_fail(&err);
    bool norms_given = nm_options_origin(cli->options, "compare.norms") != NM_ORIGIN_DEFAULT;
    char *program = realpath("/proc/self/exe", NULL); /* a launcher may start it on another machine */
    const char **grids = nm_allocate((cli->n_settings + 1) * sizeof *grids);
    nm_comparison c = {.config = {.norms = norms_given ? config->norms : NULL,
                                  .grids = grids,
                                  .seeds = config->seeds,
                                  .jobs = config->jobs,
                                  .cores = core_count(),
                                  .slurm = config->slurm,
                                  .measurement = {config->tid_batches, config->average},
                                  .margin = config->margin,
                                  .score_grid = config->score_grid},
                       .folder = *config->folder ? nm_duplicate(config->folder)
                                                 : default_folder(argv[0], run->profile),
                       .queue = {.program = program ? program : "norma",
                                 .launch = config->launch,
                                 .recipe = argv[0],
                                 .profile = run->profile,
                                 .task = cli->task,
                                 .add_options = nm_command_train.options,
                                 .stop = &stop_requested}};
    for (size_t i = 0; i < cli->n_settings; i += 2)
        if (!strcmp(cli->settings[i], "compare.grid"))
            grids[c.config.n_grids++] = cli->settings[i + 1];
        else if (strncmp(cli->settings[i], "compare.", 8))
            nm_settings_add(&c.queue.settings, cli->settings[i], cli->settings[i + 1]);
    nm_status status = compare(&c, config, &err);
    nm_comparison_release(&c);
    free(grids);
    free(program);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

static const char *const common_options[] = {"compare.norms",    "compare.grid",    "compare.score_grid",
                                             "compare.seeds",    "compare.average", "compare.jobs",
                                             "compare.slurm",    "compare.folder",  "compare.results",
                                             "compare.samples",  "compare.format",  "compare.tid_batches",
                                             "run.profile",      "data.folder",     "data.train",
                                             "data.valid",       "data.test",       "model.preset",
                                             "train.updates",    "train.epochs",    "train.seconds",
                                             "train.max_tokens", "train.shards",    "schedule.lr",
                                             "schedule.warmup",  "device.threads",  NULL};

const nm_command nm_command_compare = {
    .name = "compare",
    .summary = "train variants of a recipe and print one table",
    .usage = "RECIPE [--profile small] [--norms a,b,c] [--seeds N] [--grid key=v,w] [--format "
             "text|markdown|latex|csv|json] [--section.key value ...]",
    .details =
        "Each variant and seed is trained in its own run folder. After an interruption, the same command "
        "continues: unfinished runs are resumed, finished runs are not trained again, and scored runs "
        "are not scored again unless their model, data or settings changed.\n\n"
        "A variant replaces the norm that the recipe varies: model.encoder_norm if the recipe sets it "
        "(the decoder then keeps its norm), else model.norm. Two variants with the same configuration "
        "are an error, and variants with identical weights after training are reported.\n\n"
        "For each variant, the table has the mean of the task's score (BLEU, F1, accuracy, perplexity) "
        "on the test set, its standard deviation over the seeds, the 95 % bootstrap interval, the paired "
        "test against the first variant with Holm's correction, loss and perplexity at the best "
        "validation, throughput in tokens/s, memory of a training step, and TID of the last encoder "
        "layer.\n\n"
        "With --grid every point is trained, and for each variant only the point with the lowest "
        "validation loss is scored on the test set; --score-grid scores all points. --average N scores "
        "the mean of the last N checkpoints instead of the best one.\n\n"
        "--slurm OPTIONS submits the runs to Slurm and waits for them (docs/cluster.md). After an "
        "interruption, the same command waits for the runs in Slurm's queue and submits only those that are "
        "missing.\n\n"
        "norma compare --results FOLDER prints the table of a comparison again. It needs comparison.json, "
        "and "
        "log.jsonl and test.json of each run, but neither models nor data.",
    .section = "compare,run",
    .common = common_options,
    .takes_options = "compare.slurm",
    .options = compare_options_add,
    .trains = true,
    .run = compare_run,
};
