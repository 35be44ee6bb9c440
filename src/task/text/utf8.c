/* UTF-8 decoding and Unicode properties: categories and case from utf8proc, derived properties from
 * unicode_ranges.c, and a fast path for ASCII. */
#include "text/utf8.h"

#include <ctype.h>
#include <utf8proc.h>

#include "text/unicode_ranges.h"

void nm_utf8_append(nm_buffer *out, uint32_t point)
{
    if (point < 0x80) {
        nm_buffer_append_byte(out, (char)point);
        return;
    }
    utf8proc_uint8_t bytes[4];
    utf8proc_ssize_t length = utf8proc_encode_char((utf8proc_int32_t)point, bytes);
    nm_buffer_append(out, (const char *)bytes, (size_t)length);
}

/* Length of the valid beginning of an invalid character, at least 1: its lead byte and the continuation
 * bytes that may follow
 * it. *complete: whether further bytes are missing (only at the end of the text). */
static size_t subpart_length(const unsigned char *at, size_t bytes, bool *truncated)
{
    const unsigned char lead = at[0];
    size_t needed = lead >= 0xC2 && lead <= 0xDF   ? 2
                    : lead >= 0xE0 && lead <= 0xEF ? 3
                    : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                   : 1;
    unsigned char low = lead == 0xE0   ? 0xA0
                        : lead == 0xF0 ? 0x90
                                       : 0x80,
                  high = lead == 0xED   ? 0x9F
                         : lead == 0xF4 ? 0x8F
                                        : 0xBF;
    size_t n = 1;
    for (; n < needed && n < bytes && at[n] >= low && at[n] <= high; n++) {
        low = 0x80;
        high = 0xBF;
    }
    *truncated = n < needed && n == bytes;
    return n;
}

size_t nm_utf8_incomplete_end(const char *text, size_t bytes)
{
    for (size_t n = 1; n < 4 && n <= bytes; n++) {
        bool truncated;
        size_t length = subpart_length((const unsigned char *)text + bytes - n, n, &truncated);
        if (truncated && length == n)
            return n;
    }
    return 0;
}

void nm_utf8_append_replaced(nm_buffer *out, const char *text, size_t bytes)
{
    bool truncated;
    for (size_t at = 0; at < bytes;) {
        size_t valid = nm_utf8_find_invalid(text + at, bytes - at);
        nm_buffer_append(out, text + at, valid);
        at += valid;
        if (at == bytes)
            break;
        nm_utf8_append(out, 0xFFFD);
        at += subpart_length((const unsigned char *)text + at, bytes - at, &truncated);
    }
}

void nm_utf8_append_repaired(nm_buffer *out, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes; at++) {
        size_t valid = nm_utf8_find_invalid(text + at, bytes - at);
        nm_buffer_append(out, text + at, valid);
        at += valid;
        if (at < bytes)
            nm_utf8_append(out, 0xFFFD);
    }
}

/* Lowercasing increases the number of bytes by at most one half: two bytes may become three. */
void nm_utf8_lowercase(const char *text, size_t bytes, nm_buffer *out)
{
    nm_buffer_reserve(out, bytes + bytes / 2 + 4);
    for (size_t at = 0; at < bytes;) {
        unsigned char byte = (unsigned char)text[at];
        if (byte < 0x80) {
            out->data[out->bytes++] = (char)(byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
            at++;
            continue;
        }
        uint32_t point = nm_utf8_next(text, &at);
        if (point == 0x130) /* dotted capital I: the only unconditional mapping to two code points */
            nm_buffer_append(out, "i\xCC\x87", 3);
        else
            nm_utf8_append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)point));
    }
    out->data[out->bytes] = 0;
}

static utf8proc_category_t category(uint32_t point)
{
    return utf8proc_category((utf8proc_int32_t)point);
}

static bool in_ranges(const nm_unicode_range *ranges, size_t n, uint32_t point)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (point > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && point >= ranges[low].first;
}

