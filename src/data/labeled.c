#include "data/labeled.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"

/* ---- which columns ---- */

/* "3" -> 2; false when the text is no number of a column. */
static bool column_number(const char *name, size_t *column)
{
    size_t length = strlen(name);
    if (!length || length > 5 || strspn(name, "0123456789") != length || atoi(name) < 1)
        return false;
    *column = (size_t)atoi(name) - 1;
    return true;
}

static bool all_numbers(const char *list)
{
    char *copy = nm_duplicate(list), *rest = copy;
    bool numbers = true;
    size_t column;
    for (char *name; (name = strtok_r(rest, ",", &rest));)
        numbers &= column_number(name, &column);
    free(copy);
    return numbers;
}

static nm_status find_column(const nm_labeled *texts, const char *name, bool header, size_t *column,
                             nm_error *err)
{
    size_t n = texts->table.n_fields, bytes;
    for (size_t i = 0; header && i < n; i++)
        if (!strcmp(nm_delimited_field(&texts->table, i, &bytes), name)) {
            *column = i;
            return NM_OK;
        }
    if (!column_number(name, column))
        return nm_fail(err, NM_USAGE, "%s:%lld: no column is named \"%.60s\"%s", texts->path,
                       (long long)texts->table.line, name, header ? "" : ", as the first row is no header");
    if (*column >= n)
        return nm_fail(err, NM_USAGE, "%s:%lld: no column %.60s: the first row has %zu field%s", texts->path,
                       (long long)texts->table.line, name, n, n == 1 ? "" : "s");
    return NM_OK;
}

static nm_status find_texts(nm_labeled *texts, bool header, nm_error *err)
{
    char *copy = nm_duplicate(texts->config.text), *rest = copy;
    nm_status status = NM_OK;
    for (char *name; status == NM_OK && (name = strtok_r(rest, ",", &rest));) {
        if (texts->n_texts == NM_LABELED_MAX_TEXTS)
            status = nm_fail(err, NM_USAGE, "more than %d columns of text", NM_LABELED_MAX_TEXTS);
        else
            status = find_column(texts, name, header, &texts->text_at[texts->n_texts++], err);
    }
    free(copy);
    return status;
}

static bool has_header(const nm_labeled *texts)
{
    const nm_labeled_config *c = &texts->config;
    size_t column, bytes;
    if (strcmp(c->header, "auto"))
        return !strcmp(c->header, "yes");
    bool numbered = column_number(c->label, &column);
    if (!all_numbers(c->text) || (c->with_label && !numbered))
        return true;
    if (!numbered)
        return false;
    const char *first =
        column < texts->table.n_fields ? nm_delimited_field(&texts->table, column, &bytes) : "";
    return !strcasecmp(first, "label") || !strcasecmp(first, "class");
}

/* The first row tells the number of fields and, as a header, the columns. */
static nm_status begin(nm_labeled *texts, bool *header, nm_error *err)
{
    texts->n_fields = texts->table.n_fields;
    *header = has_header(texts);
    if (texts->config.with_label)
        NM_TRY(find_column(texts, texts->config.label, *header, &texts->label_at, err));
    return find_texts(texts, *header, err);
}

/* ---- opening ---- */

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), n = strlen(ending);
    return length >= n && !strcasecmp(path + length - n, ending);
}

nm_status nm_labeled_open(nm_labeled *texts, const char *path, const nm_labeled_config *config, nm_error *err)
{
    *texts = (nm_labeled){.config = *config, .path = path, .row = -1, .label = ""};
    const char *format = config->format;
    if (!strcmp(format, "auto"))
        format = ends_in(path, ".csv")      ? "csv"
                 : ends_in(path, ".tsv")    ? "tsv"
                 : config->lines_by_default ? "lines"
                                            : "tsv";
    texts->lines = !strcmp(format, "lines");
    bool csv = !strcmp(format, "csv");
    bool quotes = !texts->lines && (strcmp(config->quotes, "auto") ? !strcmp(config->quotes, "yes") : csv);
    if (texts->lines && config->with_label)
        return nm_fail(err, NM_USAGE, "%s: lines have no labels: use the format tsv or csv", path);
    if (!texts->lines && !config->text[strspn(config->text, ",")])
        return nm_fail(err, NM_USAGE, "no column of text is named");
    NM_TRY(nm_file_open(&texts->stream, path, "rb", err));
    if (texts->stream == stdin)
        texts->path = "standard input";
    /* Lines are tables of one column whose separator can't occur, for a zero byte is refused. */
    nm_delimited_init(&texts->table, texts->stream, texts->path, csv ? ',' : texts->lines ? 0 : '\t', quotes);
    texts->table.keep_empty = texts->lines;
    return NM_OK;
}

