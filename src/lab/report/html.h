/* Escaped text for the page: text from a file or a path never becomes markup. */
#pragma once

#include <stdio.h>
#include "base/memory.h"

/* The text with invalid UTF-8 and control characters replaced by U+FFFD; heap. */
char *nm_text_clean(const char *text);
/* Writes the text escaped for HTML, inside elements and quoted attributes. */
void nm_html_text(FILE *out, const char *text);
/* The same for n bytes. */
void nm_html_bytes(FILE *out, const char *text, size_t n);
