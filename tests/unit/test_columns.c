/* Readers of column files and of word vectors: results, and messages about malformed files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text/columns.h"
#include "text/word_vectors.h"

/* A reader of these bytes; *text must outlive it. */
static FILE *reader(nm_columns *columns, const char *text, size_t bytes)
{
    FILE *stream = fmemopen((void *)(uintptr_t)text, bytes, "rb");
    assert_non_null(stream);
    nm_columns_init(columns, stream, "file");
    return stream;
}

static void reads_sentences(void **state)
{
    (void)state;
    static const char text[] = "\n \na b  c\r\nd e f\n\n\t\nx\ty z\tO\nu v w";
    nm_columns c;
    nm_error err;
    bool more;
    int64_t blank_lines;
    FILE *stream = reader(&c, text, sizeof text - 1);
    assert_int_equal(nm_columns_peek(&c, &more, &blank_lines, &err), NM_OK);
    assert_int_equal(blank_lines, 2);
    assert_true(more);
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_true(more);
    assert_int_equal(c.n, 2);
    assert_int_equal(c.n_columns, 3);
    assert_int_equal(c.line, 3);
    assert_string_equal(nm_columns_line(&c, 0), "a b  c");
    assert_string_equal(nm_columns_field(&c, 0, 2), "c");
    assert_string_equal(nm_columns_field(&c, 1, -3), "d");
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_string_equal(nm_columns_field(&c, 0, 1), "y z");
    assert_string_equal(nm_columns_field(&c, 1, -1), "w");
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_false(more);
    nm_columns_release(&c);
    fclose(stream);
}

static void knows_documents(void **state)
{
    (void)state;
    static const char text[] = "-DOCSTART- -X- O O\n\n-DOCSTAR -X- O O\n";
    nm_columns c;
    nm_error err;
    bool more;
    FILE *stream = reader(&c, text, sizeof text - 1);
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_true(nm_columns_document(&c));
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_false(nm_columns_document(&c));
    nm_columns_release(&c);
    fclose(stream);
}

/* Lines that start a document may follow and precede sentences without a blank line. */
static void splits_documents_without_blank_lines(void **state)
{
    (void)state;
    static const char text[] =
        "-DOCSTART- -DOCSTART- O\nDe Art O\ntekst N O\n-DOCSTART-\t-X-\tO\n\n-DOCSTART-s N O\n. P O\n";
    static const struct {
        int32_t n;
        int64_t line;
        bool document, joined;
    } expected[] = {{1, 1, true, true}, {2, 2, false, true}, {1, 4, true, false}, {2, 6, false, false}};
    nm_columns c;
    nm_error err;
    bool more;
    FILE *stream = reader(&c, text, sizeof text - 1);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
        assert_true(more);
        assert_int_equal(c.n, expected[i].n);
        assert_int_equal(c.line, expected[i].line);
        assert_int_equal(nm_columns_document(&c), expected[i].document);
        assert_int_equal(c.joined, expected[i].joined);
    }
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_false(more);
    nm_columns_release(&c);
    fclose(stream);
}

/* A sentence with invalid lines is marked; those before and after it are whole. */
static void skips_invalid_lines(void **state)
{
    (void)state;
    static const char text[] = "a O\n\n\xff O\nb O\nc\xff O\n\n-DOCSTART- O\nd\0 O\ne O\n\nf O\n\n\xff\n";
    static const struct {
        int32_t n;
        int64_t invalid;
        bool document;
    } wanted[] = {{1, 0, false}, {1, 3, false}, {1, 0, true}, {1, 8, false}, {1, 0, false}, {0, 13, false}};
    nm_columns c;
    nm_error err;
    bool more;
    FILE *stream = reader(&c, text, sizeof text - 1);
    c.skip_invalid = true;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
        assert_true(more);
        assert_int_equal(c.n, wanted[i].n);
        assert_int_equal(c.invalid, wanted[i].invalid);
        assert_int_equal(nm_columns_document(&c), wanted[i].document);
    }
    assert_int_equal(nm_columns_next(&c, &more, &err), NM_OK);
    assert_false(more);
    nm_columns_release(&c);
    fclose(stream);
}

static void check_broken(const char *text, size_t bytes, const char *message)
{
    nm_columns c;
    nm_error err;
    bool more = true;
    nm_status status = NM_OK;
    FILE *stream = reader(&c, text, bytes);
    while (status == NM_OK && more)
        status = nm_columns_next(&c, &more, &err);
    assert_int_equal(status, NM_FORMAT);
    assert_string_equal(err.text, message);
    nm_columns_release(&c);
    fclose(stream);
}

#define BROKEN(text, message) check_broken(text, sizeof text - 1, message)

