/* Text work by itself, end to end over files, so that other programs for the same work can be run in turn:
 *     norma-bench-text learn MERGES TEXT CODES            counts words, learns merges, writes fastBPE's format
 *     norma-bench-text apply CODES TEXT OUTPUT THREADS    segments every line
 *     norma-bench-text tokenize LANGUAGE TEXT OUTPUT THREADS
 * Prints one line of JSON: wall and processor seconds, megabytes a second, largest resident size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "data/line_list.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/words.h"

enum { BLOCK_LINES = 10000, BLOCK_BYTES = 16 << 20, MAX_THREADS = 64 };

typedef struct file_work { /* one function over all lines of a file */
    nm_line_work work;
    void *states[MAX_THREADS];
    int32_t threads;
} file_work;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void apply_line(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    nm_bpe_apply_line(state, line, bytes, out);
    nm_buffer_append_byte(out, '\n');
}

static void tokenize_line(void *state, const char *line, size_t bytes, nm_buffer *out)
{
    nm_tokenize(state, line, bytes, out);
    nm_buffer_append_byte(out, '\n');
}

static nm_status work_stream(const file_work *job, nm_lines *lines, FILE *out, nm_error *err)
{
    nm_line_list block = {0}, done = {0};
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        nm_line_list_clear(&block);
        nm_line_list_clear(&done);
        while (status == NM_OK && block.n < BLOCK_LINES && block.text.bytes < BLOCK_BYTES) {
            status = nm_lines_next(lines, &more, err);
            if (status == NM_OK && more)
                status = nm_line_check(lines, err);
            if (status != NM_OK || !more)
                break;
            nm_line_list_add(&block, lines->text, lines->bytes);
        }
        nm_line_list_map(&block, job->work, job->states, job->threads, &done);
        fwrite(done.text.data, 1, done.text.bytes, out);
    }
    nm_line_list_release(&block);
    nm_line_list_release(&done);
    return status;
}

static nm_status work_file(const file_work *job, const char *from, const char *to, nm_error *err)
{
    FILE *in = NULL, *out = NULL;
    nm_lines lines = {0};
    nm_status status = nm_file_open(&in, from, "rb", err);
    if (status == NM_OK)
        status = nm_file_open(&out, to, "wb", err);
    if (status == NM_OK) {
        nm_lines_init(&lines, in, from);
        status = work_stream(job, &lines, out, err);
        nm_lines_release(&lines);
    }
    if (in)
        fclose(in);
    nm_status closed = out ? nm_file_close(out, to, err) : NM_OK;
    return status == NM_OK ? closed : status;
}

static nm_status learn(const char *merges, const char *text, const char *codes, nm_error *err)
{
    nm_counter words = {0};
    nm_bpe *bpe = NULL;
    FILE *out;
    nm_bpe_learn_options options = nm_bpe_learn_options_default();
    options.n_merges = strtoll(merges, NULL, 10);
    nm_status status = nm_counter_add_file(&words, text, NULL, err);
    if (status == NM_OK)
        status = nm_bpe_learn(&words, &options, &bpe, err);
    nm_counter_release(&words);
    if (status == NM_OK)
        status = nm_file_open(&out, codes, "wb", err);
    if (status == NM_OK) {
        nm_bpe_write(bpe, NM_BPE_FASTBPE, out);
        status = nm_file_close(out, codes, err);
    }
    nm_bpe_free(bpe);
    return status;
}

static nm_status apply(file_work *job, const char *codes, const char *text, const char *output, nm_error *err)
{
    nm_bpe *bpe;
    NM_TRY(nm_bpe_read(codes, &bpe, err));
    job->work = apply_line;
    for (int32_t i = 0; i < job->threads; i++)
        job->states[i] = nm_bpe_applier_create(bpe, NULL, 0);
    nm_status status = work_file(job, text, output, err);
    for (int32_t i = 0; i < job->threads; i++)
        nm_bpe_applier_free(job->states[i]);
    nm_bpe_free(bpe);
    return status;
}

static nm_status tokenize(file_work *job, const char *language, const char *text, const char *output,
                          nm_error *err)
{
    nm_tokenizer tokenizers[MAX_THREADS] = {0};
    nm_tokenizer_options options = nm_tokenizer_options_default();
    options.language = language;
    job->work = tokenize_line;
    nm_status status = NM_OK;
    for (int32_t i = 0; i < job->threads && status == NM_OK; i++) {
        job->states[i] = &tokenizers[i];
        status = nm_tokenizer_open(&tokenizers[i], "moses", &options, err);
    }
    if (status == NM_OK)
        status = work_file(job, text, output, err);
    for (int32_t i = 0; i < job->threads; i++)
        nm_tokenizer_close(&tokenizers[i]);
    return status;
}

static int report(const char *what, const char *path, int32_t threads, double wall, double processor)
{
    struct rusage usage;
    nm_file_map map;
    nm_error err;
    if (nm_file_map_open(&map, path, &err) != NM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return err.status;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"work\":\"%s\",\"threads\":%d,\"bytes\":%zu,\"wall_s\":%.3f,\"processor_s\":%.3f,"
           "\"mb_per_s\":%.1f,\"peak_mib\":%ld}\n",
           what, threads, map.bytes, wall, processor, 1e-6 * (double)map.bytes / wall,
           usage.ru_maxrss / 1024);
    nm_file_unmap(&map);
    return 0;
}

int main(int argc, char **argv)
{
    bool learns = argc == 5 && !strcmp(argv[1], "learn");
    bool applies = argc == 6 && !strcmp(argv[1], "apply");
    bool tokenizes = argc == 6 && !strcmp(argv[1], "tokenize");
    file_work job = {.threads = argc == 6 ? (int32_t)strtol(argv[5], NULL, 10) : 1};
    if ((!learns && !applies && !tokenizes) || job.threads < 1 || job.threads > MAX_THREADS) {
        fputs("usage: norma-bench-text learn MERGES TEXT CODES | apply CODES TEXT OUTPUT THREADS | "
              "tokenize LANGUAGE TEXT OUTPUT THREADS\n",
              stderr);
        return NM_USAGE;
    }
    nm_error err = {0};
    double wall = now(CLOCK_MONOTONIC), processor = now(CLOCK_PROCESS_CPUTIME_ID);
    nm_status status = learns    ? learn(argv[2], argv[3], argv[4], &err)
                       : applies ? apply(&job, argv[2], argv[3], argv[4], &err)
                                 : tokenize(&job, argv[2], argv[3], argv[4], &err);
    if (status != NM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return (int)status;
    }
    return report(argv[1], argv[3], job.threads, now(CLOCK_MONOTONIC) - wall,
                  now(CLOCK_PROCESS_CPUTIME_ID) - processor);
}
