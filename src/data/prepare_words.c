/* First step of preparing: check, tokenize, lowercase and filter lines, count words. The filter is that of
 * Moses' clean-corpus-n.perl: both sides within the lengths and no side longer than `ratio` times the other.
 */
#include "data/prepare_private.h"

#include <stdlib.h>

#include "data/line_list.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/words.h"

/* A block is at most so many lines or bytes (but always one whole line). */
enum { BLOCK_LINES = 10000, BLOCK_BYTES = 16 << 20, LONGEST_TRAIN_LINE = 1 << 20 };

typedef struct line_worker { /* one per thread and side */
    nm_tokenizer tokenizer;
    bool lowercase;
    nm_buffer scratch;
} line_worker;

typedef struct reader { /* both sides of a split */
    nm_prepare *prepare;
    int split;
    char *paths[NM_PREPARE_SIDES];
    FILE *streams[NM_PREPARE_SIDES];
    nm_lines lines[NM_PREPARE_SIDES];
    nm_line_list raw[NM_PREPARE_SIDES], done[NM_PREPARE_SIDES];
    nm_drop *verdicts; /* [BLOCK_LINES] */
    line_worker *workers[NM_PREPARE_SIDES];
    void **states[NM_PREPARE_SIDES];
} reader;

static void work_line(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    line_worker *self = state;
    if (!self->lowercase) {
        nm_tokenize(&self->tokenizer, line, bytes, out);
        return;
    }
    nm_buffer_clear(&self->scratch);
    nm_tokenize(&self->tokenizer, line, bytes, &self->scratch);
    nm_utf8_lowercase(self->scratch.data, self->scratch.bytes, out);
}

static nm_status open_workers(reader *self, int side, nm_error *err)
{
    const nm_prepare_config *config = self->prepare->config;
    size_t n = (size_t)self->prepare->threads;
    self->workers[side] = nm_allocate(n * sizeof *self->workers[side]);
    self->states[side] = nm_allocate(n * sizeof *self->states[side]);
    nm_tokenizer_options options = nm_tokenizer_options_default();
    const char *language = side == PREPARE_SOURCE ? config->source_lang : config->target_lang;
    if (strcmp(config->tokenizer, "none") && *language) /* file suffixes need not be languages then */
        options.language = language;
    options.aggressive = config->aggressive;
    options.escape = config->escape;
    for (size_t i = 0; i < n; i++) {
        line_worker *worker = &self->workers[side][i];
        self->states[side][i] = worker;
        worker->lowercase = config->lowercase;
        NM_TRY(nm_tokenizer_open(&worker->tokenizer, config->tokenizer, &options, err));
    }
    return NM_OK;
}

/* Packed text would only be called broken UTF-8. */
static nm_status check_packed(FILE *stream, const char *path, nm_error *err)
{
    unsigned char magic[4] = {0};
    size_t n = fread(magic, 1, sizeof magic, stream);
    for (size_t i = n; i > 0; i--) /* glibc takes back what fits its buffer, also on a pipe */
        ungetc(magic[i - 1], stream);
    static const char *const starts[] = {"\3757zX", "\37\213", "BZh",
                                         "\50\265\57\375"}; /* xz, gz, bz2, zst */
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (n == sizeof magic && !memcmp(magic, starts[i], strlen(starts[i])))
            return nm_fail(err, NM_FORMAT, "%s: compressed; unpack it first", path);
    return NM_OK;
}

static nm_status open_input(reader *self, int side, nm_error *err)
{
    static const char *const packings[] = {"xz", "gz", "bz2", "zst"};
    const nm_prepare_config *config = self->prepare->config;
    const char *prefix = nm_prepare_prefix(config, self->split);
    const char *language = side == PREPARE_SOURCE ? config->source_lang : config->target_lang;
    const char *path = self->paths[side] =
        self->prepare->sides == 1 ? nm_duplicate(prefix) : nm_format("%s.%s", prefix, language);
    nm_status status = nm_file_open(&self->streams[side], path, "rb", err);
    for (size_t i = 0; status != NM_OK && !nm_file_exists(path) && i < sizeof packings / sizeof *packings;
         i++) {
        char *packed = nm_format("%s.%s", path, packings[i]);
        if (nm_file_exists(packed))
            nm_fail(err, status, "%s: not found, but %s is there: unpack it first", path, packed);
        free(packed);
    }
    if (status == NM_OK)
        status = check_packed(self->streams[side], path, err);
    nm_lines_init(&self->lines[side], self->streams[side], path);
    return status;
}

