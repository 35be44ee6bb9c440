#include "data/subword_sampler.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/threads.h"
#include "data/prepare.h"
#include "text/user_symbols.h"
#include "text/utf8.h"

const nm_option_rule nm_subword_sampling_rules[] = {
    {"data.subword_nbest", "data.subword_sampling", "!0", "there is no subword sampling", NULL}, {0}};

enum { NOT_A_BYTE = -1 };

typedef struct entry { /* of the dictionary: the text that a subword represents */
    const char *text;
    uint32_t bytes;
    bool continues; /* "@@": a BPE subword that does not end a word */
    char byte;      /* of a byte piece of SentencePiece, with text == &byte */
} entry;

typedef struct worker { /* one per thread, for consecutive lines */
    nm_bpe_applier *applier;
    nm_spm_coder *coder;
    nm_buffer text, pieces;
    nm_ids ids; /* of its lines */
} worker;

struct nm_subword_sampler {
    nm_subword_sampling sampling;
    nm_subword_source source;
    nm_bpe *bpe;    /* NULL with SentencePiece */
    entry *entries; /* [size of the dictionary] */
    worker *workers;
    int32_t n_workers;
    nm_ids ids;
    uint64_t *offsets; /* [n + 1] */
    nm_corpus sampled;
    uint32_t epoch;
    bool has_epoch;
};

static nm_status check_dictionary(const char *settings, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_TRY(nm_prepare_read_settings(&options, &config, "data.ini", settings, err));
    if (!strcmp(config->tokenizer, nm_tokenizer_byte_level.name))
        return nm_fail(err, NM_USAGE, "data.subword_dropout: not supported with byte-level BPE");
    if (!config->subword_sampling)
        return nm_fail(err, NM_USAGE,
                       "data.subword_dropout: the dictionary lacks subwords that can be sampled; prepare the "
                       "data folder with --subword-sampling true");
    return NM_OK;
}

static nm_status check_source(const nm_subword_sampling *sampling, const nm_subword_source *source,
                              nm_error *err)
{
    const nm_spm *spm = source->spm;
    if (sampling->alpha > 0 && (!spm || spm->type != NM_SPM_UNIGRAM))
        return nm_fail(err, NM_USAGE,
                       "data.subword_sampling: the data folder has no SentencePiece model of type unigram; "
                       "data.subword_dropout is for BPE");
    if (sampling->dropout <= 0)
        return NM_OK;
    if (spm && spm->type != NM_SPM_BPE)
        return nm_fail(err, NM_USAGE,
                       "data.subword_dropout: the SentencePiece model of the data folder is not of type bpe; "
                       "data.subword_sampling is for unigram models");
    if (!spm && !source->codes)
        return nm_fail(err, NM_USAGE, "data.subword_dropout: the data folder has no BPE codes");
    return spm ? NM_OK : check_dictionary(source->settings, err);
}

static entry make_entry(const nm_count *symbol, const nm_spm *spm)
{
    entry made = {.text = symbol->text, .bytes = (uint32_t)symbol->bytes};
    if (!spm) {
        size_t mark = strlen(NM_BPE_SEPARATOR);
        made.continues =
            symbol->bytes > mark && !memcmp(symbol->text + symbol->bytes - mark, NM_BPE_SEPARATOR, mark);
        made.bytes -= made.continues ? (uint32_t)mark : 0;
        return made;
    }
    size_t piece = nm_counter_find(&spm->texts, symbol->text, symbol->bytes);
    if (piece != SIZE_MAX && spm->pieces[piece].type == NM_SPM_BYTE) {
        made.text = NULL;
        made.byte = (char)spm->pieces[piece].byte;
        made.bytes = 1;
    }
    return made;
}

/* Reads the BPE codes. User symbols are not split. */
static nm_status read_bpe(const nm_subword_source *source, nm_bpe **bpe, nm_error *err)
{
    NM_TRY(nm_bpe_parse(source->codes, strlen(source->codes), "codes.bpe", bpe, err));
    NM_AUTO(nm_options_release) nm_options *options;
    const nm_prepare_config *config;
    NM_AUTO(nm_counter_release) nm_counter symbols = {0};
    nm_status status = nm_prepare_read_settings(&options, &config, "data.ini", source->settings, err);
    NM_THEN(status, nm_user_symbols_parse(&symbols, config->user_symbols, err));
    if (status == NM_OK)
        nm_bpe_keep_whole(*bpe, &symbols);
    else
        nm_bpe_free(*bpe);
    return status;
}

nm_status nm_subword_sampler_create(nm_subword_sampler **out, const nm_subword_sampling *sampling,
                                    const nm_subword_source *source, nm_error *err)
{
    *out = NULL;
    if (sampling->dropout <= 0 && sampling->alpha <= 0)
        return NM_OK;
    NM_TRY(check_source(sampling, source, err));
    nm_bpe *bpe = NULL;
    if (!source->spm)
        NM_TRY(read_bpe(source, &bpe, err));
    nm_subword_sampler *self = nm_allocate(sizeof *self);
    *self = (nm_subword_sampler){.sampling = *sampling, .source = *source, .bpe = bpe};
    int32_t n = nm_vocab_size(source->vocab);
    self->entries = nm_allocate((size_t)n * sizeof *self->entries);
    for (int32_t i = 0; i < n; i++)
        self->entries[i] = make_entry(&source->vocab->symbols.items[i], source->spm);
    self->n_workers = nm_threads_available(source->threads ? source->threads : nm_threads_default());
    self->workers = nm_allocate((size_t)self->n_workers * sizeof *self->workers);
    for (int32_t i = 0; i < self->n_workers; i++) {
        if (bpe)
            self->workers[i].applier = nm_bpe_applier_create(bpe, NULL, 0);
        else
            self->workers[i].coder = nm_spm_coder_create(source->spm);
    }
    self->offsets = nm_allocate(((size_t)source->corpus->n + 1) * sizeof *self->offsets);
    *out = self;
    return NM_OK;
}

