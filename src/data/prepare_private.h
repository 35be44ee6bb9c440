/* The steps of prepare.c. */
#ifndef NM_PREPARE_PRIVATE_H
#define NM_PREPARE_PRIVATE_H

#include "data/corpus.h"
#include "data/prepare.h"
#include "text/bpe.h"
#include "text/vocab.h"

enum { PREPARE_TRAIN, PREPARE_VALID, PREPARE_TEST };
enum { PREPARE_SOURCE, PREPARE_TARGET };

typedef struct nm_prepare {
    const nm_options *options;
    const nm_prepare_config *config;
    nm_prepare_report *report;
    int sides; /* 2, or 1 for plain text */
    int32_t threads;
    nm_counter words[NM_PREPARE_SIDES];      /* of the kept training text */
    nm_counter bpe_counts[NM_PREPARE_SIDES]; /* units before the threshold; empty without one */
    nm_counter units[NM_PREPARE_SIDES];      /* as they get into the ids */
    nm_bpe *bpe;                             /* NULL without BPE */
    nm_vocab *vocab[NM_PREPARE_SIDES];
    /* Written aside; read back from there. The training text is never committed: it is only scratch. */
    nm_file_writer text[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
    nm_corpus_writer ids[NM_PREPARE_SPLITS][NM_PREPARE_SIDES];
} nm_prepare;

/* Prefix of a split's files, "" when it has none. */
const char *nm_prepare_prefix(const nm_prepare_config *config, int split);
/* A file of the output folder, heap. */
char *nm_prepare_path(const nm_prepare *self, int split, int side, const char *suffix);

/* Tokenizes, filters and counts one split: fills self->text, self->words. */
nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err);
/* BPE and dictionaries from the counted words. */
nm_status nm_prepare_units(nm_prepare *self, nm_error *err);
/* NULL without BPE; with the vocabulary threshold when there is one. */
nm_bpe_applier *nm_prepare_applier(const nm_prepare *self, int side);
/* Ids of one split: fills self->ids. */
nm_status nm_prepare_ids(nm_prepare *self, int split, nm_error *err);

#endif
