/* Hugging Face folders. The input is a safetensors file: its tensors are model.safetensors, and its metadata
 * contains the other files of the folder by name. Accepted input becomes a model file that can be opened. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/safetensors.h"
#include "convert/convert.h"
#include "fuzz.h"

static void put_texts(const char *folder, const nm_safetensors *file)
{
    static const char *const names[] = {"config.json", "vocab.json",        "tokenizer.json",
                                        "merges.txt",  "target_vocab.json", "data.ini"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = nm_safetensors_metadata(file, names[i]);
        if (text)
            fuzz_put(folder, names[i], text, strlen(text));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const nm_convert_settings settings = {.vocabs = ""};
    char *folder = nm_path_join(fuzz_folder(), "hf"), *model = nm_path_join(folder, "model.safetensors"),
         *output = nm_path_join(folder, "out.safetensors");
    nm_safetensors *file;
    nm_error err;
    NM_ASSERT(nm_folder_create(folder, &err) == NM_OK);
    fuzz_put(folder, "model.safetensors", data, bytes);
    nm_status status = nm_safetensors_open(&file, model, &err);
    if (status == NM_OK) {
        put_texts(folder, file);
        nm_safetensors_close(file);
        status = nm_convert_from(&nm_format_huggingface, &settings, folder, output, &err);
    }
    fuzz_check_converted(status, output, &err);
    fuzz_remove_folder(folder);
    free(folder);
    free(model);
    free(output);
    return 0;
}
