/* Detokenization: the output of mosesdecoder's detokenizer.perl without its special cases for Czech and
 * Finnish. Entities are replaced; then the class of each token determines the spaces before and after it.
 * Unlike the script, which joins the words of Korean, only scripts without spaces are joined, and the commas
 * and the ends of sentences of other scripts than Latin are attached. */
#include "text/moses_rules.h"

#include <stdlib.h>

#include "text/counter.h"

typedef struct piece {
    const char *text;
    size_t bytes;
} piece;

typedef struct joiner {
    const nm_moses_language *language;
    piece *words;
    size_t n, capacity;
    nm_buffer text;
    bool glue;         /* no space before the next token */
    nm_counter quotes; /* number of quotes of each kind so far */
    nm_buffer *out;
} joiner;

/* Entities. */

static const struct {
    const char *escape;
    char plain;
} escapes[] = {
    {"&bar;", '|'},  {"&#124;", '|'},  {"&lt;", '<'},  {"&gt;", '>'},  {"&bra;", '['}, {"&ket;", ']'},
    {"&quot;", '"'}, {"&apos;", '\''}, {"&#91;", '['}, {"&#93;", ']'}, {"&amp;", '&'},
};

/* Joins hyphens that were split: the spaces around " @-@ " are removed, too. */
static void join_hyphens(const char *line, size_t bytes, nm_buffer *out)
{
    static const char mark[] = " @-@ ";
    const size_t length = sizeof mark - 1;
    nm_buffer_reserve(out, bytes);
    for (size_t at = 0; at < bytes;) {
        if (line[at] == ' ' && bytes - at >= length && !memcmp(line + at, mark, length)) {
            nm_buffer_append_byte(out, '-');
            at += length;
        } else {
            nm_buffer_append_byte(out, line[at++]);
        }
    }
}

/* One pass gives the same result as the substitutions of the script: only &amp; produces a character that
 * starts an entity, and the script replaces it last. */
static void unescape(nm_buffer *text)
{
    size_t kept = 0;
    for (size_t at = 0; at < text->bytes;) {
        char byte = text->data[at];
        size_t length = 1;
        for (size_t i = 0; byte == '&' && i < sizeof escapes / sizeof escapes[0] && length == 1; i++) {
            size_t bytes = strlen(escapes[i].escape);
            if (text->bytes - at >= bytes && !memcmp(text->data + at, escapes[i].escape, bytes)) {
                byte = escapes[i].plain;
                length = bytes;
            }
        }
        text->data[kept++] = byte;
        at += length;
    }
    text->bytes = kept;
    text->data[kept] = 0;
}

/* Like Perl's split: a space after a space gives an empty token; empty tokens at the end are dropped. */
static void split_words(joiner *self)
{
    const char *text = self->text.data;
    size_t bytes = self->text.bytes;
    while (bytes && text[bytes - 1] == ' ')
        bytes--;
    for (size_t at = 0; at < bytes;) {
        const char *space = memchr(text + at, ' ', bytes - at);
        size_t length = space ? (size_t)(space - text) - at : bytes - at;
        NM_GROW(self->words, self->n, self->capacity);
        self->words[self->n++] = (piece){text + at, length};
        at += length + 1;
    }
}

/* Classes of tokens. */

static uint32_t first_point(piece word)
{
    size_t at = 0;
    return word.bytes ? nm_utf8_next(word.text, &at) : 0;
}

static uint32_t last_point(piece word)
{
    size_t at = word.bytes;
    if (!at)
        return 0;
    do
        at--;
    while (nm_utf8_continues(word.text[at]));
    return nm_utf8_next(word.text, &at);
}

static bool consists_of(piece word, bool (*belongs)(uint32_t))
{
    for (size_t at = 0; at < word.bytes;)
        if (!belongs(nm_utf8_next(word.text, &at)))
            return false;
    return word.bytes > 0;
}

/* Blocks of the scripts whose words are joined: those of the script without Hangul, which has spaces between
 * words, and with full-width punctuation. */
static bool is_cjk(uint32_t point)
{
    static const uint32_t ranges[][2] = {
        {0x2E80, 0x312F}, {0x3190, 0xA4CF}, {0xA840, 0xA87F}, {0xF900, 0xFAFF}, {0xFE30, 0xFE4F},
        {0xFF01, 0xFF0F}, {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF9F}, {0x20000, 0x2FFFF}};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (point >= ranges[i][0] && point <= ranges[i][1])
            return true;
    return false;
}

static bool is_opening(uint32_t point)
{
    return point == '(' || point == '[' || point == '{' || point == 0xBF || point == 0xA1 ||
           nm_unicode_is_currency(point);
}

/* Commas, semicolons, percent signs and the ends of sentences, also those of other scripts, which the script
 * leaves apart. */