bool nm_unicode_is_letter(uint32_t point)
{
    if (point < 0x80)
        return (point | 32) >= 'a' && (point | 32) <= 'z';
    utf8proc_category_t kind = category(point);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool nm_unicode_is_alpha(uint32_t point)
{
    if (point < 0x80)
        return nm_unicode_is_letter(point);
    return nm_unicode_is_letter(point) || category(point) == UTF8PROC_CATEGORY_NL ||
           in_ranges(nm_unicode_other_alphabetic, nm_unicode_n_other_alphabetic, point);
}

bool nm_unicode_is_alnum(uint32_t point)
{
    if (point < 0x80)
        return nm_unicode_is_alpha(point) || (point >= '0' && point <= '9');
    return category(point) == UTF8PROC_CATEGORY_ND || nm_unicode_is_alpha(point);
}

bool nm_unicode_is_number(uint32_t point)
{
    if (point < 0x80)
        return point >= '0' && point <= '9';
    utf8proc_category_t kind = category(point);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool nm_unicode_is_lower_letter(uint32_t point)
{
    if (point < 0x80)
        return point >= 'a' && point <= 'z';
    return category(point) == UTF8PROC_CATEGORY_LL;
}

bool nm_unicode_is_lower(uint32_t point)
{
    return nm_unicode_is_lower_letter(point) ||
           in_ranges(nm_unicode_other_lowercase, nm_unicode_n_other_lowercase, point);
}

bool nm_unicode_is_currency(uint32_t point)
{
    return point == '$' || (point >= 0x80 && category(point) == UTF8PROC_CATEGORY_SC);
}

bool nm_unicode_is_space(uint32_t point)
{
    if (point < 0x80)
        return point == ' ' || (point >= '\t' && point <= '\r');
    if (point == 0x85)
        return true;
    utf8proc_category_t kind = category(point);
    return kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP;
}

bool nm_unicode_is_mark(uint32_t point)
{
    enum { ZERO_WIDTH_NON_JOINER = 0x200C, ZERO_WIDTH_JOINER };
    if (point < 0x80)
        return false;
    utf8proc_category_t kind = category(point);
    return (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME) || point == ZERO_WIDTH_NON_JOINER ||
           point == ZERO_WIDTH_JOINER;
}

bool nm_unicode_joins(uint32_t before, uint32_t point, int32_t *state)
{
    return !utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)point, state);
}

bool nm_unicode_is_unspaced(uint32_t point)
{
    static const nm_unicode_range ranges[] = {
        {0x0E00, 0x0EFF},   /* Thai, Lao */
        {0x1000, 0x109F},   /* Myanmar */
        {0x1780, 0x17FF},   /* Khmer */
        {0x19E0, 0x19FF},   /* Khmer symbols */
        {0x2E80, 0x2FDF},   /* radicals */
        {0x3001, 0x30FF},   /* punctuation, Hiragana, Katakana */
        {0x31C0, 0x31FF},   /* strokes, Katakana extensions */
        {0x3400, 0x4DBF},   /* Han, extension A */
        {0x4E00, 0x9FFF},   /* Han */
        {0xA9E0, 0xA9FF},   /* Myanmar extensions */
        {0xAA60, 0xAA7F},   /* Myanmar extensions */
        {0xF900, 0xFAFF},   /* Han, compatibility */
        {0xFF01, 0xFF9F},   /* full-width forms, half-width Katakana */
        {0x1AFF0, 0x1B16F}, /* Kana extensions */
        {0x20000, 0x323AF}, /* Han, further extensions */
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

/* Whether the code at the start of the language is one of the n codes. */
static bool is_one_of(const char *language, const char *const *codes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = strlen(codes[i]);
        if (!strncmp(language, codes[i], bytes) && !isalnum((unsigned char)language[bytes]))
            return true;
    }
    return false;
}

bool nm_language_has_no_spaces(const char *language)
{
    static const char *const codes[] = {"zh",  "ja",  "th",  "km",  "lo",  "my",  "zho",
                                        "cmn", "yue", "jpn", "tha", "khm", "lao", "mya"};
    return is_one_of(language, codes, sizeof codes / sizeof *codes);
}

bool nm_language_has_non_joiners(const char *language)
{
    static const char *const codes[] = {"fa", "ckb", "fas", "per", "pes", "prs"};
    return is_one_of(language, codes, sizeof codes / sizeof *codes);
}
