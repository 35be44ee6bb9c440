/* The reader of documents: lines, lines between separators, whole files. */
#include "text_helper.h"

#include "text/documents.h"

/* All documents as "LINE:TEXT|", or the message of the failure. */
static char *documents_of(const char *text, size_t bytes, nm_document_rule rule)
{
    FILE *stream = bytes ? fmemopen((void *)(uintptr_t)text, bytes, "rb") : fopen("/dev/null", "rb");
    assert_non_null(stream);
    nm_documents documents;
    nm_error err;
    nm_buffer all = {0};
    nm_buffer_clear(&all);
    nm_documents_init(&documents, stream, "t", rule);
    documents.checked = true;
    for (bool more = true; more;) {
        if (nm_documents_next(&documents, &more, &err) != NM_OK) {
            assert_int_equal(err.status, NM_FORMAT);
            nm_buffer_clear(&all);
            nm_buffer_append(&all, err.text, strlen(err.text));
            break;
        }
        if (!more)
            break;
        assert_int_equal(strlen(documents.text), documents.bytes);
        char *line = nm_format("%lld:%s|", (long long)documents.line, documents.text);
        nm_buffer_append(&all, line, strlen(line));
        free(line);
    }
    nm_documents_release(&documents);
    fclose(stream);
    return all.data;
}

static void expect(const char *text, nm_document_unit unit, const char *separator, const char *wanted)
{
    char *got = documents_of(text, strlen(text), (nm_document_rule){unit, separator});
    assert_string_equal(got, wanted);
    free(got);
}

static void lines_are_documents(void **state)
{
    (void)state;
    expect("a\n\nb\r\n c", NM_DOCUMENT_LINE, "", "1:a|2:|3:b|4: c|");
    expect("", NM_DOCUMENT_LINE, "", "");
}

static void separators(void **state)
{
    (void)state;
    expect("a\nb\n\nc\n", NM_DOCUMENT_SEPARATED, "", "1:a\nb|4:c|");
    expect("\n\r\n\na\n\n\n \nb\r\n", NM_DOCUMENT_SEPARATED, "", "4:a|7: \nb|");
    expect("a\r\nb\r\n\r\nc\n", NM_DOCUMENT_SEPARATED, "", "1:a\r\nb|4:c|");
    expect("--\na\n\nb\n--\n--\n-- \n---\n--", NM_DOCUMENT_SEPARATED, "--", "2:a\n\nb|7:-- \n---|");
    expect("--\n", NM_DOCUMENT_SEPARATED, "--", "");
    expect("", NM_DOCUMENT_SEPARATED, "--", "");
}

static void files(void **state)
{
    (void)state;
    expect("\xEF\xBB\xBF\na\r\n\nb\n\n", NM_DOCUMENT_FILE, "", "1:\na\r\n\nb\n\n|");
    expect("a\r\nb\r\n", NM_DOCUMENT_FILE, "", "1:a\r\nb\r\n|");
    expect("a\nb", NM_DOCUMENT_FILE, "", "1:a\nb|");
    expect("\n", NM_DOCUMENT_FILE, "", "1:\n|");
    expect("", NM_DOCUMENT_FILE, "", "");
}

static void bad_lines(void **state)
{
    (void)state;
    expect("a\n\nb\xFF\n", NM_DOCUMENT_FILE, "", "t:3: not UTF-8: byte 0xff at position 2");
    expect("a\n\nb\xFF\n", NM_DOCUMENT_SEPARATED, "", "t:3: not UTF-8: byte 0xff at position 2");
    char *got = documents_of("a\nb\0c\n", 6, (nm_document_rule){NM_DOCUMENT_FILE, ""});
    assert_string_equal(got, "t:2: not text: byte 0x00 at position 2");
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_documents),
        cmocka_unit_test(separators),
        cmocka_unit_test(files),
        cmocka_unit_test(bad_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
