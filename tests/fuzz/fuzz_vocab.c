/* Dictionaries: accepted symbols are written unchanged and found by their text. */
#include <string.h>

#include "fuzz.h"
#include "text/vocab.h"

static void check(const nm_vocab *vocab)
{
    nm_buffer text = {0};
    nm_buffer_clear(&text);
    nm_vocab_format(vocab, &text);
    nm_vocab *again;
    nm_error err;
    NM_ASSERT(nm_vocab_parse(text.data, text.bytes, "again", vocab->order, &again, &err) == NM_OK);
    NM_ASSERT(nm_vocab_size(again) == nm_vocab_size(vocab));
    for (int32_t id = NM_VOCAB_N_SPECIAL; id < nm_vocab_size(vocab); id++) {
        const char *symbol = nm_vocab_symbol(vocab, id);
        NM_ASSERT(nm_vocab_find(again, symbol, strlen(symbol)) == id);
        NM_ASSERT(nm_vocab_count(again, id) == nm_vocab_count(vocab, id));
    }
    nm_ids ids = {0};
    nm_vocab_encode(vocab, text.data, text.bytes, &ids);
    nm_buffer_clear(&text);
    nm_vocab_decode(vocab, ids.data, ids.n, &text);
    nm_ids_release(&ids);
    nm_buffer_release(&text);
    nm_vocab_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (!bytes)
        return 0;
    nm_vocab *vocab;
    nm_error err;
    nm_vocab_order order = data[0] % 2 ? NM_VOCAB_TEARS : NM_VOCAB_FAIRSEQ;
    if (nm_vocab_parse((const char *)data + 1, bytes - 1, "input", order, &vocab, &err) == NM_OK) {
        check(vocab);
        nm_vocab_free(vocab);
    } else {
        NM_ASSERT(!strchr(err.text, '\n'));
    }
    return 0;
}
