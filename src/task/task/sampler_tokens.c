#include "task/sampler_tokens.h"

#include <string.h>

#include "base/memory.h"
#include "text/byte_level.h"

static int32_t *count_newlines(const nm_vocab *vocab, const nm_spm *spm)
{
    int32_t *newlines = nm_allocate((size_t)nm_vocab_size(vocab) * sizeof *newlines);
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++) {
        const char *symbol = nm_vocab_symbol(vocab, id);
        nm_buffer_clear(&text);
        if (spm)
            nm_spm_decode(spm, symbol, strlen(symbol), &text);
        else
            nm_byte_level_decode(symbol, strlen(symbol), &text);
        for (size_t i = 0; i < text.bytes; i++)
            newlines[id] += text.data[i] == '\n';
    }
    return newlines;
}

bool nm_lm_excludes(const nm_vocab *vocab, int32_t id, bool unknown)
{
    return id == vocab->bos || id == vocab->pad || (id == vocab->unk && !unknown) ||
           nm_vocab_is_padding(vocab, id);
}

static bool *find_excluded(const nm_vocab *vocab, bool unknown)
{
    bool *excluded = nm_allocate((size_t)nm_vocab_size(vocab) * sizeof *excluded);
    for (int32_t id = 0; id < nm_vocab_size(vocab); id++)
        excluded[id] = nm_lm_excludes(vocab, id, unknown);
    return excluded;
}

nm_sampler_tokens nm_lm_sampler_tokens(const nm_sampler_texts *texts, bool unknown)
{
    return (nm_sampler_tokens){.first_input = texts->first_input,
                               .eos = texts->vocab->eos,
                               .excluded = find_excluded(texts->vocab, unknown),
                               .newlines =
                                   texts->documents ? count_newlines(texts->vocab, texts->spm) : NULL};
}
