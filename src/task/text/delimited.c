/* Parser for the grammar of RFC 4180, section 2, with any separator and with LF or CRLF at the end of a
 * row. */
#include "text/delimited.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_input.h"
#include "base/utf8_cut.h"
#include "text/utf8.h"

void nm_delimited_init(nm_delimited *table, FILE *stream, const char *path, char separator, bool quotes)
{
    *table = (nm_delimited){
        .stream = stream, .path = path, .separator = separator, .quotes = quotes, .next_line = 1};
}

bool nm_delimited_column(const char *number, size_t *column)
{
    size_t length = strlen(number);
    if (!length || length > 5 || strspn(number, "0123456789") != length || atoi(number) < 1)
        return false;
    *column = (size_t)atoi(number) - 1;
    return true;
}

void nm_delimited_release(nm_delimited *table)
{
    nm_buffer_release(&table->text);
    free(table->ends);
    *table = (nm_delimited){0};
}

const char *nm_delimited_field(const nm_delimited *table, size_t i, size_t *bytes)
{
    NM_ASSERT(i < table->n_fields);
    size_t start = i ? table->ends[i - 1] + 1 : 0;
    *bytes = table->ends[i] - start;
    return table->text.data + start;
}

char *nm_delimited_summary(const nm_delimited *table)
{
    nm_buffer list = {0};
    nm_buffer_clear(&list);
    for (size_t i = 0, bytes; i < table->n_fields && list.bytes < 200; i++) {
        NM_AUTO_FREE char *name = nm_format("%s%.40s", i ? ", " : "", nm_delimited_field(table, i, &bytes));
        nm_utf8_trim(name);
        nm_buffer_append(&list, name, strlen(name));
    }
    return list.data;
}

static int next_byte(nm_delimited *table)
{
    int byte = getc_unlocked(table->stream);
    table->next_line += byte == '\n';
    return byte;
}

static int peek_byte(nm_delimited *table)
{
    int byte = getc_unlocked(table->stream);
    if (byte != EOF)
        ungetc(byte, table->stream);
    return byte;
}

static void skip_byte_order_mark(nm_delimited *table)
{
    static const unsigned char mark[] = {0xEF, 0xBB, 0xBF};
    int seen = 0;
    while (seen < 3 && peek_byte(table) == mark[seen]) {
        getc_unlocked(table->stream);
        seen++;
    }
    /* An incomplete mark is part of the first field, where it is reported as invalid UTF-8. */
    if (seen < 3)
        nm_buffer_append(&table->text, (const char *)mark, (size_t)seen);
    table->begun = true;
}

static nm_status put(nm_delimited *table, int byte, nm_error *err)
{
    if (table->text.bytes >= NM_DELIMITED_MAX_ROW)
        return nm_fail(err, NM_FORMAT, "%s:%lld: a row of more than %zu bytes%s", table->path,
                       (long long)table->line, NM_DELIMITED_MAX_ROW,
                       table->quotes ? "; is a quote missing?" : "");
    nm_buffer_append_byte(&table->text, (char)byte);
    return NM_OK;
}

static nm_status end_field(nm_delimited *table, nm_error *err)
{
    if (table->n_fields >= NM_DELIMITED_MAX_FIELDS)
        return nm_fail(err, NM_FORMAT, "%s:%lld: more than %d fields", table->path, (long long)table->line,
                       NM_DELIMITED_MAX_FIELDS);
    NM_APPEND(table->ends, table->n_fields, table->capacity, table->text.bytes);
    nm_buffer_append_byte(&table->text, 0);
    return NM_OK;
}

/* Reads the rest of a quoted field, whose opening quote has been read, including the closing quote. */
static nm_status read_quoted(nm_delimited *table, nm_error *err)
{
    int64_t begin = table->next_line;
    for (;;) {
        int byte = next_byte(table);
        if (byte == EOF && ferror(table->stream))
            return NM_OK; /* reported by the caller */
        if (byte == EOF)
            return nm_fail(err, NM_FORMAT, "%s:%lld: the quote that opens here is never closed", table->path,
                           (long long)begin);
        if (byte == '"') {
            if (peek_byte(table) != '"')
                return NM_OK;
            next_byte(table);
        }
        NM_TRY(put(table, byte, err));
    }
}

static bool ends_row(nm_delimited *table, int byte)
{
    if (byte == '\r' && peek_byte(table) == '\n') {
        next_byte(table);
        return true;
    }
    return byte == '\n' || byte == EOF;
}

/* Reads one field and its terminator. *last: the field ends the row. */
static nm_status read_field(nm_delimited *table, bool *last, nm_error *err)
{
    bool quoted = table->quotes && peek_byte(table) == '"';
    if (quoted) {
        table->quoted = true;
        next_byte(table);
        NM_TRY(read_quoted(table, err));
    }
    for (;;) {
        int64_t line = table->next_line;
        int byte = next_byte(table);
        *last = ends_row(table, byte);
        if (*last || byte == table->separator)
            return end_field(table, err);
        if (quoted)
            return nm_fail(err, NM_FORMAT, "%s:%lld: text after a closing quote", table->path,
                           (long long)line);
        if (byte == '"' && table->quotes)
            return nm_fail(err, NM_FORMAT, "%s:%lld: a quote inside a field that does not start with one",
                           table->path, (long long)line);
        NM_TRY(put(table, byte, err));
    }
}

static nm_status check_text(const nm_delimited *table, nm_error *err)
{
    for (size_t i = 0; i < table->n_fields; i++) {
        size_t bytes;
        const char *field = nm_delimited_field(table, i, &bytes);
        if (memchr(field, 0, bytes))
            return nm_fail(err, NM_FORMAT, "%s:%lld: field %zu contains a zero byte", table->path,
                           (long long)table->line, i + 1);
        size_t bad = nm_utf8_find_invalid(field, bytes);
        if (bad < bytes)
            return nm_fail(err, NM_FORMAT, "%s:%lld: not UTF-8: byte 0x%02x at position %zu of field %zu",
                           table->path, (long long)table->line, (unsigned)(unsigned char)field[bad], bad + 1,
                           i + 1);
    }
    return NM_OK;
}

static bool is_empty_line(const nm_delimited *table)
{
    return table->n_fields == 1 && !table->ends[0] && !table->quoted;
}

nm_status nm_delimited_next(nm_delimited *table, bool *more, nm_error *err)
{
    table->complete = false;
    do {
        nm_buffer_clear(&table->text);
        table->n_fields = 0;
        table->quoted = false;
        if (!table->begun)
            skip_byte_order_mark(table);
        table->line = table->next_line;
        *more = peek_byte(table) != EOF || table->text.bytes;
        if (!*more)
            break;
        for (bool last = false; !last;)
            NM_TRY(read_field(table, &last, err));
    } while (is_empty_line(table) && !table->keep_empty);
    if (ferror(table->stream))
        return nm_fail(err, nm_input_error_status(errno), "%s:%lld: reading failed: %s", table->path,
                       (long long)table->line, nm_input_error_text(errno));
    table->complete = *more;
    return *more ? check_text(table, err) : NM_OK;
}
