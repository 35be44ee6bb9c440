/* Options of other toolkits and those of Norma with this meaning: for the messages about unknown options, and
 * for the tables of docs/migration.md, which scripts/migration_tables.py writes from foreign_names.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Cells are Markdown. A name is the beginning of a text between backticks, without dashes; - and _ are the
 * same. */
typedef struct nm_foreign_row {
    const char *toolkits[3]; /* "": the toolkit has no such option */
    const char *norma;       /* options of Norma, or why there is none */
} nm_foreign_row;

typedef struct nm_foreign_table {
    const char *name; /* of the table on the page */
    const char *toolkits[3];
    const nm_foreign_row *rows; /* ends with a row whose norma is NULL */
    bool unavailable;           /* Norma has none of these options */
} nm_foreign_table;

/* All tables; ends with one without a name. */
extern const nm_foreign_table nm_foreign_tables[];

/* The next row after `row` (NULL: the first one) that has the name in a toolkit, in tables of options that
 * Norma has, or that it does not have; NULL: none. */
const nm_foreign_row *nm_foreign_find(const char *name, bool unavailable_names, const nm_foreign_row *row);
/* Position of the option "section.name", or of "name", in the cell of Norma; -1: it is not there. */
int nm_foreign_option_position(const nm_foreign_row *row, const char *path);
