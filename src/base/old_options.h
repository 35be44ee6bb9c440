/* Option names of earlier versions, which saved runs and older recipes contain. */
#ifndef NM_OLD_OPTIONS_H
#define NM_OLD_OPTIONS_H

/* With values, the option is renamed only where it has old_value. */
typedef struct nm_old_option {
    const char *old_name, *name;
    const char *old_value, *value; /* or NULL */
} nm_old_option;

/* The row for an old name, "section.option"; of several the first whose old value is `value`, or any for NULL. NULL: none. */
const nm_old_option *nm_old_option_find(const char *path, const char *value);

#endif
