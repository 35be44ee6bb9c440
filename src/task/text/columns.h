/* CoNLL column files: one token per line, its columns separated by a tab (if the line contains one) or by
 * spaces, and a blank line after each sentence. A line "-DOCSTART- ..." is read as a sentence, also without a
 * blank line after it, as in the Dutch files of CoNLL-2002. All lines of a file have the same number of
 * columns. Lines are kept unchanged. */
#pragma once

#include "base/file.h"
#include "base/buffer.h"

enum { NM_COLUMNS_MAX = 64, NM_SENTENCE_MAX = 1 << 16 }; /* columns of a line, tokens of a sentence */

typedef struct nm_columns {
    nm_lines lines;
    int32_t n_columns; /* 0 before the first token */
    bool peeked;       /* the current line of `lines` is the first one of the next sentence */
    bool joined;       /* no blank line before the next sentence: one of the two is a line "-DOCSTART-" */
    bool skip_invalid; /* set by the caller: a line that is not UTF-8 or contains a zero byte is no error */
    bool line_invalid; /* the current line of `lines` is such a line */
    /* The current sentence: */
    int32_t n;       /* tokens */
    int64_t line;    /* number of its first line, from 1 */
    int64_t invalid; /* number of its first invalid line, which is not among its tokens; 0: none */
    nm_buffer text;  /* for each token its line, then its fields, NUL-terminated */
    size_t *starts;  /* [n]: positions of the lines in text */
    size_t *fields;  /* [n, n_columns]: positions of the fields in text */
    size_t starts_capacity, fields_capacity;
} nm_columns;

/* path is for messages. path and stream are not owned and must outlive columns. */
void nm_columns_init(nm_columns *columns, FILE *stream, const char *path);
void nm_columns_release(nm_columns *columns);
/* Reads the next sentence; blank lines before it are skipped. *more is false at the end of the file.
 * NM_FORMAT with file and line: a different number of columns, an empty column, invalid UTF-8, a zero byte, a
 * line or sentence that exceeds the limits. NM_IO. */
nm_status nm_columns_next(nm_columns *columns, bool *more, nm_error *err);

/* Reads up to the first line of the next sentence, for example to detect the format: columns->lines is that
 * line, which may be invalid with skip_invalid. *blank_lines: number of blank lines before it. *more is false
 * if there is no further sentence. Errors as above. */
nm_status nm_columns_peek(nm_columns *columns, bool *more, int64_t *blank_lines, nm_error *err);
/* Reads the next line, which may be blank or invalid, into columns->lines, for text with a sentence per line.
 * Errors as above. */
nm_status nm_columns_next_line(nm_columns *columns, bool *more, nm_error *err);

/* Line i of the current sentence, unchanged. nm_columns_field: one of its columns, from 0; -1 is the last
 * one. */
static inline const char *nm_columns_line(const nm_columns *columns, int32_t i)
{
    return columns->text.data + columns->starts[i];
}
const char *nm_columns_field(const nm_columns *columns, int32_t i, int32_t column);
/* Whether the sentence is a line such as "-DOCSTART- -X- O O", which separates documents and is not a
 * sentence. */
bool nm_columns_document(const nm_columns *columns);
