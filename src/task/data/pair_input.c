#include "data/pair_input.h"

#include <jansson.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/archive.h"
#include "base/text_input.h"
#include "base/utf8_cut.h"

static bool is_absolute(const char *name)
{
    return *name == '/' || !strcmp(name, "-");
}

static char *in_folder(const nm_pair_config *config, const char *name)
{
    return *config->folder && !is_absolute(name) ? nm_path_join(config->folder, name) : nm_duplicate(name);
}

/* Finds the file with this name, or with this name and a suffix of XML, SGML or compressed files. The caller
 * frees *path; it is that of the name itself if no file is found. A name in an archive is found without
 * reading the archive, unless it could be several names. */
static nm_status find_file(const nm_pair_config *config, const char *name, char **path, bool *found,
                           nm_error *err)
{
    static const char *const markup_suffixes[] = {"", ".xml", ".sgm"};
    *path = in_folder(config, name);
    NM_TRY(nm_file_find(*path, found, err));
    size_t archive = nm_archive_prefix(*path);
    *found |= archive && (!strpbrk(*path + archive, ",:") || nm_archive_contains(*path));
    for (int m = 0; m < 3 && !*found; m++)
        for (size_t i = 0; nm_compressed_suffixes[i] && !*found; i++) {
            NM_AUTO_FREE char *name_with_suffix =
                nm_format("%s%s%s", name, markup_suffixes[m], nm_compressed_suffixes[i]);
            char *other = in_folder(config, name_with_suffix);
            nm_status status = nm_file_find(other, found, err);
            if (*found) {
                free(*path);
                *path = other;
            } else {
                free(other);
            }
            NM_TRY(status);
        }
    return NM_OK;
}

static bool is_there(const nm_pair_config *config, const char *name)
{
    NM_AUTO_FREE char *path = NULL;
    bool found;
    return find_file(config, name, &path, &found, NM_IGNORED) != NM_OK || found;
}

static char *replace_language(const char *name, const char *language)
{
    static const char mark[] = "{lang}";
    nm_buffer out = {0};
    for (const char *at = name; *at;) {
        const char *next = strstr(at, mark);
        nm_buffer_append(&out, at, next ? (size_t)(next - at) : strlen(at));
        if (!next)
            break;
        nm_buffer_append(&out, language, strlen(language));
        at = next + sizeof mark - 1;
    }
    return out.data ? out.data : nm_duplicate("");
}

/* The colon between the names of the two files, NULL if there is none: a file name may contain colons,
 * too. */
static const char *find_colon(const nm_pair_config *config, const char *source)
{
    const char *first = strchr(source, ':');
    NM_AUTO_FREE char *prefixed = nm_format("%s.%s", source, config->languages[0]);
    bool one_name = first && (is_there(config, prefixed) || is_there(config, source));
    if (one_name || config->sides == 1)
        return NULL;
    for (const char *colon = first; colon; colon = strchr(colon + 1, ':')) {
        NM_AUTO_FREE char *name = nm_format("%.*s", (int)(colon - source), source);
        bool both = is_there(config, name) && is_there(config, colon + 1);
        if (both)
            return colon;
    }
    return first;
}

/* Name of the file of a side, which the syntax of the source determines. The caller frees it. */
static char *side_name(const nm_pair_config *config, const char *source, int side)
{
    const char *colon = find_colon(config, source);
    if (config->sides == 1)
        return nm_duplicate(source);
    if (strstr(source, "{lang}"))
        return replace_language(source, config->languages[side]);
    if (colon)
        return side ? nm_duplicate(colon + 1) : nm_format("%.*s", (int)(colon - source), source);
    return nm_format("%s.%s", source, config->languages[side]);
}

/* The format of a source; never NM_PAIR_AUTO. */
static nm_pair_format format_of(const nm_pair_config *config, const char *source)
{
    if (config->format != NM_PAIR_AUTO)
        return config->format;
    if (nm_text_ends_in(source, ".jsonl") || nm_text_ends_in(source, ".ndjson"))
        return NM_PAIR_JSON;
    if (config->sides == 1 || find_colon(config, source) || strstr(source, "{lang}"))
        return NM_PAIR_LINES;
    return nm_text_ends_in(source, ".tsv")   ? NM_PAIR_TSV
           : nm_text_ends_in(source, ".csv") ? NM_PAIR_CSV
                                             : NM_PAIR_LINES;
}

