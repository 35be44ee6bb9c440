/* Subword regularization: the segmentation of the training text is sampled anew for each epoch, by BPE-dropout (Provilkov et
 * al. 2020) or by sampling from a SentencePiece model (Kudo 2018).
 *
 * The text is that of the stored subwords, so a data folder needs nothing else. The draw of a line is a function of seed,
 * epoch and line: it depends neither on the number of threads or processes nor on a resume. These keep their stored
 * segmentation: words with <unk> (with SentencePiece only <unk> itself), words for which a subword outside the dictionary is
 * drawn, words of more than NM_BPE_SAMPLE_MAX_WORD bytes, and lines that would become longer than the limit. */
#ifndef NM_SUBWORD_SAMPLER_H
#define NM_SUBWORD_SAMPLER_H

#include "data/corpus.h"
#include "norma/option.h"
#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

typedef struct nm_subword_sampling {
    double dropout, alpha; /* of merges; exponent of the probabilities of a unigram model; 0: none */
    int64_t nbest;         /* with alpha: sampling from the best segmentations; 0: from all */
} nm_subword_sampling;

/* Options of a section [data] whose configuration has the member `sampling`. */
/* clang-format off */
#define NM_SUBWORD_SAMPLING_OPTIONS(config)                                                                            \
    {"subword_dropout", NM_KIND(((config *)0)->sampling.dropout), offsetof(config, sampling.dropout), "0", 0, 1, NULL, "BPE-dropout: probability that a merge is skipped in the segmentation of the training text, sampled anew for each epoch; for BPE codes and SentencePiece models of type bpe; 0: none."}, \
    {"subword_sampling", NM_KIND(((config *)0)->sampling.alpha), offsetof(config, sampling.alpha), "0", 0, 1e3, NULL, "Subword sampling: exponent alpha of the probabilities of a SentencePiece model of type unigram, from which the segmentation of the training text is sampled anew for each epoch; 0: none."}, \
    {"subword_nbest", NM_KIND(((config *)0)->sampling.nbest), offsetof(config, sampling.nbest), "0", 0, 1024, NULL, "Number of best segmentations for subword sampling; 0: all segmentations."}
/* clang-format on */
extern const nm_option_rule nm_subword_sampling_rules[];

/* One side of the training text. What it refers to must outlive the sampler. */
typedef struct nm_subword_source {
    const nm_corpus *corpus;
    const nm_vocab *vocab;
    const char *settings, *codes; /* texts of data.ini and codes.bpe (NULL: none) */
    const nm_spm *spm;            /* NULL: none */
    int64_t max_length;           /* of a line in tokens with </s>; 0: no limit */
    uint64_t seed;
    uint32_t side;   /* for random numbers */
    int32_t threads; /* 0: all cores */
} nm_subword_source;

typedef struct nm_subword_sampler nm_subword_sampler;

/* *sampler is NULL if the configuration is without sampling. NM_USAGE if the data folder has no subwords that can be sampled,
 * or a dictionary without all of them. */
nm_status nm_subword_sampler_create(nm_subword_sampler **sampler, const nm_subword_sampling *sampling,
                                    const nm_subword_source *source, nm_error *err);
void nm_subword_sampler_free(nm_subword_sampler *sampler);

/* The text in the segmentation of an epoch; valid until the next draw. */
const nm_corpus *nm_subword_sampler_draw(nm_subword_sampler *sampler, uint32_t epoch);

#endif
