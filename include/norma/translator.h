/* Translation of text with a trained model or an ensemble: tokenizer, BPE, dictionary, search and
 * detokenization, all with the settings in the model file. examples/translate.c is a complete program.
 *
 * A translator may be used by any number of threads at the same time: they share the weights, and each call
 * has its own workspace, which is kept for later calls. A translation depends on its text and the options
 * only; it is bitwise independent of the other texts, of the number of threads and of concurrent calls. */
#ifndef NORMA_TRANSLATOR_H
#define NORMA_TRANSLATOR_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_translator nm_translator;
typedef struct nm_translations nm_translations; /* of the texts of one call */

/* Opens a model file or a run folder, of which the best model is used, or else the last one. Several paths,
 * comma-separated, form an ensemble: the probabilities of the models are averaged.
 *
 * options: alternating names and values that end with NULL, or NULL. Names: see `norma translate --help`:
 * options of [decode] and [device], translate.input_format, translate.output_format, translate.shortlist and
 * translate.alignment with their options. The section may be omitted:
 *     const char *const options[] = {"beam", "4", "nbest", "2", "device.threads", "1", NULL};
 * Options of the search that are not set have the values of the (first) model file.
 *
 * device.threads is the number of threads of one call; 0: one per core. A program that calls from many
 * threads sets it to 1. err may be NULL.
 *
 * NM_USAGE: unknown option or value, or NULL
 * NM_IO: the file cannot be read
 * NM_FORMAT: it is malformed
 * NM_UNSUPPORTED: a model of another task
 * NM_MISMATCH: models with different dictionaries
 * NM_MEMORY */
NM_API nm_status nm_translator_open(nm_translator **translator, const char *path, const char *const *options,
                                    nm_error *err);
/* No call may be in progress. Translations remain valid. NULL is accepted. */
NM_API void nm_translator_close(nm_translator *translator);

/* The value of an option of the (first) model as text, such as "model.norm", with the changes of `options`;
 * NULL: there is no such option. And a warning about the device, such as fewer threads than requested; NULL:
 * none. Valid until nm_translator_close. */
NM_API const char *nm_translator_option(const nm_translator *translator, const char *name);
NM_API const char *nm_translator_warning(const nm_translator *translator);

/* Ends the calls in progress: they return NM_INTERRUPTED, after at most the current step of a batch. Later
 * calls are not affected. May be called from another thread or a signal handler. NULL is accepted. */
NM_API void nm_translator_stop(nm_translator *translator);
/* Registers a callback that is polled about every 20 ms during later calls of this thread, in this thread: if
 * proceed(user) returns false, the call ends with NM_INTERRUPTED. Pass NULL to unregister it before the
 * thread ends. */
NM_API void nm_translator_set_proceed(nm_translator *translator, bool (*proceed)(void *user), void *user);

/* Maximum number of source tokens of a text, including the EOS token; 0 for NULL. */
NM_API int32_t nm_translator_max_tokens(const nm_translator *translator);
/* Number of translations per text: decode.nbest; 0 for NULL. */
NM_API int32_t nm_translator_nbest(const nm_translator *translator);

/* Translates n texts, UTF-8, one sentence each; a newline after a text is ignored. *translations is set on
 * success only; free it with nm_translations_free. A batch of many texts is faster than many calls.
 *
 * Texts that are too long are no error: they have no translation.
 *
 * NM_FORMAT: not UTF-8, or a line break within a text; the message has the index of the text (from 0)
 * NM_USAGE: an argument is NULL
 * NM_DIVERGED: the model's probabilities are not finite
 * NM_INTERRUPTED
 * NM_MEMORY */
NM_API nm_status nm_translator_run(nm_translator *translator, const char *const *texts, size_t n,
                                   nm_translations **translations, nm_error *err);
/* The same with the beginning of each translation given: prefixes[i] of texts[i], UTF-8, whole words,
 * prepared as the training text; "": no prefix. The format is translate.output_format. The text, tokens and
 * scores of a translation include the prefix. nm_translations_too_long: the text or its prefix. */
