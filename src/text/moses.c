/* The Moses tokenizer: what tokenizer.perl of mosesdecoder gives, for German, English and by general rules
 * for the other languages. That script is a chain of substitutions over the whole line, each seeing what the
 * one before it left; so is this, over an array of code points. A run of periods is kept apart as one word of
 * marks that count as letters (the script writes the word DOTMULTI for it). */
#include "text/tokenizer.h"

#include <stdlib.h>

#include "text/counter.h"
#include "text/moses_rules.h"
#include "text/utf8.h"
#include "text/words.h"

/* One period of a run of periods; no Unicode code point. */
#define RUN_DOT 0x110000u

enum { PREFIX_ALWAYS = 1, PREFIX_NUMERIC = 2, LONGEST_PREFIX = 64 };

typedef struct points {
    uint32_t *data;
    size_t n, capacity;
} points;

typedef struct moses {
    const nm_moses_language *language;
    bool aggressive, escape;
    nm_counter prefixes;
    points text, next; /* every step reads text and writes next, then they change places */
} moses;

static bool is_alpha(uint32_t point)
{
    return point == RUN_DOT || nm_unicode_is_alpha(point);
}

static bool is_alnum(uint32_t point)
{
    return point == RUN_DOT || nm_unicode_is_alnum(point);
}

static void put(moses *self, uint32_t point)
{
    NM_GROW(self->next.data, self->next.n, self->next.capacity);
    self->next.data[self->next.n++] = point;
}

static void put_apart(moses *self, uint32_t point)
{
    put(self, ' ');
    put(self, point);
    put(self, ' ');
}

static void swap(moses *self)
{
    points done = self->next;
    self->next = self->text;
    self->text = done;
    self->next.n = 0;
}

/* White space to single spaces, none at the ends; control characters go, which may leave two spaces meeting.
 */
static void read_line(moses *self, const char *line, size_t bytes)
{
    self->next.n = 0;
    bool pending = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(line, &at);
        if (nm_unicode_is_space(point)) {
            pending = self->next.n > 0;
        } else if (point >= 32) {
            if (pending)
                put(self, ' ');
            pending = false;
            put(self, point);
        }
    }
    swap(self);
}

static void part_specials(moses *self)
{
    uint32_t inner = self->language->inner;
    for (size_t i = 0; i < self->text.n; i++) {
        uint32_t point = self->text.data[i];
        bool stays = point == ' ' || point == '.' || point == '\'' || point == '`' || point == ',' ||
                     point == '-' || (inner && point == inner) || is_alnum(point);
        if (stays)
            put(self, point);
        else
            put_apart(self, point);
    }
    swap(self);
}

/* A colon in Finnish, a raised dot in Catalan: part of the word only before a lower-case letter. */
static void part_inner_marks(moses *self)
{
    const points *text = &self->text;
    for (size_t i = 0; i < text->n; i++) {
        bool inside = i + 1 < text->n && nm_unicode_is_lower_letter(text->data[i + 1]);
        if (text->data[i] == self->language->inner && !inside)
            put_apart(self, text->data[i]);
        else
            put(self, text->data[i]);
    }
    swap(self);
}

static void part_hyphens(moses *self)
{
    const points *text = &self->text;
    for (size_t i = 0; i < text->n; i++) {
        bool within = i > 0 && i + 1 < text->n && is_alnum(text->data[i - 1]) && is_alnum(text->data[i + 1]);
        if (text->data[i] == '-' && within) {
            put(self, ' ');
            put(self, '@');
            put(self, '-');
            put(self, '@');
            put(self, ' ');
        } else {
            put(self, text->data[i]);
        }
    }
    swap(self);
}

static void part_dot_runs(moses *self)
{
    const points *text = &self->text;
    for (size_t i = 0; i < text->n;) {
        size_t end = i;
        while (end < text->n && text->data[end] == '.')
            end++;
        if (end - i < 2) {
            put(self, text->data[i++]);
            continue;
        }
        put(self, ' ');
        for (; i < end; i++)
            put(self, RUN_DOT);
        put(self, ' ');
    }
    swap(self);
}

/* Commas leave a number's digits alone (5,300): first those with no number before, then those with none
 * behind, then one at the end of the line. */
