#include "data/labeled.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "base/c_locale.h"
#include "base/file.h"
#include "base/text_input.h"
#include "base/utf8_cut.h"

static bool all_numbers(const char *list)
{
    char *copy = nm_duplicate(list), *rest = copy;
    bool numbers = true;
    size_t column;
    for (char *name; (name = strtok_r(rest, ",", &rest));)
        numbers &= nm_delimited_column(name, &column);
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
    if (!nm_delimited_column(name, column)) {
        NM_AUTO_FREE char *columns = nm_delimited_summary(&texts->table);
        return nm_fail(err, NM_USAGE, "%s:%lld: no column is named \"%.60s\"%s; the first row has: %s",
                       texts->path, (long long)texts->table.line, name,
                       header ? "" : ", because the first row is not a header", columns);
    }
    if (*column >= n && n == 1)
        return nm_fail(
            err, NM_USAGE,
            "%s:%lld: no column %.60s: the first row has 1 field; \"label text\" is the format space "
            "or fasttext",
            texts->path, (long long)texts->table.line, name);
    if (*column >= n)
        return nm_fail(err, NM_USAGE, "%s:%lld: no column %.60s: the first row has %zu fields", texts->path,
                       (long long)texts->table.line, name, n);
    return NM_OK;
}

/* Names that choose the columns of label and text in a header. */
static const char *const label_names[] = {"label", "class", NULL};
static const char *const text_names[] = {"text",     "sentence", "review", "content",
                                         "question", "document", NULL};
enum { MISSING = -1 };

static bool is_auto(const char *column)
{
    return !strcmp(column, "auto");
}

/* Index of the first field of the first row that is one of the names, or MISSING. */
static ptrdiff_t named_column(const nm_labeled *texts, const char *const *names)
{
    size_t bytes;
    for (size_t i = 0; i < texts->table.n_fields; i++)
        for (size_t k = 0; names[k]; k++)
            if (!strcasecmp(nm_delimited_field(&texts->table, i, &bytes), names[k]))
                return (ptrdiff_t)i;
    return MISSING;
}

static nm_status find_label(nm_labeled *texts, bool header, nm_error *err)
{
    ptrdiff_t named = header ? named_column(texts, label_names) : MISSING;
    if (!is_auto(texts->config.label))
        return texts->config.with_label
                   ? find_column(texts, texts->config.label, header, &texts->label_at, err)
                   : NM_OK;
    texts->label_at = named == MISSING ? 0 : (size_t)named;
    return NM_OK;
}

/* auto: the column named so in a header; else the only column of texts without labels, the first one if the
 * label is in the second, or the second. */
static nm_status find_auto_text(nm_labeled *texts, bool header, nm_error *err)
{
    ptrdiff_t named = header ? named_column(texts, text_names) : MISSING;
    bool only = texts->table.n_fields == 1 && !texts->config.with_label;
    texts->n_texts = 1;
    if (named != MISSING)
        texts->text_at[0] = (size_t)named;
    else if (only || texts->label_at == 1)
        texts->text_at[0] = 0;
    else
        return find_column(texts, "2", false, &texts->text_at[0], err);
    return NM_OK;
}

