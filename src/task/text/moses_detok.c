/* Detokenization: the output of mosesdecoder's detokenizer.perl without its special cases for Czech and
 * Finnish. Entities are replaced; then the class of each token determines the spaces before and after it.
 * Unlike the script, which joins the words of Korean, only scripts without spaces are joined, and the commas
 * and the ends of sentences of other scripts than Latin are attached. So are typographic apostrophes, quotes
 * whose direction is known (the script leaves both apart), the parts of addresses, the text in tags of markup
 * and the marks in `patterns`. */
#include "text/moses_rules.h"

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
    bool *apart;  /* [n], whether spaces are around a word, whatever its class */
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
        0xAE,   0xB2,   0xB3,   0x2122,                 /* ® ² ³ ™ */
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

static bool is_one_of(const joiner *self, size_t i, const char *const *list)
{
    while (*list && !is_text(self, i, *list))
        list++;
    return *list != NULL;
}

/* Consecutive words: no space precedes one after _, and a space one after !. Where both spellings occur, they
 * are the more frequent one in German and English text. Classes: W ends or begins with a letter or digit, V
 * too but not C; N has a digit next to the mark, L consists of letters, C of at most two capitals; X is a
 * cell of a table, K a key, F an ending, S a hyphen and an ending, D a folder of Unix, T a scale of
 * temperature, B a subscript digit, E a currency, Q a closing mark, ^ not W, or the beginning, ~ not N. */
static const char *const patterns[] = {
    "N _: _N",    "N _– _N",    "W _/ _W",      "W __ _W", /* 10:30, 1990–1995, and/or, a_b */
    "W _: _: _W", "W _: _/ _/", "X _: _X",                 /* Data::Page, smb://, A1:B30 */
    "W _+ _+",    "W _+ _+ _S", "W _+ _S",      "K _+ _W", /* C++, GTK+-based, Ctrl+C */
    "C _#",       "C _& _C",    "W _( _)",      "W _[ _]", /* C#, R&D, f(), a[] */
    "W _( _F _)", "N _°",       "N _° _T",      "N _× _N", /* file(s), 90°, 5°C, 3×4 */
    "W _B",       "L _B _C",    "Q _S",         "L _' _s", /* CO₂, H₂O, »x«-Datei, geht's */
    "^ # _W",     "V # _W",     "^ @ _W",       "V @ _L",  /* #1, @name */
    "^ / _W",     "W !/ _D",    "^ ~ _W",       "^ + _N",  /* /proc, ~5, +5 */
    "^ ± _N",     "L ± _N",     "W _\u00AD _W", "N !E ~",  /* ±5, soft hyphen, 100 € */
};

static bool is_letters(uint32_t point)
{
    return nm_moses_is_alpha(point);
}

static bool is_capital(uint32_t point)
{
    return point >= 'A' && point <= 'Z';
}

static bool is_digit(uint32_t point)
{
    return point >= '0' && point <= '9';
}

static bool is_of_class(const joiner *self, size_t i, char class, bool first)
{
    static const char *const keys[] = {"ctrl", "strg",   "shift",   "umschalt", "alt", "altgr",
                                       "cmd",  "option", "command", "meta",     "win", NULL},
                             *const endings[] = {"s", "es", "n", "en", "in", "innen", "tm", "r", NULL},
                             *const folders[] = {"etc", "usr", "var", "proc", "dev",  "home",
                                                 "bin", "lib", "tmp", "sys",  "root", NULL},
                             *const scales[] = {"C", "F", NULL};
    piece word = self->words[i];
    uint32_t begin = first_point(word), end = last_point(word);
    switch (class) {
    case 'W':
        return is_plain(self, i);
    case 'V':
        return is_plain(self, i) && !is_of_class(self, i, 'C', first);
    case 'N':
        return is_digit(first ? end : begin);
    case 'L':
        return consists_of(word, is_letters);
    case 'C':
        return word.bytes <= 2 && consists_of(word, is_capital);
    case 'X':
        return is_capital(begin) && is_digit(end);
    case 'K':
        return is_one_of(self, i, keys);
    case 'F':
        return is_one_of(self, i, endings);
    case 'S':
        return begin == '-' && word.bytes > 2 &&
               is_letters(first_point((piece){word.text + 1, word.bytes - 1}));
    case 'D':
        return is_one_of(self, i, folders);
    case 'T':
        return is_one_of(self, i, scales);
    case 'B':
        return begin >= 0x2080 && begin <= 0x2089;
    case 'E':
        return nm_unicode_is_currency(begin);
    case 'Q':
        return begin < 0x80 ? begin == ')' || begin == '"' || begin == '%'
                            : begin == 0xAB || begin == 0xBB || is_typographic_quote(begin);
    case '~':
        return !is_digit(begin);
    default:
        return class == '^' && !is_plain(self, i);
    }
}

/* Applies a pattern whose second element is word i. */
static void apply_pattern(joiner *self, size_t i, const char *pattern)
{
    char marks[4] = {0};
    size_t n = 0;
    for (const char *at = pattern; *at; n++, at += *at == ' ') {
        size_t mark = (*at == '_' || *at == '!') && at[1] && at[1] != ' ', word = i + n;
        marks[n] = mark ? *at : 0;
        at += mark;
        size_t bytes = strcspn(at, " ");
        bool class = bytes == 1 && (is_capital((unsigned char)*at) || (*at == '^') || (*at == '~' && n == 2));
        if (!word && *at == '^' && bytes == 1) { /* the beginning of the line */
        } else if (!word || word > self->n || (class && !is_of_class(self, word - 1, *at, !n))) {
            return;
        } else if (!class && (self->words[word - 1].bytes != bytes ||
                              memcmp(self->words[word - 1].text, at, bytes) != 0)) {
            return;
        }
        at += bytes;
    }
    for (size_t k = 0; k < n; k++) {
        if (marks[k])
            (marks[k] == '_' ? self->joined : self->apart)[i + k - 1] = true;
    }
}

