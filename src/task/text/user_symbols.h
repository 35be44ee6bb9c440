/* User-defined symbols: strings such as tags of languages and placeholders, each of which is one token
 * wherever it occurs in text. */
#pragma once

#include "text/counter.h"

/* Adds the symbols of a comma-separated list. NM_USAGE: a symbol is empty, not UTF-8, contains whitespace or
 * control characters, has the mark of a BPE subword at its end, or is a special symbol of dictionaries. The
 * caller releases the counter, also after an error. */
nm_status nm_user_symbols_parse(nm_counter *symbols, const char *list, nm_error *err);

/* Finds the first symbol at or after position `at` of a line, the longest one that begins there. Returns its
 * position and sets *bytes to its length; line_bytes if there is none. */
size_t nm_user_symbols_find(const nm_counter *symbols, const char *line, size_t line_bytes, size_t at,
                            size_t *bytes);
