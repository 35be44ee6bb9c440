/* Batches of an epoch. Their examples and order depend on seed and epoch only, so that training can resume at
 * any batch. */
#pragma once

#include "base/memory.h"
#include "model/batch.h"
#include "base/corpus.h"
#include "norma/choice.h"

/* Order in which examples are assigned to the batches of training. */
#define NM_EXAMPLE_ORDERS(C) C(NM_ORDER_LENGTH, "length") C(NM_ORDER_RANDOM, "random")
NM_CHOICES(nm_example_order, NM_EXAMPLE_ORDERS);

typedef struct nm_batching {
    const nm_corpus *source, *target; /* of equal n; target NULL for one-sided tasks */
    int64_t max_tokens;               /* maximum number of tokens of a batch, for each side */
    int64_t max_length;               /* maximum length in tokens; longer sequences are skipped */
    int64_t max_examples;             /* maximum number of examples of a batch; 0: no limit */
    bool by_length;                   /* batches of sequences of similar length; otherwise random */
    uint64_t seed;
} nm_batching;

typedef struct nm_batches { /* one epoch */
    int64_t *order;         /* indexes of examples, batch after batch */
    int64_t *starts;        /* [n + 1]: positions in order */
    int64_t n, skipped; /* number of batches, and of examples skipped because they are too long or empty */
    /* that of nm_batches_create; source is NULL if the batches were built differently */
    nm_batching batching;
} nm_batches;

/* Builds the batches of an epoch (from 0), shuffled for training or in a fixed order for evaluation. NM_USAGE
 * if all examples are skipped; NM_MISMATCH if the sides have different numbers of sequences. Release with
 * nm_batches_release. */
nm_status nm_batches_create(nm_batches *batches, const nm_batching *batching, uint32_t epoch, bool shuffle,
                            nm_error *err);
void nm_batches_release(nm_batches *batches);
/* Redistributes the sentences of batches first .. first + n - 1 so that their costs are nearly equal: any two
 * differ by at most the cost of the longest sentence, unless a batch is full. The sentences of a batch remain
 * in their order. Changes nothing if a sentence does not fit into any batch. batches->batching.source must be
 * set. */
void nm_batches_balance(nm_batches *batches, int64_t first, int64_t n);
/* Cost of a sentence pair with s source and t target tokens, of linear layers and attention, in tokens:
 *     s + t + (s^2 + t^2 + s t) / 1024 */
double nm_batches_cost(const nm_batching *batching, int64_t example);

typedef struct nm_batch_words { /* special tokens and word dropout */
    int32_t target_first;       /* first token of the decoder input: eos (fairseq) or bos (Tears) */
    int32_t unknown;            /* id of <unk> */
    double word_dropout; /* probability that a token of source or decoder input is replaced with <unk> */
    uint32_t step;       /* index of the micro-batch, for the random numbers of word dropout */
} nm_batch_words;

/* Replaces each of n ids with <unk> with the probability word_dropout. stream: for the random numbers;
 * differs between the sequences of a batch. */
void nm_batch_drop_words(int32_t *ids, int32_t n, const nm_batch_words *words, uint64_t seed,
                         uint32_t stream);
/* Packs batch i into the arena, which is reset first. */
nm_batch nm_batches_get(const nm_batches *batches, const nm_batching *batching, int64_t i,
                        const nm_batch_words *words, nm_arena *arena);
/* Ignores target tokens whose mask [V] is 0. They have probability 0, and remain inputs of the next
 * positions. mask NULL: none. The code of Transformers without Tears sets their logits to -1e9, so that one
 * such token dominates the mean loss. */
void nm_batch_ignore_masked(nm_batch *batch, const uint8_t *mask, nm_arena *arena);
/* One side of a synthetic batch: `tokens` zeros in sequences of `length` tokens; the last one may be shorter.
 * *zeros is the array of ids, [tokens], also usable as positions. Memory of the arena. */
nm_packing nm_batch_fill(int32_t tokens, int32_t length, const int32_t **zeros, nm_arena *arena);
/* Packs n examples, for decoding and tests. batch.index is `examples`, which is not copied. */
nm_batch nm_batch_pack(const nm_batching *batching, const int64_t *examples, int32_t n,
                       const nm_batch_words *words, nm_arena *arena);
