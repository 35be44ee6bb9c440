/* norma compare: trains variants of one recipe with several seeds, maybe at the points of a grid, scores them on the test
 * set, and prints one table. What is done is taken as it is: an interrupted comparison goes on where it stopped. */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/device.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/compare_queue.h"
#include "cli/compare_table.h"
#include "task/tasks.h"
#include "train/trainer.h"

typedef struct compare_config { /* section [compare] */
    const char *norms, *grid, *folder, *format;
    int64_t seeds, jobs, tid_batches, samples;
} compare_config;

#define ROW(field, initial, min, max, help) NM_OPTION(compare_config, field, initial, min, max, help)
/* clang-format off */
static const nm_option compare_options[] = {
    ROW(norms, "layer,scale+fix,batch,power,rbn", 0, 0,
        "variants, by comma; NORM+fix adds FixNorm; NORM:key=value sets more"),
    ROW(grid, "", 0, 0,
        "KEY=VALUE,VALUE,...: trains every value (several keys, by ; or by saying the option again: every combination) and "
        "scores only the one with the lowest validation loss; norm.X.* is for variants with norm X"),
    ROW(seeds, "1", 1, 1000, "runs of each variant, with seeds 1, 2, ..."),
    ROW(jobs, "0", 0, 1024, "runs at a time; each gets its share of the cores; 0: so that no core is idle"),
    ROW(folder, "", 0, 0, "where the runs live; empty: runs/NAME-compare of the recipe"),
    ROW(tid_batches, "50", 0, 1e9, "training batches TID is measured on; 0: an epoch"),
    ROW(samples, "3", 0, 1000, "0: no examples of the test set below the table"),
    NM_CHOICE(compare_config, format, "text", "text|markdown|latex|csv|json", "of the table"),
    {0}};
/* clang-format on */

typedef struct run_choice { /* section [run], handed on to the runs */
    const char *task;
    const char *profile;
} run_choice;

static const nm_option run_options[] = {
    NM_OPTION(run_choice, task, "translation", 0, 0, "kind of work, where the recipe does not say it"),
    NM_OPTION(run_choice, profile, "", 0, 0,
              "Profile of the recipe to apply, such as small (section [profile.small]); empty: none."),
    {0}};

typedef struct comparison {
    const compare_config *config;
    compare_variants variants, points; /* as named; with the grid */
    compare_queue queue;
    compare_table table;
    char *folder;
} comparison;

/* ---- what is to be run ---- */

static nm_status check_norms(const compare_variants *variants, nm_error *err)
{
    for (size_t v = 0; v < variants->n; v++) {
        const compare_variant *variant = &variants->list[v];
        for (size_t i = 0; i < variant->n; i++)
            if (!strcmp(variant->settings[i].key, "model.norm") &&
                !nm_norm_type_find(variant->settings[i].value))
                return nm_fail(err, NM_USAGE, "compare.norms: unknown norm in %.100s", variant->name);
    }
    return NM_OK;
}

/* Every --grid of the command line, in order. */
static nm_status read_grid(const nm_cli *cli, compare_grid *grid, nm_error *err)
{
    for (size_t i = 0; i < cli->n_settings; i += 2)
        if (!strcmp(cli->settings[i], "compare.grid"))
            NM_TRY(compare_grid_parse(grid, cli->settings[i + 1], err));
    return NM_OK;
}

/* The grid asks what norms a variant has, and those may be the recipe's. */
static nm_status expand(comparison *c, const compare_grid *grid, nm_error *err)
{
    size_t n = 0;
    char **models = nm_allocate((c->variants.n + 1) * sizeof *models);
    nm_status status = NM_OK;
    for (; n < c->variants.n && status == NM_OK; n++) {
        nm_options *options;
        status = compare_options_of(&c->queue, &c->variants.list[n], 1, &options, err);
        if (status != NM_OK)
            nm_while(err, "%.100s", c->variants.list[n].name);
        models[n] = status == NM_OK ? compare_section_text(options, "model") : NULL;
        nm_options_free(options);
    }
    if (status == NM_OK)
        status = compare_grid_expand(grid, &c->variants, models, &c->points, err);
    for (size_t i = 0; i < n; i++)
        free(models[i]);
    free(models);
    return status;
}

