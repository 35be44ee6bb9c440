/* Corpus BLEU (Papineni et al. 2002) from statistics per segment, which validation, bootstrap and paired
 * tests share: count each segment, add the counts, compute the score of the sum.
 *
 * Three variants reproduce the results of other implementations:
 *     multi-bleu      Moses' multi-bleu.perl: words between ASCII spaces, no smoothing, -lc for ASCII letters
 *                     only
 *     sacrebleu-13a   sacreBLEU 2.x with its defaults: mteval-v13a tokens, exponential smoothing, Unicode
 *                     lower case
 *     token ids       fairseq's BLEU during training: unknown tokens of the reference never match */
#pragma once

#include "text/metric_tokenizer.h"
#include "norma/choice.h"

#define NM_BLEU_ORDER 4

/* NM_BLEU_SACRE_13A: sacreBLEU, with the tokenizer 13a unless another one is set. */
#define NM_BLEU_VARIANTS(C) C(NM_BLEU_MULTI, "multi-bleu") C(NM_BLEU_SACRE_13A, "sacrebleu")
NM_CHOICES(nm_bleu_variant, NM_BLEU_VARIANTS);

/* {0} is multi-bleu with its defaults. */
typedef struct nm_bleu_config {
    nm_bleu_variant variant;
    bool lowercase;
    bool split_compounds; /* replace hyphens within words with " ##AT##-##AT## " before tokenization */
    const nm_metric_tokenizer *tokenizer; /* for sacreBLEU; NULL: 13a; must outlive the counter */
    bool effective_order; /* ignore orders without n-grams in the hypothesis; for scores of single segments */
} nm_bleu_config;

/* Counts of a segment or a sum of segments. All fields are int64_t, so that rows of counts (nm_counts) have
 * this layout. */
typedef struct nm_bleu_stats {
    int64_t matches[NM_BLEU_ORDER], totals[NM_BLEU_ORDER], hyp_len, ref_len;
} nm_bleu_stats;
#define NM_BLEU_COUNTS ((int)(sizeof(nm_bleu_stats) / sizeof(int64_t)))

typedef struct nm_bleu_score {
    double bleu;                      /* 0 to 100 */
    double precisions[NM_BLEU_ORDER]; /* 0 to 100, smoothed where the variant smooths */
    double brevity_penalty, ratio;
    int64_t hyp_len, ref_len;
} nm_bleu_score;

/* Workspace of one thread. */
typedef struct nm_bleu nm_bleu;
nm_bleu *nm_bleu_create(const nm_bleu_config *config);
void nm_bleu_free(nm_bleu *bleu);

/* Counts one segment. Texts are NUL-terminated. ref_len is the reference length closest to that of the
 * hypothesis, the smaller one of two equally close ones. */
void nm_bleu_count(nm_bleu *bleu, const char *hypothesis, const char *const *references, int n_references,
                   nm_bleu_stats *out);

/* The same for token ids >= 0; padding at the start and padding and eos at the end are ignored. */
typedef struct nm_bleu_marks {
    int32_t pad, eos, unk;
} nm_bleu_marks;
void nm_bleu_count_ids(nm_bleu *bleu, nm_bleu_marks marks, const int32_t *hypothesis, size_t hyp_len,
                       const int32_t *reference, size_t ref_len, nm_bleu_stats *out);

void nm_bleu_add(nm_bleu_stats *sum, const nm_bleu_stats *one);
nm_bleu_score nm_bleu_compute(const nm_bleu_config *config, const nm_bleu_stats *sum);
/* nm_bleu_compute(...).bleu for a row of counts, for nm_bootstrap_*; context is a const nm_bleu_config *. */
double nm_bleu_of_counts(const int64_t *counts, const void *context);

/* The line that the reference implementation prints, without a newline: "BLEU = 35.87, 69.5/..." or
 * "BLEU|nrefs:1|... = 35.9 69.5/... (BP = ...". The caller frees it. */
char *nm_bleu_line(const nm_bleu_config *config, const nm_bleu_score *score, int n_references);
/* "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:norma-X". The caller frees it. */
char *nm_bleu_signature(const nm_bleu_config *config, int n_references);
