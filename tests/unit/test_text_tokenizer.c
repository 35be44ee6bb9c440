/* Tokenizers: lines whose tokens are known from the Moses scripts, detokenization, and hostile lines. */
#include "text_helper.h"

#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

typedef struct line_case {
    const char *raw, *tokens, *back; /* back NULL: the raw line */
} line_case;

static void check_lines(const char *language, bool aggressive, bool escape, const line_case *cases, size_t n)
{
    nm_tokenizer_options options = {.language = language, .aggressive = aggressive, .escape = escape};
    nm_tokenizer tokenizer;
    nm_error err;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_OK);
    nm_buffer out = {0};
    for (size_t i = 0; i < n; i++) {
        nm_tokenize(&tokenizer, cases[i].raw, strlen(cases[i].raw), &out);
        assert_buffer(&out, cases[i].tokens);
        nm_detokenize(&tokenizer, cases[i].tokens, strlen(cases[i].tokens), &out);
        assert_buffer(&out, cases[i].back ? cases[i].back : cases[i].raw);
    }
    nm_buffer_release(&out);
    nm_tokenizer_close(&tokenizer);
}

#define CHECK_LINES(language, aggressive, escape, cases)                                                     \
    check_lines(language, aggressive, escape, cases, sizeof(cases) / sizeof(cases)[0])

/* Each mark of other scripts closes what is before it; letters and digits next to them do not. */
static void marks_of_other_scripts(void **state)
{
    (void)state;
    static const uint32_t closing[] = {0x589,  0x60C,  0x61B,  0x61F,  0x66A,  0x6D4,  0x964,  0x965,  0x1362,
                                       0x1363, 0x1364, 0x1367, 0xAE,   0xB2,   0xB3,   0x2122, 0x2026, 0x3001,
                                       0x3002, 0xFF01, 0xFF0C, 0xFF0E, 0xFF1A, 0xFF1B, 0xFF1F},
                          words[] = {0x587, 0x620, 0x671, 0x6D5, 0x961, 0x966, 0x135A, 0x1369, 0xE9};
    nm_tokenizer_options options = {.language = "en", .escape = true};
    nm_tokenizer tokenizer;
    nm_error err;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_OK);
    nm_buffer text = {0}, expected = {0}, out = {0};
    const size_t n_closing = sizeof closing / sizeof *closing, n_words = sizeof words / sizeof *words;
    for (size_t i = 0; i < n_closing + n_words; i++) {
        const bool closes = i < n_closing;
        nm_buffer_clear(&text);
        nm_buffer_clear(&expected);
        nm_buffer_append(&text, "ab ", 3);
        nm_utf8_append(&text, closes ? closing[i] : words[i - n_closing]);
        nm_buffer_append(&text, " cd", 4);
        nm_buffer_append(&expected, "ab ", closes ? 2 : 3);
        nm_buffer_append(&expected, text.data + 3, text.bytes - 3);
        nm_detokenize(&tokenizer, text.data, text.bytes - 1, &out);
        assert_buffer(&out, expected.data);
    }
    nm_buffer_release(&text);
    nm_buffer_release(&expected);
    nm_buffer_release(&out);
    nm_tokenizer_close(&tokenizer);
}

static void english(void **state)
{
    (void)state;
    static const line_case cases[] = {
        {"Hello, world! It's 5,300 (or so).", "Hello , world ! It &apos;s 5,300 ( or so ) .", NULL},
        {"I said \"don't\" to Mr. Smith. He left.",
         "I said &quot; don &apos;t &quot; to Mr. Smith . He left .", NULL},
        {"He works at the U.S. Dept. of Energy.", "He works at the U.S. Dept. of Energy .", NULL},
        {"See No. 5 and pp. 3-7. No. Never.", "See No. 5 and pp. 3-7 . No . Never .", NULL},
        {"Wait... what?! The 1990's were f.e. good, 'kay?",
         "Wait ... what ? ! The 1990 &apos;s were f.e. good , &apos; kay ?", NULL},
        {"rock 'n' roll, the Joneses' car", "rock &apos; n &apos; roll , the Joneses &apos; car", NULL},
        {"a,b,c 1,2 3,x y,4 7,", "a , b , c 1,2 3 , x y , 4 7 ,", "a, b, c 1,2 3, x y, 4 7,"},
        {"A&B <C> D | [E] `f`", "A &amp; B &lt; C &gt; D &#124; &#91; E &#93; `f`", NULL},
        {"'Tis said. He said 'no.'", "&apos;Tis said . He said &apos; no . &apos; ", NULL},
        {"Room 12", "Room 12", NULL},
        {"a b \", c", "a b &quot; , c", "a b\", c"}, /* a quote before a comma or at the end closes */
        {"a b \".", "a b &quot; .", "a b\"."},
        {"a b \"", "a b &quot;", "a b\""},
        {"a \" b \" c", "a &quot; b &quot; c", "a \"b\" c"},
        {"He said «yes» and ‹no›.", "He said « yes » and ‹ no › .", NULL},
        {".'", " . &apos; ", ".'"}, /* detokenizer.perl: the first quote opens */
        {"AT&T's price: $5.50/\xE2\x82\xAC"
         "4,20",
         "AT &amp; T &apos;s price : $ 5.50 / \xE2\x82\xAC 4,20",
         "AT&T's price: $5.50 / \xE2\x82\xAC"
         "4,20"},
    };
    CHECK_LINES("en", false, true, cases);
}

