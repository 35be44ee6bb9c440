/* One token from a distribution: temperature, top-k, nucleus and min-p sampling (Fan et al. 2018, Holtzman et
 * al. 2020, Nguyen et al. 2025). */
#pragma once

#include <stdint.h>

typedef struct nm_sampling {
    double temperature, top_p; /* temperature 0: the most probable token */
    double min_p;              /* relative to the most probable token, from 0 to 1; 0: all */
    int64_t top_k;             /* 0: all */
    uint64_t seed;
} nm_sampling;

typedef struct nm_sample_candidate {
    double log_p;
    int32_t id;
} nm_sample_candidate;

/* Counter of the random numbers of a sample, which are a function of it and the seed. site < 2^24. */
typedef struct nm_sample_position {
    uint32_t site, step;
    uint64_t index;
} nm_sample_position;

/* Samples one of n > 0 candidates, whose probabilities need not sum to 1, and returns its id. The candidates
 * are overwritten. */
int32_t nm_token_sample(const nm_sampling *how, nm_sample_candidate *candidates, int32_t n,
                        nm_sample_position at);
