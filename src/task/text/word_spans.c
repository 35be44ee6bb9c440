#include "text/word_spans.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/utf8.h"
#include "base/words.h"

enum { MOST_CHARACTERS = 4096, SPACE_MARK = 0x2581 /* of SentencePiece */ };

typedef struct characters { /* in lower case, without whitespace */
    uint32_t *points;
    int32_t *owners; /* index of the word or subword of each character */
    size_t n, capacity, owners_capacity;
} characters;

size_t nm_word_spans(const char *text, size_t bytes, nm_word_span **spans)
{
    size_t n = 0, capacity = 0;
    bool inside = false;
    *spans = NULL;
    for (size_t at = 0; at < bytes;) {
        size_t begin = at;
        bool space = nm_unicode_is_space(nm_utf8_next(text, &at));
        if (!space && !inside) {
            NM_GROW(*spans, n, capacity);
            (*spans)[n++].begin = begin;
        }
        if (!space)
            (*spans)[n - 1].end = at;
        inside = !space;
    }
    return n;
}

static void add_character(characters *list, const char *text, size_t bytes, int32_t owner, nm_buffer *lower)
{
    size_t at = 0;
    nm_buffer_clear(lower);
    nm_utf8_lowercase(text, bytes, lower);
    NM_GROW(list->points, list->n, list->capacity);
    NM_GROW(list->owners, list->n, list->owners_capacity);
    list->points[list->n] = nm_utf8_next(lower->data, &at);
    list->owners[list->n++] = owner;
}

static void add_characters(characters *list, const char *text, size_t bytes, int32_t owner, nm_buffer *lower)
{
    for (size_t at = 0; at < bytes;) {
        size_t begin = at;
        if (nm_utf8_next(text, &at) != SPACE_MARK)
            add_character(list, text + begin, at - begin, owner, lower);
    }
}

static void characters_release(characters *list)
{
    NM_FREE(list->points, list->owners);
}

static characters characters_of_words(const char *text, const nm_word_span *spans, size_t n, nm_buffer *lower)
{
    characters list = {0};
    for (size_t i = 0; i < n; i++)
        add_characters(&list, text + spans[i].begin, spans[i].end - spans[i].begin, (int32_t)i, lower);
    return list;
}

/* A character belongs to the subword of its first byte. */
static characters characters_of_bytes(const nm_subword_line *line, nm_buffer *lower)
{
    characters list = {0};
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    NM_AUTO_FREE int32_t *owners = nm_allocate(line->bytes * sizeof *owners);
    int32_t owner = 0; /* of the bytes */
    for (size_t at = 0; at < line->bytes;) {
        int byte = nm_byte_level_byte(nm_utf8_next(line->text, &at));
        owner += line->text[at - 1] == ' ';
        if (byte < 0)
            continue;
        owners[text.bytes] = owner;
        nm_buffer_append_byte(&text, (char)byte);
    }
    for (size_t at = 0; at < text.bytes && owners[at] < line->n;) {
        size_t begin = at, length = nm_utf8_length(text.data[at]);
        if (length > text.bytes - at || nm_utf8_find_invalid(text.data + at, length) < length) {
            at++;
            continue;
        }
        if (!nm_unicode_is_space(nm_utf8_next(text.data, &at)))
            add_character(&list, text.data + begin, length, owners[begin], lower);
    }
    return list;
}

static characters characters_of_subwords(const nm_subword_line *line, nm_buffer *lower)
{
    static const size_t mark = sizeof NM_BPE_SEPARATOR - 1;
    characters list = {0};
    const char *subword;
    size_t at = 0, length;
    if (line->byte_level)
        return characters_of_bytes(line, lower);
    for (int32_t i = 0; i < line->n && nm_word_next(line->text, line->bytes, &at, &subword, &length); i++) {
        if (length > mark && !memcmp(subword + length - mark, NM_BPE_SEPARATOR, mark))
            length -= mark;
        add_characters(&list, subword, length, i, lower);
    }
    return list;
}

/* Sets words[subword] from the pairs of characters, equal or substituted, of an alignment with minimum edit
 * distance. */
static void align_characters(const characters *text, const characters *subwords, int32_t *words)
{
    enum { PAIR, TEXT_ONLY, SUBWORD_ONLY };
    size_t n = text->n, m = subwords->n, width = m + 1;
    NM_AUTO_FREE uint8_t *moves = nm_allocate((n + 1) * width);
    int32_t *costs = nm_allocate(2 * width * sizeof *costs), *row = costs, *above = costs + width;
    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j <= m; j++) {
            int32_t pair =
                i && j ? above[j - 1] + (text->points[i - 1] != subwords->points[j - 1]) : INT32_MAX;
            int32_t text_only = i ? above[j] + 1 : INT32_MAX, subword_only = j ? row[j - 1] + 1 : INT32_MAX;
            row[j] = pair <= text_only && pair <= subword_only ? pair
                     : text_only <= subword_only               ? text_only
                                                               : subword_only;
            if (!i && !j)
                row[j] = 0;
            moves[i * width + j] = row[j] == pair ? PAIR : row[j] == text_only ? TEXT_ONLY : SUBWORD_ONLY;
        }
        int32_t *swap = row;
        row = above;
        above = swap;
    }
    for (size_t i = n, j = m; i || j;) {
        uint8_t move = moves[i * width + j];
        i -= move != SUBWORD_ONLY;
        j -= move != TEXT_ONLY;
        if (move == PAIR)
            /* in reverse: the first character of a subword prevails */
            words[subwords->owners[j]] = text->owners[i];
    }
    free(costs);
}

void nm_word_spans_of_subwords(const char *text, const nm_word_span *spans, size_t n_spans,
                               const nm_subword_line *subwords, int32_t *words)
{
    NM_AUTO(nm_buffer_release) nm_buffer lower = {0};
    int32_t n = subwords->n;
    NM_AUTO(characters_release) characters of_text = characters_of_words(text, spans, n_spans, &lower);
    NM_AUTO(characters_release) characters of_subwords = characters_of_subwords(subwords, &lower);
    bool large = of_text.n > MOST_CHARACTERS || of_subwords.n > MOST_CHARACTERS;
    for (int32_t i = 0; i < n; i++)
        words[i] = large ? (int32_t)((size_t)i * n_spans / (size_t)n) : -1;
    if (!large)
        align_characters(&of_text, &of_subwords, words);
    for (int32_t i = 0; i < n; i++)
        if (words[i] < 0 && n_spans)
            words[i] = i ? words[i - 1] : 0;
}
