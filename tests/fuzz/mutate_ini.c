/* INI texts: changes the value of a line, or adds, repeats, moves or removes a line. The values are special
 * cases of the readers; added lines set an option of the tables. */
#include <stdlib.h>
#include <string.h>

#include "mutate.h"
#include "task/tasks.h"
#include "train/train_options.h"

static const char *const values[] = {
    "0",    "-1",     "1",        "3",     "8",    "1e9",  "99999999999999999999",
    "nan",  "inf",    "1e-400",   "0x10",  "true", "no",   "",
    "auto", "# text", "\"quoted", "layer", "post", "../x", "1,2,3"};
enum { N_VALUES = sizeof values / sizeof *values };

typedef struct place {
    size_t at, bytes; /* of a line, without its end */
} place;

static place find_line(const char *text, size_t bytes, uint32_t seed)
{
    size_t at = bytes ? seed % bytes : 0;
    while (at && text[at - 1] != '\n')
        at--;
    const char *end = memchr(text + at, '\n', bytes - at);
    return (place){at, (end ? (size_t)(end - text) : bytes) - at};
}

/* Replaces a part of the text if the result fits. */
static size_t replace(char *text, size_t bytes, size_t max_bytes, place part, const char *with,
                      size_t with_bytes)
{
    if (bytes - part.bytes + with_bytes > max_bytes)
        return bytes;
    memmove(text + part.at + with_bytes, text + part.at + part.bytes, bytes - part.at - part.bytes);
    memcpy(text + part.at, with, with_bytes);
    return bytes - part.bytes + with_bytes;
}

/* "section", "key" of a random option. */
static void random_option(uint32_t seed, char *line, size_t line_bytes, const char *value)
{
    static nm_options *options;
    static size_t n;
    if (!options) {
        options = nm_options_create();
        nm_train_options_add(options, &nm_task_translation);
        for (char *path; (path = nm_options_path(options, n)) != NULL; n++)
            free(path);
    }
    char *path = nm_options_path(options, seed % n), *dot = strrchr(path, '.');
    *dot = 0;
    snprintf(line, line_bytes, "[%s]\n%s = %s\n", path, dot + 1, value);
    free(path);
}

size_t fuzz_mutate_ini(char *text, size_t bytes, size_t max_bytes, uint32_t seed)
{
    const char *value = values[(seed >> 8) % N_VALUES];
    place line = find_line(text, bytes, seed >> 4);
    char added[256], copy[256];
    const char *equals = memchr(text + line.at, '=', line.bytes);
    switch (seed % 8) {
    case 0:
    case 1:
    case 2:
        if (equals) {
            size_t at = (size_t)(equals - text) + 1;
            snprintf(added, sizeof added, " %s", value);
            return replace(text, bytes, max_bytes, (place){at, line.at + line.bytes - at}, added,
                           strlen(added));
        }
        break;
    case 3:
        random_option(seed >> 12, added, sizeof added, value);
        return replace(text, bytes, max_bytes, (place){line.at, 0}, added, strlen(added));
    case 4: /* the line again at another place */
        if (line.bytes < sizeof copy - 1) {
            memcpy(copy, text + line.at, line.bytes);
            copy[line.bytes] = '\n';
            place to = find_line(text, bytes, seed >> 2);
            return replace(text, bytes, max_bytes, (place){to.at, 0}, copy, line.bytes + 1);
        }
        break;
    case 5:
        line.bytes += line.at + line.bytes < bytes;
        return replace(text, bytes, max_bytes, line, "", 0);
    default:
        break;
    }
    return LLVMFuzzerMutate((uint8_t *)text, bytes, max_bytes);
}