static nm_status reader_open(reader *self, nm_error *err)
{
    self->verdicts = nm_allocate(BLOCK_LINES * sizeof *self->verdicts);
    for (int side = 0; side < self->prepare->sides; side++) {
        NM_TRY(open_input(self, side, err));
        NM_TRY(open_workers(self, side, err));
        char *path = nm_prepare_path(self->prepare, self->split, side, "words");
        nm_status status = nm_file_writer_open(&self->prepare->text[self->split][side], path, err);
        free(path);
        NM_TRY(status);
    }
    return NM_OK;
}

static void reader_close(reader *self)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        for (int32_t i = 0; self->workers[side] && i < self->prepare->threads; i++) {
            nm_tokenizer_close(&self->workers[side][i].tokenizer);
            nm_buffer_release(&self->workers[side][i].scratch);
        }
        free(self->workers[side]);
        free(self->states[side]);
        nm_lines_release(&self->lines[side]);
        nm_line_list_release(&self->raw[side]);
        nm_line_list_release(&self->done[side]);
        if (self->streams[side])
            fclose(self->streams[side]);
        free(self->paths[side]);
    }
    free(self->verdicts);
}

static nm_status check_line(const nm_lines *lines, nm_error *err)
{
    const char *nul = memchr(lines->text, 0, lines->bytes);
    if (nul)
        return nm_fail(err, NM_FORMAT, "%s:%lld: not text: byte 0x00 at position %zu", lines->path,
                       (long long)lines->number, (size_t)(nul - lines->text) + 1);
    return nm_line_check(lines, err);
}

/* Takes the current lines of both sides into the block, or a verdict and two empty lines. */
static nm_status take_pair(reader *self, size_t *bytes, nm_error *err)
{
    bool train = self->split == PREPARE_TRAIN, skip = !strcmp(self->prepare->config->on_invalid, "skip");
    nm_drop verdict = NM_DROP_NONE;
    for (int side = 0; side < self->prepare->sides; side++) {
        const nm_lines *lines = &self->lines[side];
        if (train && self->prepare->sides == 2 && lines->bytes > LONGEST_TRAIN_LINE) {
            verdict = NM_DROP_LONG;
        } else if (check_line(lines, err) != NM_OK) {
            if (!train || !skip)
                return err->status;
            verdict = NM_DROP_INVALID;
        }
    }
    self->verdicts[self->raw[PREPARE_SOURCE].n] = verdict;
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t length = verdict == NM_DROP_NONE ? self->lines[side].bytes : 0;
        nm_line_list_add(&self->raw[side], self->lines[side].text, length);
        *bytes += length;
    }
    return NM_OK;
}

/* One side ended before the other: counts both to the end. */
static nm_status fail_unequal(reader *self, nm_error *err)
{
    for (int side = 0; side < self->prepare->sides; side++)
        for (bool more = true; more;)
            NM_TRY(nm_lines_next(&self->lines[side], &more, err));
    return nm_fail(err, NM_MISMATCH, "%s has %lld lines but %s has %lld", self->paths[PREPARE_SOURCE],
                   (long long)self->lines[PREPARE_SOURCE].number, self->paths[PREPARE_TARGET],
                   (long long)self->lines[PREPARE_TARGET].number);
}

