/* BPE models: codes files of subword-nmt (versions 0.1 and 0.2) and fastBPE, read and written. */
#include "text/bpe.h"

#include <string.h>

#include "base/file.h"
#include "text/byte_level.h"
#include "text/utf8.h"

nm_bpe *nm_bpe_create(nm_bpe_format format)
{
    nm_bpe *bpe = nm_allocate(sizeof *bpe);
    bpe->format = format;
    return bpe;
}

void nm_bpe_free(nm_bpe *bpe)
{
    if (!bpe)
        return;
    nm_counter_release(&bpe->symbols);
    nm_counter_release(&bpe->whole);
    nm_hash_map_release(&bpe->ranks);
    NM_FREE(bpe->merges, bpe->undo, bpe);
}

void nm_bpe_add_merge(nm_bpe *bpe, const nm_count *left, const nm_count *right, int64_t count)
{
    nm_bpe_merge merge = {.count = count};
    NM_AUTO(nm_buffer_release) nm_buffer joined = {0};
    nm_buffer_append(&joined, left->text, left->bytes);
    nm_buffer_append(&joined, right->text, right->bytes);
    merge.left = (uint32_t)nm_counter_add(&bpe->symbols, left->text, left->bytes, 0);
    merge.right = (uint32_t)nm_counter_add(&bpe->symbols, right->text, right->bytes, 0);
    merge.joined = (uint32_t)nm_counter_add(&bpe->symbols, joined.data, joined.bytes, 0);
    NM_APPEND(bpe->merges, bpe->n_merges, bpe->capacity, merge);
}

/* If a pair has several merges, its rank is the first one. If several pairs produce a symbol, undo is the
 * pair whose last merge is the earliest. Both follow from the dictionaries that subword-nmt builds. */
void nm_bpe_finish(nm_bpe *bpe)
{
    bpe->undo = nm_allocate(bpe->symbols.n * sizeof *bpe->undo);
    for (size_t i = 0; i < bpe->symbols.n; i++)
        bpe->undo[i] = NM_HASH_NONE;
    /* last[rank of a pair]: its last merge */
    NM_AUTO_FREE uint32_t *last = nm_allocate(bpe->n_merges * sizeof *last);
    for (size_t i = 0; i < bpe->n_merges; i++) {
        const nm_bpe_merge *merge = &bpe->merges[i];
        uint32_t rank = nm_bpe_rank(bpe, merge->left, merge->right);
        if (rank == NM_HASH_NONE) {
            rank = (uint32_t)i;
            nm_hash_map_add(&bpe->ranks, nm_hash_pair(merge->left, merge->right), rank);
        }
        last[rank] = (uint32_t)i;
    }
    for (size_t i = bpe->n_merges; i-- > 0;) {
        const nm_bpe_merge *merge = &bpe->merges[i];
        if (last[nm_bpe_rank(bpe, merge->left, merge->right)] == i)
            bpe->undo[merge->joined] = (uint32_t)i;
    }
}

/* A line of a codes file. */
typedef struct codes_line {
    const char *name, *text;
    size_t bytes;
    long long number;
} codes_line;

static nm_status bad_line(const codes_line *line, const char *why, nm_error *err)
{
    return nm_fail(err, NM_FORMAT, "%s:%lld: %s", line->name, line->number, why);
}

/* Splits the line at spaces. False if it has more than 3 fields or an empty or too long one. */
static bool split_fields(const codes_line *line, nm_count fields[3], int *n)
{
    size_t at = 0;
    for (*n = 0; at <= line->bytes; ++*n) {
        const char *space = memchr(line->text + at, ' ', line->bytes - at);
        size_t bytes = space ? (size_t)(space - line->text) - at : line->bytes - at;
        if (*n == 3 || !bytes || bytes > NM_BPE_MAX_SYMBOL)
            return false;
        fields[*n] = (nm_count){.text = line->text + at, .bytes = (uint32_t)bytes};
        at += bytes + 1;
    }
    return true;
}

static const char version_mark[] = "#version:";
static const struct {
    const char *version;
    nm_bpe_format format;
} versions[] = {
    {"0.1", NM_BPE_SUBWORD_NMT_0_1}, {"0.2", NM_BPE_SUBWORD_NMT_0_2}, {"0.2 byte_level", NM_BPE_BYTE_LEVEL}};
