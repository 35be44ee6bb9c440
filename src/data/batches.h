/* Batches of an epoch. Their examples and order are a function of seed and epoch, so that training can resume at any batch of
 * any epoch. */
#ifndef NM_BATCHES_H
#define NM_BATCHES_H

#include "base/memory.h"
#include "data/batch.h"
#include "data/corpus.h"

/* Order in which examples are put into the batches of training. */
typedef enum nm_example_order { NM_ORDER_LENGTH, NM_ORDER_RANDOM } nm_example_order;
#define NM_EXAMPLE_ORDERS "length|random"

typedef struct nm_batching {
    const nm_corpus *source, *target; /* of equal n; target NULL for one-sided tasks */
    int64_t max_tokens;               /* per side and batch */
    int64_t max_length;               /* longer sequences are skipped */
    int64_t max_examples;             /* per batch; 0: limited by max_tokens only */
    bool by_length;                   /* batches of sequences of similar length; otherwise random */
    uint64_t seed;
} nm_batching;

typedef struct nm_batches { /* one epoch */
    int64_t *order;         /* indexes of examples, batch after batch */
    int64_t *starts;        /* [n + 1] into order */
    int64_t n, skipped;     /* batches; examples skipped because they are too long or empty */
    nm_batching batching;   /* of nm_batches_create; source NULL for batches of another origin */
} nm_batches;

/* Shuffled for training epoch `epoch` (from 0); shuffle false: fixed order, for evaluation. NM_USAGE if all examples are
 * skipped. Release with nm_batches_release. */
nm_status nm_batches_create(nm_batches *batches, const nm_batching *batching, uint32_t epoch, bool shuffle,
                            nm_error *err);
void nm_batches_release(nm_batches *batches);
/* Redistributes the sentences of batches first .. first + n - 1 so that their costs are nearly equal: any two differ by at
 * most the cost of the longest sentence, unless a batch is full. Within a batch the order stays. Nothing is changed if a
 * sentence would fit into no batch. batches->batching.source must be set. */
void nm_batches_balance(nm_batches *batches, int64_t first, int64_t n);
/* The cost of a sentence pair in tokens: s + t + (s^2 + t^2 + s t) / 1024, for linear layers and attention. */
double nm_batches_cost(const nm_batching *batching, int64_t example);

typedef struct nm_batch_words { /* special tokens and word dropout */
    int32_t
        target_first; /* first token of the decoder input: eos (fairseq) or bos (Tears); stored sequences end with eos */
    int32_t unknown;
    double word_dropout; /* fraction of source and decoder input tokens replaced by unknown */
    uint32_t step;       /* micro-batch number, for word dropout */
} nm_batch_words;

/* Packs batch i into memory of the arena, which is reset first. */
nm_batch nm_batches_get(const nm_batches *batches, const nm_batching *batching, int64_t i,
                        const nm_batch_words *words, nm_arena *arena);
/* One side of a synthetic batch: `tokens` zeros in sequences of `length`; the last one may be shorter. */
nm_packing nm_batch_fill(int32_t tokens, int32_t length, const int32_t **zeros, nm_arena *arena);
/* Packs the given examples, for decoding and tests. */
nm_batch nm_batch_pack(const nm_batching *batching, const int64_t *examples, int32_t n,
                       const nm_batch_words *words, nm_arena *arena);

#endif
