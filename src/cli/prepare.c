/* norma prepare: parallel or plain text to a data folder. */
#include "data/prepare.h"

#include <stdlib.h>
#include <time.h>

#include "cli.h"

static void add_options(nm_options *options)
{
    nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    nm_options_add_rules(options, nm_prepare_rules);
}

static void print_drops(const nm_prepare_split_report *split)
{
    const char *sign = ": ";
    for (int drop = 0; drop < NM_DROP_N; drop++)
        if (split->dropped[drop]) {
            fprintf(stderr, "%s%lld %s", sign, (long long)split->dropped[drop], nm_drop_text((nm_drop)drop));
            sign = ", ";
        }
}

static void print_split(int number, const nm_prepare_split_report *split, int sides, bool words)
{
    fprintf(stderr, "%s: %lld %s read, %lld kept, %lld dropped", nm_prepare_split_names[number],
            (long long)split->pairs, sides == 1 ? "lines" : "pairs", (long long)split->kept,
            (long long)(split->pairs - split->kept));
    print_drops(split);
    putc('\n', stderr);
    for (int side = 0; side < sides; side++) {
        fprintf(stderr, "  %s: ", nm_prepare_side_name(sides, side));
        if (words)
            fprintf(stderr, "%lld words, ", (long long)split->words[side]);
        fprintf(stderr, "%lld tokens, %lld unknown (%.3f %%)\n", (long long)split->tokens[side],
                (long long)split->unknown[side],
                split->tokens[side] ? 100.0 * (double)split->unknown[side] / (double)split->tokens[side]
                                    : 0.0);
    }
}

static void print_report(const nm_prepare_config *config, const nm_prepare_report *report, double seconds)
{
    const char *const prefixes[NM_PREPARE_SPLITS] = {config->train, config->valid, config->test};
    for (int i = 0; i < NM_PREPARE_SPLITS; i++)
        if (*prefixes[i])
            print_split(i, &report->splits[i], report->sides, !report->pieces[0]);
    for (int side = 0; report->pieces[0] && side < report->sides; side++)
        fprintf(stderr, "%s: SentencePiece model of %lld pieces, dictionary of %lld\n",
                nm_prepare_side_name(report->sides, side), (long long)report->pieces[side],
                (long long)report->dict_size[side]);
    if (report->pieces[0]) {
        fprintf(stderr, "%s written in %.1f s\n", config->output, seconds);
        return;
    }
    for (int side = 0; side < report->sides; side++)
        fprintf(stderr, "%s: %lld word types, dictionary of %lld\n",
                nm_prepare_side_name(report->sides, side), (long long)report->word_types[side],
                (long long)report->dict_size[side]);
    fprintf(stderr, "BPE merges: %lld; %s written in %.1f s\n", (long long)report->merges, config->output,
            seconds);
}

/* Warns when the filters dropped more than WARN_PERCENT of the training pairs: a filter for other languages or another
 * tokenization can drop most of a corpus. */
static void warn_of_drops(const nm_prepare_report *report)
{
    enum { WARN_PERCENT = 5 };
    const nm_prepare_split_report *train = &report->splits[0];
    nm_drop most = 0;
    for (int drop = 1; drop < NM_DROP_N; drop++)
        if (train->dropped[drop] > train->dropped[most])
            most = (nm_drop)drop;
    if (100 * (train->pairs - train->kept) <= WARN_PERCENT * train->pairs)
        return;
    const char *option = nm_drop_option(most);
    fprintf(stderr,
            "norma: warning: %.1f %% of the training pairs were dropped, most of them as \"%s\"%s%s%s\n",
            100.0 * (double)(train->pairs - train->kept) / (double)train->pairs, nm_drop_text(most),
            *option ? "; the option --" : "", option, *option ? " changes this filter" : "");
    for (int i = 0; i < train->n_examples[most]; i++) {
        const nm_drop_example *example = &train->examples[most][i];
        fprintf(stderr, "  line %lld:", (long long)example->line);
        for (int side = 0; side < report->sides; side++) {
            fputs(side ? " | " : " ", stderr);
            for (const char *at = example->text[side]; *at; at++)
                putc((unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at, stderr);
        }
        putc('\n', stderr);
    }
}

static double monotonic_seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    if (nm_cli_check_arguments(cli, argc, 0, 1, &err) != NM_OK ||
        (argc && nm_cli_read(cli, argv[0], &err) != NM_OK))
        return nm_cli_fail(&err);
    char *warning;
    if (nm_options_check(cli->options, &warning, &err) != NM_OK)
        return nm_cli_fail(&err);
    if (warning)
        fprintf(stderr, "norma: warning: %s\n", warning);
    free(warning);
    nm_prepare_report report;
    double start = monotonic_seconds();
    nm_status status = nm_prepare_run(cli->options, &report, &err);
    if (status == NM_OK) {
        print_report(nm_options_find(cli->options, "prepare"), &report, monotonic_seconds() - start);
        warn_of_drops(&report);
    }
    nm_prepare_report_release(&report);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_prepare = {
    .name = "prepare",
    .summary = "turn parallel or plain text into a data folder for training",
    .usage =
        "[OPTIONS.ini] --train PREFIX --valid PREFIX --test PREFIX --source-lang LANG --target-lang LANG "
        "--output FOLDER",
    .details =
        "Reads PREFIX.LANG of both languages, UTF-8, one sentence per line. Tokenizes, optionally "
        "lowercases, removes training pairs that are empty, too long or of very different lengths, "
        "learns a joint BPE, builds dictionaries, and writes token ids that training maps into memory. "
        "Validation and test sets keep all lines. The result does not depend on the number of threads. "
        "OPTIONS.ini has a section [prepare], like the data.ini of a data folder.\n\n"
        "With --format text the splits are single files of plain text for a language model: all lines "
        "are kept, including empty ones, and end in </s>. --tokenizer none --bpe-merges 0 keeps the "
        "words unchanged.",
    .section = "prepare",
    .options = add_options,
    .run = run,
};
