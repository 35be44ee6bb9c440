/* Tables as text: quoting, newlines, limits, and the choice of columns. */
#include "text_helper.h"

#include "data/labeled.h"

/* All rows as "field|field\n", or the message of the failure. */
static char *rows_of(const char *text, size_t bytes, char separator, bool quotes)
{
    FILE *stream = fmemopen((void *)(uintptr_t)text, bytes, "rb");
    assert_non_null(stream);
    nm_delimited table;
    nm_error err;
    nm_buffer all = {0};
    nm_buffer_clear(&all);
    nm_delimited_init(&table, stream, "t", separator, quotes);
    for (bool more = true; more;) {
        if (nm_delimited_next(&table, &more, &err) != NM_OK) {
            assert_int_equal(err.status, NM_FORMAT);
            assert_null(strchr(err.text, '\n'));
            nm_buffer_clear(&all);
            nm_buffer_append(&all, err.text, strlen(err.text));
            break;
        }
        for (size_t i = 0; more && i < table.n_fields; i++) {
            size_t length;
            const char *field = nm_delimited_field(&table, i, &length);
            assert_int_equal(strlen(field), length);
            nm_buffer_append(&all, i ? "|" : "", i ? 1 : 0);
            nm_buffer_append(&all, field, length);
        }
        if (more)
            nm_buffer_append_byte(&all, '\n');
    }
    nm_delimited_release(&table);
    fclose(stream);
    return all.data;
}

static void expect(const char *text, char separator, bool quotes, const char *wanted)
{
    char *got = rows_of(text, strlen(text), separator, quotes);
    assert_string_equal(got, wanted);
    free(got);
}

static void fields_and_quotes(void **state)
{
    (void)state;
    expect("a,b\nc,d", ',', true, "a|b\nc|d\n");
    expect("a,\"b, \"\"c\"\"\"\r\n\"d\r\ne\",\n", ',', true, "a|b, \"c\"\nd\r\ne|\n");
    expect("\"\",\"\"\n", ',', true, "|\n");
    expect("\xEF\xBB\xBF\"a\",b\n", ',', true, "a|b\n");
    expect("\n\r\na\n\n\nb\n", ',', true, "a\nb\n");
    expect("a\rb,c\n", ',', true, "a\rb|c\n");
    expect("1\t\"so\" he said\n0\tb\"\n", '\t', false, "1|\"so\" he said\n0|b\"\n");
    expect("1\t\"tab\there\"\n", '\t', true, "1|tab\there\n");
    expect(",", ',', true, "|\n");
    expect("\xEF\xBB\x80", ',', true, "\xEF\xBB\x80\n"); /* first byte of the byte order mark */
}

static void broken_tables(void **state)
{
    (void)state;
    expect("a,b\n\"c,d\n", ',', true, "t:2: the quote that opens here is never closed");
    expect("\"a\"b,c\n", ',', true, "t:1: text after a closing quote");
    expect("x\n\"a\n\nb\"c,c\n", ',', true, "t:4: text after a closing quote");
    expect("x\na\"b,c\n", ',', true, "t:2: a quote inside a field that does not start with one");
    expect("a,b\n\"\n\",b\xFF\n", ',', true, "t:2: not UTF-8: byte 0xff at position 2 of field 2");
    expect("\xEF\xBB", ',', true, "t:1: not UTF-8: byte 0xef at position 1 of field 1");
    char *got = rows_of("a\tb\0c\n", 6, '\t', false);
    assert_string_equal(got, "t:1: field 2 contains a zero byte");
    free(got);
}

static void limits(void **state)
{
    (void)state;
    size_t bytes = NM_DELIMITED_MAX_ROW + 10;
    char *text = malloc(bytes);
    memset(text, 'x', bytes);
    text[0] = '"';
    char *got = rows_of(text, bytes, ',', true);
    assert_string_equal(got, "t:1: a row of more than 67108864 bytes; is a quote missing?");
    free(got);
    memset(text, ',', bytes);
    got = rows_of(text, bytes, ',', true);
    assert_string_equal(got, "t:1: more than 65536 fields");
    free(got);
    free(text);
}

typedef struct wish {
    nm_labeled_format format;
    nm_labeled_choice header;
    const char *label, *text;
    bool with_label;
} wish;

