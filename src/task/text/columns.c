#include "text/columns.h"

#include <stdarg.h>
#include <string.h>

#include "base/words.h"

void nm_columns_init(nm_columns *columns, FILE *stream, const char *path)
{
    *columns = (nm_columns){0};
    nm_lines_init(&columns->lines, stream, path);
}

void nm_columns_release(nm_columns *columns)
{
    nm_lines_release(&columns->lines);
    nm_buffer_release(&columns->text);
    NM_FREE(columns->starts, columns->fields);
    *columns = (nm_columns){0};
}

static nm_status fail_here(const nm_columns *columns, nm_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static nm_status fail_here(const nm_columns *columns, nm_error *err, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", columns->lines.path, (long long)columns->lines.number,
                   what);
}

/* Splits the line into fields at tabs or, without tabs, at runs of spaces. `at` is the position of the line
 * in the text, fields receives positions in the text. Returns the number of fields, at most NM_COLUMNS_MAX +
 * 1. */
static int32_t cut(char *line, size_t at, size_t *fields)
{
    bool tabs = strchr(line, '\t') != NULL;
    int32_t n = 0;
    for (char *from = line; n <= NM_COLUMNS_MAX;) {
        from += tabs ? 0 : strspn(from, " ");
        if (!tabs && !*from)
            break;
        size_t length = strcspn(from, tabs ? "\t" : " ");
        bool last = !from[length];
        fields[n++] = at + (size_t)(from - line);
        from[length] = 0;
        if (last)
            break;
        from += length + 1;
    }
    return n;
}

static nm_status add_token_line(nm_columns *c, nm_error *err)
{
    size_t found[NM_COLUMNS_MAX + 1];
    size_t at = c->text.bytes, bytes = c->lines.bytes;
    nm_buffer_append(&c->text, c->lines.text, bytes + 1);
    nm_buffer_append(&c->text, c->lines.text, bytes + 1); /* copy that is split into fields */
    int32_t n = cut(c->text.data + at + bytes + 1, at + bytes + 1, found);
    if (n > NM_COLUMNS_MAX)
        return fail_here(c, err, "more than %d columns", NM_COLUMNS_MAX);
    if (!c->n_columns)
        c->n_columns = n;
    if (n != c->n_columns)
        return fail_here(c, err, "%d columns, the preceding lines have %d", n, c->n_columns);
    if (c->n >= NM_SENTENCE_MAX)
        return fail_here(c, err,
                         "a sentence of more than %d tokens: sentences must be separated by blank lines",
                         NM_SENTENCE_MAX);
    NM_GROW(c->starts, (size_t)c->n, c->starts_capacity);
    c->starts[c->n] = at;
    for (int32_t i = 0; i < n; i++) {
        size_t k = (size_t)c->n * (size_t)c->n_columns + (size_t)i;
        NM_GROW(c->fields, k, c->fields_capacity);
        c->fields[k] = found[i];
        if (!c->text.data[found[i]])
            return fail_here(c, err, "column %d is empty", i + 1);
    }
    c->n++;
    return NM_OK;
}

static bool is_blank(const nm_columns *c)
{
    return strspn(c->lines.text, " \t") == c->lines.bytes;
}

nm_status nm_columns_next_line(nm_columns *c, bool *more, nm_error *err)
{
    if (c->peeked) {
        c->peeked = false;
        *more = true;
        return NM_OK;
    }
    c->line_invalid = false;
    NM_TRY(nm_lines_next(&c->lines, more, err));
    if (!*more)
        return NM_OK;
    nm_status status = nm_line_check(&c->lines, err);
    if (status == NM_OK && memchr(c->lines.text, 0, c->lines.bytes))
        status = fail_here(c, err, "not text: contains a zero byte");
    c->line_invalid = status != NM_OK && c->skip_invalid;
    return c->line_invalid ? NM_OK : status;
}

nm_status nm_columns_peek(nm_columns *c, bool *more, int64_t *blank_lines, nm_error *err)
{
    for (*blank_lines = 0;; ++*blank_lines) {
        NM_TRY(nm_columns_next_line(c, more, err));
        if (!*more || c->line_invalid || !is_blank(c))
            break;
    }
    c->peeked = *more;
    return NM_OK;
}

/* Whether the first column of a line is "-DOCSTART-". */
static bool starts_document(const char *line)
{
    static const char name[] = "-DOCSTART-";
    const char *at = line + strspn(line, " ");
    return !strncmp(at, name, sizeof name - 1) && strchr(" \t", at[sizeof name - 1]);
}

nm_status nm_columns_next(nm_columns *c, bool *more, nm_error *err)
{
    bool document = false;
    nm_buffer_clear(&c->text);
    c->n = 0;
    c->invalid = 0;
    c->joined = false;
    for (;;) {
        NM_TRY(nm_columns_next_line(c, more, err));
        if (!*more)
            break;
        bool begun = c->n || c->invalid;
        if (!c->line_invalid && is_blank(c)) {
            if (begun)
                break;
            continue;
        }
        if (begun && (document || (!c->line_invalid && starts_document(c->lines.text)))) {
            c->peeked = c->joined = true;
            break;
        }
        if (c->line_invalid) {
            c->invalid = c->invalid ? c->invalid : c->lines.number;
            continue;
        }
        document = starts_document(c->lines.text);
        if (!c->n)
            c->line = c->lines.number;
        NM_TRY(add_token_line(c, err));
    }
    *more = c->n > 0 || c->invalid;
    return NM_OK;
}

const char *nm_columns_field(const nm_columns *c, int32_t i, int32_t column)
{
    int32_t at = column < 0 ? c->n_columns + column : column;
    NM_ASSERT(i >= 0 && i < c->n && at >= 0 && at < c->n_columns);
    return c->text.data + c->fields[(size_t)i * (size_t)c->n_columns + (size_t)at];
}

bool nm_columns_document(const nm_columns *c)
{
    return c->n > 0 && starts_document(nm_columns_line(c, 0));
}
