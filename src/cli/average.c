/* norma average: the element-wise mean of several models. */
#include <string.h>

#include "base/file.h"
#include "cli.h"
#include "model/model_file.h"

/* NM_USAGE if the output is a model that a run has written: without an output, the first of the models to average. */
static nm_status check_output(const char *path, nm_error *err)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool numbered = *name != '.' && !strcmp(name + strspn(name, "0123456789"), ".safetensors");
    bool of_run = numbered || !strcmp(name, "best.safetensors") || !strcmp(name, "last.safetensors");
    if (!of_run || !nm_file_may_exist(path))
        return NM_OK;
    return nm_fail(err, NM_USAGE,
                   "average: the first argument is the output, and %s is the model of a run, which would be "
                   "overwritten: name a new file before the models",
                   path);
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    if (nm_cli_check_arguments(cli, argc, 2, 1 << 20, &err) != NM_OK ||
        check_output(argv[0], &err) != NM_OK ||
        nm_model_file_average((const char *const *)(argv + 1), argc - 1, argv[0], &err) != NM_OK)
        return nm_cli_fail(&err);
    fprintf(stderr, "%s: average of %d model%s\n", argv[0], argc - 1, argc == 2 ? "" : "s");
    return NM_OK;
}

const nm_command nm_command_average = {
    .name = "average",
    .summary = "average the weights of several models of one run",
    .usage = "OUT.safetensors MODEL.safetensors ...",
    .details =
        "Every weight and running statistic of OUT is the mean over the models, which must have the same "
        "tensors, task, dictionaries, codes and options of [model], [norm] and [norm.TYPE] (except dropout "
        "rates and initialization), and no values that are not finite. Counters and other options are those "
        "of the newest model. OUT, the first argument, must not be a model that norma train has written.",
    .run = run,
};
