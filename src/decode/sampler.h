/* Text generation with a language model: temperature, top-k and nucleus sampling (Holtzman et al. 2020).
 *
 * Deterministic: the text depends on the prompt, its number, the options and the seed only, not on the other prompts of the
 * batch or the number of threads. */
#ifndef NM_SAMPLER_H
#define NM_SAMPLER_H

#include "decode/decode.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

typedef struct nm_sample_options { /* section [sample] */
    double temperature, top_p, min_p;
    int64_t top_k, tokens, lines, seed, batch;
    bool unknown;
} nm_sample_options;

/* Registers [sample]. */
nm_sample_options *nm_sample_options_add(nm_options *options);

/* Whether a token is never generated: <s>, <pad>, <unk> unless `unknown`, and the padding of the dictionary. */
bool nm_sampler_excludes(const nm_vocab *vocab, int32_t id, bool unknown);

typedef struct nm_sampler nm_sampler;

/* The texts of a language model. */
typedef struct nm_sampler_texts {
    const nm_vocab *vocab; /* defines the special tokens */
    int32_t first_input;   /* from which the first token of a text is predicted */
    /* whether eos ends a document, in which tokens of byte-level BPE or of `spm` contain newlines; otherwise it is a newline */
    bool documents;
    const nm_spm *spm; /* the SentencePiece model; NULL: byte-level BPE */
} nm_sampler_texts;

/* The vocabulary, options and model must outlive the sampler, and the parameters must not change. NM_UNSUPPORTED for non-causal
 * models and for models that are not language models; NM_MEMORY. */
nm_status nm_sampler_create(nm_sampler **sampler, nm_model *model, const nm_sample_options *options,
                            const nm_sampler_texts *texts, nm_error *err);
/* A sampler with the same weights and a separate workspace, for concurrent calls. model: a worker of the main sampler's model
 * (nm_model_create_worker), which must outlive it. */
nm_status nm_sampler_create_worker(nm_sampler **sampler, const nm_sampler *main, nm_model *model,
                                   nm_error *err);
void nm_sampler_free(nm_sampler *sampler);
/* Continues n prompts with the numbers number .. number + n - 1 and appends the generated tokens of each to out[i].
 * NM_DIVERGED if outputs of the model are not finite; NM_INTERRUPTED after a request to stop (NULL: never); NM_MEMORY. */
nm_status nm_sampler_run(nm_sampler *sampler, const nm_id_list *prompts, size_t n, uint64_t number,
                         const nm_stop *stop, nm_ids *out, nm_error *err);

#endif
