/* Validation of UTF-8. */
#pragma once

#include <stddef.h>

#include "norma/status.h"

/* Maximum length of a line in bytes. */
#define NM_TEXT_MAX_LINE ((size_t)256 << 20)

/* Offset of the first invalid sequence, or `bytes` if there is none. Overlong encodings, surrogates and code
 * points above U+10FFFF are invalid; a NUL byte is valid. */
size_t nm_utf8_find_invalid(const char *text, size_t bytes);
/* NM_FORMAT if a text is not UTF-8 or longer than a line; `where` is its name in messages ("stdin:3"). */
nm_status nm_text_check(const char *text, size_t bytes, const char *where, nm_error *err);
