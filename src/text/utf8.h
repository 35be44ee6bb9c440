/* UTF-8 and the few Unicode properties that tokenization needs.
 *
 * Text is validated once, when it is read (nm_utf8_find_invalid); the functions after that require valid text. Properties are
 * those of the Unicode character database under the names of Perl's \p{...} classes, because Perl scripts define the
 * tokenizer: alphabetic and lower case are the derived properties (with letter numbers, vowel signs, ordinal signs). */
#ifndef NM_UTF8_H
#define NM_UTF8_H

#include "text/buffer.h"

/* Offset of the first byte that does not start or continue a valid code point (no overlong forms, no surrogates, nothing above
 * U+10FFFF), or bytes if all are valid. A NUL byte is valid. */
size_t nm_utf8_find_invalid(const char *text, size_t bytes);

/* Number of bytes of the code point that starts with this byte, 1 to 4. The text must be valid. */
static inline size_t nm_utf8_length(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Code point at *at of valid text; advances *at. */
static inline uint32_t nm_utf8_next(const char *text, size_t *at)
{
    const unsigned char *byte = (const unsigned char *)text + *at;
    size_t length = nm_utf8_length(text[*at]);
    *at += length;
    if (length == 1)
        return byte[0];
    uint32_t point = byte[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (byte[i] & 0x3Fu);
    return point;
}

void nm_utf8_append(nm_buffer *out, uint32_t point);

/* Appends valid text in lower case: full case mapping without context, as Perl's lc and Moses' lowercase.perl. */
void nm_utf8_lowercase(const char *text, size_t bytes, nm_buffer *out);

/* Whether a language is written without spaces, by the ISO 639-1 code at its start ("zh", "zh_CN", "ja-raw"). */
bool nm_language_has_no_spaces(const char *language);

bool nm_unicode_is_alpha(uint32_t point);        /* \p{IsAlpha}: Alphabetic */
bool nm_unicode_is_alnum(uint32_t point);        /* \p{IsAlnum}: Alphabetic or decimal digit */
bool nm_unicode_is_number(uint32_t point);       /* \p{IsN}: any number */
bool nm_unicode_is_lower(uint32_t point);        /* \p{IsLower}: Lowercase */
bool nm_unicode_is_lower_letter(uint32_t point); /* \p{Ll} */
bool nm_unicode_is_currency(uint32_t point);     /* \p{IsSc} */
bool nm_unicode_is_space(uint32_t point);        /* \s */

#endif
