/* include/norma/prepare.h: the report, warnings, progress, interruption and errors. The files:
 * tests/e2e/e2e_prepare.sh and e2e_library.sh. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "norma/prepare.h"
#include "support/remove_tree.h"
#include "base/buffer.h"

enum { N_PAIRS = 40, N_VALID = 3 };

static char folder[] = "/tmp/test_preparation.XXXXXX";
static char *train, *valid, *output;

static void write_file(const char *prefix, const char *suffix, const char *text)
{
    char *path = nm_format("%s.%s", prefix, suffix);
    nm_error err;
    if (nm_file_write(path, text, strlen(text), &err) != NM_OK)
        fail_msg("%s", err.text);
    free(path);
}

/* Every tenth pair of the training text is empty on one side, and one pair is too long for max_length = 8. */
static int make_texts(void **state)
{
    (void)state;
    nm_buffer de = {0}, en = {0};
    assert_non_null(mkdtemp(folder));
    train = nm_path_join(folder, "train");
    valid = nm_path_join(folder, "valid");
    output = nm_path_join(folder, "data");
    for (int i = 0; i < N_PAIRS; i++) {
        char *a = nm_format("ein Haus Nummer %d\n", i % 7);
        char *b = i % 10 == 3 ? nm_duplicate("\n")
                              : nm_format("a house %s\n", i == 5 ? "a b c d e f g h i" : "here");
        nm_buffer_append(&de, a, strlen(a));
        nm_buffer_append(&en, b, strlen(b));
        free(a);
        free(b);
    }
    write_file(train, "de", de.data);
    write_file(train, "en", en.data);
    write_file(valid, "de", "ein Baum\n\nein Haus Nummer 1\n");
    write_file(valid, "en", "a tree\n\na house here\n");
    nm_buffer_release(&de);
    nm_buffer_release(&en);
    return 0;
}

static int remove_texts(void **state)
{
    (void)state;
    free(train);
    free(valid);
    free(output);
    return remove_tree(folder);
}

typedef struct observer {
    int n_calls, last_call; /* progress returns false at the last call; 0: never */
    int64_t lines;
    char steps[256], messages[2048];
} observer;

static bool on_progress(void *user, const nm_prepare_progress *progress)
{
    observer *self = user;
    const char *end = strrchr(self->steps, ' ');
    if (!end || strcmp(end + 1, progress->step))
        strcat(strcat(self->steps, " "), progress->step);
    if (!strcmp(progress->step, "train"))
        self->lines = progress->lines;
    return ++self->n_calls != self->last_call;
}

static void on_message(void *user, const char *text)
{
    strcat(strcat(((observer *)user)->messages, text), "\n");
}

static nm_status prepare(observer *seen, const char *settings, const char *name, const char *value,
                         nm_prepared **prepared, nm_error *err)
{
    const char *const options[] = {
        "train",  train,  "prepare.valid", valid, "source_lang", "de",  "target_lang", "en",
        "output", output, "threads",       "2",   name,          value, NULL};
    const nm_prepare_events events = {.user = seen, .progress = on_progress, .message = on_message};
    return nm_prepare_folder(prepared, settings, options, seen ? &events : NULL, err);
}

