/* Properties of characters are those of utf8proc; the rule for the final sigma is Final_Sigma of the Unicode
 * Standard, section 3.13. */
#include "text/segment.h"

#include <string.h>
#include <utf8proc.h>

int32_t nm_code_point(const char *text, size_t *bytes)
{
    const unsigned char *at = (const unsigned char *)text;
    *bytes = 1;
    if (*at < 0x80)
        return *at;
    size_t available = 1; /* bytes before the end of the text, at most 4 */
    while (available < 4 && at[available])
        available++;
    utf8proc_int32_t code;
    utf8proc_ssize_t used = utf8proc_iterate(at, (utf8proc_ssize_t)available, &code);
    if (used <= 0)
        return 0x110000 + *at;
    *bytes = (size_t)used;
    return code;
}

size_t nm_ascii_space_length(const char *text)
{
    return *text == ' ' || (*text >= '\t' && *text <= '\r');
}

size_t nm_space_length(const char *text)
{
    if ((unsigned char)*text < 0x80)
        return *text == ' ' || (*text >= '\t' && *text <= '\r') || (*text >= 0x1c && *text <= 0x1f);
    size_t bytes;
    int32_t code = nm_code_point(text, &bytes);
    bool space = code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
                 code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
    return space ? bytes : 0;
}

void nm_lower_ascii(const char *text, nm_buffer *out)
{
    size_t start = out->bytes;
    nm_buffer_append(out, text, strlen(text));
    for (char *at = out->data + start; *at; at++)
        if (*at >= 'A' && *at <= 'Z')
            *at = (char)(*at + ('a' - 'A'));
}

static bool is_cased(int32_t code)
{
    if (code == 0xaa || code == 0xba) /* ordinal indicators are cased, but have no case mapping */
        return true;
    utf8proc_category_t category = utf8proc_category(code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT || utf8proc_tolower(code) != code ||
           utf8proc_toupper(code) != code;
}

/* Case_Ignorable: marks, format characters, modifiers, and punctuation that can occur inside words. */
static bool is_case_ignorable(int32_t code)
{
    static const int32_t inside[] = {'\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                     0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (code == inside[i])
            return true;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return false;
    }
}

/* Whether the first code point of text that is not case-ignorable is cased. */
static bool cased_follows(const char *text)
{
    while (*text) {
        size_t bytes;
        int32_t code = nm_code_point(text, &bytes);
        if (code > 0x10ffff)
            return false;
        if (!is_case_ignorable(code))
            return is_cased(code);
        text += bytes;
    }
    return false;
}

/* Appends the ASCII letters at the beginning of text in lower case: a fast path. Returns their number. */
static size_t lower_letters(const char *text, nm_buffer *out)
{
    size_t n = 0;
    while ((text[n] >= 'a' && text[n] <= 'z') || (text[n] >= 'A' && text[n] <= 'Z'))
        n++;
    nm_buffer_append(out, text, n);
    for (char *letter = out->data + out->bytes - n; *letter; letter++)
        *letter = (char)(*letter | 0x20);
    return n;
}

void nm_lower_unicode(const char *text, nm_buffer *out)
{
    bool cased_before = false; /* whether the last code point that is not case-ignorable is cased */
    nm_buffer_append(out, "", 0);
    while (*text) {
        size_t bytes = lower_letters(text, out);
        cased_before |= bytes > 0;
        text += bytes;
        if (!*text)
            break;
        int32_t code = nm_code_point(text, &bytes);
        utf8proc_uint8_t lower[8];
        utf8proc_ssize_t length = 0;
        if (code > 0x10ffff) {
            lower[length++] = (utf8proc_uint8_t)*text;
        } else if (code == 0x130) { /* the only letter whose lower case has two code points */
            length = 3;
            /* NOLINTNEXTLINE(bugprone-not-null-terminated-result): the length is stored separately */
            memcpy(lower, "i\xcc\x87", 3);
        } else if (code == 0x3a3) {
            bool final = cased_before && !cased_follows(text + bytes);
            length = utf8proc_encode_char(final ? 0x3c2 : 0x3c3, lower);
        } else {
            length = utf8proc_encode_char(utf8proc_tolower(code), lower);
        }
        nm_buffer_append(out, (const char *)lower, (size_t)length);
        if (code > 0x10ffff)
            cased_before = false;
        else if (!is_case_ignorable(code))
            cased_before = is_cased(code);
        text += bytes;
    }
}

static bool is_solid(char byte)
{
    return byte != 0 && nm_ascii_space_length(&byte) == 0;
}

void nm_split_compounds(const char *text, nm_buffer *out)
{
    static const char mark[] = " ##AT##-##AT## ";
    nm_buffer_append(out, "", 0);
    while (*text) {
        if (is_solid(text[0]) && text[1] == '-' && is_solid(text[2])) {
            nm_buffer_append(out, text, 1);
            nm_buffer_append(out, mark, sizeof mark - 1);
            nm_buffer_append(out, text + 2, 1);
            text += 3;
        } else {
            nm_buffer_append(out, text++, 1);
        }
    }
}
