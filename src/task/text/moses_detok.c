/* Detokenization: the output of mosesdecoder's detokenizer.perl without its special cases for Czech and
 * Finnish. Entities are replaced; then the class of each token determines the spaces before and after it.
 * Unlike the script, which joins the words of Korean, only scripts without spaces are joined, and the commas
 * and the ends of sentences of other scripts than Latin are attached. So are typographic apostrophes, quotes
 * whose direction is known (the script leaves both apart), and the parts of addresses, times and words that
 * / or _ joins. */
#include "text/moses_rules.h"

#include <stdlib.h>
#include <strings.h>

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
    bool *joined; /* [n], whether no space is before a word, which continues an address or the like */
    bool glue;    /* no space before the next token */
    bool low_quote, low_single, single_quote; /* an open quote: „, ‚, ‘ */
    bool guillemets[2];                       /* an open « or », and an open ‹ or › */
    nm_counter quotes;                        /* number of quotes of each kind so far */
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
        NM_APPEND(self->words, self->n, self->capacity, (piece){text + at, length});
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
        0x2026,                                         /* … */
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
    return point == '\'' || point == '"' || point == '`' || point == 0x201E || point == 0x201C ||
           point == 0x201D;
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

/* Whether a word can be next to the mark between the parts of an address. */
static bool is_plain(const joiner *self, size_t i)
{
    return i < self->n && self->words[i].bytes &&
           (nm_unicode_is_alnum(first_point(self->words[i])) ||
            nm_unicode_is_alnum(last_point(self->words[i])));
}

static bool is_text(const joiner *self, size_t i, const char *text)
{
    return i < self->n && self->words[i].bytes == strlen(text) &&
           !strncasecmp(self->words[i].text, text, self->words[i].bytes);
}

static bool is_number(const joiner *self, size_t i)
{
    size_t n = 0;
    while (i < self->n && n < self->words[i].bytes && self->words[i].text[n] >= '0' &&
           self->words[i].text[n] <= '9')
        n++;
    return n && n == self->words[i].bytes;
}

/* Number of words of the address that begins at word i; 0: none does. */
static size_t address_length(const joiner *self, size_t i)
{
    bool scheme = (is_text(self, i, "http") || is_text(self, i, "https") || is_text(self, i, "ftp")) &&
                  is_text(self, i + 1, ":") && is_text(self, i + 2, "/") && is_text(self, i + 3, "/") &&
                  is_plain(self, i + 4);
    bool www = self->words[i].bytes > 4 && !strncasecmp(self->words[i].text, "www.", 4);
    if (!scheme && !www)
        return 0;
    size_t end = i + (scheme ? 5 : 1);
    for (size_t step; end < self->n && self->words[end].bytes == 1; end += step) {
        char mark = *self->words[end].text;
        bool assigned = is_text(self, end + 2, "=");
        bool group = mark == '(' && is_text(self, end - 1, "_") && is_plain(self, end + 1) &&
                     is_text(self, end + 2, ")"); /* x_(y) */
        step = group ? 3 : 1 + (size_t)is_plain(self, end + 1);
        bool inside = group                    ? true
                      : mark == '_'            ? is_plain(self, end + 1) || is_text(self, end + 1, "(")
                      : strchr("&#%+~-", mark) ? is_plain(self, end + 1)
                      : mark == '?'            ? assigned
                      : mark == ':'            ? is_number(self, end + 1)
                                               : mark == '/' || mark == '=';
        if (!mark || !inside)
            break;
    }
    return end - i;
}

/* "foo @ bar.com": the word after the mark ends in a period and letters. */
static bool is_mail(const joiner *self, size_t at)
{
    if (!at || !is_text(self, at, "@") || !is_plain(self, at - 1) || at + 1 >= self->n)
        return false;
    piece host = self->words[at + 1];
    size_t letters = 0;
    while (letters < host.bytes && (host.text[host.bytes - 1 - letters] | 32) >= 'a' &&
           (host.text[host.bytes - 1 - letters] | 32) <= 'z')
        letters++;
    return letters >= 2 && letters + 1 < host.bytes && host.text[host.bytes - 1 - letters] == '.';
}

static void mark_joined(joiner *self)
{
    self->joined = nm_allocate(self->n + 2);
    for (size_t i = 0; i < self->n; i++) {
        size_t n = address_length(self, i);
        for (size_t k = 1; k < n; k++)
            self->joined[i + k] = true;
        bool numbers = i && is_number(self, i - 1) && is_number(self, i + 1);
        bool between = ((is_text(self, i, ":") || is_text(self, i, "–")) && numbers) ||
                       ((is_text(self, i, "/") || is_text(self, i, "_")) && i && is_plain(self, i - 1) &&
                        is_plain(self, i + 1));
        if (between || is_mail(self, i))
            self->joined[i] = self->joined[i + 1] = true;
    }
}

