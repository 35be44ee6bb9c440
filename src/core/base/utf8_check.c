#include "base/utf8_check.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8_cut.h"

static bool is_continuation(const char *text, size_t at, size_t bytes)
{
    return at < bytes && nm_utf8_continues(text[at]);
}

/* Length of the valid code point at text[at], 0 if there is none. */
static size_t valid_length(const char *text, size_t at, size_t bytes)
{
    unsigned char lead = (unsigned char)text[at];
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4 || !is_continuation(text, at + 1, bytes))
        return 0;
    if (lead < 0xE0)
        return 2;
    unsigned char second = (unsigned char)text[at + 1];
    if (!is_continuation(text, at + 2, bytes))
        return 0;
    if (lead < 0xF0) /* E0: overlong below A0; ED: surrogates from A0 */
        return (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ? 0 : 3;
    if ((lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90))
        return 0;
    return is_continuation(text, at + 3, bytes) ? 4 : 0;
}

/* Offset of the first non-ASCII byte from `at` on; reads eight bytes per step. */
static size_t skip_ascii(const char *text, size_t at, size_t bytes)
{
    for (uint64_t eight; at + sizeof eight <= bytes; at += sizeof eight) {
        memcpy(&eight, text + at, sizeof eight);
        if (eight & 0x8080808080808080u)
            break;
    }
    while (at < bytes && (unsigned char)text[at] < 0x80)
        at++;
    return at;
}

size_t nm_utf8_find_invalid(const char *text, size_t bytes)
{
    for (size_t at = 0; (at = skip_ascii(text, at, bytes)) < bytes;) {
        size_t length = valid_length(text, at, bytes);
        if (!length)
            return at;
        at += length;
    }
    return bytes;
}

nm_status nm_text_check(const char *text, size_t bytes, const char *where, nm_error *err)
{
    if (bytes > NM_TEXT_MAX_LINE)
        return nm_fail(err, NM_FORMAT, "%s: line of %zu bytes, the limit is %zu", where, bytes,
                       NM_TEXT_MAX_LINE);
    size_t bad = nm_utf8_find_invalid(text, bytes);
    if (bad < bytes)
        return nm_fail(err, NM_FORMAT, "%s: not UTF-8: byte 0x%02x at position %zu", where,
                       (unsigned)(unsigned char)text[bad], bad + 1);
    return NM_OK;
}
