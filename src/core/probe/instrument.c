/* Log lines and sums for the instruments. */
#include "probe/instrument.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

json_t *nm_probe_record_line(nm_probe_record *record, const char *site)
{
    json_t *line = json_pack("{s:s, s:I, s:s, s:s}", "type", "probe", "update", (json_int_t)record->update,
                             "instrument", record->instrument->name, "site", site);
    json_array_append_new(record->lines, line);
    return line;
}

void nm_line_number(json_t *line, const char *key, double value)
{
    json_object_set_new(line, key, nm_json_number(value));
}

void nm_line_count(json_t *line, const char *key, int64_t value)
{
    json_object_set_new(line, key, json_integer(value));
}

void nm_line_text(json_t *line, const char *key, const char *value)
{
    json_object_set_new(line, key, json_string(value));
}

json_t *nm_line_array(json_t *line, const char *key)
{
    json_t *array = json_array();
    json_object_set_new(line, key, array);
    return array;
}

void nm_array_number(json_t *array, double value)
{
    json_array_append_new(array, nm_json_number(value));
}

static void add_to_group(nm_group_sums *sums, const char *name, double a, double b)
{
    size_t i = 0;
    while (i < sums->n && strcmp(sums->list[i].name, name))
        i++;
    if (i == sums->n) {
        NM_GROW(sums->list, sums->n, sums->capacity);
        sums->list[sums->n] = (nm_group_sum){.a = 0};
        snprintf(sums->list[sums->n++].name, sizeof sums->list->name, "%s", name);
    }
    sums->list[i].a += a;
    sums->list[i].b += b;
}

void nm_group_sums_add(nm_group_sums *sums, const char *parameter, double a, double b)
{
    char group[96];
    nm_group_name(parameter, group, sizeof group);
    add_to_group(sums, "", a, b);
    add_to_group(sums, group, a, b);
}

void nm_group_sums_release(nm_group_sums *sums)
{
    free(sums->list);
    *sums = (nm_group_sums){0};
}
