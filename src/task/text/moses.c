/* The Moses tokenizer: the output of mosesdecoder's tokenizer.perl for German, English and, by its general
 * rules, other languages. The script is a sequence of substitutions over the line; each function here is one
 * of them, over an array of code points. A run of periods becomes a token of RUN_DOT characters, which are
 * treated as letters; the script replaces the run with DOTMULTI. Unlike the script, which splits off marks
 * that are not alphabetic, grapheme clusters are not split: letters with combining marks (decomposed accents,
 * viramas of Indic scripts, Thai tone marks), words with zero-width joiners and non-joiners (Persian), and
 * emoji sequences. */
#include "text/tokenizer.h"

#include <stdlib.h>

#include "text/counter.h"
#include "text/moses_rules.h"
#include "base/words.h"

/* One period of a run of periods; not a Unicode code point. */
#define RUN_DOT 0x110000u

enum { PREFIX_ALWAYS = 1, PREFIX_NUMERIC = 2, LONGEST_PREFIX = 64 };

typedef struct points {
    uint32_t *data;
    size_t n, capacity;
} points;

/* Characters that occur in a line. Substitutions of characters that do not occur are skipped. */
enum { SEEN_COMMA = 1, SEEN_HYPHEN = 2, SEEN_APOSTROPHE = 4, SEEN_PERIOD = 8, SEEN_PERIODS = 16 };

typedef struct moses {
    const nm_moses_language *language;
    bool aggressive, escape, protect;
    nm_counter prefixes;
    nm_buffer word;    /* that is looked up in prefixes */
    points text, next; /* each substitution reads text and writes next, then they are swapped */
    unsigned seen;     /* SEEN_* */
} moses;

static bool is_alpha(uint32_t point)
{
    return point == RUN_DOT || nm_moses_is_alpha(point);
}

static bool is_alnum(uint32_t point)
{
    return point == RUN_DOT || nm_unicode_is_alnum(point) || nm_unicode_is_mark(point);
}

/* Memory for the output of a substitution, at most `most` code points; never NULL. */
static uint32_t *begin_step(moses *self, size_t most)
{
    NM_RESERVE(self->next.data, most + 1, self->next.capacity);
    return self->next.data;
}

static void end_step(moses *self, const uint32_t *end)
{
    points done = self->next;
    done.n = (size_t)(end - done.data);
    NM_ASSERT(done.n <= done.capacity);
    self->next = self->text;
    self->text = done;
}

/* Writes a token of one code point. Returns the position after it. */
static uint32_t *put_token(uint32_t *to, uint32_t point)
{
    *to++ = ' ';
    *to++ = point;
    *to++ = ' ';
    return to;
}

/* Action of the first substitution for a code point. */
typedef enum treatment { DROPPED, SPACE, KEPT, SPLIT } treatment;

/* Of the ASCII characters, control characters are dropped; letters, digits and the marks of later
 * substitutions are kept. */
#define D DROPPED
#define S SPACE
#define K KEPT
#define P SPLIT
/* clang-format off */
static const unsigned char ascii_treatment[128] = {
    D, D, D, D, D, D, D, D, D, S, S, S, S, S, D, D,  D, D, D, D, D, D, D, D, D, D, D, D, D, D, D, D,
    S, P, P, P, P, P, P, K, P, P, P, P, K, K, K, P,  K, K, K, K, K, K, K, K, K, K, P, P, P, P, P, P,
    P, K, K, K, K, K, K, K, K, K, K, K, K, K, K, K,  K, K, K, K, K, K, K, K, K, K, K, P, P, P, P, P,
    K, K, K, K, K, K, K, K, K, K, K, K, K, K, K, K,  K, K, K, K, K, K, K, K, K, K, K, P, P, P, P, P,
};
/* clang-format on */
#undef D
#undef S
#undef K
#undef P

static treatment treat_point(uint32_t point, uint32_t inner)
{
    treatment found = SPLIT;
    if (point < 0x80)
        found = ascii_treatment[point];
    else if (nm_unicode_is_space(point))
        found = SPACE;
    else if (nm_unicode_is_alnum(point))
        found = KEPT;
    return found == SPLIT && point == inner ? KEPT : found;
}

static unsigned note_seen(unsigned seen, uint32_t point)
{
    switch (point) {
    case ',':
        return seen | SEEN_COMMA;
    case '-':
        return seen | SEEN_HYPHEN;
    case '\'':
        return seen | SEEN_APOSTROPHE;
    case '.':
        return seen | (seen & SEEN_PERIOD ? SEEN_PERIODS : SEEN_PERIOD);
    default:
        return seen;
    }
}

