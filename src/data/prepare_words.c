/* First step of `norma prepare`: validate, tokenize, lowercase and filter lines, count words. The filter is that of
 * Moses' clean-corpus-n.perl: both sides within the length limits, and neither longer than `ratio` times the other. Copies are
 * dropped with it, and duplicates when chunks are merged, because they depend on the order of the lines.
 *
 * A block of lines is split into chunks that several threads process, while one thread merges the chunks of the previous
 * block in the order of the lines and reads the next block. Each chunk counts its words, so that a word is looked up in the
 * counter of the whole text once per chunk instead of once per occurrence. */
#include "data/prepare_private.h"

#include <omp.h>
#include <stdlib.h>

#include "text/tokenizer.h"
#include "text/utf8.h"
#include "text/word_spans.h"
#include "text/words.h"

enum { CHUNK_LINES = 512, N_CHUNKS = NM_PREPARE_BLOCK_LINES / CHUNK_LINES, N_BLOCKS = 3 };

static const nm_link line_end = {NM_PREPARE_LINE_END, NM_PREPARE_LINE_END};

typedef struct word_view {
    const char *text; /* in the tokenized line */
    size_t bytes;
} word_view;

typedef struct line_worker { /* one per thread */
    nm_cleaner cleaners[NM_PREPARE_SIDES];
    nm_tokenizer tokenizers[NM_PREPARE_SIDES];
    nm_buffer plain;                    /* the tokenized line before lowercasing */
    nm_buffer texts[NM_PREPARE_SIDES];  /* with a tokenizer that keeps the text: the line */
    nm_buffer lines[NM_PREPARE_SIDES];  /* the tokenized line */
    word_view *words[NM_PREPARE_SIDES]; /* words of `lines` */
    size_t n_words[NM_PREPARE_SIDES], capacity[NM_PREPARE_SIDES];
    nm_link_list links;                 /* between the words that prepare.alignment_words selects */
    bool stores_text[NM_PREPARE_SIDES]; /* of lines of a tokenizer that keeps the text, not their tokens */
} line_worker;

typedef struct word_list { /* indexes of words, each line followed by NM_PREPARE_LINE_END */
    uint32_t *data;
    size_t n, capacity;
} word_list;

/* What a pair that the filters keep is used for. */
typedef enum pair_use {
    USE_IN_SPLIT, /* its own split */
    USE_IN_VALID, /* held out */
    USE_NOT       /* a duplicate */
} pair_use;

typedef struct kept_pair {
    size_t index;  /* in the block */
    uint64_t hash; /* 0: not compared with other pairs */
    pair_use use;  /* USE_IN_SPLIT until the chunk is merged */
} kept_pair;

typedef struct chunk { /* results of CHUNK_LINES lines of a block */
    nm_counter words[NM_PREPARE_SIDES];
    word_list numbers[NM_PREPARE_SIDES]; /* indexes into words */
    nm_buffer text[NM_PREPARE_SIDES];    /* tokenized lines, for valid and test */
    nm_link_list links;             /* between tokens of the kept lines, each line followed by line_end */
    nm_prepare_split_report report; /* `line` of its examples is an index in the block; they have no text */
    kept_pair kept[CHUNK_LINES];    /* the pairs of numbers, text and links */
    int64_t n_kept;
    size_t invalid;                          /* first pair whose error ends the preparation, or SIZE_MAX */
    size_t invalid_tokens[NM_PREPARE_SIDES]; /* number of tokens of that pair, if it has been tokenized */
} chunk;

typedef struct block {
    nm_prepare_block raw;
    chunk chunks[N_CHUNKS];
} block;

typedef struct split_job {
    nm_prepare *prepare;
    int split;
    nm_prepare_reader reader;
    line_worker *workers; /* [threads] */
    block *blocks;        /* [N_BLOCKS]: one is being merged, one processed, one read */
    uint32_t *numbers;    /* [words of a chunk]: indexes in the counter of the whole text */
    size_t numbers_capacity;
    bool in_characters[NM_PREPARE_SIDES]; /* the length ratio counts characters instead of words */
    bool drops_duplicates, holds_out;
    nm_prepare_pair_set pairs; /* the pairs that have been kept, if duplicates are dropped */
    int64_t n_kept;            /* their number, which determines the pairs that are held out */
} split_job;

