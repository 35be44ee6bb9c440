/* UTF-8, and the Unicode properties that tokenization needs.
 *
 * Text is validated once, when it is read (nm_utf8_find_invalid); the other functions require valid text.
 * Properties are those of Perl's \p{...} classes, because Perl scripts define the tokenizer: alphabetic and
 * lower case are the derived properties, which include letter numbers, vowel signs and ordinal signs. */
#pragma once

#include "base/utf8_check.h"
#include "base/utf8_cut.h"
#include "base/buffer.h"

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

/* Appends a code point. */
void nm_utf8_append(nm_buffer *out, uint32_t point);

/* Length of the character that the text at its end begins and does not complete; 0: none. */
size_t nm_utf8_incomplete_end(const char *text, size_t bytes);
/* Appends bytes as text: each maximal part of a character that is not complete becomes one U+FFFD, as
 * Unicode recommends
 * (section 3.9) and as tokenizers decodes, and so does each other byte that is not part of valid UTF-8. */
void nm_utf8_append_replaced(nm_buffer *out, const char *text, size_t bytes);
/* Appends bytes as text, as SentencePiece: each byte that is not part of valid UTF-8 becomes U+FFFD. */
void nm_utf8_append_repaired(nm_buffer *out, const char *text, size_t bytes);

/* Appends valid text in lower case: full case mapping without context, like Perl's lc and Moses'
 * lowercase.perl. */
void nm_utf8_lowercase(const char *text, size_t bytes, nm_buffer *out);

/* Whether a language is written without spaces, by the ISO 639 code at its start ("zh", "zh_CN", "jpn_Jpan",
 * "ja-raw"). */
bool nm_language_has_no_spaces(const char *language);

/* Whether words of a language contain zero-width non-joiners: Persian, Dari and Sorani Kurdish. */
bool nm_language_has_non_joiners(const char *language);

/* Whether the character belongs to a script without spaces between words (Han, Hiragana, Katakana, Thai, Lao,
 * Khmer, Myanmar) or to the punctuation of such a script. */
bool nm_unicode_is_unspaced(uint32_t point);

bool nm_unicode_is_alpha(uint32_t point);        /* \p{IsAlpha}: Alphabetic */
bool nm_unicode_is_alnum(uint32_t point);        /* \p{IsAlnum}: Alphabetic or decimal digit */
bool nm_unicode_is_letter(uint32_t point);       /* \p{L} */
bool nm_unicode_is_number(uint32_t point);       /* \p{IsN}: any number */
bool nm_unicode_is_lower(uint32_t point);        /* \p{IsLower}: Lowercase */
bool nm_unicode_is_lower_letter(uint32_t point); /* \p{Ll} */
bool nm_unicode_is_currency(uint32_t point);     /* \p{IsSc} */
bool nm_unicode_is_space(uint32_t point);        /* \s */
bool nm_unicode_is_mark(uint32_t point);         /* \p{M}, or a zero-width joiner or non-joiner */

/* Whether `point` continues the grapheme cluster of the character before it: a combining mark after a letter,
 * or a part of an emoji sequence. *state is 0 for the first two characters of a sequence of calls, each with
 * the next character. */
bool nm_unicode_joins(uint32_t before, uint32_t point, int32_t *state);
