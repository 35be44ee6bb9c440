/* Word vectors: accepted vectors are finite, and a word has the vector of its first line. */
#include <math.h>
#include <string.h>

#include "fuzz.h"
#include "text/word_vectors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const words[] = {"a", "the", "3", "\xC3\xA4", "w1"};
    nm_counter vocabulary = {0};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        nm_counter_add(&vocabulary, words[i], strlen(words[i]), 1);
    nm_word_vectors vectors;
    nm_error err;
    nm_status status = nm_word_vectors_read(&vectors, fuzz_file(0, "txt", data, bytes), &vocabulary, &err);
    if (status == NM_OK) {
        NM_ASSERT(vectors.words.n <= vocabulary.n);
        for (size_t i = 0; i < vectors.words.n; i++) {
            const float *vector = nm_word_vectors_find(&vectors, vectors.words.items[i].text);
            NM_ASSERT(vector == vectors.values + i * (size_t)vectors.width);
            for (int32_t k = 0; k < vectors.width; k++)
                NM_ASSERT(isfinite(vector[k]));
        }
        nm_word_vectors_unit(&vectors);
    } else {
        fuzz_check_error(status, &err);
    }
    nm_word_vectors_release(&vectors);
    nm_counter_release(&vocabulary);
    return 0;
}
