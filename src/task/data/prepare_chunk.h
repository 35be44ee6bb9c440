/* The lines of a chunk: checked, tokenized, filtered and counted by one thread. */
#pragma once

#include "data/prepare_private.h"
#include "text/tokenizer.h"

enum { NM_PREPARE_CHUNK_LINES = 512 };

/* How the pairs of a split are processed. */
typedef struct nm_prepare_chunk_rules {
    const nm_prepare *prepare;
    int split;
    bool in_characters[NM_PREPARE_SIDES]; /* the length ratio counts characters instead of words */
    bool drops_duplicates;
} nm_prepare_chunk_rules;

typedef struct nm_word_view {
    const char *text; /* in the tokenized line */
    size_t bytes;
} nm_word_view;

typedef struct nm_prepare_worker { /* one per thread */
    nm_cleaner cleaners[NM_PREPARE_SIDES];
    nm_tokenizer tokenizers[NM_PREPARE_SIDES];
    nm_buffer plain;                       /* the tokenized line before lowercasing */
    nm_buffer texts[NM_PREPARE_SIDES];     /* with a tokenizer that keeps the text: the line */
    nm_buffer lines[NM_PREPARE_SIDES];     /* the tokenized line */
    nm_word_view *words[NM_PREPARE_SIDES]; /* words of `lines` */
    size_t n_words[NM_PREPARE_SIDES], capacity[NM_PREPARE_SIDES];
    nm_link_list links;                 /* between the words that prepare.alignment_words selects */
    bool stores_text[NM_PREPARE_SIDES]; /* of lines of a tokenizer that keeps the text, not their tokens */
} nm_prepare_worker;

typedef struct nm_prepare_numbers { /* indexes of words, each line followed by NM_PREPARE_LINE_END */
    uint32_t *data;
    size_t n, capacity;
} nm_prepare_numbers;

/* What a pair that the filters keep is used for. */
typedef enum nm_prepare_use {
    NM_USE_IN_SPLIT, /* its own split */
    NM_USE_IN_VALID, /* held out */
    NM_USE_NOT       /* a duplicate */
} nm_prepare_use;

typedef struct nm_prepare_kept {
    size_t index;       /* in the block */
    uint64_t hash;      /* 0: not compared with other pairs */
    nm_prepare_use use; /* NM_USE_IN_SPLIT until the chunk is merged */
} nm_prepare_kept;

typedef struct nm_prepare_chunk { /* results of NM_PREPARE_CHUNK_LINES lines of a block */
    nm_counter words[NM_PREPARE_SIDES];
    nm_prepare_numbers numbers[NM_PREPARE_SIDES]; /* indexes into words */
    nm_buffer text[NM_PREPARE_SIDES];             /* tokenized lines, for valid and test */
    nm_link_list links; /* between tokens of the kept lines, each line followed by nm_prepare_line_end */
    nm_prepare_split_report report; /* `line` of its examples is an index in the block; they have no text */
    nm_prepare_kept kept[NM_PREPARE_CHUNK_LINES]; /* the pairs of numbers, text and links */
    int64_t n_kept;
    size_t invalid;                          /* first pair whose error ends the preparation, or SIZE_MAX */
    size_t invalid_tokens[NM_PREPARE_SIDES]; /* number of tokens of that pair, if it has been tokenized */
} nm_prepare_chunk;

extern const nm_link nm_prepare_line_end;

/* NM_USAGE: errors of nm_tokenizer_open. The caller releases the worker, also after an error. */
nm_status nm_prepare_worker_open(nm_prepare_worker *worker, const nm_prepare *prepare, nm_error *err);
void nm_prepare_worker_release(nm_prepare_worker *worker);

/* Replaces the chunk by the results of chunk number c of the block. Does not fail: chunk->invalid is a pair
 * with an error, which nm_prepare_check_pair reports. */
void nm_prepare_chunk_process(const nm_prepare_chunk_rules *rules, nm_prepare_worker *worker,
                              const nm_prepare_block *from, size_t c, nm_prepare_chunk *out);
void nm_prepare_chunk_release(nm_prepare_chunk *chunk);
/* NM_FORMAT with file, line and position if a side of pair i of the block is not text or its alignment is not
 * valid. paths: of the files of the sides; n_tokens: of the tokenized lines. */
nm_status nm_prepare_check_pair(const nm_prepare_chunk_rules *rules, const nm_prepare_block *from, size_t i,
                                char *const paths[NM_PREPARE_SIDES], const size_t n_tokens[NM_PREPARE_SIDES],
                                nm_error *err);
/* Counts a pair that is dropped. index: in the block. */
void nm_prepare_count_drop(nm_prepare_split_report *report, nm_drop_reason drop, size_t index);
