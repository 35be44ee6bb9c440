/* Token files: the first two bytes are the length of PREFIX.ids; the rest is PREFIX.off. */
#include <string.h>

#include "data/corpus.h"
#include "fuzz.h"

enum { WORDS = 100 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    size_t rest = bytes - 2, ids = (size_t)data[0] | (size_t)data[1] << 8;
    if (ids > rest)
        ids = rest;
    char prefix[128];
    strcpy(prefix, fuzz_file(0, "ids", data + 2, ids));
    *strrchr(prefix, '.') = 0;
    fuzz_file(1, "off", data + 2 + ids, rest - ids);
    nm_corpus corpus;
    nm_error err;
    if (nm_corpus_open(&corpus, prefix, WORDS, &err) != NM_OK)
        return 0;
    for (int64_t i = 0; i < corpus.n; i++) {
        NM_ASSERT(nm_corpus_length(&corpus, i) >= 0);
        for (uint64_t k = corpus.offsets[i]; k < corpus.offsets[i + 1]; k++)
            NM_ASSERT(corpus.ids[k] >= 0 && corpus.ids[k] < WORDS);
    }
    nm_corpus_close(&corpus);
    return 0;
}