bool nm_pair_source_exists(const void *config, const char *source)
{
    NM_AUTO_FREE char *name = side_name(config, source, 0);
    return is_there(config, name) || is_there(config, source);
}

bool nm_pair_source_has_markup(const nm_pair_config *config, const char *source)
{
    bool markup = false;
    for (int side = 0; side < config->sides; side++) {
        char *name = side_name(config, source, side), *path;
        bool found;
        find_file(config, name, &path, &found, NM_IGNORED);
        markup |= nm_markup_kind_of(path) != NM_MARKUP_NONE;
        NM_FREE(path, name);
    }
    return markup;
}

/* Whether texts are documents, which may have several lines. */
static bool reads_documents(const nm_pair_config *config)
{
    return config->documents.unit != NM_DOCUMENT_LINE;
}

/* The source is a file or a folder, but not with the name of a side added. */
static nm_status fail_not_prefix(const nm_pair_config *config, const char *source, const char *path,
                                 nm_error *err)
{
    for (int side = 0; side < config->sides; side++) {
        NM_AUTO_FREE char *suffix = nm_format(".%s", config->languages[side]);
        bool named = nm_ends_with(source, suffix);
        int prefix_bytes = (int)(strlen(source) - strlen(suffix));
        if (named)
            return nm_fail(err, NM_IO,
                           "%s: No such file, but %s exists: both files are named by their prefix, %.*s",
                           path, source, prefix_bytes, source);
    }
    struct stat info;
    NM_AUTO_FREE char *named = in_folder(config, source);
    bool is_folder = !stat(named, &info) && S_ISDIR(info.st_mode);
    if (is_folder)
        return nm_fail(
            err, NM_IO,
            "%s: No such file: %s is a folder; the names of its files begin with a prefix, such as "
            "%s/train",
            path, source, source);
    return nm_fail(err, NM_IO,
                   "%s: No such file, but %s exists: if it is a table with both languages, name its "
                   "format (--input-format tsv, csv or json)",
                   path, source);
}

/* Opens the file of a side, whose path is known. */
static nm_status open_text(nm_pair_input *self, int side, nm_error *err)
{
    const char *all = self->config->encoding, *path = self->paths[side], *comma = strchr(all, ',');
    if (comma && (self->config->sides == 1 || self->format != NM_PAIR_LINES))
        return nm_fail(err, NM_USAGE, "%s: one file has one encoding, not %s", path, all);
    NM_AUTO_FREE char *encoding =
        comma && side ? nm_duplicate(comma + 1) : nm_format("%.*s", (int)strcspn(all, ","), all);
    NM_TRY(nm_text_open(&self->streams[side], path, encoding, err));
    NM_TRY(nm_text_refuse_utf16(self->streams[side], path, encoding, err));
    if (self->config->own_encoding)
        NM_TRY(nm_text_refuse_utf8(path, encoding, self->config->own_encoding, err));
    return NM_OK;
}

static nm_status open_lines(nm_pair_input *self, const char *source, nm_error *err)
{
    const nm_pair_config *config = self->config;
    for (int side = 0; side < config->sides; side++) {
        NM_AUTO_FREE char *name = side_name(config, source, side);
        bool found, is_file = false;
        nm_status status = find_file(config, name, &self->paths[side], &found, err);
        NM_AUTO_FREE char *table = in_folder(config, source);
        if (status == NM_OK && config->sides == 2 && !found)
            status = nm_file_find(table, &is_file, err);
        NM_TRY(status);
        if (is_file)
            return fail_not_prefix(config, source, self->paths[side], err);
        NM_TRY(open_text(self, side, err));
        if (reads_documents(config) && nm_markup_kind_of(self->paths[side]) != NM_MARKUP_NONE)
            return nm_fail(err, NM_USAGE, "%s: its sentences are lines (--documents line), not documents",
                           self->paths[side]);
        if (reads_documents(config))
            nm_documents_init(&self->documents, self->streams[side], self->paths[side], config->documents);
        nm_markup_init(&self->lines[side], nm_markup_kind_of(self->paths[side]), self->streams[side],
                       self->paths[side]);
        self->lines[side].decode_entities = config->decode_entities;
    }
    return NM_OK;
}

static const char *field_name(const nm_pair_config *config, int side)
{
    return *config->fields[side] ? config->fields[side]
           : config->sides == 1  ? "text"
                                 : config->languages[side];
}

/* Sets the columns by their numbers or their names in the first row, otherwise to the first two. *header: the
 * first row contains names. */
