/* YAML files of other toolkits: the JSON value is written and read back unchanged. */
#include <stdlib.h>
#include <string.h>

#include "convert/yaml_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *value, *again;
    nm_error err;
    nm_status status = nm_yaml_parse(&value, data, bytes, "input", &err);
    if (status != NM_OK) {
        fuzz_check_error(status, &err);
        return 0;
    }
    char *text = json_dumps(value, JSON_ENSURE_ASCII);
    NM_ASSERT(text && json_is_object(value));
    again = json_loads(text, 0, NULL);
    NM_ASSERT(json_equal(value, again));
    json_decref(value);
    json_decref(again);
    free(text);
    return 0;
}
