/* Options: defaults, presets, INI files with `include =`, settings on the command line, and writing of the configuration.
 * Values of every origin are set by set_row, so that ranges and messages are the same. */
#include "norma/option.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/ini_file.h"
#include "base/memory.h"
#include "base/edit_distance.h"
#include "base/nearest_option.h"
#include "base/old_options.h"

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
    bool saved;     /* read from a saved configuration, which was checked before it was saved */
    bool has_sizes; /* sections [size.N] were found */
    bool any_text;  /* nm_options_accept_any_text */
};

static const char *const origin_names[] = {"default", "preset", "file",        "size",
                                           "profile", "tune",   "command line"};

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

void nm_options_accept_any_text(nm_options *options)
{
    options->any_text = true;
}

/* A text value that is saved must be readable from the file without change. */
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

/* The preset of a section, or NULL. */
static const nm_preset *find_preset(const section *part, const char *name)
{
    for (const nm_preset *preset = part->presets; preset && preset->name; preset++)
        if (!strcmp(preset->name, name))
            return preset;
    return NULL;
}

/* The next setting "NAME=VALUE" of a preset, from a copy of its list: the index of the row, and *value; false at the end. */
static bool next_setting(const section *part, char **rest, size_t *index, const char **value)
{
    for (char *word; (word = strsep(rest, " ")) != NULL;) {
        char *equals = strchr(word, '=');
        if (!equals)
            continue;
        *equals = 0;
        *value = equals + 1;
        for (*index = 0; part->rows[*index].name && strcmp(part->rows[*index].name, word);)
            ++*index;
        NM_ASSERT(part->rows[*index].name);
        return true;
    }
    return false;
}

static nm_status apply_preset(nm_options *options, section *part, const char *name, nm_error *err)
{
    const nm_preset *preset = find_preset(part, name);
    if (!preset)
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
    const char *value;
    for (size_t i; status == NM_OK && next_setting(part, &rest, &i, &value);)
        status = set_row(options, part, i, value, NM_ORIGIN_PRESET, err);
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
        if (!options->any_text)
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

/* Appends to a list of warnings; takes ownership of text. */
static void add_warning(char **warning, char *text)
{
    char *longer = *warning ? nm_format("%s; %s", *warning, text) : nm_duplicate(text);
    free(*warning);
    free(text);
    *warning = longer;
}

/* Appends "NAME = VALUE" to a comma-separated list, heap or NULL. */
static void add_setting(char **list, const section *part, const char *name, const char *value)
{
    char *longer =
        nm_format("%s%s%s.%s = %s", *list ? *list : "", *list ? ", " : "", part->name, name, value);
    free(*list);
    *list = longer;
}

/* Settings of a preset from the command line that a recipe overrides: a preset is weaker than the settings of files. */
static void warn_of_preset(const section *part, char **warning)
{
    size_t n = row_count(part->rows), at = 0;
    while (at < n && strcmp(part->rows[at].name, "preset"))
        at++;
    if (!part->presets || at == n || part->origins[at] != NM_ORIGIN_COMMAND)
        return;
    char *name = row_value(part, at), *replaced = NULL;
    const nm_preset *preset = find_preset(part, name);
    char *copy = nm_duplicate(preset ? preset->settings : ""), *rest = copy;
    const char *of_preset;
    for (size_t i; next_setting(part, &rest, &i, &of_preset);) {
        char *value = row_value(part, i);
        if (part->origins[i] == NM_ORIGIN_FILE && strcmp(value, of_preset))
            add_setting(&replaced, part, part->rows[i].name, value);
        free(value);
    }
    if (replaced)
        add_warning(warning, nm_format("the recipe's settings %s replace those of %s.preset = %s", replaced,
                                       part->name, name));
    free(replaced);
    free(copy);
    free(name);
}

/* "line" (documents) and "keep" (punctuation) leave the text as it is. */
static bool changes_nothing(const nm_option *row, const char *value)
{
    return turns_off(value) || (row->kind == NM_ENUM && is_listed("line|keep", value));
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
    if (changed && !changes_nothing(&part->rows[index], value) && !rule_has_effect(options, rule)) {
        char *reason = rule_reason(options, rule);
        if (part->origins[index] == NM_ORIGIN_COMMAND) {
            status = nm_fail(err, NM_USAGE, "%s = %.100s has no effect %s", rule->option, value, reason);
        } else if (!options->saved) {
            add_warning(warning, nm_format("%s = %s has no effect %s", rule->option, value, reason));
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
    for (size_t s = 0; s < options->n_sections && !options->saved; s++)
        warn_of_preset(&options->sections[s], warning);
    if (status != NM_OK) {
        free(*warning);
        *warning = NULL;
    }
    return status;
}

/* The sections that `like` has, too. */
static void write_sections(const nm_options *options, const nm_options *like, bool origins, FILE *out)
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
            fprintf(out, "%s = %s", part->rows[i].name, value);
            if (origins)
                fprintf(out, " ; %s", origin_names[part->origins[i]]);
            fputc('\n', out);
            free(value);
        }
    }
}

void nm_options_write(const nm_options *options, FILE *out)
{
    write_sections(options, options, true, out);
}

void nm_options_write_like(const nm_options *options, const nm_options *like, FILE *out)
{
    write_sections(options, like, true, out);
}

