/* The steps of prepare.c. */
#ifndef NM_PREPARE_PRIVATE_H
#define NM_PREPARE_PRIVATE_H

#include "data/alignments.h"
#include "data/checksums.h"
#include "data/corpus.h"
#include "data/line_list.h"
#include "data/pair_input.h"
#include "data/prepare.h"
#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/vocab.h"

enum { PREPARE_TRAIN, PREPARE_VALID, PREPARE_TEST };
enum { PREPARE_SOURCE, PREPARE_TARGET };

/* Subwords of the words of a counter, word after word. */
typedef struct nm_word_subwords {
    size_t *ends; /* [words], into numbers */
    int32_t *numbers;
    size_t n_words, words_capacity, n, capacity;
} nm_word_subwords;

typedef struct nm_prepare {
    const nm_options *options;
    const nm_prepare_config *config;
    const nm_prepare_events *events;
    nm_prepare_report *report;
    int sides; /* 2, or 1 for plain text */
    int32_t threads;
    nm_counter
        words[NM_PREPARE_SIDES]; /* of the kept training text; words that only valid and test have: count 0 */
    nm_counter bpe_counts[NM_PREPARE_SIDES]; /* subwords before the threshold; empty without one */
    nm_counter subwords[NM_PREPARE_SIDES];   /* subwords that the ids represent */
    nm_word_subwords
        pieces[NM_PREPARE_SIDES];  /* of all words: indexes of subwords, replaced by ids at the end */
    nm_bpe *bpe;                   /* NULL without BPE */
    nm_spm *spm[NM_PREPARE_SIDES]; /* with the tokenizer sentencepiece; the same model twice if it is joint */
    nm_buffer spm_bytes[NM_PREPARE_SIDES]; /* their files */
    nm_vocab *vocab[NM_PREPARE_SIDES];
    nm_file_writer text[NM_PREPARE_SPLITS][NM_PREPARE_SIDES]; /* tokenized lines of valid and test */
    /* The kept lines as uint32 indexes of words, each line followed by NM_PREPARE_LINE_END. Temporary, never committed. */
    nm_file_writer numbers[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
    nm_corpus_writer ids[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
    nm_file_writer links; /* of the kept training lines, as nm_link of words, each line followed by one of
                           * NM_PREPARE_LINE_END; temporary. No stream without alignments. */
    nm_corpus_writer alignments;
    nm_buffer checksums; /* of the files that have been written */
} nm_prepare;

#define NM_PREPARE_LINE_END UINT32_MAX

/* Reports a step; NM_INTERRUPTED if the caller ends the preparation. */
nm_status nm_prepare_report_progress(const nm_prepare *self, const char *step, int64_t lines, nm_error *err);
/* Sources of a split, "" if it is not given. */
const char *nm_prepare_prefix(const nm_prepare_config *config, int split);
/* Path of a file of the output folder, heap. */
char *nm_prepare_path(const nm_prepare *self, int split, int side, const char *suffix);

/* Maximum lines and bytes of a block, which has at least one complete line. */
enum { NM_PREPARE_BLOCK_LINES = 8192, NM_PREPARE_BLOCK_BYTES = 8 << 20 };

/* Pairs of one source, not validated. */
typedef struct nm_prepare_block {
    nm_line_list lines[NM_PREPARE_SIDES];
    int64_t numbers[NM_PREPARE_SIDES][NM_PREPARE_BLOCK_LINES]; /* of the lines in the files, from 1 */
    unsigned char
        too_long[NM_PREPARE_BLOCK_LINES]; /* bit mask of the sides whose line was too long to be stored */
    size_t source;                        /* of the reader */
    nm_line_list alignments;              /* of the lines; empty if none are given */
    int64_t first_pair;                   /* number of the first pair in the split, from 0 */
} nm_prepare_block;

typedef struct nm_prepare_source {
    char *name, *paths[NM_PREPARE_SIDES]; /* paths: NULL until it is opened */
} nm_prepare_source;

/* Reads the sources of a split in blocks. */
typedef struct nm_prepare_reader {
    int sides;
    bool cuts; /* lines that are too long for training are not stored */
    nm_pair_config config;
    nm_prepare_source *sources;
    size_t n_sources, capacity, at; /* at: the open one */
    nm_pair_input input;
    nm_lines alignments; /* without a stream if there are none */
    int64_t n_pairs;     /* that have been read */
    nm_error err;        /* cause of the end; status NM_OK at the end of the files */
} nm_prepare_reader;

nm_status nm_prepare_reader_open(nm_prepare_reader *reader, const nm_prepare *prepare, int split,
                                 nm_error *err);
/* Reads the next block. After an error the block has the lines before it, and reader->err is set. The block after the last one
 * is empty. */
void nm_prepare_reader_next(nm_prepare_reader *reader, nm_prepare_block *block);
void nm_prepare_block_release(nm_prepare_block *block);
void nm_prepare_reader_close(nm_prepare_reader *reader);

/* "sentencepiece.source.model", "sentencepiece.model" for plain text; heap. */
char *nm_prepare_spm_name(int sides, int side);
/* Reads or learns the SentencePiece models: fills self->spm and self->spm_bytes. */
nm_status nm_prepare_sentencepiece(nm_prepare *self, nm_error *err);
/* Tokenizes, filters and counts one split: fills self->text, self->numbers, self->words. */
nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err);
/* BPE, dictionaries and the ids of every word from the counted words: fills self->pieces. */
nm_status nm_prepare_subwords(nm_prepare *self, nm_error *err);
/* The words of a line that has been split into words, and their owners: the words of the raw line between white space. */
typedef struct nm_prepare_side_words {
    int32_t *owners; /* [n], heap */
    size_t n;
} nm_prepare_side_words;
/* line: n words separated by spaces. */
void nm_prepare_side_words_init(nm_prepare_side_words *self, const char *raw, size_t bytes,
                                const nm_buffer *line, size_t n);
/* Appends the links between the words of the lines for links between those of the raw lines. */
void nm_prepare_link_words(const nm_link_list *raw, const nm_prepare_side_words sides[NM_PREPARE_SIDES],
                           nm_link_list *out);
/* Links of subwords: fills self->alignments. */
nm_status nm_prepare_alignments(nm_prepare *self, nm_error *err);
/* Ids of all splits: fills self->ids. */
nm_status nm_prepare_ids(nm_prepare *self, nm_error *err);

#endif
