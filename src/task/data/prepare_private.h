/* The state and the steps of nm_prepare_run. */
#pragma once

#include "data/alignments.h"
#include "data/checksums.h"
#include "base/corpus.h"
#include "base/line_list.h"
#include "data/pair_input.h"
#include "data/prepare.h"
#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

enum { PREPARE_TRAIN, PREPARE_VALID, PREPARE_TEST };
enum { PREPARE_SOURCE, PREPARE_TARGET };

/* The subwords of all words of a counter. */
typedef struct nm_word_subwords {
    size_t *ends;     /* [n_words]: positions in numbers */
    int32_t *numbers; /* [n]: indexes or ids of subwords */
    size_t n_words, words_capacity, n, capacity;
} nm_word_subwords;

typedef struct nm_prepare {
    const nm_options *options;
    const nm_prepare_config *config;
    const nm_prepare_existing *like; /* empty without prepare.like */
    const nm_prepare_events *events;
    nm_prepare_report *report;
    int sides; /* 2, or 1 for plain text */
    int32_t threads;
    nm_counter user_symbols;
    /* Words of the kept training lines. Words that occur only in valid and test have count 0. */
    nm_counter words[NM_PREPARE_SIDES];
    /* subwords before the threshold is applied; empty without a threshold */
    nm_counter bpe_counts[NM_PREPARE_SIDES];
    nm_counter subwords[NM_PREPARE_SIDES]; /* subwords of the segmented text */
    /* Subwords of each word of `words`: first their indexes in `subwords`, then ids. */
    nm_word_subwords pieces[NM_PREPARE_SIDES];
    nm_bpe *bpe;                   /* NULL without BPE */
    nm_spm *spm[NM_PREPARE_SIDES]; /* with the tokenizer sentencepiece; twice the same model if it is joint */
    nm_buffer spm_bytes[NM_PREPARE_SIDES]; /* contents of the model files */
    nm_vocab *vocab[NM_PREPARE_SIDES];
    nm_file_writer text[NM_PREPARE_SPLITS][NM_PREPARE_SIDES]; /* tokenized lines of valid and test */
    /* The kept lines as uint32 indexes in `words`, each line followed by NM_PREPARE_LINE_END. Temporary,
     * never committed. */
    nm_file_writer numbers[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
    nm_corpus_writer ids[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
    /* Links between words of the kept training lines, each line followed by a link of two
     * NM_PREPARE_LINE_END. Temporary. No stream without alignments. */
    nm_file_writer links;
    nm_corpus_writer alignments;
    nm_buffer checksums; /* list of checksums of the files that have been committed */
} nm_prepare;

#define NM_PREPARE_LINE_END UINT32_MAX

/* Reports a step to the caller's progress function; NM_INTERRUPTED if that returns false. */
nm_status nm_prepare_report_progress(const nm_prepare *self, const char *step, int64_t lines, nm_error *err);
/* The option with the sources of a split, "" if they are not given. */
const char *nm_prepare_prefix(const nm_prepare_config *config, int split);
/* Path "SPLIT.SIDE.SUFFIX" in the output folder; suffix may be NULL. The caller frees it. */
char *nm_prepare_path(const nm_prepare *self, int split, int side, const char *suffix);

/* Maximum number of lines and bytes of a block. A block ends after the line that exceeds the number of
 * bytes. */
enum { NM_PREPARE_BLOCK_LINES = 8192, NM_PREPARE_BLOCK_BYTES = 8 << 20 };

/* Pairs of one source, before validation. */
/* Appended to messages about a training pair that on_invalid = skip would drop. */
#define NM_PREPARE_SKIP_HINT "; --on-invalid skip drops such training text"

typedef struct nm_prepare_block {
    nm_line_list lines[NM_PREPARE_SIDES];
    /* numbers of the lines in their files, from 1 */
    int64_t numbers[NM_PREPARE_SIDES][NM_PREPARE_BLOCK_LINES];
    /* Bit mask of the sides whose line was too long to be stored. */
    unsigned char too_long[NM_PREPARE_BLOCK_LINES];
    bool malformed[NM_PREPARE_BLOCK_LINES]; /* a row or JSON object that is skipped, with empty lines */
    size_t source;                          /* index of the source in the reader */
    nm_line_list alignments;                /* of the pairs; empty if none are given */
    int64_t first_pair;                     /* index of the first pair in the split, from 0 */
} nm_prepare_block;

typedef struct nm_prepare_source {
    char *name, *paths[NM_PREPARE_SIDES]; /* paths: NULL until the source is opened */
} nm_prepare_source;

/* Reads the sources of a split in blocks. */
typedef struct nm_prepare_reader {
    int sides;
    bool drops_long; /* lines that are too long for training are not stored */
    bool train;
    bool skips_malformed; /* malformed rows and JSON objects do not end reading */
    nm_pair_config config;
    nm_prepare_source *sources;
    size_t n_sources, capacity, at; /* at: index of the open source */
    nm_pair_input input;
    nm_lines alignments; /* no stream without alignments */
    int64_t n_pairs;     /* number of pairs read so far */
    nm_buffer columns;   /* lines that describe the columns of the tables; empty without tables */
    nm_error err;        /* the error that ended reading; status NM_OK: none */
} nm_prepare_reader;

nm_status nm_prepare_reader_open(nm_prepare_reader *reader, const nm_prepare *prepare, int split,
                                 nm_error *err);
/* Reads the next block. After an error, the block contains the pairs before it, and reader->err is set. At
 * the end, the block is empty. */
void nm_prepare_reader_next(nm_prepare_reader *reader, nm_prepare_block *block);
void nm_prepare_block_release(nm_prepare_block *block);
void nm_prepare_reader_close(nm_prepare_reader *reader);

/* "sentencepiece.source.model", or "sentencepiece.model" for plain text. The caller frees it. */
char *nm_prepare_spm_name(int sides, int side);
/* Reads or learns the SentencePiece models: fills self->spm and self->spm_bytes. */
nm_status nm_prepare_sentencepiece(nm_prepare *self, nm_error *err);
/* Tokenizes, filters and counts one split: fills self->text, self->numbers, self->words. */
nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err);
/* Learns or reads BPE and builds dictionaries from the counted words: fills self->bpe, self->vocab,
 * self->pieces. Releases self->words. */
nm_status nm_prepare_subwords(nm_prepare *self, nm_error *err);

/* A set of pairs of lines, by hashes of 64 bits: 10 to 22 bytes per pair. Two different pairs have the same
 * hash with probability 3e-4 in a text of 100 million pairs. {0} is an empty set. */
typedef struct nm_prepare_pair_set {
    uint64_t *slots; /* [n_slots]; 0: free */
    size_t n, n_slots;
} nm_prepare_pair_set;

/* Hash of the lines of the sides; not 0. */
uint64_t nm_prepare_pair_hash(const nm_buffer *lines, int sides);
/* False if the set has the hash already. */
bool nm_prepare_pair_set_add(nm_prepare_pair_set *set, uint64_t hash);
void nm_prepare_pair_set_release(nm_prepare_pair_set *set);

/* For each of the n words of a tokenized line, the index of the word of the raw line to which it belongs. */
typedef struct nm_prepare_side_words {
    int32_t *owners; /* [n]; the caller frees it */
    size_t n;
} nm_prepare_side_words;
/* line: the tokenized line, n words separated by spaces; byte_level: in the characters of byte_level.h. */
void nm_prepare_side_words_init(nm_prepare_side_words *self, const char *raw, size_t bytes,
                                const nm_buffer *line, size_t n, bool byte_level);
/* Converts links between words of the raw lines to links between words of the tokenized lines, which are
 * appended to out. */
void nm_prepare_link_words(const nm_link_list *raw, const nm_prepare_side_words sides[NM_PREPARE_SIDES],
                           nm_link_list *out);
/* Counts the validation and test pairs that also occur in the training text, in the report. Reads
 * self->numbers, which nm_prepare_ids removes. */
nm_status nm_prepare_overlap(nm_prepare *self, nm_error *err);
/* Converts links between words to links between subwords: fills self->alignments. */
nm_status nm_prepare_alignments(nm_prepare *self, nm_error *err);
/* Converts the words of all splits to ids: fills self->ids. */
nm_status nm_prepare_ids(nm_prepare *self, nm_error *err);
