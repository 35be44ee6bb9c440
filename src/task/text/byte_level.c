/* Byte-level BPE: pre-tokenizers, and the tokenizer byte_level. */
#include "text/byte_level.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "text/utf8.h"

enum {
    /* The bytes that are not printable characters of Latin-1 follow each other from here on. */
    FIRST_MOVED = 0x100,
    MOVED_DELETE = 0x7F - 33, /* the range 0x7F to 0xA0 follows the range 0x00 to 0x20 */
    MOVED_HYPHEN = 67,        /* the soft hyphen, 0xAD, is the last one */
    END_MOVED = FIRST_MOVED + MOVED_HYPHEN + 1
};

static bool is_kept(uint32_t byte)
{
    return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

static uint32_t point_of_byte(uint32_t byte)
{
    if (is_kept(byte))
        return byte;
    return FIRST_MOVED + (byte <= 0x20 ? byte : byte == 0xAD ? MOVED_HYPHEN : byte - MOVED_DELETE);
}

int nm_byte_level_byte(uint32_t point)
{
    if (point < FIRST_MOVED)
        return is_kept(point) ? (int)point : -1;
    if (point >= END_MOVED)
        return -1;
    uint32_t moved = point - FIRST_MOVED;
    return (int)(moved <= 0x20 ? moved : moved == MOVED_HYPHEN ? 0xAD : moved + MOVED_DELETE);
}

void nm_byte_level_add_symbols(nm_counter *symbols)
{
    NM_AUTO(nm_buffer_release) nm_buffer symbol = {0};
    for (uint32_t point = 0; point < END_MOVED; point++)
        if (nm_byte_level_byte(point) >= 0) {
            nm_buffer_clear(&symbol);
            nm_utf8_append(&symbol, point);
            nm_counter_add(symbols, symbol.data, symbol.bytes, 0);
        }
}

size_t nm_byte_level_find_other(const char *symbol, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t first = at;
        if (nm_byte_level_byte(nm_utf8_next(symbol, &at)) < 0)
            return first;
    }
    return bytes;
}

static void append_word(const char *word, size_t bytes, nm_buffer *out)
{
    for (size_t i = 0; i < bytes; i++)
        nm_utf8_append(out, point_of_byte((unsigned char)word[i]));
}

void nm_byte_level_decode(const char *subwords, size_t bytes, nm_buffer *out)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_buffer_clear(&text);
    for (size_t at = 0; at < bytes;) {
        size_t first = at;
        int byte = nm_byte_level_byte(nm_utf8_next(subwords, &at));
        if (byte >= 0)
            nm_buffer_append_byte(&text, (char)(byte ? byte : ' '));
        else if (subwords[first] != ' ')
            nm_buffer_append(&text, subwords + first, at - first);
    }
    /* a generation can end within a character */
    nm_utf8_append_replaced(out, text.data, text.bytes - nm_utf8_incomplete_end(text.data, text.bytes));
}

/* The published regular expressions are alternatives, of which the first that matches is taken: an English
 * contraction; letters; digits; other characters; whitespace before the last whitespace character;
 * whitespace. */
typedef struct rule_set {
    size_t most_digits; /* of a word */
    bool any_case;      /* of contractions */
    /* Letters may follow any character but letters, digits and newlines, instead of a space. */
    bool any_prefix;
    bool digits;   /* are separated first: whitespace before them is a word */
    bool composes; /* text is normalized to NFC first */
    /* Other characters include the newlines after them, and whitespace ends after its last newline. */
    bool newlines;
    const char *expression;
} rule_set;

#define MODERN_RULES(digits)                                                                                 \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                                     \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define GPT2_RULES "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

static const rule_set rule_sets[] = {
    [NM_PRETOKENIZER_GPT2] = {.most_digits = SIZE_MAX, .expression = GPT2_RULES},
    [NM_PRETOKENIZER_LLAMA3] = {.most_digits = 3,
                                .any_case = true,
                                .any_prefix = true,
                                .newlines = true,
                                .expression = MODERN_RULES("\\p{N}{1,3}")},
    [NM_PRETOKENIZER_QWEN2] = {.most_digits = 1,
                               .any_case = true,
                               .any_prefix = true,
                               .composes = true,
                               .newlines = true,
                               .expression = MODERN_RULES("\\p{N}")},
    [NM_PRETOKENIZER_SMOLLM] = {.most_digits = 1, .digits = true, .expression = GPT2_RULES},
};

bool nm_pretokenizer_composes(nm_pretokenizer rules)
{
    return rule_sets[rules].composes;
}

bool nm_pretokenizer_separates_digits(nm_pretokenizer rules)
{
    return rule_sets[rules].digits;
}

const char *nm_pretokenizer_expression(nm_pretokenizer rules)
{
    return rule_sets[rules].expression;
}

typedef enum class { END, LETTER, DIGIT, NEWLINE, SPACE, OTHER } class;

/* A position in a text. */
typedef struct cursor {
    const char *text;
    size_t at, bytes;
} cursor;

static class class_of(uint32_t point)
{
    if (point == '\n' || point == '\r')
        return NEWLINE;
    if (nm_unicode_is_space(point))
        return SPACE;
    return nm_unicode_is_letter(point) ? LETTER : nm_unicode_is_number(point) ? DIGIT : OTHER;
}

static class class_at(const cursor *from)
{
    size_t at = from->at;
    return at < from->bytes ? class_of(nm_utf8_next(from->text, &at)) : END;
}

