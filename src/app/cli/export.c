/* norma export: writes a model file for inference, optionally with folded norms and int8 weights. */
#include <string.h>

#include "cli/cli.h"
#include "task/model_loader.h"
#include "train/checkpoint.h"

typedef struct export_config { /* section [export] */
    const char *output;
    bool fold, int8, bf16;
} export_config;

/* clang-format off */
static const nm_option export_rows[] = {
    NM_OPTION(export_config, output, "", 0, 0, "Model file to write."),
    NM_OPTION(export_config, fold, "false", 0, 0,
        "Fold norms that are affine per feature into the linear layers that follow them."),
    NM_OPTION(export_config, int8, "false", 0, 0,
        "Quantize weight matrices to int8; the file has about a quarter of the size."),
    NM_OPTION(export_config, bf16, "false", 0, 0,
        "Round weight matrices to bf16; the file has about half of the size."),
    {0}};
/* clang-format on */

static nm_status write_model(const nm_loaded_model *loaded, const char *from, const export_config *config,
                             nm_error *err)
{
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    NM_TRY(nm_safetensors_open_metadata(&file, from, err));
    nm_weight_format format = config->int8   ? NM_WEIGHTS_INT8
                              : config->bf16 ? NM_WEIGHTS_BF16
                                             : NM_WEIGHTS_FLOAT;
    return nm_checkpoint_rewrite(config->output, loaded->model, loaded->task.type, format, file, err);
}

/* Number of norms that normalize. */
static size_t count_norms(const nm_params *params)
{
    size_t n = 0;
    for (size_t i = 0; i < params->n_norms; i++)
        n += strcmp(params->norms[i]->type->name, "none") != 0;
    return n;
}

static void print_folded(const char *output, size_t folded, size_t norms)
{
    if (norms)
        fprintf(stderr, "%s: %zu of %zu norms folded into linear layers\n", output, folded, norms);
    else
        fprintf(stderr, "%s: the model has no norm to fold\n", output);
}

static nm_status export_model(const export_config *config, const char *path, nm_error *err)
{
    NM_AUTO_FREE char *file = NULL;
    nm_loaded_model loaded;
    NM_TRY(nm_loaded_model_open_plain(&loaded, path, &file, err));
    size_t folded = config->fold ? nm_loaded_model_fold(&loaded) : 0;
    nm_status status = write_model(&loaded, file, config, err);
    if (status == NM_OK && config->fold)
        print_folded(config->output, folded, count_norms(&loaded.model->params));
    nm_loaded_model_close(&loaded);
    return status;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    const export_config *config = nm_options_find(cli->options, "export");
    nm_error err = {0};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    if (status == NM_OK && !*config->output)
        status = nm_fail(&err, NM_USAGE, "export: no output file given (-o FILE)");
    if (status == NM_OK && config->int8 && config->bf16)
        status = nm_fail(&err, NM_USAGE, "export: --int8 and --bf16 exclude each other");
    NM_THEN(status, export_model(config, argv[0], &err));
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_export = {
    .name = "export",
    .summary = "write a model file for inference",
    .usage = "MODEL -o FILE [--fold] [--int8|--bf16]",
    .details =
        "MODEL is a model file or a run folder, of which the best model is used, or else the last one. "
        "The output is a model file like any other; it must not be a file that norma train has written.\n\n"
        "With --fold, norms that are affine per feature at inference are folded into the linear layers that "
        "read them: batch, rbn, renorm, mabn, un, repbn, progressive; pnv and power without row scaling. The "
        "norms of these sites are none in the file, and its results equal the model's up to rounding. "
        "Post-norm is not folded, because the residual connection also reads the norm. Such a file is for "
        "inference, not for further training. Other commands fold when they load a model "
        "(--device.fold).\n\n"
        "With --int8, weight matrices are stored as int8 with one scale per row (symmetric per-row "
        "quantization), about a quarter of the size. With --device.precision int8 the results are "
        "bitwise identical to those of the float model with --device.precision int8, except if the model "
        "has norms that can be folded. Fold and quantize such a model together (--fold --int8): norms that "
        "are folded when an int8 file is loaded are rounded twice. An int8 file is for inference, not for "
        "training.\n\n"
        "With --bf16, the same matrices are rounded to bf16, about half of the size. Results with "
        "--device.precision bf16 differ from those of the float model only by the rounding of embeddings. "
        "Such a file is for inference, not for training.",
    .section = "export",
    .rows = export_rows,
    .config_bytes = sizeof(export_config),
    .writes_models = true,
    .run = run,
};