static void test_report(void **state)
{
    (void)state;
    observer seen = {0};
    nm_prepared *prepared;
    nm_prepared_split split;
    nm_prepared_drop drop;
    nm_prepared_side side;
    nm_error err;
    if (prepare(&seen, "[prepare]\nmax_length = 8\nbpe_merges = 77\n", "bpe_merges", "10", &prepared, &err) !=
        NM_OK)
        fail_msg("%s", err.text);
    assert_string_equal(nm_prepared_folder(prepared), output);
    assert_int_equal(nm_prepared_n_sides(prepared), 2);
    assert_int_equal(nm_prepared_merges(prepared), 10);
    assert_true(nm_prepared_get_split(prepared, 0, &split));
    assert_string_equal(split.name, "train");
    assert_int_equal(split.lines, N_PAIRS);
    assert_int_equal(split.kept, N_PAIRS - 5);
    assert_int_equal(split.words[0], 4 * (N_PAIRS - 5));
    assert_int_equal(split.unknown[1], 0);
    assert_true(nm_prepared_get_drop(prepared, 0, 0, &drop));
    assert_string_equal(drop.reason, "empty");
    assert_int_equal(drop.lines, 4);
    assert_true(nm_prepared_get_drop(prepared, 0, 1, &drop));
    assert_string_equal(drop.option, "prepare.max_length");
    assert_int_equal(drop.lines, 1);
    assert_false(nm_prepared_get_drop(prepared, 0, 2, &drop));
    assert_true(nm_prepared_get_split(prepared, 1, &split));
    assert_int_equal(split.kept, N_VALID);
    assert_true(split.unknown[0] > 0);
    assert_false(nm_prepared_get_split(prepared, 2, &split));
    assert_false(nm_prepared_get_split(prepared, 3, &split));
    assert_true(nm_prepared_get_side(prepared, 1, &side));
    assert_string_equal(side.name, "target");
    assert_true(side.dictionary > 0 && !side.pieces);
    assert_false(nm_prepared_get_side(prepared, 2, &side));
    assert_string_equal(seen.steps, " train valid subwords ids");
    assert_int_equal(seen.lines, N_PAIRS);
    assert_non_null(strstr(seen.messages,
                           "12.5 % of the training pairs were dropped, most of them as \"empty\"\n"
                           "  line 4: ein Haus Nummer 3 | \n"));
    nm_prepared_free(prepared);
}

static char *bytes_of(const char *name)
{
    char *path = nm_path_join(output, name), *text = NULL;
    nm_error err;
    if (nm_file_read(path, &text, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    free(path);
    return text;
}

/* The preparation is stopped at each progress event in turn, until it completes; a stopped preparation does
 * not change the folder. */
static void test_interruptions_leave_the_folder(void **state)
{
    (void)state;
    nm_error err;
    assert_int_equal(prepare(NULL, NULL, "bpe_merges", "5", NULL, &err), NM_OK);
    char *dictionary = bytes_of("dict.source.txt"), *settings = bytes_of("data.ini");
    nm_status status = NM_INTERRUPTED;
    int n = 0;
    while (status == NM_INTERRUPTED) {
        observer seen = {.last_call = ++n};
        status = prepare(&seen, NULL, "bpe_merges", "20", NULL, &err);
        char *now = bytes_of("dict.source.txt"), *settings_now = bytes_of("data.ini");
        assert_int_equal(!strcmp(now, dictionary), status == NM_INTERRUPTED);
        assert_int_equal(!strcmp(settings_now, settings), status == NM_INTERRUPTED);
        free(now);
        free(settings_now);
    }
    assert_int_equal(status, NM_OK);
    assert_true(n > 5);
    free(dictionary);
    free(settings);
}

static void refuses(nm_status wanted, const char *text, const char *settings, const char *name,
                    const char *value)
{
    nm_error err;
    nm_prepared *prepared = NULL;
    assert_int_equal(prepare(NULL, settings, name, value, &prepared, &err), wanted);
    if (!strstr(err.text, text) || prepared)
        fail_msg("'%s' is not in '%s'", text, err.text);
}

static void test_errors(void **state)
{
    (void)state;
    refuses(NM_USAGE, "bpe_merge", NULL, "bpe_merge", "3");
    refuses(NM_USAGE, "no value", NULL, "bpe_merges", NULL);
    refuses(NM_USAGE, "two different languages", NULL, "target_lang", "de");
    refuses(NM_USAGE, "no effect", NULL, "spm_vocab_size", "100");
    refuses(NM_IO, "nowhere", NULL, "train", "/nowhere/train");
    refuses(NM_IO, "nowhere.ini", "/nowhere.ini", "threads", "2");
    refuses(NM_USAGE, "mergers", "[prepare]\nmergers = 1\n", "bpe_merges", "3");
    refuses(NM_MISMATCH, "left no pair", NULL, "min_length", "100");
    assert_int_equal(nm_prepare_folder(NULL, NULL, NULL, NULL, NULL), NM_USAGE);
    nm_prepared_free(NULL);
    assert_null(nm_prepared_folder(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_interruptions_leave_the_folder),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, make_texts, remove_texts);
}