void nm_labeled_close(nm_labeled *texts)
{
    nm_delimited_release(&texts->table);
    nm_buffer_release(&texts->text);
    nm_buffer_release(&texts->joined_label);
    if (texts->stream && texts->stream != stdin)
        fclose(texts->stream);
    *texts = (nm_labeled){0};
}

int64_t nm_labeled_line(const nm_labeled *texts)
{
    return texts->table.line;
}

/* ---- reading ---- */

static nm_status take_label(nm_labeled *texts, nm_error *err)
{
    size_t bytes;
    const char *field = nm_delimited_field(&texts->table, texts->label_at, &bytes);
    for (; bytes && *field == ' '; bytes--)
        field++;
    while (bytes && field[bytes - 1] == ' ')
        bytes--;
    nm_buffer_clear(&texts->joined_label);
    nm_buffer_append(&texts->joined_label, field, bytes);
    texts->label = texts->joined_label.data;
    long long line = (long long)texts->table.line;
    if (!bytes)
        return nm_fail(err, NM_FORMAT, "%s:%lld: the label is empty", texts->path, line);
    if (bytes > NM_LABEL_MAX_BYTES)
        return nm_fail(err, NM_FORMAT, "%s:%lld: a label of %zu bytes; is column %zu that of the text?",
                       texts->path, line, bytes, texts->label_at + 1);
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)field[i] < 32)
            return nm_fail(err, NM_FORMAT, "%s:%lld: control character 0x%02x in the label", texts->path,
                           line, (unsigned)(unsigned char)field[i]);
    return NM_OK;
}

static void take_text(nm_labeled *texts)
{
    nm_buffer_clear(&texts->text);
    for (size_t i = 0; i < texts->n_texts; i++) {
        size_t bytes;
        const char *field = nm_delimited_field(&texts->table, texts->text_at[i], &bytes);
        if (i)
            nm_buffer_append_byte(&texts->text, ' ');
        nm_buffer_append(&texts->text, field, bytes);
    }
    for (size_t i = 0; i < texts->text.bytes; i++)
        if (texts->text.data[i] == '\n' || texts->text.data[i] == '\r')
            texts->text.data[i] = ' ';
}

static nm_status next_row(nm_labeled *texts, bool *more, nm_error *err)
{
    NM_TRY(nm_delimited_next(&texts->table, more, err));
    if (*more && texts->lines && texts->table.n_fields > 1)
        return nm_fail(err, NM_FORMAT, "%s:%lld: not text: contains a zero byte", texts->path,
                       (long long)texts->table.line);
    if (!*more || texts->lines)
        return NM_OK;
    if (!texts->n_fields) {
        bool header;
        NM_TRY(begin(texts, &header, err));
        return header ? next_row(texts, more, err) : NM_OK;
    }
    if (texts->table.n_fields != texts->n_fields)
        return nm_fail(err, NM_FORMAT, "%s:%lld: %zu field%s, the first row has %zu", texts->path,
                       (long long)texts->table.line, texts->table.n_fields,
                       texts->table.n_fields == 1 ? "" : "s", texts->n_fields);
    return NM_OK;
}

nm_status nm_labeled_next(nm_labeled *texts, bool *more, nm_error *err)
{
    NM_TRY(next_row(texts, more, err));
    if (!*more)
        return NM_OK;
    texts->row++;
    if (texts->lines)
        texts->n_texts = 1; /* column 0, the line */
    if (texts->config.with_label)
        NM_TRY(take_label(texts, err));
    take_text(texts);
    return NM_OK;
}
