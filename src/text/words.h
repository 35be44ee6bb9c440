/* Lines of text as they come in: checked here, cut into words here, and nowhere else. */
#ifndef NM_WORDS_H
#define NM_WORDS_H

#include "norma/status.h"
#include "base/file.h"

/* Longest line that is taken. */
#define NM_TEXT_MAX_LINE ((size_t)256 << 20)

/* NM_FORMAT with file, line and byte if the reader's current line is not UTF-8 or beyond the limit. */
nm_status nm_line_check(const nm_lines *lines, nm_error *err);
/* The same for text that is no line of a file; where names it in the message ("stdin:3"). */
nm_status nm_text_check(const char *text, size_t bytes, const char *where, nm_error *err);

/* Finds the next word of a line from *at on. Words are parted by spaces and only by them; "\n" and "\r" at
 * the end of the line do not belong to the last word. False when there is none. */
bool nm_word_next(const char *line, size_t line_bytes, size_t *at, const char **word, size_t *bytes);

#endif
