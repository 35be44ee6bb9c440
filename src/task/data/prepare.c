#include "data/prepare.h"

#include <errno.h>
#include <unistd.h>

#include "data/prepare_private.h"

#include "base/file.h"
#include "base/threads.h"
#include "text/user_symbols.h"
#include "text/utf8.h"

static bool uses_sentencepiece(const nm_prepare_config *config)
{
    return !strcmp(config->tokenizer, nm_tokenizer_sentencepiece.name);
}

static bool is_text(const nm_prepare_config *config)
{
    return config->format == NM_PREPARE_TEXT;
}

/* Reads the user symbols; those of SentencePiece are part of its model. Text in lower case does not contain
 * symbols with upper-case letters. */
static nm_status get_user_symbols(nm_prepare *self, nm_error *err)
{
    const nm_prepare_config *config = self->config;
    const nm_tokenizer_type *type = nm_tokenizer_find(config->tokenizer);
    NM_TRY(nm_user_symbols_parse(&self->user_symbols, config->user_symbols, err));
    if (type && type->keeps_text)
        nm_counter_release(&self->user_symbols);
    if (!config->lowercase)
        return NM_OK;
    NM_AUTO(nm_buffer_release) nm_buffer lower = {0};
    nm_buffer_clear(&lower);
    nm_utf8_lowercase(config->user_symbols, strlen(config->user_symbols), &lower);
    bool same = !strcmp(lower.data, config->user_symbols);
    return same ? NM_OK
                : nm_fail(err, NM_USAGE, "user_symbols = %s: with lowercase, they must be in lower case",
                          config->user_symbols);
}

static nm_status check_config(const nm_prepare_config *config, nm_error *err)
{
    if (!*config->output)
        return nm_fail(err, NM_USAGE, "no output folder given (--output)");
    if (!is_text(config) &&
        (!*config->source_lang || !*config->target_lang || !strcmp(config->source_lang, config->target_lang)))
        return nm_fail(err, NM_USAGE, "two different languages are required (--source-lang, --target-lang)");
    if (!*config->train && !*config->valid && !*config->test)
        return nm_fail(err, NM_USAGE, "no text given (--train, --valid, --test)");
    nm_vocab symbols = {.bos = 0, .pad = 1, .eos = 2, .unk = 3};
    NM_TRY(nm_vocab_omit(&symbols, config->omit_symbols, err));
    if (config->valid_every && (*config->valid || !*config->train))
        return nm_fail(err, NM_USAGE,
                       "prepare.valid_every holds out training text: it needs --train and no --valid");
    if (*config->alignments && (!*config->train || is_text(config)))
        return nm_fail(err, NM_USAGE, "prepare.alignments require parallel training text (--train)");
    if (config->valid_every == 1)
        return nm_fail(err, NM_USAGE, "prepare.valid_every = 1 leaves nothing for training");
    if (config->max_length && config->max_length < config->min_length)
        return nm_fail(err, NM_USAGE, "prepare.max_length is below prepare.min_length");
    if (config->ratio > 0 && config->ratio < 1)
        return nm_fail(err, NM_USAGE, "prepare.ratio = %g: expected 0 or at least 1", config->ratio);
    bool dictionaries = *config->dict_source && *config->dict_target;
    if (config->joint)
        dictionaries = *config->dict_source || *config->dict_target;
    if (is_text(config))
        dictionaries = *config->dict_source;
    if (*config->train || *config->like)
        return NM_OK;
    if (!dictionaries)
        return nm_fail(err, NM_USAGE,
                       "without --train dictionaries are required (--dict-source, --dict-target)");
    if (uses_sentencepiece(config))
        return *config->spm_model
                   ? NM_OK
                   : nm_fail(err, NM_USAGE,
                             "without --train a SentencePiece model is required (--spm-model)");
    bool learns = (config->bpe_merges || config->bpe_vocabulary) && !*config->codes;
    if (config->bpe_vocabulary_threshold || learns)
        return nm_fail(err, NM_USAGE,
                       "without --train BPE requires --codes (or --bpe-merges 0) and no threshold");
    return NM_OK;
}

