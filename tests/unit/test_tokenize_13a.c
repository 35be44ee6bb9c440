/* The 13a tokenizer and lowercasing; the expected strings follow from the published rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "text/segment.h"
#include "text/tokenize_13a.h"

static const char *const tokens[][2] = {
    {"", ""},
    {"   ", ""},
    {"Hello, world.", "Hello , world ."},
    {"1,234.5 or .5 or 5.", "1,234.5 or . 5 or 5 ."},
    {"1..2 a...b", "1 . . 2 a . . . b"},
    {"10-12 old-fashioned -5", "10 - 12 old-fashioned -5"},
    {"it's \"(so)\" & 20%", "it's \" ( so ) \" & 20 %"},
    {"&quot;a&quot; &amp; &lt;b&gt;", "\" a \" & < b >"},
    {"&amp;lt;", "<"},
    {"a<skipped>b", "ab"},
    {"a-\nb\nc", "ab c"},
    {"x,y 3,x", "x , y 3 , x"},
    {"a\xc2\xa0"
     "b\xe3\x80\x80"
     "c",
     "a b c"},                                                       /* no-break and ideographic space */
    {"\xe2\x80\x9eja\xe2\x80\x9c.", "\xe2\x80\x9eja\xe2\x80\x9c ."}, /* non-ASCII quotation marks are kept */
    {"\xc3\xa9,1 1,\xc3\xa9", "\xc3\xa9 , 1 1 , \xc3\xa9"},
};

static void tokenize(void **state)
{
    (void)state;
    nm_buffer scratch = {0}, out = {0};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        nm_buffer_clear(&out);
        nm_tokenize_13a(tokens[i][0], &scratch, &out);
        assert_string_equal(out.data, tokens[i][1]);
    }
    nm_buffer_release(&scratch);
    nm_buffer_release(&out);
}

static const char *const letters[][2] = {
    {"", ""},
    {"ABC xyz [\\]", "abc xyz [\\]"},
    {"\xc3\x84\xc3\x96\xc3\x9c\xe1\xba\x9e", "\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f"},
    {"\xc4\xb0", "i\xcc\x87"},                                /* dotted capital I */
    {"\xce\x9f\xce\xa3", "\xce\xbf\xcf\x82"},                 /* final sigma */
    {"\xce\x9f\xce\xa3\xce\x9f", "\xce\xbf\xcf\x83\xce\xbf"}, /* not final */
    {"\xce\x9f'\xce\xa3.", "\xce\xbf'\xcf\x82."}, /* final sigma, after characters that are ignored */
    {"\xce\x9f\xce\xa3.\xce\x9f", "\xce\xbf\xcf\x83.\xce\xbf"},
    {"\xce\xa3", "\xcf\x83"},
    {"A\xff"
     "B",
     "a\xff"
     "b"},
};

static void lower_unicode(void **state)
{
    (void)state;
    nm_buffer out = {0};
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++) {
        nm_buffer_clear(&out);
        nm_lower_unicode(letters[i][0], &out);
        assert_string_equal(out.data, letters[i][1]);
    }
    nm_buffer_release(&out);
}

static void split_compounds(void **state)
{
    (void)state;
    nm_buffer out = {0};
    nm_split_compounds("a-b-c x - y -z z- 1--2", &out);
    assert_string_equal(out.data, "a ##AT##-##AT## b-c x - y -z z- 1 ##AT##-##AT## -2");
    nm_buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokenize),
        cmocka_unit_test(lower_unicode),
        cmocka_unit_test(split_compounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
