/* A table of texts, printed for people, Markdown, LaTeX or programs that read CSV. */
#ifndef NM_COMPARE_SHEET_H
#define NM_COMPARE_SHEET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct compare_sheet {
    size_t columns, n, capacity;
    char **cells; /* row after row, the first holds the titles */
} compare_sheet;

/* Takes the heap text; the row is full after `columns` of them. */
void compare_sheet_add(compare_sheet *sheet, char *cell);
/* Numbers stand to the right; the first column, and one titled "note", are words and stand to the left. format: "text",
 * "markdown", "latex" (a tabular, which needs no package) or "csv". */
void compare_sheet_print(const compare_sheet *sheet, const char *format, FILE *out);
void compare_sheet_release(compare_sheet *sheet);

#endif
