/* Encoding and decoding of text with the tokenizer, lowercasing, subword model and dictionary of a language
 * model's file. */
#include <stdlib.h>
#include <string.h>

#include "base/text_input.h"
#include "task/lm_task.h"
#include "task/text_coder.h"
#include "text/byte_level.h"
#include "text/utf8.h"
#include "base/words.h"

struct nm_lm_text {
    const nm_lm_parts *parts;
    nm_text_coder coder;
    nm_buffer subwords, words; /* of the line that is decoded */
};

nm_status nm_lm_text_create(nm_lm_text **out, const nm_lm_parts *parts, nm_error *err)
{
    nm_lm_text *self = nm_allocate(sizeof *self);
    self->parts = parts;
    const nm_subword_model subwords = {.codes = parts->texts[NM_LM_CODES],
                                       .subwords = parts->subwords ? parts->subwords : parts->vocab,
                                       .source_spm = parts->spm.spm};
    nm_status status =
        nm_text_coder_open_prepared(&self->coder, NULL, parts->texts[NM_LM_SETTINGS], &subwords, err);
    NM_RETURN_NEW(status, out, self, nm_lm_text_free);
}

void nm_lm_text_free(nm_lm_text *self)
{
    if (!self)
        return;
    nm_text_coder_close(&self->coder);
    nm_buffer_release(&self->subwords);
    nm_buffer_release(&self->words);
    free(self);
}

nm_document_rule nm_lm_document_rule(const nm_lm_text *self)
{
    return (nm_document_rule){self->coder.documents, self->coder.document_separator};
}

nm_status nm_lm_check_documents(const nm_lm_text *self, const char *name, nm_error *err)
{
    const nm_spm *spm = self->parts->spm.spm;
    if (self->coder.tokenizer.type == &nm_tokenizer_byte_level)
        return NM_OK;
    if (!spm)
        return nm_fail(err, NM_USAGE,
                       "%s: only the tokenizers byte_level and sentencepiece keep newlines, the model has %s",
                       name, self->coder.tokenizer.type->name);
    return nm_spm_keeps_newlines(spm)
               ? NM_OK
               : nm_fail(err, NM_USAGE, "%s: the SentencePiece model of the model does not keep newlines",
                         name);
}

nm_status nm_lm_check_known(nm_lm_text *self, const char *line, size_t bytes, const char *where,
                            nm_error *err)
{
    const nm_vocab *vocab = self->parts->vocab;
    const nm_buffer *subwords = &self->coder.subwords;
    if (!nm_vocab_omits(vocab, vocab->unk))
        return NM_OK;
    nm_text_coder_run(&self->coder, NM_FORMAT_RAW, line, bytes);
    const char *token;
    size_t at = 0, n;
    while (nm_word_next(subwords->data, subwords->bytes, &at, &token, &n))
        if (nm_vocab_find(vocab, token, n) == vocab->unk)
            return nm_fail(
                err, NM_MISMATCH,
                "%s: the token '%.*s', which the dictionary lacks, and the vocabulary has no <unk> "
                "(prepare.omit_symbols)",
                where, (int)(n < 60 ? n : 60), token);
    return NM_OK;
}

size_t nm_lm_encode(nm_lm_text *self, const char *line, size_t bytes, nm_ids *ids)
{
    nm_text_coder *coder = &self->coder;
    nm_text_coder_run(coder, NM_FORMAT_RAW, line, bytes);
    return nm_vocab_encode(self->parts->vocab, coder->subwords.data, coder->subwords.bytes, ids);
}

static void decode_line(nm_lm_text *self, const int32_t *ids, size_t n, nm_buffer *out)
{
    nm_buffer_clear(&self->subwords);
    nm_buffer_clear(&self->words);
    nm_vocab_decode(self->parts->vocab, ids, n, &self->subwords);
    if (self->coder.tokenizer.type == &nm_tokenizer_byte_level) {
        nm_byte_level_decode(self->subwords.data, self->subwords.bytes, out); /* newlines are kept */
        return;
    }
    if (self->coder.documents != NM_DOCUMENT_LINE && self->parts->spm.spm) {
        nm_spm_decode(self->parts->spm.spm, self->subwords.data, self->subwords.bytes, out);
        return;
    }
    if (self->coder.tokenizer.type->keeps_text) {
        nm_detokenize(&self->coder.tokenizer, self->subwords.data, self->subwords.bytes, out);
        return;
    }
    nm_bpe_remove(self->subwords.data, self->subwords.bytes, &self->words);
    nm_detokenize(&self->coder.tokenizer, self->words.data, self->words.bytes, out);
}