static nm_status read_variants(comparison *c, nm_error *err)
{
    compare_grid grid = {0};
    const nm_options *options = c->queue.cli->options;
    bool chosen = nm_options_origin(options, "compare.norms") != NM_ORIGIN_DEFAULT;
    /* FixNorm is for models of translation: of those that are compared unasked it may be missing. */
    bool fixnorm = chosen || nm_options_row(options, "model.fixnorm");
    const char *norms = fixnorm ? c->config->norms : "layer,scale,batch,power,rbn";
    NM_TRY(compare_variants_parse(&c->variants, norms, err));
    NM_TRY(check_norms(&c->variants, err));
    nm_status status = read_grid(c->queue.cli, &grid, err);
    if (status == NM_OK)
        status = expand(c, &grid, err);
    compare_grid_release(&grid);
    return status;
}

/* A name may hold the path of a file; a folder's may not. */
static char *run_folder(const char *folder, const char *variant, int64_t seed)
{
    char *name = nm_format("%s-%lld", variant, (long long)seed);
    for (char *at = name; *at; at++)
        if (*at == '/')
            *at = '_';
    char *path = nm_path_join(folder, name);
    free(name);
    return path;
}

static nm_status check_folders(const compare_queue *queue, nm_error *err)
{
    for (size_t i = 0; i < queue->n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(queue->jobs[i].folder, queue->jobs[k].folder))
                return nm_fail(err, NM_USAGE, "compare.norms: %.100s is listed twice",
                               queue->jobs[i].variant->name);
    return NM_OK;
}

static nm_status add_jobs(comparison *c, nm_error *err)
{
    enum { MOST_RUNS = 10000 };
    compare_queue *queue = &c->queue;
    if (c->points.n * (size_t)c->config->seeds > MOST_RUNS)
        return nm_fail(err, NM_USAGE, "%zu variants with %lld seeds are more than %d runs", c->points.n,
                       (long long)c->config->seeds, MOST_RUNS);
    for (size_t p = 0; p < c->points.n; p++)
        for (int64_t seed = 1; seed <= c->config->seeds; seed++) {
            const compare_variant *variant = &c->points.list[p];
            NM_GROW(queue->jobs, queue->n, queue->capacity);
            char *folder = run_folder(c->folder, variant->name, seed);
            queue->jobs[queue->n++] =
                (compare_job){.variant = variant,
                              .folder = folder,
                              .log_path = nm_format("%s.txt", folder),
                              .row = {.variant = variant->name, .seed = seed, .p = NAN}};
        }
    return NM_OK;
}

static void add_groups(comparison *c)
{
    size_t seeds = (size_t)c->config->seeds;
    c->table.groups = nm_allocate((c->points.n + 1) * sizeof *c->table.groups);
    c->table.n = c->points.n;
    for (size_t p = 0; p < c->points.n; p++) {
        compare_group *group = &c->table.groups[p];
        *group = (compare_group){.variant = &c->points.list[p], .n = seeds};
        group->rows = nm_allocate(seeds * sizeof *group->rows);
        for (size_t i = 0; i < seeds; i++)
            group->rows[i] = &c->queue.jobs[p * seeds + i].row;
    }
}

/* What has been scored already need not even be started. Wrong options and missing test data show here, before anything
 * is trained. */
