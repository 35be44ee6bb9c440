/* A table of text cells, printed as aligned text, Markdown, LaTeX or CSV. */
#ifndef NM_TEXT_TABLE_H
#define NM_TEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum nm_table_format {
    NM_TABLE_TEXT,
    NM_TABLE_MARKDOWN,
    NM_TABLE_LATEX,
    NM_TABLE_CSV,
    NM_TABLE_JSON
} nm_table_format;
#define NM_TABLE_FORMATS "text|markdown|latex|csv|json"

typedef struct nm_text_table {
    size_t columns, n, capacity;
    char **cells; /* row by row; the first row holds the titles */
} nm_text_table;

/* Appends a cell and takes ownership of its heap text; a row is complete after `columns` cells. */
void nm_text_table_add(nm_text_table *table, char *cell);
/* Numbers are right-aligned; the first column, and one titled "note", are left-aligned text. LaTeX is a tabular without
 * packages; CSV follows RFC 4180 with "\n" line ends. JSON is not printed here. */
void nm_text_table_print(const nm_text_table *table, nm_table_format format, FILE *out);
void nm_text_table_release(nm_text_table *table);

#endif
