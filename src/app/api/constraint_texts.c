#include "api/constraint_texts.h"

#include <string.h>

#include "text/bpe.h"
#include "text/utf8.h"
#include "base/words.h"

static bool *joined_subwords(const nm_vocab *vocab)
{
    static const size_t mark = sizeof NM_BPE_SEPARATOR - 1;
    bool *joined = nm_allocate((size_t)nm_vocab_size(vocab) * sizeof *joined);
    for (int32_t i = 0; i < nm_vocab_size(vocab); i++) {
        const char *symbol = nm_vocab_symbol(vocab, i);
        size_t bytes = strlen(symbol);
        joined[i] = bytes > mark && !strcmp(symbol + bytes - mark, NM_BPE_SEPARATOR);
    }
    return joined;
}

/* Whether the first and the last character of a text belong to scripts without spaces. */
typedef struct unspaced_ends {
    bool first, last;
} unspaced_ends;

static unspaced_ends ends_of(const char *text, size_t bytes)
{
    unspaced_ends ends = {0};
    uint32_t point = 0;
    bool started = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t next = nm_utf8_next(text, &at);
        if (nm_unicode_is_space(next))
            continue;
        if (!started)
            ends.first = nm_unicode_is_unspaced(next);
        started = true;
        point = next;
    }
    ends.last = nm_unicode_is_unspaced(point);
    return ends;
}

/* Appends a phrase of the ids from index `from` on, if there are any. */
static void add_phrase(nm_constraint_texts *self, size_t from, bool second)
{
    if (self->ids.n == from)
        return;
    int32_t n_seconds = self->n > self->first ? self->phrases[self->n - 1].n_seconds : 0;
    NM_APPEND(self->phrases, self->n, self->capacity,
              (nm_phrase){.n = (int32_t)(self->ids.n - from), .n_seconds = n_seconds + second});
}

/* Adds the pieces of a phrase within a text, without U+2581 at its boundary, as its second form. */
static void add_form_inside(nm_constraint_texts *self, size_t from)
{
    const nm_vocab *vocab = self->parts->target_vocab;
    const nm_spm *spm = self->parts->spm[1].spm;
    size_t before = self->ids.n, n = before - from;
    if (!self->inside)
        self->inside = nm_spm_coder_create(spm);
    nm_buffer_clear(&self->pieces);
    nm_spm_encode_inside(self->inside, self->coder->words.data, self->coder->words.bytes, &self->pieces);
    bool unknown = nm_vocab_encode(vocab, self->pieces.data, self->pieces.bytes, &self->ids) > 0;
    bool equal = self->ids.n - before == n &&
                 !memcmp(self->ids.data + from, self->ids.data + before, n * sizeof *self->ids.data);
    if (unknown || equal) {
        self->ids.n = before;
        return;
    }
    if (self->ids.n > before)
        self->phrases[self->n - 1].initial = !spm->space_is_suffix;
    add_phrase(self, before, true);
}

/* Adds a phrase of BPE subwords whose last word continues as its second form, if the vocabulary has its last
 * subword. */
static void add_form_continued(nm_constraint_texts *self, size_t from)
{
    const nm_vocab *vocab = self->parts->target_vocab;
    size_t before = self->ids.n;
    NM_AUTO_FREE char *last =
        nm_format("%s" NM_BPE_SEPARATOR, nm_vocab_symbol(vocab, self->ids.data[before - 1]));
    int32_t id = nm_vocab_find(vocab, last, strlen(last));
    if (id == vocab->unk)
        return;
    for (size_t i = from; i + 1 < before; i++)
        nm_ids_append(&self->ids, self->ids.data[i]);
    nm_ids_append(&self->ids, id);
    bool inside = self->phrases[self->n - 1].inside;
    add_phrase(self, before, true);
    self->phrases[self->n - 1].inside = inside;
}

static nm_status encode_phrase(nm_constraint_texts *self, const char *phrase, size_t bytes, nm_error *err)
{
    const nm_vocab *vocab = self->parts->target_vocab;
    size_t before = self->ids.n;
    nm_text_coder_run(self->coder, self->format, phrase, bytes);
    if (nm_vocab_encode(vocab, self->coder->subwords.data, self->coder->subwords.bytes, &self->ids))
        return nm_fail(err, NM_MISMATCH, "constraint \"%.*s\": the model cannot produce all of it",
                       (int)(bytes < 200 ? bytes : 200), phrase);
    add_phrase(self, before, false);
    if (self->ids.n == before)
        return NM_OK;
    self->n_constraints++;
    const nm_spm *spm = self->parts->spm[1].spm;
    const unspaced_ends ends = ends_of(self->coder->words.data, self->coder->words.bytes);
    self->phrases[self->n - 1].inside = ends.first;
    if (spm && (spm->space_is_suffix ? ends.last : ends.first))
        add_form_inside(self, before);
    if (self->joined && ends.last)
        add_form_continued(self, before);
    return NM_OK;
}

nm_status nm_constraint_texts_encode(nm_constraint_texts *self, const char *const *texts, size_t n,
                                     nm_error *err)
{
    self->lists = nm_allocate(n * sizeof *self->lists);
    if (self->coder->tokenizer.type == &nm_tokenizer_byte_level)
        return nm_fail(err, NM_UNSUPPORTED,
                       "constraints: not supported with byte-level BPE, whose subwords contain spaces");
    if (self->parts->texts[NM_TEXT_CODES])
        self->joined = joined_subwords(self->parts->target_vocab);
    for (size_t i = 0; i < n; i++) {
        NM_TRY(nm_check_stop(self->stop, err));
        self->first = self->n;
        self->n_constraints = 0;
        const char *end = texts[i] + nm_text_length(texts[i]);
        for (const char *at = texts[i]; at < end;) {
            const char *tab = memchr(at, '\t', (size_t)(end - at)), *stop = tab ? tab : end;
            nm_status status = encode_phrase(self, at, (size_t)(stop - at), err);
            if (status != NM_OK) {
                nm_error_prefix(err, "text %zu", i);
                return status;
            }
            at = tab ? tab + 1 : end;
        }
        if (self->n_constraints > NM_CONSTRAINTS_MAX)
            return nm_fail(err, NM_USAGE,
                           "text %zu: a translation has %zu constraints; at most %d are possible", i,
                           self->n_constraints, NM_CONSTRAINTS_MAX);
        self->lists[i].n = (int32_t)(self->n - self->first);
    }
    const int32_t *ids = self->ids.data;
    for (size_t p = 0; p < self->n; ids += self->phrases[p++].n)
        self->phrases[p].ids = ids;
    size_t first = 0;
    for (size_t i = 0; i < n; first += (size_t)self->lists[i++].n) {
        self->lists[i].phrases = self->phrases ? self->phrases + first : NULL;
        self->lists[i].joined = self->joined;
    }
    return NM_OK;
}

void nm_constraint_texts_release(nm_constraint_texts *self)
{
    nm_ids_release(&self->ids);
    nm_buffer_release(&self->pieces);
    nm_spm_coder_free(self->inside);
    NM_FREE(self->phrases, self->joined, self->lists);
}
