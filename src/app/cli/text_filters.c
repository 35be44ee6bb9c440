/* norma tokenize, detokenize, subword, normalize: the steps of text preparation as filters, to inspect their
 * results and to use them in pipelines. The settings are those of a data folder or model (--like), or
 * options. */

#include "api/sections.h"
#include "base/text_input.h"
#include "cli/model_command.h"
#include "norma/text.h"
#include "base/words.h"

typedef struct filter_config { /* section [text] */
    const char *output, *encoding;
    NM_TEXT_FILTER_FIELDS;
} filter_config;

/* clang-format off */
static const nm_option filter_rows[] = {
    NM_OPTION(filter_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_TEXT_FILTER_ROWS(filter_config),
    NM_OPTION(filter_config, encoding, "utf-8", 0, 0,
        "Encoding of the input, a name of iconv such as latin1 or utf-16."),
    {0}};
/* clang-format on */

static nm_status filter_lines(nm_text_filter *filter, nm_lines *lines, FILE *output, nm_error *err)
{
    for (;;) {
        bool more;
        const char *result;
        NM_TRY(nm_lines_next_text(lines, &more, err));
        if (!more)
            return NM_OK;
        memcpy(lines->text + lines->bytes, "\r", lines->has_return ? 2 : 0); /* for byte-level text */
        NM_TRY(nm_text_filter_run(filter, lines->text, &result, err));
        fputs(result, output);
        putc('\n', output);
        if (ferror(output))
            return NM_OK; /* the error is reported when the output is closed */
    }
}

static nm_status run_filter(nm_text_filter *filter, const filter_config *config, const char *input,
                            nm_error *err)
{
    FILE *stream;
    NM_TRY(nm_text_open_checked(&stream, input, config->encoding, err));
    nm_cli_output output;
    NM_AUTO(nm_lines_release) nm_lines lines = {0};
    nm_lines_init(&lines, stream, nm_input_name(input));
    nm_status status = nm_cli_output_open(&output, config->output, input, err);
    if (status == NM_OK) {
        /* the result of a line is written before the next line is read */
        if (stream == stdin && output.stream == stdout)
            setvbuf(stdout, NULL, _IOLBF, 0);
        status = filter_lines(filter, &lines, output.stream, err);
        status = nm_cli_output_close(&output, status, err);
    }
    nm_input_close(stream);
    return status;
}

static int run(nm_cli *cli, int argc, char **argv, nm_text_step step)
{
    nm_error err = {0};
    nm_text_filter *filter = NULL;
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 0, 1, &err);
    NM_AUTO_FREE const char **settings = nm_cli_settings(cli, "text.output,text.encoding");
    NM_THEN(status, nm_text_filter_open(&filter, step, settings, &err));
    nm_cli_warn(nm_text_filter_warning(filter));
    NM_THEN(status, run_filter(filter, nm_options_find(cli->options, "text"), argc ? argv[0] : "-", &err));
    nm_text_filter_close(filter);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

static int run_tokenize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, NM_STEP_TOKENIZE);
}

static int run_detokenize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, NM_STEP_DETOKENIZE);
}

static int run_subword(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, NM_STEP_SUBWORD);
}

static int run_normalize(nm_cli *cli, int argc, char **argv)
{
    return run(cli, argc, argv, NM_STEP_NORMALIZE);
}

#define SETTINGS_HELP                                                                                        \
    "Lines of FILE or standard input are read, and results are written to standard output. The settings "    \
    "are those of a data folder or model (--like), or the options."

static const char *const not_of_tokenizers[] = {"text.codes", "text.format", "text.form", NULL};
static const char *const not_of_detokenize[] = {"text.codes",
                                                "text.format",
                                                "text.form",
                                                "text.undo",
                                                "text.aggressive",
                                                "text.escape",
                                                "text.lowercase",
                                                "text.pretokenizer",
                                                "text.user_symbols",
                                                "text.protect",
                                                "text.nonbreaking_prefixes",
                                                NULL};
static const char *const not_of_subword[] = {"text.form", NULL};
static const char *const not_of_normalize[] = {
    "text.codes",  "text.format",       "text.undo",         "text.tokenizer", "text.aggressive",
    "text.escape", "text.pretokenizer", "text.user_symbols", "text.protect",   "text.nonbreaking_prefixes",
    NULL};

const nm_command nm_command_tokenize = {
    .name = "tokenize",
    .summary = "tokenize lines of text as norma prepare does",
    .usage = "[FILE] [--like DATA|MODEL] [--undo] [OPTION ...]",
    .details = SETTINGS_HELP
    " With --undo, tokens are joined to text again, as by norma detokenize. SentencePiece writes "
    "pieces.",
    .section = "text",
    .unlisted = not_of_tokenizers,
    .rows = filter_rows,
    .config_bytes = sizeof(filter_config),
    .run = run_tokenize,
};

const nm_command nm_command_detokenize = {
    .name = "detokenize",
    .summary = "join tokens to text as norma translate does",
    .usage = "[FILE] [--like DATA|MODEL] [OPTION ...]",
    .details = SETTINGS_HELP,
    .section = "text",
    .unlisted = not_of_detokenize,
    .rows = filter_rows,
    .config_bytes = sizeof(filter_config),
    .run = run_detokenize,
};

const nm_command nm_command_subword = {
    .name = "subword",
    .summary = "split text into the subwords that a model reads",
    .usage = "[FILE] --like DATA|MODEL|--codes FILE|--spm-model FILE [--undo] [OPTION ...]",
    .details = SETTINGS_HELP
    " Text is tokenized, lowercased if that is set, and split by BPE or SentencePiece: the result "
    "is what norma prepare turns into ids, except that symbols outside the dictionary become "
    "<unk> there. With --undo, subwords are joined and detokenized.",
    .section = "text",
    .unlisted = not_of_subword,
    .rows = filter_rows,
    .config_bytes = sizeof(filter_config),
    .run = run_subword,
};

const nm_command nm_command_normalize = {
    .name = "normalize",
    .summary = "normalize Unicode text as a SentencePiece model does",
    .usage = "[FILE] [--like DATA|MODEL] [--form nfc|nfd|nfkc|nfkd|punctuation|printable]",
    .details = SETTINGS_HELP " With a SentencePiece model its rules are applied, otherwise the steps of the "
                             "data folder (--like), a Unicode "
                             "normal form, or a script of Moses.",
    .section = "text",
    .unlisted = not_of_normalize,
    .rows = filter_rows,
    .config_bytes = sizeof(filter_config),
    .run = run_normalize,
};
