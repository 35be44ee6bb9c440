/* Translation of token sequences by greedy search, beam search, diverse beam search (Vijayakumar et al. 2018)
 * or sampling, with one model or an ensemble.
 *
 * Deterministic: the translation of a sentence, scores included, is bitwise independent of the batch, the
 * order of sentences and the number of threads. */
#pragma once

#include "base/stop.h"
#include "model/constraints.h"
#include "model/shortlist.h"
#include "model/model.h"

#define NM_SEARCHES(C)                                                                                       \
    C(NM_SEARCH_FAIRSEQ, "fairseq") C(NM_SEARCH_TEARS, "tears") C(NM_SEARCH_SAMPLE, "sample")
NM_CHOICES(nm_search, NM_SEARCHES);

#define NM_LENGTH_PENALTIES(C) C(NM_PENALTY_POWER, "power") C(NM_PENALTY_GNMT, "gnmt")
NM_CHOICES(nm_penalty_form, NM_LENGTH_PENALTIES);

typedef struct nm_decode_options { /* section [decode] */
    const char *preset;
    nm_search search;
    nm_penalty_form length_penalty;
    double alpha, max_length_a;
    int64_t beam, max_length_b, min_length, nbest, batch_tokens;
    int64_t diverse_groups; /* of the beam; below 2: plain beam search */
    double diverse_strength, temperature, top_p, min_p;
    int64_t top_k, seed;
    double repetition_penalty;    /* 1: none */
    int64_t no_repeat_ngram_size; /* 0: no blocking */
    bool unknown;
} nm_decode_options;

/* Registers [decode]. */
void nm_decode_options_add(nm_options *options);
/* NM_USAGE for options that contradict each other, e.g. decode.nbest > decode.beam. */
nm_status nm_decode_options_check(const nm_decode_options *options, nm_error *err);

/* Special token ids. first: first target input; pad: never output; unk: only output with options.unknown. pad
 * and unk are -1 if there is none. excluded: other tokens that are never output, such as those that pad the
 * dictionary. */
typedef struct nm_special_tokens {
    int32_t first, eos, pad, unk;
    const bool *excluded; /* [target vocabulary], copied by nm_decoder_create; NULL: none */
    int32_t n_excluded;
} nm_special_tokens;

typedef struct nm_hypothesis {
    int32_t *ids; /* ends with eos unless the length limit was reached */
    int32_t n;
    double score;         /* after the length penalty */
    double *token_scores; /* [n] log probabilities */
    /* [n, source tokens] attention weights, if requested from nm_decode_score; otherwise NULL */
    double *attention;
} nm_hypothesis;

/* The best hypotheses of one sentence, best first; n = 0 if the source is empty or longer than
 * nm_decoder_longest. */
typedef struct nm_translation {
    nm_hypothesis *list;
    int32_t n;
} nm_translation;

typedef struct nm_id_list { /* token ids of a source (ending with eos), target or prompt; not owned */
    const int32_t *ids;
    int32_t n;
} nm_id_list;

/* Selects a cross-attention: decoder layer and head, from 0; head -1: the mean over all heads. */
typedef struct nm_attention_choice {
    int32_t layer, head;
} nm_attention_choice;

typedef struct nm_decoder nm_decoder;

/* The models must outlive the decoder; after a change of their parameters nm_decoder_refresh must be called.
 * NM_MISMATCH: the vocabularies of the models differ; NM_UNSUPPORTED: not a translation model; NM_MEMORY. */
nm_status nm_decoder_create(nm_decoder **decoder, nm_model *const *models, int32_t n_models,
                            const nm_decode_options *options, const nm_special_tokens *special,
                            nm_error *err);
/* A decoder with the same models, options and tables and a separate workspace, for concurrent calls of
 * nm_decode. `main` must outlive it and must not be refreshed while it exists. NM_MEMORY; NM_UNSUPPORTED: see
 * nm_backend_create_worker. */
nm_status nm_decoder_create_worker(nm_decoder **decoder, const nm_decoder *main, nm_error *err);
void nm_decoder_free(nm_decoder *decoder);
/* Updates tables and packed weights; must be called after the parameters have changed. NM_MEMORY. */
nm_status nm_decoder_refresh(nm_decoder *decoder, nm_error *err);

/* Restricts the tokens of each translation to those that the shortlist selects for its source, and those of
 * its prefix and its constraints. In forced decoding the log probabilities of other tokens are -infinity.
 * Workers that are created afterwards have it, too. It must outlive the decoder; NULL: none. */
void nm_decoder_set_shortlist(nm_decoder *decoder, const nm_shortlist *shortlist);

/* Translations end with NM_INTERRUPTED before the next step after a request to stop; NULL: never. stop must
 * be valid during the calls. */
void nm_decoder_set_stop(nm_decoder *decoder, const nm_stop *stop);

/* Maximum length of a source in tokens, eos included. */
int32_t nm_decoder_longest(const nm_decoder *decoder);

/* Translates n sources to out[0 .. n - 1]; the caller releases each. On failure out is empty: NM_DIVERGED if
 * outputs of a model are not finite, NM_MEMORY. */
nm_status nm_decode(nm_decoder *decoder, const nm_id_list *sources, size_t n, nm_translation *out,
                    nm_error *err);
/* Like nm_decode, with given first tokens and lexical constraints. prefixes: [n], first tokens of each
 * translation, without eos, empty for none; NULL: no prefixes. The scores include those of the prefix.
 * constraints: [n], phrases that each translation must contain; NULL: none. Prefix and constraints override
 * the length limit and options.unknown: the limit is counted from the end of a prefix that does not fit into
 * it. There is no translation if they do not fit into the model's positions or contain tokens that may not be
 * output. NM_USAGE: constraints need the fairseq search without groups. */
nm_status nm_decode_prefixes(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *prefixes,
                             const nm_constraints *constraints, size_t n, nm_translation *out, nm_error *err);
void nm_translation_release(nm_translation *translation);

/* Forced decoding: log probabilities of given targets, each ending with eos; that of a token that may not be
 * output is -infinity. out[i] has one hypothesis, whose token scores and score are bitwise identical to those
 * of the same translation found by a search; n = 0 if the source or the target is empty or longer than
 * nm_decoder_longest. attention: the cross-attention to return, in row t that of the step that predicts token
 * t; NULL: none. Errors as nm_decode; NM_USAGE if the layer or head does not exist. */
nm_status nm_decode_score(nm_decoder *decoder, const nm_id_list *sources, const nm_id_list *targets, size_t n,
                          const nm_attention_choice *attention, nm_translation *out, nm_error *err);
/* Number of decoder layers and of heads per layer; the minimum over an ensemble. */
int32_t nm_decoder_layers(const nm_decoder *decoder);
int32_t nm_decoder_heads(const nm_decoder *decoder);

/* Number of tokens without eos. */
int32_t nm_hypothesis_length(const nm_hypothesis *hypothesis, int32_t eos);
