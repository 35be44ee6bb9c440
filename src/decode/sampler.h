/* Text generation with a language model: temperature, top-k and nucleus sampling (Holtzman et al. 2020).
 *
 * Deterministic: the text depends on the prompt, its number and the seed only; it is bitwise independent of the other prompts
 * of the batch and of the number of threads. */
#ifndef NM_SAMPLER_H
#define NM_SAMPLER_H

#include "decode/decode.h"
#include "text/vocab.h"

typedef struct nm_sample_options { /* section [sample] */
    double temperature, top_p;
    int64_t top_k, tokens, lines, seed, batch;
    bool unknown;
} nm_sample_options;

/* Registers [sample]. */
nm_sample_options *nm_sample_options_add(nm_options *options);

typedef struct nm_sampler nm_sampler;

/* vocab: for its special tokens; it, the options and the model must outlive the sampler, and the parameters must not change.
 * NM_UNSUPPORTED for non-causal models
 * and for models that are not language models. */
nm_status nm_sampler_create(nm_sampler **sampler, nm_model *model, const nm_sample_options *options,
                            const nm_vocab *vocab, nm_error *err);
/* A sampler with the same weights and a separate workspace, for concurrent calls. model: a worker of the main sampler's model
 * (nm_model_create_worker), which must outlive it. */
nm_status nm_sampler_create_worker(nm_sampler **sampler, const nm_sampler *main, nm_model *model,
                                   nm_error *err);
void nm_sampler_free(nm_sampler *sampler);
/* Continues n prompts, numbered from `number` on; appends the generated tokens of each to out[i]. */
nm_status nm_sampler_run(nm_sampler *sampler, const nm_id_list *prompts, size_t n, uint64_t number,
                         nm_ids *out, nm_error *err);

#endif