/* Flushes the token files, so that a full disk is reported before any existing file is replaced. */
static nm_status flush_ids(nm_prepare *self, nm_error *err)
{
    for (int k = 0; k <= NM_PREPARE_SPLITS * self->sides; k++) {
        nm_corpus_writer *writer = k == NM_PREPARE_SPLITS * self->sides
                                       ? &self->alignments
                                       : &self->ids[k / self->sides][k % self->sides];
        nm_file_writer *files[2] = {&writer->ids, &writer->offsets};
        for (int i = 0; i < 2; i++)
            if (files[i]->stream)
                NM_TRY(nm_file_flush(files[i]->stream, files[i]->path, err));
    }
    return NM_OK;
}

/* Commits a file of tokenized lines and adds its checksum. */
static nm_status commit_words(nm_prepare *self, int split, int side, nm_error *err)
{
    NM_TRY(nm_file_writer_commit(&self->text[split][side], err));
    NM_AUTO_FREE char *path = nm_prepare_path(self, split, side, "words");
    nm_file_map map;
    nm_status status = nm_file_map_open(&map, path, err);
    if (status == NM_OK) {
        nm_checksums_add(&self->checksums, strrchr(path, '/') + 1, map.data, map.bytes);
        nm_file_unmap(&map);
    }
    return status;
}

static nm_status commit_splits(nm_prepare *self, nm_error *err)
{
    for (int split = 0; split < NM_PREPARE_SPLITS; split++)
        for (int side = 0; nm_prepare_has_split(self->config, split) && side < self->sides; side++) {
            if (split != PREPARE_TRAIN)
                NM_TRY(commit_words(self, split, side, err));
            NM_TRY(nm_corpus_writer_commit(&self->ids[split][side], err));
        }
    return self->alignments.ids.stream ? nm_corpus_writer_commit(&self->alignments, err) : NM_OK;
}

static nm_status write_file(const nm_prepare *self, const char *name, const char *bytes, size_t n,
                            nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(self->config->output, name);
    return nm_file_write(path, bytes, n, err);
}

static nm_status write_text(nm_prepare *self, const char *name, const nm_buffer *text, nm_error *err)
{
    nm_checksums_add(&self->checksums, name, text->data, text->bytes);
    return write_file(self, name, text->data, text->bytes, err);
}

/* Writes the subwords that BPE with a threshold may produce on a side, with their counts on that side; the
 * counts of a joint dictionary are those of both sides. */
static nm_status write_subwords(nm_prepare *self, int side, nm_buffer *text, nm_error *err)
{
    const char *name = self->sides == 1 ? "units.txt" : side ? "units.target.txt" : "units.source.txt";
    nm_vocab_options options = nm_vocab_options_default();
    nm_vocab *subwords;
    options.threshold = self->config->bpe_vocabulary_threshold;
    options.multiple = 1;
    NM_TRY(nm_vocab_build(&self->bpe_counts[side], &options, &subwords, err));
    nm_buffer_clear(text);
    nm_vocab_format(subwords, text);
    nm_vocab_free(subwords);
    return write_text(self, name, text, err);
}

static nm_status write_dictionaries(nm_prepare *self, nm_error *err)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_status status = NM_OK;
    for (int side = 0; status == NM_OK && side < self->sides; side++) {
        const char *name = self->sides == 1 ? "dict.txt" : side ? "dict.target.txt" : "dict.source.txt";
        nm_buffer_clear(&text);
        nm_vocab_format(self->vocab[side], &text);
        status = write_text(self, name, &text, err);
        if (status == NM_OK && self->bpe_counts[side].n)
            status = write_subwords(self, side, &text, err);
    }
    for (int side = 0; status == NM_OK && side < self->sides && self->spm[side]; side++) {
        NM_AUTO_FREE char *name = nm_prepare_spm_name(self->sides, side);
        status = write_text(self, name, &self->spm_bytes[side], err);
    }
    if (status == NM_OK && self->bpe) {
        nm_buffer_clear(&text);
        nm_bpe_format_text(self->bpe, self->bpe->format, &text);
        status = write_text(self, "codes.bpe", &text, err);
    }
    return status;
}

