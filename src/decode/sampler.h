/* Text from a language model, one token after the other: temperature, the k best, the nucleus (Holtzman et al. 2020).
 *
 * What a prompt grows into depends on nothing but the prompt, its number and the seed: other prompts in the batch and
 * the number of threads leave it the same to the last bit. */
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

/* vocab says which words are special; it and the model must outlive the sampler. NM_UNSUPPORTED for models that see
 * ahead or are no language models. */
nm_status nm_sampler_create(nm_sampler **sampler, nm_model *model, const nm_sample_options *options,
                            const nm_vocab *vocab, nm_error *err);
void nm_sampler_free(nm_sampler *sampler);
/* Continues n prompts, the first of which has the number `number`; appends what follows each to out[i]. */
nm_status nm_sampler_run(nm_sampler *sampler, const nm_id_list *prompts, size_t n, uint64_t number,
                         nm_ids *out, nm_error *err);

#endif
