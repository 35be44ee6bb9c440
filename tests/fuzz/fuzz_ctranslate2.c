/* CTranslate2 folders: the input is model.bin; the vocabulary is small and fixed. Accepted input becomes a
 * model file that can be opened. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/convert.h"
#include "convert/ctranslate2_file.h"
#include "fuzz.h"

static void check_variables(const char *path)
{
    nm_ct2_file file;
    nm_error err;
    nm_status status = nm_ct2_file_read(&file, path, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    const nm_tensor_source source = nm_ct2_file_source(&file);
    const char *name;
    for (size_t i = 0; status == NM_OK && (name = source.name(source.file, i)) != NULL; i++) {
        int64_t shape[NM_CT2_MAX_RANK];
        int rank;
        free(source.read(source.file, name, &rank, shape));
    }
    nm_ct2_file_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char config[] = "{\"decoder_start_token\": \"</s>\"}",
                      vocab[] = "[\"<s>\", \"<pad>\", \"</s>\", \"<unk>\", \"a\", \"b\"]";
    const nm_convert_settings settings = {.vocabs = ""};
    char *folder = nm_path_join(fuzz_folder(), "ct2"), *model = nm_path_join(folder, "model.bin"),
         *output = nm_path_join(folder, "out.safetensors");
    nm_error err;
    NM_ASSERT(nm_folder_create(folder, &err) == NM_OK);
    fuzz_put(folder, "model.bin", data, bytes);
    fuzz_put(folder, "config.json", config, strlen(config));
    fuzz_put(folder, "shared_vocabulary.json", vocab, strlen(vocab));
    check_variables(model);
    nm_status status = nm_convert_from(&nm_format_ctranslate2, &settings, folder, output, &err);
    fuzz_check_converted(status, output, &err);
    fuzz_remove_folder(folder);
    free(folder);
    free(model);
    free(output);
    return 0;
}