/* The character before, to which a character that is not a letter may belong. */
typedef struct cluster {
    uint32_t before; /* 0: none */
    treatment action;
    int32_t state; /* of nm_unicode_joins */
} cluster;

/* Marks of later substitutions begin no cluster. */
static bool begins_cluster(uint32_t point, treatment action)
{
    return action == SPLIT || (action == KEPT && (point >= 0x80 || is_alnum(point)));
}

/* Whether a character that would be split off belongs to the grapheme cluster of the character before it. No
 * ASCII character does. */
static bool continues(cluster *last, uint32_t point, treatment action)
{
    if (action != SPLIT || point < 0x80 || !begins_cluster(last->before, last->action)) {
        last->state = 0;
        return false;
    }
    return nm_unicode_joins(last->before, point, &last->state);
}

/* Reduces whitespace to single spaces, none at the ends. Removes control characters, which may leave two
 * adjacent spaces. Splits off punctuation except the marks of later substitutions. */
static void read_line(moses *self, const char *line, size_t bytes)
{
    /* A mark becomes at most three code points, or four with the space before it, which is a byte of the
     * input, too. */
    uint32_t *const start = begin_step(self, 3 * bytes), *to = start;
    uint32_t inner = self->language->inner;
    bool pending = false;
    cluster last = {0};
    self->seen = 0;
    for (size_t at = 0; at < bytes;) {
        uint32_t point = nm_utf8_next(line, &at);
        treatment action = treat_point(point, inner);
        bool joined = continues(&last, point, action);
        action = joined ? last.action : action;
        last.before = point;
        last.action = action;
        if (action == SPACE)
            pending = to > start;
        if (action == SPACE || action == DROPPED)
            continue;
        if (pending)
            *to++ = ' ';
        pending = false;
        self->seen = note_seen(self->seen, point);
        if (action == KEPT) {
            *to++ = point;
        } else if (joined) {
            to[-1] = point; /* in place of the space after the token */
            *to++ = ' ';
        } else {
            to = put_token(to, point);
        }
    }
    end_step(self, to);
}

/* A colon in Finnish and a raised dot in Catalan belong to a token only before a lower-case letter. */
static void split_inner_marks(moses *self)
{
    const points *text = &self->text;
    uint32_t *to = begin_step(self, 3 * text->n);
    for (size_t i = 0; i < text->n; i++) {
        bool inside = i + 1 < text->n && nm_unicode_is_lower_letter(text->data[i + 1]);
        if (text->data[i] == self->language->inner && !inside)
            to = put_token(to, text->data[i]);
        else
            *to++ = text->data[i];
    }
    end_step(self, to);
}

static void split_hyphens(moses *self)
{
    static const uint32_t split[] = {' ', '@', '-', '@', ' '};
    enum { N_SPLIT = sizeof split / sizeof *split };
    const points *text = &self->text;
    uint32_t *to = begin_step(self, N_SPLIT * text->n);
    for (size_t i = 0; i < text->n; i++) {
        bool within = text->data[i] == '-' && i > 0 && i + 1 < text->n && is_alnum(text->data[i - 1]) &&
                      is_alnum(text->data[i + 1]);
        memcpy(to, within ? split : &text->data[i], (within ? N_SPLIT : 1) * sizeof *to);
        to += within ? N_SPLIT : 1;
    }
    end_step(self, to);
}

static void split_dot_runs(moses *self)
{
    const points *text = &self->text;
    uint32_t *to = begin_step(self, 2 * text->n); /* a run has at least two periods and gets two spaces */
    for (size_t i = 0; i < text->n;) {
        size_t end = i;
        while (end < text->n && text->data[end] == '.')
            end++;
        if (end - i < 2) {
            *to++ = text->data[i++];
            continue;
        }
        *to++ = ' ';
        for (; i < end; i++)
            *to++ = RUN_DOT;
        *to++ = ' ';
    }
    end_step(self, to);
}

/* Splits off commas except those between digits (5,300): first commas that do not follow a digit, then commas
 * that do not precede a digit, then one at the end of the line. */
static void split_commas(moses *self)
{
    const points *text = &self->text;
    uint32_t *to = begin_step(self, 3 * text->n);
    for (size_t i = 0; i < text->n; i++) {
        uint32_t point = *to++ = text->data[i];
        if (i + 1 < text->n && text->data[i + 1] == ',' && !nm_unicode_is_number(point)) {
            to = put_token(to, ',');
            i++;
        }
    }
    end_step(self, to);
    to = begin_step(self, 3 * text->n + 2);
    for (size_t i = 0; i < text->n; i++) {
        uint32_t point = text->data[i];
        if (point == ',' && i + 1 < text->n && !nm_unicode_is_number(text->data[i + 1])) {
            to = put_token(to, ',');
            *to++ = text->data[++i];
        } else {
            *to++ = point;
        }
    }
    size_t n = (size_t)(to - self->next.data);
    if (n > 1 && to[-1] == ',' && nm_unicode_is_number(to[-2])) {
        to[-1] = ' ';
        *to++ = ',';
    }
    end_step(self, to);
}

