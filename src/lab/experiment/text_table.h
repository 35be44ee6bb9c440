/* A table of text cells, printed as aligned text, Markdown, LaTeX or CSV. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "norma/choice.h"

#define NM_TABLE_FORMATS(C)                                                                                  \
    C(NM_TABLE_TEXT, "text")                                                                                 \
    C(NM_TABLE_MARKDOWN, "markdown")                                                                         \
    C(NM_TABLE_LATEX, "latex") C(NM_TABLE_CSV, "csv") C(NM_TABLE_JSON, "json")
NM_CHOICES(nm_table_format, NM_TABLE_FORMATS);

typedef struct nm_text_table {
    size_t columns, n, capacity;
    char **cells; /* [n], owned, row by row; the first row contains the titles */
} nm_text_table;

/* Appends a cell and takes ownership of its heap text; a row is complete after `columns` cells. */
void nm_text_table_add(nm_text_table *table, char *cell);
/* The first column, and one titled "note", are left-aligned, the others right-aligned. LaTeX is a tabular
 * that needs no packages; CSV follows RFC 4180 with "\n" line ends. NM_TABLE_JSON is not allowed. */
void nm_text_table_print(const nm_text_table *table, nm_table_format format, FILE *out);
void nm_text_table_release(nm_text_table *table);
