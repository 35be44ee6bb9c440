/* Labeled texts out of tables: which columns hold the label and the text, and whether the first row names them. */
#ifndef NM_LABELED_H
#define NM_LABELED_H

#include "norma/option.h"
#include "text/delimited.h"

enum { NM_LABELED_MAX_TEXTS = 64, NM_LABEL_MAX_BYTES = 1024 };

/* How a table is read, as options of whatever section has these fields: nm_labeled_rows(T). */
#define NM_LABELED_FIELDS const char *format, *quotes, *header, *label, *text
#define NM_LABELED_ROWS(T)                                                                                   \
    NM_CHOICE(T, format, "auto", "auto|lines|tsv|csv",                                                       \
              "lines: each line is a text without label; auto: csv or tsv by the file's name, else tsv "     \
              "in training and lines in use"),                                                               \
        NM_CHOICE(T, quotes, "auto", "auto|yes|no",                                                          \
                  "quoted fields as in RFC 4180; auto: in csv, not in tsv"),                                 \
        NM_CHOICE(T, header, "auto", "auto|yes|no",                                                          \
                  "the first row names the columns; auto: if a column is chosen by name, or the first "      \
                  "row says label or class where the label stands"),                                         \
        NM_OPTION(T, label, "1", 0, 0, "column of the label: number from 1, or name"),                       \
        NM_OPTION(T, text, "2", 0, 0, "column of the text: number or name; several by commas are joined")

typedef struct nm_labeled_config {
    NM_LABELED_FIELDS;
    bool lines_by_default; /* form = auto, and the name says nothing: lines instead of tsv */
    bool with_label;       /* the label column must be there */
} nm_labeled_config;

typedef struct nm_labeled {
    nm_labeled_config config;
    nm_delimited table;
    FILE *stream;
    const char *path;
    bool lines;      /* no table: whole lines */
    size_t n_fields; /* of every row; 0: not known yet */
    size_t label_at; /* columns from 0 */
    size_t text_at[NM_LABELED_MAX_TEXTS], n_texts;
    int64_t row;       /* of the current text among texts, from 0 */
    const char *label; /* of the current text, without spaces around; "" without with_label */
    nm_buffer text, joined_label;
} nm_labeled;

/* "-" is standard input. path must outlive the reader. NM_IO; NM_USAGE for columns that can't be meant. */
nm_status nm_labeled_open(nm_labeled *texts, const char *path, const nm_labeled_config *config,
                          nm_error *err);
/* The next text: label and text hold until the call after. Line ends inside of a text become spaces. NM_FORMAT with file
 * and line: what the reader of tables finds, rows of unequal width, an empty label; NM_USAGE: a column that isn't there. */
nm_status nm_labeled_next(nm_labeled *texts, bool *more, nm_error *err);
/* Line of the file on which the current text begins. */
int64_t nm_labeled_line(const nm_labeled *texts);
void nm_labeled_close(nm_labeled *texts);

#endif