enum { N_VERSIONS = sizeof versions / sizeof *versions };

static nm_status read_header(nm_bpe *bpe, const codes_line *line, bool *is_header, nm_error *err)
{
    size_t mark = sizeof version_mark - 1;
    *is_header = line->bytes >= mark && !memcmp(line->text, version_mark, mark);
    if (!*is_header)
        return NM_OK;
    const char *version = line->text + mark, *end = line->text + line->bytes;
    while (version < end && *version == ' ')
        version++;
    size_t bytes = (size_t)(end - version);
    for (size_t i = 0; i < N_VERSIONS; i++)
        if (bytes == strlen(versions[i].version) && !memcmp(version, versions[i].version, bytes)) {
            bpe->format = versions[i].format;
            return NM_OK;
        }
    return bad_line(line, "unknown version of BPE codes; supported: 0.1 and 0.2", err);
}

/* A merge or, with byte-level BPE, a word that is not split. */
static nm_status read_merge(nm_bpe *bpe, const codes_line *line, int n_fields, nm_error *err)
{
    nm_count fields[3];
    int n;
    size_t bytes;
    int64_t count = 0;
    bool valid = split_fields(line, fields, &n);
    if (valid && n == 1 && bpe->format == NM_BPE_BYTE_LEVEL) {
        nm_counter_add(&bpe->whole, fields[0].text, fields[0].bytes, 0);
        return NM_OK;
    }
    if (!valid || n != n_fields)
        return bad_line(
            line, n_fields == 3 ? "expected \"left right count\"" : "expected two symbols and one space",
            err);
    if (n == 3 && !nm_count_parse(line->text, line->bytes, ' ', &bytes, &count))
        return bad_line(line, "the third field is not a count", err);
    nm_bpe_add_merge(bpe, &fields[0], &fields[1], count);
    return NM_OK;
}

static nm_status check_line(const codes_line *line, nm_error *err)
{
    if (nm_utf8_find_invalid(line->text, line->bytes) < line->bytes)
        return bad_line(line, "not UTF-8", err);
    return memchr(line->text, 0, line->bytes) ? bad_line(line, "contains a zero byte", err) : NM_OK;
}

static void trim_line(codes_line *line)
{
    while (line->bytes && strchr("\r\n ", line->text[line->bytes - 1]) && line->text[line->bytes - 1])
        line->bytes--;
    while (line->bytes && *line->text == ' ') {
        line->text++;
        line->bytes--;
    }
}

/* The first line determines the format: a header; without a header, three fields are fastBPE and two are
 * version 0.1. */
static nm_status read_lines(nm_bpe *bpe, const char *text, size_t bytes, const char *name, nm_error *err)
{
    while (bytes && text[bytes - 1] == '\n')
        bytes--;
    bool has_header = false;
    codes_line line = {.name = name, .number = 1};
    for (size_t at = 0; at < bytes; line.number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        line.text = text + at;
        line.bytes = end ? (size_t)(end - line.text) : bytes - at;
        at += line.bytes + 1;
        NM_TRY(check_line(&line, err));
        trim_line(&line);
        if (line.number == 1) {
            NM_TRY(read_header(bpe, &line, &has_header, err));
            if (has_header)
                continue;
            nm_count fields[3];
            int n;
            bpe->format = split_fields(&line, fields, &n) && n == 3 ? NM_BPE_FASTBPE : NM_BPE_SUBWORD_NMT_0_1;
        }
        NM_TRY(read_merge(bpe, &line, bpe->format == NM_BPE_FASTBPE ? 3 : 2, err));
    }
    return bytes ? NM_OK : nm_fail(err, NM_FORMAT, "%s: empty: contains no BPE codes", name);
}

nm_status nm_bpe_parse(const char *text, size_t bytes, const char *name, nm_bpe **bpe, nm_error *err)
{
    nm_bpe *made = nm_bpe_create(NM_BPE_SUBWORD_NMT_0_1);
    nm_status status = read_lines(made, text, bytes, name, err);
    *bpe = NULL;
    if (status == NM_OK) {
        nm_bpe_finish(made);
        *bpe = made;
    } else {
        nm_bpe_free(made);
    }
    return status;
}

