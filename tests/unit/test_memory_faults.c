/* Failed allocations: the n-th call of malloc, calloc or realloc returns NULL, for every n until a whole
 * operation needs fewer. Each attempt is a separate process and must end with NM_MEMORY as exit code or
 * status, or succeed (the C library works without some buffers). No signal, no other status, no incomplete
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/safetensors.h"
#include "data/prepare.h"
#include "text/columns.h"
#include "text/delimited.h"
#include "text/vocab.h"
#include "support/remove_tree.h"
#include "support/sanitizer.h"

#if REPLACES_ALLOCATOR

/* The allocator of glibc under the names that remain when the usual ones are replaced. */
void *__libc_malloc(size_t bytes);              /* NOLINT(bugprone-reserved-identifier) */
void *__libc_calloc(size_t n, size_t bytes);    /* NOLINT(bugprone-reserved-identifier) */
void *__libc_realloc(void *block, size_t size); /* NOLINT(bugprone-reserved-identifier) */

static long countdown = -1; /* allocations until the one that fails; negative: none fails */

static bool fails(void)
{
    if (countdown < 0 || countdown-- > 0)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *block, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(block, bytes);
}
#endif

static char folder[] = "/tmp/norma-memory-XXXXXX";

static void write_file(const char *path, const char *text)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    fputs(text, stream);
    assert_int_equal(fclose(stream), 0);
}

static int enter_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder) || chdir(folder))
        return -1;
    write_file("train.de", "Die alte Brücke führt über den Fluss.\nSie kauft frisches Brot beim Bäcker.\n"
                           "Am Abend regnet es in den Bergen.\nIch heiße Jürgen.\n");
    write_file("train.en", "The old bridge crosses the river.\nShe buys fresh bread at the baker's.\n"
                           "In the evening it rains in the mountains.\nMy name is Jürgen.\n");
    write_file("valid.de", "Der Bäcker wohnt am Fluss.\n");
    write_file("valid.en", "The baker lives by the river.\n");
    write_file("entities.txt", "EU NNP B-ORG\nrejects VBZ O\nGerman JJ B-MISC\n\nPeter NNP B-PER\n");
    write_file("reviews.csv",
               "label,text\npositive,\"A quiet, moving film\"\nnegative,\"Two hours, no plot\"\n");
    write_file("dict.txt", "the 120\nriver 7\nbread 3\n");
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return remove_tree(folder);
}

static nm_status run_prepare(nm_error *err)
{
    nm_options *options = nm_options_create();
    nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    static const char *const settings[][2] = {
        {"prepare.train", "train"},    {"prepare.valid", "valid"}, {"prepare.source_lang", "de"},
        {"prepare.target_lang", "en"}, {"prepare.output", "data"}, {"prepare.bpe_merges", "20"},
        {"prepare.lowercase", "true"}, {"prepare.threads", "1"},   {"prepare.bpe_vocabulary_threshold", "2"}};
    nm_status status = NM_OK;
    for (size_t i = 0; status == NM_OK && i < sizeof settings / sizeof *settings; i++)
        status = nm_options_set(options, settings[i][0], settings[i][1], NM_ORIGIN_COMMAND, err);
    nm_prepare_report report = {0};
    if (status == NM_OK)
        status = nm_prepare_run(options, NULL, &(nm_prepare_events){0}, &report, err);
    nm_prepare_report_release(&report);
    nm_options_free(options);
    return status;
}

static nm_status run_safetensors(nm_error *err)
{
    static const float weight[6] = {0.5f, -1, 2, 0.25f, 3, -4};
    nm_safetensors_writer *writer = nm_safetensors_begin();
    nm_safetensors_add(writer, "encoder.0.self.weight", NM_TENSOR_F32, 2, (int64_t[]){2, 3}, weight);
    nm_safetensors_add_metadata(writer, "config", "[model]\nname = Bäcker\n");
    NM_TRY(nm_safetensors_finish(writer, "model.safetensors", err));
    nm_safetensors *file;
    NM_TRY(nm_safetensors_open(&file, "model.safetensors", err));
    nm_safetensors_close(file);
    return NM_OK;
}

