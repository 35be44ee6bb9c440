/* Files of lexical shortlists (model/shortlist.h): lines "TARGET SOURCE PROBABILITY", the format of Marian,
 * which norma shortlist writes. The first line has the languages; Marian ignores it as a translation of the
 * empty word. */
#pragma once

#include "model/shortlist.h"
#include "norma/option.h"
#include "text/vocab.h"

/* Format of the first line; its argument is nm_shortlist_config.languages. */
#define NM_SHORTLIST_LANGUAGES "NULL languages:%s 0\n"

typedef struct nm_shortlist_config {
    /* tokens per source token, most probable first; lines of equal probability in the order of the file */
    int64_t best;
    int64_t frequent;      /* first tokens of the target dictionary after the special ones */
    const char *languages; /* of the model, as nm_text_coder_languages returns them; NULL: unknown */
} nm_shortlist_config;

/* Rows of an option table; T has the fields shortlist, shortlist_best and shortlist_frequent. */
/* clang-format off */
#define NM_SHORTLIST_OPTIONS(T)                                                                              \
    NM_OPTION(T, shortlist, "", 0, 0, \
        "File of norma shortlist: translations contain only likely translations of the source tokens, and " \
        "frequent tokens, which is faster; empty: all tokens."), \
    NM_OPTION(T, shortlist_best, "100", 1, 1 << 24, \
        "Maximum number of target tokens of the shortlist for each source token."), \
    NM_OPTION(T, shortlist_frequent, "100", 0, 1 << 24, \
        "Number of most frequent target tokens, the first ones of the dictionary, that all translations " \
        "may contain.")
/* clang-format on */

/* path may name a compressed file. allowed: host [target size], 0 for tokens that are not selected; NULL:
 * all. Lines of the empty word NULL and of unknown tokens are ignored. The caller releases the shortlist in
 * every case. NM_FORMAT with file and line; NM_MISMATCH: most lines have unknown tokens, because the file is
 * for other dictionaries, or its languages are not those of the model; NM_IO. */
nm_status nm_shortlist_read(nm_shortlist *shortlist, const char *path, const nm_shortlist_config *config,
                            const nm_vocab *source, const nm_vocab *target, const uint8_t *allowed,
                            nm_error *err);
