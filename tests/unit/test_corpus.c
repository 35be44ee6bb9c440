/* Token files: written sequences are read back, and no changed bit is accepted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/corpus.h"

enum { WORDS = 50, N = 4 };
static const int32_t lines[N][3] = {{4, 17, 2}, {2}, {49, 5, 2}, {7, 2}};
static const int32_t lengths[N] = {3, 1, 3, 2};

static char folder[] = "/tmp/norma-corpus-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(folder) && !chdir(folder) ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    unlink("c.ids");
    unlink("c.off");
    return chdir("/") || rmdir(folder);
}

static void write_example(void)
{
    nm_corpus_writer writer;
    nm_error err;
    assert_int_equal(nm_corpus_writer_open(&writer, "c", &err), NM_OK);
    for (int i = 0; i < N; i++)
        nm_corpus_writer_add(&writer, lines[i], lengths[i]);
    assert_int_equal(nm_corpus_writer_commit(&writer, &err), NM_OK);
}

static void check_example(const nm_corpus *corpus)
{
    assert_int_equal(corpus->n, N);
    for (int64_t i = 0; i < N; i++) {
        assert_int_equal(nm_corpus_length(corpus, i), lengths[i]);
        assert_memory_equal(corpus->ids + corpus->offsets[i], lines[i], (size_t)lengths[i] * sizeof **lines);
    }
}

static void round_trip(void **unused)
{
    (void)unused;
    nm_corpus corpus;
    nm_error err;
    write_example();
    assert_int_equal(nm_corpus_open(&corpus, "c", WORDS, &err), NM_OK);
    check_example(&corpus);
    nm_corpus_close(&corpus);
    assert_int_equal(nm_corpus_open(&corpus, "c", WORDS - 1, &err), NM_MISMATCH);
}

static void damaged_anywhere(void **unused)
{
    (void)unused;
    for (int part = 0; part < 2; part++) {
        const char *path = part ? "c.off" : "c.ids";
        char *content;
        size_t bytes;
        nm_error err;
        write_example();
        assert_int_equal(nm_file_read(path, &content, &bytes, &err), NM_OK);
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            nm_corpus corpus;
            content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
            assert_int_equal(nm_file_write(path, content, bytes, &err), NM_OK);
            nm_status status = nm_corpus_open(&corpus, "c", WORDS, &err);
            assert_true(status == NM_FORMAT || status == NM_MISMATCH);
            assert_non_null(strstr(err.text, "c."));
            content[bit / 8] = (char)(content[bit / 8] ^ 1 << bit % 8);
        }
        free(content);
    }
}

/* Every pair of offsets is compared, the first one too: the message names the sequence. */
static void invalid_offsets(void **unused)
{
    (void)unused;
    for (int first = 0; first < N; first++) {
        const uint64_t after_all = 1000;
        char *content, *message = nm_format("sequence %d has an invalid offset", first);
        size_t bytes;
        nm_corpus corpus;
        nm_error err;
        write_example();
        assert_int_equal(nm_file_read("c.off", &content, &bytes, &err), NM_OK);
        memcpy(content + bytes - (size_t)(N + 1 - first) * sizeof after_all, &after_all, sizeof after_all);
        assert_int_equal(nm_file_write("c.off", content, bytes, &err), NM_OK);
        assert_int_equal(nm_corpus_open(&corpus, "c", WORDS, &err), NM_FORMAT);
        if (!strstr(err.text, message))
            fail_msg("%s: %s", message, err.text);
        free(content);
        free(message);
    }
}

static void modified_in_use(void **unused)
{
    (void)unused;
    nm_corpus corpus;
    nm_error err;
    write_example();
    assert_int_equal(nm_corpus_open(&corpus, "c", WORDS, &err), NM_OK);
    assert_int_equal(truncate("c.ids", 0), 0);
    FILE *stream = fopen("c.off", "r+b");
    assert_non_null(stream);
    for (int i = 0; i < 100; i++)
        fputc('N', stream);
    fclose(stream);
    check_example(&corpus);
    nm_corpus_close(&corpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(damaged_anywhere),
        cmocka_unit_test(invalid_offsets),
        cmocka_unit_test(modified_in_use),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
