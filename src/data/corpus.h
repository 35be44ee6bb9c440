/* Token sequences on disk, mapped at training, not parsed. One side of one split is two files of a data
 * folder: SPLIT.SIDE.ids   header, then int32 ids, one sequence after another SPLIT.SIDE.off   header, then
 * uint64 offsets[n + 1] into the ids The header (64 bytes, little-endian) is described in docs/formats.md.
 * Writing streams: memory doesn't grow. */
#ifndef NM_CORPUS_H
#define NM_CORPUS_H

#include "base/file.h"

typedef struct nm_corpus { /* one side, mapped */
    nm_file_map ids_map, offsets_map;
    const int32_t *ids;
    const uint64_t *offsets;
    int64_t n;            /* sequences */
    uint64_t fingerprint; /* of all ids and offsets, as written */
} nm_corpus;

/* Opens PREFIX.ids and PREFIX.off and checks sizes, offsets and that every id is below vocab_size. NM_FORMAT.
 */
nm_status nm_corpus_open(nm_corpus *corpus, const char *prefix, int32_t vocab_size, nm_error *err);
void nm_corpus_close(nm_corpus *corpus);

static inline int64_t nm_corpus_length(const nm_corpus *corpus, int64_t i)
{
    return (int64_t)(corpus->offsets[i + 1] - corpus->offsets[i]);
}

typedef struct nm_corpus_writer {
    nm_file_writer ids, offsets;
    uint64_t n, tokens;
    void *hash; /* running fingerprint */
} nm_corpus_writer;

nm_status nm_corpus_writer_open(nm_corpus_writer *writer, const char *prefix, nm_error *err);
/* Write errors show at commit. */
void nm_corpus_writer_add(nm_corpus_writer *writer, const int32_t *ids, int32_t n);
nm_status nm_corpus_writer_commit(nm_corpus_writer *writer, nm_error *err);
void nm_corpus_writer_abort(nm_corpus_writer *writer);

#endif
