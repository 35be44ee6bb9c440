#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/utf8_check.h"
#include "cli/study_split.h"

enum { SPLITS = 3, BLOCK = 30, BLOCKS_PER_ROUND = 20, MIN_UNITS = 100 };
static const char *const split_names[SPLITS] = {"train", "valid", "test"};

typedef struct splitter {
    nm_lines lines;
    study_unit unit;
    int64_t units, block; /* units read; units per block, 0: count only */
    bool open;            /* the last line is part of an unfinished paragraph */
    nm_file_writer splits[SPLITS];
} splitter;

/* Whether a new unit begins with the current line. */
static bool begins_unit(splitter *self)
{
    bool empty = !self->lines.text[strspn(self->lines.text, " \t\r")];
    bool begins = self->unit == STUDY_LINES || (!empty && !self->open);
    self->open = !empty;
    return begins;
}

static nm_status check_line(const splitter *self, nm_error *err)
{
    if (nm_utf8_find_invalid(self->lines.text, self->lines.bytes) == self->lines.bytes)
        return NM_OK;
    return nm_fail(err, NM_FORMAT, "%s:%" PRId64 ": not UTF-8", self->lines.path, self->lines.number);
}

static FILE *output_of(const splitter *self)
{
    int64_t block = self->units ? (self->units - 1) / self->block % BLOCKS_PER_ROUND : 0;
    return self->splits[block == BLOCKS_PER_ROUND - 2 ? 1 : block == BLOCKS_PER_ROUND - 1 ? 2 : 0].stream;
}

static nm_status read_lines(splitter *self, const char *path, nm_error *err)
{
    FILE *stream;
    NM_TRY(nm_file_open(&stream, path, "rb", err));
    nm_lines_init(&self->lines, stream, path);
    self->units = 0;
    self->open = false;
    bool more = true;
    nm_status status = NM_OK;
    while (status == NM_OK && (status = nm_lines_next(&self->lines, &more, err)) == NM_OK && more) {
        self->units += begins_unit(self);
        status = check_line(self, err);
        if (self->block) {
            fwrite(self->lines.text, 1, self->lines.bytes, output_of(self));
            putc('\n', output_of(self));
        }
    }
    nm_lines_release(&self->lines);
    fclose(stream);
    return status;
}

static nm_status check_units(const splitter *self, const char *path, int64_t expected, nm_error *err)
{
    const char *name = self->unit == STUDY_LINES ? "lines" : "sentences";
    if (expected && expected != self->units)
        return nm_fail(err, NM_FORMAT, "%s has %" PRId64 " %s, the other text %" PRId64, path, self->units,
                       name, expected);
    if (self->units < MIN_UNITS)
        return nm_fail(err, NM_FORMAT,
                       "%s has %" PRId64
                       " %s; a study needs at least %d, and a few thousand for a useful model",
                       path, self->units, name, MIN_UNITS);
    return NM_OK;
}

static nm_status write_splits(splitter *self, const char *path, const char *folder, const char *suffix,
                              nm_error *err)
{
    nm_status status = NM_OK;
    for (int p = 0; p < SPLITS && status == NM_OK; p++) {
        NM_AUTO_FREE char *name = nm_format("%s/%s.%s", folder, split_names[p], suffix);
        status = nm_file_writer_open(&self->splits[p], name, err);
    }
    NM_THEN(status, read_lines(self, path, err));
    for (int p = 0; p < SPLITS; p++)
        if (status == NM_OK)
            status = nm_file_writer_commit(&self->splits[p], err);
        else
            nm_file_writer_abort(&self->splits[p]);
    return status;
}

nm_status study_split(const char *path, study_unit unit, const char *folder, const char *suffix,
                      int64_t *units, nm_error *err)
{
    splitter self = {.unit = unit};
    NM_TRY(read_lines(&self, path, err));
    NM_TRY(check_units(&self, path, *units, err));
    *units = self.units;
    self.block = self.units / (2 * BLOCKS_PER_ROUND) < BLOCK ? self.units / (2 * BLOCKS_PER_ROUND) : BLOCK;
    return write_splits(&self, path, folder, suffix, err);
}
