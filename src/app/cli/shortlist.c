/* norma shortlist: learns the lexical shortlist of a data folder. */
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/threads.h"
#include "cli/cli.h"
#include "data/lexical_table.h"
#include "data/prepare.h"
#include "task/shortlist_file.h"
#include "task/prepared_texts.h"
#include "task/text_coder.h"

typedef struct shortlist_config { /* section [shortlist] */
    const char *output;
    int64_t iterations, max_pairs, best, threads;
    double min_probability;
} shortlist_config;

/* clang-format off */
static const nm_option rows[] = {
    NM_OPTION(shortlist_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_OPTION(shortlist_config, best, "100", 1, 1 << 24, "Maximum number of target tokens per source token."),
    NM_OPTION(shortlist_config, min_probability, "0.0001", 0, 1,
        "Minimum probability of a target token given a source token."),
    NM_OPTION(shortlist_config, iterations, "5", 1, 1000, "Iterations of EM."),
    NM_OPTION(shortlist_config, max_pairs, "1000000", 1, 1e15,
        "Maximum number of training pairs; of more, as many are used, at equal distances."),
    NM_OPTION(shortlist_config, threads, "0", 0, 1024,
        "Number of threads; 0: one per core, at most the CPU limit of the container."),
    {0}};
/* clang-format on */

typedef struct job {
    const shortlist_config *config;
    nm_prepared_texts texts;
    nm_vocab *vocabs[2];
    nm_corpus sides[2];
    nm_lexical_table table;
} job;

static void add_options(nm_options *options)
{
    nm_options_add(options, "shortlist", rows, NULL, sizeof(shortlist_config));
}

static nm_status open_pairs(job *self, const char *folder, nm_error *err)
{
    static const char *const names[] = {"dict.source.txt", "dict.target.txt"};
    NM_TRY(nm_prepare_check_folder(folder, 2, err));
    NM_TRY(nm_prepared_texts_read(&self->texts, folder, err));
    const nm_model_text settings = {folder, "data.ini", self->texts.settings};
    for (int side = 0; side < 2; side++) {
        const nm_model_text dictionary = {folder, names[side], self->texts.dictionaries[side]};
        NM_TRY(nm_model_text_vocab(&dictionary, &settings, &self->vocabs[side], err));
        NM_TRY(nm_prepare_open_split(&self->sides[side], folder, 0, 2, side,
                                     nm_vocab_size(self->vocabs[side]), err));
    }
    if (self->sides[0].n != self->sides[1].n)
        return nm_fail(err, NM_MISMATCH, "%s: train has %lld source and %lld target sequences", folder,
                       (long long)self->sides[0].n, (long long)self->sides[1].n);
    return NM_OK;
}

static nm_status learn(job *self, nm_error *err)
{
    const shortlist_config *config = self->config;
    const int32_t threads = config->threads ? (int32_t)config->threads : nm_threads_default();
    const nm_lexical_config lexical = {.source_size = nm_vocab_size(self->vocabs[0]),
                                       .target_size = nm_vocab_size(self->vocabs[1]),
                                       .source_eos = self->vocabs[0]->eos,
                                       .target_eos = self->vocabs[1]->eos,
                                       .iterations = config->iterations,
                                       .max_pairs = config->max_pairs,
                                       .best = config->best,
                                       .min_probability = config->min_probability,
                                       .threads = nm_threads_available(threads)};
    return nm_lexical_table_learn(&self->table, self->sides, &lexical, err);
}

static nm_status write_table(const job *self, nm_error *err)
{
    const nm_lexical_table *table = &self->table;
    nm_file_writer writer;
    char *languages;
    NM_TRY(nm_text_coder_languages(self->texts.settings, &languages, err));
    nm_status status = nm_file_writer_open(&writer, self->config->output, err);
    if (status == NM_OK && languages)
        fprintf(writer.stream, NM_SHORTLIST_LANGUAGES, languages);
    free(languages);
    NM_TRY(status);
    for (int32_t s = 0; s < table->source_size; s++)
        for (size_t i = table->offsets[s]; i < table->offsets[s + 1]; i++)
            fprintf(writer.stream, "%s %s %.6g\n", nm_vocab_symbol(self->vocabs[1], table->entries[i].target),
                    nm_vocab_symbol(self->vocabs[0], s), (double)table->entries[i].probability);
    return nm_file_writer_commit(&writer, err);
}

static void print_summary(const job *self)
{
    const nm_lexical_table *table = &self->table;
    int64_t n = 0;
    for (int32_t s = 0; s < table->source_size; s++)
        n += table->offsets[s + 1] > table->offsets[s];
    fprintf(stderr,
            "%s: %zu entries for %lld source tokens, from %lld pairs; perplexity %.1f per target token\n",
            self->config->output, table->offsets[table->source_size], (long long)n, (long long)table->pairs,
            table->perplexity);
}

static void job_release(job *self)
{
    nm_lexical_table_release(&self->table);
    nm_prepared_texts_release(&self->texts);
    for (int side = 0; side < 2; side++) {
        nm_corpus_close(&self->sides[side]);
        nm_vocab_free(self->vocabs[side]);
    }
}

static int run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.config = nm_options_find(cli->options, "shortlist")};
    nm_status status = nm_cli_check_arguments(cli, argc, argv, 1, 1, &err);
    if (status == NM_OK)
        status = open_pairs(&self, argv[0], &err);
    if (status == NM_OK)
        status = learn(&self, &err);
    if (status == NM_OK)
        status = write_table(&self, &err);
    if (status == NM_OK)
        print_summary(&self);
    job_release(&self);
    return status == NM_OK ? 0 : nm_cli_fail(&err);
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
    .options = add_options,
    .run = run,
};
