/* Lexical shortlists: the selected tokens of a list that is accepted are tokens of the dictionary, ascending,
 * with eos. */
#include <string.h>

#include "task/shortlist_file.h"
#include "fuzz.h"

static nm_vocab *dictionary(const char *text)
{
    nm_vocab *vocab;
    nm_error err;
    NM_ASSERT(nm_vocab_parse(text, strlen(text), "dictionary", NM_VOCAB_FAIRSEQ, &vocab, &err) == NM_OK);
    return vocab;
}

static void check_selection(const nm_shortlist *list, const nm_vocab *source, const nm_vocab *target)
{
    uint8_t mark[64] = {0};
    nm_ids selected = {0}, none = {0};
    for (int32_t id = 0; id < nm_vocab_size(source); id++) {
        bool eos = false;
        selected.n = 0;
        nm_shortlist_select(list, &id, 1, &none, mark, &selected);
        for (size_t i = 0; i < selected.n; i++) {
            NM_ASSERT(selected.data[i] >= 0 && selected.data[i] < nm_vocab_size(target));
            NM_ASSERT(!i || selected.data[i] > selected.data[i - 1]);
            eos |= selected.data[i] == target->eos;
        }
        NM_ASSERT(eos);
    }
    nm_ids_release(&selected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < 1)
        return 0;
    const nm_shortlist_config config = {1 + data[0] % 4, data[0] / 4 % 8, data[0] & 32 ? "de:en" : NULL};
    nm_vocab *source = dictionary("haus 9\nbaum 8\nrot 7\n\xC3\xA4 1\n"),
             *target = dictionary("house 9\ntree 8\nred 7\nblue 1\n");
    nm_shortlist list;
    nm_error err;
    nm_status status = nm_shortlist_read(&list, fuzz_file(0, "txt", data + 1, bytes - 1), &config, source,
                                         target, NULL, &err);
    if (status == NM_OK)
        check_selection(&list, source, target);
    else
        fuzz_check_error(status, &err);
    nm_shortlist_release(&list);
    nm_vocab_free(source);
    nm_vocab_free(target);
    return 0;
}