static nm_status find_texts(nm_labeled *texts, bool header, nm_error *err)
{
    if (is_auto(texts->config.text))
        return find_auto_text(texts, header, err);
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

/* Whether the first row looks like a header (data.header = auto). */
static bool shows_header(const nm_labeled *texts)
{
    const nm_labeled_config *c = &texts->config;
    size_t column;
    bool any_label = is_auto(c->label), numbered = nm_delimited_column(c->label, &column);
    if ((!is_auto(c->text) && !all_numbers(c->text)) || (c->with_label && !any_label && !numbered))
        return true;
    ptrdiff_t label = named_column(texts, label_names), text = named_column(texts, text_names);
    if (numbered)
        return label == (ptrdiff_t)column;
    bool named = text != MISSING && (label != MISSING || !c->with_label);
    return any_label && (label == 0 || named);
}

/* Whether the first row has one of config.labels in the column of the label. A column that is chosen by name
 * has a header. */
static bool has_known_label(const nm_labeled *texts)
{
    const char *name = texts->config.label;
    size_t column = 0, bytes;
    if (texts->table.n_fields < 2 || (!is_auto(name) && !nm_delimited_column(name, &column)) ||
        column >= texts->table.n_fields)
        return false;
    const char *label = nm_delimited_field(&texts->table, column, &bytes);
    for (; bytes && *label == ' '; bytes--)
        label++;
    while (bytes && label[bytes - 1] == ' ')
        bytes--;
    return nm_counter_find(texts->config.labels, label, bytes) != SIZE_MAX;
}

static bool has_header(nm_labeled *texts)
{
    const nm_labeled_config *c = &texts->config;
    if (c->header == NM_CHOICE_NO || (c->header == NM_CHOICE_YES && !c->labels))
        return c->header == NM_CHOICE_YES;
    bool shown = shows_header(texts);
    texts->assumed_header = c->header == NM_CHOICE_YES && !shown && !has_known_label(texts);
    return shown || texts->assumed_header;
}

static void append_text(nm_buffer *out, const char *text)
{
    nm_buffer_append(out, text, strlen(text));
}

/* Appends "column 2 (review)", in a header with the name. */
static void append_column(const nm_labeled *texts, size_t column, nm_buffer *out)
{
    size_t bytes;
    char number[32];
    int n = snprintf(number, sizeof number, "column %zu", column + 1);
    nm_buffer_append(out, number, (size_t)n);
    if (!texts->header)
        return;
    NM_AUTO_FREE char *name = nm_format(" (%.60s)", nm_delimited_field(&texts->table, column, &bytes));
    nm_utf8_trim(name);
    nm_buffer_append(out, name, strlen(name));
}

/* Sets texts->columns if an option is auto and the table has more columns than are read. */
static void describe_columns(nm_labeled *texts)
{
    nm_buffer out = {0};
    bool with_label = texts->config.with_label;
    bool chosen = !is_auto(texts->config.text) && (!with_label || !is_auto(texts->config.label));
    if (chosen || texts->n_fields <= texts->n_texts + with_label)
        return;
    nm_buffer_clear(&out);
    append_text(&out, texts->path);
    append_text(&out, with_label ? ": the label is " : ": ");
    if (with_label) {
        append_column(texts, texts->label_at, &out);
        append_text(&out, ", ");
    }
    append_text(&out, "the text is ");
    for (size_t i = 0; i < texts->n_texts; i++) {
        append_text(&out, i ? " and " : "");
        append_column(texts, texts->text_at[i], &out);
    }
    NM_AUTO_FREE char *end =
        nm_format("; the table has %zu columns (data.label and data.text select)", texts->n_fields);
    append_text(&out, end);
    texts->columns = out.data;
}

/* The first row determines the number of fields and, if it is a header, the columns. */
static nm_status begin(nm_labeled *texts, nm_error *err)
{
    texts->n_fields = texts->table.n_fields;
    texts->header = has_header(texts);
    texts->table.keep_empty = texts->n_fields == 1; /* after the first row, an empty line is an empty text */
    NM_TRY(find_label(texts, texts->header, err));
    NM_TRY(find_texts(texts, texts->header, err));
    for (size_t i = 0; i < texts->n_texts && texts->config.with_label; i++)
        if (texts->text_at[i] == texts->label_at)
            return nm_fail(err, NM_USAGE, "%s: column %zu is that of the label and of the text (label, text)",
                           texts->path, texts->label_at + 1);
    describe_columns(texts);
    return NM_OK;
}

/* Whether one of the comma-separated names is the field. */
static bool names_field(const char *names, const char *field)
{
    char *copy = nm_duplicate(names), *rest = copy;
    bool found = false;
    for (char *name; (name = strtok_r(rest, ",", &rest));)
        found |= !strcmp(name, field);
    free(copy);
    return found;
}

static bool names_column(const nm_labeled_config *config, const char *field)
{
    bool found = names_field(config->label, field) || names_field(config->text, field);
    for (size_t k = 0; label_names[k]; k++)
        found |= !strcasecmp(label_names[k], field);
    for (size_t k = 0; text_names[k]; k++)
        found |= !strcasecmp(text_names[k], field);
    return found;
}

/* Splits the first row of a table with this separator. *n: number of its fields, 0 if it cannot be read;
 * *named: whether a field is the name of a column. */
static nm_status try_separator(const char *path, const nm_labeled_config *config, char separator, size_t *n,
                               bool *named, nm_error *err)
{
    FILE *stream;
    bool more;
    nm_delimited table;
    *n = 0;
    *named = false;
    NM_TRY(nm_text_open(&stream, path, config->encoding, err));
    nm_delimited_init(&table, stream, path, separator, config->quotes != NM_CHOICE_NO);
    if (nm_delimited_next(&table, &more, NM_IGNORED) == NM_OK && more)
        *n = table.n_fields;
    for (size_t i = 0, bytes; i < *n; i++)
        *named |= names_column(config, nm_delimited_field(&table, i, &bytes));
    nm_delimited_release(&table);
    fclose(stream);
    return NM_OK;
}

/* A semicolon, as spreadsheets write in many countries, if the first row has several fields then and only one
 * with commas. Texts without labels may be a table of one column, so one of the fields must be the name of a
 * column. */
static nm_status find_separator(const char *path, const nm_labeled_config *config, char *separator,
                                nm_error *err)
{
    size_t with_commas, with_semicolons;
    bool named;
    *separator = ',';
    if (!strcmp(path, "-") || nm_file_check_rereadable(path, NM_IGNORED) != NM_OK)
        return NM_OK;
    NM_TRY(try_separator(path, config, ',', &with_commas, &named, err));
    if (with_commas > 1)
        return NM_OK;
    NM_TRY(try_separator(path, config, ';', &with_semicolons, &named, err));
    if (with_semicolons > 1 && (config->with_label || named))
        *separator = ';';
    return NM_OK;
}

nm_status nm_labeled_open(nm_labeled *texts, const char *path, const nm_labeled_config *config, nm_error *err)
{
    *texts = (nm_labeled){.config = *config, .path = path, .row = -1, .label = ""};
    nm_labeled_format format = config->format != NM_LABELED_AUTO ? config->format
                               : nm_text_ends_in(path, ".csv")   ? NM_LABELED_CSV
                               : nm_text_ends_in(path, ".tsv")   ? NM_LABELED_TSV
                               : nm_text_ends_in(path, ".jsonl") || nm_text_ends_in(path, ".ndjson") ||
                                       nm_text_ends_in(path, ".json")
                                   ? NM_LABELED_JSON
                               : config->lines_by_default ? NM_LABELED_LINES
                                                          : NM_LABELED_TSV;
    bool csv = format == NM_LABELED_CSV;
    bool quotes = csv ? config->quotes != NM_CHOICE_NO : config->quotes == NM_CHOICE_YES;
    texts->format = format;
    texts->lines = !csv && format != NM_LABELED_TSV;
    if (format == NM_LABELED_LINES && config->with_label)
        return nm_fail(err, NM_USAGE, "%s: lines have no labels: use another format, such as tsv or space",
                       path);
    if (!texts->lines && !config->text[strspn(config->text, ",")])
        return nm_fail(err, NM_USAGE, "no column of text is named");
    char separator = texts->lines ? 0 : '\t';
    if (csv)
        NM_TRY(find_separator(path, config, &separator, err));
    NM_TRY(nm_text_open_checked(&texts->stream, path, config->encoding, err));
    if (texts->stream == stdin)
        texts->path = "standard input";
    /* Lines are tables of one column. Their separator is a zero byte, which is reported as an error if it
     * occurs. */
    nm_delimited_init(&texts->table, texts->stream, texts->path, separator, quotes && !texts->lines);
    texts->table.keep_empty =
        format == NM_LABELED_LINES || (format == NM_LABELED_FASTTEXT && !config->with_label);
    return NM_OK;
}

void nm_labeled_close(nm_labeled *texts)
{
    nm_delimited_release(&texts->table);
    nm_buffer_release(&texts->text);
    nm_buffer_release(&texts->joined_label);
    free(texts->columns);
    nm_input_close(texts->stream);
    *texts = (nm_labeled){0};
}

int64_t nm_labeled_line(const nm_labeled *texts)
{
    return texts->table.line;
}

static nm_status set_label(nm_labeled *texts, const char *field, size_t bytes, nm_error *err)
{
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

/* Splits a line into the label before the first space and the text. In the format fasttext, where labels are
 * marked, a line without label is text only. */
static nm_status split_first_word(nm_labeled *texts, nm_error *err)
{
    static const char mark[] = "__label__";
    enum { MARK = sizeof mark - 1 };
    size_t bytes;
    const char *line = nm_delimited_field(&texts->table, 0, &bytes);
    size_t end = strcspn(line, " \t");
    bool marked = !strncmp(line, mark, MARK), fasttext = texts->format == NM_LABELED_FASTTEXT;
    const char *rest = line + end + strspn(line + end, " \t");
    if (fasttext && !marked && texts->config.with_label)
        return nm_fail(err, NM_FORMAT, "%s:%lld: does not begin with %s (format fasttext)", texts->path,
                       (long long)texts->table.line, mark);
    if (fasttext && !strncmp(rest, mark, MARK))
        return nm_fail(err, NM_FORMAT, "%s:%lld: more than one label; Norma classifies into one class",
                       texts->path, (long long)texts->table.line);
    if (fasttext && !marked)
        rest = line;
    if (texts->config.with_label)
        NM_TRY(set_label(texts, line + (fasttext ? MARK : 0), end - (fasttext ? MARK : 0), err));
    nm_buffer_clear(&texts->text);
    nm_buffer_append(&texts->text, rest, strlen(rest));
    return NM_OK;
}

static const char *type_name(const json_t *value)
{
    return json_is_boolean(value) ? "a boolean"
           : json_is_array(value) ? "an array"
           : json_is_null(value)  ? "null"
                                  : "an object";
}

/* Appends the string or number in a field of the object. NM_FORMAT if there is none. */
static nm_status append_field(const nm_labeled *texts, const json_t *object, const char *name, nm_buffer *out,
                              nm_error *err)
{
    const json_t *value = json_object_get(object, name);
    char number[32];
    if (json_is_string(value)) {
        nm_buffer_append(out, json_string_value(value), json_string_length(value));
        return NM_OK;
    }
    if (!value)
        return nm_fail(
            err, NM_FORMAT,
            "%s:%lld: the object has no text \"%.60s\"; the options label and text name its fields",
            texts->path, (long long)texts->table.line, name);
    if (!json_is_number(value))
        return nm_fail(err, NM_FORMAT, "%s:%lld: \"%.60s\" is %s, not a string or a number", texts->path,
                       (long long)texts->table.line, name, type_name(value));
    locale_t before = nm_c_locale_enter();
    int n = json_is_integer(value)
                ? snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value))
                : snprintf(number, sizeof number, "%g", json_real_value(value));
    nm_c_locale_leave(before);
    nm_buffer_append(out, number, (size_t)n);
    return NM_OK;
}

