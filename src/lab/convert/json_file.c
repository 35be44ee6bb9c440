#include "convert/json_file.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

nm_status nm_json_write(json_t *value, const char *folder, const char *name, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, name);
    NM_AUTO_FREE char *text =
        value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_PRESERVE_ORDER) : NULL;
    nm_status status = text ? nm_file_write(path, text, strlen(text), err)
                            : nm_fail(err, NM_USAGE, "%s: a text is not UTF-8", path);
    json_decref(value);
    return status;
}

nm_status nm_json_read(json_t **value, const char *path, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes = 0;
    json_error_t problem;
    *value = NULL;
    nm_status status = nm_file_read_text(path, &text, &bytes, err);
    if (status == NM_OK) {
        *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
        if (!*value)
            status = nm_fail(err, NM_FORMAT, "%s:%d: %s", path, problem.line, problem.text);
        else if (!json_is_object(*value))
            status = nm_fail(err, NM_FORMAT, "%s: not a JSON object", path);
    }
    if (status != NM_OK) {
        json_decref(*value);
        *value = NULL;
    }
    return status;
}

nm_status nm_json_count(const json_t *object, const char *key, int64_t max, const char *path, int64_t *value,
                        nm_error *err)
{
    const json_t *number = json_object_get(object, key);
    if (!number)
        return nm_fail(err, NM_FORMAT, "%s: '%s' is missing", path, key);
    *value = json_integer_value(number);
    if (!json_is_integer(number) || *value < 1 || *value > max)
        return nm_fail(err, NM_FORMAT, "%s: '%s' is not an integer between 1 and %lld", path, key,
                       (long long)max);
    return NM_OK;
}

bool nm_json_flag(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_number(value)) /* as in Python */
        return json_number_value(value) != 0;
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

double nm_json_real(const json_t *object, const char *key, double otherwise)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return otherwise;
    return json_is_number(value) ? json_number_value(value) : NAN;
}

int64_t nm_json_id(const json_t *object, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}
