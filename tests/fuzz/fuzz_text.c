/* Text: tokenization with every setting, detokenization, lowercasing; byte-level BPE restores the text. */
#include <string.h>

#include "fuzz.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* The text is restored from its words, and any words are text. The rules of Qwen 2 change it to the form
 * NFC. */
static void check_byte_level(nm_pretokenizer rules, const char *line, size_t length)
{
    nm_buffer words = {0}, text = {0};
    nm_buffer_clear(&words);
    nm_buffer_clear(&text);
    nm_byte_level_encode(rules, line, length, &words);
    nm_byte_level_decode(words.data, words.bytes, &text);
    NM_ASSERT(text.bytes == length && !memcmp(text.data, line, length));
    nm_buffer_clear(&text);
    nm_byte_level_decode(line, length, &text);
    NM_ASSERT(nm_utf8_find_invalid(text.data, text.bytes) == text.bytes);
    nm_buffer_release(&words);
    nm_buffer_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const languages[] = {"en", "de", "fr", "zz"};
    if (!bytes)
        return 0;
    const char *line = (const char *)data + 1;
    size_t length = bytes - 1;
    if (nm_utf8_find_invalid(line, length) < length || memchr(line, 0, length) || memchr(line, '\n', length))
        return 0;
    check_byte_level(data[0] % NM_PRETOKENIZERS_COUNT, line, length);
    nm_tokenizer_options options = {
        .language = languages[data[0] & 3], .aggressive = data[0] & 4, .escape = data[0] & 8};
    nm_tokenizer tokenizer;
    nm_error err;
    static const char *const names[] = {"moses", "basic_english", "byte_level", "moses"};
    const char *name = names[data[0] >> 4 & 3];
    options.pretokenizer = data[0] >> 6 < NM_PRETOKENIZERS_COUNT ? data[0] >> 6 : 0;
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
