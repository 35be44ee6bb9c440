/* Text to ids and back by what travels in a language model's file: tokenizer, case, BPE, dictionary. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/prepare.h"
#include "task/lm_task.h"
#include "text/utf8.h"
#include "text/words.h"

struct nm_lm_text {
    const nm_lm_parts *parts;
    nm_options *settings; /* [prepare] */
    bool lowercase;
    nm_tokenizer tokenizer;
    nm_bpe *bpe;
    nm_bpe_applier *applier;
    nm_buffer words, other;
};

static nm_status open_bpe(nm_lm_text *self, const nm_prepare_config *config, nm_error *err)
{
    const char *codes = self->parts->texts[NM_LM_CODES];
    if (!codes)
        return NM_OK;
    NM_TRY(nm_bpe_parse(codes, strlen(codes), "the model's BPE codes", &self->bpe, err));
    int64_t threshold = config->bpe_vocabulary_threshold;
    const nm_vocab *units = self->parts->units ? self->parts->units : self->parts->vocab;
    self->applier = nm_bpe_applier_create(self->bpe, threshold ? &units->symbols : NULL, threshold);
    return NM_OK;
}

static nm_status open_text(nm_lm_text *self, nm_error *err)
{
    const nm_prepare_config *config =
        nm_options_add(self->settings, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    NM_TRY(nm_options_read_text(self->settings, "the model's data.ini", self->parts->texts[NM_LM_SETTINGS],
                                err));
    self->lowercase = config->lowercase;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.aggressive = config->aggressive;
    options.escape = config->escape;
    if (strcmp(config->tokenizer, "none") && *config->source_lang)
        options.language = config->source_lang;
    NM_TRY(nm_tokenizer_open(&self->tokenizer, config->tokenizer, &options, err));
    return open_bpe(self, config, err);
}

nm_status nm_lm_text_create(nm_lm_text **out, const nm_lm_parts *parts, nm_error *err)
{
    nm_lm_text *self = nm_allocate(sizeof *self);
    *self = (nm_lm_text){.parts = parts, .settings = nm_options_create()};
    nm_status status = open_text(self, err);
    if (status != NM_OK) {
        nm_lm_text_free(self);
        return status;
    }
    *out = self;
    return NM_OK;
}

void nm_lm_text_free(nm_lm_text *self)
{
    if (!self)
        return;
    nm_bpe_applier_free(self->applier);
    nm_bpe_free(self->bpe);
    if (self->tokenizer.type)
        nm_tokenizer_close(&self->tokenizer);
    nm_options_free(self->settings);
    nm_buffer_release(&self->words);
    nm_buffer_release(&self->other);
    free(self);
}

static int64_t count_words(const nm_buffer *line)
{
    const char *word;
    size_t at = 0, bytes;
    int64_t n = 0;
    while (nm_word_next(line->data, line->bytes, &at, &word, &bytes))
        n++;
    return n;
}

size_t nm_lm_encode(nm_lm_text *self, const char *line, size_t bytes, nm_ids *ids, int64_t *words)
{
    nm_buffer *units = &self->words, *other = &self->other;
    nm_buffer_clear(units);
    nm_buffer_clear(other);
    nm_tokenize(&self->tokenizer, line, bytes, self->lowercase ? other : units);
    if (self->lowercase)
        nm_utf8_lowercase(other->data, other->bytes, units);
    *words += count_words(units);
    if (self->applier) {
        nm_buffer_clear(other);
        nm_bpe_apply_line(self->applier, units->data, units->bytes, other);
        units = other;
    }
    return nm_vocab_encode(self->parts->vocab, units->data, units->bytes, ids);
}

static void decode_line(nm_lm_text *self, const int32_t *ids, size_t n, nm_buffer *out)
{
    nm_buffer *units = &self->words, *words = &self->other;
    nm_buffer_clear(units);
    nm_buffer_clear(words);
    nm_vocab_decode(self->parts->vocab, ids, n, units);
    nm_bpe_remove(units->data, units->bytes, words);
    nm_detokenize(&self->tokenizer, words->data, words->bytes, out);
}

void nm_lm_decode(nm_lm_text *self, const int32_t *ids, size_t n, nm_buffer *out)
{
    for (size_t begin = 0; begin < n;) {
        size_t end = begin;
        while (end < n && ids[end] != self->parts->vocab->eos)
            end++;
        decode_line(self, ids + begin, end - begin, out);
        if (end < n)
            nm_buffer_append_byte(out, '\n');
        begin = end + 1;
    }
}

static nm_status encode_lines(nm_lm_text *self, nm_lines *lines, nm_ids *ids, int64_t *words,
                              int64_t *unknown, nm_error *err)
{
    for (;;) {
        bool more;
        NM_TRY(nm_lines_next(lines, &more, err));
        if (!more)
            return NM_OK;
        NM_TRY(nm_line_check(lines, err));
        const char *nul = memchr(lines->text, 0, lines->bytes);
        if (nul)
            return nm_fail(err, NM_FORMAT, "%s:%lld: not text: byte 0x00 at position %zu", lines->path,
                           (long long)lines->number, (size_t)(nul - lines->text) + 1);
        *unknown += (int64_t)nm_lm_encode(self, lines->text, lines->bytes, ids, words);
        nm_ids_append(ids, self->parts->vocab->eos);
        *words += 1;
    }
}

nm_status nm_lm_encode_file(nm_lm_text *self, const char *path, nm_ids *ids, int64_t *words, int64_t *unknown,
                            nm_error *err)
{
    FILE *stream;
    nm_lines lines;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    nm_lines_init(&lines, stream, strcmp(path, "-") ? path : "standard input");
    nm_status status = encode_lines(self, &lines, ids, words, unknown, err);
    nm_lines_release(&lines);
    if (stream != stdin)
        fclose(stream);
    return status;
}
