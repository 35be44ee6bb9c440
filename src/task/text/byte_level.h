/* Byte-level BPE (Radford et al. 2019, GPT-2): text is split into words by the rules of a pre-tokenizer, each
 * byte of a word becomes one of 256 printable characters, and BPE merges these. No text is unknown, and
 * subwords contain the spaces, so that joining them restores the text exactly. The space before a word
 * becomes U+0120: "the cat" has the words "the", "Ġcat". */
#pragma once

#include "text/counter.h"
#include "text/tokenizer.h"

/* Appends the words of the text in the characters of their bytes, separated by single spaces. The text is
 * valid UTF-8. */
void nm_byte_level_encode(nm_pretokenizer rules, const char *text, size_t bytes, nm_buffer *out);
/* Appends the text of subwords separated by spaces. Bytes that are not UTF-8 become U+FFFD, a zero byte
 * becomes a space. */
void nm_byte_level_decode(const char *subwords, size_t bytes, nm_buffer *out);

/* Adds the characters of the 256 bytes with count 0, in the order of their code points. */
void nm_byte_level_add_symbols(nm_counter *symbols);
/* The byte that a character represents, or -1. */
int nm_byte_level_byte(uint32_t point);
/* Offset of the first character that does not represent a byte, or `bytes` if there is none. The text is
 * valid UTF-8. */
size_t nm_byte_level_find_other(const char *symbol, size_t bytes);

/* Whether text is normalized to NFC before it is split. */
bool nm_pretokenizer_composes(nm_pretokenizer rules);
/* Whether each digit is separated before the regular expression splits the text. */
bool nm_pretokenizer_separates_digits(nm_pretokenizer rules);
/* The regular expression of the rules in the syntax of Hugging Face's tokenizers. */
const char *nm_pretokenizer_expression(nm_pretokenizer rules);
