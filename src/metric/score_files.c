/* Files to rows of counts, see score_files.h. */
#include "metric/score_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text_input.h"
#include "base/memory.h"
#include "text/words.h"

/* The files that are read in parallel: the hypothesis first. */
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
        if (stream && stream != stdin)
            fclose(stream);
    }
    free(files->lines);
    free(files->texts);
}

static nm_status parallel_open(parallel *files, const char *hypothesis, const char *const *references,
                               int n_references, nm_error *err)
{
    size_t n_files = (size_t)n_references + 1;
    *files = (parallel){nm_allocate(n_files * sizeof(nm_lines)), nm_allocate(n_files * sizeof(char *)), 0};
    for (int i = 0; i <= n_references; i++) {
        const char *path = i == 0 ? hypothesis : references[i - 1];
        FILE *stream;
        NM_TRY(nm_text_open(&stream, path, NULL, err));
        nm_lines *lines = &files->lines[files->n_files++];
        nm_lines_init(lines, stream, strcmp(path, "-") ? path : "standard input");
        lines->keep_bom = true; /* as sacreBLEU and multi-bleu.perl */
    }
    return NM_OK;
}

static nm_status line_check(const nm_lines *lines, nm_error *err)
{
    NM_TRY(nm_line_check(lines, err));
    if (memchr(lines->text, 0, lines->bytes))
        return nm_fail(err, NM_FORMAT, "%s:%" PRId64 ": contains a zero byte", lines->path, lines->number);
    return NM_OK;
}

static nm_status read_to_end(nm_lines *lines, nm_error *err)
{
    bool more = true;
    while (more)
        NM_TRY(nm_lines_next(lines, &more, err));
    return NM_OK;
}

/* Reports the numbers of lines of two files of unequal length. */
static nm_status mismatch(parallel *files, int other, nm_error *err)
{
    nm_lines *hypothesis = &files->lines[0], *reference = &files->lines[other];
    NM_TRY(read_to_end(hypothesis, err));
    NM_TRY(read_to_end(reference, err));
    return nm_fail(err, NM_MISMATCH, "%s has %" PRId64 " lines, %s has %" PRId64, hypothesis->path,
                   hypothesis->number, reference->path, reference->number);
}

/* Next line of every file into texts; *more is false when all have ended. */
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
        NM_TRY(line_check(&files->lines[i], err));
        files->texts[i] = files->lines[i].text;
    }
    return NM_OK;
}

typedef struct segment_counter {
    nm_bleu *bleu;
    nm_chrf *chrf;
    nm_ter *ter;
} segment_counter;

static void count_line(segment_counter *counter, const parallel *files, int64_t *row)
{
    const char *hypothesis = files->texts[0], *const *references = files->texts + 1;
    if (counter->bleu)
        nm_bleu_count(counter->bleu, hypothesis, references, files->n_files - 1, (nm_bleu_stats *)row);
    else if (counter->ter)
        nm_ter_count(counter->ter, hypothesis, references, files->n_files - 1, row);
    else
        nm_chrf_count(counter->chrf, hypothesis, references, files->n_files - 1, row);
}

static nm_status count_lines(const nm_score_config *config, parallel *files, nm_counts *out, nm_error *err)
{
    segment_counter counter = {.bleu = config->kind == NM_SCORE_BLEU ? nm_bleu_create(&config->bleu) : NULL,
                               .chrf = config->kind == NM_SCORE_CHRF ? nm_chrf_create(&config->chrf) : NULL,
                               .ter = config->kind == NM_SCORE_TER ? nm_ter_create(&config->ter) : NULL};
    int n_counts = counter.bleu   ? NM_BLEU_COUNTS
                   : counter.chrf ? nm_chrf_n_counts(&config->chrf)
                                  : NM_TER_COUNTS;
    int64_t *rows = NULL;
    size_t n = 0, capacity = 0;
    bool more = true;
    nm_status status;
    while ((status = parallel_next(files, &more, err)) == NM_OK && more) {
        NM_RESERVE(rows, (n + 1) * (size_t)n_counts, capacity);
        count_line(&counter, files, rows + n++ * (size_t)n_counts);
    }
    nm_bleu_free(counter.bleu);
    nm_chrf_free(counter.chrf);
    nm_ter_free(counter.ter);
    if (status == NM_OK && n == 0)
        status = nm_fail(err, NM_FORMAT, "%s: no lines to score", files->lines[0].path);
    if (status != NM_OK)
        free(rows);
    else
        *out = (nm_counts){rows, n, n_counts};
    return status;
}

nm_status nm_score_count_files(const nm_score_config *config, const char *hypothesis,
                               const char *const *references, int n_references, nm_counts *out, nm_error *err)
{
    *out = (nm_counts){0};
    parallel files;
    nm_status status = parallel_open(&files, hypothesis, references, n_references, err);
    if (status == NM_OK)
        status = count_lines(config, &files, out, err);
    parallel_close(&files);
    return status;
}

void nm_score_counts_release(nm_counts *counts)
{
    free((void *)(uintptr_t)counts->values);
    *counts = (nm_counts){0};
}

double nm_score_of_config(const int64_t *counts, const void *context)
{
    const nm_score_config *config = context;
    if (config->kind == NM_SCORE_TER)
        return nm_ter_of_counts(counts, &config->ter);
    return config->kind == NM_SCORE_BLEU ? nm_bleu_of_counts(counts, &config->bleu)
                                         : nm_chrf_of_counts(counts, &config->chrf);
}

char *nm_score_line(const nm_score_config *config, const int64_t *sum, int n_references)
{
    if (config->kind == NM_SCORE_TER)
        return nm_ter_line(&config->ter, nm_ter_of_counts(sum, &config->ter), n_references);
    if (config->kind == NM_SCORE_CHRF)
        return nm_chrf_line(&config->chrf, nm_chrf_of_counts(sum, &config->chrf), n_references);
    nm_bleu_stats stats;
    memcpy(&stats, sum, sizeof stats);
    nm_bleu_score score = nm_bleu_compute(&config->bleu, &stats);
    return nm_bleu_line(&config->bleu, &score, n_references);
}

char *nm_score_signature(const nm_score_config *config, int n_references)
{
    if (config->kind == NM_SCORE_TER)
        return nm_ter_signature(&config->ter, n_references);
    return config->kind == NM_SCORE_BLEU ? nm_bleu_signature(&config->bleu, n_references)
                                         : nm_chrf_signature(&config->chrf, n_references);
}
