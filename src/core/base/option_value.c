#include "base/option_value.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/c_locale.h"
#include "base/memory.h"

bool nm_bool_parse(const char *text, bool *value)
{
    static const char *const words[] = {"false", "true", "no", "yes", "0", "1", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(text, words[i])) {
            *value = i % 2;
            return true;
        }
    return false;
}

int nm_choice_index(const char *choices, const char *value)
{
    size_t length = strlen(value);
    int index = 0;
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL, index++)
        if (strcspn(at, "|") == length && !strncmp(at, value, length))
            return index;
    return -1;
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

nm_status nm_option_value_parse(const char *path, const nm_option *row, const char *value, void *field,
                                nm_error *err)
{
    int choice = row->choices ? nm_choice_index(row->choices, value) : 0;
    if (choice < 0)
        return nm_fail(err, NM_USAGE, "%s = %.200s: expected one of %s", path, value, row->choices);
    switch (row->kind) {
    case NM_BOOL:
        if (!nm_bool_parse(value, field))
            return nm_fail(err, NM_USAGE, "%s = %.200s: expected true or false", path, value);
        break;
    case NM_INT:
    case NM_REAL:
        return parse_number(path, row, value, field, err);
    case NM_TEXT:
        *(const char **)field = value;
        break;
    case NM_ENUM:
        *(int *)field = choice;
        break;
    }
    return NM_OK;
}

nm_status nm_option_value_check_text(const char *path, const char *value, nm_error *err)
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

char *nm_option_value_format(const nm_option *row, const void *field)
{
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

bool nm_option_value_is_default(const nm_option *row, const char *value)
{
    bool number = row->kind == NM_INT || row->kind == NM_REAL;
    return number ? nm_parse_double(value, NULL) == nm_parse_double(row->initial, NULL)
                  : !strcmp(value, row->initial);
}

bool nm_option_value_is_off(const char *value)
{
    char *end;
    return nm_choice_index("false|none|", value) >= 0 || (nm_parse_double(value, &end) == 0 && !*end);
}

char *nm_option_path(const nm_options *options, const char *sections, const char *name)
{
    if (strchr(name, '.'))
        return nm_duplicate(name);
    for (const char *at = sections; *at;) {
        int length = (int)strcspn(at, ",");
        char *path = nm_format("%.*s.%s", length, at, name);
        if (nm_options_row(options, path))
            return path;
        free(path);
        at += length + (at[length] == ',');
    }
    return nm_format("%.*s.%s", (int)strcspn(sections, ","), sections, name);
}
