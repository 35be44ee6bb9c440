/* SentencePiece models: the first byte is the length of a line at the end of the input, the rest between is
 * the model. Lines are normalized, segmented and decoded; results are UTF-8. */
#include <string.h>

#include "fuzz.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

static void check_text(const nm_buffer *text)
{
    NM_ASSERT(nm_utf8_find_invalid(text->data, text->bytes) == text->bytes);
}

static void segment(const nm_spm *spm, const char *line, size_t bytes)
{
    nm_spm_coder *coder = nm_spm_coder_create(spm);
    nm_buffer pieces = {0}, text = {0};
    for (int as_text = 0; as_text < 2; as_text++) {
        nm_buffer_clear(&pieces);
        nm_buffer_clear(&text);
        nm_spm_encode(coder, line, bytes, as_text, &pieces);
        check_text(&pieces);
        nm_spm_decode(spm, pieces.data, pieces.bytes, &text);
        check_text(&text);
    }
    nm_buffer_clear(&text);
    nm_spm_normalize(coder, line, bytes, &text);
    check_text(&text);
    nm_buffer_release(&pieces);
    nm_buffer_release(&text);
    nm_spm_coder_free(coder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t length = fuzz_choice(&data, &bytes, 256);
    length = length < bytes ? length : bytes;
    const char *line = (const char *)data + bytes - length;
    nm_spm *spm;
    nm_error err;
    nm_status status = nm_spm_parse(data, bytes - length, "input", &spm, &err);
    if (status != NM_OK) {
        fuzz_check_error(status, &err);
        return 0;
    }
    nm_counter pieces = {0};
    nm_spm_add_pieces(spm, &pieces);
    nm_counter_release(&pieces);
    if (nm_utf8_find_invalid(line, length) == length &&
        (!length || (!memchr(line, 0, length) && !memchr(line, '\n', length))))
        segment(spm, line, length);
    nm_spm_free(spm);
    return 0;
}
