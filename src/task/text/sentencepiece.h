/* SentencePiece models (Kudo and Richardson 2018): tokenizer and subword model in one, for raw text of any
 * language.
 *
 * A model is read from the file that SentencePiece writes; segmentation and decoding are identical to the
 * library's (types unigram, bpe and char). The text is normalized by the rules of the model, its spaces
 * become U+2581, and the result is segmented into pieces: by the unigram model with the highest likelihood
 * (Viterbi; Kudo 2018), or by the merges of BPE. Pieces are concatenated and U+2581 is replaced by spaces to
 * restore the normalized text.
 *
 * Spaces separate the pieces of a segmentation. Whitespace within a piece (Gemma has pieces of newlines and
 * tabs) is therefore written as the character U+E000 + its code, for example U+E00A; this is the name of the
 * piece.
 *
 * A model is immutable: threads share it and each has its own nm_spm_coder. Without protobuf-c at build time
 * nm_spm_parse returns NM_UNSUPPORTED. */
#pragma once

#include "base/random.h"
#include "base/buffer.h"
#include "text/counter.h"

typedef enum nm_spm_type { NM_SPM_UNIGRAM = 1, NM_SPM_BPE, NM_SPM_WORD, NM_SPM_CHAR } nm_spm_type;

typedef enum nm_spm_piece_type {
    NM_SPM_NORMAL = 1,
    NM_SPM_UNKNOWN,
    NM_SPM_CONTROL,
    NM_SPM_USER_DEFINED,
    NM_SPM_UNUSED,
    NM_SPM_BYTE
} nm_spm_piece_type;

typedef struct nm_spm_piece {
    float score;
    nm_spm_piece_type type;
    uint8_t byte; /* of a byte piece "<0xE3>" */
} nm_spm_piece;

/* Node of the trie over the code points of the pieces that text can contain; node 0 is the root. */
typedef struct nm_spm_node {
    uint32_t parent, point;
    int32_t piece; /* id of the piece that ends here, or -1 */
} nm_spm_node;

/* Normalization rules: a double-array trie (Darts) that maps byte sequences to the offsets of their
 * replacements. */
typedef struct nm_spm_rules {
    uint32_t *units;
    size_t n_units;
    char *replacements; /* NUL-terminated strings */
    size_t replacement_bytes;
} nm_spm_rules;

typedef struct nm_spm {
    nm_spm_type type;
    nm_counter texts;     /* of the pieces; index = id */
    nm_spm_piece *pieces; /* [texts.n] */
    nm_spm_node *nodes;
    size_t n_nodes, node_capacity;
    nm_hash_map children; /* (node, code point) -> node */
    nm_spm_rules rules;
    bool add_dummy_prefix, remove_extra_spaces, space_is_suffix, byte_fallback, has_user_defined;
    int32_t unknown;        /* id of the unknown piece */
    int32_t bytes[256];     /* ids of the byte pieces, -1: none; complete if byte_fallback */
    float min_score, bonus; /* minimum score of normal pieces; score per byte of a user-defined piece */
    char *unknown_surface;  /* text of the unknown piece in decoded text */
} nm_spm;

/* Parses the bytes of a model file (name is for messages). NM_FORMAT if it is not a model; NM_UNSUPPORTED for
 * models of type word, with a denormalizer or without escaped spaces. The caller frees with nm_spm_free. */
nm_status nm_spm_parse(const void *data, size_t bytes, const char *name, nm_spm **spm, nm_error *err);
void nm_spm_free(nm_spm *spm);

enum { NM_SPM_SPACE_NAMES = 0xE000 };
/* Appends the name of a piece: its text without whitespace. */
void nm_spm_append_name(const nm_spm *spm, size_t id, nm_buffer *out);
/* Whether the text of several lines is restored from its pieces: newlines are pieces or bytes, and not
 * normalized. */
bool nm_spm_keeps_newlines(const nm_spm *spm);
/* Adds the names of the pieces that segmentation can produce, except the unknown piece, to the counter, with
 * count 0. */
void nm_spm_add_pieces(const nm_spm *spm, nm_counter *counter);

/* Workspace of one thread. The model must outlive it. */
typedef struct nm_spm_coder nm_spm_coder;
nm_spm_coder *nm_spm_coder_create(const nm_spm *spm);
void nm_spm_coder_free(nm_spm_coder *coder);

/* Appends the pieces of a line of valid UTF-8, separated by spaces. A run of unknown characters becomes one
 * token: NM_SPM_UNKNOWN_TOKEN or, with unknown_as_text, its normalized text, which is what SentencePiece
 * prints. */
#define NM_SPM_UNKNOWN_TOKEN "<unk>"
void nm_spm_encode(nm_spm_coder *coder, const char *line, size_t bytes, bool unknown_as_text, nm_buffer *out);
/* The same within a text: without the space that the model adds. Unknown characters become
 * NM_SPM_UNKNOWN_TOKEN. */
void nm_spm_encode_inside(nm_spm_coder *coder, const char *line, size_t bytes, nm_buffer *out);
/* Appends a segmentation of normalized text (with U+2581) that is sampled from a unigram model (Kudo 2018),
 * like the library's SampleEncode: with probability proportional to P(segmentation)^alpha, among all
 * segmentations (nbest <= 0) or the nbest most probable ones. */
void nm_spm_sample(nm_spm_coder *coder, const char *text, size_t bytes, double alpha, int64_t nbest,
                   nm_random_stream *random, nm_buffer *out);
/* The same for a BPE model with BPE-dropout: each merge is skipped with probability `dropout`. */
void nm_spm_sample_merges(nm_spm_coder *coder, const char *text, size_t bytes, double dropout,
                          nm_random_stream *random, nm_buffer *out);
/* Appends the normalized line, without U+2581. */
void nm_spm_normalize(nm_spm_coder *coder, const char *line, size_t bytes, nm_buffer *out);
/* Appends the text that the pieces, which are separated by spaces, represent. */
void nm_spm_decode(const nm_spm *spm, const char *pieces, size_t bytes, nm_buffer *out);
