/* The filter is that of Moses' clean-corpus-n.perl: both sides within the length limits, and neither longer
 * than `ratio` times the other. Copies are dropped with it. */
#include "data/prepare_chunk.h"

#include <stdlib.h>

#include "text/utf8.h"
#include "text/word_spans.h"
#include "base/words.h"

const nm_link nm_prepare_line_end = {NM_PREPARE_LINE_END, NM_PREPARE_LINE_END};

nm_status nm_prepare_worker_open(nm_prepare_worker *self, const nm_prepare *prepare, nm_error *err)
{
    const nm_prepare_config *config = prepare->config;
    for (int side = 0; side < prepare->sides; side++) {
        const nm_tokenizer_options options =
            nm_prepare_tokenizer(config, side != PREPARE_SOURCE, prepare->spm[side]);
        nm_prepare_cleaner_init(&self->cleaners[side], config, side);
        NM_TRY(nm_tokenizer_open(&self->tokenizers[side], config->tokenizer, &options, err));
        self->stores_text[side] =
            self->tokenizers[side].type->keeps_text && config->documents == NM_DOCUMENT_LINE;
    }
    return NM_OK;
}

void nm_prepare_worker_release(nm_prepare_worker *self)
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

/* Sets n_words to the number of words that the links of pair i number; n_tokens: those of the tokenized
 * lines. */
static void count_words(const nm_prepare_chunk_rules *self, const nm_prepare_block *from, size_t i,
                        const size_t n_tokens[NM_PREPARE_SIDES], size_t n_words[NM_PREPARE_SIDES])
{
    bool tokens = self->prepare->config->alignment_words == NM_ALIGNMENT_TOKENS;
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        size_t bytes;
        NM_AUTO_FREE nm_word_span *spans = NULL;
        const char *raw = nm_line_list_get(&from->lines[side], i, &bytes);
        n_words[side] = tokens ? n_tokens[side] : nm_word_spans(raw, bytes, &spans);
    }
}

/* Parses the links of pair i of the block. */
static nm_status parse_links(const nm_prepare_chunk_rules *self, const nm_prepare_block *from, size_t i,
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

nm_status nm_prepare_check_pair(const nm_prepare_chunk_rules *self, const nm_prepare_block *from, size_t i,
                                char *const paths[NM_PREPARE_SIDES], const size_t n_tokens[NM_PREPARE_SIDES],
                                nm_error *err)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        size_t bytes;
        const char *text = nm_line_list_get(&from->lines[side], i, &bytes);
        nm_error why = {0};
        nm_status found = check_lines(text, bytes, paths[side], from->numbers[side][i], &why);
        if (found != NM_OK)
            return nm_fail(err, found, "%.900s%s", why.text,
                           self->split == PREPARE_TRAIN ? NM_PREPARE_SKIP_HINT : "");
    }
    nm_link_list ignored = {0};
    nm_status status = i < from->alignments.n ? parse_links(self, from, i, n_tokens, &ignored, err) : NM_OK;
    free(ignored.data);
    return status;
}

static nm_drop_reason check_text(const nm_prepare_chunk_rules *self, const nm_prepare_block *from, size_t i)
{
    nm_drop_reason drop = from->malformed[i] ? NM_DROP_INVALID : NM_DROP_NONE;
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

/* Cleans and tokenizes a line and splits it into words. Lowercasing follows tokenization, unless the
 * tokenizer keeps the text. */
static void split_line(nm_prepare_worker *self, int side, bool lowercase, const char *raw, size_t bytes)
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
    nm_word_view word;
    size_t at = 0;
    self->n_words[side] = 0;
    while (nm_word_next(line->data, line->bytes, &at, &word.text, &word.bytes)) {
        NM_GROW(self->words[side], self->n_words[side], self->capacity[side]);
        self->words[side][self->n_words[side]++] = word;
    }
}

/* Length of a tokenized line for the length ratio, in words or in code points without spaces. */
static size_t ratio_length(const nm_prepare_chunk_rules *self, const nm_prepare_worker *worker, int side)
{
    if (!self->in_characters[side])
        return worker->n_words[side];
    size_t n = 0;
    for (size_t i = 0; i < worker->n_words[side]; i++)
        for (size_t at = 0; at < worker->words[side][i].bytes; n++)
            at += nm_utf8_length(worker->words[side][i].text[at]);
    return n;
}

static nm_drop_reason check_lengths(const nm_prepare_chunk_rules *self, const nm_prepare_worker *worker)
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

/* Whether source and target of pair i are the same text or, if they are tokenized differently, the same
 * tokens. */
static bool is_copy(const nm_prepare_worker *worker, const nm_prepare_block *from, size_t i)
{
    const nm_buffer *lines = worker->lines;
    size_t n[NM_PREPARE_SIDES];
    const char *source = nm_line_list_get(&from->lines[PREPARE_SOURCE], i, &n[PREPARE_SOURCE]);
    const char *target = nm_line_list_get(&from->lines[PREPARE_TARGET], i, &n[PREPARE_TARGET]);
    bool same_text = n[0] == n[1] && !memcmp(source, target, n[0]);
    return same_text ||
           (lines[0].bytes == lines[1].bytes && !memcmp(lines[0].data, lines[1].data, lines[0].bytes));
}