static nm_status look_at_jobs(comparison *c, nm_error *err)
{
    char *section = NULL;
    uint64_t data = 0;
    nm_status status = NM_OK;
    for (size_t i = 0; i < c->queue.n && status == NM_OK; i++) {
        compare_job *job = &c->queue.jobs[i];
        nm_options *options;
        status = compare_options_of(&c->queue, job->variant, job->row.seed, &options, err);
        if (status != NM_OK)
            break;
        c->table.perplexity = nm_task_has_perplexity(c->queue.cli->task, options);
        status =
            compare_key(job->key, c->queue.cli->task, options, c->config->tid_batches, &section, &data, err);
        nm_options_free(options);
        compare_row_load(&job->row, job->folder, job->key);
        job->state = job->row.measured ? COMPARE_ENDED : COMPARE_WAITING;
    }
    free(section);
    return status;
}

static int64_t core_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
}

static nm_status share_cores(comparison *c, nm_error *err)
{
    nm_options *options;
    int64_t waiting = 0;
    for (size_t i = 0; i < c->queue.n; i++)
        waiting += c->queue.jobs[i].state == COMPARE_WAITING;
    NM_TRY(compare_options_of(&c->queue, &c->points.list[0], 1, &options, err));
    const nm_device_config *device = nm_options_find(options, "device");
    c->queue.share = compare_share_cores(waiting, c->config->jobs, device->threads, core_count());
    nm_options_free(options);
    return NM_OK;
}

static char *compare_folder(const comparison *c)
{
    if (*c->config->folder)
        return nm_duplicate(c->config->folder);
    const char *recipe = c->queue.recipe, *slash = strrchr(recipe, '/'), *name = slash ? slash + 1 : recipe;
    return nm_format("runs/%.*s%s%s-compare", (int)strcspn(name, "."), name, *c->queue.profile ? "-" : "",
                     c->queue.profile);
}

/* ---- what came of it ---- */

/* A run whose log cannot be read has not come to its end. */
static void read_logs(comparison *c)
{
    for (size_t i = 0; i < c->queue.n; i++) {
        compare_job *job = &c->queue.jobs[i];
        nm_error err;
        if (job->row.exit_code || compare_row_read_log(&job->row, job->folder, &err) == NM_OK)
            continue;
        job->row.exit_code = (int)err.status;
        snprintf(job->row.trouble, sizeof job->row.trouble, "%.500s", err.text);
    }
}

static nm_status measure_job(comparison *c, compare_job *job, nm_error *err)
{
    nm_options *options;
    if (compare_queue_stopped())
        return nm_fail(err, NM_INTERRUPTED, "stopped; the same command goes on where the runs are");
    NM_TRY(compare_options_of(&c->queue, job->variant, job->row.seed, &options, err));
    NM_TRY(compare_row_measure(&job->row, job->folder, c->queue.cli->task, options, c->config->tid_batches,
                               err));
    return compare_row_save(&job->row, job->folder, job->key, err);
}

static bool is_chosen(const comparison *c, size_t i)
{
    return c->table.groups[i / (size_t)c->config->seeds].chosen && !c->queue.jobs[i].row.exit_code;
}

static bool is_to_be_scored(const comparison *c, size_t i)
{
    return is_chosen(c, i) && !c->queue.jobs[i].row.measured;
}

static bool is_scored(const comparison *c, size_t i)
{
    return is_chosen(c, i) && c->queue.jobs[i].row.measured;
}

static nm_status measure_chosen(comparison *c, nm_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < c->queue.n; i++)
        n += is_to_be_scored(c, i);
    if (n)
        fprintf(stderr, "norma: scoring %zu runs on the test set\n", n);
    for (size_t i = 0; i < c->queue.n; i++)
        if (is_to_be_scored(c, i))
            NM_TRY(measure_job(c, &c->queue.jobs[i], err));
    return NM_OK;
}

/* The paired test of a run is known when all are measured. */
static nm_status save_tests(const comparison *c, nm_error *err)
{
    for (size_t i = 0; i < c->queue.n; i++)
        if (is_scored(c, i))
            NM_TRY(
                compare_row_save(&c->queue.jobs[i].row, c->queue.jobs[i].folder, c->queue.jobs[i].key, err));
    return NM_OK;
}

