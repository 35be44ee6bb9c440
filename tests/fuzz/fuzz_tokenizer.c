/* tokenizer.json of Hugging Face folders: of an accepted file, the merges are codes of byte-level BPE, and no
 * index is outside the embedding matrix. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "convert/huggingface_tokenizer.h"
#include "fuzz.h"
#include "text/bpe.h"

enum { ROWS = 400 };

static void check_codes(const nm_import_codes *codes)
{
    nm_bpe *bpe;
    nm_error err;
    if (!codes->text)
        return;
    NM_ASSERT(nm_bpe_parse(codes->text, strlen(codes->text), "codes", &bpe, &err) == NM_OK);
    NM_ASSERT(bpe->format == NM_BPE_BYTE_LEVEL);
    nm_bpe_free(bpe);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *folder = nm_path_join(fuzz_folder(), "hf"), *path = nm_path_join(folder, "tokenizer.json");
    nm_foreign_vocab vocab = {0};
    nm_import_codes codes = {0};
    nm_error err;
    NM_ASSERT(nm_folder_create(folder, &err) == NM_OK);
    FILE *file = fopen(path, "wb");
    NM_ASSERT(file && fwrite(data, 1, bytes, file) == bytes && !fclose(file));
    nm_status status = nm_huggingface_read_tokenizer(folder, ROWS, &vocab, &codes, &err);
    if (status == NM_OK) {
        NM_ASSERT(vocab.n == ROWS);
        check_codes(&codes);
    } else {
        fuzz_check_error(status, &err);
    }
    nm_foreign_vocab_release(&vocab);
    free(codes.text);
    fuzz_remove_folder(folder);
    free(path);
    free(folder);
    return 0;
}
