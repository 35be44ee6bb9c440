/* Byte-level BPE: the rules that split text into words, the characters of bytes, codes, and learning. */
#include "text_helper.h"

#include <string.h>

#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/utf8.h"

static void encode(nm_pretokenizer rules, const char *text, size_t bytes, nm_buffer *out)
{
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_tokenizer tokenizer;
    nm_error err;
    options.pretokenizer = rules;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "byte_level", &options, &err), NM_OK);
    nm_tokenize(&tokenizer, text, bytes, out);
    nm_tokenizer_close(&tokenizer);
}

/* Computed with Hugging Face's tokenizers 0.23.3: ByteLevel for GPT-2, Split before ByteLevel for Llama 3 and
 * Qwen 2, of text in the form NFC for Qwen 2, Digits before ByteLevel for SmolLM. */
static void words_of_published_tokenizers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words[NM_PRETOKENIZERS_COUNT];
    } cases[] = {
        {"Hello world, it's 12345!",
         {"Hello Ġworld , Ġit 's Ġ12345 !", "Hello Ġworld , Ġit 's Ġ 123 45 !",
          "Hello Ġworld , Ġit 's Ġ 1 2 3 4 5 !", "Hello Ġworld , Ġit 's Ġ 1 2 3 4 5 !"}},
        {"don't WE'LL they'Ve 'tis I'ſ 'l 're2",
         {"don 't ĠWE ' LL Ġthey ' Ve Ġ' tis ĠI ' Å¿ Ġ' l Ġ' re 2",
          "don 't ĠWE 'LL Ġthey 'Ve Ġ' tis ĠI 'Å¿ Ġ' l Ġ' re 2",
          "don 't ĠWE 'LL Ġthey 'Ve Ġ' tis ĠI 'Å¿ Ġ' l Ġ' re 2",
          "don 't ĠWE ' LL Ġthey ' Ve Ġ' tis ĠI ' Å¿ Ġ' l Ġ' re 2"}},
        {"x  ", {"x ĠĠ", "x ĠĠ", "x ĠĠ", "x ĠĠ"}},
        {"I'ſx", {"I ' Å¿x", "I 'Å¿ x", "I 'Å¿ x", "I ' Å¿x"}},
        {"a  b   c ", {"a Ġ Ġb ĠĠ Ġc Ġ", "a Ġ Ġb ĠĠ Ġc Ġ", "a Ġ Ġb ĠĠ Ġc Ġ", "a Ġ Ġb ĠĠ Ġc Ġ"}},
        {"\tif (x)\n\t\treturn  1;\n\n  }",
         {"ĉ if Ġ( x ) Ċĉ ĉ return Ġ Ġ1 ; ĊĊĠ Ġ}", "ĉif Ġ( x )Ċ ĉ ĉreturn Ġ Ġ 1 ;ĊĊ Ġ Ġ}",
          "ĉif Ġ( x )Ċ ĉ ĉreturn Ġ Ġ 1 ;ĊĊ Ġ Ġ}", "ĉ if Ġ( x ) Ċĉ ĉ return ĠĠ 1 ; ĊĊĠ Ġ}"}},
        {"x=y+1; foo@@ bar </s>",
         {"x = y + 1 ; Ġfoo @@ Ġbar Ġ</ s >", "x =y + 1 ; Ġfoo @@ Ġbar Ġ</ s >",
          "x =y + 1 ; Ġfoo @@ Ġbar Ġ</ s >", "x = y + 1 ; Ġfoo @@ Ġbar Ġ</ s >"}},
        {"  \n \n  x", {"ĠĠĊĠĊĠ Ġx", "ĠĠĊĠĊ Ġ Ġx", "ĠĠĊĠĊ Ġ Ġx", "ĠĠĊĠĊĠ Ġx"}},
        {"naïve café 你好 Привет",
         {"naÃ¯ve ĠcafÃ© Ġä½łå¥½ ĠÐŁÑĢÐ¸Ð²ÐµÑĤ", "naÃ¯ve ĠcafÃ© Ġä½łå¥½ ĠÐŁÑĢÐ¸Ð²ÐµÑĤ",
          "naÃ¯ve ĠcafÃ© Ġä½łå¥½ ĠÐŁÑĢÐ¸Ð²ÐµÑĤ", "naÃ¯ve ĠcafÃ© Ġä½łå¥½ ĠÐŁÑĢÐ¸Ð²ÐµÑĤ"}},
        {"½ ²³ Ⅷ٣ 7.5",
         {"Â½ ĠÂ²Â³ Ġâħ§Ù£ Ġ7 . 5", "Â½ Ġ Â²Â³ Ġ âħ§Ù£ Ġ 7 . 5", "Â½ Ġ Â² Â³ Ġ âħ§ Ù£ Ġ 7 . 5",
          "Â½ Ġ Â² Â³ Ġ âħ§ Ù£ Ġ 7 . 5"}},
        {"e\u0301", {"e Ìģ", "e Ìģ", "Ã©", "e Ìģ"}},
        {"  12 ab", {"Ġ Ġ12 Ġab", "Ġ Ġ 12 Ġab", "Ġ Ġ 1 2 Ġab", "ĠĠ 1 2 Ġab"}},
        {"a\u00A0b\u2003 c\u3000",
         {"a Âł b âĢĥ Ġc ãĢĢ", "a Âłb âĢĥ Ġc ãĢĢ", "a Âłb âĢĥ Ġc ãĢĢ", "a Âł b âĢĥ Ġc ãĢĢ"}},
        {"!?\r\n\n?", {"!? čĊ Ċ ?", "!?čĊĊ ?", "!?čĊĊ ?", "!? čĊ Ċ ?"}},
        {"🙂👍🏽 ok", {"ðŁĻĤðŁĳįðŁı½ Ġok", "ðŁĻĤðŁĳįðŁı½ Ġok", "ðŁĻĤðŁĳįðŁı½ Ġok", "ðŁĻĤðŁĳįðŁı½ Ġok"}},
        {"\u0301\u200D_x\u00AD\x7F\x01",
         {"ÌģâĢį_ x ÂŃġā", "ÌģâĢį_ x ÂŃġā", "ÌģâĢį_ x ÂŃġā", "ÌģâĢį_ x ÂŃġā"}},
    };
    nm_buffer out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int rules = 0; rules < NM_PRETOKENIZERS_COUNT; rules++) {
            encode((nm_pretokenizer)rules, cases[i].text, strlen(cases[i].text), &out);
            assert_buffer(&out, cases[i].words[rules]);
        }
    encode(NM_PRETOKENIZER_GPT2, "", 0, &out);
    assert_buffer(&out, "");
    nm_buffer_release(&out);
}

