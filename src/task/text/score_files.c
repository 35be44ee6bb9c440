#include "text/score_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/text_input.h"
#include "base/memory.h"
#include "base/words.h"

/* The files that are read line by line together; the first one is the hypothesis. */
typedef struct parallel {
    nm_lines *lines;
    const char **texts;
    int n_files;
} parallel;

static void parallel_close(parallel *files)
{
    for (int i = 0; i < files->n_files; i++) {
        FILE *stream = files->lines[i].stream;
        nm_lines_release(&files->lines[i]);
        nm_input_close(stream);
    }
    NM_FREE(files->lines, files->texts);
}

static nm_status parallel_open(parallel *files, const char *hypothesis, const char *const *references,
                               int n_references, bool labels, nm_error *err)
{
    size_t n_files = (size_t)n_references + 1;
    *files = (parallel){nm_allocate(n_files * sizeof(nm_lines)), nm_allocate(n_files * sizeof(char *)), 0};
    for (int i = 0; i <= n_references; i++) {
        const char *path = i == 0 ? hypothesis : references[i - 1];
        FILE *stream;
        NM_TRY(nm_text_open(&stream, path, NULL, err));
        nm_lines *lines = &files->lines[files->n_files++];
        nm_lines_init(lines, stream, nm_input_name(path));
        lines->keep_bom = !labels; /* like sacreBLEU and multi-bleu.perl */
    }
    return NM_OK;
}

static nm_status read_to_end(nm_lines *lines, nm_error *err)
{
    bool more = true;
    while (more)
        NM_TRY(nm_lines_next(lines, &more, err));
    return NM_OK;
}

/* Fails with the numbers of lines of two files that differ in them. */
static nm_status mismatch(parallel *files, int other, nm_error *err)
{
    nm_lines *hypothesis = &files->lines[0], *reference = &files->lines[other];
    NM_TRY(read_to_end(hypothesis, err));
    NM_TRY(read_to_end(reference, err));
    return nm_fail(err, NM_MISMATCH, "%s has %" PRId64 " lines, %s has %" PRId64, hypothesis->path,
                   hypothesis->number, reference->path, reference->number);
}

/* Reads the next line of every file into texts; *more is false at the end of all files. */
static nm_status parallel_next(parallel *files, bool *more, nm_error *err)
{
    NM_TRY(nm_lines_next(&files->lines[0], more, err));
    for (int i = 1; i < files->n_files; i++) {
        bool more_here;
        NM_TRY(nm_lines_next(&files->lines[i], &more_here, err));
        if (more_here != *more)
            return mismatch(files, i, err);
    }
    for (int i = 0; *more && i < files->n_files; i++) {
        NM_TRY(nm_line_check_text(&files->lines[i], err));
        files->texts[i] = files->lines[i].text;
    }
    return NM_OK;
}

/* A growing array of rows of counts. */
typedef struct count_rows {
    const nm_score_config *config;
    void *workspace;
    int64_t *data;
    size_t n, capacity, n_counts;
    uint64_t hash; /* of the references */
} count_rows;

static count_rows rows_create(const nm_score_config *config)
{
    const nm_score_metric *metric = config->metric;
    return (count_rows){.config = config,
                        .workspace = metric->create ? metric->create(config) : NULL,
                        .n_counts = (size_t)metric->n_counts(config)};
}

static nm_status rows_add(count_rows *rows, const char *hypothesis, const char *const *references,
                          int n_references, nm_error *err)
{
    NM_RESERVE(rows->data, (rows->n + 1) * rows->n_counts, rows->capacity);
    int64_t *row = rows->data + rows->n++ * rows->n_counts;
    for (int r = 0; r < n_references; r++) /* the zero byte separates texts */
        rows->hash = XXH3_64bits_withSeed(references[r], strlen(references[r]) + 1, rows->hash);
    return rows->config->metric->count(rows->workspace, hypothesis, references, n_references, row, err);
}

