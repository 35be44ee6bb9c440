/* Word alignments in `norma prepare`: links between words of the raw lines are converted to links between
 * tokens, and links between tokens to links between subwords. Each part of a word is linked to each part of
 * the other word. */
#include "data/prepare_private.h"

#include <errno.h>
#include <stdlib.h>

#include "text/word_spans.h"

void nm_prepare_side_words_init(nm_prepare_side_words *self, const char *raw, size_t bytes,
                                const nm_buffer *line, size_t n, bool byte_level)
{
    NM_AUTO_FREE nm_word_span *spans = NULL;
    size_t n_spans = nm_word_spans(raw, bytes, &spans);
    *self = (nm_prepare_side_words){.n = n, .owners = nm_allocate(n * sizeof *self->owners)};
    const nm_subword_line tokens = {line->data, line->bytes, (int32_t)n, byte_level};
    nm_word_spans_of_subwords(raw, spans, n_spans, &tokens, self->owners);
}

void nm_prepare_link_words(const nm_link_list *raw, const nm_prepare_side_words sides[NM_PREPARE_SIDES],
                           nm_link_list *out)
{
    for (size_t i = 0; i < raw->n; i++)
        for (size_t s = 0; s < sides[PREPARE_SOURCE].n; s++)
            for (size_t t = 0; sides[PREPARE_SOURCE].owners[s] == (int32_t)raw->data[i].source &&
                               t < sides[PREPARE_TARGET].n;
                 t++)
                if (sides[PREPARE_TARGET].owners[t] == (int32_t)raw->data[i].target) {
                    NM_APPEND(out->data, out->n, out->capacity, (nm_link){(uint32_t)s, (uint32_t)t});
                }
}

typedef struct side_reader { /* reads the kept training lines of a side */
    FILE *stream;
    char *path;
    const nm_word_subwords *pieces;
    uint32_t *begins; /* [n + 1]: first subword of each word of the line */
    size_t n, capacity;
} side_reader;

static nm_status read_failed(const char *path, nm_error *err)
{
    return nm_fail(err, NM_IO, "%s: reading failed: %s", path, strerror(errno ? errno : EIO));
}

static nm_status side_open(side_reader *self, const nm_prepare *prepare, int side, nm_error *err)
{
    *self = (side_reader){.path = nm_file_writer_readable(&prepare->numbers[PREPARE_TRAIN][side]),
                          .pieces = &prepare->pieces[side]};
    return nm_file_open(&self->stream, self->path, "rb", err);
}

static void side_close(side_reader *self)
{
    if (self->stream)
        fclose(self->stream);
    NM_FREE(self->path, self->begins);
}

/* Reads the next line. *more is false at the end of the file. */
static nm_status side_next(side_reader *self, bool *more, nm_error *err)
{
    uint32_t word = 0, subwords = 0;
    self->n = 0;
    while (fread(&word, sizeof word, 1, self->stream) == 1 && word != NM_PREPARE_LINE_END) {
        NM_RESERVE(self->begins, self->n + 2, self->capacity);
        self->begins[self->n++] = subwords;
        subwords += (uint32_t)(self->pieces->ends[word] - (word ? self->pieces->ends[word - 1] : 0));
        self->begins[self->n] = subwords;
    }
    *more = word == NM_PREPARE_LINE_END;
    return ferror(self->stream) ? read_failed(self->path, err) : NM_OK;
}

/* Reads the links of the next line and converts them to links between subwords. */
static nm_status read_links(FILE *stream, const char *path, const side_reader sides[NM_PREPARE_SIDES],
                            nm_link_list *list, nm_error *err)
{
    nm_link word;
    list->n = 0;
    while (fread(&word, sizeof word, 1, stream) == 1 && word.source != NM_PREPARE_LINE_END) {
        const side_reader *source = &sides[PREPARE_SOURCE], *target = &sides[PREPARE_TARGET];
        NM_ASSERT(word.source < source->n && word.target < target->n);
        for (uint32_t s = source->begins[word.source]; s < source->begins[word.source + 1]; s++)
            for (uint32_t t = target->begins[word.target]; t < target->begins[word.target + 1]; t++) {
                NM_APPEND(list->data, list->n, list->capacity, (nm_link){s, t});
            }
    }
    nm_links_sort(list);
    return ferror(stream) ? read_failed(path, err) : NM_OK;
}

static nm_status write_lines(nm_prepare *self, FILE *links, const char *path,
                             side_reader sides[NM_PREPARE_SIDES], nm_error *err)
{
    nm_link_list list = {0};
    NM_AUTO(nm_ids_release) nm_ids numbers = {0};
    nm_status status = NM_OK;
    for (bool more = true; status == NM_OK && more;) {
        for (int side = 0; status == NM_OK && side < NM_PREPARE_SIDES; side++)
            status = side_next(&sides[side], &more, err);
        if (status == NM_OK && more)
            status = read_links(links, path, sides, &list, err);
        if (status != NM_OK || !more)
            break;
        numbers.n = 0;
        for (size_t i = 0; i < list.n; i++) {
            nm_ids_append(&numbers, (int32_t)list.data[i].target);
            nm_ids_append(&numbers, (int32_t)list.data[i].source);
        }
        nm_corpus_writer_add(&self->alignments, numbers.data, (int32_t)numbers.n);
        self->report->links += (int64_t)list.n;
    }
    free(list.data);
    return status;
}

nm_status nm_prepare_alignments(nm_prepare *self, nm_error *err)
{
    if (!self->links.stream)
        return NM_OK;
    side_reader sides[NM_PREPARE_SIDES] = {0};
    NM_AUTO_FREE char *path = nm_file_writer_readable(&self->links);
    NM_AUTO_FREE char *prefix = nm_path_join(self->config->output, "train.alignment");
    FILE *stream = NULL;
    nm_status status = nm_file_flush(self->links.stream, self->links.path, err);
    NM_THEN(status, nm_file_open(&stream, path, "rb", err));
    for (int side = 0; status == NM_OK && side < NM_PREPARE_SIDES; side++)
        status = side_open(&sides[side], self, side, err);
    NM_THEN(status, nm_corpus_writer_open(&self->alignments, prefix, err));
    NM_THEN(status, write_lines(self, stream, path, sides, err));
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        side_close(&sides[side]);
    if (stream)
        fclose(stream);
    nm_file_writer_abort(&self->links); /* frees disk space */
    return status;
}