static nm_status open_worker(line_worker *self, const nm_prepare *prepare, nm_error *err)
{
    const nm_prepare_config *config = prepare->config;
    for (int side = 0; side < prepare->sides; side++) {
        nm_tokenizer_options options = nm_tokenizer_options_default();
        const char *language = side == PREPARE_SOURCE ? config->source_lang : config->target_lang;
        if (nm_tokenizer_has_language(config->tokenizer) && *language)
            options.language = language;
        options.spm = prepare->spm[side];
        options.pretokenizer = config->pretokenizer;
        nm_prepare_cleaner_init(&self->cleaners[side], config, side);
        options.aggressive = config->aggressive;
        options.escape = config->escape;
        options.user_symbols = config->user_symbols;
        NM_TRY(nm_tokenizer_open(&self->tokenizers[side], config->tokenizer, &options, err));
        self->stores_text[side] =
            self->tokenizers[side].type->keeps_text && config->documents == NM_DOCUMENT_LINE;
    }
    return NM_OK;
}

static nm_status open_writer(nm_file_writer *writer, const nm_prepare *prepare, int split, int side,
                             const char *suffix, nm_error *err)
{
    char *path = nm_prepare_path(prepare, split, side, suffix);
    nm_status status = nm_file_writer_open(writer, path, err);
    free(path);
    return status;
}

static nm_status job_open(split_job *self, nm_error *err)
{
    nm_prepare *prepare = self->prepare;
    self->in_characters[PREPARE_SOURCE] = nm_language_has_no_spaces(prepare->config->source_lang);
    self->in_characters[PREPARE_TARGET] = nm_language_has_no_spaces(prepare->config->target_lang);
    NM_TRY(nm_prepare_reader_open(&self->reader, prepare, self->split, err));
    for (int32_t i = 0; i < prepare->threads; i++)
        NM_TRY(open_worker(&self->workers[i], prepare, err));
    if (self->split == PREPARE_TRAIN && *prepare->config->alignments)
        NM_TRY(open_writer(&prepare->links, prepare, self->split, PREPARE_SOURCE, "links", err));
    self->holds_out = self->split == PREPARE_TRAIN && prepare->config->valid_every;
    self->drops_duplicates = self->split == PREPARE_TRAIN && prepare->config->drop_duplicates;
    for (int split = self->split; split <= (self->holds_out ? PREPARE_VALID : self->split); split++)
        for (int side = 0; side < prepare->sides; side++) {
            NM_TRY(open_writer(&prepare->numbers[split][side], prepare, split, side, "numbers", err));
            if (split != PREPARE_TRAIN)
                NM_TRY(open_writer(&prepare->text[split][side], prepare, split, side, "words", err));
        }
    return NM_OK;
}

static void release_worker(line_worker *self)
{
    nm_buffer_release(&self->plain);
    free(self->links.data);
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        nm_cleaner_release(&self->cleaners[side]);
        nm_tokenizer_close(&self->tokenizers[side]);
        nm_buffer_release(&self->texts[side]);
        nm_buffer_release(&self->lines[side]);
        free(self->words[side]);
    }
}

static void release_block(block *self)
{
    nm_prepare_block_release(&self->raw);
    for (int c = 0; c < N_CHUNKS; c++)
        free(self->chunks[c].links.data);
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        for (int c = 0; c < N_CHUNKS; c++) {
            nm_counter_release(&self->chunks[c].words[side]);
            nm_buffer_release(&self->chunks[c].text[side]);
            free(self->chunks[c].numbers[side].data);
        }
}

static void job_close(split_job *self)
{
    nm_prepare_reader_close(&self->reader);
    nm_prepare_pair_set_release(&self->pairs);
    for (int32_t i = 0; i < self->prepare->threads; i++)
        release_worker(&self->workers[i]);
    for (int i = 0; i < N_BLOCKS; i++)
        release_block(&self->blocks[i]);
    free(self->workers);
    free(self->blocks);
    free(self->numbers);
}

