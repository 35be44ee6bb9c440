/* Translation of packed id sequences by greedy or beam search, under one model or an ensemble.
 *
 * A sentence's result depends on nothing but the sentence: batches, their order and the number of threads leave it
 * the same to the last bit. */
#ifndef NM_DECODE_H
#define NM_DECODE_H

#include "model/model.h"

typedef struct nm_decode_options { /* section [decode] */
    const char *preset;
    enum { NM_SEARCH_FAIRSEQ, NM_SEARCH_TEARS } search;
    enum { NM_PENALTY_POWER, NM_PENALTY_GNMT } length_penalty;
    double alpha, max_length_a;
    int64_t beam, max_length_b, min_length, nbest, batch_tokens;
} nm_decode_options;

/* Registers [decode]. */
nm_decode_options *nm_decode_options_add(nm_options *options);

/* Which ids are special. first: what the target input begins with; pad: never an output, -1 when there is none. */
typedef struct nm_decode_words {
    int32_t first, eos, pad;
} nm_decode_words;

typedef struct nm_hypothesis {
    int32_t *ids; /* ends with eos unless the search was cut off */
    int32_t n;
    double score;         /* after the length penalty */
    double *token_scores; /* [n] log probabilities */
} nm_hypothesis;

/* The best hypotheses of one sentence, best first. Without any (n = 0) when the source was empty or longer than the
 * model's positions. */
typedef struct nm_translation {
    nm_hypothesis *list;
    int32_t n;
} nm_translation;

typedef struct nm_id_list { /* one source, ending with eos */
    const int32_t *ids;
    int32_t n;
} nm_id_list;

typedef struct nm_decoder nm_decoder;

/* Takes over the models' parameters as they are now: they must stay so until nm_decoder_refresh, and the models must outlive
 * the decoder. NM_MISMATCH: models of different vocabularies; NM_UNSUPPORTED: no translation models; NM_MEMORY. */
nm_status nm_decoder_create(nm_decoder **decoder, nm_model *const *models, int32_t n_models,
                            const nm_decode_options *options, const nm_decode_words *words, nm_error *err);
void nm_decoder_free(nm_decoder *decoder);
/* After the parameters have changed. */
nm_status nm_decoder_refresh(nm_decoder *decoder, nm_error *err);

/* Most tokens of a source that can be translated, eos included. */
int32_t nm_decoder_longest(const nm_decoder *decoder);

/* Translates into out[0 .. n-1] (release each). NM_DIVERGED when the models'
 * outputs are not numbers, NM_MEMORY; then out holds nothing. */
nm_status nm_decode(nm_decoder *decoder, const nm_id_list *sources, size_t n, nm_translation *out,
                    nm_error *err);
void nm_translation_release(nm_translation *translation);

/* Length of a hypothesis without its eos. */
int32_t nm_hypothesis_words(const nm_hypothesis *hypothesis, int32_t eos);

/* What n words, eos included, divide the sum of log probabilities by. */
double nm_length_penalty(const nm_decode_options *options, int32_t n);

#endif
