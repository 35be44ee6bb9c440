/* Labeled texts from tables: columns of label and text, and whether the first row has the names of the columns. */
#ifndef NM_LABELED_H
#define NM_LABELED_H

#include "norma/option.h"
#include "text/delimited.h"

enum { NM_LABELED_MAX_TEXTS = 64, NM_LABEL_MAX_BYTES = 1024 };

typedef enum nm_labeled_format {
    NM_LABELED_AUTO,
    NM_LABELED_LINES, /* one text without label per line */
    NM_LABELED_TSV,
    NM_LABELED_CSV,
    NM_LABELED_SPACE, /* a label, a space and the text */
    NM_LABELED_FASTTEXT,
    NM_LABELED_JSON
} nm_labeled_format;
#define NM_LABELED_FORMATS "auto|lines|tsv|csv|space|fasttext|json"

typedef enum nm_labeled_choice { NM_CHOICE_AUTO, NM_CHOICE_YES, NM_CHOICE_NO } nm_labeled_choice;

/* Options of a table: fields and option rows for a section. */
#define NM_LABELED_FIELDS                                                                                    \
    const char *encoding, *label, *text;                                                                     \
    nm_labeled_format format;                                                                                \
    nm_labeled_choice quotes, header
#define NM_LABELED_ROWS(T)                                                                                   \
    NM_OPTION(T, encoding, "utf-8", 0, 0,                                                                    \
              "Encoding of the tables, a name of iconv such as latin1 or utf-16."),                          \
        NM_CHOICE(T, format, "auto", NM_LABELED_FORMATS,                                                     \
                  "Format of a table: lines has one text without label per line; space is a label, a "       \
                  "space and the text; fasttext the same with __label__ before the label; json one object "  \
                  "per line, whose fields are named by label and text; auto is csv, tsv or json by the "     \
                  "file name, otherwise tsv in training and lines at inference."),                           \
        NM_CHOICE(T, quotes, "auto", "auto|yes|no",                                                          \
                  "Quoting of fields as in RFC 4180; auto is yes for csv and no for tsv."),                  \
        NM_CHOICE(T, header, "auto", "auto|yes|no",                                                          \
                  "Names of the columns in the first row; auto is yes if a column is chosen by name, or if " \
                  "the first row "                                                                           \
                  "has label or class in the column of the label."),                                         \
        NM_OPTION(T, label, "1", 0, 0,                                                                       \
                  "Column of the label: number from 1, or name; for json, name of the field."),              \
        NM_OPTION(                                                                                           \
            T, text, "2", 0, 0,                                                                              \
            "Column of the text: number from 1, or name; several comma-separated columns are concatenated.")

typedef struct nm_labeled_config {
    NM_LABELED_FIELDS;
    bool lines_by_default; /* format auto without a known file name extension: lines instead of tsv */
    bool with_label;       /* the label column is required */
} nm_labeled_config;

typedef struct nm_labeled {
    nm_labeled_config config;
    nm_delimited table;
    FILE *stream;
    const char *path;
    nm_labeled_format format; /* not auto */
    bool lines;               /* no table: one text per line, with a label in front or in an object */
    size_t n_fields;          /* of every row; 0: not known yet */
    size_t label_at;          /* index of the column from 0 */
    size_t text_at[NM_LABELED_MAX_TEXTS], n_texts;
    int64_t row;       /* index of the current text, from 0 */
    const char *label; /* of the current text, without surrounding spaces; "" without with_label */
    nm_buffer text, joined_label;
} nm_labeled;

/* "-" is standard input. path must outlive the reader. NM_IO; NM_USAGE for invalid columns. */
nm_status nm_labeled_open(nm_labeled *texts, const char *path, const nm_labeled_config *config,
                          nm_error *err);
/* The next text; label and text are valid until the next call. Line ends within a text become spaces. NM_FORMAT with file and
 * line: errors of nm_delimited_next, rows of unequal width, an empty label. NM_USAGE: a missing column. */
nm_status nm_labeled_next(nm_labeled *texts, bool *more, nm_error *err);
/* Number of the first line of the current text in the file. */
int64_t nm_labeled_line(const nm_labeled *texts);
void nm_labeled_close(nm_labeled *texts);

#endif
