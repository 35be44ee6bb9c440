/* Table of tokenizers, and the tokenizer `none`. */
#include "text/tokenizer.h"

#include <string.h>

#include "text/user_symbols.h"
#include "text/utf8.h"

const nm_tokenizer_type *const nm_tokenizer_types[] = {
    &nm_tokenizer_none,          &nm_tokenizer_moses,      &nm_tokenizer_basic_english,
    &nm_tokenizer_sentencepiece, &nm_tokenizer_byte_level, NULL};

nm_tokenizer_options nm_tokenizer_options_default(void)
{
    return (nm_tokenizer_options){.language = "en", .escape = true};
}

bool nm_tokenizer_has_language(const char *name)
{
    return strcmp(name, nm_tokenizer_none.name) && strcmp(name, nm_tokenizer_sentencepiece.name) &&
           strcmp(name, nm_tokenizer_byte_level.name);
}

const nm_tokenizer_type *nm_tokenizer_find(const char *name)
{
    const nm_tokenizer_type *const *type = nm_tokenizer_types;
    while (*type && strcmp((*type)->name, name))
        type++;
    return *type;
}

static nm_status set_user_symbols(nm_tokenizer *tokenizer, const char *list, nm_error *err)
{
    nm_counter *symbols = &tokenizer->user_symbols;
    NM_TRY(nm_user_symbols_parse(symbols, list, err));
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_status status = NM_OK;
    for (size_t i = 0; i < symbols->n && status == NM_OK; i++) {
        const nm_count *symbol = &symbols->items[i];
        nm_buffer_clear(&text);
        nm_detokenize(tokenizer, symbol->text, symbol->bytes, &text);
        if (text.bytes != symbol->bytes || memcmp(text.data, symbol->text, text.bytes))
            status = nm_fail(err, NM_USAGE, "user_symbols: \"%.100s\" would become \"%.100s\" in the output",
                             symbol->text, text.data);
    }
    return status;
}

nm_status nm_tokenizer_open(nm_tokenizer *tokenizer, const char *name, const nm_tokenizer_options *options,
                            nm_error *err)
{
    *tokenizer = (nm_tokenizer){0};
    size_t letters = strspn(options->language, "abcdefghijklmnopqrstuvwxyz");
    if (letters < 2 || letters > 3 || options->language[letters])
        return nm_fail(err, NM_USAGE, "language \"%.40s\": expected a code of two or three letters like de",
                       options->language);
    tokenizer->type = nm_tokenizer_find(name);
    if (!tokenizer->type)
        return nm_fail(err, NM_USAGE, "unknown tokenizer \"%.40s\"; available: " NM_TOKENIZER_NAMES, name);
    NM_TRY(tokenizer->type->create(options, &tokenizer->state, err));
    bool has_symbols = options->user_symbols && !tokenizer->type->keeps_text;
    return has_symbols ? set_user_symbols(tokenizer, options->user_symbols, err) : NM_OK;
}

void nm_tokenizer_close(nm_tokenizer *tokenizer)
{
    if (tokenizer->type)
        tokenizer->type->free(tokenizer->state);
    nm_counter_release(&tokenizer->user_symbols);
    *tokenizer = (nm_tokenizer){0};
}

/* Appends a space before a token unless it is the first one of the line, which begins at `start`. */
static void separate(nm_buffer *out, size_t start)
{
    if (out->bytes > start && out->data[out->bytes - 1] != ' ')
        nm_buffer_append_byte(out, ' ');
}

static void tokenize_part(const nm_tokenizer *tokenizer, const char *text, size_t bytes, size_t start,
                          nm_buffer *out)
{
    size_t before = out->bytes;
    separate(out, start);
    size_t first = out->bytes;
    tokenizer->type->tokenize(tokenizer->state, text, bytes, out);
    if (out->bytes == first)
        out->bytes = before;
}

static void tokenize_with_symbols(const nm_tokenizer *tokenizer, const char *line, size_t bytes,
                                  nm_buffer *out)
{
    const size_t start = out->bytes;
    for (size_t at = 0; at < bytes;) {
        size_t length, symbol = nm_user_symbols_find(&tokenizer->user_symbols, line, bytes, at, &length);
        tokenize_part(tokenizer, line + at, symbol - at, start, out);
        if (length) {
            separate(out, start);
            nm_buffer_append(out, line + symbol, length);
        }
        at = symbol + length;
    }
}

void nm_tokenizer_separate_symbols(const nm_tokenizer *tokenizer, const char *line, size_t bytes,
                                   nm_buffer *out)
{
    const size_t start = out->bytes;
    for (size_t at = 0; at < bytes;) {
        size_t length = 0, symbol = bytes;
        if (tokenizer->user_symbols.n)
            symbol = nm_user_symbols_find(&tokenizer->user_symbols, line, bytes, at, &length);
        nm_buffer_append(out, line + at, symbol - at);
        at = symbol + length;
        if (!length)
            return;
        separate(out, start);
        nm_buffer_append(out, line + symbol, length);
        if (at < bytes && line[at] != ' ')
            nm_buffer_append_byte(out, ' ');
    }
}

void nm_tokenize(const nm_tokenizer *tokenizer, const char *line, size_t bytes, nm_buffer *out)
{
    if (tokenizer->user_symbols.n)
        tokenize_with_symbols(tokenizer, line, bytes, out);
    else
        tokenizer->type->tokenize(tokenizer->state, line, bytes, out);
}

void nm_detokenize(const nm_tokenizer *tokenizer, const char *line, size_t bytes, nm_buffer *out)
{
    tokenizer->type->detokenize(tokenizer->state, line, bytes, out);
}

/* none: for tokenized text. Runs of Unicode whitespace become single spaces; other control characters are
 * removed. */

static nm_status none_create(const nm_tokenizer_options *options, void **state, nm_error *err)
{
    (void)options, (void)err;
    *state = NULL;
    return NM_OK;
}

static void none_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    (void)state;
    bool pending = false;
    size_t start = out->bytes;
    for (size_t at = 0; at < bytes;) {
        size_t first = at;
        uint32_t point = nm_utf8_next(line, &at);
        if (nm_unicode_is_space(point)) {
            pending = out->bytes > start;
        } else if (point >= 32) {
            if (pending)
                nm_buffer_append_byte(out, ' ');
            pending = false;
            nm_buffer_append(out, line + first, at - first);
        }
    }
}

static void none_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    (void)state;
    nm_buffer_append(out, line, bytes);
}

static void none_free(void *state)
{
    (void)state;
}

const nm_tokenizer_type nm_tokenizer_none = {
    .name = "none",
    .title = "tokens separated by whitespace already",
    .create = none_create,
    .tokenize = none_tokenize,
    .detokenize = none_detokenize,
    .free = none_free,
};
