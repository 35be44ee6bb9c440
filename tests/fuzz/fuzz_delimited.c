/* Tables: accepted input that is written again, with every field in quotes, is read as the same fields. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/delimited.h"

/* All fields of a table, each ending in NUL, rows separated by '\n'; NULL if the table is rejected. */
static char *read_all(const char *text, size_t bytes, char separator, bool quotes, nm_buffer *quoted)
{
    FILE *stream = fuzz_stream(text, bytes);
    nm_delimited table;
    nm_error err = {0};
    nm_buffer all = {0};
    nm_buffer_clear(&all);
    nm_delimited_init(&table, stream, "input", separator, quotes);
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        status = nm_delimited_next(&table, &more, &err);
        for (size_t i = 0; more && status == NM_OK && i < table.n_fields; i++) {
            size_t length;
            const char *field = nm_delimited_field(&table, i, &length);
            nm_buffer_append(&all, field, length + 1);
            nm_buffer_append(quoted, i ? ",\"" : "\"", i ? 2 : 1);
            for (size_t k = 0; k < length; k++)
                nm_buffer_append(quoted, field[k] == '"' ? "\"\"" : &field[k], field[k] == '"' ? 2 : 1);
            nm_buffer_append_byte(quoted, '"');
        }
        if (more && status == NM_OK) {
            nm_buffer_append_byte(&all, '\n');
            nm_buffer_append(quoted, "\r\n", 2);
        }
    }
    nm_delimited_release(&table);
    fclose(stream);
    return fuzz_taken(status, &err, &all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    nm_buffer quoted = {0}, ignored = {0};
    nm_buffer_clear(&quoted);
    nm_buffer_clear(&ignored);
    char *first = read_all((const char *)data + 1, bytes - 1, data[0] & 1 ? '\t' : ',', data[0] & 2, &quoted);
    if (first && quoted.bytes) {
        char *again = read_all(quoted.data, quoted.bytes, ',', true, &ignored);
        NM_ASSERT(again && !strcmp(first, again));
        NM_ASSERT(quoted.bytes == ignored.bytes && !memcmp(quoted.data, ignored.data, quoted.bytes));
        free(again);
    }
    free(first);
    nm_buffer_release(&quoted);
    nm_buffer_release(&ignored);
    return 0;
}
