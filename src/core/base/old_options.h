/* Option names of earlier versions, which occur in saved runs and older recipes. */
#pragma once

typedef struct nm_old_option {
    const char *old_name, *name; /* "section.option" */
    /* the row applies to this value only and replaces it; NULL: to all values, which are kept */
    const char *old_value, *value;
    /* why there is no such option any more; the value that has no effect is old_value (NULL: any). NULL:
     * renamed */
    const char *removed;
} nm_old_option;

/* The first row with this old name that applies to the value (NULL: to any), or NULL. */
const nm_old_option *nm_old_option_find(const char *path, const char *value);
