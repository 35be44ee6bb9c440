#include "cli/inspect_file.h"

#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"

nm_status inspect_file_check(const char *run, nm_error *err)
{
    struct stat about;
    if (stat(run, &about) || S_ISDIR(about.st_mode)) /* a missing file is reported when the model is read */
        return NM_OK;
    return nm_fail(err, NM_USAGE, "inspect.save: %.400s is not a run folder", run);
}

static json_int_t update_of(const json_t *object)
{
    return json_integer_value(json_object_get(object, "update"));
}

/* Reads the list in the file; an empty list if there is no file. */
static nm_status read_list(const char *path, json_t **list, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    NM_TRY(nm_file_read_optional(path, &text, err));
    *list = text ? json_loads(text, 0, NULL) : json_array();
    if (json_is_array(*list))
        return NM_OK;
    json_decref(*list);
    return nm_fail(err, NM_FORMAT,
                   "%s: not a list of measurements; it is kept, so rename or remove it before --save", path);
}

/* Inserts a result in the order of updates, or merges it into the object of the same update. */
static void put(json_t *list, json_t *result)
{
    size_t at = 0;
    while (at < json_array_size(list) && update_of(json_array_get(list, at)) < update_of(result))
        at++;
    json_t *present = json_array_get(list, at);
    if (json_is_object(present) && update_of(present) == update_of(result))
        json_object_update(present, result);
    else
        json_array_insert(list, at, result);
}

nm_status inspect_file_add(const char *run, json_t *result, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(run, "inspection.json");
    json_t *list = NULL;
    nm_status status = read_list(path, &list, err);
    if (status == NM_OK) {
        put(list, result);
        NM_AUTO_FREE char *text = json_dumps(list, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        status = nm_file_write(path, text, strlen(text), err);
        json_decref(list);
    }
    return status;
}
