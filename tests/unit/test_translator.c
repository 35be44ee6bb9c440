/* include/norma/translator.h: results, options, errors, and one translator used by 16 threads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "norma/translator.h"
#include "support/sanitizer.h"
#include "support/tiny_run.h"

enum { N_TEXTS = 24, N_THREADS = 16 };

static char *run; /* folder of the run */
static char texts_memory[N_TEXTS][80];
static const char *texts[N_TEXTS];

static int setup(void **state)
{
    nm_error err;
    nm_trainer *trainer;
    const char *const settings[] = {"train.updates", "12", "decode.beam", "3", NULL};
    make_data(state);
    run = tiny_folder();
    nm_options *options = tiny_options(settings);
    if (nm_trainer_open(&trainer, &nm_task_translation, options, run, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_trainer_close(trainer);
    nm_options_free(options);
    for (uint32_t i = 0; i < N_TEXTS; i++) { /* w10 and w11 are unknown */
        char *at = texts_memory[i];
        for (uint32_t t = 0; t < 1 + i % 7; t++)
            at += sprintf(at, "w%u ", nm_random4(5, NM_RANDOM_TEST, 0, i, t).w[0] % 12);
        texts[i] = texts_memory[i];
    }
    return 0;
}

static int teardown(void **state)
{
    tiny_data_remove(run);
    return drop_data(state);
}

static nm_translator *open_run(const char *const *options)
{
    nm_translator *translator = NULL;
    nm_error err;
    if (nm_translator_open(&translator, run, options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return translator;
}

static nm_translations *translate(nm_translator *translator, const char *const *list, size_t n)
{
    nm_translations *translations = NULL;
    nm_error err;
    if (nm_translator_run(translator, list, n, &translations, &err) != NM_OK)
        fail_msg("%s", err.text);
    return translations;
}

/* Whether text i of a and text j of b have bitwise identical translations; without asserts, for threads. */
static bool same(const nm_translations *a, size_t i, const nm_translations *b, size_t j)
{
    bool equal = nm_translations_count(a, i) == nm_translations_count(b, j);
    for (size_t k = 0; equal && k < nm_translations_count(a, i); k++) {
        size_t n = nm_translations_n_tokens(a, i, k);
        equal = !strcmp(nm_translations_text(a, i, k), nm_translations_text(b, j, k)) &&
                nm_translations_score(a, i, k) == nm_translations_score(b, j, k) &&
                n == nm_translations_n_tokens(b, j, k) &&
                !memcmp(nm_translations_token_scores(a, i, k), nm_translations_token_scores(b, j, k),
                        n * sizeof(double));
    }
    return equal;
}

static void n_best_translations_have_scores_and_tokens(void **state)
{
    (void)state;
    const char *const options[] = {"nbest", "3", "decode.alpha", "1", "device.threads", "1", NULL};
    nm_translator *translator = open_run(options);
    assert_int_equal(nm_translator_nbest(translator), 3);
    assert_int_equal(nm_translator_max_tokens(translator), 32);
    nm_translations *all = translate(translator, texts, N_TEXTS);
    nm_translator_close(translator); /* the translations stay valid */
    assert_int_equal(nm_translations_n(all), N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++) {
        assert_int_equal(nm_translations_count(all, i), 3);
        for (size_t k = 0; k < 3; k++) {
            double sum = 0;
            size_t n = nm_translations_n_tokens(all, i, k);
            assert_true(n > 0 && *nm_translations_token(all, i, k, n - 1));
            for (size_t t = 0; t < n; t++)
                sum += nm_translations_token_scores(all, i, k)[t];
            assert_true(fabs(sum / (double)n - nm_translations_score(all, i, k)) < 1e-9);
            assert_true(!k || nm_translations_score(all, i, k) <= nm_translations_score(all, i, k - 1));
        }
    }
    assert_null(nm_translations_text(all, N_TEXTS, 0));
    assert_null(nm_translations_text(all, 0, 3));
    assert_null(nm_translations_token(all, 0, 0, nm_translations_n_tokens(all, 0, 0)));
    nm_translations_free(all);
}

static void scores_of_translations_are_those_of_the_search(void **state)
{
    (void)state;
    const char *const options[] = {"nbest", "2", NULL};
    nm_translator *translator = open_run(options);
    nm_translations *all = translate(translator, texts, N_TEXTS), *scored = NULL;
    const char *targets[N_TEXTS];
    nm_error err;
    for (size_t k = 0; k < 2; k++) {
        for (size_t i = 0; i < N_TEXTS; i++)
            targets[i] = nm_translations_text(all, i, k);
        if (nm_translator_score(translator, texts, targets, N_TEXTS, &scored, &err) != NM_OK)
            fail_msg("%s", err.text);
        for (size_t i = 0; i < N_TEXTS; i++) {
            size_t n = nm_translations_n_tokens(all, i, k);
            assert_int_equal(nm_translations_count(scored, i), 1);
            assert_string_equal(nm_translations_text(scored, i, 0), targets[i]);
            if (strcmp(nm_translations_token(all, i, k, n - 1), "</s>"))
                continue; /* ended at the length limit */
            assert_int_equal(nm_translations_n_tokens(scored, i, 0), n);
            assert_true(nm_translations_score(scored, i, 0) == nm_translations_score(all, i, k));
            assert_memory_equal(nm_translations_token_scores(scored, i, 0),
                                nm_translations_token_scores(all, i, k), n * sizeof(double));
        }
        nm_translations_free(scored);
    }
    nm_translations_free(all);
    /* no source; no target; a target that is too long; a newline */
    char too_long[200] = "";
    for (int i = 0; i < 40; i++)
        strcat(too_long, "w1 ");
    const char *const sources[] = {"", "w1", "w1", "w1\n"}, *const given[] = {"w2", "", too_long, "w2\n"};
    assert_int_equal(nm_translator_score(translator, sources, given, 4, &scored, &err), NM_OK);
    assert_int_equal(nm_translations_count(scored, 0), 0);
    assert_false(nm_translations_too_long(scored, 0));
    assert_int_equal(nm_translations_n_tokens(scored, 1, 0), 1);
    assert_int_equal(nm_translations_count(scored, 2), 0);
    assert_true(nm_translations_too_long(scored, 2));
    assert_string_equal(nm_translations_text(scored, 3, 0), "w2");
    nm_translations_free(scored);
    const char *const broken[] = {"w1\nw2"};
    assert_int_equal(nm_translator_score(translator, texts, broken, 1, &scored, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "target 0: a line break"));
    assert_int_equal(nm_translator_score(translator, texts, NULL, 1, &scored, &err), NM_USAGE);
    assert_int_equal(nm_translator_score(translator, texts, texts, 1, NULL, &err), NM_USAGE);
    nm_translator_close(translator);
}

static void a_translation_depends_on_its_text_only(void **state)
{
    (void)state;
    const char *const one[] = {"threads", "1", NULL}, *const two[] = {"threads", "2", "batch_tokens", "9",
                                                                      NULL};
    nm_translator *first = open_run(one), *second = open_run(two);
    nm_translations *all = translate(first, texts, N_TEXTS), *other = translate(second, texts, N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++) {
        nm_translations *single = translate(first, &texts[i], 1);
        assert_true(same(all, i, single, 0));
        assert_true(same(all, i, other, i));
        nm_translations_free(single);
    }
    nm_translations_free(all);
    nm_translations_free(other);
    nm_translator_close(first);
    nm_translator_close(second);
}

static void line_ends_and_empty_texts(void **state)
{
    (void)state;
    char longer[4 * 40 + 1] = "";
    for (int i = 0; i < 40; i++)
        strcat(longer, "w1 ");
    char *huge = nm_allocate((2 << 20) + 1);
    memset(huge, 'x', 2 << 20);
    const char *const list[] = {"w1 w2", "w1 w2\n", "w1 w2\r\n",           "", "\n", "  ",
                                longer,  huge,      "unbekanntes wörtchen"};
    nm_translator *translator = open_run(NULL);
    nm_translations *all = translate(translator, list, 9);
    assert_true(same(all, 0, all, 1) && same(all, 0, all, 2));
    for (size_t i = 3; i < 8; i++) {
        assert_int_equal(nm_translations_count(all, i), 0);
        assert_null(nm_translations_text(all, i, 0));
        assert_int_equal(nm_translations_too_long(all, i), i >= 6);
    }
    assert_int_equal(nm_translations_count(all, 8), 1);
    nm_translations_free(all);
    all = translate(translator, NULL, 0);
    assert_int_equal(nm_translations_n(all), 0);
    nm_translations_free(all);
    nm_translator_close(translator);
    free(huge);
}

static void refused(const char *path, const char *const *options, nm_status status, const char *message)
{
    nm_translator *translator = NULL;
    nm_error err = {NM_OK, ""};
    assert_int_equal(nm_translator_open(&translator, path, options, &err), status);
    assert_int_equal(err.status, status);
    if (!strstr(err.text, message))
        fail_msg("'%s' is not in '%s'", message, err.text);
    assert_null(translator);
    assert_int_equal(nm_translator_open(&translator, path, options, NULL), status);
}

static void options_by_name(void **state)
{
    (void)state;
    refused(run, (const char *const[]){"beams", "3", NULL}, NM_USAGE, "beam");
    refused(run, (const char *const[]){"train.updates", "3", NULL}, NM_USAGE, "train.updates");
    refused(run, (const char *const[]){"beam", NULL}, NM_USAGE, "no value");
    refused(run, (const char *const[]){"beam", "0", NULL}, NM_USAGE, "beam");
    refused(run, (const char *const[]){"beam", "2", "nbest", "3", NULL}, NM_USAGE, "decode.nbest = 3");
    refused(run, (const char *const[]){"device.backend", "gpu", NULL}, NM_USAGE, "backend");
    nm_translator *translator =
        open_run((const char *const[]){"output_format", "subword", "precision", "int8", NULL});
    assert_int_equal(nm_translator_nbest(translator), 1);
    nm_translator_close(translator);
}

/* The model file with other contents: its first `bytes` bytes; or a file of another task. */
static char *changed_file(const char *name, size_t bytes)
{
    char *path = nm_path_join(run, name), *model = nm_path_join(run, "last.safetensors"), *text;
    size_t all;
    nm_error err;
    if (bytes) {
        assert_int_equal(nm_file_read(model, &text, &all, &err), NM_OK);
        assert_int_equal(nm_file_write(path, text, bytes < all ? bytes : all - 100, &err), NM_OK);
        free(text);
    } else {
        nm_safetensors_writer *writer = nm_safetensors_begin();
        nm_safetensors_add_metadata(writer, "task", "lm");
        nm_safetensors_add_metadata(writer, "config", "[model]\nwidth = 16\n");
        assert_int_equal(nm_safetensors_finish(writer, path, &err), NM_OK);
    }
    free(model);
    return path;
}

static void bad_files(void **state)
{
    (void)state;
    static const size_t lengths[] = {1, 3000, SIZE_MAX};
    refused(NULL, NULL, NM_USAGE, "NULL");
    refused("", NULL, NM_USAGE, "the path of a model is empty");
    refused("run,", NULL, NM_IO, "run");
    refused("/nowhere/model", NULL, NM_IO, "/nowhere/model");
    for (size_t i = 0; i < 3; i++) {
        char *path = changed_file("cut.safetensors", lengths[i]);
        refused(path, NULL, NM_FORMAT, "cut.safetensors");
        free(path);
    }
    char *path = changed_file("lm.safetensors", 0);
    refused(path, NULL, NM_UNSUPPORTED, "the task of the model is lm, not translation");
    /* also with an option of its task */
    refused(path, (const char *[]){"tokens", "3", NULL}, NM_UNSUPPORTED, "the task of the model is lm");
    free(path);
    assert_int_equal(nm_translator_open(NULL, run, NULL, NULL), NM_USAGE);
    nm_translator_close(NULL);
}

static void bad_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
        nm_status status;
    } cases[] = {{"w1 \xff", "text 1: not UTF-8: byte 0xff at position 4", NM_FORMAT},
                 {"w1\nw2", "text 1: a line break at position 3", NM_FORMAT},
                 {NULL, "text 1 is NULL", NM_USAGE}};
    nm_translator *translator = open_run(NULL);
    nm_translations *translations = NULL;
    nm_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const list[] = {"w1", cases[i].text};
        assert_int_equal(nm_translator_run(translator, list, 2, &translations, &err), cases[i].status);
        assert_string_equal(err.text, cases[i].message);
        assert_null(translations);
    }
    assert_int_equal(nm_translator_run(translator, NULL, 1, &translations, &err), NM_USAGE);
    assert_string_equal(err.text, "text: the array is NULL");
    assert_int_equal(nm_translator_run_prefixes(translator, texts, NULL, 1, &translations, &err), NM_USAGE);
    assert_string_equal(err.text, "prefix: the array is NULL");
    assert_int_equal(nm_translator_run(translator, texts, 1, NULL, &err), NM_USAGE);
    assert_int_equal(nm_translator_run(NULL, texts, 1, &translations, &err), NM_USAGE);
    nm_translations_free(NULL);
    assert_int_equal(nm_translations_n(NULL), 0);
    nm_translations_free(translate(translator, texts, 1)); /* still usable */
    const char *const empty[] = {"", ""};
    assert_int_equal(nm_translator_run_constraints(translator, texts, NULL, empty, 2, &translations, &err),
                     NM_OK);
    nm_translations *unconstrained = translate(translator, texts, 2);
    for (size_t i = 0; i < 2; i++)
        assert_string_equal(nm_translations_text(translations, i, 0),
                            nm_translations_text(unconstrained, i, 0));
    nm_translations_free(unconstrained);
    nm_translations_free(translations);
    nm_translator_close(translator);
}

typedef struct caller {
    nm_translator *translator;
    const nm_translations *expected;
    pthread_t thread;
    size_t first;
    bool equal;
} caller;

/* Rounds of calls with other batches in each thread. */
static void *call(void *argument)
{
    caller *self = argument;
    self->equal = true;
    for (size_t round = 0; round < 3; round++) {
        size_t n = 1 + (self->first + 5 * round) % 7;
        const char *list[7];
        nm_translations *found;
        for (size_t i = 0; i < n; i++)
            list[i] = texts[(self->first + i) % N_TEXTS];
        if (nm_translator_run(self->translator, list, n, &found, NULL) != NM_OK) {
            self->equal = false;
            break;
        }
        for (size_t i = 0; i < n; i++)
            self->equal = self->equal && same(self->expected, (self->first + i) % N_TEXTS, found, i);
        nm_translations_free(found);
    }
    return NULL;
}

static void check_threads(const char *const *options)
{
    nm_translator *translator = open_run(options);
    nm_translations *expected = translate(translator, texts, N_TEXTS);
    caller callers[N_THREADS];
    for (size_t t = 0; t < N_THREADS; t++) {
        callers[t] = (caller){.translator = translator, .expected = expected, .first = t};
        assert_int_equal(pthread_create(&callers[t].thread, NULL, call, &callers[t]), 0);
    }
    bool equal = true;
    for (size_t t = 0; t < N_THREADS; t++) {
        pthread_join(callers[t].thread, NULL);
        equal = equal && callers[t].equal;
    }
    assert_true(equal);
    nm_translations_free(expected);
    nm_translator_close(translator);
}

static void sixteen_threads_share_one_translator(void **state)
{
    (void)state;
    check_threads((const char *const[]){"device.threads", "1", "nbest", "2", NULL});
    check_threads((const char *const[]){"device.threads", "2", NULL});
    check_threads((const char *const[]){"device.threads", "1", "device.precision", "int8", NULL});
}

static void sixteen_threads_share_one_ensemble(void **state)
{
    (void)state;
    char *single = run;
    run = nm_format("%s,%s", single, single);
    check_threads((const char *const[]){"device.threads", "1", NULL});
    free(run);
    run = single;
}

/* GNU's OpenMP would wait forever in the child for the threads of the team; LLVM's OpenMP starts new ones. */
static void a_process_that_was_forked_can_translate(void **state)
{
    (void)state;
    if (!FORKED_PROCESS_STARTS_THREADS)
        skip();
    const char *const two[] = {"device.threads", "2", NULL};
    nm_translator *translator = open_run(two);
    nm_translations *expected = translate(translator, texts, N_TEXTS);
    pid_t child = fork();
    if (!child) {
        nm_translations *found = NULL;
        alarm(60); /* ends a child that waits */
        bool equal = nm_translator_run(translator, texts, N_TEXTS, &found, NULL) == NM_OK;
        for (size_t i = 0; i < N_TEXTS; i++)
            equal = equal && same(expected, i, found, i);
        _exit(equal ? 0 : 1);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
    /* The parent still has its team. */
    nm_translations *after = translate(translator, texts, N_TEXTS);
    assert_true(same(expected, 0, after, 0));
    nm_translations_free(after);
    nm_translations_free(expected);
    nm_translator_close(translator);
}

enum { N_MANY = 20000 }; /* texts of a call that would last for seconds */

static const char *many[N_MANY], *phrases[N_MANY];

typedef struct question { /* state of `proceed` */
    nm_translator *stop;  /* to call nm_translator_stop; NULL: the answer ends the call */
    pthread_t thread;
    int asked;
    bool other_thread;
} question;

/* The second answer ends the call. */
static bool proceed(void *user)
{
    question *q = user;
    q->other_thread = q->other_thread || !pthread_equal(q->thread, pthread_self());
    if (++q->asked < 2)
        return true;
    nm_translator_stop(q->stop);
    return q->stop != NULL;
}

static nm_status call_many(nm_translator *translator, int function, nm_translations **found, nm_error *err)
{
    return function == 0   ? nm_translator_run(translator, many, N_MANY, found, err)
           : function == 1 ? nm_translator_run_prefixes(translator, many, many, N_MANY, found, err)
           : function == 2
               ? nm_translator_run_constraints(translator, many, NULL, phrases, N_MANY, found, err)
               : nm_translator_score(translator, many, many, N_MANY, found, err);
}

static void check_stop(nm_translator *translator, int function, bool by_answer)
{
    question q = {.stop = by_answer ? NULL : translator, .thread = pthread_self()};
    nm_translations *found = NULL;
    nm_error err = {0};
    nm_translator_set_proceed(translator, proceed, &q);
    assert_int_equal(call_many(translator, function, &found, &err), NM_INTERRUPTED);
    assert_int_equal(err.status, NM_INTERRUPTED);
    assert_string_equal(err.text, "stopped");
    assert_null(found);
    assert_int_equal(q.asked, 2);
    assert_false(q.other_thread);
    nm_translator_set_proceed(translator, NULL, NULL);
    nm_translations_free(translate(translator, many, 200));
    assert_int_equal(q.asked, 2);
}

/* A stopped call returns NM_INTERRUPTED, and later calls have the same results as before. */
static void threads_stop_calls(void **state)
{
    (void)state;
    static const char *const numbers[] = {"1", "2"};
    for (size_t i = 0; i < N_MANY; i++) {
        many[i] = texts[i % N_TEXTS];
        phrases[i] = i % 2 ? "w1\tw2" : "w3";
    }
    for (size_t threads = 0; threads < 2; threads++) {
        const char *const options[] = {"device.threads", numbers[threads], "min_length", "20", NULL};
        nm_translator *translator = open_run(options);
        nm_translations *expected = translate(translator, texts, N_TEXTS);
        for (int function = 0; function < 4; function++) {
            check_stop(translator, function, true);
            check_stop(translator, function, false);
        }
        nm_translations *found = translate(translator, texts, N_TEXTS);
        for (size_t i = 0; i < N_TEXTS; i++)
            assert_true(same(expected, i, found, i));
        nm_translations_free(found);
        nm_translations_free(expected);
        nm_translator_close(translator);
    }
    nm_translator_stop(NULL);
    nm_translator_set_proceed(NULL, proceed, NULL);
    assert_int_equal(nm_translator_max_tokens(NULL), 0);
    assert_int_equal(nm_translator_nbest(NULL), 0);
}

/* The function of a thread does not decide about the calls of others. */
static void *translate_many(void *argument)
{
    nm_translations *found = NULL;
    nm_status status = nm_translator_run(argument, many, 400, &found, NULL);
    nm_translations_free(found);
    return status == NM_OK ? argument : NULL;
}

static void threads_continue_when_another_stops(void **state)
{
    (void)state;
    nm_translator *translator = open_run((const char *const[]){"device.threads", "1", NULL});
    pthread_t thread;
    void *result;
    check_stop(translator, 0, true);
    nm_translator_set_proceed(translator, proceed, &(question){.asked = 1});
    assert_int_equal(pthread_create(&thread, NULL, translate_many, translator), 0);
    pthread_join(thread, &result);
    assert_ptr_equal(result, translator);
    nm_translator_close(translator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(n_best_translations_have_scores_and_tokens),
        cmocka_unit_test(scores_of_translations_are_those_of_the_search),
        cmocka_unit_test(a_translation_depends_on_its_text_only),
        cmocka_unit_test(line_ends_and_empty_texts),
        cmocka_unit_test(options_by_name),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(bad_texts),
        cmocka_unit_test(sixteen_threads_share_one_translator),
        cmocka_unit_test(sixteen_threads_share_one_ensemble),
        cmocka_unit_test(a_process_that_was_forked_can_translate),
        cmocka_unit_test(threads_stop_calls),
        cmocka_unit_test(threads_continue_when_another_stops),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