static void refuses_broken_columns(void **state)
{
    (void)state;
    BROKEN("a b\nc\n", "file:2: 1 columns, the preceding lines have 2");
    BROKEN("a b\n\nc d e\n", "file:3: 3 columns, the preceding lines have 2");
    BROKEN("a\t\tb\n", "file:1: column 2 is empty");
    BROKEN("a\tb\t\n", "file:1: column 3 is empty");
    BROKEN("a b\n\xff b\n", "file:2: not UTF-8: byte 0xff at position 1");
    BROKEN("a\0b\n", "file:1: not text: contains a zero byte");
    char many[2 * (NM_COLUMNS_MAX + 2) + 1];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 ? ' ' : 'a';
    check_broken(many, sizeof many - 1, "file:1: more than 64 columns");
}

static void refuses_endless_sentences(void **state)
{
    (void)state;
    size_t bytes = 2 * ((size_t)NM_SENTENCE_MAX + 1);
    char *text = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 2 ? '\n' : 'a';
    check_broken(
        text, bytes,
        "file:65537: a sentence of more than 65536 tokens: sentences must be separated by blank lines");
    free(text);
}

static nm_status read_vectors(nm_word_vectors *vectors, const char *text, size_t bytes, char path[64],
                              nm_error *err)
{
    nm_counter wanted = {0};
    strcpy(path, "/tmp/norma-vectors-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, bytes), bytes);
    close(file);
    nm_counter_add(&wanted, "a", 1, 1);
    nm_counter_add(&wanted, "c", 1, 1);
    nm_status status = nm_word_vectors_read(vectors, path, &wanted, err);
    nm_counter_release(&wanted);
    unlink(path);
    return status;
}

static void check_vectors(const char *text, size_t bytes)
{
    nm_word_vectors v;
    nm_error err;
    char path[64];
    assert_int_equal(read_vectors(&v, text, bytes, path, &err), NM_OK);
    assert_int_equal(v.width, 2);
    assert_int_equal(v.words.n, 2);
    assert_null(nm_word_vectors_find(&v, "b"));
    nm_word_vectors_unit(&v);
    assert_true(fabsf(nm_word_vectors_find(&v, "a")[0] - 0.6f) < 1e-6f);
    assert_true(fabsf(nm_word_vectors_find(&v, "a")[1] + 0.8f) < 1e-6f);
    assert_true(nm_word_vectors_find(&v, "c")[1] == 0); /* no length: stays */
    nm_word_vectors_release(&v);
}

#define VECTORS(text) check_vectors(text, sizeof text - 1)

static void reads_vectors(void **state)
{
    (void)state;
    VECTORS("a 3 -4\nb 1 2\nc 0 0\na 9 9\n");       /* GloVe */
    VECTORS("a 3 -4\n. . . 1 2\na b 5 6\nc 0 0\n"); /* words with spaces */
    VECTORS("3 2\na 3e0 -4 \nb 1 2\nc 0 0");        /* word2vec */
}

static void check_bad_vectors(const char *text, size_t bytes, const char *message)
{
    nm_word_vectors v;
    nm_error err;
    char path[64], wanted[256];
    assert_int_equal(read_vectors(&v, text, bytes, path, &err), NM_FORMAT);
    snprintf(wanted, sizeof wanted, "%s:%s", path, message);
    assert_string_equal(err.text, wanted);
    nm_word_vectors_release(&v);
}

#define BAD_VECTORS(text, message) check_bad_vectors(text, sizeof text - 1, message)

static void refuses_broken_vectors(void **state)
{
    (void)state;
    BAD_VECTORS("a 1 2\nb 1\n", "2: 1 numbers, the preceding lines have 2");
    BAD_VECTORS("b 1 2\nb 1 2 3\n", "2: 3 numbers, the preceding lines have 2");
    BAD_VECTORS("a 1 x\n", "1: 'x' is not a finite number");
    BAD_VECTORS("a 1 nan\n", "1: 'nan' is not a finite number");
    BAD_VECTORS("a 1 2e99\n", "1: '2e99' is not a finite number");
    BAD_VECTORS("a\n", "1: a word without numbers");
    BAD_VECTORS("a 1\n\n", "2: an empty line");
    BAD_VECTORS("a 1\n\xfe 1\n", "2: not UTF-8: byte 0xfe at position 1");
    BAD_VECTORS("a 1\n\0 1\n", "2: not text: contains a zero byte");
    BAD_VECTORS("", " contains no vectors");
    BAD_VECTORS("2 1\n", " contains no vectors");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_sentences),
                                       cmocka_unit_test(knows_documents),
                                       cmocka_unit_test(splits_documents_without_blank_lines),
                                       cmocka_unit_test(skips_invalid_lines),
                                       cmocka_unit_test(refuses_broken_columns),
                                       cmocka_unit_test(refuses_endless_sentences),
                                       cmocka_unit_test(reads_vectors),
                                       cmocka_unit_test(refuses_broken_vectors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