static void each_byte_has_a_character(void **state)
{
    (void)state;
    nm_counter symbols = {0};
    nm_buffer text = {0};
    nm_byte_level_add_symbols(&symbols);
    assert_int_equal(symbols.n, 256);
    bool seen[256] = {false};
    for (size_t i = 0; i < symbols.n; i++) {
        size_t at = 0;
        int byte = nm_byte_level_byte(nm_utf8_next(symbols.items[i].text, &at));
        assert_in_range(byte, 0, 255);
        assert_false(seen[byte]);
        seen[byte] = true;
        if (!byte || byte >= 0x80) /* not a text by itself */
            continue;
        nm_byte_level_decode(symbols.items[i].text, symbols.items[i].bytes, &text);
        assert_int_equal(text.bytes, 1);
        assert_int_equal((unsigned char)text.data[0], byte);
        nm_buffer_clear(&text);
        if (byte == ' ')
            assert_string_equal(symbols.items[i].text, "\u0120");
    }
    for (uint32_t point = 0; point < 0x400; point++)
        assert_int_equal(nm_byte_level_byte(point) >= 0,
                         (point > 0x20 && point < 0x7F) || (point > 0xA0 && point < 0x144 && point != 0xAD));
    assert_int_equal(nm_byte_level_find_other("a\u0120\u0143", 5), 5);
    assert_int_equal(nm_byte_level_find_other("a\u0120\u0144", 5), 3);
    nm_counter_release(&symbols);
    nm_buffer_release(&text);
}

