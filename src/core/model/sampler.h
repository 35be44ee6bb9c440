/* Text generation with a language model: temperature, top-k and nucleus sampling (Holtzman et al. 2020), and
 * the repetition penalty of CTRL (Keskar et al. 2019).
 *
 * Deterministic: the text depends on the prompt, its number, the options and the seed only, not on the other
 * prompts of the batch or the number of threads. */
#pragma once

#include "model/decode.h"

typedef struct nm_sample_options { /* section [sample] */
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k, no_repeat_ngram_size, tokens, lines, seed, batch;
    const char *stop; /* the last one of the stop strings, for the caller of the sampler */
    bool unknown;
} nm_sample_options;

/* Registers [sample]. */
void nm_sample_options_add(nm_options *options);

typedef struct nm_sampler nm_sampler;

/* The tokens of a language model. */
typedef struct nm_sampler_tokens {
    int32_t first_input; /* from which the first token of a text is predicted */
    int32_t eos;         /* ends a document; without newlines it is a newline */
    bool *excluded;      /* [V], heap: tokens that are never generated */
    int32_t *newlines;   /* [V], heap: number of newlines in each token of documents; NULL: texts are lines */
} nm_sampler_tokens;

/* The sampler owns the tables of tokens, also after a failure. Options and model must outlive it, and the
 * parameters must not change. NM_UNSUPPORTED for non-causal models and for models that are not language
 * models; NM_MEMORY. */
nm_status nm_sampler_create(nm_sampler **sampler, nm_model *model, const nm_sample_options *options,
                            nm_sampler_tokens tokens, nm_error *err);
/* A sampler with the same weights and a separate workspace, for concurrent calls. model: a worker of the main
 * sampler's model (nm_model_create_worker), which must outlive it. */
nm_status nm_sampler_create_worker(nm_sampler **sampler, const nm_sampler *main, nm_model *model,
                                   nm_error *err);
void nm_sampler_free(nm_sampler *sampler);

/* The prompts of a call: n, with the numbers number .. number + n - 1. */
typedef struct nm_sampler_prompts {
    const nm_id_list *list;
    size_t n;
    uint64_t number;
    /* Whether a text ends with these generated tokens of a prompt, also before the limits of the options;
     * NULL: no text does. */
    bool (*ends)(void *user, const nm_id_list *prompt, const nm_ids *generated);
    void *user;
} nm_sampler_prompts;

/* Continues the prompts and appends the generated tokens of each to out[i].
 * NM_DIVERGED if outputs of the model are not finite; NM_INTERRUPTED after a request to stop (NULL: never);
 * NM_MEMORY. */
nm_status nm_sampler_run(nm_sampler *sampler, const nm_sampler_prompts *prompts, const nm_stop *stop,
                         nm_ids *out, nm_error *err);
