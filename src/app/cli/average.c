/* norma average: the element-wise mean of several models. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "train/model_average.h"
#include "train/checkpoint.h"

typedef struct average_config { /* section [average] */
    int64_t last;
} average_config;

/* clang-format off */
static const nm_option average_rows[] = {
    NM_OPTION(average_config, last, "0", 0, 1e6,
        "Number of newest checkpoints of each run folder; 0: all that the run has kept."),
    {0}};
/* clang-format on */

typedef struct model_files {
    char **paths; /* [n], heap */
    size_t n, capacity;
    char *report; /* the checkpoints of run folders, heap; NULL: none of the arguments is a run folder */
} model_files;

static void model_files_release(model_files *files)
{
    nm_checkpoint_list_free(files->paths, files->n);
    free(files->report);
}

static void add(model_files *files, const char *path)
{
    NM_APPEND(files->paths, files->n, files->capacity, nm_duplicate(path));
}

static long long update_of(const char *checkpoint)
{
    return atoll(strrchr(checkpoint, '/') + 1);
}

/* Reports the last n files, which are of a run. */
static void report_run(model_files *files, const char *run, size_t n)
{
    nm_format_append(&files->report, "%s: checkpoint%s of update%s", run, n > 1 ? "s" : "", n > 1 ? "s" : "");
    for (size_t i = files->n - n; i < files->n; i++)
        nm_format_append(&files->report, "%s %lld", i > files->n - n ? "," : "", update_of(files->paths[i]));
    nm_format_append(&files->report, "\n");
}

/* Adds the newest `last` checkpoints of a run, 0: all, without the initial one, which is not trained. */
static nm_status add_run(model_files *files, const char *run, int64_t last, nm_error *err)
{
    size_t n, first = 0;
    char **paths;
    NM_TRY(nm_checkpoint_list(run, &paths, &n, err));
    nm_status status = NM_OK;
    while (first < n && !update_of(paths[first]))
        first++;
    const int64_t kept = (int64_t)(n - first);
    if (!kept)
        status = nm_fail(err, NM_IO, "%s: is a folder, but no run with saved checkpoints", run);
    else if (last > kept)
        status = nm_fail(
            err, NM_MISMATCH,
            "%s: %lld checkpoint%s, but --last is %lld; train.keep_last is the number that a run keeps", run,
            (long long)kept, kept == 1 ? "" : "s", (long long)last);
    if (status == NM_OK && last)
        first = n - (size_t)last;
    for (size_t i = first; i < n && status == NM_OK; i++)
        add(files, paths[i]);
    if (status == NM_OK)
        report_run(files, run, n - first);
    nm_checkpoint_list_free(paths, n);
    return status;
}

static nm_status find_files(model_files *files, char **paths, int n, int64_t last, nm_error *err)
{
    for (int i = 0; i < n; i++) {
        struct stat info = {0};
        if (stat(paths[i], &info))
            return nm_fail(err, nm_file_error_status(errno), "%s: %s", paths[i], strerror(errno));
        if (S_ISDIR(info.st_mode))
            NM_TRY(add_run(files, paths[i], last, err));
        else
            add(files, paths[i]);
    }
    return last && !files->report
               ? nm_fail(err, NM_USAGE, "average.last has no effect without a run folder among the models")
               : NM_OK;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    const average_config *config = nm_options_find(cli->options, "average");
    model_files files = {0};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 2, NM_CLI_NO_LIMIT, &err);
    NM_THEN(status, find_files(&files, argv + 1, argc - 1, config->last, &err));
    NM_THEN(status, nm_model_average((const char *const *)files.paths, (int)files.n, argv[0], &err));
    if (status == NM_OK)
        fprintf(stderr, "%s%s: average of %zu model%s\n", files.report ? files.report : "", argv[0], files.n,
                files.n == 1 ? "" : "s");
    model_files_release(&files);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_average = {
    .name = "average",
    .summary = "average the weights of several models of one run",
    .usage = "OUT.safetensors RUN|MODEL.safetensors ... [--last N]",
    .details =
        "Every weight and running statistic of OUT is the mean over the models. They must have the same "
        "tensors, task, dictionaries, codes, train.seed and options of [model], [norm] and [norm.TYPE], "
        "except dropout "
        "rates and initialization. All their values must be finite. Counters and other options are those "
        "of the newest model. OUT, the first argument, must not be a model that norma train has written.\n\n"
        "A run folder is the checkpoints that it has kept (train.keep_last), with --last N the newest N of "
        "them. The initial checkpoint (train.save_initial) is not among them.",
    .section = "average",
    .rows = average_rows,
    .config_bytes = sizeof(average_config),
    .writes_first = true,
    .writes_models = true,
    .run = run,
};
