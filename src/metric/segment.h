/* What happens to the text of a segment before its words are counted. The scorers whose figures we reproduce
 * are a Perl script that sees bytes and a Python program that sees Unicode, so both kinds of space and of
 * lower case are needed. Texts are NUL-terminated; broken UTF-8 passes through byte by byte. */
#ifndef NM_SEGMENT_H
#define NM_SEGMENT_H

#include "text/buffer.h"

/* Bytes of the white space at text: 0 if there is none. Unicode white space as Python's str.split has it. */
size_t nm_space_length(const char *text);
/* The same for the six ASCII ones, as Perl's split has them on bytes. */
size_t nm_ascii_space_length(const char *text);

/* Next code point and its bytes; a byte that is no UTF-8 becomes 0x110000 + byte. *bytes is at least 1. */
int32_t nm_code_point(const char *text, size_t *bytes);

/* Appends text in lower case: ASCII letters only (Perl's lc on bytes). */
void nm_lower_ascii(const char *text, nm_buffer *out);
/* Appends text in lower case by Unicode's full mapping, final sigma included (Python's str.lower). */
void nm_lower_unicode(const char *text, nm_buffer *out);

/* Appends text with " ##AT##-##AT## " for every hyphen between two bytes that are no space, from left to
 * right; the byte behind a hyphen is not looked at again as the one before the next (WMT's compound
 * splitting). */
void nm_split_compounds(const char *text, nm_buffer *out);

#endif