/* The next block; an empty one at the end. */
static nm_status read_block(reader *self, nm_error *err)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        nm_line_list_clear(&self->raw[side]);
        nm_line_list_clear(&self->done[side]);
    }
    size_t bytes = 0;
    while (self->raw[PREPARE_SOURCE].n < BLOCK_LINES && bytes < BLOCK_BYTES) {
        bool more[NM_PREPARE_SIDES] = {false};
        for (int side = 0; side < self->prepare->sides; side++)
            NM_TRY(nm_lines_next(&self->lines[side], &more[side], err));
        if (self->prepare->sides == 2 && more[PREPARE_SOURCE] != more[PREPARE_TARGET])
            return fail_unequal(self, err);
        if (!more[PREPARE_SOURCE])
            break;
        NM_TRY(take_pair(self, &bytes, err));
    }
    return NM_OK;
}

static int64_t count_words(const char *line, size_t bytes)
{
    int64_t n = 0;
    const char *word;
    size_t at = 0, word_bytes;
    while (nm_word_next(line, bytes, &at, &word, &word_bytes))
        n++;
    return n;
}

static nm_drop judge_lengths(const nm_prepare_config *config, const int64_t n[NM_PREPARE_SIDES])
{
    int64_t shorter = n[0] < n[1] ? n[0] : n[1], longer = n[0] < n[1] ? n[1] : n[0];
    if (shorter == 0)
        return NM_DROP_EMPTY;
    if (shorter < config->min_length)
        return NM_DROP_SHORT;
    if (config->max_length && longer > config->max_length)
        return NM_DROP_LONG;
    if (config->ratio > 0 && (double)longer / (double)shorter > config->ratio)
        return NM_DROP_RATIO;
    return NM_DROP_NONE;
}

/* Filters, counts and writes pair i of the tokenized block. */
static void keep_pair(reader *self, size_t i)
{
    nm_prepare *prepare = self->prepare;
    nm_prepare_split_report *report = &prepare->report->splits[self->split];
    int64_t n[NM_PREPARE_SIDES] = {0};
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *line = nm_line_list_get(&self->done[side], i, &bytes);
        n[side] = count_words(line, bytes);
    }
    nm_drop verdict = self->verdicts[i];
    if (verdict == NM_DROP_NONE && self->split == PREPARE_TRAIN && prepare->sides == 2)
        verdict = judge_lengths(prepare->config, n);
    report->pairs++;
    if (verdict != NM_DROP_NONE) {
        report->dropped[verdict]++;
        return;
    }
    report->kept++;
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *line = nm_line_list_get(&self->done[side], i, &bytes);
        FILE *stream = prepare->text[self->split][side].stream;
        fwrite(line, 1, bytes, stream);
        putc('\n', stream);
        report->words[side] += n[side];
        if (self->split == PREPARE_TRAIN)
            nm_counter_add_line(&prepare->words[side], line, bytes);
    }
}

static nm_status work_blocks(reader *self, nm_error *err)
{
    for (;;) {
        NM_TRY(read_block(self, err));
        if (!self->raw[PREPARE_SOURCE].n)
            return NM_OK;
        for (int side = 0; side < self->prepare->sides; side++)
            nm_line_list_map(&self->raw[side], work_line, self->states[side], self->prepare->threads,
                             &self->done[side]);
        for (size_t i = 0; i < self->done[PREPARE_SOURCE].n; i++)
            keep_pair(self, i);
    }
}

nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err)
{
    reader source = {.prepare = self, .split = split};
    nm_status status = reader_open(&source, err);
    if (status == NM_OK)
        status = work_blocks(&source, err);
    reader_close(&source);
    for (int side = 0; status == NM_OK && side < self->sides; side++) {
        nm_file_writer *writer = &self->text[split][side];
        status = nm_file_flush(writer->stream, writer->aside, err);
    }
    if (status == NM_OK && split == PREPARE_TRAIN && !self->report->splits[split].kept)
        status = nm_fail(err, NM_MISMATCH, "%s: no %s is left to train on (%lld read)", self->config->train,
                         self->sides == 1 ? "line" : "pair of lines",
                         (long long)self->report->splits[split].pairs);
    return status;
}