/* The field of an object. `number`, the default column of older models, does not apply to objects. */
static const char *field_name(const char *column, const char *number, const char *name)
{
    return is_auto(column) || !strcmp(column, number) ? name : column;
}

static nm_status read_fields(nm_labeled *texts, const json_t *object, nm_error *err)
{
    const nm_labeled_config *config = &texts->config;
    const char *label_name = field_name(config->label, "1", "label");
    nm_buffer label = {0};
    nm_status status = NM_OK;
    if (config->with_label) {
        nm_buffer_clear(&label);
        status = append_field(texts, object, label_name, &label, err);
        NM_THEN(status, set_label(texts, label.data, label.bytes, err));
        nm_buffer_release(&label);
    }
    char *copy = nm_duplicate(field_name(config->text, "2", "text")), *rest = copy;
    nm_buffer_clear(&texts->text);
    for (char *name; status == NM_OK && (name = strtok_r(rest, ",", &rest));) {
        if (texts->text.bytes)
            nm_buffer_append_byte(&texts->text, ' ');
        if (config->with_label && !strcmp(name, label_name))
            status = nm_fail(err, NM_USAGE,
                             "%s: \"%.60s\" is the field of the label and of the text (label, text)",
                             texts->path, name);
        else
            status = append_field(texts, object, name, &texts->text, err);
    }
    free(copy);
    return status;
}

