/* Data shared by the Moses tokenizer and detokenizer. */
#pragma once

#include "norma/status.h"
#include "base/buffer.h"
#include "text/utf8.h"

/* Treatment of an apostrophe. */
typedef enum nm_moses_apostrophe {
    NM_MOSES_SEPARATE, /* always a token */
    NM_MOSES_RIGHT,    /* between letters it starts a token: don 't */
    NM_MOSES_LEFT,     /* between letters it ends a token: l' eau */
    NM_MOSES_INSIDE    /* between letters it is not split off */
} nm_moses_apostrophe;

typedef struct nm_moses_language {
    const char *code;
    nm_moses_apostrophe apostrophe;
    uint32_t inner; /* another mark that is not split off before a lower-case letter (EU:ssa), or 0 */
} nm_moses_language;

/* Letters. The marks of a letter belong to it: the scripts have only the property Alphabetic, which many
 * marks lack (accents of decomposed text, viramas). */
static inline bool nm_moses_is_alpha(uint32_t point)
{
    return nm_unicode_is_alpha(point) || nm_unicode_is_mark(point);
}

/* The rules of a language, or the general rules if it has no entry. Never NULL. */
const nm_moses_language *nm_moses_find_language(const char *code);

/* Abbreviations whose period does not end a sentence, separated by spaces; `numeric`: only before a digit.
 * Languages without a list use the English one, like the Moses scripts. */
typedef struct nm_moses_prefixes {
    const char *language, *always, *numeric;
} nm_moses_prefixes;

const nm_moses_prefixes *nm_moses_find_prefixes(const char *code);
bool nm_moses_has_prefixes(const char *code);
/* Reads abbreviations from a file in the format of Moses' nonbreaking_prefixes, or from the file
 * nonbreaking_prefix.LANGUAGE of a folder. *list: heap, those for every position, "|", and those before
 * digits.
 * NM_IO: the file cannot be read; NM_FORMAT: it is not UTF-8, or contains no abbreviation. */
nm_status nm_moses_prefixes_read(const char *path, const char *language, char **list, nm_error *err);

/* Finds the first address of a page, mail address or tag of markup at or after position `at`. Returns its
 * position and sets *length; the end of the line and 0 if there is none. */
size_t nm_moses_find_protected(const char *line, size_t bytes, size_t at, size_t *length);

/* Appends the detokenized line, which must be valid UTF-8. */
void nm_moses_detokenize(const nm_moses_language *language, const char *line, size_t bytes, nm_buffer *out);
