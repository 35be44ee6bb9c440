#include "data/checksums.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/file.h"

enum { DIGITS = 32, NAME_AT = DIGITS + 2 };

static void format_digits(char digits[DIGITS + 1], const void *data, size_t bytes)
{
    XXH128_hash_t hash = XXH3_128bits(bytes ? data : "", bytes);
    snprintf(digits, DIGITS + 1, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
}

void nm_checksums_add(nm_buffer *list, const char *name, const void *data, size_t bytes)
{
    char digits[DIGITS + 1];
    format_digits(digits, data, bytes);
    NM_AUTO_FREE char *line = nm_format("%s  %s\n", digits, name);
    nm_buffer_append(list, line, strlen(line));
}

static nm_status verify_file(const char *folder, const char *name, const char *expected, nm_error *err)
{
    char *path = nm_path_join(folder, name), actual[DIGITS + 1];
    nm_file_map map;
    bool found;
    nm_status status = nm_file_find(path, &found, err);
    if (status == NM_OK && !found)
        status = nm_fail(err, NM_FORMAT, "%s: missing, but named in %s; prepare the folder again", path,
                         NM_CHECKSUMS_NAME);
    else if (status == NM_OK && (status = nm_file_map_open(&map, path, err)) == NM_OK) {
        format_digits(actual, map.data, map.bytes);
        nm_file_unmap(&map);
        if (memcmp(actual, expected, DIGITS))
            status =
                nm_fail(err, NM_FORMAT,
                        "%s: damaged or changed since norma prepare wrote it: the contents do not match "
                        "their checksum; prepare the folder again, or remove %s if the change is intended",
                        path, NM_CHECKSUMS_NAME);
    }
    free(path);
    return status;
}

nm_status nm_checksums_verify(const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(folder, NM_CHECKSUMS_NAME);
    nm_status status = nm_file_read_optional(path, &text, err);
    char *rest = status == NM_OK ? text : NULL;
    bool complete = !rest; /* a folder without a list is accepted */
    for (char *line; status == NM_OK && (line = strsep(&rest, "\n")) != NULL;) {
        if (!*line)
            continue;
        if (strlen(line) <= NAME_AT || strncmp(line + DIGITS, "  ", 2) || strchr(line, '/'))
            status =
                nm_fail(err, NM_FORMAT, "%s: damaged: '%.100s' is not a checksum and a name", path, line);
        else
            status = verify_file(folder, line + NAME_AT, line, err);
        complete = status == NM_OK && !strcmp(line + NAME_AT, "data.ini");
    }
    if (status == NM_OK && !complete)
        status = nm_fail(err, NM_FORMAT, "%s: damaged: incomplete list of checksums", path);
    return status;
}
