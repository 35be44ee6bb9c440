/* First step of `norma prepare`: validate, tokenize, lowercase and filter lines (prepare_chunk.h), count
 * words. Duplicates are dropped when chunks are merged, because they depend on the order of the lines.
 *
 * A block of lines is split into chunks that several threads process, while one thread merges the chunks of
 * the previous block in the order of the lines and reads the next block. Each chunk counts its words, so that
 * a word is looked up in the counter of the whole text once per chunk instead of once per occurrence. */
#include "data/prepare_chunk.h"

#include <omp.h>

#include "text/utf8.h"

enum { N_CHUNKS = NM_PREPARE_BLOCK_LINES / NM_PREPARE_CHUNK_LINES, N_BLOCKS = 3 };

typedef struct block {
    nm_prepare_block raw;
    nm_prepare_chunk chunks[N_CHUNKS];
} block;

typedef struct split_job {
    nm_prepare *prepare;
    int split;
    nm_prepare_reader reader;
    nm_prepare_worker *workers; /* [threads] */
    block *blocks;              /* [N_BLOCKS]: one is being merged, one processed, one read */
    uint32_t *numbers;          /* [words of a chunk]: indexes in the counter of the whole text */
    size_t numbers_capacity;
    nm_prepare_chunk_rules rules;
    bool holds_out;
    nm_prepare_pair_set pairs; /* the pairs that have been kept, if duplicates are dropped */
    int64_t n_kept;            /* their number, which determines the pairs that are held out */
} split_job;

static nm_status open_writer(nm_file_writer *writer, const nm_prepare *prepare, int split, int side,
                             const char *suffix, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_prepare_path(prepare, split, side, suffix);
    return nm_file_writer_open(writer, path, err);
}

static nm_status job_open(split_job *self, nm_error *err)
{
    nm_prepare *prepare = self->prepare;
    self->rules = (nm_prepare_chunk_rules){.prepare = prepare, .split = self->split};
    self->rules.in_characters[PREPARE_SOURCE] = nm_language_has_no_spaces(prepare->config->source_lang);
    self->rules.in_characters[PREPARE_TARGET] = nm_language_has_no_spaces(prepare->config->target_lang);
    NM_TRY(nm_prepare_reader_open(&self->reader, prepare, self->split, err));
    for (int32_t i = 0; i < prepare->threads; i++)
        NM_TRY(nm_prepare_worker_open(&self->workers[i], prepare, err));
    if (self->split == PREPARE_TRAIN && *prepare->config->alignments)
        NM_TRY(open_writer(&prepare->links, prepare, self->split, PREPARE_SOURCE, "links", err));
    self->holds_out = self->split == PREPARE_TRAIN && prepare->config->valid_every;
    self->rules.drops_duplicates = self->split == PREPARE_TRAIN && prepare->config->drop_duplicates;
    for (int split = self->split; split <= (self->holds_out ? PREPARE_VALID : self->split); split++)
        for (int side = 0; side < prepare->sides; side++) {
            NM_TRY(open_writer(&prepare->numbers[split][side], prepare, split, side, "numbers", err));
            if (split != PREPARE_TRAIN)
                NM_TRY(open_writer(&prepare->text[split][side], prepare, split, side, "words", err));
        }
    return NM_OK;
}

static void release_block(block *self)
{
    nm_prepare_block_release(&self->raw);
    for (int c = 0; c < N_CHUNKS; c++)
        nm_prepare_chunk_release(&self->chunks[c]);
}

static void job_close(split_job *self)
{
    nm_prepare_reader_close(&self->reader);
    nm_prepare_pair_set_release(&self->pairs);
    for (int32_t i = 0; i < self->prepare->threads; i++)
        nm_prepare_worker_release(&self->workers[i]);
    for (int i = 0; i < N_BLOCKS; i++)
        release_block(&self->blocks[i]);
    NM_FREE(self->workers, self->blocks, self->numbers);
}