/* Apostrophes. */

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

/* Splits an apostrophe between characters of the classes `before` and `after` off the first, the second or
 * both. A match consumes all three characters: the last one cannot be the first of the next match. */
static void split_apostrophes(moses *self, bool (*before)(uint32_t), bool (*after)(uint32_t), bool from_first,
                              bool from_second)
{
    const points *text = &self->text;
    uint32_t *to = begin_step(self, 2 * text->n);
    for (size_t i = 0; i < text->n; i++) {
        *to++ = text->data[i];
        if (i + 2 >= text->n || text->data[i + 1] != '\'' || !before(text->data[i]) ||
            !after(text->data[i + 2]))
            continue;
        if (from_first)
            *to++ = ' ';
        *to++ = '\'';
        if (from_second)
            *to++ = ' ';
        *to++ = text->data[i + 2];
        i += 2;
    }
    end_step(self, to);
}

static void split_all_apostrophes(moses *self)
{
    const points *text = &self->text;
    uint32_t *to = begin_step(self, 3 * text->n);
    for (size_t i = 0; i < text->n; i++) {
        if (text->data[i] == '\'')
            to = put_token(to, '\'');
        else
            *to++ = text->data[i];
    }
    end_step(self, to);
}

static void split_language_apostrophes(moses *self)
{
    nm_moses_apostrophe rule = self->language->apostrophe;
    if (rule == NM_MOSES_SEPARATE) {
        split_all_apostrophes(self);
        return;
    }
    split_apostrophes(self, is_other, is_other, true, true);
    split_apostrophes(self, rule == NM_MOSES_RIGHT ? is_neither : is_other, is_alpha, true, true);
    split_apostrophes(self, is_alpha, is_other, true, true);
    if (rule != NM_MOSES_INSIDE)
        split_apostrophes(self, is_alpha, is_alpha, rule == NM_MOSES_RIGHT, rule == NM_MOSES_LEFT);
    if (rule == NM_MOSES_RIGHT)
        split_apostrophes(self, nm_unicode_is_number, is_s, true, false); /* the 1990's */
}

/* Periods at the ends of words. */