void nm_options_write_values(const nm_options *options, const nm_options *like, FILE *out)
{
    write_sections(options, like, false, out);
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

/* ---- INI files ---- */

/* Sections of an INI file by the runs to which they apply. */
typedef enum section_kind {
    PLAIN_SECTIONS, /* all runs; profiles are among them */
    SIZE_SECTIONS,  /* [size.N] */
    TUNE_SECTION    /* [tune] */
} section_kind;

/* What a reading function does with the settings. */
typedef struct reading {
    nm_options *options;
    bool saved;          /* a configuration that nm_options_write wrote, possibly for another command */
    section_kind kind;   /* read only these sections */
    int64_t size;        /* of the training data, for SIZE_SECTIONS */
    const char *profile; /* NAME of the section [profile.NAME] to read; NULL or "": none */
    bool profile_found, sizes_found;
    const char *only; /* nm_options_peek: the only option to read; NULL: all options are set */
    char *found;      /* its value */
} reading;

/* The origin that nm_options_write appended to the line as a comment. Saved values of defaults and presets have the origin file,
 * so that they take precedence over the presets of this version. */
static nm_origin saved_origin(const char *comment)
{
    for (int i = NM_ORIGIN_FILE; comment && i <= NM_ORIGIN_COMMAND; i++)
        if (!strcmp(comment, origin_names[i]))
            return (nm_origin)i;
    return NM_ORIGIN_FILE;
}

/* Whether the settings of a section apply. *origin is set for sections that hold full names, and otherwise unchanged. */
static nm_status section_applies(reading *self, const char *part, bool *applies, nm_origin *origin,
                                 nm_error *err)
{
    bool profile = part && !strncmp(part, "profile.", 8), size = part && !strncmp(part, "size.", 5);
    bool tune = part && !strcmp(part, "tune");
    *applies = self->kind == (size ? SIZE_SECTIONS : tune ? TUNE_SECTION : PLAIN_SECTIONS);
    if (profile) {
        *applies = *applies && self->profile && !strcmp(part + 8, self->profile);
        self->profile_found |= *applies;
        *origin = NM_ORIGIN_PROFILE;
    } else if (size) {
        char *end;
        long long most = strtoll(part + 5, &end, 10);
        if (most <= 0 || *end)
            return nm_fail(err, NM_FORMAT, "[%.100s]: expected [size.N] with a positive number N", part);
        *applies = *applies && self->size <= most;
        self->sizes_found = true;
        *origin = NM_ORIGIN_SIZE;
    } else if (tune) {
        *origin = NM_ORIGIN_TUNE;
    }
    return NM_OK;
}

/* path, value: the option, with its present name and value. */
static nm_status apply(reading *self, const char *path, const char *value, nm_origin origin, nm_error *err)
{
    if (!self->only)
        return nm_options_set(self->options, path, value, origin, err);
    if (!strcmp(path, self->only)) {
        free(self->found);
        self->found = nm_duplicate(value);
    }
    return NM_OK;
}

static nm_status read_setting(void *user, const nm_ini_setting *setting, nm_error *err)
{
    reading *self = user;
    const char *part = setting->section;
    if (self->saved && part && !find_section(self->options, part, strlen(part)))
        return NM_OK;
    bool applies;
    nm_origin own = NM_ORIGIN_DEFAULT;
    NM_TRY(section_applies(self, part, &applies, &own, err));
    if (!applies)
        return NM_OK;
    char *path = part && !own ? nm_format("%s.%s", part, setting->name) : nm_duplicate(setting->name);
    const nm_old_option *old = nm_old_option_find(path, setting->value);
    nm_origin origin = own ? own : self->saved ? saved_origin(setting->comment) : NM_ORIGIN_FILE;
    nm_status status =
        apply(self, old ? old->name : path, old && old->value ? old->value : setting->value, origin, err);
    free(path);
    return status;
}

/* Reads the text or, if text is NULL, the file of this name. */
static nm_status read_settings(reading *self, const char *name, const char *text, nm_error *err)
{
    nm_status status = text ? nm_ini_read_text(name, text, read_setting, self, err)
                            : nm_ini_read_file(name, read_setting, self, err);
    if (self->options)
        self->options->has_sizes |= self->sizes_found;
    return status;
}

nm_status nm_options_read(nm_options *options, const char *path, nm_error *err)
{
    reading self = {.options = options};
    return read_settings(&self, path, NULL, err);
}

nm_status nm_options_read_profile(nm_options *options, const char *path, const char *profile, nm_error *err)
{
    reading self = {.options = options, .profile = profile};
    NM_TRY(read_settings(&self, path, NULL, err));
    if (*profile && !self.profile_found)
        return nm_fail(err, NM_USAGE, "%s: there is no profile %.100s (section [profile.%.100s])", path,
                       profile, profile);
    return NM_OK;
}

bool nm_options_has_sizes(const nm_options *options)
{
    return options->has_sizes;
}

nm_status nm_options_read_sizes(nm_options *options, const char *name, const char *text, int64_t size,
                                nm_error *err)
{
    reading self = {.options = options, .kind = SIZE_SECTIONS, .size = size};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_read_tune(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options, .kind = TUNE_SECTION};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_peek(const char *path, const char *option, char **value, nm_error *err)
{
    reading self = {.only = option};
    nm_status status = read_settings(&self, path, NULL, err);
    *value = self.found;
    return status;
}

nm_status nm_options_read_text(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options};
    return read_settings(&self, name, text, err);
}

nm_status nm_options_read_saved(nm_options *options, const char *name, const char *text, nm_error *err)
{
    reading self = {.options = options, .saved = true};
    options->saved = true;
    return read_settings(&self, name, text, err);
}
