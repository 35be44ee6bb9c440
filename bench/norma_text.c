/* End-to-end text processing of files, for comparisons with other toolkits:
 *     norma-bench-text [--quick]                          all of it, on a synthetic text
 *     norma-bench-text learn MERGES TEXT CODES            counts words, learns merges, fastBPE format
 *     norma-bench-text apply CODES TEXT OUTPUT THREADS    segments every line
 *     norma-bench-text tokenize LANGUAGE TEXT OUTPUT THREADS
 * Prints one line of JSON: wall and CPU seconds, MB/s, peak resident memory. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/line_list.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "base/words.h"

enum { CHUNK_LINES = 512, N_CHUNKS = 16, N_BLOCKS = 3, MAX_THREADS = 64 };

/* Appends the result for one line to out. */
typedef void line_work(void *state, const char *line, size_t bytes, nm_buffer *out);

typedef struct file_work { /* a function applied to all lines of a file */
    line_work *work;
    void *states[MAX_THREADS];
    int32_t threads;
} file_work;

typedef struct block {
    nm_line_list lines;
    nm_buffer done[N_CHUNKS];
} block;

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

/* Reads the next block of lines; empty at the end of the file. */
static nm_status read_block(nm_lines *lines, block *to, nm_error *err)
{
    nm_line_list_clear(&to->lines);
    for (bool more = true; to->lines.n < CHUNK_LINES * N_CHUNKS;) {
        NM_TRY(nm_lines_next(lines, &more, err));
        if (!more)
            break;
        NM_TRY(nm_line_check(lines, err));
        nm_line_list_add(&to->lines, lines->text, lines->bytes);
    }
    return NM_OK;
}

static void work_chunk(const file_work *job, block *from, size_t c)
{
    nm_buffer_clear(&from->done[c]);
    for (size_t i = c * CHUNK_LINES; i < from->lines.n && i < (c + 1) * CHUNK_LINES; i++) {
        size_t bytes;
        const char *line = nm_line_list_get(&from->lines, i, &bytes);
        job->work(job->states[omp_get_thread_num()], line, bytes, &from->done[c]);
    }
}

static void write_block(const block *from, FILE *out)
{
    for (size_t c = 0; c < N_CHUNKS; c++)
        fwrite(from->done[c].data, 1, from->done[c].bytes, out);
}

/* Pipeline: writes the previous block and reads the next one while a block is processed. */
static nm_status work_stream(const file_work *job, nm_lines *lines, FILE *out, nm_error *err)
{
    block blocks[N_BLOCKS] = {0};
    size_t at = 0;
    nm_status status = read_block(lines, &blocks[0], err);
    for (; status == NM_OK && blocks[at % N_BLOCKS].lines.n; at++) {
#pragma omp parallel num_threads(job->threads)
        {
#pragma omp single nowait
            {
                if (at)
                    write_block(&blocks[(at - 1) % N_BLOCKS], out);
                status = read_block(lines, &blocks[(at + 1) % N_BLOCKS], err);
            }
#pragma omp for schedule(dynamic)
            for (size_t c = 0; c < N_CHUNKS; c++)
                work_chunk(job, &blocks[at % N_BLOCKS], c);
        }
    }
    if (at)
        write_block(&blocks[(at - 1) % N_BLOCKS], out);
    for (int i = 0; i < N_BLOCKS; i++) {
        nm_line_list_release(&blocks[i].lines);
        for (int c = 0; c < N_CHUNKS; c++)
            nm_buffer_release(&blocks[i].done[c]);
    }
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
        return (int)err.status;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"work\":\"%s\",\"threads\":%d,\"bytes\":%zu,\"wall_s\":%.3f,\"processor_s\":%.3f,"
           "\"mb_per_s\":%.1f,\"peak_mib\":%ld}\n",
           what, threads, map.bytes, wall, processor, 1e-6 * (double)map.bytes / wall,
           usage.ru_maxrss / 1024);
    nm_file_unmap(&map);
    return 0;
}