static nm_status find_columns(nm_pair_input *self, bool *header, nm_error *err)
{
    const nm_delimited *table = &self->table;
    *header = false;
    bool found[NM_PAIR_SIDES] = {false};
    for (int side = 0; side < NM_PAIR_SIDES; side++) {
        const char *name = field_name(self->config, side);
        found[side] =
            nm_delimited_column(name, &self->columns[side]) && self->columns[side] < table->n_fields;
        for (size_t i = 0, bytes; i < table->n_fields && !found[side]; i++)
            if (!strcasecmp(nm_delimited_field(table, i, &bytes), name)) {
                self->columns[side] = i;
                found[side] = *header = true;
            }
        if (!found[side] && *self->config->fields[side]) {
            NM_AUTO_FREE char *columns = nm_delimited_summary(table);
            return nm_fail(err, NM_USAGE, "%s: no column \"%.60s\"; the first row has %zu: %s",
                           self->paths[0], name, table->n_fields, columns);
        }
    }
    if (found[0] && found[1] && self->columns[0] == self->columns[1])
        return nm_fail(
            err, NM_USAGE,
            "%s: column %zu is that of the source and of the target (--source-field, --target-field)",
            self->paths[0], self->columns[0] + 1);
    if (found[0] && found[1])
        return NM_OK;
    *header = false;
    self->columns[0] = 0;
    self->columns[1] = 1;
    if (table->n_fields < 2)
        return nm_fail(
            err, NM_FORMAT,
            "%s:%lld: one column instead of two for source and target; --input-format names another "
            "separator (tsv, csv), --source-field and --target-field name columns",
            self->paths[0], (long long)table->line);
    return NM_OK;
}

/* "pairs.tsv: source from column 2 (de), target from column 1 (en) of 3". Columns of a header have names. */
static char *describe_columns(const nm_pair_input *self, bool header)
{
    nm_buffer out = {0};
    const char *const sides[] = {": source from column", ", target from column"};
    nm_buffer_append(&out, self->paths[0], strlen(self->paths[0]));
    for (int side = 0; side < NM_PAIR_SIDES; side++) {
        size_t bytes;
        const char *name = header ? nm_delimited_field(&self->table, self->columns[side], &bytes) : "";
        NM_AUTO_FREE char *text = nm_format("%s %zu%s%.40s%s", sides[side], self->columns[side] + 1,
                                            header ? " (" : "", name, header ? ")" : "");
        nm_utf8_trim(text);
        nm_buffer_append(&out, text, strlen(text));
    }
    NM_AUTO_FREE char *end =
        nm_format(" of %zu, %s", self->table.n_fields, header ? "with a header" : "without a header");
    nm_buffer_append(&out, end, strlen(end));
    return out.data;
}

static nm_status open_single(nm_pair_input *self, const char *source, nm_error *err)
{
    for (int side = 0; side < self->config->sides; side++) {
        bool ignored; /* nm_text_open reports a missing file */
        NM_TRY(find_file(self->config, source, &self->paths[side], &ignored, err));
    }
    NM_TRY(open_text(self, 0, err));
    bool csv = self->format == NM_PAIR_CSV;
    nm_markup_init(&self->lines[0], NM_MARKUP_NONE, self->streams[0], self->paths[0]);
    if (self->format == NM_PAIR_JSON)
        return NM_OK;
    nm_delimited_init(&self->table, self->streams[0], self->paths[0], csv ? ',' : '\t', csv);
    self->columns[0] = SIZE_MAX; /* set when the first row is read */
    return NM_OK;
}

nm_status nm_pair_input_open(nm_pair_input *self, const char *source, const nm_pair_config *config,
                             nm_error *err)
{
    *self = (nm_pair_input){.config = config, .format = format_of(config, source)};
    if (config->sides == 1 && (self->format == NM_PAIR_TSV || self->format == NM_PAIR_CSV))
        return nm_fail(err, NM_USAGE, "%s: plain text must be lines or JSON lines, not a table", source);
    return self->format == NM_PAIR_LINES ? open_lines(self, source, err) : open_single(self, source, err);
}

void nm_pair_input_close(nm_pair_input *self)
{
    nm_delimited_release(&self->table);
    nm_documents_release(&self->documents);
    free(self->described);
    for (int side = 0; side < NM_PAIR_SIDES; side++) {
        nm_markup_release(&self->lines[side]);
        nm_buffer_release(&self->texts[side]);
        nm_input_close(self->streams[side]);
        free(self->paths[side]);
    }
    *self = (nm_pair_input){0};
}