/* Sets n_words to the number of words that the links of pair i number; n_tokens: those of the tokenized lines. */
static void count_words(const split_job *self, const nm_prepare_block *from, size_t i,
                        const size_t n_tokens[NM_PREPARE_SIDES], size_t n_words[NM_PREPARE_SIDES])
{
    bool tokens = self->prepare->config->alignment_words == NM_ALIGNMENT_TOKENS;
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        size_t bytes;
        nm_word_span *spans = NULL;
        const char *raw = nm_line_list_get(&from->lines[side], i, &bytes);
        n_words[side] = tokens ? n_tokens[side] : nm_word_spans(raw, bytes, &spans);
        free(spans);
    }
}

/* Parses the links of pair i of the block. */
static nm_status parse_links(const split_job *self, const nm_prepare_block *from, size_t i,
                             const size_t n_tokens[NM_PREPARE_SIDES], nm_link_list *links, nm_error *err)
{
    size_t n_words[NM_PREPARE_SIDES], bytes;
    count_words(self, from, i, n_tokens, n_words);
    char where[600];
    snprintf(where, sizeof where, "%s:%lld", self->prepare->config->alignments,
             (long long)(from->first_pair + (int64_t)i) + 1);
    const char *line = nm_line_list_get(&from->alignments, i, &bytes);
    links->n = 0;
    return nm_links_parse(links, line, bytes, n_words[0], n_words[1], where, err);
}

/* The errors of nm_text_check and NM_FORMAT for a zero byte. where: file and line */
static nm_status check_line(const char *line, size_t bytes, const char *where, nm_error *err)
{
    const char *nul = memchr(line, 0, bytes);
    if (nul)
        return nm_fail(err, NM_FORMAT,
                       "%s: not text: byte 0x00 at position %zu; --encoding names another encoding, such as "
                       "utf-16",
                       where, (size_t)(nul - line) + 1);
    if (nm_text_check(line, bytes, where, err) == NM_OK)
        return NM_OK;
    const nm_error found = *err;
    return nm_fail(err, found.status, "%.900s; --encoding names another encoding", found.text);
}

/* Checks each line of a text. first: number of its first line */
static nm_status check_lines(const char *text, size_t bytes, const char *path, int64_t first, nm_error *err)
{
    const char *end = text + bytes;
    for (int64_t line = first;; line++, text++) {
        char where[600];
        const char *newline = memchr(text, '\n', (size_t)(end - text)), *last = newline ? newline : end;
        snprintf(where, sizeof where, "%s:%lld", path, (long long)line);
        NM_TRY(check_line(text, (size_t)(last - text), where, err));
        text = last;
        if (!newline)
            return NM_OK;
    }
}

/* NM_FORMAT with file, line and position if a side of pair i of the block is not text or its alignment is not valid. */
static nm_status check_pair(const split_job *self, const nm_prepare_block *from, size_t i,
                            const size_t n_tokens[NM_PREPARE_SIDES], nm_error *err)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *text = nm_line_list_get(&from->lines[side], i, &bytes);
        NM_TRY(check_lines(text, bytes, self->reader.sources[from->source].paths[side],
                           from->numbers[side][i], err));
    }
    nm_link_list ignored = {0};
    nm_status status = i < from->alignments.n ? parse_links(self, from, i, n_tokens, &ignored, err) : NM_OK;
    free(ignored.data);
    return status;
}

static nm_drop_reason check_text(const split_job *self, const nm_prepare_block *from, size_t i)
{
    nm_drop_reason drop = NM_DROP_NONE;
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *line = nm_line_list_get(&from->lines[side], i, &bytes);
        if (from->too_long[i] >> side & 1)
            drop = NM_DROP_LONG;
        else if (bytes > NM_TEXT_MAX_LINE || memchr(line, 0, bytes) ||
                 nm_utf8_find_invalid(line, bytes) < bytes)
            drop = NM_DROP_INVALID;
    }
    return drop;
}