/* A run that fails is told by its row; when all fail there is nothing to compare. */
static nm_status check_finished(const comparison *c, nm_error *err)
{
    for (size_t i = 0; i < c->queue.n; i++)
        if (is_scored(c, i))
            return NM_OK;
    const compare_row *first = &c->queue.jobs[0].row;
    bool known = first->exit_code >= NM_USAGE && first->exit_code <= NM_INTERRUPTED;
    return nm_fail(err, known ? (nm_status)first->exit_code : NM_IO,
                   "no run came to its end; the first one said: %s", first->trouble);
}

static nm_status print_tables(comparison *c, nm_error *err)
{
    const char *format = c->config->format;
    read_logs(c);
    compare_table_summarize_logs(&c->table);
    compare_table_choose(&c->table);
    compare_table_print_grid(&c->table, format, stdout);
    fflush(stdout);
    NM_TRY(measure_chosen(c, err));
    compare_table_test(&c->table);
    compare_table_print(&c->table, format, c->config->samples, stdout);
    NM_TRY(save_tests(c, err));
    NM_TRY(check_finished(c, err));
    return nm_file_close(stdout, "stdout", err);
}

static nm_status compare(comparison *c, nm_error *err)
{
    NM_TRY(read_variants(c, err));
    c->folder = compare_folder(c);
    NM_TRY(nm_folder_create(c->folder, err));
    NM_TRY(compare_folder_lock(c->folder, err));
    NM_TRY(add_jobs(c, err));
    add_groups(c);
    NM_TRY(check_folders(&c->queue, err));
    NM_TRY(look_at_jobs(c, err));
    NM_TRY(share_cores(c, err));
    NM_TRY(compare_queue_run(&c->queue, err));
    return print_tables(c, err);
}

static void compare_options_add(nm_options *options)
{
    nm_options_add(options, "compare", compare_options, NULL, sizeof(compare_config));
    nm_options_add(options, "run", run_options, NULL, sizeof(run_choice));
}

static int compare_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    if (nm_cli_want(cli, argc, 1, 1, &err) != NM_OK)
        return nm_cli_fail(&err);
    const run_choice *run = nm_options_find(cli->options, "run");
    comparison c = {.config = nm_options_find(cli->options, "compare"),
                    .queue = {.cli = cli, .recipe = argv[0], .profile = run->profile}};
    nm_status status = compare(&c, &err);
    compare_table_release(&c.table);
    compare_queue_release(&c.queue);
    compare_variants_release(&c.points);
    compare_variants_release(&c.variants);
    free(c.folder);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
}

const nm_command nm_command_compare = {
    .name = "compare",
    .summary = "train variants of a recipe and print one table",
    .usage = "RECIPE.ini [--profile small] [--norms a,b,c] [--seeds N] [--grid key=v,w] "
             "[--format text|markdown|latex|csv|json] [--section.key value ...]",
    .details =
        "Each variant and seed is a run of its own folder. Interrupted, even killed, the same command goes "
        "on where "
        "it was: unfinished runs are continued, finished ones are not trained again, scored ones not scored "
        "again "
        "unless their model, data or settings changed.\n\n"
        "The table gives, for each variant, the mean of the task's score (BLEU, F1, accuracy, perplexity) on "
        "the "
        "test set and its deviation over the seeds, the 95 % bootstrap interval, the paired test against the "
        "first variant with Holm's correction, loss and perplexity of the best validation, tokens per "
        "second, "
        "memory of a training step, and TID of the last encoder layer.\n\n"
        "With --grid every point is trained, and of each variant only the one with the lowest validation "
        "loss "
        "is scored on the test set.",
    .section = "compare,run",
    .options = compare_options_add,
    .trains = true,
    .run = compare_run,
};
