#include "base/json.h"

#include <stdarg.h>

json_t *nm_json_list(size_t n, json_t *(*make)(const void *user, size_t i), const void *user)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *item = make(user, i);
        if (item)
            json_array_append_new(list, item);
    }
    return list;
}

static json_t *number_at(const void *values, size_t i)
{
    return nm_json_number(((const double *)values)[i]);
}

json_t *nm_json_numbers(const double *values, size_t n)
{
    return nm_json_list(values ? n : 0, number_at, values);
}

static json_t *count_at(const void *counts, size_t i)
{
    return json_integer(((const int64_t *)counts)[i]);
}

json_t *nm_json_counts(const int64_t *counts, size_t n)
{
    return nm_json_list(n, count_at, counts);
}

static json_t *text_at(const void *texts, size_t i)
{
    return json_string(((const char *const *)texts)[i]);
}

json_t *nm_json_texts(const char *const *texts, size_t n)
{
    return nm_json_list(n, text_at, texts);
}

void nm_json_add(json_t *object, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    json_t *members = json_vpack_ex(NULL, 0, format, arguments);
    va_end(arguments);
    json_object_update_new(object, members);
}

void nm_json_print(json_t *value, size_t flags, FILE *out)
{
    json_dumpf(value, out, flags | JSON_PRESERVE_ORDER);
    putc('\n', out);
    json_decref(value);
}