static void german(void **state)
{
    (void)state;
    static const line_case cases[] = {
        {"Das ist z.B. gut, usw. Am 3. Mai kam Dr. M\xC3\xBCller.",
         "Das ist z.B. gut , usw. Am 3. Mai kam Dr. M\xC3\xBCller .", NULL},
        {"Er sagt: \xE2\x80\x9EWie gehts?\xE2\x80\x9C und 'nein'.",
         "Er sagt : \xE2\x80\x9E Wie gehts ? \xE2\x80\x9C und &apos; nein &apos; .", NULL},
        {"Die Stra\xC3\x9F"
         "e (ca. 5 km) kostet 3,50 Euro.",
         "Die Stra\xC3\x9F"
         "e ( ca. 5 km ) kostet 3,50 Euro .",
         NULL},
        {"Das war alles. Ja... wirklich.", "Das war alles . Ja ... wirklich .", NULL},
        {"Karl V. und Ludwig XIV. trafen sich Nr. 7.", "Karl V. und Ludwig XIV. trafen sich Nr. 7 .", NULL},
    };
    CHECK_LINES("de", false, true, cases);
}

static void other_languages(void **state)
{
    (void)state;
    static const line_case french[] = {
        {"l'eau d'Am\xC3\xA9rique, c'est", "l' eau d' Am\xC3\xA9rique , c' est", NULL},
        {"il dit « oui » et ‹ non ›", "il dit « oui » et ‹ non ›", NULL}};
    static const line_case finnish[] = {
        {"EU:ssa EU: 20:een x:Y", "EU:ssa EU : 20:een x : Y", "EU:ssa EU: 20:een x: Y"}};
    static const line_case split[] = {
        {"well-known, A-1 --x -y z- e-mail", "well @-@ known , A @-@ 1 --x -y z- e @-@ mail", NULL}};
    static const line_case chinese[] = {
        {"\xE4\xB8\xAD\xE5\x9B\xBD", "\xE4\xB8\xAD \xE5\x9B\xBD", "\xE4\xB8\xAD\xE5\x9B\xBD"}};
    CHECK_LINES("fr", false, false, french);
    CHECK_LINES("fi", false, false, finnish);
    CHECK_LINES("en", true, false, split);
    nm_tokenizer tokenizer;
    nm_tokenizer_options options = {.language = "zh"};
    nm_error err;
    nm_buffer out = {0};
    assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_OK);
    nm_detokenize(&tokenizer, chinese[0].tokens, strlen(chinese[0].tokens), &out);
    assert_buffer(&out, chinese[0].back);
    nm_tokenizer_close(&tokenizer);
    nm_buffer_release(&out);
}

/* Marks stay with their letter, also decomposed accents, viramas and tone marks; joiners and the parts of an
 * emoji are not split. Korean words keep their spaces, and the punctuation of other scripts is attached. */