/* Writes the checksums of all files, then data.ini. */
static nm_status write_options(nm_prepare *self, nm_error *err)
{
    NM_AUTO_FREE char *settings = NULL;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&settings, &bytes);
    nm_options_write(self->options, stream);
    nm_text_stream_close(stream);
    nm_checksums_add(&self->checksums, "data.ini", settings, bytes);
    NM_TRY(write_file(self, NM_CHECKSUMS_NAME, self->checksums.data, self->checksums.bytes, err));
    return write_file(self, "data.ini", settings, bytes, err);
}

static nm_status remove_file(const nm_prepare *self, const char *name, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(self->config->output, name);
    nm_status status = NM_OK;
    if (unlink(path) && errno != ENOENT)
        status =
            nm_fail(err, nm_file_error_status(errno), "%s: cannot be removed: %s", path, strerror(errno));
    return status;
}

static nm_status remove_split(const nm_prepare *self, int split, const char *side, nm_error *err)
{
    static const char *const suffixes[] = {"ids", "off", "words"};
    for (int i = 0; i < 3; i++) {
        NM_AUTO_FREE char *name = nm_format("%s.%s.%s", nm_prepare_split_names[split], side, suffixes[i]);
        NM_TRY(remove_file(self, name, err));
    }
    return NM_OK;
}

/* Removes files of an earlier preparation in the same folder that this one does not replace. */
static nm_status remove_stale(const nm_prepare *self, nm_error *err)
{
    static const struct {
        const char *side, *dictionary, *units;
        int sides; /* of the format with this side */
    } all[] = {{"source", "dict.source.txt", "units.source.txt", 2},
               {"target", "dict.target.txt", "units.target.txt", 2},
               {"text", "dict.txt", "units.txt", 1}};
    NM_TRY(remove_file(self, "data.ini", err));
    NM_TRY(remove_file(self, NM_CHECKSUMS_NAME, err));
    if (!self->bpe)
        NM_TRY(remove_file(self, "codes.bpe", err));
    if (!self->alignments.ids.stream)
        NM_TRY(remove_split(self, PREPARE_TRAIN, "alignment", err));
    for (int sides = 1; sides <= 2; sides++)
        for (int side = 0; side < sides; side++) {
            NM_AUTO_FREE char *name = nm_prepare_spm_name(sides, side);
            NM_TRY(remove_file(self, name, err));
        }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool used = all[i].sides == self->sides;
        if (!used)
            NM_TRY(remove_file(self, all[i].dictionary, err));
        NM_TRY(remove_file(self, all[i].units, err));
        for (int split = 0; split < NM_PREPARE_SPLITS; split++)
            if (!used || !nm_prepare_has_split(self->config, split))
                NM_TRY(remove_split(self, split, all[i].side, err));
    }
    return NM_OK;
}

/* Commits all files. data.ini marks a folder as complete, so it is removed first and written last. */
static nm_status finish(nm_prepare *self, nm_error *err)
{
    NM_TRY(flush_ids(self, err));
    NM_TRY(remove_stale(self, err));
    NM_TRY(commit_splits(self, err));
    NM_TRY(write_dictionaries(self, err));
    return write_options(self, err);
}

/* NM_USAGE if the training text is too short for valid_every. */
static nm_status check_held_out(const nm_prepare *self, nm_error *err)
{
    const nm_prepare_split_report *train = &self->report->splits[PREPARE_TRAIN];
    if (!self->config->valid_every || train->held_out)
        return NM_OK;
    NM_AUTO_FREE char *unit = self->config->documents != NM_DOCUMENT_LINE ? nm_duplicate("documents")
                              : is_text(self->config)
                                  ? nm_format("lines (in blocks of %d)", NM_PREPARE_TEXT_BLOCK)
                                  : nm_duplicate("pairs");
    const char *advice =
        train->kept > 1 ? "choose a smaller number" : "name another text for validation (--valid)";
    nm_fail(err, NM_USAGE, "prepare.valid_every = %lld holds out nothing of %lld %s of training text; %s",
            (long long)self->config->valid_every, (long long)train->kept, unit, advice);
    return NM_USAGE;
}

