/* The tokenizer of mteval-v13a as in sacreBLEU: entities are resolved; ASCII punctuation is split off; periods and commas are
 * split off unless between digits; hyphens are split off after digits. Letters and punctuation of other scripts stay. */
#ifndef NM_TOKENIZE_13A_H
#define NM_TOKENIZE_13A_H

#include "metric/segment.h"

/* Appends the tokens of text to out, separated by single spaces. scratch is overwritten. */
void nm_tokenize_13a(const char *text, nm_buffer *scratch, nm_buffer *out);
/* The same without entities and without the spaces around the text, so that a period after a digit at its end stays. */
void nm_split_punctuation(const char *text, nm_buffer *scratch, nm_buffer *out);
/* As nm_tokenize_13a, and "'s" is split off: the normalization of Tercom. */
void nm_tokenize_tercom(const char *text, nm_buffer *scratch, nm_buffer *out);

#endif