/* Cleans and tokenizes a line and splits it into words. Lowercasing follows tokenization, unless the tokenizer keeps the
 * text. */
static void split_line(line_worker *self, int side, bool lowercase, const char *raw, size_t bytes)
{
    nm_buffer *line = &self->lines[side], *text = &self->texts[side];
    nm_buffer_clear(line);
    if (nm_cleaner_is_active(&self->cleaners[side])) {
        const nm_buffer *clean = nm_clean(&self->cleaners[side], raw, bytes);
        raw = clean->data;
        bytes = clean->bytes;
    }
    if (self->tokenizers[side].type->keeps_text) {
        nm_buffer_clear(text);
        if (lowercase)
            nm_utf8_lowercase(raw, bytes, text);
        else
            nm_buffer_append(text, raw, bytes);
        nm_tokenize(&self->tokenizers[side], text->data, text->bytes, line);
    } else if (lowercase) {
        nm_buffer_clear(&self->plain);
        nm_tokenize(&self->tokenizers[side], raw, bytes, &self->plain);
        nm_utf8_lowercase(self->plain.data, self->plain.bytes, line);
    } else {
        nm_tokenize(&self->tokenizers[side], raw, bytes, line);
    }
    word_view word;
    size_t at = 0;
    self->n_words[side] = 0;
    while (nm_word_next(line->data, line->bytes, &at, &word.text, &word.bytes)) {
        NM_GROW(self->words[side], self->n_words[side], self->capacity[side]);
        self->words[side][self->n_words[side]++] = word;
    }
}

/* Length of a tokenized line for the length ratio, in words or in code points without spaces. */
static size_t ratio_length(const split_job *self, const line_worker *worker, int side)
{
    if (!self->in_characters[side])
        return worker->n_words[side];
    size_t n = 0;
    for (size_t i = 0; i < worker->n_words[side]; i++)
        for (size_t at = 0; at < worker->words[side][i].bytes; n++)
            at += nm_utf8_length(worker->words[side][i].text[at]);
    return n;
}

static nm_drop_reason check_lengths(const split_job *self, const line_worker *worker)
{
    const nm_prepare_config *config = self->prepare->config;
    const size_t *n = worker->n_words;
    int64_t shorter = (int64_t)(n[0] < n[1] ? n[0] : n[1]), longer = (int64_t)(n[0] < n[1] ? n[1] : n[0]);
    if (shorter == 0)
        return NM_DROP_EMPTY;
    if (shorter < config->min_length)
        return NM_DROP_SHORT;
    if (config->max_length && longer > config->max_length)
        return NM_DROP_LONG;
    double a = (double)ratio_length(self, worker, 0), b = (double)ratio_length(self, worker, 1);
    if (config->ratio > 0 && (a > b ? a / b : b / a) > config->ratio)
        return NM_DROP_RATIO;
    return NM_DROP_NONE;
}

/* Whether source and target of pair i are the same text or, if they are tokenized differently, the same tokens. */
static bool is_copy(const line_worker *worker, const nm_prepare_block *from, size_t i)
{
    const nm_buffer *lines = worker->lines;
    size_t n[NM_PREPARE_SIDES];
    const char *source = nm_line_list_get(&from->lines[PREPARE_SOURCE], i, &n[PREPARE_SOURCE]);
    const char *target = nm_line_list_get(&from->lines[PREPARE_TARGET], i, &n[PREPARE_TARGET]);
    bool same_text = n[0] == n[1] && !memcmp(source, target, n[0]);
    return same_text ||
           (lines[0].bytes == lines[1].bytes && !memcmp(lines[0].data, lines[1].data, lines[0].bytes));
}

static void count_drop(nm_prepare_split_report *report, nm_drop_reason drop, size_t index)
{
    int *n = &report->n_examples[drop];
    if (*n < NM_PREPARE_EXAMPLES)
        report->examples[drop][(*n)++].line = (int64_t)index;
    report->dropped[drop]++;
}

