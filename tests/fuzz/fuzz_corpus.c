/* Token files: the first two bytes are the length of PREFIX.ids; the rest is PREFIX.off. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/memory.h"
#include "base/corpus.h"
#include "fuzz.h"

enum { WORDS = 100, HEADER = 64, FINGERPRINT_AT = 32 };

/* Replaces a fingerprint that is equal in both files by the correct one; otherwise no input would pass the
 * check. Invalid offsets have none. */
static void set_fingerprint(uint8_t *ids, size_t ids_bytes, uint8_t *offsets, size_t offsets_bytes)
{
    enum { MAX_OFFSETS = 1 << 13 };
    static uint64_t at[MAX_OFFSETS];
    if (ids_bytes < HEADER || offsets_bytes < HEADER + sizeof *at ||
        memcmp(ids + FINGERPRINT_AT, offsets + FINGERPRINT_AT, 8))
        return;
    size_t n = (offsets_bytes - HEADER) / sizeof *at, tokens = (ids_bytes - HEADER) / sizeof(int32_t);
    if (n > MAX_OFFSETS)
        return;
    memcpy(at, offsets + HEADER, n * sizeof *at);
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    for (size_t i = 0; i < n; i++) {
        if (i && (at[i] < at[i - 1] || at[i] > tokens))
            break;
        if (i)
            XXH3_64bits_update(hash, ids + HEADER + at[i - 1] * sizeof(int32_t),
                               (at[i] - at[i - 1]) * sizeof(int32_t));
        XXH3_64bits_update(hash, &at[i], sizeof at[i]);
    }
    uint64_t fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    memcpy(ids + FINGERPRINT_AT, &fingerprint, sizeof fingerprint);
    memcpy(offsets + FINGERPRINT_AT, &fingerprint, sizeof fingerprint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 2)
        return 0;
    size_t rest = bytes - 2, ids = (size_t)data[0] | (size_t)data[1] << 8;
    if (ids > rest)
        ids = rest;
    uint8_t *copy = nm_allocate(rest + 1);
    memcpy(copy, data + 2, rest);
    set_fingerprint(copy, ids, copy + ids, rest - ids);
    char prefix[128];
    strcpy(prefix, fuzz_file(0, "ids", copy, ids));
    *strrchr(prefix, '.') = 0;
    fuzz_file(1, "off", copy + ids, rest - ids);
    free(copy);
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
