/* Options: defaults, presets, INI files with `include =`, settings on the command line, and writing of the configuration.
 * Values of every origin are set by set_row, so that ranges and messages are the same. */
#include "norma/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/edit_distance.h"
#include "base/nearest_option.h"
#include "base/old_options.h"

/* A configuration that is stored in another file (metadata of a model) must not include files. */
enum { MAX_INCLUDE_DEPTH = 8, NO_INCLUDES = MAX_INCLUDE_DEPTH + 1 };

typedef struct section {
    char *name;
    const nm_option *rows;
    const nm_preset *presets;
    char *config;
    size_t config_bytes;
    nm_origin *origins; /* per row */
} section;

struct nm_options {
    section *sections;
    size_t n_sections, sections_capacity;
    const nm_option_rule **rules; /* arrays that end with {0} */
    size_t n_rules, rules_capacity;
    char **texts; /* all text values that have been set; configs point to them */
    size_t n_texts, texts_capacity;
    bool ignore_unknown; /* ignore unregistered sections, in a configuration saved by another command */
    bool saved;          /* read from a saved configuration, which was checked before it was saved */
    const char *only;    /* nm_options_peek: the only option to read; NULL: all options are set */
    char *found;         /* its value */
    const char *profile; /* NAME of the section [profile.NAME] to read; NULL or "": none */
    bool profile_found;
    bool has_sizes;  /* sections [size.N] were found */
    bool only_sizes; /* read sections [size.N] with N >= size only */
    int64_t size;
};

static const char *const origin_names[] = {"default", "preset", "file", "size", "profile", "command line"};

nm_options *nm_options_create(void)
{
    return nm_allocate(sizeof(nm_options));
}

void nm_options_free(nm_options *options)
{
    if (!options)
        return;
    for (size_t i = 0; i < options->n_sections; i++) {
        free(options->sections[i].name);
        free(options->sections[i].config);
        free(options->sections[i].origins);
    }
    for (size_t i = 0; i < options->n_texts; i++)
        free(options->texts[i]);
    free(options->sections);
    free(options->rules);
    free(options->texts);
    free(options);
}

nm_options *nm_options_create_like(const nm_options *options)
{
    nm_options *like = nm_options_create();
    for (size_t i = 0; i < options->n_sections; i++)
        nm_options_add(like, options->sections[i].name, options->sections[i].rows,
                       options->sections[i].presets, options->sections[i].config_bytes);
    for (size_t i = 0; i < options->n_rules; i++)
        nm_options_add_rules(like, options->rules[i]);
    return like;
}

static size_t row_count(const nm_option *rows)
{
    size_t n = 0;
    while (rows && rows[n].name)
        n++;
    return n;
}

static section *find_section(const nm_options *options, const char *name, size_t length)
{
    for (size_t i = 0; i < options->n_sections; i++)
        if (strlen(options->sections[i].name) == length && !strncmp(options->sections[i].name, name, length))
            return &options->sections[i];
    return NULL;
}

static const char *keep_text(nm_options *options, const char *value)
{
    NM_GROW(options->texts, options->n_texts, options->texts_capacity);
    return options->texts[options->n_texts++] = nm_duplicate(value);
}

static nm_status unknown_option(const nm_options *options, const char *path, nm_error *err)
{
    const nm_old_option *old = nm_old_option_find(path, NULL);
    if (old)
        return nm_fail(err, NM_USAGE, "unknown option %s: it has been renamed to %s", path, old->name);
    const char *name = nm_option_name(path);
    const section *found = find_section(options, name, strlen(name));
    char *best = nm_nearest_option(options, path);
    bool close = best && (!strcmp(nm_option_name(best), name) || nm_edit_distance(path, best) <= 1);
    nm_status status;
    if (found && found->rows && found->rows->name && !close)
        status = nm_fail(err, NM_USAGE, "unknown option %.200s: %s is a section of options, such as %s.%s",
                         path, name, name, found->rows->name);
    else if (best)
        status = nm_fail(err, NM_USAGE, "unknown option %.200s; the most similar one is %s", path, best);
    else
        status = nm_fail(err, NM_USAGE, "unknown option %.200s; --help lists the options", path);
    free(best);
    return status;
}

