/* Texts that were cut to a fixed number of bytes: the cut must not leave a part of a UTF-8 character. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether a byte is one of a code point, but not its first one. */
static inline bool nm_utf8_continues(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* Number of bytes of the code point that starts with this byte, 1 to 4; 1 for a byte that starts none. */
static inline size_t nm_utf8_length(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/* Number of code points of valid text. */
static inline int nm_utf8_count(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += !nm_utf8_continues(*text);
    return n;
}

/* Length of text[0, bytes) without an incomplete code point at its end. */
static inline size_t nm_utf8_whole(const char *text, size_t bytes)
{
    size_t begin = bytes;
    while (begin && bytes - begin < 3 && nm_utf8_continues(text[begin - 1]))
        begin--;
    if (begin && bytes - begin + 1 < nm_utf8_length(text[begin - 1]))
        return begin - 1;
    return bytes;
}

/* Removes an incomplete code point from the end of a text. */
static inline void nm_utf8_trim(char *text)
{
    text[nm_utf8_whole(text, strlen(text))] = 0;
}
