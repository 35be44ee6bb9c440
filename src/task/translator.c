#include "task/translator.h"

#include <stdlib.h>
#include <string.h>

#include "data/prepare.h"
#include "task/translation.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

enum { LONGEST_LINE = 1 << 20 }; /* bytes; such a line is no sentence, and not worth tokenizing */

struct nm_translator {
    nm_decoder *decoder;
    nm_text_format input, output;
    const nm_translation_parts *parts;
    nm_options *settings; /* [prepare], read from the model's data.ini */
    bool lowercase;
    nm_tokenizer source, target;
    nm_bpe *bpe;
    nm_bpe_applier *applier;
    nm_buffer scratch[2];
};

/* ---- creating ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static nm_status check_models(const nm_loaded_model *models, int32_t n_models, nm_error *err)
{
    static const int shared[] = {NM_TEXT_SOURCE, NM_TEXT_TARGET, NM_TEXT_CODES};
    static const char *const names[] = {"source dictionaries", "target dictionaries", "BPE codes"};
    for (int32_t m = 0; m < n_models; m++) {
        const nm_translation_parts *parts = models[m].task.parts, *first = models[0].task.parts;
        if (models[m].task.type != &nm_task_translation)
            return nm_fail(err, NM_UNSUPPORTED, "model %d is for %s, not for translation", m + 1,
                           models[m].task.type->name);
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
            if (!same_text(parts->texts[shared[i]], first->texts[shared[i]]))
                return nm_fail(err, NM_MISMATCH, "models 1 and %d have different %s", m + 1, names[i]);
    }
    return NM_OK;
}

static nm_status open_tokenizers(nm_translator *self, const nm_prepare_config *config, nm_error *err)
{
    nm_tokenizer_options options = nm_tokenizer_options_default();
    bool plain = !strcmp(config->tokenizer, "none"); /* file suffixes need not be languages then */
    options.aggressive = config->aggressive;
    options.escape = config->escape;
    if (!plain)
        options.language = config->source_lang;
    NM_TRY(nm_tokenizer_open(&self->source, config->tokenizer, &options, err));
    if (!plain)
        options.language = config->target_lang;
    return nm_tokenizer_open(&self->target, config->tokenizer, &options, err);
}

static nm_status open_bpe(nm_translator *self, const nm_prepare_config *config, nm_error *err)
{
    const char *codes = self->parts->texts[NM_TEXT_CODES];
    if (!codes)
        return NM_OK;
    NM_TRY(nm_bpe_parse(codes, strlen(codes), "the model's BPE codes", &self->bpe, err));
    int64_t threshold = config->bpe_vocabulary_threshold;
    const nm_vocab *units = self->parts->source_units ? self->parts->source_units : self->parts->source_vocab;
    self->applier = nm_bpe_applier_create(self->bpe, threshold ? &units->symbols : NULL, threshold);
    return NM_OK;
}