static bool is_closing(uint32_t point)
{
    static const uint32_t others[] = {
        0x589,                                          /* Armenian */
        0x60C,  0x61B,  0x61F,  0x66A,                  /* Arabic */
        0x6D4,                                          /* Urdu */
        0x964,  0x965,                                  /* danda of Indic scripts */
        0x1362, 0x1363, 0x1364, 0x1367,                 /* Ethiopic */
        0x3001, 0x3002,                                 /* ideographic */
        0xFF01, 0xFF0C, 0xFF0E, 0xFF1A, 0xFF1B, 0xFF1F, /* full-width */
    };
    if (point < 0x80)
        return point && strchr(",.?!:;\\%}])", (int)point);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (point == others[i])
            return true;
    return false;
}

static bool is_quote(uint32_t point)
{
    return point == '\'' || point == '"' || point == '`' || point == 0x201E || point == 0x201C;
}

static bool is_typographic_quote(uint32_t point)
{
    return point == 0x201C || point == 0x201D || point == 0x201E;
}

static bool is_contraction(const joiner *self, size_t i)
{
    piece word = self->words[i];
    if (self->language->apostrophe != NM_MOSES_RIGHT || i == 0 || word.bytes < 2 || word.text[0] != '\'')
        return false;
    size_t second = 1;
    uint32_t before = last_point(self->words[i - 1]);
    return nm_moses_is_alpha(nm_utf8_next(word.text, &second)) &&
           (nm_unicode_is_alnum(before) || nm_unicode_is_mark(before));
}

static bool is_elision(const joiner *self, size_t i)
{
    piece word = self->words[i];
    if (self->language->apostrophe != NM_MOSES_LEFT || i + 1 >= self->n || word.bytes < 2 ||
        word.text[word.bytes - 1] != '\'')
        return false;
    return nm_moses_is_alpha(last_point((piece){word.text, word.bytes - 1})) &&
           nm_moses_is_alpha(first_point(self->words[i + 1]));
}

/* Joining. */

static void put(joiner *self, piece word, bool space_before, bool glue_next)
{
    if (space_before && !self->glue)
        nm_buffer_append_byte(self->out, ' ');
    nm_buffer_append(self->out, word.text, word.bytes);
    self->glue = glue_next;
}

/* Quotes of each kind alternately open and close. Typographic double quotes are of the same kind as the ASCII
 * one. */
static void put_quote(joiner *self, size_t i)
{
    piece word = self->words[i];
    bool single = word.bytes == 1 && word.text[0] == '\'';
    bool typographic = consists_of(word, is_typographic_quote);
    size_t kind =
        nm_counter_add(&self->quotes, typographic ? "\"" : word.text, typographic ? 1 : word.bytes, 0);
    int64_t *seen = &self->quotes.items[kind].count;
    if (*seen % 2 == 1) {
        put(self, word, false, false);
        ++*seen;
    } else if (single && self->language->apostrophe == NM_MOSES_RIGHT && i > 0 &&
               last_point(self->words[i - 1]) == 's') {
        put(self, word, false, false); /* the Jones' house */
    } else {
        put(self, word, true, true);
        ++*seen;
    }
}

static void put_word(joiner *self, size_t i)
{
    piece word = self->words[i];
    if (consists_of(word, is_opening)) {
        put(self, word, true, true);
    } else if (consists_of(word, is_closing)) {
        bool spaced =
            !strcmp(self->language->code, "fr") && word.bytes == 1 && strchr("?!:;\\%", word.text[0]);
        if (spaced)
            nm_buffer_append_byte(self->out, ' ');
        put(self, word, false, false);
    } else if (is_cjk(first_point(word))) {
        put(self, word, i == 0 || !is_cjk(last_point(self->words[i - 1])), false);
    } else if (is_contraction(self, i)) {
        put(self, word, false, false);
    } else if (is_elision(self, i)) {
        put(self, word, true, true);
    } else if (consists_of(word, is_quote)) {
        put_quote(self, i);
    } else {
        put(self, word, true, false);
    }
}

static void clean_spaces(nm_buffer *text, size_t start)
{
    size_t kept = start;
    for (size_t i = start; i < text->bytes; i++)
        if (text->data[i] != ' ' || (kept > start && text->data[kept - 1] != ' '))
            text->data[kept++] = text->data[i];
    if (kept > start && text->data[kept - 1] == ' ')
        kept--;
    text->bytes = kept;
    text->data[kept] = 0;
}

void nm_moses_detokenize(const nm_moses_language *language, const char *line, size_t bytes, nm_buffer *out)
{
    size_t start = out->bytes;
    if (bytes > 2 && line[0] == '<' && line[bytes - 1] == '>') {
        nm_buffer_append(out, line, bytes); /* a line of markup */
        return;
    }
    joiner self = {.language = language, .out = out};
    nm_buffer spaced = {0};
    nm_buffer_append_byte(&spaced, ' ');
    nm_buffer_append(&spaced, line, bytes);
    nm_buffer_append_byte(&spaced, ' ');
    join_hyphens(spaced.data, spaced.bytes, &self.text);
    unescape(&self.text);
    split_words(&self);
    for (size_t i = 0; i < self.n; i++)
        put_word(&self, i);
    nm_buffer_reserve(out, 0);
    clean_spaces(out, start);
    nm_buffer_release(&spaced);
    nm_buffer_release(&self.text);
    nm_counter_release(&self.quotes);
    free(self.words);
}
