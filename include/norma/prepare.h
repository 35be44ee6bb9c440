/* Data folders for training from raw text: tokenization, filters, BPE or SentencePiece, dictionaries and ids,
 * as norma prepare writes them. The files are described in docs/formats.md, and are bitwise identical to
 * the same as with the program. examples/prepare.c is a complete program. */
#ifndef NORMA_PREPARE_H
#define NORMA_PREPARE_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_prepared nm_prepared; /* what was read and written */

typedef struct nm_prepare_progress {
    const char *step; /* "sentencepiece"; "train", "valid", "test" while a split is read; "subwords"; "ids" */
    int64_t lines;    /* of the split so far; 0 in other steps */
} nm_prepare_progress;

/* Called from nm_prepare_folder, in the thread that called it; what they receive is valid during the call.
 * Any function may be NULL. */
typedef struct nm_prepare_events {
    void *user; /* first argument of the functions */
    /* At the start of every step and after every block of lines. false ends the preparation with
     * NM_INTERRUPTED. */
    bool (*progress)(void *user, const nm_prepare_progress *progress);
    /* A warning; lines after the first one are examples. */
    void (*message)(void *user, const char *text);
} nm_prepare_events;

/* Prepares a data folder. settings: the path of an INI file with a section [prepare], such as data.ini of a
 * data folder, or its text if that contains a line break; or NULL. options: alternating names and values that
 * end with NULL, or NULL. They take precedence over settings. Names: see `norma prepare --help`; the prefix
 * "prepare." may be omitted:
 *     const char *const options[] = {"train", "corpus/train", "valid", "corpus/valid", "source_lang", "de",
 *                                    "target_lang", "en", "output", "data/de-en", "bpe_merges", "8000",
 *                                    NULL};
 * *prepared is set on success only; free it with nm_prepared_free. prepared may be NULL.
 *
 * A folder that exists is replaced as a whole, after everything has been computed: after an error or an
 * interruption its files are as before. err may be NULL.
 *
 * NM_USAGE: unknown option or value, options that exclude each other, the folder of a run as output
 * NM_FORMAT: text that is not UTF-8; the message has file, line and byte
 * NM_MISMATCH: sides with different numbers of lines, filters that leave nothing
 * NM_IO: a file cannot be read or written, or another process is writing the folder
 * NM_UNSUPPORTED: spm_train is missing
 * NM_INTERRUPTED
 * NM_MEMORY */
NM_API nm_status nm_prepare_folder(nm_prepared **prepared, const char *settings, const char *const *options,
                                   const nm_prepare_events *events, nm_error *err);
/* NULL is accepted. */
NM_API void nm_prepared_free(nm_prepared *prepared);

/* The accessors below return 0, NULL or false for what does not exist. Texts are valid until
 * nm_prepared_free. */

/* The path of the data folder; and the number of its sides: 2, or 1 for plain text. */
NM_API const char *nm_prepared_folder(const nm_prepared *prepared);
NM_API int32_t nm_prepared_n_sides(const nm_prepared *prepared);
/* What the numbers of lines count: "pairs", or "lines" or "documents" of plain text. NULL for NULL. */
NM_API const char *nm_prepared_unit(const nm_prepared *prepared);
/* Number of BPE merges. */
NM_API int64_t nm_prepared_merges(const nm_prepared *prepared);

/* A side of the text. */
typedef struct nm_prepared_side {
    const char *name;                       /* "source", "target"; "text" of plain text */
    int64_t word_types, dictionary, pieces; /* sizes; pieces of the SentencePiece model, 0 without one */
} nm_prepared_side;
NM_API bool nm_prepared_get_side(const nm_prepared *prepared, int32_t side, nm_prepared_side *out);

/* A split: 0 train, 1 valid, 2 test. Arrays are indexed by the side. */
typedef struct nm_prepared_split {
    const char *name;
    int64_t lines, kept;           /* lines, pairs of lines or documents */
    int64_t held_out;              /* of the training pairs: the validation set of valid_every */
    int64_t words[2];              /* of the kept lines, before BPE */
    int64_t tokens[2], unknown[2]; /* after BPE, without the EOS token */
    int64_t links;                 /* of the training pairs: word alignments, as links of subwords */
    int64_t repeated;    /* of valid or test: also in the training text; see nm_prepared_get_split */
    const char *columns; /* lines that describe which columns of tables have been read; NULL: no tables */
} nm_prepared_split;
/* false also for a split that was not given. Of plain text, `repeated` counts lines and documents of 5 words
 * or more; it is 0 if a document is a whole file. */
NM_API bool nm_prepared_get_split(const nm_prepared *prepared, int32_t split, nm_prepared_split *out);

/* Why lines of a split were dropped. */
typedef struct nm_prepared_drop {
    const char *reason; /* "too long" */
    const char *option; /* that controls it, "prepare.max_length"; "" if none does */
    int64_t lines;
} nm_prepared_drop;
/* Reason number index, from 0, of those with lines. */
NM_API bool nm_prepared_get_drop(const nm_prepared *prepared, int32_t split, size_t index,
                                 nm_prepared_drop *out);

#ifdef __cplusplus
}
#endif
#endif
