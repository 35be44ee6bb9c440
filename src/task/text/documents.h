/* Documents of plain text: each line, the lines between separators, or the whole file. */
#pragma once

#include "base/file.h"
#include "norma/choice.h"
#include "base/buffer.h"

#define NM_DOCUMENT_UNITS(C)                                                                                 \
    C(NM_DOCUMENT_LINE, "line")           /* every line */                                                   \
    C(NM_DOCUMENT_SEPARATED, "separated") /* the lines between separators; none without a line */            \
    C(NM_DOCUMENT_FILE, "file")           /* the file, with its line ends as they are */
NM_CHOICES(nm_document_unit, NM_DOCUMENT_UNITS);

typedef struct nm_document_rule {
    nm_document_unit unit;
    const char *separator; /* the line that separates documents; "": an empty line. Not owned */
} nm_document_rule;

typedef struct nm_documents {
    nm_document_rule rule;
    nm_lines lines;
    nm_buffer joined;
    bool prompts; /* the last line end of a file is not part of its document; set after nm_documents_init */
    bool checked; /* every line must be UTF-8 without zero bytes; set after nm_documents_init */
    /* the current document: its lines with the line ends between them, for a file all of its bytes but a byte
     * order mark; NUL-terminated, valid until the next call */
    const char *text;
    size_t bytes;
    int64_t line; /* number of its first line, from 1 */
} nm_documents;

/* stream and path must outlive the reader. */
void nm_documents_init(nm_documents *documents, FILE *stream, const char *path, nm_document_rule rule);
/* Reads the next document; *more is false at the end. NM_IO, and NM_FORMAT with file and line. */
nm_status nm_documents_next(nm_documents *documents, bool *more, nm_error *err);
void nm_documents_release(nm_documents *documents);