/* Any text is restored; the rules of Qwen 2 change it to the form NFC. */
static void text_is_restored(void **state)
{
    (void)state;
    static const char *const parts[] = {" ",      "  ",     "\t",     "a",      "Word",   "'s",
                                        "12345",  "!",      "\u00E4", "\u0416", "\u4F60", "\U0001F642",
                                        "\u00A0", "\u200B", "@@",     "\u0120", "\n",     "<s>"};
    enum { N = sizeof parts / sizeof *parts };
    uint32_t random = 1;
    nm_buffer text = {0}, words = {0}, back = {0};
    for (int i = 0; i < 6000; i++) {
        nm_buffer_clear(&text);
        nm_buffer_clear(&words);
        nm_buffer_clear(&back);
        for (int j = 0; j < 10; j++) {
            random = random * 1664525u + 1013904223u;
            const char *part = parts[(random >> 16) % N];
            nm_buffer_append(&text, part, strlen(part));
        }
        encode((nm_pretokenizer)(i % NM_PRETOKENIZERS_COUNT), text.data, text.bytes, &words);
        assert_null(strstr(words.data, "  "));
        nm_byte_level_decode(words.data, words.bytes, &back);
        assert_string_equal(back.data, text.data);
    }
    nm_buffer_release(&text);
    nm_buffer_release(&words);
    nm_buffer_release(&back);
}

/* Subwords that a model generates need not be text. */
static void bytes_that_are_not_text_are_replaced(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"\u00C3 \u00A9 x", "\u00E9x"},           /* two subwords of one character */
        {"\u00C3 x", "\uFFFDx"},                  /* an incomplete one */
        {"a \u00AC\u0143", "a\uFFFD\uFFFD"},      /* the bytes 0xAC and 0xAD */
        {"\u0100", " "},                          /* a zero byte */
        {"a \u010A b", "a\nb"},                   /* a newline */
        {"<unk> \u4F60 \u0120b", "<unk>\u4F60 b"} /* other tokens of a dictionary are kept */
    };
    nm_buffer out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_byte_level_decode(cases[i][0], strlen(cases[i][0]), &out);
        assert_buffer(&out, cases[i][1]);
    }
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_tokenizer tokenizer;
    nm_error err;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "byte_level", &options, &err), NM_OK);
    nm_detokenize(&tokenizer, "a \u010A \u010D b", strlen("a \u010A \u010D b"), &out);
    assert_buffer(&out, "a  b"); /* one line */
    nm_tokenizer_close(&tokenizer);
    nm_buffer_release(&out);
}

static nm_bpe *parse(const char *codes)
{
    nm_bpe *bpe;
    nm_error err;
    assert_int_equal(nm_bpe_parse(codes, strlen(codes), "codes", &bpe, &err), NM_OK);
    return bpe;
}

static void assert_segmented(const nm_bpe *bpe, const char *line, const char *expected)
{
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_buffer out = {0};
    nm_bpe_apply_line(applier, line, strlen(line), &out);
    assert_buffer(&out, expected);
    nm_buffer_release(&out);
    nm_bpe_applier_free(applier);
}

/* The last character of a word has no mark, and subwords have no suffix. */
static void codes_without_ends_of_words(void **state)
{
    (void)state;
    static const char codes[] = "#version: 0.2 byte_level\na b\n\u0120 ab\n";
    nm_bpe *bpe = parse(codes);
    assert_int_equal(bpe->format, NM_BPE_BYTE_LEVEL);
    assert_segmented(bpe, "ab \u0120ab \u0120b abab \u4F60", "ab \u0120ab \u0120 b ab ab \u4F60");
    nm_buffer text = {0};
    nm_bpe_format_text(bpe, bpe->format, &text);
    assert_buffer(&text, codes);
    nm_bpe_free(bpe);
    bpe = parse("#version: 0.2 byte_level\n"); /* single bytes */
    assert_segmented(bpe, "ab \u0120b", "a b \u0120 b");
    nm_bpe_free(bpe);
    nm_buffer_release(&text);
}