static int64_t find_prefix(moses *self, const uint32_t *word, size_t n)
{
    if (n > LONGEST_PREFIX)
        return 0;
    nm_buffer_clear(&self->word);
    for (size_t i = 0; i < n; i++)
        nm_utf8_append(&self->word, word[i] == RUN_DOT ? '.' : word[i]);
    return nm_counter_get(&self->prefixes, self->word.data, self->word.bytes);
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

/* Whether the period after the word is not split off. `following` is the character after the space, 0 for a
 * second space. */
static bool keeps_period(moses *self, const uint32_t *word, size_t n, uint32_t following)
{
    int64_t prefix = find_prefix(self, word, n);
    if (is_abbreviation_with_dots(word, n) || prefix == PREFIX_ALWAYS || nm_unicode_is_lower(following))
        return true;
    return prefix == PREFIX_NUMERIC && following >= '0' && following <= '9';
}

static void split_periods(moses *self)
{
    const uint32_t *text = self->text.data;
    size_t n = self->text.n;
    uint32_t *to = begin_step(self, 2 * n + 1); /* a word that is split has at least two characters */
    while (n > 0 && text[n - 1] == ' ')
        n--;
    for (size_t start = 0; start < n;) {
        size_t end = start;
        while (end < n && text[end] != ' ')
            end++;
        bool dotted = end - start > 1 && text[end - 1] == '.';
        uint32_t following = end + 1 < n && text[end + 1] != ' ' ? text[end + 1] : 0;
        bool split = dotted && (end == n || !keeps_period(self, text + start, end - start - 1, following));
        memcpy(to, text + start, (end - start) * sizeof *to);
        to += end - start;
        if (split) {
            to[-1] = ' ';
            *to++ = '.';
        }
        *to++ = ' ';
        start = end + 1;
    }
    end_step(self, to);
}

/* Reduces whitespace to single spaces, none at the ends. Then splits .' at the end of the line into two
 * tokens, with a trailing space, as the script does. */
static void clean_spaces(moses *self)
{
    const points *text = &self->text;
    uint32_t *const start = begin_step(self, text->n + 4), *to = start;
    uint32_t last = ' ';
    for (size_t i = 0; i < text->n; i++) {
        uint32_t point = text->data[i];
        *to = point;
        to += point != ' ' || last != ' ';
        last = point;
    }
    if (to > start && to[-1] == ' ')
        to--;
    if (to - start >= 2 && to[-1] == '\'' && to[-2] == '.') {
        to = put_token(to - 2, '.');
        *to++ = '\'';
        *to++ = ' ';
    }
    end_step(self, to);
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

static bool is_plain(uint32_t point)
{
    return (point | 32) - 'a' < 26 || point == ' ';
}

static void write_line(const moses *self, nm_buffer *out)
{
    const uint32_t *at = self->text.data, *end = at + self->text.n;
    nm_buffer_reserve(out, self->text.n);
    while (at < end) {
        nm_buffer_reserve(out, (size_t)(end - at));
        for (; at < end && is_plain(*at); at++)
            out->data[out->bytes++] = (char)*at;
        if (at == end)
            break;
        const char *escape = self->escape ? find_escape(*at) : NULL;
        if (escape)
            nm_buffer_append(out, escape, strlen(escape));
        else
            nm_utf8_append(out, *at == RUN_DOT ? '.' : *at);
        at++;
    }
    out->data[out->bytes] = 0;
}

static void tokenize(moses *self, const char *line, size_t bytes, nm_buffer *out)
{
    read_line(self, line, bytes);
    if (self->language->inner)
        split_inner_marks(self);
    if (self->aggressive && self->seen & SEEN_HYPHEN)
        split_hyphens(self);
    if (self->seen & SEEN_PERIODS)
        split_dot_runs(self);
    if (self->seen & SEEN_COMMA)
        split_commas(self);
    if (self->seen & SEEN_APOSTROPHE)
        split_language_apostrophes(self);
    if (self->seen & SEEN_PERIOD)
        split_periods(self);
    clean_spaces(self);
    write_line(self, out);
}

/* The text between two protected spans is tokenized separately. */
static void tokenize_around_protected(moses *self, const char *line, size_t bytes, nm_buffer *out)
{
    const size_t start = out->bytes;
    for (size_t at = 0; at < bytes;) {
        size_t length, found = nm_moses_find_protected(line, bytes, at, &length), before = out->bytes;
        if (before > start)
            nm_buffer_append_byte(out, ' ');
        size_t first = out->bytes;
        tokenize(self, line + at, found - at, out);
        if (out->bytes == first)
            out->bytes = before;
        if (length && out->bytes > start)
            nm_buffer_append_byte(out, ' ');
        for (size_t i = found; i < found + length; i++) {
            const char *escape = self->escape ? find_escape((unsigned char)line[i]) : NULL;
            nm_buffer_append(out, escape ? escape : line + i, escape ? strlen(escape) : 1);
        }
        at = found + length;
    }
    nm_buffer_reserve(out, 0);
    out->data[out->bytes] = 0;
}

static void moses_tokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    moses *self = state;
    if (self->protect)
        tokenize_around_protected(self, line, bytes, out);
    else
        tokenize(self, line, bytes, out);
}

static void moses_detokenize(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    const moses *self = state;
    nm_moses_detokenize(self->language, line, bytes, out);
}

/* Of an abbreviation that is listed twice, the first kind counts. */
static void add_prefixes(nm_counter *prefixes, const char *list, int64_t kind)
{
    const char *word;
    size_t bytes, at = 0;
    while (nm_word_next(list, strlen(list), &at, &word, &bytes))
        if (bytes == 1 && *word == '|')
            kind = PREFIX_NUMERIC;
        else if (!nm_counter_get(prefixes, word, bytes))
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
    self->protect = options->protect;
    if (options->prefixes && *options->prefixes) {
        add_prefixes(&self->prefixes, options->prefixes, PREFIX_ALWAYS);
    } else {
        add_prefixes(&self->prefixes, prefixes->always, PREFIX_ALWAYS);
        add_prefixes(&self->prefixes, prefixes->numeric, PREFIX_NUMERIC);
    }
    *state = self;
    return NM_OK;
}

static void moses_free(void *state)
{
    moses *self = state;
    nm_counter_release(&self->prefixes);
    nm_buffer_release(&self->word);
    NM_FREE(self->text.data, self->next.data, self);
}

const nm_tokenizer_type nm_tokenizer_moses = {
    .name = "moses",
    .title = "words and punctuation as Moses' tokenizer.perl",
    .create = moses_create,
    .tokenize = moses_tokenize,
    .detokenize = moses_detokenize,
    .free = moses_free,
};
