/* Text: tokenization with every setting, detokenization, lowercasing. */
#include <string.h>

#include "fuzz.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const languages[] = {"en", "de", "fr", "zz"};
    if (!bytes)
        return 0;
    const char *line = (const char *)data + 1;
    size_t length = bytes - 1;
    if (nm_utf8_find_invalid(line, length) < length || memchr(line, 0, length) || memchr(line, '\n', length))
        return 0;
    nm_tokenizer_options options = {
        .language = languages[data[0] & 3], .aggressive = data[0] & 4, .escape = data[0] & 8};
    nm_tokenizer tokenizer;
    nm_error err;
    const char *name = data[0] & 16 ? "basic_english" : "moses";
    NM_ASSERT(nm_tokenizer_open(&tokenizer, name, &options, &err) == NM_OK);
    nm_buffer tokens = {0}, text = {0};
    nm_buffer_clear(&tokens);
    nm_buffer_clear(&text);
    nm_tokenize(&tokenizer, line, length, &tokens);
    NM_ASSERT(nm_utf8_find_invalid(tokens.data, tokens.bytes) == tokens.bytes);
    nm_utf8_lowercase(tokens.data, tokens.bytes, &text);
    NM_ASSERT(nm_utf8_find_invalid(text.data, text.bytes) == text.bytes);
    nm_buffer_clear(&text);
    nm_detokenize(&tokenizer, tokens.data, tokens.bytes, &text);
    NM_ASSERT(nm_utf8_find_invalid(text.data, text.bytes) == text.bytes);
    nm_buffer_release(&tokens);
    nm_buffer_release(&text);
    nm_tokenizer_close(&tokenizer);
    return 0;
}