static void whole_words(void **state)
{
    (void)state;
    static const char codes[] = "#version: 0.2 byte_level\na b\n\u0120cab\nabc\n";
    nm_bpe *bpe = parse(codes);
    assert_int_equal(bpe->n_merges, 1);
    assert_segmented(bpe, "abc \u0120cab cab abcc \u0120abc ab", "abc \u0120cab c ab ab c c \u0120 ab c ab");
    nm_buffer text = {0};
    nm_bpe_format_text(bpe, bpe->format, &text);
    assert_buffer(&text, codes);
    nm_bpe_free(bpe);
    nm_buffer_release(&text);
    nm_error err;
    static const char other[] = "#version: 0.2\na b\nabc\n"; /* of subword-nmt */
    assert_int_equal(nm_bpe_parse(other, strlen(other), "codes", &bpe, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "codes:3: expected two symbols"));
}

static void codes_match_the_tokenizer(void **state)
{
    (void)state;
    nm_error err;
    nm_bpe *bpe = parse("#version: 0.2\na b\n"); /* merges.txt of GPT-2 */
    assert_segmented(bpe, "ab", "a@@ b");
    assert_int_equal(nm_bpe_match_tokenizer(bpe, false, "codes", &err), NM_OK);
    assert_int_equal(bpe->format, NM_BPE_SUBWORD_NMT_0_2);
    assert_int_equal(nm_bpe_match_tokenizer(bpe, true, "codes", &err), NM_OK);
    assert_int_equal(bpe->format, NM_BPE_BYTE_LEVEL);
    assert_segmented(bpe, "ab", "ab");
    assert_int_equal(nm_bpe_match_tokenizer(bpe, true, "codes", &err), NM_OK);
    assert_int_equal(nm_bpe_match_tokenizer(bpe, false, "codes", &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "codes: codes of byte-level BPE require the tokenizer byte_level"));
    nm_bpe_free(bpe);
    bpe = parse("#version: 0.2\n\u0416 a\n");
    assert_int_equal(nm_bpe_match_tokenizer(bpe, true, "codes", &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "\"\u0416\" contains a character that does not represent a byte"));
    nm_bpe_free(bpe);
}

static void learned_from_words(void **state)
{
    (void)state;
    nm_counter words = {0};
    nm_bpe *bpe;
    nm_error err;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    static const char line[] = "low low low \u0120low \u0120low lower lower";
    nm_counter_add_line(&words, line, strlen(line));
    options.byte_level = true;
    options.n_merges = 2;
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_OK);
    nm_buffer text = {0};
    nm_bpe_format_text(bpe, bpe->format, &text);
    /* "low" at the end of words and within them */
    assert_buffer(&text, "#version: 0.2 byte_level\no w\nl ow\n");
    nm_bpe_free(bpe);
    options.total_symbols = true; /* 256 bytes and a merge */
    options.n_merges = 257;
    assert_int_equal(nm_bpe_learn(&words, &options, &bpe, &err), NM_OK);
    assert_int_equal(bpe->n_merges, 1);
    nm_bpe_free(bpe);
    nm_buffer_release(&text);
    nm_counter_release(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_of_published_tokenizers),
                                       cmocka_unit_test(each_byte_has_a_character),
                                       cmocka_unit_test(text_is_restored),
                                       cmocka_unit_test(bytes_that_are_not_text_are_replaced),
                                       cmocka_unit_test(codes_without_ends_of_words),
                                       cmocka_unit_test(whole_words),
                                       cmocka_unit_test(codes_match_the_tokenizer),
                                       cmocka_unit_test(learned_from_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
