/* Third step of `norma prepare`: converts indexes of words to ids. Each thread converts whole files. */
#include "data/prepare_private.h"

#include <errno.h>

#include "base/file.h"

enum { READ_NUMBERS = 1 << 14 };

typedef struct encoder { /* for one side of one split */
    const nm_word_subwords *pieces;
    const nm_vocab *vocab;
    nm_corpus_writer *writer;
    nm_ids line;
    int64_t tokens, unknown;
} encoder;

static void end_line(encoder *self)
{
    self->tokens += (int64_t)self->line.n;
    nm_ids_append(&self->line, self->vocab->eos);
    nm_corpus_writer_add(self->writer, self->line.data, (int32_t)self->line.n);
    self->line.n = 0;
}

static void add_word(encoder *self, uint32_t word)
{
    const nm_word_subwords *pieces = self->pieces;
    for (size_t i = word ? pieces->ends[word - 1] : 0; i < pieces->ends[word]; i++) {
        nm_ids_append(&self->line, pieces->numbers[i]);
        self->unknown += pieces->numbers[i] == self->vocab->unk;
    }
}

static nm_status encode_stream(encoder *self, FILE *stream, const char *path, nm_error *err)
{
    uint32_t numbers[READ_NUMBERS];
    for (size_t n; (n = fread(numbers, sizeof *numbers, READ_NUMBERS, stream)) > 0;)
        for (size_t i = 0; i < n; i++) {
            if (numbers[i] == NM_PREPARE_LINE_END)
                end_line(self);
            else
                add_word(self, numbers[i]);
        }
    return ferror(stream)
               ? nm_fail(err, nm_file_error_status(errno), "%s: reading failed: %s", path, strerror(errno))
               : NM_OK;
}

static nm_status encode_side(nm_prepare *self, int split, int side, nm_error *err)
{
    encoder work = {
        .pieces = &self->pieces[side], .vocab = self->vocab[side], .writer = &self->ids[split][side]};
    NM_AUTO_FREE char *path = nm_file_writer_readable(&self->numbers[split][side]);
    NM_AUTO_FREE char *prefix = nm_prepare_path(self, split, side, NULL);
    FILE *stream = NULL;
    nm_status status = nm_corpus_writer_open(work.writer, prefix, err);
    NM_THEN(status, nm_file_open(&stream, path, "rb", err));
    NM_THEN(status, encode_stream(&work, stream, path, err));
    if (stream)
        fclose(stream);
    nm_file_writer_abort(&self->numbers[split][side]); /* frees disk space */
    self->report->splits[split].tokens[side] = work.tokens;
    self->report->splits[split].unknown[side] = work.unknown;
    nm_ids_release(&work.line);
    return status;
}

nm_status nm_prepare_ids(nm_prepare *self, nm_error *err)
{
    enum { FILES = NM_PREPARE_SPLITS * NM_PREPARE_SIDES };
    nm_error errors[FILES] = {0};
#pragma omp parallel for num_threads(self->threads) schedule(dynamic, 1)
    for (int i = 0; i < FILES; i++)
        if (self->numbers[i / NM_PREPARE_SIDES][i % NM_PREPARE_SIDES].stream)
            encode_side(self, i / NM_PREPARE_SIDES, i % NM_PREPARE_SIDES, &errors[i]);
    for (int i = 0; i < FILES; i++)
        if (errors[i].status != NM_OK) {
            *err = errors[i];
            return err->status;
        }
    return NM_OK;
}