static bool is_quotation(const joiner *self, size_t i)
{
    return is_text(self, i, "\"");
}

/* Index after the tag <b>, </b>, <br/> or <a href="x"> that begins at word i; i: none does. */
static size_t tag_end(const joiner *self, size_t i)
{
    size_t at = i + 1 + is_text(self, i + 1, "/");
    if (!is_text(self, i, "<") || !is_plain(self, at))
        return i;
    for (at++; is_plain(self, at) && is_text(self, at + 1, "=") && is_quotation(self, at + 2); at++)
        for (at += 3; at < self->n && !is_quotation(self, at);)
            at++;
    at += is_text(self, at, "/");
    return is_text(self, at, ">") ? at + 1 : i;
}

/* Index of the tag that closes that of word i; n: none does. */
static size_t closing_tag(const joiner *self, size_t i)
{
    piece name = self->words[i + 1];
    while (i < self->n && !(is_text(self, i, "<") && is_text(self, i + 1, "/") && i + 2 < self->n &&
                            self->words[i + 2].bytes == name.bytes &&
                            !memcmp(self->words[i + 2].text, name.text, name.bytes)))
        i++;
    return i;
}

/* Joins what the tag at word i consists of, and an element to the text that it encloses. */
static void join_tag(joiner *self, size_t i)
{
    size_t end = tag_end(self, i), close = end > i ? closing_tag(self, i) : self->n;
    bool value = false;
    for (size_t at = i + 1; at < end; at++) {
        bool quote = is_quotation(self, at), open = is_text(self, at - 1, "=") && quote;
        bool assigns = is_text(self, at, "=") && !value;
        bool begins = at == i + 1 || (at == i + 2 && is_text(self, at - 1, "/"));
        self->joined[at] |= begins || assigns || quote || at + 1 == end ||
                            (value && is_quotation(self, at - 1)) ||
                            (at + 2 == end && is_text(self, at, "/"));
        value = quote ? open : value;
    }
    if (close < self->n)
        self->joined[end] = self->joined[close] = true;
}

static bool ends_tag(piece word)
{
    return word.bytes && word.text[word.bytes - 1] == '>';
}

/* The same for a tag that --protect kept: <b>, or the words <a and href="x">. */
static void join_protected_tag(joiner *self, size_t i)
{
    piece open = self->words[i];
    size_t name = open.bytes > 1 && open.text[0] == '<' ? strcspn(open.text + 1, " >/") : 0, end = i;
    while (name && end < self->n && !ends_tag(self->words[end]))
        end++;
    for (size_t close = end + 1; name && close < self->n; close++) {
        piece word = self->words[close];
        if (word.bytes == name + 3 && !memcmp(word.text, "</", 2) && ends_tag(word) &&
            !memcmp(word.text + 2, open.text + 1, name)) {
            self->joined[end + 1] = self->joined[close] = true;
            return;
        }
    }
}

static void mark_joined(joiner *self)
{
    self->joined = nm_allocate(self->n + 2);
    self->apart = nm_allocate(self->n + 2);
    for (size_t i = 0; i < self->n; i++) {
        size_t n = address_length(self, i);
        for (size_t k = 1; k < n; k++)
            self->joined[i + k] = true;
        if (is_mail(self, i))
            self->joined[i] = self->joined[i + 1] = true;
        bool mark = !nm_unicode_is_alnum(first_point(self->words[i])); /* the second of each pattern */
        for (size_t k = 0; mark && k < sizeof patterns / sizeof *patterns; k++)
            apply_pattern(self, i, patterns[k]);
        join_tag(self, i);
        join_protected_tag(self, i);
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
        *open = !*open && i + 1 < self->n;
        put(self, word, *open, *open);
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
    bool ends = i + 1 == self->n || is_text(self, i + 1, ",") || is_text(self, i + 1, ".");
    if (*seen % 2 == 1 || (i > 1 && ends)) {
        put(self, word, false, false);
        *seen += *seen % 2;
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
    if (self->apart[i]) {
        put(self, word, true, false);
    } else if (self->joined[i]) {
        put(self, word, false, false);
    } else if (put_typographic(self, i)) {
        return;
    } else if (consists_of(word, is_opening)) {
        put(self, word, true, true);
    } else if (consists_of(word, is_closing)) {
        bool french = !strcmp(self->language->code, "fr"), german = !strcmp(self->language->code, "de");
        bool spaced = word.bytes == 1 && strchr(french ? "?!:;\\%" : german ? "%" : "", word.text[0]);
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
        size_t n_single = 0; /* word 0 is empty */
        for (size_t k = 2; i == 1 && word.bytes > 1 && word.text[0] == '\'' && k < self->n; k++)
            n_single += is_text(self, k, "'");
        if (n_single % 2) /* 'x' at the beginning, whose first quote is not split off */
            nm_counter_add(&self->quotes, "'", 1, 1);
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
    NM_AUTO(nm_buffer_release) nm_buffer spaced = {0};
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
    nm_buffer_release(&self.text);
    nm_counter_release(&self.quotes);
    NM_FREE(self.words, self.joined, self.apart);
}