/* Words with a Zipf distribution: the word of rank r has frequency proportional to 1/r. */
static void make_line(uint64_t *random, nm_buffer *out)
{
    static const char *const syllables[] = {"ba", "di", "ko", "lu",       "me", "no", "pra", "que",
                                            "ri", "st", "tu", "\xC3\xBC", "va", "xe", "y",   "zo"};
    nm_buffer_clear(out);
    for (int i = 0; i < 20; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = *random >> 33;
        for (uint64_t rank = (bits & 0xFFFFu) >> (bits >> 16 & 15u), more = 1; more; more = rank, rank >>= 4)
            nm_buffer_append(out, syllables[rank & 15u], strlen(syllables[rank & 15u]));
        nm_buffer_append(out, i < 19 ? " " : ".\n", i < 19 ? 1 : 2);
    }
}

static nm_status make_text(const char *path, size_t bytes, nm_error *err)
{
    FILE *out;
    NM_TRY(nm_file_open(&out, path, "wb", err));
    nm_buffer line = {0};
    uint64_t random = 1;
    for (size_t written = 0; written < bytes; written += line.bytes) {
        make_line(&random, &line);
        fwrite(line.data, 1, line.bytes, out);
    }
    nm_buffer_release(&line);
    return nm_file_close(out, path, err);
}

static int run(char *const *argv, int32_t threads)
{
    file_work job = {.threads = threads};
    nm_error err = {0};
    nm_status status;
    double wall = now(CLOCK_MONOTONIC), processor = now(CLOCK_PROCESS_CPUTIME_ID);
    if (!strcmp(argv[0], "learn"))
        status = learn(argv[1], argv[2], argv[3], &err);
    else if (!strcmp(argv[0], "apply"))
        status = apply(&job, argv[1], argv[2], argv[3], &err);
    else
        status = tokenize(&job, argv[1], argv[2], argv[3], &err);
    if (status != NM_OK) {
        fprintf(stderr, "%s\n", err.text);
        return (int)status;
    }
    return report(argv[0], argv[2], threads, now(CLOCK_MONOTONIC) - wall,
                  now(CLOCK_PROCESS_CPUTIME_ID) - processor);
}

static int run_all(size_t bytes)
{
    char folder[] = "/tmp/norma-bench-XXXXXX";
    nm_error err = {0};
    if (!mkdtemp(folder)) {
        perror(folder);
        return NM_IO;
    }
    char *text = nm_path_join(folder, "text"), *codes = nm_path_join(folder, "codes"),
         *output = nm_path_join(folder, "output");
    char *const jobs[3][4] = {
        {"learn", "4000", text, codes}, {"apply", codes, text, output}, {"tokenize", "en", text, output}};
    int code = (int)make_text(text, bytes, &err);
    for (int i = 0; !code && i < 3; i++)
        for (int32_t threads = 1; !code && threads <= (i ? 2 : 1); threads++)
            code = run(jobs[i], threads);
    char *const paths[] = {text, codes, output};
    for (int i = 0; i < 3; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    rmdir(folder);
    return code;
}

int main(int argc, char **argv)
{
    bool quick = argc == 2 && !strcmp(argv[1], "--quick");
    if (argc == 1 || quick)
        return run_all((size_t)(quick ? 2 : 16) << 20);
    bool learns = argc == 5 && !strcmp(argv[1], "learn");
    bool maps = argc == 6 && (!strcmp(argv[1], "apply") || !strcmp(argv[1], "tokenize"));
    int32_t threads = maps ? (int32_t)strtol(argv[5], NULL, 10) : 1;
    if ((!learns && !maps) || threads < 1 || threads > MAX_THREADS) {
        fputs(
            "usage: norma-bench-text [--quick] | learn MERGES TEXT CODES | apply CODES TEXT OUTPUT THREADS | "
            "tokenize LANGUAGE TEXT OUTPUT THREADS\n",
            stderr);
        return NM_USAGE;
    }
    return run(argv + 1, threads);
}