/* The line, truncated. The caller frees it. */
static char *truncate_line(const nm_line_list *lines, size_t i)
{
    enum { EXAMPLE_BYTES = 60 };
    size_t bytes;
    const char *line = nm_line_list_get(lines, i, &bytes);
    size_t end = bytes < EXAMPLE_BYTES ? bytes : nm_utf8_whole(line, EXAMPLE_BYTES);
    return nm_format("%.*s%s", (int)end, line, end < bytes ? "..." : "");
}

static void add_report(const split_job *self, const nm_prepare_block *from,
                       const nm_prepare_split_report *more)
{
    nm_prepare_split_report *sum = &self->prepare->report->splits[self->split];
    sum->pairs += more->pairs;
    sum->kept += more->kept;
    sum->held_out += more->held_out;
    sum->tokenized += more->tokenized;
    for (int drop = 0; drop < NM_DROP_N; drop++) {
        sum->dropped[drop] += more->dropped[drop];
        for (int i = 0; i < more->n_examples[drop] && sum->n_examples[drop] < NM_PREPARE_EXAMPLES; i++) {
            nm_drop_example *example = &sum->examples[drop][sum->n_examples[drop]++];
            size_t pair = (size_t)more->examples[drop][i].line;
            example->line = from->numbers[PREPARE_SOURCE][pair];
            if (self->reader.n_sources > 1)
                example->path = nm_duplicate(self->reader.sources[from->source].paths[PREPARE_SOURCE]);
            for (int side = 0; side < self->prepare->sides; side++)
                example->text[side] = truncate_line(&from->lines[side], pair);
        }
    }
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        sum->words[side] += more->words[side];
}

/* Whether the next pair that is kept belongs to the validation set. Lines of plain text are held out in
 * blocks, because the lines of a block are context of each other. */
static bool is_held_out(const split_job *self)
{
    const nm_prepare_config *config = self->prepare->config;
    bool has_blocks = self->prepare->sides == 1 && config->documents == NM_DOCUMENT_LINE;
    int64_t together = has_blocks ? NM_PREPARE_TEXT_BLOCK : 1;
    return self->holds_out && (self->n_kept / together + 1) % config->valid_every == 0;
}

/* Finds the duplicates and held-out pairs of the training text in a chunk that is merged. */
static void assign_uses(split_job *self, nm_prepare_chunk *from)
{
    nm_prepare_split_report *valid = &self->prepare->report->splits[PREPARE_VALID];
    for (int64_t line = 0; line < from->n_kept; line++) {
        nm_prepare_kept *pair = &from->kept[line];
        if (pair->hash && !nm_prepare_pair_set_add(&self->pairs, pair->hash)) {
            pair->use = NM_USE_NOT;
            nm_prepare_count_drop(&from->report, NM_DROP_DUPLICATE, pair->index);
            from->report.kept--;
            continue;
        }
        pair->use = is_held_out(self) ? NM_USE_IN_VALID : NM_USE_IN_SPLIT;
        self->n_kept++;
        if (pair->use == NM_USE_IN_VALID) {
            from->report.kept--;
            from->report.held_out++;
            valid->pairs++;
            valid->kept++;
        }
    }
}

/* Subtracts the words of duplicates and held-out pairs from the counts of the chunk and the report. */
static void uncount_words(const split_job *self, nm_prepare_chunk *from, int side)
{
    nm_prepare_split_report *splits = self->prepare->report->splits;
    const nm_prepare_numbers *list = &from->numbers[side];
    int64_t line = 0, words[NM_USE_NOT + 1] = {0};
    for (size_t i = 0; i < list->n; i++) {
        nm_prepare_use use = list->data[i] == NM_PREPARE_LINE_END ? NM_USE_IN_SPLIT : from->kept[line].use;
        line += list->data[i] == NM_PREPARE_LINE_END;
        if (use != NM_USE_IN_SPLIT)
            from->words[side].items[list->data[i]].count--;
        words[use]++;
    }
    splits[PREPARE_TRAIN].words[side] -= words[NM_USE_IN_VALID] + words[NM_USE_NOT];
    splits[PREPARE_VALID].words[side] += words[NM_USE_IN_VALID];
}

