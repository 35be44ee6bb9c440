/* CoNLL column files: one token per line, its columns separated by a tab (if the line contains one) or by blanks, and a blank
 * line after each sentence. All lines of a file have the same number of columns. Lines are kept unchanged. */
#ifndef NM_COLUMNS_H
#define NM_COLUMNS_H

#include "base/file.h"
#include "text/buffer.h"

enum { NM_COLUMNS_MAX = 64, NM_SENTENCE_MAX = 1 << 16 }; /* columns of a line, tokens of a sentence */

typedef struct nm_columns {
    nm_lines lines;
    int32_t n_columns; /* 0 before the first token */
    bool peeked;       /* `lines` has a line that was not returned yet */
    /* The current sentence: */
    int32_t n;      /* tokens */
    int64_t line;   /* number of its first line */
    nm_buffer text; /* its lines, then its fields, each NUL-terminated */
    size_t *starts; /* of the lines [n] in text */
    size_t *fields; /* [n * n_columns], in text */
    size_t starts_capacity, fields_capacity;
} nm_columns;

/* path is for messages. path and stream are not owned. */
void nm_columns_init(nm_columns *columns, FILE *stream, const char *path);
void nm_columns_release(nm_columns *columns);
/* The next sentence; blank lines before it are skipped. NM_FORMAT with file and line: a different number of columns, an empty
 * column, invalid UTF-8, a zero byte, a line or sentence that exceeds the limits. */
nm_status nm_columns_next(nm_columns *columns, bool *more, nm_error *err);

/* Reads the first line that is not blank, with which the next sentence starts. */
nm_status nm_columns_peek(nm_columns *columns, bool *more, nm_error *err);

/* Line i of the sentence, unchanged. nm_columns_field: its column from 0, or from the last one if negative. */
static inline const char *nm_columns_line(const nm_columns *columns, int32_t i)
{
    return columns->text.data + columns->starts[i];
}
const char *nm_columns_field(const nm_columns *columns, int32_t i, int32_t column);
/* Whether the line is like "-DOCSTART- -X- O O", which separates documents and is not a sentence. */
bool nm_columns_document(const nm_columns *columns);

#endif
