/* Delimited text: tab-separated values, and comma-separated values with the quoting of RFC 4180 (a quoted
 * field may contain commas, newlines and doubled quotes). One row per call. LF and CRLF end a row; a byte
 * order mark at the start and, unless keep_empty is set, empty lines are skipped. */
#pragma once

#include <stdio.h>
#include "base/buffer.h"

/* Maximum length of a row in bytes, because a missing closing quote would extend the row to the end of the
 * file. */
#define NM_DELIMITED_MAX_ROW ((size_t)64 << 20)
enum { NM_DELIMITED_MAX_FIELDS = 1 << 16 };

typedef struct nm_delimited {
    FILE *stream;
    const char *path; /* for messages; not owned */
    char separator;   /* '\t' or ',' */
    bool quotes;      /* RFC 4180; otherwise a quote is an ordinary character */
    bool quoted;      /* a field of the current row is quoted: a quoted empty field is a row */
    bool keep_empty;  /* return an empty line as a row of one empty field */
    bool complete;    /* the row was read to its end, also if its text is invalid */
    int64_t line;     /* number of the first line of the current row, from 1 */
    size_t n_fields;
    int64_t next_line; /* number of the line of the next byte */
    nm_buffer text;    /* the fields of the row, each NUL-terminated */
    size_t *ends;      /* [n_fields]: positions of the ends of the fields in text */
    size_t capacity;
    bool begun; /* the byte order mark was skipped */
} nm_delimited;

/* The stream is not owned. */
void nm_delimited_init(nm_delimited *table, FILE *stream, const char *path, char separator, bool quotes);
/* Reads the next row; *more is false after the last one. NM_FORMAT with file and line: invalid quotes,
 * invalid UTF-8, a zero byte, a row or number of fields that exceeds the limits, damaged compressed data.
 * NM_IO: reading failed. */
nm_status nm_delimited_next(nm_delimited *table, bool *more, nm_error *err);
/* Field i < n_fields of the current row, NUL-terminated, and its length. Valid until the next call of
 * nm_delimited_next. */
const char *nm_delimited_field(const nm_delimited *table, size_t i, size_t *bytes);
/* The first fields of the current row for a message, comma-separated and truncated. The caller frees it. */
char *nm_delimited_summary(const nm_delimited *table);
/* Converts the number of a column to its index: "3" to 2. False unless the text is an integer from 1 to
 * 99999. */
bool nm_delimited_column(const char *number, size_t *column);
void nm_delimited_release(nm_delimited *table);
