/* Lexical shortlists of data folders. */
#include <stdlib.h>

#include "api/inference.h"
#include "api/sections.h"
#include "base/file.h"
#include "base/threads.h"
#include "data/lexical_table.h"
#include "data/prepare.h"
#include "norma/text.h"
#include "task/prepared_texts.h"

typedef struct shortlist_config { /* section [shortlist] */
    NM_SHORTLIST_LEARN_FIELDS;
} shortlist_config;

/* clang-format off */
static const nm_option rows[] = {
    NM_SHORTLIST_LEARN_ROWS(shortlist_config),
    {0}};
/* clang-format on */

typedef struct job {
    const shortlist_config *config;
    nm_prepared_texts texts;
    nm_vocab *vocabs[2];
    nm_corpus sides[2];
    nm_lexical_table table;
} job;

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

static nm_status write_table(const job *self, const char *output, nm_error *err)
{
    const nm_lexical_table *table = &self->table;
    nm_file_writer writer;
    char *languages;
    NM_TRY(nm_text_coder_languages(self->texts.settings, &languages, err));
    nm_status status = nm_file_writer_open(&writer, output, err);
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

static nm_shortlist_summary summarize(const nm_lexical_table *table)
{
    nm_shortlist_summary summary = {.entries = (int64_t)table->offsets[table->source_size],
                                    .pairs = table->pairs,
                                    .perplexity = table->perplexity};
    for (int32_t s = 0; s < table->source_size; s++)
        summary.sources += table->offsets[s + 1] > table->offsets[s];
    return summary;
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

nm_status nm_shortlist_learn(const char *folder, const char *output, const char *const *settings,
                             nm_shortlist_summary *summary, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!folder || !output)
        return nm_fail(err, NM_USAGE, "nm_shortlist_learn: %s is NULL", folder ? "output" : "folder");
    NM_AUTO(nm_options_release) nm_options *options = nm_options_create();
    job self = {.config = nm_options_add(options, "shortlist", rows, NULL, sizeof(shortlist_config))};
    nm_options_accept_any_text(options);
    nm_status status = nm_settings_apply(options, "shortlist", settings, err);
    NM_THEN(status, open_pairs(&self, folder, err));
    NM_THEN(status, learn(&self, err));
    NM_THEN(status, write_table(&self, output, err));
    if (status == NM_OK && summary)
        *summary = summarize(&self.table);
    job_release(&self);
    return status;
}
