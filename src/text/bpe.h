/* Byte-pair encoding (Sennrich, Haddow and Birch 2016) with the format and output of subword-nmt; reads and writes fastBPE's
 * codes, too.
 *
 * A model is learned from counted words (nm_counter) or read from a codes file. It is immutable afterwards: threads share it
 * and each has its own nm_bpe_applier. Subwords that do not end a word have the suffix "@@". */
#ifndef NM_BPE_H
#define NM_BPE_H

#include "base/random.h"
#include "text/buffer.h"
#include "text/counter.h"

#define NM_BPE_SEPARATOR "@@"
#define NM_BPE_WORD_END  "</w>"

enum {
    NM_BPE_MAX_SYMBOL = 1 << 16, /* bytes of a symbol */
    NM_BPE_CACHE_MAX_WORD = 256, /* bytes of the longest word whose segmentation is cached */
    NM_BPE_SAMPLE_MAX_WORD =
        1024 /* bytes of the longest word for nm_bpe_sample_word, whose time is quadratic */
};

typedef enum nm_bpe_format {
    NM_BPE_SUBWORD_NMT_0_1, /* no header; "</w>" is a separate symbol */
    NM_BPE_SUBWORD_NMT_0_2, /* "#version: 0.2", then "left right"; "</w>" belongs to the last character */
    NM_BPE_FASTBPE          /* "left right count"; else as 0.2 */
} nm_bpe_format;

typedef struct nm_bpe_merge {
    uint32_t left, right, joined; /* indexes of symbols */
    int64_t count;                /* when learned or read with counts, otherwise 0 */
} nm_bpe_merge;

typedef struct nm_bpe {
    nm_bpe_format format;
    nm_counter symbols;
    nm_bpe_merge *merges;
    size_t n_merges, capacity;
    nm_hash_map ranks; /* (left, right) -> index of the first merge of that pair */
    uint32_t *undo;    /* [symbols.n] merge that made the symbol, or NM_HASH_NONE */
} nm_bpe;

typedef struct nm_bpe_learn_options {
    int64_t n_merges;
    int64_t min_frequency; /* stop when the most frequent pair is rarer; at least 1 */
    bool total_symbols;    /* n_merges includes the characters (word-internal and word-final ones) */
    size_t max_word_bytes; /* longer words are ignored */
} nm_bpe_learn_options;

/* 10000 merges, frequency at least 2, without total_symbols, words up to 4096 bytes. */
nm_bpe_learn_options nm_bpe_learn_options_default(void);

/* Learns from counted words, which must be UTF-8. For joint learning count the words of all files in one counter. Of equally
 * frequent pairs the greatest by code points is merged, left side first. May find fewer merges than n_merges. The caller
 * frees with nm_bpe_free. */
nm_status nm_bpe_learn(const nm_counter *words, const nm_bpe_learn_options *options, nm_bpe **bpe,
                       nm_error *err);

/* Codes from a file, or from text in memory (name is for messages). */
nm_status nm_bpe_read(const char *path, nm_bpe **bpe, nm_error *err);
nm_status nm_bpe_parse(const char *text, size_t bytes, const char *name, nm_bpe **bpe, nm_error *err);
/* The text of a codes file, appended to a buffer or written to a stream (whose close reports errors). */
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

/* Whether merges can make the substring of a word, whose last character it has with `last`. */
bool nm_bpe_has_symbol(const nm_bpe *bpe, const char *text, size_t bytes, bool last);

typedef struct nm_bpe_applier nm_bpe_applier;

/* vocabulary may be NULL. Otherwise subwords with a count below threshold ("x@@" within a word, "x" at its end) are split
 * into the parts of their merges until all parts are frequent or single characters. An empty vocabulary restricts nothing.
 * Model and vocabulary must outlive the applier. */
nm_bpe_applier *nm_bpe_applier_create(const nm_bpe *bpe, const nm_counter *vocabulary, int64_t threshold);
void nm_bpe_applier_free(nm_bpe_applier *applier);
/* Appends the segmented line. Spaces and line ends at both ends of the line stay; those between words become one space.
 * The line must be UTF-8. */
void nm_bpe_apply_line(nm_bpe_applier *applier, const char *line, size_t bytes, nm_buffer *out);
/* BPE-dropout (Provilkov et al. 2020), as apply_bpe.py --dropout of subword-nmt. In each round every pair that a merge applies to
 * is left out with probability `dropout`; the merge of lowest rank among the other pairs is applied to these of its pairs; the
 * last round is that without a pair. Appends the segmented word, which is UTF-8 without spaces. */
void nm_bpe_sample_word(nm_bpe_applier *applier, const char *word, size_t bytes, double dropout,
                        nm_random_stream *random, nm_buffer *out);
/* Appends the line without "@@ ", and without "@@" at its end. */
void nm_bpe_remove(const char *line, size_t bytes, nm_buffer *out);

#endif
