#include "task/translator.h"

#include <stdlib.h>
#include <string.h>

#include "task/translation.h"

enum { LINE_BYTES_MAX = 1 << 20 }; /* longer lines are not sentences and are not tokenized */

struct nm_translator {
    nm_decoder *decoder;
    nm_text_format input, output;
    const nm_translation_parts *parts;
    nm_text_coder source;
    nm_tokenizer target;
    nm_buffer subwords, words, text; /* of a hypothesis */
};

/* ---- create and free ---- */

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

static nm_status open_text(nm_translator *self, nm_error *err)
{
    const nm_translation_parts *parts = self->parts;
    if (!parts->texts[NM_TEXT_SETTINGS])
        return nm_fail(err, NM_FORMAT, "the model has no data.ini: the preparation of its text is unknown");
    return nm_text_coder_open_prepared(&self->source, &self->target, parts->texts[NM_TEXT_SETTINGS],
                                       parts->texts[NM_TEXT_CODES],
                                       parts->source_units ? parts->source_units : parts->source_vocab, err);
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
    *self = (nm_translator){.input = config->input, .output = config->output, .parts = models[0].task.parts};
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
    nm_text_coder_close(&self->source);
    nm_tokenizer_close(&self->target);
    nm_buffer_release(&self->subwords);
    nm_buffer_release(&self->words);
    nm_buffer_release(&self->text);
    free(self);
}

int32_t nm_translator_longest(const nm_translator *self)
{
    return nm_decoder_longest(self->decoder);
}

/* ---- encoding and decoding of a line ---- */

/* Appends the ids of a line and eos; only eos for a line without words. */
static void encode(nm_translator *self, const char *line, size_t bytes, nm_ids *ids)
{
    nm_text_coder_run(&self->source, self->input, line, bytes);
    nm_vocab_encode(self->parts->source_vocab, self->source.subwords.data, self->source.subwords.bytes, ids);
    nm_ids_append(ids, self->parts->source_vocab->eos);
}

static char *hypothesis_text(nm_translator *self, const nm_hypothesis *hypothesis)
{
    nm_buffer_clear(&self->subwords);
    nm_buffer_clear(&self->words);
    nm_buffer_clear(&self->text);
    nm_vocab_decode(self->parts->target_vocab, hypothesis->ids, (size_t)hypothesis->n, &self->subwords);
    if (self->output == NM_FORMAT_SUBWORD)
        return nm_duplicate(self->subwords.data);
    nm_bpe_remove(self->subwords.data, self->subwords.bytes, &self->words);
    if (self->output == NM_FORMAT_TOKENIZED)
        return nm_duplicate(self->words.data);
    nm_detokenize(&self->target, self->words.data, self->words.bytes, &self->text);
    return nm_duplicate(self->text.data);
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
        out.list[i].text = hypothesis_text(self, &found->list[i]);
        out.list[i].score = found->list[i].score;
    }
    return out;
}

/* ---- translation of lines ---- */

/* The decoder leaves out empty sources (n = 0). */
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
        out[i] = (nm_translated){.too_long = bytes > LINE_BYTES_MAX};
        if (!out[i].too_long)
            encode(self, line, bytes, &ids);
        begins[i + 1] = ids.n;
    }
    nm_status status = decode_lines(self, &ids, begins, lines->n, out, err);
    nm_ids_release(&ids);
    free(begins);
    return status;
}