static nm_status run_steps(nm_prepare *self, nm_error *err)
{
    nm_folder_remove_temporaries(self->config->output);
    if (uses_sentencepiece(self->config)) {
        NM_TRY(nm_prepare_report_progress(self, "sentencepiece", 0, err));
        NM_TRY(nm_prepare_sentencepiece(self, err));
    }
    for (int split = 0; split < NM_PREPARE_SPLITS; split++)
        if (*nm_prepare_prefix(self->config, split))
            NM_TRY(nm_prepare_words(self, split, err));
    NM_TRY(check_held_out(self, err));
    NM_TRY(nm_prepare_report_progress(self, "subwords", 0, err));
    NM_TRY(nm_prepare_subwords(self, err));
    NM_TRY(nm_prepare_report_progress(self, "ids", 0, err));
    NM_TRY(nm_prepare_alignments(self, err));
    NM_TRY(nm_prepare_overlap(self, err));
    NM_TRY(nm_prepare_ids(self, err));
    return finish(self, err);
}

static void release(nm_prepare *self)
{
    nm_counter_release(&self->user_symbols);
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        nm_counter_release(&self->words[side]);
        nm_counter_release(&self->bpe_counts[side]);
        nm_counter_release(&self->subwords[side]);
        NM_FREE(self->pieces[side].ends, self->pieces[side].numbers);
        nm_buffer_release(&self->spm_bytes[side]);
        if (!side || self->spm[side] != self->spm[0])
            nm_spm_free(self->spm[side]);
        if (self->vocab[side])
            nm_vocab_free(self->vocab[side]);
        for (int split = 0; split < NM_PREPARE_SPLITS; split++) {
            nm_file_writer_abort(&self->text[split][side]);
            nm_file_writer_abort(&self->numbers[split][side]);
            nm_corpus_writer_abort(&self->ids[split][side]);
        }
    }
    if (self->bpe)
        nm_bpe_free(self->bpe);
    nm_file_writer_abort(&self->links);
    nm_corpus_writer_abort(&self->alignments);
    nm_buffer_release(&self->checksums);
}

/* NM_USAGE for a run folder, with whose files those of the data folder would be mixed. One that is a data
 * folder already is accepted, because it may be prepared again. */
static nm_status check_output(const char *folder, nm_error *err)
{
    bool is_data, is_run;
    NM_TRY(nm_file_find_in(folder, "data.ini", &is_data, err));
    NM_TRY(nm_file_find_in(folder, "log.jsonl", &is_run, err));
    return is_run && !is_data
               ? nm_fail(err, NM_USAGE, "%s is the folder of a run: choose another data folder (--output)",
                         folder)
               : NM_OK;
}

nm_status nm_prepare_run(const nm_options *options, const nm_prepare_existing *like,
                         const nm_prepare_events *events, nm_prepare_report *report, nm_error *err)
{
    static const nm_prepare_existing none;
    const nm_prepare_config *config = nm_options_find(options, "prepare");
    NM_ASSERT(config);
    *report = (nm_prepare_report){0};
    NM_TRY(check_config(config, err));
    NM_TRY(check_output(config->output, err));
    nm_prepare self = {.options = options,
                       .config = config,
                       .like = like ? like : &none,
                       .events = events,
                       .report = report,
                       .sides = is_text(config) ? 1 : 2};
    report->sides = self.sides;
    self.threads = nm_threads_available(config->threads ? (int32_t)config->threads : nm_threads_default());
    bool existed = true;
    nm_folder_lock lock = {0};
    nm_status status = get_user_symbols(&self, err);
    NM_THEN(status, nm_file_find(config->output, &existed, err));
    NM_THEN(status, nm_folder_create(config->output, err));
    NM_THEN(status, nm_folder_lock_acquire(&lock, config->output, err));
    NM_THEN(status, run_steps(&self, err));
    release(&self);
    nm_folder_lock_release(&lock);
    if (status != NM_OK && !existed)
        rmdir(config->output); /* fails if it is not empty */
    return status;
}