static void scripts_with_marks(void **state)
{
    (void)state;
    static const line_case cases[] = {
        {"हिन्दी वाक्य है।", "हिन्दी वाक्य है ।", NULL},
        {"সুন্দর, தமிழ் ಕನ್ನಡ", "সুন্দর , தமிழ் ಕನ್ನಡ", NULL},
        {"Ko\u0308nnen? cafe\u0301's!", "Ko\u0308nnen ? cafe\u0301 &apos;s !", NULL},
        {"می\u200cروم؟ نه، بله.", "می\u200cروم ؟ نه ، بله .", NULL},
        {"เว้นวรรค กาแฟ", "เว้นวรรค กาแฟ", NULL},
        {"👨\u200d👩\u200d👧 👍🏽 #\ufe0f\u20e3", "👨\u200d👩\u200d👧 👍🏽 #\ufe0f\u20e3",
         NULL},
        {"❤\ufe0f🇩🇪🇫🇷!", "❤\ufe0f 🇩🇪 🇫🇷 !", "❤\ufe0f 🇩🇪 🇫🇷!"},
        {"🇩🇪 🇫🇷", "🇩🇪 🇫🇷", NULL},
        {"a \u0301b x\u200by .\u0301", "a \u0301 b x \u200b y . \u0301", "a \u0301 b x \u200b y. \u0301"},
        {"한국어 문장입니다.", "한국어 문장입니다 .", NULL},
        {"東京へ行く？はい、iPhone。", "東京へ行く ？ はい 、 iPhone 。", "東京へ行く？はい、 iPhone。"},
    };
    CHECK_LINES("en", false, true, cases);
}

static void white_space_and_control_characters(void **state)
{
    (void)state;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_error err;
    nm_buffer out = {0};
    static const char raw[] = "\t a\x01"
                              "b \xC2\xA0 c\0d\xE2\x80\xA8"
                              "e \r";
    for (const nm_tokenizer_type *const *type = nm_tokenizer_types; *type; type++) {
        nm_tokenizer tokenizer;
        if ((*type)->keeps_text)
            continue;
        assert_int_equal(nm_tokenizer_open(&tokenizer, (*type)->name, &options, &err), NM_OK);
        nm_tokenize(&tokenizer, raw, sizeof raw - 1, &out);
        assert_buffer(&out, "ab cd e");
        nm_tokenize(&tokenizer, " \t ", 3, &out);
        assert_buffer(&out, "");
        nm_tokenize(&tokenizer, "", 0, &out);
        assert_buffer(&out, "");
        nm_detokenize(&tokenizer, "", 0, &out);
        assert_buffer(&out, "");
        nm_tokenizer_close(&tokenizer);
    }
    nm_buffer_release(&out);
}

/* Without escaping, tokenization only inserts and removes spaces. */
static void only_spaces_change(void **state)
{
    (void)state;
    static const char *const parts[] = {"a",  "Mr", ".",        ",",    "'",  "-", " ", "5",
                                        "\"", "(",  "\xC3\xA4", "z.B.", "..", "s", "&"};
    uint32_t random = 1;
    nm_tokenizer tokenizer;
    nm_tokenizer_options options = {.language = "en"};
    nm_error err;
    nm_buffer line = {0}, once = {0};
    assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_OK);
    for (int i = 0; i < 3000; i++) {
        nm_buffer_clear(&line);
        nm_buffer_clear(&once);
        for (int j = 0; j < 12; j++) {
            random = random * 1664525u + 1013904223u;
            const char *part = parts[(random >> 16) % (sizeof parts / sizeof parts[0])];
            nm_buffer_append(&line, part, strlen(part));
        }
        nm_tokenize(&tokenizer, line.data, line.bytes, &once);
        size_t at = 0;
        for (size_t k = 0; k < once.bytes; k++) {
            while (at < line.bytes && line.data[at] == ' ')
                at++;
            if (once.data[k] != ' ')
                assert_int_equal(once.data[k], line.data[at++]);
        }
        while (at < line.bytes && line.data[at] == ' ')
            at++;
        assert_int_equal(at, line.bytes);
    }
    nm_buffer_release(&line);
    nm_buffer_release(&once);
    nm_tokenizer_close(&tokenizer);
}

static void long_lines_are_taken(void **state)
{
    (void)state;
    size_t bytes = (size_t)10 << 20;
    char *line = nm_allocate(bytes);
    for (size_t i = 0; i < bytes; i++)
        line[i] = ".,' a"[i * 7 % 5];
    nm_tokenizer tokenizer;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_error err;
    nm_buffer out = {0}, back = {0};
    assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_OK);
    nm_tokenize(&tokenizer, line, bytes, &out);
    assert_true(out.bytes > bytes);
    nm_detokenize(&tokenizer, out.data, out.bytes, &back);
    assert_true(back.bytes > bytes / 2);
    nm_buffer_release(&out);
    nm_buffer_release(&back);
    nm_tokenizer_close(&tokenizer);
    free(line);
}

