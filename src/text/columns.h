/* CoNLL column files: a token a line, its columns parted by a tab (where the line has one) or by blanks, a blank line
 * behind each sentence. Every line of a file has the same number of columns. Lines are kept as they stand. */
#ifndef NM_COLUMNS_H
#define NM_COLUMNS_H

#include "base/file.h"
#include "text/buffer.h"

enum { NM_COLUMNS_MAX = 64, NM_SENTENCE_MAX = 1 << 16 }; /* columns of a line, tokens of a sentence */

typedef struct nm_columns {
    nm_lines lines;
    int32_t n_columns; /* 0 before the first token */
    bool peeked;       /* the line in `lines` is still to be taken */
    /* The current sentence: */
    int32_t n;      /* tokens */
    int64_t line;   /* number of its first line */
    nm_buffer text; /* its lines, NUL-terminated, then its fields, likewise */
    size_t *starts; /* of the lines [n] in text */
    size_t *fields; /* [n * n_columns], in text */
    size_t starts_capacity, fields_capacity;
} nm_columns;

/* path is for messages and not owned, nor is the stream. */
void nm_columns_init(nm_columns *columns, FILE *stream, const char *path);
void nm_columns_release(nm_columns *columns);
/* The next sentence; blank lines before it are passed over. NM_FORMAT names file and line: another number of columns,
 * an empty column, no UTF-8, a zero byte, a line or a sentence beyond all measure. */
nm_status nm_columns_next(nm_columns *columns, bool *more, nm_error *err);

/* Reads the first line that isn't blank, which the next sentence begins with: for who wants to see what comes. */
nm_status nm_columns_peek(nm_columns *columns, bool *more, nm_error *err);

/* Line i of the sentence as it stands in the file; column c of it, from 0, negative: from the last. */
static inline const char *nm_columns_line(const nm_columns *columns, int32_t i)
{
    return columns->text.data + columns->starts[i];
}
const char *nm_columns_field(const nm_columns *columns, int32_t i, int32_t column);
/* A line like "-DOCSTART- -X- O O", which parts documents and is no sentence. */
bool nm_columns_document(const nm_columns *columns);

#endif