static void part_commas(moses *self)
{
    for (size_t i = 0; i < self->text.n; i++) {
        uint32_t point = self->text.data[i];
        put(self, point);
        if (i + 1 < self->text.n && self->text.data[i + 1] == ',' && !nm_unicode_is_number(point)) {
            put_apart(self, ',');
            i++;
        }
    }
    swap(self);
    for (size_t i = 0; i < self->text.n; i++) {
        uint32_t point = self->text.data[i];
        if (point == ',' && i + 1 < self->text.n && !nm_unicode_is_number(self->text.data[i + 1])) {
            put_apart(self, ',');
            put(self, self->text.data[++i]);
        } else {
            put(self, point);
        }
    }
    swap(self);
    size_t n = self->text.n;
    if (n > 1 && self->text.data[n - 1] == ',' && nm_unicode_is_number(self->text.data[n - 2])) {
        self->text.n = n - 1;
        for (size_t i = 0; i + 1 < n; i++)
            put(self, self->text.data[i]);
        put(self, ' ');
        put(self, ',');
        swap(self);
    }
}

/* Apostrophes */

static bool is_other(uint32_t point)
{
    return !is_alpha(point);
}

static bool is_neither(uint32_t point)
{
    return !is_alpha(point) && !nm_unicode_is_number(point);
}

static bool is_s(uint32_t point)
{
    return point == 's';
}

/* Where an apostrophe stands between a character of one class and one of another, parts it from the first,
 * the second or both. The three are used up by a match: the second cannot be the first of the next one. */
static void part_apostrophes(moses *self, bool (*before)(uint32_t), bool (*after)(uint32_t), bool from_first,
                             bool from_second)
{
    const points *text = &self->text;
    for (size_t i = 0; i < text->n; i++) {
        put(self, text->data[i]);
        if (i + 2 >= text->n || text->data[i + 1] != '\'' || !before(text->data[i]) ||
            !after(text->data[i + 2]))
            continue;
        if (from_first)
            put(self, ' ');
        put(self, '\'');
        if (from_second)
            put(self, ' ');
        put(self, text->data[i + 2]);
        i += 2;
    }
    swap(self);
}

static void part_all_apostrophes(moses *self)
{
    for (size_t i = 0; i < self->text.n; i++) {
        if (self->text.data[i] == '\'')
            put_apart(self, '\'');
        else
            put(self, self->text.data[i]);
    }
    swap(self);
}

static void treat_apostrophes(moses *self)
{
    nm_moses_apostrophe way = self->language->apostrophe;
    if (way == NM_MOSES_ALONE) {
        part_all_apostrophes(self);
        return;
    }
    part_apostrophes(self, is_other, is_other, true, true);
    part_apostrophes(self, way == NM_MOSES_RIGHT ? is_neither : is_other, is_alpha, true, true);
    part_apostrophes(self, is_alpha, is_other, true, true);
    if (way != NM_MOSES_INSIDE)
        part_apostrophes(self, is_alpha, is_alpha, way == NM_MOSES_RIGHT, way == NM_MOSES_LEFT);
    if (way == NM_MOSES_RIGHT)
        part_apostrophes(self, nm_unicode_is_number, is_s, true, false); /* the 1990's */
}

/* Periods at the ends of words */

static int64_t find_prefix(const moses *self, const uint32_t *word, size_t n)
{
    char text[LONGEST_PREFIX];
    if (n > LONGEST_PREFIX)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (word[i] >= 0x80)
            return 0; /* the lists are ASCII */
        text[i] = (char)word[i];
    }
    return nm_counter_get(&self->prefixes, text, n);
}

static bool is_abbreviation_with_dots(const uint32_t *word, size_t n)
{
    bool dot = false, letter = false;
    for (size_t i = 0; i < n; i++) {
        dot |= word[i] == '.';
        letter |= is_alpha(word[i]);
    }
    return dot && letter;
}

/* Does the period behind the word stay with it? following is the character after the space, 0 for a second
 * space. */
static bool keeps_period(const moses *self, const uint32_t *word, size_t n, uint32_t following)
{
    int64_t prefix = find_prefix(self, word, n);
    if (is_abbreviation_with_dots(word, n) || prefix == PREFIX_ALWAYS || nm_unicode_is_lower(following))
        return true;
    return prefix == PREFIX_NUMERIC && following >= '0' && following <= '9';
}