/* Results of torchtext's get_tokenizer("basic_english"), joined by spaces. */
static void basic_english(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"It's \"great\" (no; really): a.b<br />c!", "it ' s great ( no really ) a . b c !"},
        {"<br /><br />", ""},
        {" <b\"r /> x<br/>y ", "x<br/>y"},
        {"...wait?", ". . . wait ?"},
        {"\"\"", ""},
        {"well-known $5,300 #1", "well-known $5 , 300 #1"},
        {"\xC3\x89T\xC3\x89\xC2\xA0X\ty\x1Fz", "\xC3\xA9t\xC3\xA9 x y z"},
    };
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_tokenizer tokenizer;
    nm_error err;
    nm_buffer out = {0};
    assert_int_equal(nm_tokenizer_open(&tokenizer, "basic_english", &options, &err), NM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_tokenize(&tokenizer, cases[i][0], strlen(cases[i][0]), &out);
        assert_buffer(&out, cases[i][1]);
    }
    nm_buffer_release(&out);
    nm_tokenizer_close(&tokenizer);
}

/* Each occurrence is a token, the longest symbol that begins at a position; the text between is tokenized
 * separately. */
static void user_symbols_are_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *tokenizer, *raw, *tokens;
    } cases[] = {
        {"moses", "<2de> Hello, world!", "<2de> Hello , world !"},
        {"moses", "(<x>bold</x>), it's __NUM__%.", "( <x> bold </x> ) , it &apos;s __NUM__ % ."},
        {"moses", "<x><x1> <x2> <2DE>", "<x> <x1> <x 2 &gt; &lt; 2DE &gt;"},
        {"moses", " \t<x>\xE2\x80\x83__NUM__ ", "<x> __NUM__"},
        {"moses", "\xEF\xBD\x9Furl\xEF\xBD\xA0s", "\xEF\xBD\x9Furl\xEF\xBD\xA0 s"},
        {"moses", "", ""},
        {"none", "a __NUM__b", "a __NUM__ b"},
        {"basic_english", "A__NUM__, B", "a __NUM__ , b"},
    };
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.user_symbols = "<2de>,<x1>,<x>,<x,</x>,__NUM__,\xEF\xBD\x9Furl\xEF\xBD\xA0";
    nm_error err;
    nm_buffer out = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_tokenizer tokenizer;
        assert_int_equal(nm_tokenizer_open(&tokenizer, cases[i].tokenizer, &options, &err), NM_OK);
        nm_tokenize(&tokenizer, cases[i].raw, strlen(cases[i].raw), &out);
        assert_buffer(&out, cases[i].tokens);
        nm_tokenizer_close(&tokenizer);
    }
    nm_buffer_release(&out);
}

static void impossible_user_symbols_are_refused(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {",", "\"\" is empty"},         {"<x>,", "\"\" is empty"},
        {"a b", "contains whitespace"}, {"a\xE2\x80\x83", "contains whitespace"},
        {"\xFF", "is not UTF-8"},       {"<x>,@@", "mark of a BPE subword"},
        {"</s>", "special symbol"},     {"<x>,&lt;", "would become \"<\" in the output"}};
    nm_tokenizer_options options = nm_tokenizer_options_default();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        nm_tokenizer tokenizer;
        nm_error err;
        options.user_symbols = bad[i][0];
        assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_USAGE);
        assert_non_null(strstr(err.text, bad[i][1]));
        nm_tokenizer_close(&tokenizer);
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    nm_tokenizer tokenizer;
    nm_tokenizer_options options = nm_tokenizer_options_default();
    nm_error err;
    assert_int_equal(nm_tokenizer_open(&tokenizer, "mosse", &options, &err), NM_USAGE);
    assert_string_equal(
        err.text,
        "unknown tokenizer \"mosse\"; available: none|moses|basic_english|sentencepiece|byte_level");
    static const char *const bad[] = {"", "d", "german", "DE", "d/", "e\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.language = bad[i];
        assert_int_equal(nm_tokenizer_open(&tokenizer, "moses", &options, &err), NM_USAGE);
        nm_tokenizer_close(&tokenizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(english),
        cmocka_unit_test(marks_of_other_scripts),
        cmocka_unit_test(german),
        cmocka_unit_test(other_languages),
        cmocka_unit_test(scripts_with_marks),
        cmocka_unit_test(white_space_and_control_characters),
        cmocka_unit_test(only_spaces_change),
        cmocka_unit_test(long_lines_are_taken),
        cmocka_unit_test(basic_english),
        cmocka_unit_test(user_symbols_are_tokens),
        cmocka_unit_test(impossible_user_symbols_are_refused),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
