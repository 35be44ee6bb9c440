/* Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011). There is no generator state: the words
 * depend only on counter and key, not on the order of the calls, the thread or a resume. */
#pragma once

#include <math.h>
#include <stdint.h>

#include "norma/dropout.h"

typedef enum nm_random_purpose {
    NM_RANDOM_INIT = 1,
    NM_RANDOM_DROPOUT,
    NM_RANDOM_WORD_DROPOUT,
    NM_RANDOM_SHUFFLE,
    NM_RANDOM_BOOTSTRAP,
    NM_RANDOM_SAMPLE,
    NM_RANDOM_TEST,
    NM_RANDOM_SUBWORDS
} nm_random_purpose;

typedef struct nm_random_words {
    uint32_t w[4];
} nm_random_words;

/* Four random words of 32 bits. */
static inline nm_random_words nm_philox(const uint32_t counter[4], uint64_t key)
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (nm_random_words){{c0, c1, c2, c3}};
}

/* Four words for (seed, purpose, site, step, index). site < 2^24. */
static inline nm_random_words nm_random4(uint64_t seed, nm_random_purpose purpose, uint32_t site,
                                         uint32_t step, uint64_t index)
{
    const uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)purpose << 24 | site,
                                 step};
    return nm_philox(counter, seed);
}

/* Maps a random word to a uniform number in the open interval (0, 1). */
static inline double nm_random_unit(uint32_t word)
{
    return ((double)word + 0.5) * (1.0 / 4294967296.0);
}

/* A sequence of random numbers: the words of nm_random4 for index, index + 1, ... At most
 * 2^NM_RANDOM_STREAM_BITS indexes belong to one stream. */
enum { NM_RANDOM_STREAM_BITS = 24 };
typedef struct nm_random_stream {
    uint64_t seed, index;
    nm_random_purpose purpose;
    uint32_t site, step;
    int used; /* number of current words that have been returned */
    nm_random_words words;
} nm_random_stream;

static inline nm_random_stream nm_random_stream_at(uint64_t seed, nm_random_purpose purpose, uint32_t site,
                                                   uint32_t step, uint64_t index)
{
    return (nm_random_stream){
        .seed = seed, .index = index, .purpose = purpose, .site = site, .step = step, .used = 4};
}

/* The next number, uniform in the open interval (0, 1). */
static inline double nm_random_next(nm_random_stream *stream)
{
    if (stream->used == 4) {
        stream->words =
            nm_random4(stream->seed, stream->purpose, stream->site, stream->step, stream->index++);
        stream->used = 0;
    }
    return nm_random_unit(stream->words.w[stream->used++]);
}

/* Maps a random word to an integer in [0, n), floor(word * n / 2^32). Probabilities deviate from 1/n by less
 * than 2^-32. */
static inline uint32_t nm_random_below(uint32_t word, uint32_t n)
{
    return (uint32_t)((uint64_t)word * n >> 32);
}

/* A sample of the standard normal distribution from two random words (Box-Muller). */
static inline double nm_random_normal(uint32_t word_a, uint32_t word_b)
{
    return sqrt(-2.0 * log(nm_random_unit(word_a))) * cos(6.283185307179586476925 * nm_random_unit(word_b));
}

/* Dropout masks. The element (row, col) of a site's matrix is dropped if its 16-bit random number is below
 * nm_dropout_threshold(rate). Sixteen counters of Philox give the numbers of a row for a block of 128
 * columns, so that each SIMD lane computes one counter:
 *     counter = (col/128*16 + col%16, row, purpose << 24 | site, step)
 *     slot    = col/16 % 8
 *     number  = 16 bits of word slot/2: the low ones for an even slot, the high ones for an odd one
 * The rate is therefore rounded to a multiple of 1/65536. */

/* The rounded rate times 65536. */
static inline uint32_t nm_dropout_threshold(double rate)
{
    return rate <= 0 ? 0 : (uint32_t)(rate * 65536.0 + 0.5);
}

/* Factor of the elements that are kept: 1/(1 - rounded rate). */
static inline double nm_dropout_scale(double rate)
{
    return 65536.0 / (65536.0 - (double)nm_dropout_threshold(rate));
}

/* 1 if the element is kept, 0 if it is dropped. */
static inline int nm_dropout_keeps(const nm_dropout *drop, uint32_t row, uint32_t col)
{
    const uint32_t counter[4] = {col / 128 * 16 + col % 16, row,
                                 (uint32_t)NM_RANDOM_DROPOUT << 24 | drop->site, drop->step};
    nm_random_words words = nm_philox(counter, drop->seed);
    uint32_t slot = col / 16 % 8;
    uint32_t number = (slot & 1) ? words.w[slot >> 1] >> 16 : words.w[slot >> 1] & 0xFFFF;
    return number >= nm_dropout_threshold(drop->rate);
}
