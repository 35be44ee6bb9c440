/* norma export: a model as one file for use; if wanted, norms joined with the linear maps behind them, matrices in int8. */
#include <stdlib.h>

#include "base/file.h"
#include "cli.h"
#include "task/model_loader.h"
#include "train/checkpoint.h"

typedef struct export_config { /* section [export] */
    const char *output;
    bool fold, int8;
} export_config;

/* clang-format off */
static const nm_option export_rows[] = {
    NM_OPTION(export_config, output, "", 0, 0, "file to write"),
    NM_OPTION(export_config, fold, "false", 0, 0, "join norms that are one map per feature with the linear maps behind them"),
    NM_OPTION(export_config, int8, "false", 0, 0, "matrices in int8: little more than a quarter of the size"),
    {0}};
/* clang-format on */

static void export_options(nm_options *options)
{
    nm_options_add(options, "export", export_rows, NULL, sizeof(export_config));
}

static nm_status write_model(const nm_loaded_model *loaded, const char *from, const export_config *config,
                             nm_error *err)
{
    nm_safetensors *file;
    NM_TRY(nm_safetensors_open(&file, from, err));
    nm_status status =
        nm_checkpoint_rewrite(config->output, loaded->model, loaded->task.type, config->int8, file, err);
    nm_safetensors_close(file);
    return status;
}

static nm_status export_model(const export_config *config, nm_backend *backend, const char *path,
                              nm_error *err)
{
    nm_options *options;
    const nm_task_type *task;
    char *file;
    nm_loaded_model loaded = {0};
    NM_TRY(nm_loaded_model_options(path, &options, &task, &file, err));
    nm_status status = nm_loaded_model_open(&loaded, file, task, options, backend, false, false, err);
    if (status == NM_OK) {
        size_t joined = config->fold ? nm_model_fold(loaded.model, options) : 0;
        status = write_model(&loaded, file, config, err);
        if (status == NM_OK && config->fold)
            fprintf(stderr, "%s: %zu of %zu norms joined with the linear maps behind them\n", config->output,
                    joined, loaded.model->params.n_norms);
        nm_loaded_model_close(&loaded);
    }
    free(file);
    return status;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    const export_config *config = nm_options_find(cli->options, "export");
    const nm_backend_options plain = {.name = "ref", .dtype = NM_F32, .threads = 1};
    nm_backend *backend = NULL;
    nm_error err = {0};
    nm_status status = nm_cli_check_arguments(cli, argc, 1, 1, &err);
    if (status == NM_OK && !*config->output)
        status = nm_fail(&err, NM_USAGE, "export: no file to write to: -o FILE");
    if (status == NM_OK)
        status = nm_backend_create(&backend, &plain, &err);
    if (status == NM_OK)
        status = export_model(config, backend, argv[0], &err);
    nm_backend_free(backend);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_export = {
    .name = "export",
    .summary = "write a model as one file for use",
    .usage = "RUN|MODEL -o FILE [--fold] [--int8]",
    .details =
        "A run folder stands for its best model, else its last one. The file is used as any other model.\n\n"
        "With --fold norms that are one map per feature once trained (batch, rbn, renorm, mabn; pnv and "
        "power "
        "where they scale no rows first) join the linear maps that read them: the file's norms of these "
        "sites are none, and its results those of the model but for rounding. That is so for pre-norm; in "
        "post-norm the residual sum reads a norm too, and it stays. Such a file is for use, not for going on "
        "with training. Other commands do the same whenever they load a model (--device.fold).\n\n"
        "With --int8 matrices are kept as whole numbers from -127 to 127 and one scale for each row: a file "
        "of "
        "little more than a quarter of the size, whose results with --device.precision int8 are those of the "
        "float model with --device.precision int8, to the last bit. Norms that can be joined should be "
        "joined in "
        "the same go, --fold --int8: joined when the file is loaded, numbers are rounded twice. Such a file "
        "is for "
        "use, not for training.",
    .section = "export",
    .options = export_options,
    .run = run,
};
