/* Scores of system outputs against references: BLEU, chrF, TER, accuracy, F1 of spans, with bootstrap
 * intervals, a paired test of two systems and scores of single segments, as norma score prints them.
 * examples/score.c is a complete program.
 *
 * Metrics:
 *     bleu      Papineni et al. 2002, as sacreBLEU or as multi-bleu.perl computes it
 *     chrf      Popovic 2015, as sacreBLEU
 *     ter       translation edit rate, Snover et al. 2006, as sacreBLEU; lower is better
 *     accuracy  a segment is a label; leading and trailing spaces are ignored
 *     f1        a segment is a sentence of space-separated tags such as "B-PER I-PER O"; micro average of the
 *               spans, as seqeval; with the option score.tag_scheme = none the accuracy of classes of tokens
 *
 * All scores are percentages. A scorer may be used by any number of threads at the same time. Scores do not
 * depend on the number of threads. */
#ifndef NORMA_SCORE_H
#define NORMA_SCORE_H

#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_scorer nm_scorer;
typedef struct nm_scores nm_scores; /* of one system on one test set */

/* metric: a name of the list above. options: alternating names and values that end with NULL, or NULL. Names:
 * see `norma score --help`; the prefix "score." may be omitted:
 *     metric_variant       "sacrebleu" (default: detokenized text) or "multi-bleu" (tokens between spaces)
 *                          (bleu)
 *     tokenize             13a (default), intl, zh, char, none, ja-mecab, ko-mecab or spm (bleu, sacrebleu)
 *     spm_model            SentencePiece model of tokenize = spm (bleu)
 *     mecab_dictionary     folder of the dictionary of tokenize = ja-mecab or ko-mecab (bleu)
 *     mecab_library        shared library of tokenize = ja-mecab or ko-mecab (bleu)
 *     lowercase            "true": compare in lower case (bleu, chrf)
 *     split_compounds      "true": split hyphenated words on both sides (bleu, multi-bleu)
 *     char_order, word_order, beta                                        (chrf)
 *     ter_normalized, ter_no_punctuation, ter_asian, ter_case_sensitive   (ter)
 *     sentence             "true": BLEU of single segments without the orders that the segment does not have,
 *                          as sacreBLEU's sentence score
 *     bootstrap            number of resamples of intervals and tests; 1000; 0: none
 *     seed                 random seed of the bootstrap
 *     centered             "true": test with centered differences, as the Moses script
 * err may be NULL.
 *
 * NM_USAGE: an unknown metric, option or value, an option of another metric, NULL
 * NM_IO: the tokenizer's model cannot be read
 * NM_FORMAT: the tokenizer's model is malformed
 * NM_UNSUPPORTED: MeCab is missing; the message has the packages to install */
NM_API nm_status nm_scorer_open(nm_scorer **scorer, const char *metric, const char *const *options,
                                nm_error *err);
/* No call may be in progress. Scores remain valid. NULL is accepted. */
NM_API void nm_scorer_close(nm_scorer *scorer);

/* As nm_translator_set_proceed (norma/translator.h). */
NM_API void nm_scorer_set_proceed(nm_scorer *scorer, bool (*proceed)(void *user), void *user);

/* Scores n segments, UTF-8; a newline after a segment is ignored. references [n_references, n]: all segments
 * of the first reference, then all of the second. *scores is set on success only; free it with
 * nm_scores_free.
 *
 * NM_FORMAT: not UTF-8, a line break within it, something that is not a tag; the message has the index of the
 *     segment (from 0)
 * NM_MISMATCH: a sentence with another number of tags than its reference
 * NM_USAGE: NULL, n or n_references is 0, or several references for accuracy or f1
 * NM_INTERRUPTED */
NM_API nm_status nm_scorer_run(nm_scorer *scorer, const char *const *hypotheses, size_t n,
                               const char *const *references, size_t n_references, nm_scores **scores,
                               nm_error *err);
/* The same for files with one segment per line, which are read as streams; "-" is standard input.
 *
 * NM_IO: a file cannot be read
 * NM_FORMAT: not UTF-8; the message has file and line
 * NM_MISMATCH: files with different numbers of lines */
NM_API nm_status nm_scorer_run_files(nm_scorer *scorer, const char *hypothesis, const char *const *references,
                                     size_t n_references, nm_scores **scores, nm_error *err);
/* NULL is accepted. */
NM_API void nm_scores_free(nm_scores *scores);

/* Number of segments; 0 for NULL. */
NM_API size_t nm_scores_n(const nm_scores *scores);
/* Score of all segments together; and of one, NaN if it does not exist. */
NM_API double nm_scores_value(const nm_scores *scores);
NM_API double nm_scores_segment(const nm_scores *scores, size_t segment);
/* The line that the reference implementation prints, "BLEU = 27.15, 58.1/..."; and the signature of the
 * metric with its options, "nrefs:1|case:mixed|...". Valid until nm_scores_free. */
NM_API const char *nm_scores_line(const nm_scores *scores);
NM_API const char *nm_scores_signature(const nm_scores *scores);

/* Mean and 95 % interval of the scores of bootstrap resamples. */
typedef struct nm_interval {
    double mean, low, high;
} nm_interval;

/* Two systems, a and b. Differences are a - b. */
typedef struct nm_paired {
    double score_a, score_b; /* on the whole test set */
    nm_interval a, b, difference;
    /* Koehn 2004, one-sided: the fraction of resamples in which the better system, that with the better score
     * on the whole test set (a, if equal), is not better. With `centered`: fraction of resamples with |d_k| -
     * mean |d| >= |d|, where d is the difference on the whole test set. */
    double p;
} nm_paired;

/* nm_scorer_set_proceed for the bootstrap of these scores: nm_scores_interval, and nm_scores_compare with
 * them as a. */
NM_API void nm_scores_set_proceed(nm_scores *scores, bool (*proceed)(void *user), void *user);

/* Bootstrap interval over the segments; false if bootstrap = 0, or if the call was interrupted. */
NM_API bool nm_scores_interval(const nm_scores *scores, nm_interval *interval);
/* Paired bootstrap test of two systems that were scored with the same metric, options and references, by one
 * or two scorers.
 *
 * NM_USAGE: NULL, other metrics or options, or bootstrap = 0
 * NM_MISMATCH: references with another number of segments or another text
 * NM_INTERRUPTED */
NM_API nm_status nm_scores_compare(const nm_scores *a, const nm_scores *b, nm_paired *paired, nm_error *err);

#ifdef __cplusplus
}
#endif
#endif
