/* Counts the validation and test pairs (of plain text: lines or documents) that also occur in the training
 * text, after tokenization: scores on them do not measure generalization. They are compared by a hash of 64
 * bits of the indexes of their words. Memory grows with the validation and test sets only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "data/prepare_private.h"
#include "text/utf8.h"

enum { READ_NUMBERS = 1 << 14 };

/* The lines of one side of a split, as indexes of words. */
typedef struct line_reader {
    FILE *stream;
    char *path;
    uint32_t *numbers; /* [READ_NUMBERS], read ahead */
    size_t at, n;
    uint32_t *line; /* the current line */
    size_t length, capacity;
} line_reader;

static nm_status open_reader(line_reader *self, const nm_file_writer *file, nm_error *err)
{
    self->path = nm_file_writer_readable(file);
    self->numbers = nm_allocate(READ_NUMBERS * sizeof *self->numbers);
    return nm_file_open(&self->stream, self->path, "rb", err);
}

static void close_reader(line_reader *self)
{
    if (self->stream)
        fclose(self->stream);
    NM_FREE(self->path, self->numbers, self->line);
}

static nm_status next_line(line_reader *self, bool *more, nm_error *err)
{
    self->length = 0;
    for (;;) {
        if (self->at == self->n) {
            self->n = fread(self->numbers, sizeof *self->numbers, READ_NUMBERS, self->stream);
            self->at = 0;
        }
        *more = self->n > 0;
        if (!*more)
            return ferror(self->stream) ? nm_fail(err, nm_file_error_status(errno), "%s: reading failed: %s",
                                                  self->path, strerror(errno))
                                        : NM_OK;
        uint32_t number = self->numbers[self->at++];
        if (number == NM_PREPARE_LINE_END)
            return NM_OK;
        NM_APPEND(self->line, self->length, self->capacity, number);
    }
}

/* Hashes of the pairs of a split, one at a time. */
typedef struct pair_reader {
    line_reader sides[NM_PREPARE_SIDES];
    int n_sides;
} pair_reader;

static nm_status next_pair(pair_reader *self, uint64_t *hash, bool *more, nm_error *err)
{
    *hash = 0;
    for (int side = 0; side < self->n_sides; side++) {
        line_reader *lines = &self->sides[side];
        NM_TRY(next_line(lines, more, err));
        if (!*more)
            return NM_OK;
        *hash = XXH3_64bits_withSeed(lines->length ? lines->line : (const uint32_t[]){0},
                                     lines->length * sizeof *lines->line, *hash);
    }
    return NM_OK;
}

/* Number of words of a line of plain text. The pieces of a SentencePiece model are parts of words: of those,
 * the pieces that begin with a space are counted, except in a language without spaces. */
static size_t count_words(const nm_prepare *self, const line_reader *line)
{
    static const char space[] = "\xE2\x96\x81"; /* U+2581 */
    const nm_word_subwords *pieces = &self->pieces[0];
    if (!self->spm[0] || nm_language_has_no_spaces(self->config->source_lang))
        return line->length;
    size_t n = 0;
    for (size_t i = 0; i < line->length; i++) {
        int32_t id = pieces->numbers[line->line[i] ? pieces->ends[line->line[i] - 1] : 0];
        n += !strncmp(nm_vocab_symbol(self->vocab[0], id), space, sizeof space - 1);
    }
    return n;
}

typedef struct pair { /* of the validation or test set */
    uint64_t hash;
    int split;
    bool repeated; /* also in the training text */
} pair;

typedef struct pair_list { /* sorted by hash when it is complete */
    pair *data;
    size_t n, capacity;
} pair_list;

static int compare_pairs(const void *a, const void *b)
{
    uint64_t x = ((const pair *)a)->hash, y = ((const pair *)b)->hash;
    return (x > y) - (x < y);
}

/* Marks the pairs with the hash. */
static void mark(pair_list *pairs, uint64_t hash)
{
    size_t first = 0, end = pairs->n;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (pairs->data[middle].hash < hash)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < pairs->n && pairs->data[first].hash == hash && !pairs->data[first].repeated; first++)
        pairs->data[first].repeated = true;
}

/* Adds the pairs of a split to the list or, for the training text, marks those of the list. */
static nm_status read_split(const nm_prepare *self, int split, pair_list *pairs, nm_error *err)
{
    enum { MIN_WORDS = 5 }; /* of plain text: headings and short lines are repeated in any text */
    pair_reader reader = {.n_sides = self->sides};
    nm_status status = NM_OK;
    for (int side = 0; side < self->sides && status == NM_OK; side++)
        status = open_reader(&reader.sides[side], &self->numbers[split][side], err);
    for (bool more = true; status == NM_OK;) {
        uint64_t hash;
        status = next_pair(&reader, &hash, &more, err);
        if (status != NM_OK || !more)
            break;
        if (self->sides == 1 && count_words(self, &reader.sides[0]) < MIN_WORDS)
            continue;
        if (split == PREPARE_TRAIN) {
            mark(pairs, hash);
            continue;
        }
        NM_APPEND(pairs->data, pairs->n, pairs->capacity, (pair){.hash = hash, .split = split});
    }
    for (int side = 0; side < self->sides; side++)
        close_reader(&reader.sides[side]);
    return status;
}

nm_status nm_prepare_overlap(nm_prepare *self, nm_error *err)
{
    pair_list pairs = {0};
    nm_status status = NM_OK;
    /* A document that is a whole file would be held in memory. */
    bool whole_files = self->sides == 1 && self->config->documents == NM_DOCUMENT_FILE;
    if (whole_files || !self->numbers[PREPARE_TRAIN][0].stream)
        return NM_OK;
    for (int split = PREPARE_VALID; split < NM_PREPARE_SPLITS && status == NM_OK; split++)
        if (self->numbers[split][0].stream)
            status = read_split(self, split, &pairs, err);
    if (pairs.n)
        qsort(pairs.data, pairs.n, sizeof *pairs.data, compare_pairs);
    if (status == NM_OK && pairs.n)
        status = read_split(self, PREPARE_TRAIN, &pairs, err);
    for (size_t i = 0; i < pairs.n; i++)
        self->report->splits[pairs.data[i].split].repeated += pairs.data[i].repeated;
    free(pairs.data);
    return status;
}
