/* Language modeling: streams of text cut into segments, the negative log-likelihood of a stream, text to ids and back. */
#ifndef NM_TASK_LM_H
#define NM_TASK_LM_H

#include "data/line_list.h"
#include "data/subword_sampler.h"
#include "model/lm.h"
#include "task/model_texts.h"
#include "task/tasks.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "train/options.h"

enum { NM_LM_SETTINGS, NM_LM_DICTIONARY, NM_LM_CODES, NM_LM_UNITS, NM_LM_TEXTS };
enum { NM_LM_SPLITS = 3 };
enum { NM_LM_BLOCK_TOKENS = 64 }; /* blocks of consecutive tokens are the units of the bootstrap */

typedef struct nm_lm_task_config { /* section [data] */
    const char *folder;
    enum { NM_LM_ORDER_STREAMS, NM_LM_ORDER_SHUFFLED } order;
    enum { NM_LM_INCOMPLETE_SCORE, NM_LM_INCOMPLETE_DROP } incomplete; /* last, shorter segments of streams */
    int64_t eval_streams;
    nm_subword_sampling sampling;
} nm_lm_task_config;

typedef struct nm_lm_parts {
    char *texts[NM_LM_TEXTS];       /* data.ini, dict.txt, codes.bpe (NULL: no BPE), units.txt or NULL */
    nm_vocab *vocab, *units;        /* units: subwords that BPE may write; NULL: all */
    nm_model_spm spm;               /* none without SentencePiece */
    nm_corpus splits[NM_LM_SPLITS]; /* empty after open_model */
    nm_subword_sampler *sampler;    /* of the training text; NULL: none */
    const nm_corpus *drawn;         /* its segmentation in the current epoch; NULL: the stored one */
} nm_lm_parts;

/* ---- segments: src/task/lm_segments.c ---- */

/* A text of n tokens cut into contiguous streams of equal length (the remainder is left out), and these into segments of
 * `length`; the last of each may be shorter. Each token is predicted from those before it in its segment and the one
 * before the segment: the input of position 0 is the preceding token of the text, or `before` for the first token. */
typedef struct nm_lm_segments {
    const int32_t *ids;
    int64_t n, streams, stream_length, per_stream; /* n and stream_length in tokens */
    int32_t length, before;
} nm_lm_segments;

/* incomplete: keep shorter segments. NM_USAGE if no segment remains. */
nm_status nm_lm_segments_make(nm_lm_segments *segments, const int32_t *ids, int64_t n, int64_t streams,
                              int32_t length, bool incomplete, int32_t before, nm_error *err);
/* First token and number of tokens of segment i; segments are ordered by position in the stream, then by stream. */
int64_t nm_lm_segment_begin(const nm_lm_segments *segments, int64_t i, int32_t *length);
/* The batch of n pieces of the text: tokens begins[i] .. begins[i] + lengths[i] - 1. */
nm_batch nm_lm_pack(const int32_t *ids, int32_t before, const int64_t *begins, const int32_t *lengths,
                    int32_t n, nm_arena *arena);

/* ---- scoring: src/task/lm_score.c ---- */

typedef struct nm_lm_scoring {
    int64_t context;    /* minimum number of preceding tokens, where the text has them; 0: segments */
    int64_t max_tokens; /* of a batch */
    bool drop_incomplete;
    int32_t before; /* input of the first token */
    /* Ends of the texts in the ids, which are scored without the tokens of the others; NULL: the ids are one text. The token
     * before a text must be `before`. */
    const int64_t *ends;
    size_t n_ends;
    double *token_nll; /* [n], or NULL: of every scored token, rounded to the backend's type */
    nm_comm *
        comm; /* processes that divide the batches, all of which call; without token_nll. NULL: this one alone */
} nm_lm_scoring;

typedef struct nm_lm_scored {
    int64_t tokens, left_out; /* scored and not scored */
    double nll;               /* sum */
    int64_t *counts;          /* [n_units][2], heap: nats * 1e6 and tokens of consecutive blocks */
    size_t n_units, capacity;
} nm_lm_scored;

/* Adds one block of at most NM_LM_BLOCK_TOKENS tokens. */
void nm_lm_scored_add(nm_lm_scored *scored, double nll, int64_t tokens);
/* The perplexity as a score, without signature; takes scored->counts. */
void nm_lm_scored_fill(const nm_lm_scored *scored, nm_task_score *score);
void nm_lm_scored_release(nm_lm_scored *scored);
/* Scores n ids in windows of model.context. Adds to *scored, which is zero-initialized by the caller. */
nm_status nm_lm_score_ids(nm_model *model, const int32_t *ids, int64_t n, const nm_lm_scoring *how,
                          nm_lm_scored *scored, nm_error *err);
/* exp(nll / tokens) of nm_lm_scored.counts. */
double nm_lm_perplexity_of_counts(const int64_t *counts, const void *context);
nm_status nm_lm_task_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err);

/* ---- text: src/task/lm_text.c ---- */

typedef struct nm_lm_text nm_lm_text;

/* Uses the texts of a loaded model; parts must outlive it. */
nm_status nm_lm_text_create(nm_lm_text **text, const nm_lm_parts *parts, nm_error *err);
void nm_lm_text_free(nm_lm_text *text);
/* Appends the ids of a line, without eos; returns the number of unknown tokens. Adds the number of words to *words. */
size_t nm_lm_encode(nm_lm_text *text, const char *line, size_t bytes, nm_ids *ids, int64_t *words);
/* Appends text to out; eos ends a line. */
void nm_lm_decode(nm_lm_text *text, const int32_t *ids, size_t n, nm_buffer *out);
/* Appends the ids of a text file, each line with eos. */
nm_status nm_lm_encode_file(nm_lm_text *text, const char *path, nm_ids *ids, int64_t *words, int64_t *unknown,
                            nm_error *err);

#endif
