/* The metrics of norma score and norma/score.h: a table of functions over rows of counts, one row per
 * segment, and their options. */
#pragma once

#include "base/stop.h"
#include "text/bleu.h"
#include "base/bootstrap.h"
#include "text/chrf.h"
#include "text/ter.h"
#include "norma/option.h"

/* How lines of tags are read: spans of marked tags, runs of equal labels, or a class of each token. */
#define NM_TAG_NOTATIONS(C)                                                                                  \
    C(NM_TAG_NOTATION_MARKS, "marks") C(NM_TAG_NOTATION_IO, "io") C(NM_TAG_NOTATION_NONE, "none")
NM_CHOICES(nm_tag_notation, NM_TAG_NOTATIONS);

typedef struct nm_score_metric nm_score_metric;

/* A metric and the configurations of all metrics, of which only its own is used. */
typedef struct nm_score_config {
    const nm_score_metric *metric;
    nm_bleu_config bleu;
    nm_chrf_config chrf;
    nm_ter_config ter;
    nm_tag_notation tags;
    const nm_stop *stop; /* of the counting of segments; NULL: none */
} nm_score_config;

struct nm_score_metric {
    const char *name;
    bool labels;        /* segments are labels: a byte order mark is no part of the first one */
    bool one_reference; /* does not support several references */
    /* Prefixes of its options in [score] that do not apply to all metrics, each followed by a space. */
    const char *options;
    int (*n_counts)(const nm_score_config *config);
    /* Creates and frees the workspace of one thread; both NULL: none is needed. */
    void *(*create)(const nm_score_config *config);
    void (*free)(void *workspace);
    /* Counts a segment. NM_FORMAT, NM_MISMATCH: the segment is invalid for this metric. */
    nm_status (*count)(void *workspace, const char *hypothesis, const char *const *references,
                       int n_references, int64_t *row, nm_error *err);
    /* Called after the last segment; NM_FORMAT if the segments are not what the metric expects. NULL: no
     * check. */
    nm_status (*check)(const void *workspace, nm_error *err);
    /* Score of a row or a sum of rows. */
    double (*score)(const nm_score_config *config, const int64_t *counts);
    /* The line that norma score prints for a sum of rows, and the signature. The caller frees them. */
    char *(*line)(const nm_score_config *config, const int64_t *sum, int n_references);
    char *(*signature)(const nm_score_config *config, int n_references);
};

/* The metric with this name, or NULL. */
const nm_score_metric *nm_score_metric_find(const char *name);
#define NM_SCORE_METRICS "bleu, chrf, ter, accuracy, f1"

/* metric->score, for nm_counts_score and nm_bootstrap_*; context is a const nm_score_config *. */
double nm_score_of_config(const int64_t *counts, const void *context);

/* Options of [score]: fields of a configuration and option rows of its section. */
#define NM_SCORE_FIELDS                                                                                      \
    nm_bleu_variant metric_variant;                                                                          \
    nm_tag_notation tag_scheme;                                                                              \
    const char *tokenize, *spm_model, *mecab_dictionary, *mecab_library;                                     \
    bool lowercase, split_compounds;                                                                         \
    int64_t char_order, word_order;                                                                          \
    double beta;                                                                                             \
    int64_t bootstrap, seed;                                                                                 \
    bool ter_normalized, ter_no_punctuation, ter_asian, ter_case_sensitive, centered, sentence

/* clang-format off */
#define NM_SCORE_ROWS(T) \
    NM_CHOICE(T, metric_variant, "sacrebleu", NM_BLEU_VARIANTS, \
              "BLEU as sacreBLEU computes it, of detokenized text, with its own tokenization and " \
                  "smoothing; or as multi-bleu.perl, of the given tokens."), \
    NM_WORD(T, tokenize, "13a", NM_METRIC_TOKENIZERS, \
              "Tokenizer of sacreBLEU: intl for European text, zh for Chinese, ja-mecab for Japanese " \
                  "words, ko-mecab for Korean words, char for characters, none, or spm for a SentencePiece " \
                  "model."), \
    NM_OPTION(T, spm_model, "", 0, 0, "SentencePiece model of --tokenize spm, such as that of flores200."), \
    NM_OPTION(T, mecab_dictionary, "", 0, 0, \
        "Folder of MeCab's dictionary for --tokenize ja-mecab (IPA dictionary; " \
        "empty: that of Debian's mecab-ipadic-utf8) or ko-mecab (mecab-ko-dic; empty: that in " \
        "/usr/local)."), \
    NM_OPTION(T, mecab_library, "", 0, 0, \
        "Shared library of MeCab for --tokenize ja-mecab, or of MeCab-ko for ko-mecab; " \
        "empty: libmecab.so.2."), \
    NM_OPTION(T, lowercase, "false", 0, 0, "Compare in lower case (BLEU, chrF)."), \
    NM_OPTION(T, split_compounds, "false", 0, 0, \
        "Split hyphenated words into WORD ##AT##-##AT## WORD on both sides (multi-bleu)."), \
    NM_OPTION(T, char_order, "6", 1, NM_CHRF_MAX_ORDER, "Order of the longest character n-grams (chrF)."), \
    NM_OPTION(T, word_order, "0", 0, NM_CHRF_MAX_ORDER, \
        "Order of the longest word n-grams (chrF); 2 is chrF++."), \
    NM_OPTION(T, beta, "2", 0.001, 1000, "Weight of recall relative to precision (chrF)."), \
    NM_OPTION(T, ter_normalized, "false", 0, 0, "Split off punctuation (TER)."), \
    NM_OPTION(T, ter_no_punctuation, "false", 0, 0, "Remove punctuation (TER)."), \
    NM_OPTION(T, ter_asian, "false", 0, 0, \
        "With --ter-normalized, split CJK characters; with --ter-no-punctuation, remove their punctuation " \
        "(TER)."), \
    NM_OPTION(T, ter_case_sensitive, "false", 0, 0, "Distinguish upper and lower case (TER)."), \
    NM_CHOICE(T, tag_scheme, "marks", NM_TAG_NOTATIONS, \
        "Tags: marks: B-PER, O or B alone; io: labels without marks, a run of equal ones is a span; none: " \
        "classes such as parts of speech, whose score is the accuracy (F1)."), \
    NM_OPTION(T, bootstrap, "1000", 0, 10000000, \
        "Number of bootstrap resamples for interval and test; 0: no interval."), \
    NM_OPTION(T, seed, "1", 0, 9e15, "Random seed of the bootstrap."), \
    NM_OPTION(T, centered, "false", 0, 0, \
        "Test with centered differences, as the Moses script, instead of Koehn's test."), \
    NM_OPTION(T, sentence, "false", 0, 0, "Print the score of every line instead of the corpus score.")
/* clang-format on */

extern const nm_option_rule nm_score_rules[];
