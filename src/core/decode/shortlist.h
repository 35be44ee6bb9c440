/* Lexical shortlists: the target tokens that the translation of a source may contain are the likely translations of its tokens
 * and the most frequent tokens. The output layer is computed for them only, and their probabilities have the sum 1.
 *
 * A shortlist is read from a text file of lines "TARGET SOURCE PROBABILITY" (the format of Marian), which norma shortlist
 * writes. Its first line has the languages; Marian ignores it as a translation of the empty word. A shortlist is immutable, so
 * threads may share it. */
#ifndef NM_SHORTLIST_H
#define NM_SHORTLIST_H

#include "norma/option.h"
#include "text/vocab.h"

typedef struct nm_shortlist {
    int32_t source_size, target_size;
    size_t *offsets;  /* [source_size + 1] */
    int32_t *targets; /* of source token s: targets[offsets[s]] .. targets[offsets[s + 1] - 1] */
    nm_ids always;    /* the most frequent target tokens, eos, unk */
    uint8_t *allowed; /* [target_size] 1 for tokens that may be selected; NULL: all */
} nm_shortlist;

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
    NM_OPTION(T, shortlist, "", 0, 0, "File of norma shortlist: translations contain only likely translations of the source tokens, and frequent tokens, which is faster; empty: all tokens."), \
    NM_OPTION(T, shortlist_best, "100", 1, 1 << 24, "Maximum number of target tokens of the shortlist for each source token."), \
    NM_OPTION(T, shortlist_frequent, "100", 0, 1 << 24, "Number of most frequent target tokens, the first ones of the dictionary, that all translations may contain.")
/* clang-format on */

/* path may name a compressed file. allowed: host [target size], 0 for tokens that are not selected; NULL: all. Lines of the
 * empty word NULL and of unknown tokens are ignored. The caller releases the shortlist in every case. NM_FORMAT with file and
 * line; NM_MISMATCH: most lines have unknown tokens, because the file is for other dictionaries, or its languages are not those
 * of the model; NM_IO. */
nm_status nm_shortlist_read(nm_shortlist *shortlist, const char *path, const nm_shortlist_config *config,
                            const nm_vocab *source, const nm_vocab *target, const uint8_t *allowed,
                            nm_error *err);
void nm_shortlist_release(nm_shortlist *shortlist);

/* Appends the selected tokens of a source to *selected, ascending, each once: the translations of its n ids, the frequent
 * tokens, and the required ones that are allowed. mark: [target size], zero at the call and afterwards. */
void nm_shortlist_select(const nm_shortlist *shortlist, const int32_t *ids, int32_t n, const nm_ids *required,
                         uint8_t *mark, nm_ids *selected);

#endif
