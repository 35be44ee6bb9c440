#include "task/shortlist_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text_input.h"
#include "base/words.h"

enum { KEPT_LINES = 1 << 20 }; /* shorter files are sorted once */

typedef struct translation { /* a line of the file */
    int32_t source, target;
    double probability;
    size_t line;
} translation;

typedef struct table {     /* the lines of a file whose tokens are known */
    const char *languages; /* of the model; NULL: unknown */
    translation *items;
    size_t n, capacity, unknown;
    int64_t best;           /* maximum number of translations of a source token that are kept */
    const uint8_t *allowed; /* target tokens that are kept */
    size_t known;           /* lines with known tokens, kept or not */
} table;

/* The next field of a line and its length; NULL at the end. */
static const char *next_field(const char **at, size_t *bytes)
{
    const char *begin = *at + strspn(*at, " \t");
    *bytes = strcspn(begin, " \t");
    *at = begin + *bytes;
    return *bytes ? begin : NULL;
}

static bool is_known(const nm_vocab *vocab, const char *symbol, size_t bytes, int32_t *id)
{
    *id = nm_vocab_find(vocab, symbol, bytes);
    return *id != vocab->unk;
}

/* `field`: the second one of the first line, "languages:de:en". */
static nm_status check_languages(const table *lines, const nm_lines *reader, const char *field, size_t bytes,
                                 nm_error *err)
{
    static const char key[] = "languages:";
    const size_t n = sizeof key - 1;
    if (!lines->languages || bytes < n || memcmp(field, key, n) ||
        (strlen(lines->languages) == bytes - n && !memcmp(field + n, lines->languages, bytes - n)))
        return NM_OK;
    return nm_fail(err, NM_MISMATCH, "%s: the shortlist is for the languages %.*s, the model for %s",
                   reader->path, (int)(bytes - n < 60 ? bytes - n : 60), field + n, lines->languages);
}

/* By source token, most probable first. */
static int by_source(const void *a, const void *b)
{
    const translation *x = a, *y = b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return (x->line > y->line) - (x->line < y->line);
}

/* Sorts the translations and keeps the best ones of each source token. */
static void keep_best(table *lines)
{
    size_t kept = 0;
    int64_t rank = 0;
    int32_t source = -1;
    if (lines->n)
        qsort(lines->items, lines->n, sizeof *lines->items, by_source);
    for (size_t i = 0; i < lines->n; i++) {
        const translation item = lines->items[i];
        rank = item.source == source ? rank : 0;
        source = item.source;
        lines->items[kept] = item;
        kept += lines->allowed[item.target] && rank++ < lines->best;
    }
    lines->n = kept;
}

static nm_status parse_line(table *lines, const nm_lines *reader, const nm_vocab *source,
                            const nm_vocab *target, nm_error *err)
{
    const char *at = reader->text, *fields[4];
    size_t bytes[4];
    int n = 0;
    while (n < 4 && (fields[n] = next_field(&at, &bytes[n])))
        n++;
    if (n == 0)
        return NM_OK;
    char *end = NULL;
    double probability = n == 3 ? strtod(fields[2], &end) : NAN;
    if (!end || end != fields[2] + bytes[2] || !(probability >= 0 && probability <= 1))
        return nm_fail(err, NM_FORMAT, "%s:%lld: not a line TARGET SOURCE PROBABILITY", reader->path,
                       (long long)reader->number);
    translation item = {.probability = probability, .line = (size_t)reader->number};
    if (bytes[0] == 4 && !memcmp(fields[0], "NULL", 4))
        return reader->number == 1 ? check_languages(lines, reader, fields[1], bytes[1], err) : NM_OK;
    if (bytes[1] == 4 && !memcmp(fields[1], "NULL", 4))
        return NM_OK;
    if (!is_known(target, fields[0], bytes[0], &item.target) ||
        !is_known(source, fields[1], bytes[1], &item.source)) {
        lines->unknown++;
        return NM_OK;
    }
    if (lines->n == lines->capacity) {
        const size_t needed = lines->capacity + 1;
        if (lines->n >= KEPT_LINES) /* memory does not grow with lines that are not kept */
            keep_best(lines);
        if (lines->n >= lines->capacity / 2)
            NM_RESERVE(lines->items, needed, lines->capacity);
    }
    lines->items[lines->n++] = item;
    lines->known++;
    return NM_OK;
}

static nm_status read_lines(table *lines, const char *path, const nm_vocab *source, const nm_vocab *target,
                            nm_error *err)
{
    FILE *stream;
    NM_AUTO(nm_lines_release) nm_lines reader = {0};
    NM_TRY(nm_text_open(&stream, path, NULL, err));
    nm_lines_init(&reader, stream, nm_input_name(path));
    bool more = true;
    nm_status status = NM_OK;
    while (status == NM_OK && (status = nm_lines_next(&reader, &more, err)) == NM_OK && more) {
        status = nm_line_check_text(&reader, err);
        NM_THEN(status, parse_line(lines, &reader, source, target, err));
    }
    nm_input_close(stream);
    if (status != NM_OK)
        return status;
    if (!lines->known || lines->known < lines->unknown)
        return nm_fail(
            err, NM_MISMATCH,
            "%s: the dictionaries of the model have the tokens of %zu of %zu lines: the shortlist is for "
            "another model",
            nm_input_name(path), lines->known, lines->known + lines->unknown);
    return NM_OK;
}

static bool may_be_selected(int32_t id, const nm_vocab *target, const uint8_t *allowed)
{
    return (!allowed || allowed[id]) && !nm_vocab_omits(target, id) && !nm_vocab_is_padding(target, id) &&
           id != target->pad && id != target->bos;
}

static void set_targets(nm_shortlist *self, table *lines)
{
    keep_best(lines);
    self->offsets = nm_allocate(((size_t)self->source_size + 1) * sizeof *self->offsets);
    self->targets = nm_allocate((lines->n + !lines->n) * sizeof *self->targets);
    for (size_t i = 0; i < lines->n; i++) {
        self->targets[i] = lines->items[i].target;
        self->offsets[lines->items[i].source + 1] = i + 1;
    }
    for (int32_t s = 0; s < self->source_size; s++)
        if (self->offsets[s + 1] < self->offsets[s])
            self->offsets[s + 1] = self->offsets[s];
}

static void add_frequent(nm_shortlist *self, int64_t frequent, const nm_vocab *target)
{
    const int32_t special[] = {target->eos, target->unk};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (self->allowed[special[i]])
            nm_ids_append(&self->always, special[i]);
    for (int32_t id = NM_VOCAB_N_SPECIAL; id < self->target_size && id - NM_VOCAB_N_SPECIAL < frequent; id++)
        if (self->allowed[id])
            nm_ids_append(&self->always, id);
}

nm_status nm_shortlist_read(nm_shortlist *self, const char *path, const nm_shortlist_config *config,
                            const nm_vocab *source, const nm_vocab *target, const uint8_t *allowed,
                            nm_error *err)
{
    *self = (nm_shortlist){.source_size = nm_vocab_size(source), .target_size = nm_vocab_size(target)};
    table lines = {.languages = config->languages, .best = config->best};
    self->allowed = nm_allocate((size_t)self->target_size);
    for (int32_t id = 0; id < self->target_size; id++)
        self->allowed[id] = may_be_selected(id, target, allowed);
    lines.allowed = self->allowed;
    nm_status status = read_lines(&lines, path, source, target, err);
    if (status == NM_OK) {
        set_targets(self, &lines);
        add_frequent(self, config->frequent, target);
    }
    free(lines.items);
    return status;
}
