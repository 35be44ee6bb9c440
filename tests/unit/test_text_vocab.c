/* Vocabularies: fairseq's order and file format, hostile files, conversion to ids and back. */
#include "text_helper.h"

#include <string.h>

#include "text/vocab.h"

static void count_text(nm_counter *counter, const char *text)
{
    nm_counter_add_line(counter, text, strlen(text));
}

static void order_is_that_of_fairseq(void **state)
{
    (void)state;
    nm_counter counter = {0};
    nm_vocab *vocab;
    nm_error err;
    count_text(&counter, "b a c b \xC3\xA4 z <unk> </s> c b a");
    nm_vocab_options options = nm_vocab_options_default();
    assert_int_equal(nm_vocab_build(&counter, &options, &vocab, &err), NM_OK);
    static const char *const symbols[] = {"<s>",
                                          "<pad>",
                                          "</s>",
                                          "<unk>",
                                          "b",
                                          "a",
                                          "c",
                                          "z",
                                          "\xC3\xA4",
                                          "madeupword0000",
                                          "madeupword0001",
                                          "madeupword0002",
                                          "madeupword0003",
                                          "madeupword0004",
                                          "madeupword0005",
                                          "madeupword0006"};
    assert_int_equal(nm_vocab_size(vocab), 16);
    for (int32_t i = 0; i < 16; i++)
        assert_string_equal(nm_vocab_symbol(vocab, i), symbols[i]);
    assert_int_equal(nm_vocab_count(vocab, 4), 3);
    assert_int_equal(nm_vocab_count(vocab, 9), 0);
    nm_buffer text = {0};
    nm_vocab_format(vocab, &text);
    static const char start[] = "b 3\na 2\nc 2\nz 1\n\xC3\xA4 1\nmadeupword0000 0\n";
    assert_memory_equal(text.data, start, sizeof start - 1);
    nm_vocab *again;
    assert_int_equal(nm_vocab_parse(text.data, text.bytes, "memory", NM_VOCAB_FAIRSEQ, &again, &err), NM_OK);
    nm_buffer second = {0};
    nm_vocab_format(again, &second);
    assert_buffer(&second, text.data);
    nm_buffer_release(&text);
    nm_buffer_release(&second);
    nm_vocab_free(vocab);
    nm_vocab_free(again);
    nm_counter_release(&counter);
}

static void threshold_and_size_cut(void **state)
{
    (void)state;
    nm_counter counter = {0};
    nm_vocab *vocab;
    nm_error err;
    count_text(&counter, "a a a a b b b c c d");
    nm_vocab_options options = {.order = NM_VOCAB_TEARS, .threshold = 2};
    assert_int_equal(nm_vocab_build(&counter, &options, &vocab, &err), NM_OK);
    assert_int_equal(nm_vocab_size(vocab), 7);
    assert_string_equal(nm_vocab_symbol(vocab, 0), "<pad>");
    assert_string_equal(nm_vocab_symbol(vocab, 1), "<s>");
    assert_int_equal(vocab->pad, 0);
    assert_int_equal(vocab->bos, 1);
    nm_vocab_free(vocab);
    options.max_size = 6;
    assert_int_equal(nm_vocab_build(&counter, &options, &vocab, &err), NM_OK);
    assert_int_equal(nm_vocab_size(vocab), 6);
    assert_int_equal(nm_vocab_find(vocab, "b", 1), 5);
    assert_int_equal(nm_vocab_find(vocab, "c", 1), vocab->unk);
    nm_vocab_free(vocab);
    nm_counter_release(&counter);
}

static void text_to_ids_and_back(void **state)
{
    (void)state;
    nm_vocab *vocab;
    nm_error err;
    assert_int_equal(nm_vocab_parse("x 1\ny\t1\n", 8, "memory", NM_VOCAB_FAIRSEQ, &vocab, &err), NM_OK);
    nm_ids ids = {0};
    static const char line[] = " x  y unseen </s> <pad> x\n";
    assert_int_equal(nm_vocab_encode(vocab, line, sizeof line - 1, &ids), 3);
    static const int32_t expected[] = {4, 5, 3, 3, 3, 4};
    assert_int_equal(ids.n, 6);
    assert_memory_equal(ids.data, expected, sizeof expected);
    nm_ids_append(&ids, vocab->eos);
    nm_buffer out = {0};
    nm_vocab_decode(vocab, ids.data, ids.n, &out);
    assert_buffer(&out, "x y <unk> <unk> <unk> x");
    nm_vocab_decode(vocab, ids.data, 0, &out);
    assert_buffer(&out, "");
    nm_buffer_release(&out);
    nm_ids_release(&ids);
    nm_vocab_free(vocab);
}

