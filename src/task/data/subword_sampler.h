/* Subword regularization: the segmentation of the training text is sampled anew for each epoch, by
 * BPE-dropout (Provilkov et al. 2020) or by sampling from a SentencePiece model (Kudo 2018).
 *
 * The text is restored from the stored subwords, so the data folder does not need to contain it. The
 * segmentation of a line depends on seed, epoch and line only, not on the number of threads or processes or
 * on a resume. The stored segmentation is used for
 *   - words with <unk> (with SentencePiece, only <unk> itself),
 *   - text whose sampled segmentation contains a subword that is not in the dictionary,
 *   - words of more than NM_BPE_SAMPLE_MAX_WORD bytes (BPE),
 *   - lines whose sampled segmentation is longer than max_length. */
#pragma once

#include "base/corpus.h"
#include "norma/option.h"
#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

typedef struct nm_subword_sampling {
    double dropout; /* probability of BPE-dropout; 0: none */
    double alpha;   /* exponent of the probabilities of a unigram model; 0: none */
    int64_t nbest;  /* with alpha: sample from the nbest segmentations; 0: from all */
} nm_subword_sampling;

/* Options of a section [data] whose configuration has the member `sampling`. */
/* clang-format off */
#define NM_SUBWORD_SAMPLING_OPTIONS(config) \
    {"subword_dropout", NM_KIND(((config *)0)->sampling.dropout), offsetof(config, sampling.dropout), "0", \
        0, 1, NULL, \
        "BPE-dropout: probability that a merge is skipped in the segmentation of the training text, " \
        "sampled anew for each epoch; for BPE codes and SentencePiece models of type bpe; 0: none."}, \
    {"subword_sampling", NM_KIND(((config *)0)->sampling.alpha), offsetof(config, sampling.alpha), "0", 0, \
        1e3, NULL, \
        "Subword sampling: exponent alpha of the probabilities of a SentencePiece model of type unigram, " \
        "from which the segmentation of the training text is sampled anew for each epoch; 0: none."}, \
    {"subword_nbest", NM_KIND(((config *)0)->sampling.nbest), offsetof(config, sampling.nbest), "0", 0, \
        1024, NULL, \
        "Number of best segmentations for subword sampling; 0: all segmentations."}
/* clang-format on */
extern const nm_option_rule nm_subword_sampling_rules[];

/* One side of the training text. All objects it points to must outlive the sampler. */
typedef struct nm_subword_source {
    const nm_corpus *corpus;
    const nm_vocab *vocab;
    const char *settings, *codes; /* contents of data.ini and codes.bpe; codes may be NULL */
    const nm_spm *spm;            /* NULL: BPE */
    int64_t max_length;           /* maximum length of a line in tokens, with </s>; 0: no limit */
    uint64_t seed;
    uint32_t side;   /* 0 or 1, for the random numbers */
    int32_t threads; /* 0: all cores */
} nm_subword_source;

typedef struct nm_subword_sampler nm_subword_sampler;

/* *sampler is NULL without an error if `sampling` disables sampling. NM_USAGE if the data folder does not
 * have the subword model that the method needs, or a dictionary that lacks subwords that can be sampled. */
nm_status nm_subword_sampler_create(nm_subword_sampler **sampler, const nm_subword_sampling *sampling,
                                    const nm_subword_source *source, nm_error *err);
void nm_subword_sampler_free(nm_subword_sampler *sampler);

/* The training text with the segmentation of an epoch; valid until the next call. */
const nm_corpus *nm_subword_sampler_sample(nm_subword_sampler *sampler, uint32_t epoch);