NM_API nm_status nm_translator_run_prefixes(nm_translator *translator, const char *const *texts,
                                            const char *const *prefixes, size_t n,
                                            nm_translations **translations, nm_error *err);
/* Lexically constrained translation (Post and Vilar 2018, Hu et al. 2019): every translation of text i
 * contains the phrases of constraints[i], which are separated by tabs, at most 64, in the format of
 * translate.output_format. "": no phrase. prefixes: as above, or NULL. A text has no translation if the
 * phrases do not fit into the model's positions. Further errors as nm_translator_run.
 *
 * NM_USAGE: more phrases, or a search other than fairseq's beam search without groups
 * NM_MISMATCH: a phrase with characters that the model cannot produce */
NM_API nm_status nm_translator_run_constraints(nm_translator *translator, const char *const *texts,
                                               const char *const *prefixes, const char *const *constraints,
                                               size_t n, nm_translations **translations, nm_error *err);
/* Log probabilities of n given translations (forced decoding): targets[i] of sources[i], UTF-8, prepared as
 * the training text. Every pair has one translation, the target, whose score and token scores are bitwise
 * identical to those that nm_translator_run gives a translation of the same tokens. A target without words
 * consists of the EOS token; a source without words has no translation. nm_translations_too_long: source or
 * target. The log probability of a token that the model may not output (data.mask_words) is -infinity. The
 * format of the targets is translate.output_format.
 *
 * Errors as nm_translator_run. */
NM_API nm_status nm_translator_score(nm_translator *translator, const char *const *sources,
                                     const char *const *targets, size_t n, nm_translations **translations,
                                     nm_error *err);
/* NULL is accepted. */
NM_API void nm_translations_free(nm_translations *translations);

/* The accessors below return 0 or NULL for a text, rank or token that does not exist. What they return is
 * valid until nm_translations_free. */

/* Number of texts of the call. */
NM_API size_t nm_translations_n(const nm_translations *translations);
/* Number of translations of a text: at most decode.nbest; 0 for an empty text and for one that is too
 * long. */
NM_API size_t nm_translations_count(const nm_translations *translations, size_t text);
/* Whether the text has more tokens than the model has positions, or more than 1 MiB, and was therefore not
 * translated. */
NM_API bool nm_translations_too_long(const nm_translations *translations, size_t text);
/* The translation of a rank, best first from 0; UTF-8. */
NM_API const char *nm_translations_text(const nm_translations *translations, size_t text, size_t rank);
/* Sum of the log probabilities of the tokens, divided by the length penalty. */
NM_API double nm_translations_score(const nm_translations *translations, size_t text, size_t rank);
/* Target tokens of a translation as in the dictionary: their number, each token, and the log probabilities of
 * all [number of tokens]. The last one is the EOS token, except with decode.search = tears if the length
 * limit was reached. */
NM_API size_t nm_translations_n_tokens(const nm_translations *translations, size_t text, size_t rank);
NM_API const char *nm_translations_token(const nm_translations *translations, size_t text, size_t rank,
                                         size_t token);
NM_API const double *nm_translations_token_scores(const nm_translations *translations, size_t text,
                                                  size_t rank);

/* A word of a translation, separated from others by whitespace. */
typedef struct nm_translation_word {
    size_t begin, end; /* bytes of the translation's text */
    double score;      /* sum of the log probabilities of its tokens */
    int32_t source;    /* the word of the source text with the highest attention weight, from 0; -1: none */
} nm_translation_word;

/* The words of a translation, if the translator was opened with translate.alignment = true: their number, and
 * the array. The attention is the cross-attention of decoder layer translate.alignment_layer (0: the
 * penultimate one) in the steps that predict the tokens. It is taken from translate.alignment_head, or by
 * default averaged over all heads; with guided alignment, the default is the trained head. The attention of a
 * word is the sum over its tokens (Garg et al. 2019, section 4.1). The words of the source text are separated
 * by whitespace, too. */
NM_API size_t nm_translations_n_words(const nm_translations *translations, size_t text, size_t rank);
NM_API const nm_translation_word *nm_translations_words(const nm_translations *translations, size_t text,
                                                        size_t rank);

#ifdef __cplusplus
}
#endif
#endif