static nm_status parse_object(nm_labeled *texts, nm_error *err)
{
    size_t bytes;
    json_error_t why;
    const char *line = nm_delimited_field(&texts->table, 0, &bytes);
    json_auto_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    return json_is_object(object)
               ? read_fields(texts, object, err)
               : nm_fail(err, NM_FORMAT, "%s:%lld: not a JSON object: %.100s", texts->path,
                         (long long)texts->table.line,
                         !object                 ? why.text
                         : json_is_array(object) ? "an array; JSON lines have an object per line"
                                                 : "another value");
}

static void join_columns(nm_labeled *texts)
{
    nm_buffer_clear(&texts->text);
    for (size_t i = 0; i < texts->n_texts; i++) {
        size_t bytes;
        const char *field = nm_delimited_field(&texts->table, texts->text_at[i], &bytes);
        if (i)
            nm_buffer_append_byte(&texts->text, ' ');
        nm_buffer_append(&texts->text, field, bytes);
    }
}

static nm_status next_row(nm_labeled *texts, bool *more, nm_error *err)
{
    nm_status status = nm_delimited_next(&texts->table, more, err);
    if (status == NM_OK && *more && texts->lines && texts->table.n_fields > 1)
        status = nm_fail(err, NM_FORMAT, "%s:%lld: not text: contains a zero byte", texts->path,
                         (long long)texts->table.line);
    bool first_row = !texts->lines && !texts->n_fields; /* determines the columns */
    texts->invalid = status != NM_OK && texts->table.complete && texts->config.skip_invalid && !first_row;
    if (texts->invalid)
        return NM_OK;
    NM_TRY(status);
    if (!*more || texts->lines)
        return NM_OK;
    if (!texts->n_fields) {
        NM_TRY(begin(texts, err));
        return texts->header ? next_row(texts, more, err) : NM_OK;
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
    if (texts->invalid) {
        nm_buffer_clear(&texts->text);
        return NM_OK;
    }
    if (texts->lines)
        texts->n_texts = 1; /* the line is column 0 */
    if (texts->format == NM_LABELED_JSON) {
        NM_TRY(parse_object(texts, err));
    } else if (texts->format == NM_LABELED_SPACE || texts->format == NM_LABELED_FASTTEXT) {
        NM_TRY(split_first_word(texts, err));
    } else {
        if (texts->config.with_label) {
            size_t bytes;
            const char *field = nm_delimited_field(&texts->table, texts->label_at, &bytes);
            NM_TRY(set_label(texts, field, bytes, err));
        }
        join_columns(texts);
    }
    nm_buffer_join_lines(&texts->text);
    return NM_OK;
}
