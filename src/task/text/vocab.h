/* Vocabulary: a bijection between symbols and ids, in the text format of fairseq's dictionaries.
 *
 * A file has a line "symbol count" for every symbol except the four special ones, in the order of the ids.
 * The special symbols are <s> 0, <pad> 1, </s> 2, <unk> 3 in fairseq's order, and <pad> 0, <s> 1, </s> 2,
 * <unk> 3 in the order of the code of Nguyen and Salazar (Transformers without Tears). The file does not
 * store the order. Tokens of a text that equal <s>, <pad> or </s> become <unk>. A vocabulary is immutable, so
 * threads may share it. */
#pragma once

#include "base/ids.h"
#include "norma/choice.h"
#include "base/buffer.h"
#include "text/counter.h"

enum { NM_VOCAB_N_SPECIAL = 4, NM_VOCAB_MAX_SIZE = 1 << 24, NM_VOCAB_MAX_SYMBOL = 1 << 16 };

#define NM_VOCAB_ORDERS(C) C(NM_VOCAB_FAIRSEQ, "fairseq") C(NM_VOCAB_TEARS, "tears")
NM_CHOICES(nm_vocab_order, NM_VOCAB_ORDERS);

typedef struct nm_vocab {
    nm_counter symbols; /* index = id; the special symbols have count 0 */
    int32_t bos, pad, eos, unk;
    nm_vocab_order order;
    bool omitted[NM_VOCAB_N_SPECIAL]; /* indexed by id; see nm_vocab_omit */
} nm_vocab;

typedef struct nm_vocab_options {
    nm_vocab_order order;
    int64_t threshold; /* minimum count of a symbol; below 1: no minimum */
    int32_t max_size;  /* maximum number of symbols with the special ones, before padding; 0: no limit */
    int32_t multiple;  /* the size is padded to a multiple with madeupword0000, ...; 0 or 1: no padding */
} nm_vocab_options;

/* fairseq's order, no threshold, no limit, multiple of 8. */
nm_vocab_options nm_vocab_options_default(void);

/* Builds a vocabulary from counted symbols, sorted by descending count, then by bytes. NM_FORMAT: a symbol is
 * too long, or there are more than NM_VOCAB_MAX_SIZE. The caller frees with nm_vocab_free. */
nm_status nm_vocab_build(const nm_counter *counts, const nm_vocab_options *options, nm_vocab **vocab,
                         nm_error *err);
/* Reads a vocabulary from a file, or from text in memory (name is for messages). NM_IO; NM_FORMAT with name
 * and line. */
nm_status nm_vocab_read(const char *path, nm_vocab_order order, nm_vocab **vocab, nm_error *err);
nm_status nm_vocab_parse(const char *text, size_t bytes, const char *name, nm_vocab_order order,
                         nm_vocab **vocab, nm_error *err);
/* Appends the text of the file to a buffer. */
void nm_vocab_format(const nm_vocab *vocab, nm_buffer *out);
void nm_vocab_free(nm_vocab *vocab);
/* Omits special symbols: they keep their ids, but a model never outputs them. names: "bos", "pad" and "unk",
 * comma-separated. NM_USAGE for another name. */
nm_status nm_vocab_omit(nm_vocab *vocab, const char *names, nm_error *err);
/* The names of the omitted symbols, as above; heap. */
char *nm_vocab_omitted_names(const nm_vocab *vocab);
bool nm_vocab_omits(const nm_vocab *vocab, int32_t id);
/* Host bytes [size], heap: 1 for tokens that are not omitted; NULL if none is omitted. */
uint8_t *nm_vocab_output_mask(const nm_vocab *vocab);

int32_t nm_vocab_size(const nm_vocab *vocab);
/* Id of a token of a text: unk for unknown tokens and for <s>, <pad> and </s>. */
int32_t nm_vocab_find(const nm_vocab *vocab, const char *symbol, size_t bytes);
/* Symbol and count of an id from 0 to nm_vocab_size - 1. */
const char *nm_vocab_symbol(const nm_vocab *vocab, int32_t id);
int64_t nm_vocab_count(const nm_vocab *vocab, int32_t id);
/* Whether an id is one of madeupword0000, ..., which pad a dictionary and occur in no text; whether a symbol
 * has such a name. */
bool nm_vocab_is_padding(const nm_vocab *vocab, int32_t id);
bool nm_vocab_has_padding_name(const char *symbol);

/* Appends the ids of the tokens of a line (without bos and eos). Returns the number of unknown tokens. */
size_t nm_vocab_encode(const nm_vocab *vocab, const char *line, size_t bytes, nm_ids *ids);
/* Appends the symbols separated by spaces, without bos, pad and eos. */
void nm_vocab_decode(const nm_vocab *vocab, const int32_t *ids, size_t n, nm_buffer *out);