static nm_status open_text(nm_translator *self, nm_error *err)
{
    const nm_prepare_config *config =
        nm_options_add(self->settings, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    const char *text = self->parts->texts[NM_TEXT_SETTINGS];
    if (!text)
        return nm_fail(err, NM_FORMAT,
                       "the model does not say how its text was prepared (no data.ini inside)");
    NM_TRY(nm_options_read_text(self->settings, "the model's data.ini", text, err));
    self->lowercase = config->lowercase;
    NM_TRY(open_tokenizers(self, config, err));
    return open_bpe(self, config, err);
}

static nm_status open_decoder(nm_translator *self, const nm_loaded_model *models, int32_t n_models,
                              const nm_decode_options *options, nm_error *err)
{
    const nm_vocab *vocab = self->parts->target_vocab;
    const nm_special_tokens words = {nm_translation_first_id(vocab), vocab->eos, vocab->pad};
    if (options->nbest > options->beam)
        return nm_fail(err, NM_USAGE, "decode.nbest = %lld is more than decode.beam = %lld",
                       (long long)options->nbest, (long long)options->beam);
    nm_model **list = nm_allocate((size_t)n_models * sizeof(nm_model *));
    for (int32_t m = 0; m < n_models; m++)
        list[m] = models[m].model;
    nm_status status = nm_decoder_create(&self->decoder, list, n_models, options, &words, err);
    free(list);
    return status;
}

nm_status nm_translator_create(nm_translator **out, const nm_loaded_model *models, int32_t n_models,
                               const nm_translator_config *config, nm_error *err)
{
    NM_TRY(check_models(models, n_models, err));
    nm_translator *self = nm_allocate(sizeof *self);
    *self = (nm_translator){.input = config->input,
                            .output = config->output,
                            .parts = models[0].task.parts,
                            .settings = nm_options_create()};
    nm_status status = open_text(self, err);
    if (status == NM_OK)
        status = open_decoder(self, models, n_models, config->decode, err);
    if (status != NM_OK) {
        nm_translator_free(self);
        return status;
    }
    *out = self;
    return NM_OK;
}

void nm_translator_free(nm_translator *self)
{
    if (!self)
        return;
    nm_decoder_free(self->decoder);
    nm_bpe_applier_free(self->applier);
    nm_bpe_free(self->bpe);
    if (self->source.type)
        nm_tokenizer_close(&self->source);
    if (self->target.type)
        nm_tokenizer_close(&self->target);
    nm_options_free(self->settings);
    nm_buffer_release(&self->scratch[0]);
    nm_buffer_release(&self->scratch[1]);
    free(self);
}

int32_t nm_translator_longest(const nm_translator *self)
{
    return nm_decoder_longest(self->decoder);
}

/* ---- a line there and back ---- */

/* Appends the ids of a line and eos; only eos when the line has no words. */
static void encode(nm_translator *self, const char *line, size_t bytes, nm_ids *ids)
{
    nm_buffer *words = &self->scratch[0], *other = &self->scratch[1];
    nm_buffer_clear(words);
    nm_buffer_clear(other);
    if (self->input == NM_FORMAT_RAW && self->lowercase) {
        nm_tokenize(&self->source, line, bytes, other);
        nm_utf8_lowercase(other->data, other->bytes, words);
        nm_buffer_clear(other);
    } else if (self->input == NM_FORMAT_RAW) {
        nm_tokenize(&self->source, line, bytes, words);
    } else {
        nm_buffer_append(words, line, bytes);
    }
    if (self->input != NM_FORMAT_SUBWORD && self->applier) {
        nm_bpe_apply_line(self->applier, words->data, words->bytes, other);
        words = other;
    }
    nm_vocab_encode(self->parts->source_vocab, words->data, words->bytes, ids);
    nm_ids_append(ids, self->parts->source_vocab->eos);
}

static char *text_of(nm_translator *self, const nm_hypothesis *hypothesis)
{
    nm_buffer *units = &self->scratch[0], *words = &self->scratch[1];
    nm_buffer_clear(units);
    nm_buffer_clear(words);
    nm_vocab_decode(self->parts->target_vocab, hypothesis->ids, (size_t)hypothesis->n, units);
    if (self->output == NM_FORMAT_SUBWORD)
        return nm_duplicate(units->data);
    nm_bpe_remove(units->data, units->bytes, words);
    if (self->output == NM_FORMAT_TOKENIZED)
        return nm_duplicate(words->data);
    nm_buffer_clear(units);
    nm_detokenize(&self->target, words->data, words->bytes, units);
    return nm_duplicate(units->data);
}

void nm_translated_release(nm_translated *translated)
{
    for (int32_t i = 0; i < translated->n; i++)
        free(translated->list[i].text);
    free(translated->list);
    *translated = (nm_translated){0};
}

static nm_translated translated_of(nm_translator *self, const nm_translation *found)
{
    nm_translated out = {.n = found->n, .list = nm_allocate((size_t)found->n * sizeof *out.list)};
    for (int32_t i = 0; i < found->n; i++) {
        out.list[i].text = text_of(self, &found->list[i]);
        out.list[i].score = found->list[i].score;
    }
    return out;
}

/* ---- many lines ---- */

/* An empty source (n = 0) is left out by the decoder. */
static nm_status decode_lines(nm_translator *self, const nm_ids *ids, const size_t *begins, size_t n,
                              nm_translated *out, nm_error *err)
{
    nm_id_list *sources = nm_allocate(n * sizeof *sources);
    nm_translation *found = nm_allocate(n * sizeof *found);
    for (size_t i = 0; i < n; i++) {
        size_t length = begins[i + 1] - begins[i];
        out[i].too_long |= length > (size_t)nm_translator_longest(self);
        if (length > 1 && !out[i].too_long)
            sources[i] = (nm_id_list){ids->data + begins[i], (int32_t)length};
    }
    nm_status status = nm_decode(self->decoder, sources, n, found, err);
    for (size_t i = 0; i < n && status == NM_OK; i++) {
        bool too_long = out[i].too_long;
        out[i] = translated_of(self, &found[i]);
        out[i].too_long = too_long;
        nm_translation_release(&found[i]);
    }
    free(sources);
    free(found);
    return status;
}

nm_status nm_translator_run(nm_translator *self, const nm_line_list *lines, nm_translated *out, nm_error *err)
{
    nm_ids ids = {0};
    size_t *begins = nm_allocate((lines->n + 1) * sizeof *begins);
    for (size_t i = 0; i < lines->n; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(lines, i, &bytes);
        out[i] = (nm_translated){.too_long = bytes > LONGEST_LINE};
        if (!out[i].too_long)
            encode(self, line, bytes, &ids);
        begins[i + 1] = ids.n;
    }
    nm_status status = decode_lines(self, &ids, begins, lines->n, out, err);
    nm_ids_release(&ids);
    free(begins);
    return status;
}
