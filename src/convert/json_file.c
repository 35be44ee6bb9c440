#include "convert/json_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

nm_status nm_json_write(json_t *value, const char *folder, const char *name, nm_error *err)
{
    char *path = nm_path_join(folder, name);
    char *text =
        value ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9) | JSON_PRESERVE_ORDER) : NULL;
    nm_status status = text ? nm_file_write(path, text, strlen(text), err)
                            : nm_fail(err, NM_USAGE, "%s: a text is not UTF-8", path);
    json_decref(value);
    free(text);
    free(path);
    return status;
}