static void keep_line(const line_worker *worker, int side, bool with_text, chunk *out)
{
    word_list *numbers = &out->numbers[side];
    size_t n = worker->n_words[side];
    for (size_t i = 0; i < n; i++) {
        const word_view *word = &worker->words[side][i];
        NM_GROW(numbers->data, numbers->n, numbers->capacity);
        numbers->data[numbers->n++] = (uint32_t)nm_counter_add(&out->words[side], word->text, word->bytes, 1);
    }
    NM_GROW(numbers->data, numbers->n, numbers->capacity);
    numbers->data[numbers->n++] = NM_PREPARE_LINE_END;
    out->report.words[side] += (int64_t)n;
    if (with_text) {
        const nm_buffer *text = worker->stores_text[side] ? &worker->texts[side] : &worker->lines[side];
        nm_buffer_append(&out->text[side], text->data, text->bytes);
        nm_buffer_append_byte(&out->text[side], '\n');
    }
}

/* Adds the links of pair i, which are between words of the raw lines, to the chunk. */
static void link_raw_words(const line_worker *worker, const nm_prepare_block *from, size_t i, chunk *out)
{
    nm_prepare_side_words sides[NM_PREPARE_SIDES];
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        size_t bytes;
        const char *raw = nm_line_list_get(&from->lines[side], i, &bytes);
        nm_prepare_side_words_init(&sides[side], raw, bytes, &worker->lines[side], worker->n_words[side],
                                   worker->tokenizers[side].type == &nm_tokenizer_byte_level);
    }
    nm_prepare_link_words(&worker->links, sides, &out->links);
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        free(sides[side].owners);
}

/* Adds the links of pair i to the chunk. False if they are not valid. */
static bool keep_links(const split_job *self, line_worker *worker, const nm_prepare_block *from, size_t i,
                       chunk *out)
{
    nm_error ignored;
    if (parse_links(self, from, i, worker->n_words, &worker->links, &ignored) != NM_OK)
        return false;
    if (self->prepare->config->alignment_words == NM_ALIGNMENT_TOKENS) {
        for (size_t k = 0; k < worker->links.n; k++) {
            NM_GROW(out->links.data, out->links.n, out->links.capacity);
            out->links.data[out->links.n++] = worker->links.data[k];
        }
    } else
        link_raw_words(worker, from, i, out);
    NM_GROW(out->links.data, out->links.n, out->links.capacity);
    out->links.data[out->links.n++] = line_end;
    return true;
}

static bool contains(const char *line, size_t bytes, const char *mark)
{
    return memmem(line, bytes, mark, strlen(mark));
}

/* Whether a line of pair i has entities that the Moses tokenizer writes, or marks of BPE. */
static bool is_tokenized(const split_job *self, const nm_prepare_block *from, size_t i)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *line = nm_line_list_get(&from->lines[side], i, &bytes);
        if (contains(line, bytes, "&apos;") || contains(line, bytes, "&quot;") ||
            contains(line, bytes, NM_BPE_SEPARATOR " "))
            return true;
    }
    return false;
}