nm_status nm_bpe_read(const char *path, nm_bpe **bpe, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    *bpe = NULL;
    NM_TRY(nm_file_read_text(path, &text, &bytes, err));
    return nm_bpe_parse(text, bytes, path, bpe, err);
}

nm_status nm_bpe_match_tokenizer(nm_bpe *bpe, bool byte_level, const char *name, nm_error *err)
{
    if ((bpe->format == NM_BPE_BYTE_LEVEL) == byte_level)
        return NM_OK;
    if (!byte_level)
        return nm_fail(err, NM_FORMAT, "%s: codes of byte-level BPE require the tokenizer byte_level", name);
    for (size_t i = 0; i < bpe->symbols.n; i++) {
        const nm_count *symbol = &bpe->symbols.items[i];
        if (nm_byte_level_find_other(symbol->text, symbol->bytes) < symbol->bytes)
            return nm_fail(err, NM_FORMAT,
                           "%s: not codes of byte-level BPE: \"%.*s\" contains a character that does not "
                           "represent a byte",
                           name, symbol->bytes < 40 ? (int)symbol->bytes : 40, symbol->text);
    }
    bpe->format = NM_BPE_BYTE_LEVEL;
    return NM_OK;
}

void nm_bpe_write_header(nm_bpe_format format, nm_buffer *out)
{
    for (size_t i = 0; i < N_VERSIONS; i++)
        if (versions[i].format == format && format != NM_BPE_SUBWORD_NMT_0_1) {
            nm_buffer_append(out, version_mark, sizeof version_mark - 1);
            nm_buffer_append_byte(out, ' ');
            nm_buffer_append(out, versions[i].version, strlen(versions[i].version));
            nm_buffer_append_byte(out, '\n');
        }
}

void nm_bpe_keep_whole(nm_bpe *bpe, const nm_counter *words)
{
    nm_counter_add_scaled(&bpe->whole, words, 0, NULL);
}

void nm_bpe_format_text(const nm_bpe *bpe, nm_bpe_format format, nm_buffer *out)
{
    nm_bpe_write_header(format, out);
    for (size_t i = 0; i < bpe->n_merges; i++) {
        const nm_bpe_merge *merge = &bpe->merges[i];
        const nm_count *left = &bpe->symbols.items[merge->left], *right = &bpe->symbols.items[merge->right];
        nm_buffer_append(out, left->text, left->bytes);
        nm_buffer_append_byte(out, ' ');
        nm_buffer_append(out, right->text, right->bytes);
        if (format == NM_BPE_FASTBPE) {
            char count[32];
            int length = snprintf(count, sizeof count, " %lld", (long long)merge->count);
            nm_buffer_append(out, count, (size_t)length);
        }
        nm_buffer_append_byte(out, '\n');
    }
    for (size_t i = 0; i < bpe->whole.n && format == NM_BPE_BYTE_LEVEL; i++) {
        nm_buffer_append(out, bpe->whole.items[i].text, bpe->whole.items[i].bytes);
        nm_buffer_append_byte(out, '\n');
    }
}

void nm_bpe_write(const nm_bpe *bpe, nm_bpe_format format, FILE *stream)
{
    NM_AUTO(nm_buffer_release) nm_buffer text = {0};
    nm_buffer_clear(&text);
    nm_bpe_format_text(bpe, format, &text);
    fwrite(text.data, 1, text.bytes, stream);
}

bool nm_bpe_has_symbol(const nm_bpe *bpe, const char *text, size_t bytes, bool last)
{
    char marked[NM_BPE_SAMPLE_MAX_WORD + sizeof NM_BPE_WORD_END];
    size_t mark = strlen(NM_BPE_WORD_END);
    bool separate_end = bpe->format == NM_BPE_SUBWORD_NMT_0_1;
    if (last && bytes <= NM_BPE_SAMPLE_MAX_WORD) {
        memcpy(marked, text, bytes);
        memcpy(marked + bytes, NM_BPE_WORD_END, mark);
        if (nm_counter_find(&bpe->symbols, marked, bytes + mark) != SIZE_MAX)
            return true;
    }
    return (!last || separate_end) && nm_counter_find(&bpe->symbols, text, bytes) != SIZE_MAX;
}