void nm_prepare_count_drop(nm_prepare_split_report *report, nm_drop_reason drop, size_t index)
{
    int *n = &report->n_examples[drop];
    if (*n < NM_PREPARE_EXAMPLES)
        report->examples[drop][(*n)++].line = (int64_t)index;
    report->dropped[drop]++;
}

static void keep_line(const nm_prepare_worker *worker, int side, bool with_text, nm_prepare_chunk *out)
{
    nm_prepare_numbers *numbers = &out->numbers[side];
    size_t n = worker->n_words[side];
    for (size_t i = 0; i < n; i++) {
        const nm_word_view *word = &worker->words[side][i];
        NM_APPEND(numbers->data, numbers->n, numbers->capacity,
                  (uint32_t)nm_counter_add(&out->words[side], word->text, word->bytes, 1));
    }
    NM_APPEND(numbers->data, numbers->n, numbers->capacity, NM_PREPARE_LINE_END);
    out->report.words[side] += (int64_t)n;
    if (with_text) {
        const nm_buffer *text = worker->stores_text[side] ? &worker->texts[side] : &worker->lines[side];
        nm_buffer_append(&out->text[side], text->data, text->bytes);
        nm_buffer_append_byte(&out->text[side], '\n');
    }
}

/* Adds the links of pair i, which are between words of the raw lines, to the chunk. */
static void link_raw_words(const nm_prepare_worker *worker, const nm_prepare_block *from, size_t i,
                           nm_prepare_chunk *out)
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
static bool keep_links(const nm_prepare_chunk_rules *self, nm_prepare_worker *worker,
                       const nm_prepare_block *from, size_t i, nm_prepare_chunk *out)
{
    if (parse_links(self, from, i, worker->n_words, &worker->links, NM_IGNORED) != NM_OK)
        return false;
    if (self->prepare->config->alignment_words == NM_ALIGNMENT_TOKENS) {
        for (size_t k = 0; k < worker->links.n; k++) {
            NM_APPEND(out->links.data, out->links.n, out->links.capacity, worker->links.data[k]);
        }
    } else
        link_raw_words(worker, from, i, out);
    NM_APPEND(out->links.data, out->links.n, out->links.capacity, nm_prepare_line_end);
    return true;
}

static bool contains(const char *line, size_t bytes, const char *mark)
{
    return memmem(line, bytes, mark, strlen(mark));
}

/* Whether a line of pair i has entities that the Moses tokenizer writes, or marks of BPE. */
static bool is_tokenized(const nm_prepare_chunk_rules *self, const nm_prepare_block *from, size_t i)
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

/* Adds pair i of the block to the chunk. False if it is not text and such pairs are an error, or if its
 * alignment is invalid. */
static bool process_pair(const nm_prepare_chunk_rules *self, nm_prepare_worker *worker,
                         const nm_prepare_block *from, size_t i, nm_prepare_chunk *out)
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
        nm_prepare_count_drop(&out->report, drop, i);
        return true;
    }
    if (i < from->alignments.n && !keep_links(self, worker, from, i, out))
        return false;
    out->report.kept++;
    if (worker->tokenizers[0].type == &nm_tokenizer_moses)
        out->report.tokenized += is_tokenized(self, from, i);
    bool compared = self->drops_duplicates && worker->n_words[0]; /* not the empty lines of plain text */
    uint64_t hash = compared ? nm_prepare_pair_hash(worker->lines, self->prepare->sides) : 0;
    out->kept[out->n_kept++] = (nm_prepare_kept){.index = i, .hash = hash};
    for (int side = 0; side < self->prepare->sides; side++)
        keep_line(worker, side, !train || config->valid_every, out);
    return true;
}

void nm_prepare_chunk_process(const nm_prepare_chunk_rules *self, nm_prepare_worker *worker,
                              const nm_prepare_block *from, size_t c, nm_prepare_chunk *out)
{
    for (int side = 0; side < self->prepare->sides; side++) {
        nm_counter_clear(&out->words[side]);
        nm_buffer_clear(&out->text[side]);
        out->numbers[side].n = 0;
    }
    out->links.n = 0;
    out->n_kept = 0;
    out->report = (nm_prepare_split_report){0};
    out->invalid = SIZE_MAX;
    size_t end = (c + 1) * NM_PREPARE_CHUNK_LINES, n = from->lines[PREPARE_SOURCE].n;
    for (size_t i = c * NM_PREPARE_CHUNK_LINES; i < n && i < end && out->invalid == SIZE_MAX; i++)
        if (!process_pair(self, worker, from, i, out)) {
            out->invalid = i;
            memcpy(out->invalid_tokens, worker->n_words, sizeof out->invalid_tokens);
        }
}

void nm_prepare_chunk_release(nm_prepare_chunk *self)
{
    free(self->links.data);
    for (int side = 0; side < NM_PREPARE_SIDES; side++) {
        nm_counter_release(&self->words[side]);
        nm_buffer_release(&self->text[side]);
        free(self->numbers[side].data);
    }
}
