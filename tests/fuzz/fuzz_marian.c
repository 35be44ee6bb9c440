/* Models of Marian: the input is the npz file; the vocabularies are small and fixed. Accepted input becomes a
 * model file that can be opened. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/convert.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char vocab[] = "</s>: 0\n<unk>: 1\n.: 2\na: 3\nb: 4\nc: 5\nd: 6\n"
                                "e: 7\nf: 8\ng: 9\nh: 10\ni: 11\nj: 12\n";
    char *dictionary = nm_path_join(fuzz_folder(), "vocab.yml"),
         *output = nm_path_join(fuzz_folder(), "out.safetensors"),
         *both = nm_format("%s,%s", dictionary, dictionary);
    const nm_convert_settings settings = {.vocabs = both};
    nm_error err;
    NM_ASSERT(nm_file_write(dictionary, vocab, strlen(vocab), &err) == NM_OK);
    nm_status status =
        nm_convert_from(&nm_format_marian, &settings, fuzz_file(0, "npz", data, bytes), output, &err);
    fuzz_check_converted(status, output, &err);
    remove(output);
    free(dictionary);
    free(output);
    free(both);
    return 0;
}