static void part_periods(moses *self)
{
    const uint32_t *text = self->text.data;
    size_t n = self->text.n;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    for (size_t start = 0; start < n;) {
        size_t end = start;
        while (end < n && text[end] != ' ')
            end++;
        bool dotted = end - start > 1 && text[end - 1] == '.';
        uint32_t following = end + 1 < n && text[end + 1] != ' ' ? text[end + 1] : 0;
        bool parted = dotted && (end == n || !keeps_period(self, text + start, end - start - 1, following));
        for (size_t i = start; i < end; i++) {
            if (parted && i + 1 == end)
                put(self, ' ');
            put(self, text[i]);
        }
        put(self, ' ');
        start = end + 1;
    }
    swap(self);
}

/* Single spaces, none at the ends; then a period and an apostrophe at the very end part, as the script has it
 * with a space behind. */
static void clean_spaces(moses *self)
{
    for (size_t i = 0; i < self->text.n; i++) {
        if (self->text.data[i] == ' ' && (!self->next.n || self->next.data[self->next.n - 1] == ' '))
            continue;
        put(self, self->text.data[i]);
    }
    points *text = &self->next;
    if (text->n && text->data[text->n - 1] == ' ')
        text->n--;
    if (text->n >= 2 && text->data[text->n - 1] == '\'' && text->data[text->n - 2] == '.') {
        text->n -= 2;
        put_apart(self, '.');
        put(self, '\'');
        put(self, ' ');
    }
    swap(self);
}

static const char *find_escape(uint32_t point)
{
    switch (point) {
    case '&':
        return "&amp;";
    case '|':
        return "&#124;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&apos;";
    case '"':
        return "&quot;";
    case '[':
        return "&#91;";
    case ']':
        return "&#93;";
    default:
        return NULL;
    }
}

static void write_line(const moses *self, nm_buffer *out)
{
    for (size_t i = 0; i < self->text.n; i++) {
        uint32_t point = self->text.data[i];
        const char *escape = self->escape ? find_escape(point) : NULL;
        if (escape)
            nm_buffer_append(out, escape, strlen(escape));
        else
            nm_utf8_append(out, point == RUN_DOT ? '.' : point);
    }
}

static void moses_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    moses *self = state;
    read_line(self, line, bytes);
    part_specials(self);
    if (self->language->inner)
        part_inner_marks(self);
    if (self->aggressive)
        part_hyphens(self);
    part_dot_runs(self);
    part_commas(self);
    treat_apostrophes(self);
    part_periods(self);
    clean_spaces(self);
    write_line(self, out);
}

static void moses_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    const moses *self = state;
    nm_moses_detokenize(self->language, line, bytes, out);
}

static void add_prefixes(nm_counter *prefixes, const char *list, int64_t kind)
{
    const char *word;
    size_t bytes, at = 0;
    while (nm_word_next(list, strlen(list), &at, &word, &bytes))
        nm_counter_add(prefixes, word, bytes, kind);
}

static nm_status moses_create(const nm_tokenizer_options *options, void **state, nm_error *err)
{
    (void)err;
    moses *self = nm_allocate(sizeof *self);
    const nm_moses_prefixes *prefixes = nm_moses_find_prefixes(options->language);
    self->language = nm_moses_find_language(options->language);
    self->aggressive = options->aggressive;
    self->escape = options->escape;
    add_prefixes(&self->prefixes, prefixes->always, PREFIX_ALWAYS);
    add_prefixes(&self->prefixes, prefixes->numeric, PREFIX_NUMERIC);
    *state = self;
    return NM_OK;
}

static void moses_free(void *state)
{
    moses *self = state;
    nm_counter_release(&self->prefixes);
    free(self->text.data);
    free(self->next.data);
    free(self);
}

const nm_tokenizer_type nm_tokenizer_moses = {
    .name = "moses",
    .title = "words and punctuation as by the Moses scripts",
    .create = moses_create,
    .tokenize = moses_tokenize,
    .detokenize = moses_detokenize,
    .free = moses_free,
};
