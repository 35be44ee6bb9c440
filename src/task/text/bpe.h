/* Byte-pair encoding (Sennrich, Haddow and Birch 2016) with the file format and output of subword-nmt. Codes
 * of fastBPE are read and written, too.
 *
 * A model is learned from counted words (nm_counter) or read from a codes file. It is immutable afterwards:
 * threads share it and each has its own nm_bpe_applier. Subwords that do not end a word have the suffix "@@".
 *
 * Codes of byte-level BPE (byte_level.h) do not mark the ends of words, and subwords have no suffix. They may
 * list words that are subwords although no merges produce them, each on a line (ignore_merges of Hugging
 * Face's tokenizers, Llama 3). */
#pragma once

#include "base/random.h"
#include "base/buffer.h"
#include "text/counter.h"

#define NM_BPE_SEPARATOR "@@"
#define NM_BPE_WORD_END  "</w>"

enum {
    NM_BPE_MAX_SYMBOL = 1 << 16, /* bytes of a symbol */
    NM_BPE_CACHE_MAX_WORD = 256, /* bytes of the longest word whose segmentation is cached */
    /* bytes of the longest word for nm_bpe_sample_word; its time is quadratic */
    NM_BPE_SAMPLE_MAX_WORD = 1024
};

typedef enum nm_bpe_format {
    NM_BPE_SUBWORD_NMT_0_1, /* no header; "</w>" is a separate symbol */
    NM_BPE_SUBWORD_NMT_0_2, /* "#version: 0.2", then "left right"; "</w>" belongs to the last character */
    NM_BPE_FASTBPE,         /* "left right count"; otherwise like 0.2 */
    NM_BPE_BYTE_LEVEL       /* "#version: 0.2 byte_level", then "left right" without "</w>", or "word" */
} nm_bpe_format;

typedef struct nm_bpe_merge {
    uint32_t left, right, joined; /* indexes of symbols */
    int64_t count;                /* occurrences in the training text, 0 if unknown */
} nm_bpe_merge;

typedef struct nm_bpe {
    nm_bpe_format format;
    nm_counter symbols;
    nm_bpe_merge *merges;
    size_t n_merges, capacity;
    nm_hash_map ranks; /* (left, right) -> index of the first merge of that pair */
    uint32_t *undo;    /* [symbols.n]: merge that produces the symbol, or NM_HASH_NONE */
    nm_counter whole;  /* words that are not split: of the codes of byte-level BPE, or of nm_bpe_keep_whole */
} nm_bpe;

typedef struct nm_bpe_learn_options {
    int64_t n_merges;
    int64_t min_frequency; /* minimum count of a pair to be merged; at least 1 */
    /* n_merges includes the characters (word-internal and word-final ones), or the 256 bytes. */
    bool total_symbols;
    bool byte_level;       /* the words consist of the characters of bytes */
    size_t max_word_bytes; /* longer words are ignored */
} nm_bpe_learn_options;

/* 10000 merges, frequency at least 2, without total_symbols, words up to 4096 bytes. */
nm_bpe_learn_options nm_bpe_learn_options_default(void);

/* Learns a model from counted words. For joint learning, count the words of all files in one counter. Of
 * equally frequent pairs, the greatest by code points is merged, left side compared first. The model has
 * fewer than n_merges merges if no pair reaches min_frequency any more. NM_USAGE: an option out of range;
 * NM_FORMAT: a word is not UTF-8. The caller frees with nm_bpe_free. */
nm_status nm_bpe_learn(const nm_counter *words, const nm_bpe_learn_options *options, nm_bpe **bpe,
                       nm_error *err);

/* Reads codes from a file, or from text in memory (name is for messages). NM_IO; NM_FORMAT with name and
 * line. */
