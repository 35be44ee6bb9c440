/* norma prepare: converts parallel or plain text to a data folder. */
#include "norma/prepare.h"

#include <string.h>

#include "base/clock.h"
#include "cli/model_command.h"
#include "data/prepare.h"
#include "base/buffer.h"

/* Checked by nm_prepare, after --like: not rules of the command, which are checked before it runs. */
static void add_rules(nm_options *options)
{
    nm_options_add_rules(options, nm_prepare_rules);
}

static void print_split(const nm_prepared *prepared, int32_t number, bool words)
{
    nm_prepared_split split;
    nm_prepared_side side;
    nm_prepared_drop drop;
    if (!nm_prepared_get_split(prepared, number, &split))
        return;
    fprintf(stderr, "%s: %lld %s read, %lld kept, ", split.name, (long long)split.lines,
            nm_prepared_unit(prepared), (long long)split.kept);
    if (split.held_out)
        fprintf(stderr, "%lld held out for validation, ", (long long)split.held_out);
    fprintf(stderr, "%lld dropped", (long long)(split.lines - split.kept - split.held_out));
    for (size_t i = 0; nm_prepared_get_drop(prepared, number, i, &drop); i++)
        fprintf(stderr, "%s%lld %s", i ? ", " : ": ", (long long)drop.lines, drop.reason);
    if (split.repeated)
        fprintf(stderr, "; %lld also in train", (long long)split.repeated);
    putc('\n', stderr);
    for (const char *at = split.columns; at && *at; at += strcspn(at, "\n") + 1)
        fprintf(stderr, "  %.*s\n", (int)strcspn(at, "\n"), at);
    if (split.links)
        fprintf(stderr, "  alignments: %lld links of subwords\n", (long long)split.links);
    for (int32_t i = 0; nm_prepared_get_side(prepared, i, &side); i++) {
        fprintf(stderr, "  %s: ", side.name);
        if (words)
            fprintf(stderr, "%lld words, ", (long long)split.words[i]);
        fprintf(stderr, "%lld tokens, %lld unknown (%.3f %%)\n", (long long)split.tokens[i],
                (long long)split.unknown[i],
                split.tokens[i] ? 100.0 * (double)split.unknown[i] / (double)split.tokens[i] : 0.0);
    }
}

static void print_report(const nm_prepared *prepared, double seconds)
{
    enum { N_SPLITS = 3 };
    nm_prepared_side side;
    bool pieces = nm_prepared_get_side(prepared, 0, &side) && side.pieces;
    for (int32_t i = 0; i < N_SPLITS; i++)
        print_split(prepared, i, !pieces);
    for (int32_t i = 0; nm_prepared_get_side(prepared, i, &side); i++) {
        if (pieces)
            fprintf(stderr, "%s: SentencePiece model of %lld pieces, dictionary of %lld\n", side.name,
                    (long long)side.pieces, (long long)side.dictionary);
        else
            fprintf(stderr, "%s: %lld word types, dictionary of %lld\n", side.name,
                    (long long)side.word_types, (long long)side.dictionary);
    }
    if (!pieces)
        fprintf(stderr, "BPE merges: %lld; ", (long long)nm_prepared_merges(prepared));
    fprintf(stderr, "%s written in %.1f s\n", nm_prepared_folder(prepared), seconds);
}

/* Warnings after the start are printed after the report. */
typedef struct console {
    bool started;
    nm_buffer late; /* warnings after the start */
} console;

static bool on_progress(void *user, const nm_prepare_progress *progress)
{
    (void)progress;
    ((console *)user)->started = true;
    return true;
}

static void on_message(void *user, const char *text)
{
    console *self = user;
    NM_AUTO_FREE char *line = nm_format("norma: warning: %s\n", text);
    if (self->started)
        nm_buffer_append(&self->late, line, strlen(line));
    else
        fputs(line, stderr);
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    nm_prepared *prepared;
    console seen = {0};
    const nm_prepare_events events = {.user = &seen, .progress = on_progress, .message = on_message};
    if (nm_cli_check_arguments(cli, argc, argv, 0, 1, &err) != NM_OK)
        return nm_cli_fail(&err);
    char *recipe = NULL;
    if (argc && nm_cli_find_recipe(argv[0], &recipe, &err) != NM_OK)
        return nm_cli_fail(&err);
    const char **settings = nm_cli_settings(cli, "");
    double start = nm_clock();
    nm_status status = nm_prepare_folder(&prepared, recipe, settings, &events, &err);
    NM_FREE(settings, recipe);
    if (status == NM_OK) {
        print_report(prepared, nm_clock() - start);
        if (seen.late.bytes)
            fputs(seen.late.data, stderr);
        nm_prepared_free(prepared);
    }
    nm_buffer_release(&seen.late);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_prepare = {
    .name = "prepare",
    .summary = "turn parallel or plain text into a data folder for training",
    .usage = "[RECIPE] --train PREFIX --valid PREFIX --test PREFIX --source-lang LANG --target-lang LANG "
             "--output FOLDER",
    .details =
        "Reads PREFIX.LANG of both languages, UTF-8, one sentence per line. Tokenizes, optionally "
        "lowercases, removes training pairs that are empty, too long or of very different lengths, "
        "learns a joint BPE, builds dictionaries, and writes the token ids that training reads. "
        "Validation and test sets keep all lines. The result does not depend on the number of threads. "
        "RECIPE has a section [prepare], like the data.ini of a data folder; data/iwslt14-de-en and "
        "data/wmt14-en-de read the published archives: norma prepare data/iwslt14-de-en --folder downloads "
        "--output data/iwslt14-de-en.\n\n"
        "With --format text the splits are single files of plain text for a language model: all lines "
        "are kept, including empty ones, unless --drop-duplicates is given, and end in </s>. --tokenizer "
        "none --bpe-merges 0 keeps the "
        "words unchanged.\n\n"
        "With --like, tokenizer, BPE codes, SentencePiece models and dictionaries are those of a model or a "
        "data folder.",
    .section = "prepare",
    .rows = nm_prepare_options,
    .config_bytes = sizeof(nm_prepare_config),
    .options = add_rules,
    .saves = true,
    .writes_data = true,
    .run = run,
};