/* Adds pair i of the block to the chunk. False if it is not text and such pairs are an error, or if its alignment is invalid. */
static bool process_pair(const split_job *self, line_worker *worker, const nm_prepare_block *from, size_t i,
                         chunk *out)
{
    const nm_prepare_config *config = self->prepare->config;
    bool train = self->split == PREPARE_TRAIN;
    nm_drop_reason drop = check_text(self, from, i);
    if (drop == NM_DROP_INVALID && (!train || config->on_invalid == NM_INVALID_IS_ERROR))
        return false;
    for (int side = 0; drop == NM_DROP_NONE && side < self->prepare->sides; side++) {
        size_t bytes;
        const char *line = nm_line_list_get(&from->lines[side], i, &bytes);
        split_line(worker, side, config->lowercase, line, bytes);
    }
    if (drop == NM_DROP_NONE && train && self->prepare->sides == 2)
        drop = check_lengths(self, worker);
    if (drop == NM_DROP_NONE && train && config->drop_copies && is_copy(worker, from, i))
        drop = NM_DROP_COPY;
    out->report.pairs++;
    if (drop != NM_DROP_NONE) {
        count_drop(&out->report, drop, i);
        return true;
    }
    if (i < from->alignments.n && !keep_links(self, worker, from, i, out))
        return false;
    out->report.kept++;
    if (worker->tokenizers[0].type == &nm_tokenizer_moses)
        out->report.tokenized += is_tokenized(self, from, i);
    bool compared = self->drops_duplicates && worker->n_words[0]; /* not the empty lines of plain text */
    uint64_t hash = compared ? nm_prepare_pair_hash(worker->lines, self->prepare->sides) : 0;
    out->kept[out->n_kept++] = (kept_pair){.index = i, .hash = hash};
    for (int side = 0; side < self->prepare->sides; side++)
        keep_line(worker, side, !train || config->valid_every, out);
    return true;
}