nm_status nm_bpe_read(const char *path, nm_bpe **bpe, nm_error *err);
nm_status nm_bpe_parse(const char *text, size_t bytes, const char *name, nm_bpe **bpe, nm_error *err);
/* NM_FORMAT unless the codes are of byte-level BPE with the tokenizer byte_level, and of another kind with
 * the other tokenizers. Codes without the mark byte_level like merges.txt of GPT-2 become codes of byte-level
 * BPE with this tokenizer; NM_FORMAT if a symbol contains a character that is not that of a byte. */
nm_status nm_bpe_match_tokenizer(nm_bpe *bpe, bool byte_level, const char *name, nm_error *err);
/* Adds words that appliers do not split. They are not part of the text of the codes, unless these are of
 * byte-level BPE. */
void nm_bpe_keep_whole(nm_bpe *bpe, const nm_counter *words);
/* Appends the first line of a codes file, which subword-nmt 0.1 and fastBPE do not have. */
void nm_bpe_write_header(nm_bpe_format format, nm_buffer *out);
/* Appends the text of a codes file to a buffer, or writes it to a stream (nm_file_close reports write
 * errors). */
void nm_bpe_format_text(const nm_bpe *bpe, nm_bpe_format format, nm_buffer *out);
void nm_bpe_write(const nm_bpe *bpe, nm_bpe_format format, FILE *stream);
void nm_bpe_free(nm_bpe *bpe);

/* For bpe_learn.c: an empty model, and adding merges. */
nm_bpe *nm_bpe_create(nm_bpe_format format);
void nm_bpe_add_merge(nm_bpe *bpe, const nm_count *left, const nm_count *right, int64_t count);
/* Fills ranks and undo after the last merge. */
void nm_bpe_finish(nm_bpe *bpe);

/* Index of the first merge of the pair of symbols, or NM_HASH_NONE. */
static inline uint32_t nm_bpe_rank(const nm_bpe *bpe, uint32_t left, uint32_t right)
{
    size_t probe = 0;
    for (uint32_t i; (i = nm_hash_map_next(&bpe->ranks, nm_hash_pair(left, right), &probe)) != NM_HASH_NONE;)
        if (bpe->merges[i].left == left && bpe->merges[i].right == right)
            return i;
    return NM_HASH_NONE;
}

/* Whether the substring of a word is a symbol of the merges. last: the word ends with it. */
bool nm_bpe_has_symbol(const nm_bpe *bpe, const char *text, size_t bytes, bool last);

typedef struct nm_bpe_applier nm_bpe_applier;

/* vocabulary may be NULL, and must be NULL with byte-level BPE. Otherwise merges that produce a subword with
 * a count below threshold ("x@@" within a word, "x" at its end) are undone until all subwords reach the
 * threshold or are single characters. A vocabulary in which no entry reaches the threshold has no effect.
 * Model and vocabulary must outlive the applier. */
nm_bpe_applier *nm_bpe_applier_create(const nm_bpe *bpe, const nm_counter *vocabulary, int64_t threshold);
void nm_bpe_applier_free(nm_bpe_applier *applier);
/* Appends the segmented line, which must be UTF-8. Spaces and newlines at the start and end of the line are
 * kept; spaces between words become one. */
void nm_bpe_apply_line(nm_bpe_applier *applier, const char *line, size_t bytes, nm_buffer *out);
/* Appends the segmentation of a word (UTF-8 without spaces) with BPE-dropout (Provilkov et al. 2020), like
 * apply_bpe.py --dropout of subword-nmt; not for byte-level BPE. In each round, every pair that has a merge
 * is dropped with probability `dropout`, and the merge of lowest rank is applied to all pairs that it fits
 * and that were not dropped. The first round without pairs is the last. */
void nm_bpe_sample_word(nm_bpe_applier *applier, const char *word, size_t bytes, double dropout,
                        nm_random_stream *random, nm_buffer *out);
/* Appends the line with "@@ ", and "@@" at the end of the line, removed. */
void nm_bpe_remove(const char *line, size_t bytes, nm_buffer *out);
