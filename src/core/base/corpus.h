/* Token sequences in files. Each side of each split consists of two files of a data folder:
 *
 *     SPLIT.SIDE.ids   header, int32 ids of all sequences
 *     SPLIT.SIDE.off   header, uint64 offsets[n + 1] into the ids
 *
 * docs/formats.md describes the header (64 bytes, little-endian). Writing needs constant memory. */
#pragma once

#include "base/file.h"

typedef struct nm_corpus { /* one side, in memory */
    nm_file_map ids_file, offsets_file;
    const int32_t *ids;      /* [offsets[n]] */
    const uint64_t *offsets; /* [n + 1]: first token of each sequence */
    int64_t n;               /* number of sequences */
    uint64_t fingerprint;    /* verified hash of all ids and offsets */
} nm_corpus;

/* Reads PREFIX.ids and PREFIX.off into memory, so that the files may change afterwards. NM_IO; NM_FORMAT if
 * sizes, offsets or fingerprint are wrong; NM_MISMATCH if an id is not below vocab_size or the two files do
 * not belong together. */
nm_status nm_corpus_open(nm_corpus *corpus, const char *prefix, int32_t vocab_size, nm_error *err);
void nm_corpus_close(nm_corpus *corpus);

static inline int64_t nm_corpus_length(const nm_corpus *corpus, int64_t i)
{
    return (int64_t)(corpus->offsets[i + 1] - corpus->offsets[i]);
}

typedef struct nm_corpus_writer {
    nm_file_writer ids, offsets;
    uint64_t n, tokens;
    void *hash; /* XXH3 state of the fingerprint */
} nm_corpus_writer;

nm_status nm_corpus_writer_open(nm_corpus_writer *writer, const char *prefix, nm_error *err);
/* Adds a sequence of n ids. Write errors are reported by commit. */
void nm_corpus_writer_add(nm_corpus_writer *writer, const int32_t *ids, int32_t n);
/* Completes both files (nm_file_writer). commit and abort close the writer; abort removes the temporary
 * files. */
nm_status nm_corpus_writer_commit(nm_corpus_writer *writer, nm_error *err);
void nm_corpus_writer_abort(nm_corpus_writer *writer);
