/* The tokenizer of mteval-v13a in the form sacreBLEU gives it: entities resolved, ASCII punctuation cut off,
 * points and commas cut off unless digits stand on both sides, hyphens cut off after digits. Letters of other
 * scripts and their punctuation stay as they are. */
#ifndef NM_TOKENIZE_13A_H
#define NM_TOKENIZE_13A_H

#include "metric/segment.h"

/* Appends the tokens of text to out, one space between two. scratch is overwritten. */
void nm_tokenize_13a(const char *text, nm_buffer *scratch, nm_buffer *out);

#endif