/* At the end of a file: NM_FORMAT if its lines end in "\r" only, as those of Mac OS 9 and some spreadsheets,
 * so that it is a single line. */
static nm_status check_line_ends(const nm_pair_input *self, int side, nm_error *err)
{
    if (self->n_read[side] != 1 || !self->has_returns[side])
        return NM_OK;
    return nm_fail(err, NM_FORMAT,
                   "%s: a single line that contains carriage returns: lines must end in \\n or \\r\\n "
                   "(tr '\\r' '\\n' converts them)",
                   nm_input_name(self->paths[side]));
}

/* One side has ended before the other. Reads both to their ends to report the numbers of sentences. */
static nm_status fail_unequal(nm_pair_input *self, nm_error *err)
{
    int64_t *n = self->n_read;
    for (int side = 0; side < NM_PAIR_SIDES; side++)
        for (bool more = true; more; n[side] += more)
            NM_TRY(nm_markup_next(&self->lines[side], &more, err));
    const char *unit = self->lines[0].kind == NM_MARKUP_NONE ? "lines" : "sentences";
    return nm_fail(err, NM_MISMATCH, "%s has %lld %s but %s has %lld", self->paths[0], (long long)n[0], unit,
                   self->paths[1], (long long)n[1]);
}

static nm_status next_lines(nm_pair_input *self, bool *more, nm_error *err)
{
    bool has[NM_PAIR_SIDES] = {false};
    for (int side = 0; side < self->config->sides; side++) {
        nm_markup *lines = &self->lines[side];
        NM_TRY(nm_markup_next(lines, &has[side], err));
        self->sentences[side] = lines->sentence;
        self->bytes[side] = lines->bytes;
        self->line[side] = lines->line;
        self->n_read[side] += has[side];
        if (has[side] && self->n_read[side] == 1 && lines->kind == NM_MARKUP_NONE)
            self->has_returns[side] = memchr(lines->sentence, '\r', lines->bytes) != NULL;
    }
    for (int side = 0; side < self->config->sides; side++)
        if (!has[side])
            NM_TRY(check_line_ends(self, side, err));
    *more = has[0];
    return self->config->sides == 2 && has[0] != has[1] ? fail_unequal(self, err) : NM_OK;
}

static nm_status next_document(nm_pair_input *self, bool *more, nm_error *err)
{
    nm_documents *documents = &self->documents;
    NM_TRY(nm_documents_next(documents, more, err));
    self->sentences[0] = documents->text;
    self->bytes[0] = documents->bytes;
    self->line[0] = documents->line;
    return NM_OK;
}

/* Copies a field. Its newlines are replaced with spaces, except in documents. */
static void set_text(nm_pair_input *self, int side, const char *text, size_t bytes, int64_t line)
{
    nm_buffer *out = &self->texts[side];
    nm_buffer_clear(out);
    nm_buffer_append(out, text, bytes);
    if (!reads_documents(self->config))
        nm_buffer_join_lines(out);
    self->sentences[side] = out->data;
    self->bytes[side] = bytes;
    self->line[side] = line;
}

/* Whether lines end within a row. A quoted field may contain carriage returns, so that the last one
 * decides. */
static bool row_has_returns(const nm_delimited *table)
{
    size_t bytes;
    const char *last = nm_delimited_field(table, table->n_fields - 1, &bytes);
    return table->quotes ? bytes && last[bytes - 1] == '\r'
                         : memchr(table->text.data, '\r', table->text.bytes) != NULL;
}

/* The current row or object is malformed, but the next one can be read. */
static nm_status skippable(nm_pair_input *self, int64_t line, nm_status status)
{
    self->invalid = true;
    for (int side = 0; side < self->config->sides; side++)
        set_text(self, side, "", 0, line);
    return status;
}

