/* Reading of the sources of a split in blocks of pairs. All pairs of a block are from one source. */
#include <stdlib.h>

#include "base/text_input.h"
#include "data/prepare_private.h"
#include "base/words.h"

enum { LONGEST_TRAIN_LINE = 1 << 20 };

/* Splits the comma-separated list into self->sources. */
static void list_sources(nm_prepare_reader *self, const char *list)
{
    for (char *name; (name = nm_path_list_next(&list, nm_pair_source_exists, &self->config));) {
        NM_APPEND(self->sources, self->n_sources, self->capacity, (nm_prepare_source){name, {NULL}});
    }
}

/* Opens the next source and copies its paths, for messages. */
static nm_status open_source(nm_prepare_reader *self, nm_error *err)
{
    nm_prepare_source *source = &self->sources[self->at];
    nm_status status = nm_pair_input_open(&self->input, source->name, &self->config, err);
    for (int side = 0; status == NM_OK && side < self->sides; side++)
        source->paths[side] = nm_duplicate(self->input.paths[side]);
    return status;
}

nm_status nm_prepare_reader_open(nm_prepare_reader *self, const nm_prepare *prepare, int split, nm_error *err)
{
    const nm_prepare_config *config = prepare->config;
    const char *const encodings[] = {"", config->valid_encoding, config->test_encoding};
    static const char *const options[] = {"", "--valid-encoding", "--test-encoding"};
    const bool inherited = split != PREPARE_TRAIN && !*encodings[split];
    *self = (nm_prepare_reader){.sides = prepare->sides};
    self->train = split == PREPARE_TRAIN;
    self->drops_long = self->train && prepare->sides == 2;
    self->skips_malformed = self->train && config->on_invalid == NM_INVALID_IS_SKIPPED;
    self->config = (nm_pair_config){.sides = prepare->sides,
                                    .folder = config->folder,
                                    .encoding = *encodings[split] ? encodings[split] : config->encoding,
                                    .own_encoding = inherited ? options[split] : NULL,
                                    .format = config->input_format,
                                    .languages = {config->source_lang, config->target_lang},
                                    .fields = {config->source_field, config->target_field},
                                    .decode_entities = config->decode_entities,
                                    .documents = nm_prepare_document_rule(config)};
    list_sources(self, nm_prepare_prefix(config, split));
    if (split == PREPARE_TRAIN && *config->alignments) {
        FILE *stream;
        NM_TRY(nm_text_open(&stream, config->alignments, "", err));
        nm_lines_init(&self->alignments, stream, config->alignments);
    }
    return self->n_sources ? open_source(self, err)
                           : nm_fail(err, NM_USAGE, "%s = %s: does not name a file",
                                     nm_prepare_split_names[split], nm_prepare_prefix(config, split));
}

void nm_prepare_reader_close(nm_prepare_reader *self)
{
    nm_pair_input_close(&self->input);
    nm_buffer_release(&self->columns);
    nm_input_close(self->alignments.stream);
    nm_lines_release(&self->alignments);
    for (size_t i = 0; i < self->n_sources; i++) {
        free(self->sources[i].name);
        for (int side = 0; side < NM_PREPARE_SIDES; side++)
            free(self->sources[i].paths[side]);
    }
    free(self->sources);
}

/* Adds the current pair to the block. Returns the number of bytes stored. */
static size_t add_pair(const nm_prepare_reader *self, nm_prepare_block *block)
{
    size_t stored = 0, i = block->lines[PREPARE_SOURCE].n;
    block->too_long[i] = 0;
    block->malformed[i] = self->input.invalid;
    for (int side = 0; side < self->sides; side++) {
        size_t bytes = self->input.bytes[side];
        bool too_long = self->drops_long && bytes > LONGEST_TRAIN_LINE;
        block->too_long[i] |= (unsigned char)(too_long << side);
        block->numbers[side][i] = self->input.line[side];
        nm_line_list_add(&block->lines[side], self->input.sentences[side], too_long ? 0 : bytes);
        stored += too_long ? 0 : bytes;
    }
    return stored;
}

/* Reads the next pair. At the end of the source, *more is false and the next source is opened. */
static nm_status read_pair(nm_prepare_reader *self, bool *more, nm_error *err)
{
    nm_error why = {0};
    nm_status status = nm_pair_input_next(&self->input, more, &why);
    if (status != NM_OK && !(self->input.invalid && self->skips_malformed))
        return nm_fail(err, status, "%.900s%s", why.text,
                       self->input.invalid && self->train ? NM_PREPARE_SKIP_HINT : "");
    if (self->input.described) {
        nm_buffer_append(&self->columns, self->input.described, strlen(self->input.described));
        nm_buffer_append_byte(&self->columns, '\n');
        free(self->input.described);
        self->input.described = NULL;
    }
    if (*more || ++self->at == self->n_sources)
        return NM_OK;
    nm_pair_input_close(&self->input);
    return open_source(self, err);
}

/* Adds the alignment of the pair that was added last. */
static nm_status add_alignment(nm_prepare_reader *self, nm_prepare_block *block, nm_error *err)
{
    nm_lines *lines = &self->alignments;
    bool more;
    if (!lines->stream)
        return NM_OK;
    NM_TRY(nm_lines_next_text(lines, &more, err));
    if (!more)
        return nm_fail(err, NM_MISMATCH, "%s: has %lld lines, but the training text has more pairs",
                       lines->path, (long long)lines->number);
    nm_line_list_add(&block->alignments, lines->text, lines->bytes);
    return NM_OK;
}

/* Checks, after the last pair, that there are no further alignments. */
static nm_status check_alignments_end(nm_prepare_reader *self, nm_error *err)
{
    bool more = false;
    if (self->alignments.stream)
        NM_TRY(nm_lines_next(&self->alignments, &more, err));
    return !more
               ? NM_OK
               : nm_fail(err, NM_MISMATCH, "%s: has more lines than the training text, which has %lld pairs",
                         self->alignments.path, (long long)self->n_pairs);
}

void nm_prepare_reader_next(nm_prepare_reader *self, nm_prepare_block *block)
{
    for (int side = 0; side < self->sides; side++)
        nm_line_list_clear(&block->lines[side]);
    nm_line_list_clear(&block->alignments);
    block->first_pair = self->n_pairs;
    size_t bytes = 0;
    while (self->err.status == NM_OK && self->at < self->n_sources && bytes < NM_PREPARE_BLOCK_BYTES &&
           block->lines[PREPARE_SOURCE].n < NM_PREPARE_BLOCK_LINES) {
        bool more, begun = block->lines[PREPARE_SOURCE].n;
        block->source = begun ? block->source : self->at;
        nm_status status = read_pair(self, &more, &self->err);
        if (status == NM_OK && more) {
            bytes += add_pair(self, block);
            self->n_pairs++;
            add_alignment(self, block, &self->err);
        } else if (status == NM_OK && self->at == self->n_sources) {
            check_alignments_end(self, &self->err);
        } else if (begun) { /* the next source begins another block */
            break;
        }
    }
}

void nm_prepare_block_release(nm_prepare_block *self)
{
    nm_line_list_release(&self->alignments);
    for (int side = 0; side < NM_PREPARE_SIDES; side++)
        nm_line_list_release(&self->lines[side]);
}
