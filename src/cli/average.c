/* norma average: the element-wise mean of several models. */
#include "cli/cli.h"
#include "cli/output_guard.h"
#include "model/model_average.h"

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    if (nm_cli_check_arguments(cli, argc, argv, 2, NM_CLI_NO_LIMIT, &err) != NM_OK ||
        nm_guard_output_file(argv[0], "average: the first argument is the output, and",
                             "name a new file before the models", &err) != NM_OK ||
        nm_model_average((const char *const *)(argv + 1), argc - 1, argv[0], &err) != NM_OK)
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
        "of the newest model. OUT, the first argument, must not be a model that norma train has written. The "
        "models of a run at its last updates are RUN/checkpoints/????????.safetensors.",
    .run = run,
};