static nm_status parse_bool(const char *path, const char *value, bool *out, nm_error *err)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(value, words[i])) {
            *out = i % 2;
            return NM_OK;
        }
    return nm_fail(err, NM_USAGE, "%s = %.200s: expected true or false", path, value);
}

static nm_status parse_number(const char *path, const nm_option *row, const char *value, void *field,
                              nm_error *err)
{
    char *end;
    errno = 0;
    double number = nm_parse_double(value, &end);
    bool whole = row->kind == NM_INT;
    if (end == value || *end || !isfinite(number) || (whole && number != floor(number)))
        return nm_fail(err, NM_USAGE, "%s = %.200s: expected %s", path, value,
                       whole ? "an integer" : "a number");
    if (number < row->min || number > row->max)
        return nm_fail(err, NM_USAGE, "%s = %.200s: outside %.10g .. %.10g", path, value, row->min, row->max);
    if (whole)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return NM_OK;
}

/* The index of a value among "a|b|c". */
static nm_status find_choice(const char *path, const nm_option *row, const char *value, int *index,
                             nm_error *err)
{
    size_t length = strlen(value);
    *index = 0;
    for (const char *at = row->choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL, ++*index) {
        size_t word = strcspn(at, "|");
        if (word == length && !strncmp(at, value, length))
            return NM_OK;
    }
    return nm_fail(err, NM_USAGE, "%s = %.200s: expected one of %s", path, value, row->choices);
}

/* A configuration is saved as a file, so every text value must be readable from such a file without change. */
static nm_status check_text(const char *path, const char *value, nm_error *err)
{
    size_t length = strlen(value);
    bool survives =
        !length || (!isspace((unsigned char)value[0]) && !isspace((unsigned char)value[length - 1]));
    for (size_t i = 0; i < length; i++)
        if (value[i] == '\n' || value[i] == '\r' ||
            (value[i] == ';' && (!i || isspace((unsigned char)value[i - 1]))))
            survives = false;
    return survives
               ? NM_OK
               : nm_fail(err, NM_USAGE,
                         "%s = %.200s: a value must not contain a newline, start or end with whitespace, "
                         "or contain ; after whitespace",
                         path, value);
}

static nm_status set_row(nm_options *options, section *part, size_t index, const char *value,
                         nm_origin origin, nm_error *err);

