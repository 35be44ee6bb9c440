/* The steps of text preparation as filters of single lines, and lexical shortlists of data folders. `norma
 * tokenize`, `detokenize`, `subword`, `normalize` and `shortlist` are programs over this header:
 *
 *     const char *const options[] = {"tokenizer", "moses", "language", "de", NULL};
 *     nm_text_filter *filter;
 *     const char *tokens;
 *     if (nm_text_filter_open(&filter, NM_STEP_TOKENIZE, options, &err) == NM_OK &&
 *         nm_text_filter_run(filter, "Hallo, Welt!", &tokens, &err) == NM_OK)
 *         puts(tokens);
 *     nm_text_filter_close(filter); */
#ifndef NORMA_TEXT_H
#define NORMA_TEXT_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum nm_text_step {
    NM_STEP_TOKENIZE,   /* text to tokens, separated by spaces */
    NM_STEP_DETOKENIZE, /* tokens to text */
    NM_STEP_SUBWORD,    /* text to the subwords that a model reads */
    NM_STEP_NORMALIZE   /* text to normalized text */
} nm_text_step;

typedef struct nm_text_filter nm_text_filter;

/* Opens a filter, which one thread at a time may use. options: alternating names and values that end with
 * NULL, or NULL. Names: see `norma tokenize --help`; the prefix "text." may be omitted. With "like", a data
 * folder, model file or run folder has the settings. *filter is set on success only. err may be NULL.
 *
 * NM_USAGE: unknown option or value, or an option that has no effect
 * NM_IO: a file cannot be read
 * NM_FORMAT: a file is malformed
 * NM_MEMORY */
NM_API nm_status nm_text_filter_open(nm_text_filter **filter, nm_text_step step, const char *const *options,
                                     nm_error *err);
/* NULL is accepted. */
NM_API void nm_text_filter_close(nm_text_filter *filter);
/* A warning, such as a language without abbreviations, or NULL. Valid until nm_text_filter_close. */
NM_API const char *nm_text_filter_warning(const nm_text_filter *filter);
/* Filters one line of UTF-8; a newline at its end is ignored. *result: without a newline, valid until the
 * next call.
 *
 * NM_USAGE: an argument is NULL
 * NM_FORMAT: not UTF-8, or a line break within the line
 * NM_MEMORY */
NM_API nm_status nm_text_filter_run(nm_text_filter *filter, const char *line, const char **result,
                                    nm_error *err);

typedef struct nm_shortlist_summary {
    int64_t entries, sources; /* of the file: lines, and source tokens that have one */
    int64_t pairs;            /* sentence pairs that were used */
    double perplexity;        /* per target token */
} nm_shortlist_summary;

/* Learns the lexical shortlist of a data folder by IBM Model 1 (Brown et al. 1993) and writes it to `output`,
 * atomically. options: alternating names and values that end with NULL, or NULL. Names: see `norma shortlist
 * --help`; the prefix "shortlist." may be omitted. summary and err may be NULL.
 *
 * NM_USAGE: unknown option or value
 * NM_IO: a file cannot be read or written
 * NM_FORMAT: a file of the folder is malformed
 * NM_MISMATCH: the folder has no two languages
 * NM_MEMORY */
NM_API nm_status nm_shortlist_learn(const char *folder, const char *output, const char *const *options,
                                    nm_shortlist_summary *summary, nm_error *err);

#ifdef __cplusplus
}
#endif
#endif
