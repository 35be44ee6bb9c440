/* One text becomes training, validation and test text: see demo.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/demo.h"
#include "text/utf8.h"

enum { PARTS = 3, BLOCK = 30, ROUND = 20, LEAST = 100 };
static const char *const part_names[PARTS] = {"train", "valid", "test"};

typedef struct splitter {
    nm_lines lines;
    demo_unit unit;
    int64_t units, block; /* block 0: only count */
    bool open;            /* the last line belongs to a unit that goes on */
    nm_file_writer parts[PARTS];
} splitter;

/* Whether a new unit begins with the line at hand; an empty line ends one. */
static bool begins_unit(splitter *self)
{
    bool empty = !self->lines.text[strspn(self->lines.text, " \t\r")];
    bool begins = self->unit == DEMO_LINES || (!empty && !self->open);
    self->open = !empty;
    return begins;
}

static nm_status check_line(const splitter *self, nm_error *err)
{
    if (nm_utf8_find_invalid(self->lines.text, self->lines.bytes) == self->lines.bytes)
        return NM_OK;
    return nm_fail(err, NM_FORMAT, "%s:%" PRId64 ": not UTF-8", self->lines.path, self->lines.number);
}

static FILE *part_of(const splitter *self)
{
    int64_t block = self->units ? (self->units - 1) / self->block % ROUND : 0;
    return self->parts[block == ROUND - 2 ? 1 : block == ROUND - 1 ? 2 : 0].stream;
}

static nm_status each_line(splitter *self, const char *path, nm_error *err)
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
            fwrite(self->lines.text, 1, self->lines.bytes, part_of(self));
            putc('\n', part_of(self));
        }
    }
    nm_lines_release(&self->lines);
    fclose(stream);
    return status;
}

static nm_status check_units(const splitter *self, const char *path, int64_t wanted, nm_error *err)
{
    const char *name = self->unit == DEMO_LINES ? "lines" : "sentences";
    if (wanted && wanted != self->units)
        return nm_fail(err, NM_FORMAT, "%s has %" PRId64 " %s, the other text %" PRId64, path, self->units,
                       name, wanted);
    if (self->units < LEAST)
        return nm_fail(err, NM_FORMAT,
                       "%s has %" PRId64 " %s; a demonstration needs %d, and some thousands to be one", path,
                       self->units, name, LEAST);
    return NM_OK;
}

static nm_status write_parts(splitter *self, const char *path, const char *folder, const char *end,
                             nm_error *err)
{
    nm_status status = NM_OK;
    for (int p = 0; p < PARTS && status == NM_OK; p++) {
        char *name = nm_format("%s/%s.%s", folder, part_names[p], end);
        status = nm_file_writer_open(&self->parts[p], name, err);
        free(name);
    }
    if (status == NM_OK)
        status = each_line(self, path, err);
    for (int p = 0; p < PARTS; p++)
        if (status == NM_OK)
            status = nm_file_writer_commit(&self->parts[p], err);
        else
            nm_file_writer_abort(&self->parts[p]);
    return status;
}

nm_status demo_split(const char *path, demo_unit unit, const char *folder, const char *end, int64_t *units,
                     nm_error *err)
{
    splitter self = {.unit = unit};
    NM_TRY(each_line(&self, path, err));
    NM_TRY(check_units(&self, path, *units, err));
    *units = self.units;
    self.block = self.units / (2 * ROUND) < BLOCK ? self.units / (2 * ROUND) : BLOCK;
    return write_parts(&self, path, folder, end, err);
}