void nm_subword_sampler_free(nm_subword_sampler *self)
{
    if (!self)
        return;
    for (int32_t i = 0; i < self->n_workers; i++) {
        nm_bpe_applier_free(self->workers[i].applier);
        nm_spm_coder_free(self->workers[i].coder);
        nm_buffer_release(&self->workers[i].text);
        nm_buffer_release(&self->workers[i].pieces);
        nm_ids_release(&self->workers[i].ids);
    }
    NM_FREE(self->workers, self->entries);
    nm_bpe_free(self->bpe);
    nm_ids_release(&self->ids);
    NM_FREE(self->offsets, self);
}

static void append_ids(nm_ids *ids, const int32_t *more, size_t n)
{
    if (!n)
        return;
    NM_RESERVE(ids->data, ids->n + n, ids->capacity);
    memcpy(ids->data + ids->n, more, n * sizeof *more);
    ids->n += n;
}

/* Samples a segmentation of at->text, the text of n stored ids. Appends the stored ids if a subword is not in
 * the dictionary. */
static void sample_text(const nm_subword_sampler *self, worker *at, const int32_t *stored, size_t n,
                        nm_random_stream *random)
{
    const nm_buffer *text = &at->text;
    size_t before = at->ids.n;
    nm_buffer_clear(&at->pieces);
    if (self->bpe)
        nm_bpe_sample_word(at->applier, text->data, text->bytes, self->sampling.dropout, random, &at->pieces);
    else if (self->sampling.alpha > 0)
        nm_spm_sample(at->coder, text->data, text->bytes, self->sampling.alpha, self->sampling.nbest, random,
                      &at->pieces);
    else
        nm_spm_sample_merges(at->coder, text->data, text->bytes, self->sampling.dropout, random, &at->pieces);
    if (nm_vocab_encode(self->source.vocab, at->pieces.data, at->pieces.bytes, &at->ids)) {
        at->ids.n = before;
        append_ids(&at->ids, stored, n);
    }
}

/* Sets at->text to the text that begins at ids[0] and is segmented as a whole: a word for BPE, a run of
 * pieces without <unk> for SentencePiece. *fixed: it keeps its segmentation. Returns the number of its
 * ids. */
static size_t read_segment(const nm_subword_sampler *self, worker *at, const int32_t *ids, size_t n,
                           bool *fixed)
{
    size_t length = 0;
    bool ends = false;
    *fixed = false;
    nm_buffer_clear(&at->text);
    while (length < n && !ends) {
        const entry *next = &self->entries[ids[length]];
        bool unknown = ids[length] == self->source.vocab->unk;
        if (unknown && !self->bpe && length)
            break;
        *fixed |= unknown;
        nm_buffer_append(&at->text, next->text ? next->text : &next->byte, next->bytes);
        ends = self->bpe ? !next->continues : unknown;
        length++;
    }
    *fixed |= (self->bpe && (!ends || at->text.bytes > NM_BPE_SAMPLE_MAX_WORD)) ||
              nm_utf8_find_invalid(at->text.data, at->text.bytes) < at->text.bytes;
    return length;
}

static void sample_line(nm_subword_sampler *self, worker *at, int64_t line, uint32_t epoch)
{
    const nm_subword_source *source = &self->source;
    const int32_t *ids = source->corpus->ids + source->corpus->offsets[line];
    size_t n = (size_t)nm_corpus_length(source->corpus, line), start = at->ids.n, i = 0;
    bool ended = n && ids[n - 1] == source->vocab->eos;
    nm_random_stream random = nm_random_stream_at(source->seed, NM_RANDOM_SUBWORDS, source->side, epoch,
                                                  (uint64_t)line << NM_RANDOM_STREAM_BITS);
    while (i < n - ended) {
        bool fixed;
        size_t length = read_segment(self, at, ids + i, n - ended - i, &fixed);
        if (fixed)
            append_ids(&at->ids, ids + i, length);
        else
            sample_text(self, at, ids + i, length, &random);
        i += length;
    }
    if (ended)
        nm_ids_append(&at->ids, source->vocab->eos);
    if (source->max_length && (int64_t)(at->ids.n - start) > source->max_length) {
        at->ids.n = start;
        append_ids(&at->ids, ids, n);
    }
    self->offsets[line + 1] = at->ids.n - start; /* the length; the caller computes the offset */
}

const nm_corpus *nm_subword_sampler_sample(nm_subword_sampler *self, uint32_t epoch)
{
    int64_t n = self->source.corpus->n;
    if (self->has_epoch && self->epoch == epoch)
        return &self->sampled;
#pragma omp parallel for num_threads(self->n_workers) schedule(static, 1)
    for (int32_t w = 0; w < self->n_workers; w++) {
        worker *at = &self->workers[w];
        at->ids.n = 0;
        for (int64_t line = n * w / self->n_workers; line < n * (w + 1) / self->n_workers; line++)
            sample_line(self, at, line, epoch);
    }
    self->ids.n = 0;
    for (int32_t w = 0; w < self->n_workers; w++)
        append_ids(&self->ids, self->workers[w].ids.data, self->workers[w].ids.n);
    self->offsets[0] = 0;
    for (int64_t line = 0; line < n; line++)
        self->offsets[line + 1] += self->offsets[line];
    self->sampled = (nm_corpus){.ids = self->ids.data, .offsets = self->offsets, .n = n};
    self->epoch = epoch;
    self->has_epoch = true;
    return &self->sampled;
}
