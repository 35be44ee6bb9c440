/* The values of all options as text: a table, so that concurrent calls can read it. */
#ifndef NM_OPTION_VALUES_H
#define NM_OPTION_VALUES_H

#include "norma/option.h"

typedef struct nm_option_values {
    char **list; /* "section.key", value, in turn */
    size_t n, capacity;
} nm_option_values;

void nm_option_values_list(nm_option_values *values, const nm_options *options);
/* NULL: no option has this name, or it is NULL. */
const char *nm_option_values_find(const nm_option_values *values, const char *name);
void nm_option_values_release(nm_option_values *values);

#endif
