/* Reader of labeled texts: tables with columns for label and text, with or without a header, and files of
 * lines. */
#pragma once

#include "norma/option.h"
#include "text/counter.h"
#include "text/delimited.h"

enum { NM_LABELED_MAX_TEXTS = 64, NM_LABEL_MAX_BYTES = 1024 };

#define NM_LABELED_FORMATS(C)                                                                                \
    C(NM_LABELED_AUTO, "auto")                                                                               \
    C(NM_LABELED_LINES, "lines") /* a text without label per line */                                         \
    C(NM_LABELED_TSV, "tsv")                                                                                 \
    C(NM_LABELED_CSV, "csv")                                                                                 \
    C(NM_LABELED_SPACE, "space") /* a label, a space and the text */                                         \
    C(NM_LABELED_FASTTEXT, "fasttext")                                                                       \
    C(NM_LABELED_JSON, "json")
NM_CHOICES(nm_labeled_format, NM_LABELED_FORMATS);

#define NM_LABELED_CHOICES(C) C(NM_CHOICE_AUTO, "auto") C(NM_CHOICE_YES, "yes") C(NM_CHOICE_NO, "no")
NM_CHOICES(nm_labeled_choice, NM_LABELED_CHOICES);

/* Options of the input: fields of a configuration and option rows of its section. */
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
        NM_CHOICE(T, quotes, "auto", NM_LABELED_CHOICES,                                                     \
                  "Quoting of fields as in RFC 4180; auto is yes for csv and no for tsv."),                  \
        NM_CHOICE(                                                                                           \
            T, header, "auto", NM_LABELED_CHOICES,                                                           \
            "Whether the first row is a header; auto is yes if a column is chosen by name, if the first "    \
            "row has label or class in the column of the label, or if it names a label and a text "          \
            "(data.label, data.text; where no labels are read, a text)."),                                   \
        NM_OPTION(T, label, "auto", 0, 0,                                                                    \
                  "Column of the label: number from 1, or name (for json, of the field); auto is the one "   \
                  "named label or class in the first row, or else the first; for json, label."),             \
        NM_OPTION(T, text, "auto", 0, 0,                                                                     \
                  "Column of the text: number from 1, or name (for json, of the field); several "            \
                  "comma-separated columns are concatenated; auto is the one named text, sentence, review, " \
                  "content, question or document in the first row, or else the second, or the one next to "  \
                  "the label; for json, text.")

#define NM_LABELED_RULES                                                                                     \
    {"data.quotes", "data.format", "auto|tsv|csv", "only tables have quotes", NULL},                         \
        {"data.header", "data.format", "auto|tsv|csv", "only tables have a header", NULL},                   \
        {"data.label", "data.format", "auto|tsv|csv|json", "only tables and objects have columns", NULL},    \
    {                                                                                                        \
        "data.text", "data.format", "auto|tsv|csv|json", "only tables and objects have columns", NULL        \
    }

typedef struct nm_labeled_config {
    NM_LABELED_FIELDS;
    bool lines_by_default; /* format auto without a known file name extension: lines instead of tsv */
    bool with_label;       /* the label column is required */
    /* A row that is not UTF-8 or contains a zero byte is an empty text, except the first row of a table. */
    bool skip_invalid;
    /* NULL, or: `header` is that of the table from which these labels were read. With `yes`, the first row is
     * a header unless it has one of the labels in the column of the label. */
    const nm_counter *labels;
} nm_labeled_config;

typedef struct nm_labeled {
    nm_labeled_config config;
    nm_delimited table;
    FILE *stream;
    const char *path;
    nm_labeled_format format; /* not auto */
    bool lines;               /* not a table: each line is an example */
    bool header;              /* the first row has the names of the columns */
    bool assumed_header;      /* only because config.labels is set: the row itself does not show it */
    char *columns;            /* heap text: which columns are read; NULL: all, or those of the options */
    size_t n_fields;          /* number of fields of all rows; 0 before the first row */
    size_t label_at;          /* index of the column of the label, from 0 */
    size_t text_at[NM_LABELED_MAX_TEXTS], n_texts; /* indexes of the columns of the text */
    int64_t row;                                   /* index of the current text, from 0 */
    bool invalid;                                  /* the current text is one of config.skip_invalid */
    const char *label; /* of the current text, without surrounding spaces; "" without with_label */
    nm_buffer text, joined_label;
} nm_labeled;

/* "-" is standard input. path must outlive the reader. NM_IO; NM_USAGE for invalid options; the errors of
 * nm_text_open. The caller closes the reader, also after an error. */
nm_status nm_labeled_open(nm_labeled *texts, const char *path, const nm_labeled_config *config,
                          nm_error *err);
/* Reads the next text; *more is false at the end of the file. label and text are valid until the next call.
 * Newlines within a text become spaces. NM_FORMAT with file and line: the errors of nm_delimited_next, rows
 * with different numbers of fields, an invalid label, a malformed object. NM_USAGE: a missing column. */
nm_status nm_labeled_next(nm_labeled *texts, bool *more, nm_error *err);
/* Number of the first line of the current text in the file. */
int64_t nm_labeled_line(const nm_labeled *texts);
void nm_labeled_close(nm_labeled *texts);