static void advance(cursor *at)
{
    at->at += nm_utf8_length(at->text[at->at]);
}

static void skip(cursor *at, class kind, size_t most)
{
    for (; most && class_at(at) == kind; most--)
        advance(at);
}

/* Length of the letter at a position if it is that of a contraction, otherwise 0. In any case, U+017F is an
 * s. */
static size_t match_letter(const cursor *at, size_t offset, char letter, bool any_case)
{
    size_t next = at->at + offset;
    if (next >= at->bytes)
        return 0;
    uint32_t point = nm_utf8_next(at->text, &next);
    if (any_case)
        point = point == 0x17F ? 's' : point >= 'A' && point <= 'Z' ? point + 32 : point;
    return point == (unsigned char)letter ? next - at->at - offset : 0;
}

static bool skip_contraction(cursor *at, bool any_case)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (at->text[at->at] != '\'')
        return false;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t first = match_letter(at, 1, endings[i][0], any_case), second = 0;
        if (first && endings[i][1])
            second = match_letter(at, 1 + first, endings[i][1], any_case);
        if (first && (second || !endings[i][1])) {
            at->at += 1 + first + second;
            return true;
        }
    }
    return false;
}

/* Whitespace: up to its last newline if the rules have newlines; otherwise, if a word follows, without its
 * last character. */
static void skip_space(const rule_set *rules, cursor *at)
{
    size_t start = at->at, last = start, after_newline = 0;
    for (class kind; (kind = class_at(at)) == SPACE || kind == NEWLINE;) {
        last = at->at;
        advance(at);
        after_newline = kind == NEWLINE ? at->at : after_newline;
    }
    const class next = class_at(at);
    if (rules->newlines && after_newline)
        at->at = after_newline;
    else if (next != END && !(rules->digits && next == DIGIT) && last > start)
        at->at = last;
}

/* Skips a word: one alternative of the regular expression. */
static void skip_word(const rule_set *rules, cursor *at)
{
    if (skip_contraction(at, rules->any_case))
        return;
    cursor after = *at;
    class kind = class_at(at), next;
    advance(&after);
    next = class_at(&after);
    bool space = at->text[at->at] == ' ';
    if (kind == LETTER ||
        (next == LETTER && (space || (rules->any_prefix && (kind == SPACE || kind == OTHER))))) {
        *at = after;
        skip(at, LETTER, SIZE_MAX);
    } else if (kind == DIGIT) {
        skip(at, DIGIT, rules->most_digits);
    } else if (next == DIGIT && space && !rules->any_prefix && !rules->digits) {
        *at = after;
        skip(at, DIGIT, SIZE_MAX);
    } else if (kind == OTHER || (next == OTHER && space)) {
        *at = after;
        skip(at, OTHER, SIZE_MAX);
        if (rules->newlines)
            skip(at, NEWLINE, SIZE_MAX);
    } else {
        skip_space(rules, at);
    }
}

void nm_byte_level_encode(nm_pretokenizer rules, const char *text, size_t bytes, nm_buffer *out)
{
    cursor at = {text, 0, bytes};
    while (at.at < bytes) {
        size_t start = at.at;
        skip_word(&rule_sets[rules], &at);
        if (start)
            nm_buffer_append_byte(out, ' ');
        append_word(text + start, at.at - start, out);
    }
}

typedef struct byte_level {
    nm_pretokenizer rules;
    nm_buffer text; /* of a line, normalized or restored */
} byte_level;

static nm_status byte_level_create(const nm_tokenizer_options *options, void **state, nm_error *err)
{
    (void)err;
    byte_level *self = nm_allocate(sizeof *self);
    self->rules = options->pretokenizer;
    *state = self;
    return NM_OK;
}

/* Appends valid text in the normal form NFC. */
static void append_composed(const char *text, size_t bytes, nm_buffer *out)
{
    static const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t n = utf8proc_decompose(from, (utf8proc_ssize_t)bytes, NULL, 0, options);
    NM_ASSERT(n >= 0);
    NM_AUTO_FREE utf8proc_int32_t *points = nm_allocate(((size_t)n + 1) * sizeof *points);
    utf8proc_decompose(from, (utf8proc_ssize_t)bytes, points, n, options);
    utf8proc_ssize_t length = utf8proc_reencode(points, n, options); /* in place */
    nm_buffer_append(out, (const char *)points, (size_t)length);
}

static void byte_level_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    byte_level *self = state;
    if (!nm_pretokenizer_composes(self->rules)) {
        nm_byte_level_encode(self->rules, line, bytes, out);
        return;
    }
    nm_buffer_clear(&self->text);
    append_composed(line, bytes, &self->text);
    nm_byte_level_encode(self->rules, self->text.data, self->text.bytes, out);
}

/* A newline, which subwords can contain, becomes a space. */
static void byte_level_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    nm_buffer *text = &((byte_level *)state)->text;
    nm_buffer_clear(text);
    nm_byte_level_decode(line, bytes, text);
    nm_buffer_join_lines(text);
    nm_buffer_append(out, text->data, text->bytes);
}

static void byte_level_free(void *state)
{
    nm_buffer_release(&((byte_level *)state)->text);
    free(state);
}

const nm_tokenizer_type nm_tokenizer_byte_level = {
    .name = "byte_level",
    .title = "words of byte-level BPE, from raw text of any language",
    .keeps_text = true,
    .create = byte_level_create,
    .tokenize = byte_level_tokenize,
    .detokenize = byte_level_detokenize,
    .free = byte_level_free,
};
