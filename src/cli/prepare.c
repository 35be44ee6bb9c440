/* norma prepare: parallel text -> data folder. */
#include "data/prepare.h"

#include <stdlib.h>
#include <time.h>

#include "cli.h"

static void add_options(nm_options *options)
{
    nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
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

static void print_split(int number, const nm_prepare_split_report *split, int sides)
{
    fprintf(stderr, "%s: %lld %s read, %lld kept, %lld dropped", nm_prepare_split_names[number],
            (long long)split->pairs, sides == 1 ? "lines" : "pairs", (long long)split->kept,
            (long long)(split->pairs - split->kept));
    print_drops(split);
    putc('\n', stderr);
    for (int side = 0; side < sides; side++)
        fprintf(stderr, "  %s: %lld words, %lld tokens, %lld unknown (%.3f %%)\n",
                nm_prepare_side_name(sides, side), (long long)split->words[side],
                (long long)split->tokens[side], (long long)split->unknown[side],
                split->tokens[side] ? 100.0 * (double)split->unknown[side] / (double)split->tokens[side]
                                    : 0.0);
}

static void print_report(const nm_prepare_config *config, const nm_prepare_report *report, double seconds)
{
    const char *const prefixes[NM_PREPARE_SPLITS] = {config->train, config->valid, config->test};
    for (int i = 0; i < NM_PREPARE_SPLITS; i++)
        if (*prefixes[i])
            print_split(i, &report->splits[i], report->sides);
    for (int side = 0; side < report->sides; side++)
        fprintf(stderr, "%s: %lld word types, dictionary of %lld\n",
                nm_prepare_side_name(report->sides, side), (long long)report->word_types[side],
                (long long)report->dict_size[side]);
    fprintf(stderr, "BPE merges: %lld; %s written in %.1f s\n", (long long)report->merges, config->output,
            seconds);
}

static double now(void)
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
    nm_prepare_report report;
    double start = now();
    if (nm_prepare_run(cli->options, &report, &err) != NM_OK)
        return nm_cli_fail(&err);
    print_report(nm_options_find(cli->options, "prepare"), &report, now() - start);
    return NM_OK;
}

const nm_command nm_command_prepare = {
    .name = "prepare",
    .summary = "turn parallel or plain text into a data folder for training",
    .usage = "[RECIPE.ini] --train PREFIX --valid PREFIX --test PREFIX --source-lang LANG --target-lang LANG "
             "--output FOLDER",
    .details =
        "Reads PREFIX.LANG of both languages, one sentence a line, UTF-8. Tokenizes, lowercases if asked to, "
        "leaves out training pairs that are empty, too long or of very unequal length, learns a joint BPE, "
        "builds dictionaries, and writes ids that training maps into memory. Validation and test keep all "
        "their lines. Threads do not change the result. A data.ini of another folder may serve as RECIPE.\n\n"
        "With --format text the splits are single files of plain text for a language model: every line is "
        "kept, "
        "empty ones too, and ends in </s>. Words as they are: --tokenizer none --bpe-merges 0.",
    .section = "prepare",
    .options = add_options,
    .run = run,
};