/* After the last row. */
static nm_status rows_check(const count_rows *rows, nm_error *err)
{
    const nm_score_metric *metric = rows->config->metric;
    return metric->check ? metric->check(rows->workspace, err) : NM_OK;
}

/* Moves the rows to *out if status is NM_OK; otherwise frees them. */
static nm_status rows_finish(count_rows *rows, nm_status status, nm_counts *out, uint64_t *hash)
{
    *hash = rows->hash;
    if (rows->config->metric->free)
        rows->config->metric->free(rows->workspace);
    if (status != NM_OK)
        free(rows->data);
    else
        *out = (nm_counts){rows->data, rows->n, (int)rows->n_counts};
    return status;
}

static nm_status count_lines(const nm_score_config *config, parallel *files, nm_counts *out, uint64_t *hash,
                             nm_error *err)
{
    count_rows rows = rows_create(config);
    const nm_lines *first = &files->lines[0];
    bool more = true;
    nm_status status;
    while ((status = nm_check_stop(config->stop, err)) == NM_OK &&
           (status = parallel_next(files, &more, err)) == NM_OK && more) {
        status = rows_add(&rows, files->texts[0], files->texts + 1, files->n_files - 1, err);
        if (status != NM_OK) {
            nm_error_prefix(err, "%s:%" PRId64, first->path, first->number);
            break;
        }
    }
    if (status == NM_OK && rows.n == 0)
        status = nm_fail(err, NM_FORMAT, "%s: no lines to score", first->path);
    if (status == NM_OK && rows_check(&rows, err) != NM_OK)
        status = nm_error_prefix(err, "%s", first->path);
    return rows_finish(&rows, status, out, hash);
}

nm_status nm_score_count_files(const nm_score_config *config, const char *hypothesis,
                               const char *const *references, int n_references, nm_counts *out,
                               uint64_t *references_hash, nm_error *err)
{
    *out = (nm_counts){0};
    parallel files;
    nm_status status =
        parallel_open(&files, hypothesis, references, n_references, config->metric->labels, err);
    NM_THEN(status, count_lines(config, &files, out, references_hash, err));
    parallel_close(&files);
    return status;
}

static nm_status count_text(count_rows *rows, const char *const *hypotheses, size_t n,
                            const char *const *references, int n_references, nm_buffer *copies,
                            const char **texts, nm_error *err)
{
    size_t i = rows->n;
    for (int r = 0; r <= n_references; r++) {
        const char *text = r ? references[(size_t)(r - 1) * n + i] : hypotheses[i];
        nm_buffer_clear(&copies[r]);
        nm_buffer_append(&copies[r], text, nm_text_length(text));
        texts[r] = copies[r].data;
    }
    nm_status status = rows_add(rows, texts[0], texts + 1, n_references, err);
    return status == NM_OK ? NM_OK : nm_error_prefix(err, "hypothesis %zu", i);
}

nm_status nm_score_count_texts(const nm_score_config *config, const char *const *hypotheses, size_t n,
                               const char *const *references, int n_references, nm_counts *out,
                               uint64_t *references_hash, nm_error *err)
{
    *out = (nm_counts){0};
    count_rows rows = rows_create(config);
    size_t n_texts = (size_t)n_references + 1;
    NM_AUTO_FREE nm_buffer *copies = nm_allocate(n_texts * sizeof *copies);
    NM_AUTO_FREE const char **texts = nm_allocate(n_texts * sizeof *texts);
    nm_status status = NM_OK;
    while (status == NM_OK && rows.n < n && (status = nm_check_stop(config->stop, err)) == NM_OK)
        status = count_text(&rows, hypotheses, n, references, n_references, copies, texts, err);
    NM_THEN(status, rows_check(&rows, err));
    for (size_t r = 0; r < n_texts; r++)
        nm_buffer_release(&copies[r]);
    return rows_finish(&rows, status, out, references_hash);
}

void nm_score_counts_release(nm_counts *counts)
{
    free((void *)(uintptr_t)counts->values);
    *counts = (nm_counts){0};
}
