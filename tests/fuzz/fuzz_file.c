/* Inputs of readers, and checks of their error messages. Readers that map files need files: two names in a
 * folder of this process, in memory if the system supports that. */
#include "fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/safetensors.h"

static char folder[64], paths[2][128];

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void fuzz_remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void remove_files(void)
{
    fuzz_remove_folder(folder);
}

const char *fuzz_folder(void)
{
    if (!*folder) {
        strcpy(folder, access("/dev/shm", W_OK) ? "/tmp/norma-fuzz-XXXXXX" : "/dev/shm/norma-fuzz-XXXXXX");
        if (!mkdtemp(folder))
            abort();
        atexit(remove_files);
    }
    return folder;
}

const char *fuzz_file(int slot, const char *suffix, const uint8_t *data, size_t bytes)
{
    snprintf(paths[slot], sizeof paths[slot], "%s/input.%s", fuzz_folder(), suffix);
    FILE *stream = fopen(paths[slot], "wb");
    if (!stream || (bytes && fwrite(data, 1, bytes, stream) != bytes) || fclose(stream))
        abort();
    return paths[slot];
}

void fuzz_put(const char *where, const char *name, const void *data, size_t bytes)
{
    char *path = nm_path_join(where, name);
    FILE *file = fopen(path, "wb");
    NM_ASSERT(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file));
    free(path);
}

uint32_t fuzz_choice(const uint8_t **data, size_t *bytes, uint32_t n)
{
    if (!*bytes)
        return 0;
    (*bytes)--;
    return *(*data)++ % n;
}

char *fuzz_part(const uint8_t **data, size_t *bytes)
{
    const uint8_t *end = *bytes ? memchr(*data, 0, *bytes) : NULL;
    size_t length = end ? (size_t)(end - *data) : *bytes, skipped = length + (end != NULL);
    char *part = nm_allocate(length + 1);
    if (length)
        memcpy(part, *data, length);
    *data = skipped ? *data + skipped : *data;
    *bytes -= skipped;
    return part;
}

void fuzz_check_error(nm_status status, const nm_error *err)
{
    NM_ASSERT(status != NM_OK && err->status == status);
    NM_ASSERT(*err->text && !strchr(err->text, '\n'));
}

void fuzz_check_converted(nm_status status, const char *output, nm_error *err)
{
    nm_safetensors *file;
    if (status != NM_OK) {
        fuzz_check_error(status, err);
        return;
    }
    NM_ASSERT(nm_safetensors_open(&file, output, err) == NM_OK);
    nm_safetensors_close(file);
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