/* Whether ’ at word i stands for an omission, so that it belongs to both neighbors: It’s, o’clock, l’eau. */
static bool is_typographic_apostrophe(const joiner *self, size_t i)
{
    static const char *const endings[] = {"s", "t", "d", "m", "re", "ve", "ll", "em", "clock", "er"};
    if (i && is_number(self, i - 1) && is_text(self, i + 1, "s"))
        return true; /* 1990’s */
    if (!i || i + 1 >= self->n || !nm_moses_is_alpha(last_point(self->words[i - 1])) ||
        !nm_moses_is_alpha(first_point(self->words[i + 1])))
        return false;
    for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
        if (is_text(self, i + 1, endings[k]))
            return true;
    if (self->single_quote)
        return false;
    return self->language->apostrophe != NM_MOSES_RIGHT || self->words[i - 1].bytes == 1;
}

/* Whether ’ at word i stands for an omission at the beginning of the next word: ’90s, ’tis. */
static bool is_omission(const joiner *self, size_t i)
{
    if (self->single_quote || self->low_single || i + 1 >= self->n)
        return false;
    piece next = self->words[i + 1];
    bool decade = next.bytes == 3 && next.text[0] >= '0' && next.text[0] <= '9' && next.text[1] >= '0' &&
                  next.text[1] <= '9' && next.text[2] == 's';
    return decade || is_text(self, i + 1, "tis") || is_text(self, i + 1, "twas");
}

/* Whether words i to i + 2 are the ’n’ of rock ’n’ roll. */
static bool is_shortened_and(const joiner *self, size_t i)
{
    return is_text(self, i, "’") && is_text(self, i + 1, "n") && is_text(self, i + 2, "’");
}

/* Writes a typographic quote whose direction is known, or an apostrophe; false: another word. */
static bool put_typographic(joiner *self, size_t i)
{
    const char *code = self->language->code;
    piece word = self->words[i];
    bool *open;
    size_t at = 0;
    uint32_t point = word.bytes && word.bytes <= 3 ? nm_utf8_next(word.text, &at) : 0;
    if (at != word.bytes || point < 0x80)
        return false;
    switch (point) {
    case 0x2019: /* ’ */
        if (is_shortened_and(self, i) || (i > 1 && is_shortened_and(self, i - 2))) {
            bool first = is_shortened_and(self, i);
            put(self, word, first, first);
            return true;
        }
        if (is_typographic_apostrophe(self, i)) {
            put(self, word, false, true);
            return true;
        }
        if (is_omission(self, i)) {
            put(self, word, true, true);
            return true;
        }
        if (!self->single_quote && !self->low_single &&
            !(i && nm_unicode_is_alnum(last_point(self->words[i - 1]))))
            return false;
        put(self, word, false, false);
        self->single_quote = self->low_single = false;
        return true;
    case 0x2018: /* ‘, which closes ‚ */
        put(self, word, !self->low_single, !self->low_single);
        self->single_quote = !self->low_single;
        self->low_single = false;
        return true;
    case 0x201A: /* ‚ */
        put(self, word, true, true);
        self->low_single = true;
        return true;
    case 0x201E: /* „ */
        put(self, word, true, true);
        self->low_quote = true;
        return true;
    case 0xAB:
    case 0xBB: /* « » */
    case 0x2039:
    case 0x203A: /* ‹ › */
        if (!strcmp(code, "fr"))
            return false;
        open = &self->guillemets[point >= 0x2039];
        put(self, word, !*open, !*open);
        *open = !*open;
        return true;
    default:
        if ((point != 0x201C && point != 0x201D) || !self->low_quote)
            return false;
        put(self, word, false, false); /* „ is closed */
        self->low_quote = false;
        return true;
    }
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
    if (self->joined[i]) {
        put(self, word, false, false);
    } else if (put_typographic(self, i)) {
        return;
    } else if (consists_of(word, is_opening)) {
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
    mark_joined(&self);
    for (size_t i = 0; i < self.n; i++)
        put_word(&self, i);
    nm_buffer_reserve(out, 0);
    clean_spaces(out, start);
    nm_buffer_release(&spaced);
    nm_buffer_release(&self.text);
    nm_counter_release(&self.quotes);
    free(self.words);
    free(self.joined);
}
