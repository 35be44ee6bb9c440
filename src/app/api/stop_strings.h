/* The stop strings of generated texts, before which a text ends. */
#pragma once

#include "norma/option.h"

typedef struct nm_stop_strings {
    char **list; /* [n], heap, none is empty */
    size_t n, capacity;
    size_t longest; /* in bytes */
} nm_stop_strings;

/* Appends the values of an option ("sample.stop") in alternating names and values that end with NULL (NULL:
 * none). sections: of names without a section, see nm_option_path. NM_USAGE with the option for a value that
 * is not UTF-8. Release in every case. */
nm_status nm_stop_strings_read(nm_stop_strings *strings, const nm_options *options, const char *sections,
                               const char *option, const char *const *settings, nm_error *err);
/* The first occurrence of any of the strings, or NULL. */
char *nm_stop_strings_find(const nm_stop_strings *strings, char *text);
void nm_stop_strings_release(nm_stop_strings *strings);
