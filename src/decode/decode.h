/* Translation of token sequences by greedy, beam or diverse beam search (Vijayakumar et al. 2018) or by sampling, with one model
 * or an ensemble.
 *
 * Deterministic: the translation of a sentence is bitwise independent of the batch, the order of sentences and the number
 * of threads. */
#ifndef NM_DECODE_H
#define NM_DECODE_H

#include "decode/constraints.h"
#include "model/model.h"

typedef struct nm_decode_options { /* section [decode] */
    const char *preset;
    enum { NM_SEARCH_FAIRSEQ, NM_SEARCH_TEARS, NM_SEARCH_SAMPLE } search;
    enum { NM_PENALTY_POWER, NM_PENALTY_GNMT } length_penalty;
    double alpha, max_length_a;
    int64_t beam, max_length_b, min_length, nbest, batch_tokens;
    int64_t diverse_groups; /* of the beam; below 2: plain beam search */
    double diverse_strength, temperature, top_p;
    int64_t top_k, seed;
} nm_decode_options;

/* Registers [decode]. */
nm_decode_options *nm_decode_options_add(nm_options *options);
/* NM_USAGE: options that contradict each other, such as more translations than the beam has. */
nm_status nm_decode_options_check(const nm_decode_options *options, nm_error *err);

/* Special token ids. first: first target input; pad: never output, -1 if there is none. */
typedef struct nm_special_tokens {
    int32_t first, eos, pad;
} nm_special_tokens;

typedef struct nm_hypothesis {
    int32_t *ids; /* ends with eos unless the length limit was reached */
    int32_t n;
    double score;         /* after the length penalty */
    double *token_scores; /* [n] log probabilities */
    double *attention;    /* [n, source tokens] probabilities, if requested from nm_decode_score; or NULL */
} nm_hypothesis;

/* The best hypotheses of one sentence, best first; n = 0 if the source is empty or exceeds the model's positions. */
typedef struct nm_translation {
    nm_hypothesis *list;
    int32_t n;
} nm_translation;

typedef struct nm_id_list { /* one source, ending with eos */
    const int32_t *ids;
    int32_t n;
} nm_id_list;

/* Which cross-attention: a decoder layer and a head, from 0; head -1: the mean of all heads. */
typedef struct nm_attention_choice {
    int32_t layer, head;
} nm_attention_choice;

typedef struct nm_decoder nm_decoder;

/* The models must outlive the decoder, and their parameters must not change except before nm_decoder_refresh.
 * NM_MISMATCH: the vocabularies of the models differ; NM_UNSUPPORTED: not a translation model; NM_MEMORY. */
nm_status nm_decoder_create(nm_decoder **decoder, nm_model *const *models, int32_t n_models,
                            const nm_decode_options *options, const nm_special_tokens *special,
                            nm_error *err);
/* A decoder with the same models, options and tables and a separate workspace, for concurrent calls of nm_decode. `main`
 * must outlive it and must not be refreshed while it exists. NM_MEMORY; NM_UNSUPPORTED: see nm_backend_create_worker. */
nm_status nm_decoder_create_worker(nm_decoder **decoder, const nm_decoder *main, nm_error *err);
void nm_decoder_free(nm_decoder *decoder);
/* Must be called after the parameters have changed. */
nm_status nm_decoder_refresh(nm_decoder *decoder, nm_error *err);

/* Maximum length of a source in tokens, eos included. */
int32_t nm_decoder_longest(const nm_decoder *decoder);

/* Translates n sources to out[0 .. n - 1]; the caller releases each. On failure out is empty: NM_DIVERGED if outputs of a
 * model are not finite, NM_MEMORY. */
nm_status nm_decode(nm_decoder *decoder, const nm_id_list *sources, size_t n, nm_translation *out,
                    nm_error *err);
/* The same with the first tokens of each translation given (n = 0: none), without eos; NULL: no prefixes. The scores include
 * those of the prefix. constraints: of each translation, which contains their phrases; NULL: none. A translation is as long
 * as prefix and constraints need; there is none if they do not fit into the model's positions or have tokens that may not be
 * output. NM_USAGE: constraints with another search than fairseq's beam search without groups. */
nm_status nm_decode_prefixes(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *prefixes,
                             const nm_constraints *constraints, size_t n, nm_translation *out, nm_error *err);
void nm_translation_release(nm_translation *translation);

/* Forced decoding: log probabilities of given targets, each ending with eos; that of a token that may not be output is
 * -infinity. out[i] has one hypothesis, whose token scores and score are bitwise identical to those that the search gives the
 * same translation; n = 0 if the source or the target is empty or exceeds the model's positions. attention: NULL, or the
 * cross-attention to return: that of the step that predicts the token. Errors as nm_decode; NM_USAGE: no such layer or head. */
nm_status nm_decode_score(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *targets, size_t n,
                          const nm_attention_choice *attention, nm_translation *out, nm_error *err);
/* Layers and heads of the decoder (the fewest of an ensemble). */
int32_t nm_decoder_layers(const nm_decoder *decoder);
int32_t nm_decoder_heads(const nm_decoder *decoder);

/* Number of tokens without eos. */
int32_t nm_hypothesis_length(const nm_hypothesis *hypothesis, int32_t eos);

/* The divisor of the sum of log probabilities of n tokens, eos included. */
double nm_length_penalty(const nm_decode_options *options, int32_t n);

#endif
