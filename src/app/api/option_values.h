/* A constant copy of the values of all options as text, which concurrent calls can read. */
#pragma once

#include "norma/option.h"

typedef struct nm_option_values {
    char **list; /* [n], alternating "section.key" and value */
    size_t n, capacity;
} nm_option_values;

/* Fills the table, which must be {0}. */
void nm_option_values_list(nm_option_values *values, const nm_options *options);
/* The value of an option, valid as long as the table; NULL if there is no such option or name is NULL. */
const char *nm_option_values_find(const nm_option_values *values, const char *name);
void nm_option_values_release(nm_option_values *values);
