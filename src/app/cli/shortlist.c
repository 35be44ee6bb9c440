/* norma shortlist: learns the lexical shortlist of a data folder. */

#include "api/sections.h"
#include "cli/model_command.h"
#include "norma/text.h"

typedef struct shortlist_config { /* section [shortlist] */
    const char *output;
    NM_SHORTLIST_LEARN_FIELDS;
} shortlist_config;

/* clang-format off */
static const nm_option rows[] = {
    NM_OPTION(shortlist_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_SHORTLIST_LEARN_ROWS(shortlist_config),
    {0}};
/* clang-format on */

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    const shortlist_config *config = nm_options_find(cli->options, "shortlist");
    NM_AUTO_FREE const char **settings = nm_cli_settings(cli, "shortlist.output");
    nm_shortlist_summary summary;
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    NM_THEN(status, nm_shortlist_learn(argv[0], config->output, settings, &summary, &err));
    if (status != NM_OK)
        return nm_cli_fail(&err);
    fprintf(stderr,
            "%s: %lld entries for %lld source tokens, from %lld pairs; perplexity %.1f per target token\n",
            config->output, (long long)summary.entries, (long long)summary.sources, (long long)summary.pairs,
            summary.perplexity);
    return 0;
}

const nm_command nm_command_shortlist = {
    .name = "shortlist",
    .summary = "learn a lexical shortlist, for faster translation",
    .usage = "DATA [--output FILE] [--best N] [OPTION ...]",
    .details =
        "Estimates the probabilities of target tokens given source tokens from the training pairs of a data "
        "folder, by IBM Model 1 (Brown et al. 1993). The output has a line TARGET SOURCE PROBABILITY for "
        "every likely translation, the format of Marian, after a line with the languages. norma translate "
        "--shortlist FILE then computes the "
        "output layer for the likely translations of the source tokens only (docs/translation.md).",
    .section = "shortlist",
    .rows = rows,
    .config_bytes = sizeof(shortlist_config),
    .run = run,
};
