/* Workspace of the segmentation with SentencePiece models, shared by sentencepiece_apply.c and
 * sentencepiece_sample.c. */
#pragma once

#include "text/sentencepiece.h"

typedef struct best_path { /* the best segmentation up to a position */
    float score;
    int32_t piece;
    size_t start; /* of its last piece; SIZE_MAX: not reached */
} best_path;

typedef struct symbol {     /* of BPE: a substring of the text */
    size_t start, bytes;    /* bytes 0: merged into its left neighbor */
    int32_t previous, next; /* indexes of the neighbors, -1: none */
    bool frozen;            /* a user-defined piece, which is not merged */
} symbol;

typedef struct candidate { /* a merge of two adjacent symbols */
    float score;
    int32_t left, right; /* indexes of the symbols */
    size_t bytes;        /* of the merged symbol */
} candidate;

typedef struct undo { /* the parts of an unused piece */
    int32_t piece;
    size_t left_bytes; /* length of the left part */
} undo;

typedef struct edge { /* a piece in the lattice of all segmentations */
    double score;
    size_t start, end, same_end; /* same_end: the next edge with this end, SIZE_MAX: none */
    int32_t piece;
} edge;

typedef struct partial { /* one of the nbest segmentations up to a position */
    double score;
    size_t edge; /* its last edge */
    size_t rank; /* of the segmentation before that edge, among those up to the start of the edge */
} partial;

struct nm_spm_coder {
    const nm_spm *spm;
    nm_buffer text; /* the normalized line */
    best_path *paths;
    size_t path_capacity;
    size_t *ends; /* ends of the pieces of the best path, or edges of the sampled one; last first */
    size_t n_ends, end_capacity;
    symbol *symbols;
    size_t n_symbols, symbol_capacity;
    candidate *heap;
    size_t n_heap, heap_capacity;
    undo *undos;
    size_t n_undos, undo_capacity;
    edge *edges;
    size_t n_edges, edge_capacity;
    size_t *last_edges; /* [bytes + 1]: the last edge that ends at a position, SIZE_MAX: none */
    size_t last_edge_capacity;
    double *forward; /* [bytes + 1]: log of the sum of P^alpha over all segmentations up to a position */
    size_t forward_capacity;
    partial *partials; /* [bytes + 1][nbest] */
    size_t partial_capacity;
    nm_random_stream *random; /* for BPE-dropout; NULL: no dropout */
    double dropout;
    bool after_unknown, unknown_as_text;
    size_t start; /* position of the line in the output */
};

/* Starts a line whose segmentation is appended to `out`. */
void nm_spm_start_line(nm_spm_coder *coder, const nm_buffer *out, bool unknown_as_text);
/* Sets the normalized text that is segmented. */
void nm_spm_set_text(nm_spm_coder *coder, const char *text, size_t bytes);
/* Appends to coder->edges all pieces that begin at `start`, and an unknown piece if the character there is
 * not a piece. */
void nm_spm_add_edges(nm_spm_coder *coder, size_t start);
void nm_spm_push_end(nm_spm_coder *coder, size_t end);
void nm_spm_append_piece(nm_spm_coder *coder, const char *text, size_t bytes, int32_t piece, nm_buffer *out);
