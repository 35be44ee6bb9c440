/* What the language model's commands and its validation need of its task: streams of text cut into segments, the
 * negative log-likelihood of a stream, text to ids and back. */
#ifndef NM_TASK_LM_H
#define NM_TASK_LM_H

#include "data/line_list.h"
#include "model/lm.h"
#include "task/tasks.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/vocab.h"
#include "train/options.h"

enum { NM_LM_SETTINGS, NM_LM_DICTIONARY, NM_LM_CODES, NM_LM_UNITS, NM_LM_TEXTS };
enum { NM_LM_SPLITS = 3 };

typedef struct nm_lm_task_config { /* section [data] */
    const char *folder, *order, *incomplete;
    int64_t eval_streams;
} nm_lm_task_config;

typedef struct nm_lm_parts {
    char *texts[NM_LM_TEXTS];       /* data.ini, dict.txt, codes.bpe (NULL: no BPE), units.txt or NULL */
    nm_vocab *vocab, *units;        /* units: that BPE may write; NULL: all */
    nm_corpus splits[NM_LM_SPLITS]; /* empty where a model file was opened */
} nm_lm_parts;

/* ---- segments: src/task/lm_segments.c ---- */

/* A text of n tokens cut into contiguous streams of equal length (the remainder is left out), and these into segments of
 * `length`; the last of each may be shorter. Each token is predicted from those before it in its segment and the one
 * before the segment: the input of place 0 is the token before it in the text, of the text's first token `before`. */
typedef struct nm_lm_segments {
    const int32_t *ids;
    int64_t n, streams, stream_length, per_stream; /* tokens; segments of a stream */
    int32_t length, before;
} nm_lm_segments;

/* incomplete: keep the shorter ones. NM_USAGE when no segment is left. */
nm_status nm_lm_segments_make(nm_lm_segments *segments, const int32_t *ids, int64_t n, int64_t streams,
                              int32_t length, bool incomplete, int32_t before, nm_error *err);
/* First token and number of tokens of segment i; segments are numbered by their place in a stream, then by stream. */
int64_t nm_lm_segment_begin(const nm_lm_segments *segments, int64_t i, int32_t *length);
/* The batch of listed pieces of the text, each from begins[i], of lengths[i] tokens. */
nm_batch nm_lm_pack(const int32_t *ids, int32_t before, const int64_t *begins, const int32_t *lengths,
                    int32_t n, nm_arena *arena);

/* ---- scoring: src/task/lm_score.c ---- */

typedef struct nm_lm_scoring {
    int64_t context; /* every token sees at least so many before it, as far as there are any; 0: segments */
    int64_t max_tokens; /* of a batch */
    bool drop_incomplete;
    int32_t before; /* the id in front of the first token */
} nm_lm_scoring;

typedef struct nm_lm_scored {
    int64_t tokens, left_out; /* scored; not scored */
    double nll;               /* sum */
    int64_t *counts; /* [n_units][2], heap: millionths of nats, tokens, of runs of tokens in their order */
    size_t n_units, capacity;
} nm_lm_scored;

void nm_lm_scored_release(nm_lm_scored *scored);
/* Scores n ids with the model as it is, in windows of model.context. Adds to *scored (zero at first). */
nm_status nm_lm_score_ids(nm_model *model, const int32_t *ids, int64_t n, const nm_lm_scoring *how,
                          nm_lm_scored *scored, nm_error *err);
/* exp(nll / tokens) of counts as above. */
double nm_lm_perplexity_of_counts(const int64_t *counts, const void *context);
nm_status nm_lm_task_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err);

/* ---- text: src/task/lm_text.c ---- */

typedef struct nm_lm_text nm_lm_text;

/* By the texts of a loaded model; parts must outlive it. */
nm_status nm_lm_text_create(nm_lm_text **text, const nm_lm_parts *parts, nm_error *err);
void nm_lm_text_free(nm_lm_text *text);
/* Appends the ids of a line, without eos; returns how many are unknown. words: add the number of its words. */
size_t nm_lm_encode(nm_lm_text *text, const char *line, size_t bytes, nm_ids *ids, int64_t *words);
/* Appends text to out; eos ends a line. */
void nm_lm_decode(nm_lm_text *text, const int32_t *ids, size_t n, nm_buffer *out);
/* Reads a file of text, every line and its eos, into ids. */
nm_status nm_lm_encode_file(nm_lm_text *text, const char *path, nm_ids *ids, int64_t *words, int64_t *unknown,
                            nm_error *err);

#endif