static nm_status next_row(nm_pair_input *self, bool *more, nm_error *err)
{
    nm_delimited *table = &self->table;
    bool first = self->columns[0] == SIZE_MAX; /* determines the columns */
    nm_status status = nm_delimited_next(table, more, err);
    if (status == NM_FORMAT && table->complete && !first)
        return skippable(self, table->line, status);
    NM_TRY(status);
    if (!*more)
        return check_line_ends(self, 0, err);
    self->n_read[0]++;
    if (first) {
        self->has_returns[0] = row_has_returns(table);
        bool header;
        NM_TRY(find_columns(self, &header, err));
        self->n_columns = table->n_fields;
        self->described = describe_columns(self, header);
        if (header)
            return next_row(self, more, err);
    }
    /* A separator in a text without quotes moves the columns after it. */
    if (table->n_fields != self->n_columns) {
        status = nm_fail(err, NM_FORMAT, "%s:%lld: %zu field%s, the first row has %zu", self->paths[0],
                         (long long)table->line, table->n_fields, table->n_fields == 1 ? "" : "s",
                         self->n_columns);
        return skippable(self, table->line, status);
    }
    for (int side = 0; side < NM_PAIR_SIDES; side++) {
        size_t bytes;
        const char *text = nm_delimited_field(table, self->columns[side], &bytes);
        set_text(self, side, text, bytes, table->line);
    }
    return NM_OK;
}

/* The field with this name, which may be a path of keys separated by periods ("translation.de"). */
static const json_t *find_field(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *dot = strchr(name, '.');
    if (value || !dot)
        return value;
    NM_AUTO_FREE char *key = nm_format("%.*s", (int)(dot - name), name);
    value = json_object_get(object, key);
    return value ? find_field(value, dot + 1) : NULL;
}

static const char *type_of(const json_t *value)
{
    return json_is_object(value)   ? "an object"
           : json_is_array(value)  ? "an array"
           : json_is_number(value) ? "a number"
                                   : "true, false or null";
}

static nm_status read_field(nm_pair_input *self, json_t *object, int side, nm_error *err)
{
    const char *name = field_name(self->config, side);
    int64_t line = self->lines[0].line;
    const json_t *value = find_field(object, name);
    if (!value && !*self->config->fields[side]) /* as in the datasets of WMT at Hugging Face */
        value = find_field(json_object_get(object, "translation"), name);
    if (json_is_string(value)) {
        set_text(self, side, json_string_value(value), json_string_length(value), line);
        return NM_OK;
    }
    if (value)
        return nm_fail(err, NM_FORMAT, "%s:%lld: the value of field \"%.60s\" is %s, not a text",
                       self->paths[0], (long long)line, name, type_of(value));
    NM_AUTO(nm_buffer_release) nm_buffer list = {0};
    nm_buffer_clear(&list);
    const char *key;
    json_t *other;
    json_object_foreach(object, key, other)
    {
        nm_buffer_append(&list, list.bytes ? ", " : "", list.bytes ? 2 : 0);
        nm_buffer_append(&list, key, strlen(key) < 40 ? strlen(key) : 40);
        if (list.bytes > 200)
            break;
    }
    nm_status status = nm_fail(err, NM_FORMAT, "%s:%lld: no text in field \"%.60s\"; the object has: %s (%s)",
                               self->paths[0], (long long)line, name, list.data,
                               self->config->sides == 1 ? "--source-field names the text"
                                                        : "--source-field and --target-field name the texts");
    return status;
}

static nm_status next_object(nm_pair_input *self, bool *more, nm_error *err)
{
    nm_markup *lines = &self->lines[0];
    do { /* skips empty lines */
        NM_TRY(nm_markup_next(lines, more, err));
    } while (*more && strspn(lines->sentence, " \t") == lines->bytes);
    if (!*more)
        return NM_OK;
    json_error_t why;
    json_auto_t *object = json_loadb(lines->sentence, lines->bytes, JSON_REJECT_DUPLICATES, &why);
    nm_status status = NM_OK;
    if (!json_is_object(object))
        status = nm_fail(err, NM_FORMAT, "%s:%lld: not a JSON object on one line%s%s", self->paths[0],
                         (long long)lines->line, object ? "" : ": ", object ? "" : why.text);
    for (int side = 0; status == NM_OK && side < self->config->sides; side++)
        status = read_field(self, object, side, err);
    bool first = !self->n_read[0]; /* shows whether the fields exist */
    self->n_read[0]++;
    return status == NM_FORMAT && !first ? skippable(self, lines->line, status) : status;
}

nm_status nm_pair_input_next(nm_pair_input *self, bool *more, nm_error *err)
{
    self->invalid = false;
    if (self->format == NM_PAIR_LINES)
        return reads_documents(self->config) ? next_document(self, more, err) : next_lines(self, more, err);
    return self->format == NM_PAIR_JSON ? next_object(self, more, err) : next_row(self, more, err);
}