/* Writes the lines of the training text to the files of train and, if they are held out, of valid, without
 * duplicates. */
static nm_status write_lines(split_job *self, const nm_prepare_chunk *from, int side, nm_error *err)
{
    const nm_prepare_numbers *list = &from->numbers[side];
    const char *text = from->text[side].data;
    nm_prepare *prepare = self->prepare;
    int64_t line = 0;
    for (size_t start = 0, i = 0; i < list->n; i++) {
        if (list->data[i] != NM_PREPARE_LINE_END)
            continue;
        nm_prepare_use use = from->kept[line++].use;
        int split = use == NM_USE_IN_VALID ? PREPARE_VALID : self->split;
        size_t bytes = self->holds_out ? strcspn(text, "\n") + 1 : 0;
        if (use != NM_USE_NOT)
            NM_TRY(nm_file_append(&prepare->numbers[split][side], list->data + start,
                                  (i + 1 - start) * sizeof *list->data, err));
        if (use == NM_USE_IN_VALID)
            NM_TRY(nm_file_append(&prepare->text[split][side], text, bytes, err));
        start = i + 1;
        text += bytes;
    }
    return NM_OK;
}

/* Adds the chunk's words to the counter of the whole text. Words that occur only in valid and test are added
 * with count 0. */
static nm_status merge_side(split_job *self, nm_prepare_chunk *from, int side, nm_error *err)
{
    nm_counter *words = &from->words[side];
    nm_prepare_numbers *list = &from->numbers[side];
    bool in_parts = self->holds_out || self->rules.drops_duplicates;
    if (in_parts)
        uncount_words(self, from, side);
    NM_RESERVE(self->numbers, words->n, self->numbers_capacity);
    nm_counter_add_scaled(&self->prepare->words[side], words, self->split == PREPARE_TRAIN, self->numbers);
    for (size_t i = 0; i < list->n; i++)
        if (list->data[i] != NM_PREPARE_LINE_END)
            list->data[i] = self->numbers[list->data[i]];
    if (in_parts)
        return write_lines(self, from, side, err);
    NM_TRY(nm_file_append(&self->prepare->numbers[self->split][side], list->data,
                          list->n * sizeof *list->data, err));
    return nm_file_append(&self->prepare->text[self->split][side], from->text[side].data,
                          from->text[side].bytes, err);
}

/* Writes the links of the lines that are used for training. */
static nm_status write_links(split_job *self, const nm_prepare_chunk *from, nm_error *err)
{
    int64_t line = 0;
    for (size_t start = 0, i = 0; i < from->links.n; i++) {
        if (from->links.data[i].source != nm_prepare_line_end.source)
            continue;
        if (from->kept[line++].use == NM_USE_IN_SPLIT)
            NM_TRY(nm_file_append(&self->prepare->links, from->links.data + start,
                                  (i + 1 - start) * sizeof *from->links.data, err));
        start = i + 1;
    }
    return NM_OK;
}

/* The error of the first pair of a chunk that ends the preparation. */
static nm_status report_invalid(const split_job *self, const nm_prepare_block *from,
                                const nm_prepare_chunk *part, nm_error *err)
{
    char *const *paths = self->reader.sources[from->source].paths;
    return nm_prepare_check_pair(&self->rules, from, part->invalid, paths, part->invalid_tokens, err);
}

static nm_status merge_block(split_job *self, block *from, nm_error *err)
{
    for (size_t c = 0; c < N_CHUNKS; c++) {
        nm_prepare_chunk *part = &from->chunks[c];
        if (part->invalid != SIZE_MAX)
            return report_invalid(self, &from->raw, part, err);
        assign_uses(self, part);
        add_report(self, &from->raw, &part->report);
        for (int side = 0; side < self->prepare->sides; side++)
            NM_TRY(merge_side(self, part, side, err));
        NM_TRY(write_links(self, part, err));
    }
    return NM_OK;
}

