/* Reading of the files of a split in blocks of lines, both sides in parallel. */
#include <stdlib.h>

#include "base/text_input.h"
#include "data/prepare_private.h"

enum { LONGEST_TRAIN_LINE = 1 << 20 };

/* PREFIX.LANG, or that name with the suffix of a compressed file; the file itself for plain text. Heap. */
static char *find_file(const nm_prepare *prepare, int split, int side)
{
    static const char *const suffixes[] = {".gz", ".xz", ".zst", ".bz2"};
    const nm_prepare_config *config = prepare->config;
    const char *prefix = nm_prepare_prefix(config, split);
    const char *language = side == PREPARE_SOURCE ? config->source_lang : config->target_lang;
    char *path = prepare->sides == 1 ? nm_duplicate(prefix) : nm_format("%s.%s", prefix, language);
    for (size_t i = 0; !nm_file_exists(path) && i < sizeof suffixes / sizeof *suffixes; i++) {
        char *packed = nm_format("%s%s", path, suffixes[i]);
        if (nm_file_exists(packed)) {
            free(path);
            return packed;
        }
        free(packed);
    }
    return path;
}

static nm_status open_side(nm_prepare_reader *self, const nm_prepare *prepare, int split, int side,
                           nm_error *err)
{
    self->paths[side] = find_file(prepare, split, side);
    nm_status status = nm_text_open(&self->streams[side], self->paths[side], prepare->config->encoding, err);
    nm_lines_init(&self->lines[side], self->streams[side], self->paths[side]);
    return status;
}

nm_status nm_prepare_reader_open(nm_prepare_reader *self, const nm_prepare *prepare, int split, nm_error *err)
{
    *self = (nm_prepare_reader){.sides = prepare->sides};
    self->cuts = split == PREPARE_TRAIN && prepare->sides == 2;
    for (int side = 0; side < self->sides; side++)
        NM_TRY(open_side(self, prepare, split, side, err));
    return NM_OK;
}

void nm_prepare_reader_close(nm_prepare_reader *self)
{
    for (int side = 0; side < self->sides; side++) {
        nm_lines_release(&self->lines[side]);
        if (self->streams[side])
            fclose(self->streams[side]);
        free(self->paths[side]);
    }
}

/* One side ended before the other: reads both to their ends to report their numbers of lines. */
static nm_status fail_unequal(nm_prepare_reader *self, nm_error *err)
{
    for (int side = 0; side < self->sides; side++)
        for (bool more = true; more;)
            NM_TRY(nm_lines_next(&self->lines[side], &more, err));
    return nm_fail(err, NM_MISMATCH, "%s has %lld lines but %s has %lld", self->paths[PREPARE_SOURCE],
                   (long long)self->lines[PREPARE_SOURCE].number, self->paths[PREPARE_TARGET],
                   (long long)self->lines[PREPARE_TARGET].number);
}

static nm_status read_pair(nm_prepare_reader *self, bool *ended, nm_error *err)
{
    bool more[NM_PREPARE_SIDES] = {false};
    for (int side = 0; side < self->sides; side++)
        NM_TRY(nm_lines_next(&self->lines[side], &more[side], err));
    *ended = !more[PREPARE_SOURCE];
    if (self->sides == 2 && more[PREPARE_SOURCE] != more[PREPARE_TARGET])
        return fail_unequal(self, err);
    return NM_OK;
}

/* Adds the current lines of all sides to the block. Returns their bytes. */
static size_t take_pair(const nm_prepare_reader *self, nm_prepare_block *block)
{
    size_t taken = 0;
    unsigned char *too_long = &block->too_long[block->lines[PREPARE_SOURCE].n];
    *too_long = 0;
    for (int side = 0; side < self->sides; side++) {
        const nm_lines *line = &self->lines[side];
        bool cut = self->cuts && line->bytes > LONGEST_TRAIN_LINE;
        *too_long |= (unsigned char)(cut << side);
        nm_line_list_add(&block->lines[side], line->text, cut ? 0 : line->bytes);
        taken += cut ? 0 : line->bytes;
    }
    return taken;
}

void nm_prepare_reader_next(nm_prepare_reader *self, nm_prepare_block *block)
{
    for (int side = 0; side < self->sides; side++)
        nm_line_list_clear(&block->lines[side]);
    block->first = self->lines[PREPARE_SOURCE].number + 1;
    for (size_t bytes = 0; !self->ended && bytes < NM_PREPARE_BLOCK_BYTES &&
                           block->lines[PREPARE_SOURCE].n < NM_PREPARE_BLOCK_LINES;) {
        if (read_pair(self, &self->ended, &self->err) != NM_OK)
            self->ended = true;
        if (!self->ended)
            bytes += take_pair(self, block);
    }
}
