#include "api/option_values.h"

#include <string.h>

#include "base/memory.h"

void nm_option_values_list(nm_option_values *values, const nm_options *options)
{
    char *path;
    for (size_t i = 0; (path = nm_options_path(options, i)); i++) {
        NM_RESERVE(values->list, values->n + 2, values->capacity);
        values->list[values->n++] = path;
        values->list[values->n++] = nm_options_get(options, path);
    }
}

const char *nm_option_values_find(const nm_option_values *values, const char *name)
{
    for (size_t i = 0; name && i < values->n; i += 2)
        if (!strcmp(values->list[i], name))
            return values->list[i + 1];
    return NULL;
}

void nm_option_values_release(nm_option_values *values)
{
    nm_free_list(values->list, values->n);
    *values = (nm_option_values){0};
}