/* Pipeline over three blocks: block i is processed while block i - 1 is merged and block i + 1 is read. */
static nm_status process_blocks(split_job *self, nm_error *err)
{
    nm_status status = NM_OK;
    size_t at = 0;
    const char *step = nm_prepare_split_names[self->split];
    const nm_prepare_split_report *report = &self->prepare->report->splits[self->split];
    NM_TRY(nm_prepare_report_progress(self->prepare, step, 0, err));
    nm_prepare_reader_next(&self->reader, &self->blocks[0].raw);
    for (; status == NM_OK && self->blocks[at % N_BLOCKS].raw.lines[PREPARE_SOURCE].n; at++) {
        block *here = &self->blocks[at % N_BLOCKS];
#pragma omp parallel num_threads(self->prepare->threads)
        {
#pragma omp single nowait
            {
                if (at)
                    status = merge_block(self, &self->blocks[(at - 1) % N_BLOCKS], err);
                nm_prepare_reader_next(&self->reader, &self->blocks[(at + 1) % N_BLOCKS].raw);
            }
#pragma omp for schedule(dynamic)
            for (size_t c = 0; c < N_CHUNKS; c++)
                nm_prepare_chunk_process(&self->rules, &self->workers[omp_get_thread_num()], &here->raw, c,
                                         &here->chunks[c]);
        }
        NM_THEN(status, nm_prepare_report_progress(self->prepare, step, report->pairs, err));
    }
    if (status == NM_OK && at)
        status = merge_block(self, &self->blocks[(at - 1) % N_BLOCKS], err);
    if (status == NM_OK && self->reader.err.status != NM_OK) {
        *err = self->reader.err;
        status = err->status;
    }
    return status == NM_OK ? nm_prepare_report_progress(self->prepare, step, report->pairs, err) : status;
}

static nm_status flush(nm_file_writer *writer, nm_error *err)
{
    return writer->stream ? nm_file_flush(writer->stream, writer->path, err) : NM_OK;
}

/* NM_MISMATCH: the filters have dropped all of the training text. Names their reasons. */
static nm_status fail_nothing_left(const nm_prepare *self, nm_error *err)
{
    const nm_prepare_split_report *train = &self->report->splits[PREPARE_TRAIN];
    NM_AUTO_FREE char *reasons = NULL;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&reasons, &bytes);
    const char *separator = ": ";
    for (int drop = 0; drop < NM_DROP_N; drop++)
        if (train->dropped[drop]) {
            fprintf(stream, "%s%lld %s", separator, (long long)train->dropped[drop],
                    nm_drop_reason_text((nm_drop_reason)drop));
            separator = ", ";
        }
    nm_text_stream_close(stream);
    nm_fail(err, NM_MISMATCH, "%s: the filters left no %s for training (%lld read%s)", self->config->train,
            self->sides == 2                              ? "pair of lines"
            : self->config->documents == NM_DOCUMENT_LINE ? "line"
                                                          : "document",
            (long long)train->pairs, reasons);
    return NM_MISMATCH;
}

nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err)
{
    split_job job = {.prepare = self, .split = split};
    job.workers = nm_allocate((size_t)self->threads * sizeof *job.workers);
    job.blocks = nm_allocate(N_BLOCKS * sizeof *job.blocks);
    nm_status status = job_open(&job, err);
    NM_THEN(status, process_blocks(&job, err));
    if (job.reader.columns.bytes)
        self->report->splits[split].columns = nm_duplicate(job.reader.columns.data);
    job_close(&job);
    for (int file = 0; status == NM_OK && file < NM_PREPARE_SPLITS * self->sides; file++) {
        status = flush(&self->numbers[file / self->sides][file % self->sides], err);
        NM_THEN(status, flush(&self->text[file / self->sides][file % self->sides], err));
    }
    for (int side = 0; split == PREPARE_TRAIN && side < self->sides; side++)
        self->report->word_types[side] = (int64_t)self->words[side].n;
    if (status == NM_OK && split == PREPARE_TRAIN && !self->report->splits[split].kept)
        status = fail_nothing_left(self, err);
    return status;
}
