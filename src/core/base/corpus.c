#include "base/corpus.h"

#include <string.h>
#include <xxhash.h>

#include "base/memory.h"

enum { VERSION = 1 };

typedef struct header {
    char magic[8];
    uint32_t version, element_bytes;
    uint64_t n, tokens, fingerprint;
    uint64_t reserved[3];
} header;

_Static_assert(sizeof(header) == 64, "the header has 64 bytes");

static const char ids_magic[8] = "NORMAids", offsets_magic[8] = "NORMAoff";

static nm_status open_part(nm_file_map *map, const char *prefix, const char *suffix, const char *magic,
                           uint32_t element_bytes, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_format("%s.%s", prefix, suffix);
    nm_status status = nm_file_map_copy(map, path, err);
    const header *head = (const header *)map->data;
    static const uint64_t zeros[3];
    if (status == NM_OK && (map->bytes < sizeof *head || memcmp(head->magic, magic, sizeof head->magic) ||
                            memcmp(head->reserved, zeros, sizeof zeros)))
        status = nm_fail(err, NM_FORMAT, "%s: not a token file of norma prepare", path);
    else if (status == NM_OK && (head->version != VERSION || head->element_bytes != element_bytes))
        status = nm_fail(err, NM_FORMAT, "%s: version %u, expected %d", path, head->version, VERSION);
    if (status == NM_OK) {
        uint64_t elements = element_bytes == sizeof(int32_t) ? head->tokens : head->n + 1;
        if (head->n >= (uint64_t)1 << 40 || head->tokens >= (uint64_t)1 << 44 ||
            map->bytes != sizeof *head + elements * element_bytes)
            status = nm_fail(err, NM_FORMAT, "%s: has %zu bytes, which does not match its header", path,
                             map->bytes);
    }
    return status;
}

/* Computes the fingerprint of offsets and ids in the order in which the writer adds them. */
static nm_status verify_fingerprint(const nm_corpus *corpus, const char *prefix, nm_error *err)
{
    XXH3_state_t *hash = XXH3_createState();
    if (!hash)
        return nm_fail(err, NM_MEMORY, "%s.ids: out of memory", prefix);
    XXH3_64bits_reset(hash);
    XXH3_64bits_update(hash, corpus->offsets, sizeof *corpus->offsets);
    for (int64_t i = 0; i < corpus->n; i++) {
        XXH3_64bits_update(hash, corpus->ids + corpus->offsets[i],
                           (size_t)nm_corpus_length(corpus, i) * sizeof *corpus->ids);
        XXH3_64bits_update(hash, &corpus->offsets[i + 1], sizeof *corpus->offsets);
    }
    uint64_t actual = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    if (actual != corpus->fingerprint)
        return nm_fail(err, NM_FORMAT,
                       "%s.ids, %s.off: damaged files: the contents do not match their fingerprint; prepare "
                       "the folder again",
                       prefix, prefix);
    return NM_OK;
}

static nm_status check_corpus(const nm_corpus *corpus, const char *prefix, int32_t vocab_size, nm_error *err)
{
    const header *ids = (const header *)corpus->ids_file.data,
                 *offsets = (const header *)corpus->offsets_file.data;
    if (ids->n != offsets->n || ids->tokens != offsets->tokens || ids->fingerprint != offsets->fingerprint)
        return nm_fail(err, NM_MISMATCH, "%s.ids and %s.off are from different corpora", prefix, prefix);
    for (uint64_t i = 0; i < ids->n; i++)
        if (corpus->offsets[i] > corpus->offsets[i + 1] ||
            corpus->offsets[i + 1] - corpus->offsets[i] > INT32_MAX)
            return nm_fail(err, NM_FORMAT, "%s.off: sequence %llu has an invalid offset", prefix,
                           (unsigned long long)i);
    if (corpus->offsets[0] != 0 || corpus->offsets[ids->n] != ids->tokens)
        return nm_fail(err, NM_FORMAT, "%s.off: offsets do not span the tokens", prefix);
    for (uint64_t i = 0; i < ids->tokens; i++)
        if (corpus->ids[i] < 0 || corpus->ids[i] >= vocab_size)
            return nm_fail(err, NM_MISMATCH, "%s.ids: token %llu has id %d, the dictionary has %d symbols",
                           prefix, (unsigned long long)i, corpus->ids[i], vocab_size);
    return verify_fingerprint(corpus, prefix, err);
}