/* "label: text" of every row, or the message. */
static void expect_texts(const char *content, wish w, const char *wanted)
{
    char *path = write_temporary(content, strlen(content));
    nm_labeled_config config = {
        .format = w.format, .header = w.header, .label = w.label, .text = w.text, .with_label = w.with_label};
    nm_labeled texts;
    nm_error err;
    nm_buffer all = {0};
    nm_buffer_clear(&all);
    nm_status status = nm_labeled_open(&texts, path, &config, &err);
    for (bool more = true; status == NM_OK && more;) {
        status = nm_labeled_next(&texts, &more, &err);
        if (status != NM_OK || !more)
            break;
        nm_buffer_append(&all, texts.label, strlen(texts.label));
        nm_buffer_append(&all, ": ", 2);
        nm_buffer_append(&all, texts.text.data, texts.text.bytes);
        nm_buffer_append_byte(&all, '\n');
    }
    if (status != NM_OK) {
        const char *message = strstr(err.text, path) == err.text ? err.text + strlen(path) : err.text;
        assert_string_equal(message, wanted);
    } else {
        assert_string_equal(all.data, wanted);
    }
    nm_labeled_close(&texts);
    nm_buffer_release(&all);
    remove_temporary(path);
}

static void columns(void **state)
{
    (void)state;
    const wish numbers = {NM_LABELED_TSV, NM_CHOICE_AUTO, "1", "2", true};
    expect_texts("a\tone\nb\ttwo\n", numbers, "a: one\nb: two\n");
    expect_texts("Label\ttext\n b \ttwo\n", numbers, "b: two\n");
    expect_texts("a\tone\nb\ttwo\n", (wish){NM_LABELED_TSV, NM_CHOICE_YES, "1", "2", true}, "b: two\n");
    expect_texts("label\tone\nb\ttwo\n", (wish){NM_LABELED_TSV, NM_CHOICE_NO, "1", "2", true},
                 "label: one\nb: two\n");
    const wish names = {NM_LABELED_CSV, NM_CHOICE_AUTO, "stars", "title,body", true};
    expect_texts("title,stars,body\nGood,5,\"line\none\"\n", names, "5: Good line one\n");
    expect_texts("title,body\nx,y\n", (wish){NM_LABELED_CSV, NM_CHOICE_AUTO, "stars", "title,2", false},
                 ": x y\n");
    expect_texts("only a line\n\nlast", (wish){NM_LABELED_LINES, NM_CHOICE_AUTO, "1", "2", false},
                 ": only a line\n: \n: last\n");
    expect_texts("", numbers, "");
}

static void wrong_columns(void **state)
{
    (void)state;
    const wish numbers = {NM_LABELED_TSV, NM_CHOICE_AUTO, "1", "2", true};
    expect_texts("a\tone\nb\n", numbers, ":2: 1 field, the first row has 2");
    expect_texts("a\tone\nb\tx\ty\n", numbers, ":2: 3 fields, the first row has 2");
    expect_texts(
        "a\n", numbers,
        ":1: no column 2: the first row has 1 field; \"label text\" is the format space or fasttext");
    expect_texts("a\tb\n", (wish){NM_LABELED_TSV, NM_CHOICE_AUTO, "0", "2", true},
                 ":1: no column is named \"0\"; the first row has: a, b");
    expect_texts("a\tb\n", (wish){NM_LABELED_TSV, NM_CHOICE_AUTO, "mood", "2", true},
                 ":1: no column is named \"mood\"; the first row has: a, b");
    expect_texts(
        "a\tb\n", (wish){NM_LABELED_TSV, NM_CHOICE_NO, "mood", "2", true},
        ":1: no column is named \"mood\", because the first row is not a header; the first row has: a, b");
    /* names are truncated to 40 bytes, between characters */
    expect_texts(
        "a\tDie Überschrift, so lang wie ein Satz, über\n",
        (wish){NM_LABELED_TSV, NM_CHOICE_AUTO, "mood", "2", true},
        ":1: no column is named \"mood\"; the first row has: a, Die Überschrift, so lang wie ein Satz, ");
    expect_texts("a\tb\n", (wish){NM_LABELED_TSV, NM_CHOICE_NO, "1", ",", true},
                 "no column of text is named");
    expect_texts("a\tone\n  \ttwo\n", numbers, ":2: the label is empty");
    expect_texts("a\x01\tone\n", numbers, ":1: control character 0x01 in the label");
    expect_texts("a\tb\n", (wish){NM_LABELED_LINES, NM_CHOICE_NO, "1", "2", true},
                 ": lines have no labels: use another format, such as tsv or space");
    char *much = nm_allocate(1200);
    memset(much, 'l', 1100);
    memcpy(much + 1100, "\tx\n", 4);
    expect_texts(much, numbers, ":1: a label of 1100 bytes; is column 1 that of the text?");
    free(much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fields_and_quotes), cmocka_unit_test(broken_tables),
                                       cmocka_unit_test(limits), cmocka_unit_test(columns),
                                       cmocka_unit_test(wrong_columns)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
