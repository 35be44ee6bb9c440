/* basic_english, the tokenizer of torchtext's text classifiers (torchtext.data.utils,
 * _basic_english_normalize): lower case; ' . , ( ) ! ? become tokens; double quotes are removed; <br />, ;
 * and : become spaces. Other control characters are removed, as by every tokenizer here. Detokenization
 * cannot restore the text. */
#include "text/tokenizer.h"

#include <stdlib.h>

#include "text/utf8.h"

static nm_status basic_create(const nm_tokenizer_options *options, void **state, nm_error *err)
{
    (void)options, (void)err;
    *state = nm_allocate(sizeof(nm_buffer));
    return NM_OK;
}

static void basic_free(void *state)
{
    nm_buffer_release(state);
    free(state);
}

/* Python's str.split() also splits at the four ASCII separators 0x1C to 0x1F. */
static bool separates_tokens(uint32_t point)
{
    return nm_unicode_is_space(point) || (point >= 0x1C && point <= 0x1F) || point == ';' || point == ':';
}

static bool is_punctuation(uint32_t point)
{
    return point < 0x80 && point && strchr("'.,()!?", (int)point);
}

/* As in torchtext, quotes are removed before line breaks are searched: <b"r /> is a line break. */
static void lower_without_quotes(const char *line, size_t bytes, nm_buffer *out)
{
    nm_buffer_clear(out);
    for (size_t at = 0; at < bytes;) {
        const char *quote = memchr(line + at, '"', bytes - at);
        size_t run = quote ? (size_t)(quote - line) - at : bytes - at;
        nm_utf8_lowercase(line + at, run, out);
        at += run + 1;
    }
}

static void basic_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    static const char line_break[] = "<br />";
    nm_buffer *plain = state;
    lower_without_quotes(line, bytes, plain);
    bool pending = false;
    size_t start = out->bytes;
    for (size_t at = 0; at < plain->bytes;) {
        size_t first = at;
        if (!strncmp(plain->data + at, line_break, sizeof line_break - 1)) {
            at += sizeof line_break - 1;
            pending = true;
            continue;
        }
        uint32_t point = nm_utf8_next(plain->data, &at);
        bool punctuation = is_punctuation(point);
        if (separates_tokens(point)) {
            pending = true;
            continue;
        }
        if (point < 32)
            continue;
        if ((pending || punctuation) && out->bytes > start)
            nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, plain->data + first, at - first);
        pending = punctuation;
    }
}

static void basic_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    (void)state;
    nm_buffer_append(out, line, bytes);
}

const nm_tokenizer_type nm_tokenizer_basic_english = {
    .name = "basic_english",
    .title = "lower case, punctuation split off, as torchtext's basic_english",
    .create = basic_create,
    .tokenize = basic_tokenize,
    .detokenize = basic_detokenize,
    .free = basic_free,
};
