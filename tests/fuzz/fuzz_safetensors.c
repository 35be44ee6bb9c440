/* Model files: all returned data is inside the file, and accepted tensors are written and read back
 * unchanged. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/safetensors.h"
#include "fuzz.h"

static unsigned touch(const nm_safetensors *file)
{
    unsigned sum = 0;
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, i);
        NM_ASSERT(tensor->bytes == tensor->count * nm_tensor_type_bytes(tensor->type));
        for (size_t k = 0; k < tensor->bytes; k++)
            sum += ((const unsigned char *)tensor->data)[k];
        NM_ASSERT(nm_safetensors_find(file, tensor->name) == tensor);
    }
    const char *text = nm_safetensors_metadata(file, "config");
    return sum + (unsigned)(text ? strlen(text) : 0);
}

static void write_again(const nm_safetensors *file, unsigned sum)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, i);
        nm_safetensors_add(writer, tensor->name, tensor->type, tensor->rank, tensor->shape, tensor->data);
    }
    nm_safetensors_copy_metadata(writer, file);
    const char *path = fuzz_file(1, "copy", NULL, 0);
    nm_error err;
    nm_safetensors *again;
    NM_ASSERT(nm_safetensors_finish(writer, path, &err) == NM_OK);
    NM_ASSERT(nm_safetensors_open(&again, path, &err) == NM_OK);
    NM_ASSERT(nm_safetensors_count(again) == nm_safetensors_count(file) && touch(again) == sum);
    nm_safetensors_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    nm_safetensors *file;
    nm_error err;
    if (nm_safetensors_open(&file, fuzz_file(0, "safetensors", data, bytes), &err) != NM_OK)
        return 0;
    write_again(file, touch(file));
    nm_safetensors_close(file);
    return 0;
}