void nm_lm_decode(nm_lm_text *self, const int32_t *ids, size_t n, nm_buffer *out)
{
    for (size_t begin = 0; begin < n;) {
        size_t end = begin;
        while (end < n && ids[end] != self->parts->vocab->eos)
            end++;
        decode_line(self, ids + begin, end - begin, out);
        if (end < n && self->coder.documents == NM_DOCUMENT_LINE)
            nm_buffer_append_byte(out, '\n');
        begin = end + 1;
    }
}

bool nm_lm_keeps_text(const nm_lm_text *self)
{
    return self->coder.tokenizer.type->keeps_text;
}

/* Number of words, which are separated by whitespace, and of newlines. */
static int64_t count_words(const char *text, size_t bytes)
{
    int64_t n = 0;
    bool inside = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(text, &at);
        bool space = nm_unicode_is_space(point);
        n += point == '\n' || (!space && !inside);
        inside = !space;
    }
    return n;
}

static int64_t count_characters(const char *text, size_t bytes)
{
    int64_t n = 0;
    for (size_t i = 0; i < bytes; i++)
        n += ((unsigned char)text[i] & 0xC0) != 0x80; /* not a continuation byte */
    return n;
}

/* Adds the characters of the tokens that the dictionary lacks, without the marks of subwords, and one end for
 * each: what a model would have to spell. */
static void count_hidden(const nm_lm_text *self, const int32_t *ids, nm_lm_counts *counts)
{
    static const char joined[] = "@@", space[] = "\xE2\x96\x81";
    const nm_buffer *subwords = &self->coder.subwords;
    const char *token;
    size_t at = 0, n;
    for (; nm_word_next(subwords->data, subwords->bytes, &at, &token, &n); ids++) {
        if (*ids != self->parts->vocab->unk)
            continue;
        if (n > 2 && !memcmp(token + n - 2, joined, 2))
            n -= 2;
        if (n > 3 && !memcmp(token, space, 3)) {
            token += 3;
            n -= 3;
        }
        counts->hidden += count_characters(token, n) + 1;
    }
}

static void add_alphabet(const char *text, size_t bytes, nm_lm_counts *counts)
{
    if (!counts->alphabet)
        counts->alphabet = nm_allocate(NM_LM_ALPHABET_BYTES);
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(text, &at);
        if (!nm_unicode_is_space(point))
            counts->alphabet[point / 8] |= (unsigned char)(1 << point % 8);
    }
}

static nm_status encode_documents(nm_lm_text *self, nm_documents *documents, const nm_stop *stop, nm_ids *ids,
                                  nm_lm_counts *counts, nm_error *err)
{
    for (;;) {
        bool more;
        NM_TRY(nm_check_stop(stop, err));
        NM_TRY(nm_documents_next(documents, &more, err));
        if (!more)
            return NM_OK;
        size_t first = ids->n, unknown = nm_lm_encode(self, documents->text, documents->bytes, ids);
        if (unknown)
            count_hidden(self, ids->data + first, counts);
        add_alphabet(documents->text, documents->bytes, counts);
        counts->unknown += (int64_t)unknown;
        counts->words += count_words(documents->text, documents->bytes) + 1;
        counts->characters += count_characters(documents->text, documents->bytes) + 1;
        nm_ids_append(ids, self->parts->vocab->eos);
    }
}

nm_status nm_lm_encode_file(nm_lm_text *self, const nm_lm_file *file, const nm_stop *stop, nm_ids *ids,
                            nm_lm_counts *counts, nm_error *err)
{
    FILE *stream;
    NM_AUTO(nm_documents_release) nm_documents documents = {0};
    NM_TRY(nm_text_open_checked(&stream, file->path, file->encoding, err));
    nm_documents_init(&documents, stream, nm_input_name(file->path), file->rule);
    documents.checked = true;
    nm_status status = encode_documents(self, &documents, stop, ids, counts, err);
    nm_input_close(stream);
    return status;
}
