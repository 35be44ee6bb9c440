/* norma convert: converts models to and from the formats of other toolkits. */
#include <stdio.h>

#include "cli/cli.h"
#include "convert/convert.h"

typedef struct convert_config { /* section [convert] */
    const char *to, *from, *output, *vocabs;
    int64_t heads;
} convert_config;

#define LISTED(name, help)    " " #name
#define PARAGRAPH(name, help) #name ": " help "\n\n"

/* clang-format off */
#define DETAILS \
    "MODEL is a model file or a run folder, of which the best model is used, or else the last one. " \
    "The output must not be a file or folder of norma train or norma prepare.\n\n" \
    NM_FOREIGN_FORMATS(PARAGRAPH) \
    "The other toolkit reads subwords, as norma subword writes them; with byte-level BPE, transformers " \
    "reads the text itself (docs/interchange.md). A part of a model that it cannot compute is named with " \
    "the reason."

static const nm_option convert_rows[] = {
    NM_OPTION(convert_config, to, "", 0, 0, "Format to write, one of those that are not read only."),
    NM_OPTION(convert_config, from, "", 0, 0, "Format to read:" NM_FOREIGN_FORMATS(LISTED) "."),
    NM_OPTION(convert_config, output, "", 0, 0, "Folder to write; with --from, model file to write."),
    NM_OPTION(convert_config, heads, "0", 0, 1024,
        "Number of attention heads of a fairseq model, which its files do not contain; "
        "0: from the files, for other formats."),
    NM_OPTION(convert_config, vocabs, "", 0, 0,
        "Vocabularies of a Marian model: SOURCE,TARGET, YAML files or SentencePiece models (.spm)."),
    {0}};
/* clang-format on */

static int run(nm_cli *cli, int argc, char **argv)
{
    const convert_config *config = nm_options_find(cli->options, "convert");
    const nm_foreign_format *format = NULL;
    nm_error err = {0};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    bool reads = *config->from != 0;
    if (status == NM_OK && reads == (*config->to != 0))
        status = nm_fail(&err, NM_USAGE, "convert: one of --to FORMAT and --from FORMAT is needed");
    NM_THEN(status, nm_foreign_format_find(reads ? config->from : config->to, &format, &err));
    if (status == NM_OK && config->heads && !format->uses_heads)
        status =
            nm_fail(&err, NM_USAGE,
                    "convert: --heads has no effect: the files of this format contain the number of heads");
    if (status == NM_OK && *config->vocabs && !format->uses_vocabs)
        status = nm_fail(&err, NM_USAGE,
                         "convert: --vocabs has no effect: the folders of this format have the vocabularies");
    if (status == NM_OK && !*config->output)
        status = nm_fail(&err, NM_USAGE, "convert: no output given (-o %s)", reads ? "FILE" : "FOLDER");
    if (status == NM_OK)
        status = reads ? nm_convert_from(format, &(nm_convert_settings){config->heads, config->vocabs},
                                         argv[0], config->output, &err)
                       : nm_convert_to(format, argv[0], config->output, &err);
    if (status == NM_OK)
        fprintf(stderr, "%s: %s %s %s\n", config->output, reads ? "model from" : format->title,
                reads ? format->title : "of", argv[0]);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_convert = {
    .name = "convert",
    .summary = "convert models to and from the formats of other toolkits",
    .usage = "MODEL --to FORMAT -o FOLDER | PATH --from FORMAT -o FILE",
    .details = DETAILS,
    .section = "convert",
    .rows = convert_rows,
    .config_bytes = sizeof(convert_config),
    .writes_models = true,
    .run = run,
};