static nm_status apply_preset(nm_options *options, section *part, const char *name, nm_error *err)
{
    const nm_preset *preset = part->presets;
    while (preset && preset->name && strcmp(preset->name, name))
        preset++;
    if (!preset || !preset->name)
        return nm_fail(err, NM_USAGE, "%s.preset = %.100s: unknown preset", part->name, name);
    size_t n = row_count(part->rows);
    /* Undo the settings of a preset that was chosen before. */
    for (size_t i = 0; i < n; i++)
        if (part->origins[i] == NM_ORIGIN_PRESET) {
            part->origins[i] = NM_ORIGIN_DEFAULT;
            NM_TRY(set_row(options, part, i, part->rows[i].initial, NM_ORIGIN_DEFAULT, err));
        }
    char *copy = nm_duplicate(preset->settings), *rest = copy;
    nm_status status = NM_OK;
    for (char *word; status == NM_OK && (word = strsep(&rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = 0;
        size_t i = 0;
        while (i < n && strcmp(part->rows[i].name, word))
            i++;
        NM_ASSERT(i < n);
        status = set_row(options, part, i, equals + 1, NM_ORIGIN_PRESET, err);
    }
    free(copy);
    return status;
}

static nm_status set_row(nm_options *options, section *part, size_t index, const char *value,
                         nm_origin origin, nm_error *err)
{
    const nm_option *row = &part->rows[index];
    if (origin < part->origins[index])
        return NM_OK;
    void *field = part->config + row->offset;
    char path[160];
    snprintf(path, sizeof path, "%s.%s", part->name, row->name);
    int choice = 0;
    if (row->choices)
        NM_TRY(find_choice(path, row, value, &choice, err));
    if (row->kind == NM_BOOL) {
        NM_TRY(parse_bool(path, value, field, err));
    } else if (row->kind == NM_ENUM) {
        *(int *)field = choice;
    } else if (row->kind == NM_TEXT) {
        NM_TRY(check_text(path, value, err));
        *(const char **)field = keep_text(options, value);
    } else {
        NM_TRY(parse_number(path, row, value, field, err));
    }
    part->origins[index] = origin;
    if (!strcmp(row->name, "preset") && part->presets && *value)
        NM_TRY(apply_preset(options, part, value, err));
    return NM_OK;
}

void *nm_options_add(nm_options *options, const char *name, const nm_option *rows, const nm_preset *presets,
                     size_t config_size)
{
    NM_ASSERT(!find_section(options, name, strlen(name)));
    NM_GROW(options->sections, options->n_sections, options->sections_capacity);
    section *part = &options->sections[options->n_sections++];
    size_t n = row_count(rows);
    *part = (section){nm_duplicate(name),       rows,        presets,
                      nm_allocate(config_size), config_size, nm_allocate(n * sizeof(nm_origin))};
    nm_error err = {0};
    for (size_t i = 0; i < n; i++)
        if (set_row(options, part, i, rows[i].initial, NM_ORIGIN_DEFAULT, &err) != NM_OK)
            nm_panic(rows[i].name, 0, err.text);
    return part->config;
}

void *nm_options_find(const nm_options *options, const char *name)
{
    section *part = find_section(options, name, strlen(name));
    return part ? part->config : NULL;
}

static bool find_row(const nm_options *options, const char *path, section **part, size_t *index)
{
    const char *dot = strrchr(path, '.');
    if (!dot || !(*part = find_section(options, path, (size_t)(dot - path))))
        return false;
    size_t n = row_count((*part)->rows);
    for (*index = 0; *index < n; ++*index)
        if (!strcmp((*part)->rows[*index].name, dot + 1))
            return true;
    return false;
}

nm_status nm_options_set(nm_options *options, const char *path, const char *value, nm_origin origin,
                         nm_error *err)
{
    section *part;
    size_t index;
    if (!find_row(options, path, &part, &index))
        return unknown_option(options, path, err);
    return set_row(options, part, index, value, origin, err);
}

char *nm_options_path(const nm_options *options, size_t index)
{
    for (size_t s = 0; s < options->n_sections; s++) {
        size_t n = row_count(options->sections[s].rows);
        if (index < n)
            return nm_format("%s.%s", options->sections[s].name, options->sections[s].rows[index].name);
        index -= n;
    }
    return NULL;
}

nm_origin nm_options_origin(const nm_options *options, const char *path)
{
    section *part;
    size_t index;
    return find_row(options, path, &part, &index) ? part->origins[index] : NM_ORIGIN_DEFAULT;
}

const nm_option *nm_options_row(const nm_options *options, const char *path)
{
    section *part;
    size_t index;
    return find_row(options, path, &part, &index) ? &part->rows[index] : NULL;
}

static char *row_value(const section *part, size_t index)
{
    const nm_option *row = &part->rows[index];
    const void *field = part->config + row->offset;
    switch (row->kind) {
    case NM_BOOL:
        return nm_format("%s", *(const bool *)field ? "true" : "false");
    case NM_INT:
        return nm_format("%lld", (long long)*(const int64_t *)field);
    case NM_REAL:
        for (int digits = 6; digits < 18; digits++) {
            char *text = nm_format("%.*g", digits, *(const double *)field);
            if (nm_parse_double(text, NULL) == *(const double *)field || digits == 17)
                return text;
            free(text);
        }
        break;
    case NM_ENUM: {
        const char *at = row->choices;
        for (int i = *(const int *)field; i > 0; i--)
            at = strchr(at, '|') + 1;
        return nm_format("%.*s", (int)strcspn(at, "|"), at);
    }
    case NM_TEXT:
        return nm_format("%s", *(const char *const *)field);
    }
    return nm_format("%s", "");
}

char *nm_options_get(const nm_options *options, const char *path)
{
    section *part;
    size_t index;
    return find_row(options, path, &part, &index) ? row_value(part, index) : NULL;
}

/* ---- options without effect ---- */

void nm_options_add_rules(nm_options *options, const nm_option_rule *rules)
{
    NM_GROW(options->rules, options->n_rules, options->rules_capacity);
    options->rules[options->n_rules++] = rules;
}

static bool is_listed(const char *values, const char *value)
{
    size_t length = strlen(value);
    for (const char *at = values; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strcspn(at, "|") == length && !strncmp(at, value, length))
            return true;
    return false;
}

static bool turns_off(const char *value)
{
    char *end;
    return is_listed("false|none|", value) || (nm_parse_double(value, &end) == 0 && !*end);
}

static bool rule_has_effect(const nm_options *options, const nm_option_rule *rule)
{
    if (rule->applies)
        return rule->applies(options);
    char *value = nm_options_get(options, rule->condition);
    bool has_effect = true;
    if (value && !strcmp(rule->values, "!"))
        has_effect = !turns_off(value);
    else if (value)
        has_effect =
            *rule->values == '!' ? !is_listed(rule->values + 1, value) : is_listed(rule->values, value);
    free(value);
    return has_effect;
}

static bool is_default(const nm_option *row, const char *value)
{
    bool number = row->kind == NM_INT || row->kind == NM_REAL;
    return number ? nm_parse_double(value, NULL) == nm_parse_double(row->initial, NULL)
                  : !strcmp(value, row->initial);
}

/* "with optim.name = adam: only SGD uses momentum" */
static char *rule_reason(const nm_options *options, const nm_option_rule *rule)
{
    char *value = rule->condition ? nm_options_get(options, rule->condition) : NULL;
    char *text = value ? nm_format("with %s = %s: %s", rule->condition, value, rule->reason)
                       : nm_format("here: %s", rule->reason);
    free(value);
    return text;
}

static nm_status check_rule(const nm_options *options, const nm_option_rule *rule, char **warning,
                            nm_error *err)
{
    section *part;
    size_t index;
    if (!find_row(options, rule->option, &part, &index) || part->origins[index] == NM_ORIGIN_DEFAULT)
        return NM_OK;
    char *value = row_value(part, index);
    bool changed = part->origins[index] == NM_ORIGIN_COMMAND || !is_default(&part->rows[index], value);
    nm_status status = NM_OK;
    if (changed && !turns_off(value) && !rule_has_effect(options, rule)) {
        char *reason = rule_reason(options, rule);
        if (part->origins[index] == NM_ORIGIN_COMMAND) {
            status = nm_fail(err, NM_USAGE, "%s = %.100s has no effect %s", rule->option, value, reason);
        } else if (!options->saved) {
            char *longer =
                *warning ? nm_format("%s; %s = %s has no effect %s", *warning, rule->option, value, reason)
                         : nm_format("%s = %s has no effect %s", rule->option, value, reason);
            free(*warning);
            *warning = longer;
        }
        free(reason);
    }
    free(value);
    return status;
}

nm_status nm_options_check(const nm_options *options, char **warning, nm_error *err)
{
    nm_status status = NM_OK;
    *warning = NULL;
    for (size_t i = 0; i < options->n_rules; i++)
        for (const nm_option_rule *rule = options->rules[i]; rule->option && status == NM_OK; rule++)
            status = check_rule(options, rule, warning, err);
    if (status != NM_OK) {
        free(*warning);
        *warning = NULL;
    }
    return status;
}

void nm_options_write_like(const nm_options *options, const nm_options *like, FILE *out)
{
    bool first = true;
    for (size_t s = 0; s < options->n_sections; s++) {
        const section *part = &options->sections[s];
        if (!find_section(like, part->name, strlen(part->name)))
            continue;
        fprintf(out, "%s[%s]\n", first ? "" : "\n", part->name);
        first = false;
        for (size_t i = 0; part->rows && part->rows[i].name; i++) {
            char *value = row_value(part, i);
            fprintf(out, "%s = %s ; %s\n", part->rows[i].name, value, origin_names[part->origins[i]]);
            free(value);
        }
    }
}

void nm_options_write(const nm_options *options, FILE *out)
{
    nm_options_write_like(options, options, out);
}

bool nm_options_section(const nm_options *options, size_t index, const char **name, const nm_option **rows,
                        const nm_preset **presets)
{
    if (index >= options->n_sections)
        return false;
    *name = options->sections[index].name;
    *rows = options->sections[index].rows;
    *presets = options->sections[index].presets;
    return true;
}

/* ---- INI files. inih is not used because it limits lines to 200 bytes; paths can be longer. ---- */

static nm_status read_text(nm_options *options, const char *path, const char *text, int depth, nm_error *err);

static nm_status read_file(nm_options *options, const char *path, int depth, nm_error *err)
{
    if (depth > MAX_INCLUDE_DEPTH)
        return nm_fail(err, NM_USAGE, "%s: included files are nested more than %d levels deep", path,
                       MAX_INCLUDE_DEPTH);
    char *text;
    size_t bytes;
    NM_TRY(nm_file_read(path, &text, &bytes, err));
    /* byte order mark of Windows editors */
    const char *start = strncmp(text, "\xEF\xBB\xBF", 3) ? text : text + 3;
    nm_status status = strlen(text) == bytes ? read_text(options, path, start, depth, err)
                                             : nm_fail(err, NM_FORMAT, "%s: contains a zero byte", path);
    free(text);
    return status;
}

static nm_status include_file(nm_options *options, const char *path, const char *value, int depth,
                              nm_error *err)
{
    if (depth == NO_INCLUDES)
        return nm_fail(err, NM_FORMAT, "include = %.200s is not allowed here", value);
    const char *slash = strrchr(path, '/');
    char *other = value[0] == '/' || !slash ? nm_duplicate(value)
                                            : nm_format("%.*s%s", (int)(slash - path + 1), path, value);
    nm_status status = read_file(options, other, depth + 1, err);
    free(other);
    return status;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}

/* A comment starts with # or ; at the start of a line, or with ; after whitespace. */
static void cut_comment(char *line)
{
    for (char *at = line; *at; at++)
        if (*at == ';' && (at == line || isspace((unsigned char)at[-1])))
            *at = 0;
    if (*line == '#')
        *line = 0;
}

/* The origin that nm_options_write appended to the line, such as " ; command line". Saved values of defaults and presets have
 * the origin file, so that they take precedence over the presets of this version. */
static nm_origin saved_origin(const char *line)
{
    const char *comment = NULL;
    for (const char *at = line; (at = strstr(at, " ; ")) != NULL; at += 3)
        comment = at + 3;
    nm_origin origin = NM_ORIGIN_FILE;
    for (int i = NM_ORIGIN_FILE; comment && i <= NM_ORIGIN_COMMAND; i++)
        if (!strcmp(comment, origin_names[i]))
            origin = (nm_origin)i;
    return origin;
}

/* Whether the settings of a section apply. *origin is set for profiles and sizes and otherwise unchanged. */
static nm_status section_applies(nm_options *options, const char *part, bool *applies, nm_origin *origin,
                                 nm_error *err)
{
    bool profile = part && !strncmp(part, "profile.", 8), size = part && !strncmp(part, "size.", 5);
    *applies = options->only_sizes == size;
    if (profile) {
        *applies = *applies && options->profile && !strcmp(part + 8, options->profile);
        options->profile_found |= *applies;
        *origin = NM_ORIGIN_PROFILE;
    } else if (size) {
        char *end;
        long long most = strtoll(part + 5, &end, 10);
        if (most <= 0 || *end)
            return nm_fail(err, NM_FORMAT, "[%.100s]: expected [size.N] with a positive number N", part);
        *applies = *applies && options->size <= most;
        options->has_sizes = true;
        *origin = NM_ORIGIN_SIZE;
    }
    return NM_OK;
}

static nm_status read_line(nm_options *options, const char *path, char *line, char **part, int depth,
                           nm_error *err)
{
    line = trim(line);
    nm_origin origin = options->ignore_unknown ? saved_origin(line) : NM_ORIGIN_FILE;
    cut_comment(line);
    line = trim(line);
    size_t length = strlen(line);
    if (!length)
        return NM_OK;
    if (line[0] == '[' && line[length - 1] == ']') {
        line[length - 1] = 0;
        free(*part);
        *part = nm_duplicate(trim(line + 1));
        return NM_OK;
    }
    char *equals = strchr(line, '=');
    if (!equals)
        return nm_fail(err, NM_FORMAT, "expected [section] or name = value");
    *equals = 0;
    const char *name = trim(line), *value = trim(equals + 1);
    if (!*part && !strcmp(name, "include"))
        return include_file(options, path, value, depth, err);
    if (options->ignore_unknown && *part && !find_section(options, *part, strlen(*part)))
        return NM_OK;
    bool applies;
    nm_origin own = NM_ORIGIN_DEFAULT;
    NM_TRY(section_applies(options, *part, &applies, &own, err));
    if (!applies)
        return NM_OK;
    char *full = *part && !own ? nm_format("%s.%s", *part, name) : nm_duplicate(name);
    const nm_old_option *old = nm_old_option_find(full, value);
    if (old) {
        free(full);
        full = nm_duplicate(old->name);
        value = old->value ? old->value : value;
    }
    nm_status status = NM_OK;
    if (!options->only) {
        status = nm_options_set(options, full, value, own ? own : origin, err);
    } else if (!strcmp(full, options->only)) {
        free(options->found);
        options->found = nm_duplicate(value);
    }
    free(full);
    return status;
}

static nm_status read_text(nm_options *options, const char *path, const char *text, int depth, nm_error *err)
{
    char *copy = nm_duplicate(text), *rest = copy, *part = NULL;
    nm_status status = NM_OK;
    int number = 0;
    for (char *line; status == NM_OK && (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        status = read_line(options, path, line, &part, depth, err);
        if (status != NM_OK)
            nm_error_prefix(err, "%s:%d", path, number);
    }
    free(part);
    free(copy);
    return status;
}

nm_status nm_options_read(nm_options *options, const char *path, nm_error *err)
{
    return read_file(options, path, 0, err);
}

nm_status nm_options_read_profile(nm_options *options, const char *path, const char *profile, nm_error *err)
{
    options->profile = profile;
    options->profile_found = false;
    nm_status status = read_file(options, path, 0, err);
    options->profile = NULL;
    if (status == NM_OK && *profile && !options->profile_found)
        return nm_fail(err, NM_USAGE, "%s: there is no profile %.100s (section [profile.%.100s])", path,
                       profile, profile);
    return status;
}

bool nm_options_has_sizes(const nm_options *options)
{
    return options->has_sizes;
}

nm_status nm_options_read_sizes(nm_options *options, const char *name, const char *text, int64_t size,
                                nm_error *err)
{
    options->only_sizes = true;
    options->size = size;
    nm_status status =
        text ? read_text(options, name, text, NO_INCLUDES, err) : read_file(options, name, 0, err);
    options->only_sizes = false;
    return status;
}

nm_status nm_options_peek(const char *path, const char *option, char **value, nm_error *err)
{
    nm_options options = {.only = option};
    nm_status status = read_file(&options, path, 0, err);
    *value = options.found;
    return status;
}

nm_status nm_options_read_text(nm_options *options, const char *name, const char *text, nm_error *err)
{
    return read_text(options, name, text, NO_INCLUDES, err);
}

nm_status nm_options_read_saved(nm_options *options, const char *name, const char *text, nm_error *err)
{
    options->ignore_unknown = true;
    nm_status status = read_text(options, name, text, NO_INCLUDES, err);
    options->ignore_unknown = false;
    options->saved = true;
    return status;
}
