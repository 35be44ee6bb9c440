/* Shared by the two directions of the Moses tokenizer. */
#ifndef NM_MOSES_RULES_H
#define NM_MOSES_RULES_H

#include "text/buffer.h"

/* How a language treats the apostrophe. */
typedef enum nm_moses_apostrophe {
    NM_MOSES_ALONE, /* a word of its own everywhere */
    NM_MOSES_RIGHT, /* between letters it begins a word: don 't */
    NM_MOSES_LEFT,  /* between letters it ends a word: l' eau */
    NM_MOSES_INSIDE /* between letters it stays */
} nm_moses_apostrophe;

typedef struct nm_moses_language {
    const char *code;
    nm_moses_apostrophe apostrophe;
    uint32_t inner; /* a further mark that stays before a lower-case letter (EU:ssa), or 0 */
} nm_moses_language;

/* Rules of a language; those for all the others if it has none of its own. Never NULL. */
const nm_moses_language *nm_moses_find_language(const char *code);

/* Abbreviations after which a period does not end a sentence, parted by spaces; numeric ones count only
 * before a digit. Languages without a list get the English one, as in the Moses scripts. */
typedef struct nm_moses_prefixes {
    const char *language, *always, *numeric;
} nm_moses_prefixes;

const nm_moses_prefixes *nm_moses_find_prefixes(const char *code);

/* Appends the line with its words joined to running text. */
void nm_moses_detokenize(const nm_moses_language *language, const char *line, size_t bytes, nm_buffer *out);

#endif