static nm_status run_readers(nm_error *err)
{
    FILE *stream;
    bool more = true;
    nm_status status;
    NM_TRY(nm_file_open(&stream, "entities.txt", "rb", err));
    nm_columns columns;
    nm_columns_init(&columns, stream, "entities.txt");
    while ((status = nm_columns_next(&columns, &more, err)) == NM_OK && more)
        ;
    nm_columns_release(&columns);
    fclose(stream);
    NM_TRY(status);
    NM_TRY(nm_file_open(&stream, "reviews.csv", "rb", err));
    nm_delimited table;
    nm_delimited_init(&table, stream, "reviews.csv", ',', true);
    for (more = true; (status = nm_delimited_next(&table, &more, err)) == NM_OK && more;)
        ;
    nm_delimited_release(&table);
    fclose(stream);
    NM_TRY(status);
    nm_vocab *vocab;
    NM_TRY(nm_vocab_read("dict.txt", NM_VOCAB_FAIRSEQ, &vocab, err));
    nm_vocab_free(vocab);
    return NM_OK;
}

/* NM_FORMAT if text was lost without an error. */
static nm_status run_text_streams(nm_error *err)
{
    enum { STREAMS = 4, LINES = 3000 };
    (void)err;
    for (int i = 0; i < STREAMS; i++) {
        char *text;
        size_t bytes;
        FILE *stream = nm_text_stream_open(&text, &bytes);
        fputs("discarded", stream);
        rewind(stream);
        for (int k = 0; k < LINES; k++)
            fputs("0123456789", stream);
        nm_text_stream_close(stream);
        bool complete = bytes == 10 * LINES && strlen(text) == bytes;
        free(text);
        if (!complete)
            return NM_FORMAT;
    }
    return NM_OK;
}

#if REPLACES_ALLOCATOR
int fsync(int descriptor)
{
    (void)descriptor;
    return 0; /* would take most of the time */
}

/* Exit code of the operation when its n-th allocation fails. *hit is false if it needs fewer. */
static int exit_code(nm_status (*run)(nm_error *err), long n, bool *hit)
{
    int result[2];
    char still_armed = 1;
    assert_int_equal(pipe(result), 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        nm_error err = {0};
        dup2(open("/dev/null", O_WRONLY), 2);
        nm_memory_init_json();
#pragma omp parallel num_threads(1)
        assert_true(true); /* OpenMP's own memory: it exits with 1 */
        countdown = n;
        nm_status status = run(&err);
        still_armed = countdown >= 0;
        countdown = -1;
        if (write(result[1], &still_armed, 1) != 1)
            _exit(98);
        if (status == NM_MEMORY && !strstr(err.text, "memory"))
            _exit(99);
        _exit((int)status);
    }
    close(result[1]);
    *hit = read(result[0], &still_armed, 1) != 1 ||
           !still_armed; /* nothing is written when the process ends early */
    close(result[0]);
    int code;
    assert_int_equal(waitpid(child, &code, 0), child);
    return WIFEXITED(code) ? WEXITSTATUS(code) : 1000 + WTERMSIG(code);
}

static void try_all(nm_status (*run)(nm_error *err), const char *output)
{
    long n = 0, reported = 0;
    char *complete = NULL, *text;
    nm_error err;
    if (output) {
        assert_int_equal(nm_file_read(output, &complete, NULL, &err), NM_OK);
        unlink(output);
    }
    for (bool hit = true; hit; n++) {
        int code = exit_code(run, n, &hit);
        if (code != NM_OK && code != NM_MEMORY)
            fail_msg("allocation %ld failed: exit code %d", n, code);
        reported += code == NM_MEMORY;
        if (output && access(output, F_OK) == 0) {
            assert_int_equal(nm_file_read(output, &text, NULL, &err), NM_OK);
            assert_string_equal(text, complete);
            free(text);
            unlink(output);
        }
    }
    free(complete);
    print_message("%ld allocations failed, %ld reported\n", n - 1, reported);
    assert_true(reported > 10);
}
#endif

static void check(nm_status (*run)(nm_error *err), const char *output)
{
    nm_error err;
    assert_int_equal(run(&err), NM_OK);
#if REPLACES_ALLOCATOR
    try_all(run, output);
#else
    (void)output;
#endif
}

static void test_prepare(void **unused)
{
    (void)unused;
    check(run_prepare, "data/data.ini");
}

static void test_safetensors(void **unused)
{
    (void)unused;
    check(run_safetensors, NULL);
}

static void test_readers(void **unused)
{
    (void)unused;
    check(run_readers, NULL);
}

static void test_text_streams(void **unused)
{
    (void)unused;
    check(run_text_streams, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors),
        cmocka_unit_test(test_readers),
        cmocka_unit_test(test_text_streams),
        cmocka_unit_test(test_prepare),
    };
    return cmocka_run_group_tests_name("memory faults", tests, enter_folder, remove_folder);
}
