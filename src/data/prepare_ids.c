/* Third step of preparing: cuts the kept lines into units and writes their ids. */
#include "data/prepare_private.h"

#include <stdlib.h>

#include "data/line_list.h"

enum { BLOCK_LINES = 10000, BLOCK_BYTES = 16 << 20 };

typedef struct id_worker { /* one per thread */
    const nm_vocab *vocab;
    nm_bpe_applier *applier; /* NULL without BPE */
    nm_buffer units;
    nm_ids ids;
    int64_t tokens, unknown;
} id_worker;

/* The result is the ids' bytes. */
static void work_line(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    id_worker *self = state;
    if (self->applier) {
        nm_buffer_clear(&self->units);
        nm_bpe_apply_line(self->applier, line, bytes, &self->units);
        line = self->units.data;
        bytes = self->units.bytes;
    }
    self->ids.n = 0;
    self->unknown += (int64_t)nm_vocab_encode(self->vocab, line, bytes, &self->ids);
    self->tokens += (int64_t)self->ids.n;
    nm_ids_append(&self->ids, self->vocab->eos);
    nm_buffer_append(out, (const char *)self->ids.data, self->ids.n * sizeof *self->ids.data);
}

static void write_sequences(const nm_line_list *list, nm_corpus_writer *writer)
{
    for (size_t i = 0; i < list->n; i++) {
        size_t bytes;
        const char *data = nm_line_list_get(list, i, &bytes);
        nm_corpus_writer_add(writer, (const int32_t *)(const void *)data, (int32_t)(bytes / sizeof(int32_t)));
    }
}

static nm_status work_blocks(nm_prepare *self, nm_lines *lines, void *const *states, nm_corpus_writer *writer,
                             nm_error *err)
{
    nm_line_list text = {0}, ids = {0};
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        nm_line_list_clear(&text);
        nm_line_list_clear(&ids);
        while (text.n < BLOCK_LINES && text.text.bytes < BLOCK_BYTES) {
            status = nm_lines_next(lines, &more, err);
            if (status != NM_OK || !more)
                break;
            nm_line_list_add(&text, lines->text, lines->bytes);
        }
        nm_line_list_map(&text, work_line, states, self->threads, &ids);
        write_sequences(&ids, writer);
    }
    nm_line_list_release(&text);
    nm_line_list_release(&ids);
    return status;
}

static nm_status encode_file(nm_prepare *self, int split, int side, void *const *states, nm_error *err)
{
    const char *path = self->text[split][side].aside;
    char *prefix = nm_prepare_path(self, split, side, NULL);
    FILE *stream = NULL;
    nm_lines lines = {0};
    nm_status status = nm_corpus_writer_open(&self->ids[split][side], prefix, err);
    if (status == NM_OK)
        status = nm_file_open(&stream, path, "rb", err);
    if (status == NM_OK) {
        nm_lines_init(&lines, stream, path);
        status = work_blocks(self, &lines, states, &self->ids[split][side], err);
    }
    nm_lines_release(&lines);
    if (stream)
        fclose(stream);
    free(prefix);
    return status;
}

static nm_status encode_side(nm_prepare *self, int split, int side, nm_error *err)
{
    size_t n = (size_t)self->threads;
    id_worker *workers = nm_allocate(n * sizeof *workers);
    void **states = nm_allocate(n * sizeof *states);
    for (size_t i = 0; i < n; i++) {
        workers[i] = (id_worker){.vocab = self->vocab[side], .applier = nm_prepare_applier(self, side)};
        states[i] = &workers[i];
    }
    nm_status status = encode_file(self, split, side, states, err);
    nm_prepare_split_report *report = &self->report->splits[split];
    for (size_t i = 0; i < n; i++) {
        report->tokens[side] += workers[i].tokens;
        report->unknown[side] += workers[i].unknown;
        nm_bpe_applier_free(workers[i].applier);
        nm_buffer_release(&workers[i].units);
        nm_ids_release(&workers[i].ids);
    }
    free(workers);
    free(states);
    return status;
}

nm_status nm_prepare_ids(nm_prepare *self, int split, nm_error *err)
{
    for (int side = 0; side < self->sides; side++)
        NM_TRY(encode_side(self, split, side, err));
    return NM_OK;
}
