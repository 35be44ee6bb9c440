/* UTF-8 and the few Unicode properties that tokenization needs.
 *
 * Text is checked once, where it enters (nm_utf8_find_invalid); everything behind relies on it. Properties
 * are those of the Unicode character database as Perl's \p{...} classes name them, because the tokenizer is
 * defined by Perl scripts: alphabetic and lower case are the derived properties (with letter numbers, vowel
 * signs, ordinal signs), not just the general categories. */
#ifndef NM_UTF8_H
#define NM_UTF8_H

#include "text/buffer.h"

/* Offset of the first byte that does not begin or continue a valid code point (no overlong forms, no
 * surrogates, nothing beyond U+10FFFF); bytes itself if all is valid. A NUL byte is valid. */
size_t nm_utf8_find_invalid(const char *text, size_t bytes);

/* Bytes of the code point that begins with this byte, 1 to 4; text must be valid. */
static inline size_t nm_utf8_length(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Code point at *at of valid text; moves *at behind it. */
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

/* Appends valid text in lower case: full mapping without context, as Perl's lc and Moses' lowercase.perl. */
void nm_utf8_lowercase(const char *text, size_t bytes, nm_buffer *out);

bool nm_unicode_is_alpha(uint32_t point);        /* \p{IsAlpha}: Alphabetic */
bool nm_unicode_is_alnum(uint32_t point);        /* \p{IsAlnum}: Alphabetic or decimal digit */
bool nm_unicode_is_number(uint32_t point);       /* \p{IsN}: any number */
bool nm_unicode_is_lower(uint32_t point);        /* \p{IsLower}: Lowercase */
bool nm_unicode_is_lower_letter(uint32_t point); /* \p{Ll} */
bool nm_unicode_is_currency(uint32_t point);     /* \p{IsSc} */
bool nm_unicode_is_space(uint32_t point);        /* \s */

#endif
