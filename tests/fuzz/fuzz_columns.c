/* Column files: accepted input that is written again, with tabs between columns, is read as the same fields;
 * valid tags keep their spans in every scheme. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "text/columns.h"
#include "text/tags.h"

/* Whether a conversion to each scheme and back gives the spans that the last column has. */
static void check_tags(const nm_columns *c)
{
    const char **tags = nm_allocate((size_t)c->n * sizeof *tags);
    nm_span *spans = nm_allocate(2 * (size_t)c->n * sizeof *spans), *again = spans + c->n;
    bool valid = true;
    for (int32_t i = 0; i < c->n; i++) {
        tags[i] = nm_columns_field(c, i, -1);
        valid &= nm_tag_valid(tags[i]);
    }
    int32_t n = valid ? nm_tag_spans(tags, c->n, spans) : 0;
    for (int scheme = 0; valid && scheme < NM_SPAN_SCHEMES_COUNT; scheme++) {
        char **made = nm_allocate((size_t)c->n * sizeof *made);
        nm_tags_convert((nm_tag_scheme)scheme, tags, c->n, made);
        const char *const *names = (const char *const *)made;
        NM_ASSERT(nm_tags_check((nm_tag_scheme)scheme, names, c->n) == c->n);
        NM_ASSERT(nm_tag_spans(names, c->n, again) == n);
        for (int32_t i = 0; i < n; i++)
            NM_ASSERT(spans[i].first == again[i].first && spans[i].end == again[i].end &&
                      !strcmp(spans[i].label, again[i].label));
        for (int32_t i = 0; i < c->n; i++)
            free(made[i]);
        free(made);
    }
    free((void *)tags);
    free(spans);
}

/* The sentences with tabs between columns; NULL if the file is rejected. */
static char *read_all(const char *text, size_t bytes)
{
    FILE *stream = fuzz_stream(text, bytes);
    nm_columns columns;
    nm_error err = {0};
    nm_buffer all = {0};
    nm_buffer_clear(&all);
    nm_columns_init(&columns, stream, "input");
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        status = nm_columns_next(&columns, &more, &err);
        for (int32_t i = 0; status == NM_OK && i < columns.n; i++)
            for (int32_t k = 0; k < columns.n_columns; k++) {
                const char *field = nm_columns_field(&columns, i, k);
                nm_buffer_append(&all, field, strlen(field));
                nm_buffer_append_byte(&all, k + 1 < columns.n_columns ? '\t' : '\n');
            }
        if (status == NM_OK && more) {
            nm_buffer_append_byte(&all, '\n');
            check_tags(&columns);
        }
    }
    nm_columns_release(&columns);
    fclose(stream);
    return fuzz_taken(status, &err, &all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!bytes)
        return 0;
    char *first = read_all((const char *)data, bytes);
    /* A \r at the end of a line is part of the newline, a byte order mark in the first column is part of the
     * file. */
    if (first && *first && !strchr(first, '\r') && strncmp(first, "\xEF\xBB\xBF", 3)) {
        char *again = read_all(first, strlen(first));
        NM_ASSERT(again && !strcmp(first, again));
        free(again);
    }
    free(first);
    return 0;
}
