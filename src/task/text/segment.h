/* Normalization of the text of a segment for scoring. The reference implementations are a Perl script that
 * works on bytes and a Python program that works on Unicode, so ASCII and Unicode variants of whitespace and
 * lower case are needed. Texts are NUL-terminated; bytes that are not valid UTF-8 are kept. */
#pragma once

#include "base/buffer.h"

/* Length in bytes of the whitespace character at the start of text, 0 if there is none: whitespace of
 * Python's str.split. */
size_t nm_space_length(const char *text);
/* The same for the six ASCII whitespace characters: whitespace of Perl's split on bytes. */
size_t nm_ascii_space_length(const char *text);

/* Next code point and its length in bytes, at least 1. An invalid byte becomes 0x110000 + byte. */
int32_t nm_code_point(const char *text, size_t *bytes);

/* Appends text in lower case: ASCII letters only (Perl's lc on bytes). */
void nm_lower_ascii(const char *text, nm_buffer *out);
/* Appends text in lower case by Unicode's full mapping, final sigma included (Python's str.lower). */
void nm_lower_unicode(const char *text, nm_buffer *out);

/* Appends text in which " ##AT##-##AT## " replaces each hyphen between two bytes that are not whitespace,
 * from left to right without overlaps: the byte after a hyphen is not the byte before the next one (WMT's
 * compound splitting). */
void nm_split_compounds(const char *text, nm_buffer *out);
