/* Cleaning of raw text: results of mosesdecoder's scripts (Perl 5.36), with the newline that they keep. */
#include "text_helper.h"

#include <string.h>

#include "text/clean.h"

#define NBSP "\302\240"

typedef struct line_case {
    const char *raw, *english, *german, *czech;
} line_case;

static const line_case cases[] = {
    {"He said “hello,” and left – (quickly ) .", "He said \"hello,\" and left - (quickly).",
     "He said \"hello\", and left - (quickly).", "He said \"hello,\" and left - (quickly)."},
    {"„Das reicht, oder?“ – „Ja, ich denke schon.“", "\"Das reicht, oder?\" - \"Ja, ich denke schon.\"",
     "\"Das reicht, oder?\" - \"Ja, ich denke schon\".", "\"Das reicht, oder?\" - \"Ja, ich denke schon.\""},
    {"«" NBSP "Bonjour" NBSP "» , dit-elle" NBSP ": 12" NBSP "345" NBSP "000" NBSP "%" NBSP "!",
     "\"Bonjour\" , dit-elle: 12.345.000%!", "\"Bonjour\" , dit-elle: 12,345,000%!",
     "\"Bonjour\" , dit-elle: 12,345,000%!"},
    {"il‘s l’eau ‘x’ ‚y‘ ´z´ `a'' ´´", "il's l'eau 'x\" 'y' 'z' 'a \" \"", "il's l'eau 'x\" 'y' 'z' 'a \" \"",
     "il's l'eau 'x\" 'y' 'z' 'a \" \""},
    {"5 % ; ( a ) . nº" NBSP "7 20" NBSP "ºC 3" NBSP "cm …", "5%; (a). nº 7 20 ºC 3 cm ...",
     "5%; (a). nº 7 20 ºC 3 cm ...", "5%; (a). nº 7 20 ºC 3 cm ..."},
    {"….\"...\" x .\"< y", ".......\"\" x .\"< y", "\".....\".. x .\"< y", "....\"...\" x .\"< y"},
    {"\"a\".,b \"c\" d,\"e\",f.\"", "\"a.,\"b \"c\" d,\"e,\"f.\"", "\"a\".,b \"c\" d\",e\",f\".",
     "\"a\".,b \"c\" d,\"e\",f.\""},
    {"é’t a’é a’b’c", "é\"t a\"é a'b\"c", "é\"t a\"é a'b\"c", "é\"t a\"é a'b\"c"},
};
enum { N_CASES = sizeof cases / sizeof *cases };

static void check(nm_punctuation punctuation, bool non_printing, const char *language, const char *raw,
                  const char *expected)
{
    nm_cleaner cleaner;
    nm_cleaner_init(&cleaner, &(nm_clean_options){punctuation, non_printing, language});
    for (int again = 0; again < 2; again++) /* the workspace is used again */
        assert_string_equal(nm_clean(&cleaner, raw, strlen(raw))->data, expected);
    nm_cleaner_release(&cleaner);
}

static void test_punctuation(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        check(NM_PUNCTUATION_MOSES, false, "en", cases[i].raw, cases[i].english);
        check(NM_PUNCTUATION_MOSES, false, "de", cases[i].raw, cases[i].german);
        check(NM_PUNCTUATION_MOSES, false, "cs", cases[i].raw, cases[i].czech);
        check(NM_PUNCTUATION_KEEP, false, "de", cases[i].raw, cases[i].raw);
    }
    check(NM_PUNCTUATION_MOSES, false, "de", "1" NBSP "000", "1,000");
    check(NM_PUNCTUATION_MOSES, false, "en", "1" NBSP "000", "1.000");
    check(NM_PUNCTUATION_MOSES, false, "", "", "");
    check(NM_PUNCTUATION_APOSTROPHE, false, "en", "it’s “so”", "it's “so”");
}

static void test_non_printing(void **state)
{
    (void)state;
    check(NM_PUNCTUATION_KEEP, true, "en", "a\tb\u200bc\u00add\ue000e\u0378f 中", "a b c d e f 中");
    check(NM_PUNCTUATION_MOSES, true, "en", "“a\u200b”", "\"a \"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_punctuation),
                                       cmocka_unit_test(test_non_printing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