static void process_chunk(const split_job *self, line_worker *worker, block *from, size_t c)
{
    chunk *out = &from->chunks[c];
    for (int side = 0; side < self->prepare->sides; side++) {
        nm_counter_clear(&out->words[side]);
        nm_buffer_clear(&out->text[side]);
        out->numbers[side].n = 0;
    }
    out->links.n = 0;
    out->n_kept = 0;
    out->report = (nm_prepare_split_report){0};
    out->invalid = SIZE_MAX;
    size_t end = (c + 1) * CHUNK_LINES, n = from->raw.lines[PREPARE_SOURCE].n;
    for (size_t i = c * CHUNK_LINES; i < n && i < end && out->invalid == SIZE_MAX; i++)
        if (!process_pair(self, worker, &from->raw, i, out)) {
            out->invalid = i;
            memcpy(out->invalid_tokens, worker->n_words, sizeof out->invalid_tokens);
        }
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

/* Whether the next pair that is kept belongs to the validation set. Lines of plain text are held out in blocks, because the
 * lines of a block are context of each other. */
static bool is_held_out(const split_job *self)
{
    const nm_prepare_config *config = self->prepare->config;
    int64_t every = self->split == PREPARE_TRAIN ? config->valid_every : 0;
    bool has_blocks = self->prepare->sides == 1 && config->documents == NM_DOCUMENT_LINE;
    int64_t together = has_blocks ? NM_PREPARE_TEXT_BLOCK : 1;
    return every && (self->n_kept / together + 1) % every == 0;
}

/* Finds the duplicates and held-out pairs of the training text in a chunk that is merged. */
static void assign_uses(split_job *self, chunk *from)
{
    nm_prepare_split_report *valid = &self->prepare->report->splits[PREPARE_VALID];
    for (int64_t line = 0; line < from->n_kept; line++) {
        kept_pair *pair = &from->kept[line];
        if (pair->hash && !nm_prepare_pair_set_add(&self->pairs, pair->hash)) {
            pair->use = USE_NOT;
            count_drop(&from->report, NM_DROP_DUPLICATE, pair->index);
            from->report.kept--;
            continue;
        }
        pair->use = is_held_out(self) ? USE_IN_VALID : USE_IN_SPLIT;
        self->n_kept++;
        if (pair->use == USE_IN_VALID) {
            from->report.kept--;
            from->report.held_out++;
            valid->pairs++;
            valid->kept++;
        }
    }
}

/* Subtracts the words of duplicates and held-out pairs from the counts of the chunk and the report. */
static void uncount_words(const split_job *self, chunk *from, int side)
{
    nm_prepare_split_report *splits = self->prepare->report->splits;
    const word_list *list = &from->numbers[side];
    int64_t line = 0, words[USE_NOT + 1] = {0};
    for (size_t i = 0; i < list->n; i++) {
        pair_use use = list->data[i] == NM_PREPARE_LINE_END ? USE_IN_SPLIT : from->kept[line].use;
        line += list->data[i] == NM_PREPARE_LINE_END;
        if (use != USE_IN_SPLIT)
            from->words[side].items[list->data[i]].count--;
        words[use]++;
    }
    splits[PREPARE_TRAIN].words[side] -= words[USE_IN_VALID] + words[USE_NOT];
    splits[PREPARE_VALID].words[side] += words[USE_IN_VALID];
}

/* Writes the lines of the training text to the files of train and, if they are held out, of valid, without duplicates. */
static nm_status write_lines(split_job *self, const chunk *from, int side, nm_error *err)
{
    const word_list *list = &from->numbers[side];
    const char *text = from->text[side].data;
    nm_prepare *prepare = self->prepare;
    int64_t line = 0;
    for (size_t start = 0, i = 0; i < list->n; i++) {
        if (list->data[i] != NM_PREPARE_LINE_END)
            continue;
        pair_use use = from->kept[line++].use;
        int split = use == USE_IN_VALID ? PREPARE_VALID : self->split;
        size_t bytes = self->holds_out ? strcspn(text, "\n") + 1 : 0;
        if (use != USE_NOT)
            NM_TRY(nm_file_append(&prepare->numbers[split][side], list->data + start,
                                  (i + 1 - start) * sizeof *list->data, err));
        if (use == USE_IN_VALID)
            NM_TRY(nm_file_append(&prepare->text[split][side], text, bytes, err));
        start = i + 1;
        text += bytes;
    }
    return NM_OK;
}

/* Adds the chunk's words to the counter of the whole text. Words that occur only in valid and test are added with count 0. */
static nm_status merge_side(split_job *self, chunk *from, int side, nm_error *err)
{
    nm_counter *words = &from->words[side];
    word_list *list = &from->numbers[side];
    bool in_parts = self->holds_out || self->drops_duplicates;
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
static nm_status write_links(split_job *self, const chunk *from, nm_error *err)
{
    int64_t line = 0;
    for (size_t start = 0, i = 0; i < from->links.n; i++) {
        if (from->links.data[i].source != line_end.source)
            continue;
        if (from->kept[line++].use == USE_IN_SPLIT)
            NM_TRY(nm_file_append(&self->prepare->links, from->links.data + start,
                                  (i + 1 - start) * sizeof *from->links.data, err));
        start = i + 1;
    }
    return NM_OK;
}

static nm_status merge_block(split_job *self, block *from, nm_error *err)
{
    for (size_t c = 0; c < N_CHUNKS; c++) {
        chunk *part = &from->chunks[c];
        if (part->invalid != SIZE_MAX)
            return check_pair(self, &from->raw, part->invalid, part->invalid_tokens, err);
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
                process_chunk(self, &self->workers[omp_get_thread_num()], here, c);
        }
        if (status == NM_OK)
            status = nm_prepare_report_progress(self->prepare, step, report->pairs, err);
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
    char *reasons;
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
    free(reasons);
    return NM_MISMATCH;
}

nm_status nm_prepare_words(nm_prepare *self, int split, nm_error *err)
{
    split_job job = {.prepare = self, .split = split};
    job.workers = nm_allocate((size_t)self->threads * sizeof *job.workers);
    job.blocks = nm_allocate(N_BLOCKS * sizeof *job.blocks);
    nm_status status = job_open(&job, err);
    if (status == NM_OK)
        status = process_blocks(&job, err);
    if (job.reader.columns.bytes)
        self->report->splits[split].columns = nm_duplicate(job.reader.columns.data);
    job_close(&job);
    for (int file = 0; status == NM_OK && file < NM_PREPARE_SPLITS * self->sides; file++) {
        status = flush(&self->numbers[file / self->sides][file % self->sides], err);
        if (status == NM_OK)
            status = flush(&self->text[file / self->sides][file % self->sides], err);
    }
    for (int side = 0; split == PREPARE_TRAIN && side < self->sides; side++)
        self->report->word_types[side] = (int64_t)self->words[side].n;
    if (status == NM_OK && split == PREPARE_TRAIN && !self->report->splits[split].kept)
        status = fail_nothing_left(self, err);
    return status;
}
