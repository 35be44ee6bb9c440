/* Lines of text: validation, and splitting into words. */
#pragma once

#include "base/file.h"
#include "base/utf8_check.h"
#include "norma/status.h"

/* NM_FORMAT with file, line and position if the reader's current line is not UTF-8 or too long. */
nm_status nm_line_check(const nm_lines *lines, nm_error *err);
/* The same; a zero byte is NM_FORMAT, too. */
nm_status nm_line_check_text(const nm_lines *lines, nm_error *err);
/* nm_lines_next and nm_line_check_text. */
nm_status nm_lines_next_text(nm_lines *lines, bool *more, nm_error *err);

/* Finds the next word of a line from position *at on and advances *at. Words are separated by spaces only;
 * "\n" and "\r" at the end of the line do not belong to the last word. False if there is no further word. */
bool nm_word_next(const char *line, size_t line_bytes, size_t *at, const char **word, size_t *bytes);

/* Length of a text in bytes without the "\n" or "\r\n" at its end. */
size_t nm_text_length(const char *text);
