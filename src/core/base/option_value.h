/* Values and names of single options as text. path: "section.key", for messages. */
#pragma once

#include "norma/option.h"

/* false|true, no|yes, 0|1 and off|on, in upper or lower case. False: the text is none of these. */
bool nm_bool_parse(const char *text, bool *value);
/* The index of a value among "a|b|c", or -1. choices NULL: none. */
int nm_choice_index(const char *choices, const char *value);

/* Writes the value to the field of the row. A text is not copied. NM_USAGE: not of the type, range or choices
 * of the row; the field is unchanged. */
nm_status nm_option_value_parse(const char *path, const nm_option *row, const char *value, void *field,
                                nm_error *err);
/* NM_USAGE unless a text that is saved would be read from the file without change. */
nm_status nm_option_value_check_text(const char *path, const char *value, nm_error *err);
/* The value of the field as text, heap: a number with as few digits as identify it. */
char *nm_option_value_format(const nm_option *row, const void *field);
/* Whether the value is the default of the row. */
bool nm_option_value_is_default(const nm_option *row, const char *value);
/* Whether the value turns an option off: 0, false, none or empty. */
bool nm_option_value_is_off(const char *value);

/* The full name of an option, heap. A name without a section belongs to the first of the sections
 * (comma-separated) that has such an option, or to the first section if none has. */
char *nm_option_path(const nm_options *options, const char *sections, const char *name);
