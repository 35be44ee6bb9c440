/* The state of a coder of SentencePiece models: between sentencepiece_apply.c and sentencepiece_sample.c. */
#ifndef NM_SENTENCEPIECE_CODER_H
#define NM_SENTENCEPIECE_CODER_H

#include "text/sentencepiece.h"

typedef struct best_path { /* ending at a byte of the text */
    float score;
    int32_t piece;
    size_t start; /* of its last piece; SIZE_MAX: not reached */
} best_path;

typedef struct symbol { /* of BPE; bytes 0: merged into its left neighbor */
    size_t start, bytes;
    int32_t previous, next; /* -1: none */
    bool frozen;
} symbol;

typedef struct candidate { /* a merge of two neighbors */
    float score;
    int32_t left, right;
    size_t bytes;
} candidate;

typedef struct undo { /* how an unused piece was merged */
    int32_t piece;
    size_t left_bytes;
} undo;

typedef struct edge { /* a piece of the lattice of all segmentations */
    double score;
    size_t start, end, same_end; /* same_end: the next edge with this end, SIZE_MAX: none */
    int32_t piece;
} edge;

typedef struct partial { /* one of the best segmentations up to a position */
    double score;
    size_t edge, rank; /* its last edge, and which of the best ones up to the start of that */
} partial;

struct nm_spm_coder {
    const nm_spm *spm;
    nm_buffer text; /* the normalized line */
    best_path *paths;
    size_t path_capacity;
    size_t *ends; /* of the pieces of the best path, or edges of a sampled one; last first */
    size_t n_ends, end_capacity;
    symbol *symbols;
    size_t n_symbols, symbol_capacity;
    candidate *heap;
    size_t n_heap, heap_capacity;
    undo *undos;
    size_t n_undos, undo_capacity;
    edge *edges;
    size_t n_edges, edge_capacity;
    size_t *last_edges; /* [bytes + 1]: of the lists by end */
    size_t last_edge_capacity;
    double *forward; /* [bytes + 1]: logarithm of the sum of the probabilities^alpha up to a position */
    size_t forward_capacity;
    partial *partials; /* [bytes + 1][nbest] */
    size_t partial_capacity;
    nm_random_stream *random; /* NULL: all merges of BPE are made */
    double dropout;
    bool after_unknown, unknown_as_text;
    size_t start; /* of the line in the output */
};

/* For a line whose segmentation is appended to `out`. */
void nm_spm_start_line(nm_spm_coder *coder, const nm_buffer *out, bool unknown_as_text);
/* Normalized text. */
void nm_spm_set_text(nm_spm_coder *coder, const char *text, size_t bytes);
/* Appends to coder->edges all pieces that begin at `start`, and an unknown piece if its first character is none. */
void nm_spm_add_edges(nm_spm_coder *coder, size_t start);
void nm_spm_push_end(nm_spm_coder *coder, size_t end);
void nm_spm_append_piece(nm_spm_coder *coder, const char *text, size_t bytes, int32_t piece, nm_buffer *out);

#endif
