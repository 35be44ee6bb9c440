#include "text/word_vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/file.h"
#include "base/text_input.h"
#include "base/memory.h"
#include "base/words.h"

enum { MAX_WIDTH = 1 << 16 };

static nm_status fail_here(const nm_lines *lines, const char *what, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", lines->path, (long long)lines->number, what);
}

static int32_t count_words(const nm_lines *lines)
{
    size_t at = 0, bytes;
    const char *word;
    int32_t n = 0;
    while (n <= MAX_WIDTH + 1 && nm_word_next(lines->text, lines->bytes, &at, &word, &bytes))
        n++;
    return n;
}

/* Whether the line is the first one of word2vec's format, such as "400000 100". */
static bool is_header(const nm_lines *lines)
{
    return lines->number == 1 && count_words(lines) == 2 &&
           strspn(lines->text, "0123456789 \r") == lines->bytes;
}

static nm_status read_numbers(nm_word_vectors *v, const nm_lines *lines, size_t at, float *to, nm_error *err)
{
    const char *word;
    size_t bytes;
    char *end;
    for (int32_t i = 0; i < v->width; i++) {
        NM_ASSERT(nm_word_next(lines->text, lines->bytes, &at, &word, &bytes));
        to[i] = nm_parse_float(word, &end);
        if (end != word + bytes || !isfinite(to[i]))
            return nm_fail(err, NM_FORMAT, "%s:%lld: '%.*s' is not a finite number", lines->path,
                           (long long)lines->number, (int)(bytes < 40 ? bytes : 40), word);
    }
    return NM_OK;
}

/* Position after the first n fields of the line, whose last one is returned in *field. */
static size_t skip_fields(const nm_lines *lines, int32_t n, const char **field, size_t *bytes)
{
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        bool found = nm_word_next(lines->text, lines->bytes, &at, field, bytes);
        NM_ASSERT(found);
    }
    return at;
}

static bool is_number(const char *field, size_t bytes)
{
    char *end;
    nm_parse_float(field, &end);
    return end == field + bytes;
}

static nm_status add_vector_line(nm_word_vectors *v, const nm_lines *lines, const nm_counter *vocabulary,
                                 nm_error *err)
{
    int32_t fields = count_words(lines);
    if (!fields)
        return fail_here(lines, "an empty line", err);
    if (fields < 2 || fields > MAX_WIDTH + 1)
        return fail_here(lines, fields < 2 ? "a word without numbers" : "more than 65536 numbers", err);
    if (!v->width)
        v->width = fields - 1;
    int32_t parts = fields - v->width; /* of the word: GloVe has words such as ". . ." */
    size_t bytes, last_bytes;
    const char *word, *last;
    skip_fields(lines, 1, &word, &bytes);
    size_t at = skip_fields(lines, parts > 1 ? parts : 1, &last, &last_bytes);
    if (parts < 1 || (parts > 1 && is_number(last, last_bytes)))
        return nm_fail(err, NM_FORMAT, "%s:%lld: %d numbers, the preceding lines have %d", lines->path,
                       (long long)lines->number, fields - 1, v->width);
    bytes = (size_t)(last - word) + last_bytes;
    if (nm_counter_find(vocabulary, word, bytes) == SIZE_MAX ||
        nm_counter_find(&v->words, word, bytes) != SIZE_MAX)
        return NM_OK;
    size_t row = nm_counter_add(&v->words, word, bytes, 1), width = (size_t)v->width;
    NM_RESERVE(v->values, (row + 1) * width, v->capacity);
    return read_numbers(v, lines, at, v->values + row * width, err);
}

static nm_status read_all(nm_word_vectors *v, nm_lines *lines, const nm_counter *vocabulary, nm_error *err)
{
    for (bool more = true;;) {
        NM_TRY(nm_lines_next(lines, &more, err));
        if (!more)
            return v->width ? NM_OK : nm_fail(err, NM_FORMAT, "%s: contains no vectors", lines->path);
        NM_TRY(nm_line_check(lines, err));
        if (memchr(lines->text, 0, lines->bytes))
            return fail_here(lines, "not text: contains a zero byte", err);
        if (!is_header(lines))
            NM_TRY(add_vector_line(v, lines, vocabulary, err));
    }
}

nm_status nm_word_vectors_read(nm_word_vectors *vectors, const char *path, const nm_counter *vocabulary,
                               nm_error *err)
{
    *vectors = (nm_word_vectors){0};
    FILE *stream;
    NM_TRY(nm_text_open(&stream, path, NULL, err));
    NM_AUTO(nm_lines_release) nm_lines lines = {0};
    nm_lines_init(&lines, stream, path);
    nm_status status = read_all(vectors, &lines, vocabulary, err);
    nm_input_close(stream);
    return status;
}

void nm_word_vectors_release(nm_word_vectors *vectors)
{
    nm_counter_release(&vectors->words);
    free(vectors->values);
    *vectors = (nm_word_vectors){0};
}

const float *nm_word_vectors_find(const nm_word_vectors *vectors, const char *word)
{
    size_t row = nm_counter_find(&vectors->words, word, strlen(word));
    return row == SIZE_MAX ? NULL : vectors->values + row * (size_t)vectors->width;
}

void nm_word_vectors_unit(nm_word_vectors *vectors)
{
    for (size_t row = 0; row < vectors->words.n; row++) {
        float *v = vectors->values + row * (size_t)vectors->width;
        double square = 0;
        for (int32_t i = 0; i < vectors->width; i++)
            square += (double)v[i] * (double)v[i];
        for (int32_t i = 0; square > 0 && i < vectors->width; i++)
            v[i] = (float)((double)v[i] / sqrt(square));
    }
}
