/* What readers read from, and what they must say when they refuse it. Those that map files need files: two names in a
 * folder of this process, in memory where the system has that. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64], paths[2][128];

static void remove_files(void)
{
    for (int slot = 0; slot < 2; slot++)
        if (*paths[slot])
            unlink(paths[slot]);
    rmdir(folder);
}

const char *fuzz_file(int slot, const char *suffix, const uint8_t *data, size_t bytes)
{
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/norma-fuzz-XXXXXX" : "/dev/shm/norma-fuzz-XXXXXX");
        if (!mkdtemp(folder))
            abort();
        atexit(remove_files);
    }
    snprintf(paths[slot], sizeof paths[slot], "%s/input.%s", folder, suffix);
    FILE *stream = fopen(paths[slot], "wb");
    if (!stream || (bytes && fwrite(data, 1, bytes, stream) != bytes) || fclose(stream))
        abort();
    return paths[slot];
}

FILE *fuzz_stream(const char *text, size_t bytes)
{
    FILE *stream = fmemopen((void *)(uintptr_t)text, bytes, "rb");
    NM_ASSERT(stream);
    return stream;
}

char *fuzz_taken(nm_status status, const nm_error *err, nm_buffer *collected)
{
    if (status == NM_OK)
        return collected->data;
    NM_ASSERT(status == NM_FORMAT && *err->text && !strchr(err->text, '\n'));
    nm_buffer_release(collected);
    return NULL;
}
