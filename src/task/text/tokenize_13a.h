/* The tokenizer of mteval-v13a as in sacreBLEU: entities are decoded; ASCII punctuation is split off, periods
 * and commas unless they are between digits, hyphens after digits only. Other characters are not split
 * off. */
#pragma once

#include "text/segment.h"

/* Appends the tokens of text to out, separated by single spaces. scratch is overwritten. */
void nm_tokenize_13a(const char *text, nm_buffer *scratch, nm_buffer *out);
/* The same without decoding entities and without adding spaces around the text, so that a period after a
 * digit at the end of the text is not split off. */
void nm_split_punctuation(const char *text, nm_buffer *scratch, nm_buffer *out);
/* Like nm_tokenize_13a, but "'s" is split off and "<skipped>" is kept: the normalization of Tercom. */
void nm_tokenize_tercom(const char *text, nm_buffer *scratch, nm_buffer *out);
