/* Normalization of the text of a segment for scoring. The reference programs are a Perl script on bytes and a Python program on
 * Unicode, so both kinds of white space and lower case are needed. Texts are NUL-terminated; invalid UTF-8 is passed through
 * byte by byte. */
#ifndef NM_SEGMENT_H
#define NM_SEGMENT_H

#include "text/buffer.h"

/* Length in bytes of the white space character at text, 0 if there is none. Unicode white space as in Python's str.split. */
size_t nm_space_length(const char *text);
/* The same for the six ASCII white space characters, as in Perl's split on bytes. */
size_t nm_ascii_space_length(const char *text);

/* Next code point and its length in bytes, at least 1. An invalid byte becomes 0x110000 + byte. */
int32_t nm_code_point(const char *text, size_t *bytes);

/* Appends text in lower case: ASCII letters only (Perl's lc on bytes). */
void nm_lower_ascii(const char *text, nm_buffer *out);
/* Appends text in lower case by Unicode's full mapping, final sigma included (Python's str.lower). */
void nm_lower_unicode(const char *text, nm_buffer *out);

/* Appends text with " ##AT##-##AT## " for every hyphen between two bytes that are not white space, from left to right. The byte
 * after a hyphen does not count as the byte before the next one (WMT's compound splitting). */
void nm_split_compounds(const char *text, nm_buffer *out);

#endif