static void special_symbols_are_omitted(void **state)
{
    (void)state;
    nm_vocab *vocab;
    nm_error err;
    assert_int_equal(nm_vocab_parse("x 1\n", 4, "memory", NM_VOCAB_TEARS, &vocab, &err), NM_OK);
    assert_int_equal(nm_vocab_omit(vocab, "", &err), NM_OK);
    assert_null(nm_vocab_output_mask(vocab));
    static const char *const bad[] = {"eos", "pa", "padd", "pad;unk", ",pad", "pad, unk"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nm_vocab other = *vocab;
        assert_int_equal(nm_vocab_omit(&other, bad[i], &err), NM_USAGE);
        assert_non_null(strstr(err.text, bad[i]));
    }
    assert_int_equal(nm_vocab_omit(vocab, "unk,bos", &err), NM_OK);
    static const uint8_t expected[] = {1, 0, 1, 0, 1}; /* <pad> <s> </s> <unk> x */
    uint8_t *mask = nm_vocab_output_mask(vocab);
    assert_memory_equal(mask, expected, sizeof expected);
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++)
        assert_int_equal(nm_vocab_omits(vocab, id), !expected[id]);
    free(mask);
    nm_vocab_free(vocab);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *message;
    } cases[] = {
        {"a 1\na 2\n", 8, "v:2: duplicate symbol \"a\""},
        {"a 1\n<s> 2\n", 10, "v:2: <s> is a special symbol, which a dictionary does not list"},
        {"\"</s>\": 0\na: 1\n", 15, "v: a YAML vocabulary of Marian"},
        {"a\tb\t1.5\n", 8, "v:1: expected \"symbol count\""},
        {"a 1\nb\n", 6, "v:2: expected \"symbol count\""},
        {"a 1\nb 1e3\n", 10, "v:2: expected"},
        {"a 1\nb 99999999999999999999\n", 27, "v:2: expected"},
        {"a 1\n\nb 1\n", 9, "v:2: expected"},
        {"a 1\n\xFF 1\n", 8, "v:2: not UTF-8"},
        {"a 1\nb\0c 1\n", 10, "v:2: contains a zero byte"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nm_vocab *vocab;
        nm_error err;
        assert_int_equal(nm_vocab_parse(cases[i].text, cases[i].bytes, "v", NM_VOCAB_FAIRSEQ, &vocab, &err),
                         NM_FORMAT);
        assert_null(vocab);
        assert_int_equal(strncmp(err.text, cases[i].message, strlen(cases[i].message)), 0);
    }
}

static void huge_symbols_are_refused(void **state)
{
    (void)state;
    size_t bytes = NM_VOCAB_MAX_SYMBOL + 3;
    char *line = nm_allocate(bytes);
    memset(line, 'x', bytes);
    memcpy(line + bytes - 2, " 1", 2);
    nm_vocab *vocab;
    nm_error err;
    assert_int_equal(nm_vocab_parse(line, bytes, "v", NM_VOCAB_FAIRSEQ, &vocab, &err), NM_FORMAT);
    nm_counter counter = {0};
    nm_counter_add(&counter, line, bytes - 2, 5);
    nm_vocab_options options = nm_vocab_options_default();
    assert_int_equal(nm_vocab_build(&counter, &options, &vocab, &err), NM_FORMAT);
    assert_null(vocab);
    nm_counter_release(&counter);
    free(line);
}

static void padding_is_found(void **state)
{
    (void)state;
    static const char text[] = "madeupword0000 0\nmadeupword12345 0\nmadeupword0001 3\nmadeupword "
                               "0\nmadeupwords 0\nw 0\nmadeupword1a 0\n";
    nm_vocab *vocab;
    nm_error err;
    assert_int_equal(nm_vocab_parse(text, strlen(text), "v", NM_VOCAB_FAIRSEQ, &vocab, &err), NM_OK);
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++)
        assert_int_equal(nm_vocab_is_padding(vocab, id),
                         id == NM_VOCAB_N_SPECIAL || id == NM_VOCAB_N_SPECIAL + 1);
    nm_vocab_free(vocab);
}

static void empty_vocabulary_is_fine(void **state)
{
    (void)state;
    char *path = write_temporary("", 0);
    nm_vocab *vocab;
    nm_error err;
    assert_int_equal(nm_vocab_read(path, NM_VOCAB_FAIRSEQ, &vocab, &err), NM_OK);
    assert_int_equal(nm_vocab_size(vocab), 4);
    nm_vocab_free(vocab);
    remove_temporary(path);
    assert_int_equal(nm_vocab_read("/nowhere/dict.txt", NM_VOCAB_FAIRSEQ, &vocab, &err), NM_IO);
    assert_null(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_that_of_fairseq),
        cmocka_unit_test(threshold_and_size_cut),
        cmocka_unit_test(special_symbols_are_omitted),
        cmocka_unit_test(text_to_ids_and_back),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(huge_symbols_are_refused),
        cmocka_unit_test(padding_is_found),
        cmocka_unit_test(empty_vocabulary_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