nm_status nm_corpus_open(nm_corpus *corpus, const char *prefix, int32_t vocab_size, nm_error *err)
{
    *corpus = (nm_corpus){0};
    nm_status status = open_part(&corpus->ids_file, prefix, "ids", ids_magic, sizeof(int32_t), err);
    NM_THEN(status, open_part(&corpus->offsets_file, prefix, "off", offsets_magic, sizeof(uint64_t), err));
    if (status == NM_OK) {
        const header *head = (const header *)corpus->ids_file.data;
        corpus->ids = (const int32_t *)(head + 1);
        corpus->offsets = (const uint64_t *)((const header *)corpus->offsets_file.data + 1);
        corpus->n = (int64_t)head->n;
        corpus->fingerprint = head->fingerprint;
        status = check_corpus(corpus, prefix, vocab_size, err);
    }
    if (status != NM_OK)
        nm_corpus_close(corpus);
    return status;
}

void nm_corpus_close(nm_corpus *corpus)
{
    nm_file_unmap(&corpus->ids_file);
    nm_file_unmap(&corpus->offsets_file);
    *corpus = (nm_corpus){0};
}

static nm_status open_writer(nm_file_writer *writer, const char *prefix, const char *suffix, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_format("%s.%s", prefix, suffix);
    nm_status status = nm_file_writer_open(writer, path, err);
    if (status == NM_OK) {
        header blank = {0};
        fwrite(&blank, sizeof blank, 1, writer->stream);
    }
    return status;
}

static void write_offset(nm_corpus_writer *writer)
{
    fwrite(&writer->tokens, sizeof writer->tokens, 1, writer->offsets.stream);
    XXH3_64bits_update(writer->hash, &writer->tokens, sizeof writer->tokens);
}

nm_status nm_corpus_writer_open(nm_corpus_writer *writer, const char *prefix, nm_error *err)
{
    *writer = (nm_corpus_writer){.hash = XXH3_createState()};
    if (!writer->hash)
        return nm_fail(err, NM_MEMORY, "%s.ids: out of memory", prefix);
    XXH3_64bits_reset(writer->hash);
    nm_status status = open_writer(&writer->ids, prefix, "ids", err);
    NM_THEN(status, open_writer(&writer->offsets, prefix, "off", err));
    if (status != NM_OK)
        nm_corpus_writer_abort(writer);
    else
        write_offset(writer);
    return status;
}

void nm_corpus_writer_add(nm_corpus_writer *writer, const int32_t *ids, int32_t n)
{
    fwrite(ids, sizeof *ids, (size_t)n, writer->ids.stream);
    XXH3_64bits_update(writer->hash, ids, (size_t)n * sizeof *ids);
    writer->n++;
    writer->tokens += (uint64_t)n;
    write_offset(writer);
}

static void write_header(nm_file_writer *file, const char *magic, uint32_t element_bytes,
                         const nm_corpus_writer *writer)
{
    header head = {.version = VERSION,
                   .element_bytes = element_bytes,
                   .n = writer->n,
                   .tokens = writer->tokens,
                   .fingerprint = XXH3_64bits_digest(writer->hash)};
    memcpy(head.magic, magic, sizeof head.magic);
    rewind(file->stream);
    fwrite(&head, sizeof head, 1, file->stream);
}

nm_status nm_corpus_writer_commit(nm_corpus_writer *writer, nm_error *err)
{
    write_header(&writer->ids, ids_magic, sizeof(int32_t), writer);
    write_header(&writer->offsets, offsets_magic, sizeof(uint64_t), writer);
    nm_status status = nm_file_writer_commit(&writer->ids, err);
    NM_THEN(status, nm_file_writer_commit(&writer->offsets, err));
    nm_corpus_writer_abort(writer);
    return status;
}

void nm_corpus_writer_abort(nm_corpus_writer *writer)
{
    nm_file_writer_abort(&writer->ids);
    nm_file_writer_abort(&writer->offsets);
    XXH3_freeState(writer->hash);
    *writer = (nm_corpus_writer){0};
}
