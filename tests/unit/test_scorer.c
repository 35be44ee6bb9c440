/* include/norma/score.h: scores of texts and of files, intervals, paired tests, errors, interruption, and one
 * scorer used by 16 threads. The values of the metrics: test_bleu, test_chrf, test_ter,
 * test_metric_tokenizer; the program: tests/e2e/e2e_score.sh. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "norma/score.h"

static const char *const hypotheses[] = {"the river runs lower than the hills", "we walked to the old tower",
                                         "", "newer walls stand at the river\n"};
static const char *const references[] = {"the river runs lower than the low hills",
                                         "we walked to the oldest tower", "nothing",
                                         "newer walls stand near the river\r\n",
                                         /* the second reference */
                                         "the river is lower than the hills", "we walked up to the old tower",
                                         "no thing", "walls stand at the river"};

static nm_scorer *opened(const char *metric, const char *const *options)
{
    nm_scorer *scorer;
    nm_error err;
    if (nm_scorer_open(&scorer, metric, options, &err) != NM_OK)
        fail_msg("%s: %s", metric, err.text);
    return scorer;
}

static nm_scores *scored(nm_scorer *scorer, const char *const *texts, const char *const *gold, size_t n,
                         size_t n_references)
{
    nm_scores *scores;
    nm_error err;
    if (nm_scorer_run(scorer, texts, n, gold, n_references, &scores, &err) != NM_OK)
        fail_msg("%s", err.text);
    return scores;
}

static void write_lines(const char *path, const char *const *lines, size_t n)
{
    FILE *file = fopen(path, "w");
    for (size_t i = 0; i < n; i++)
        fprintf(file, "%.*s\n", (int)strcspn(lines[i], "\r\n"), lines[i]);
    fclose(file);
}

static void test_texts_and_files_have_equal_scores(void **state)
{
    (void)state;
    static const char *const metrics[] = {"bleu", "chrf", "ter"};
    char folder[] = "/tmp/test_scorer.XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *paths[] = {nm_format("%s/hyp", folder), nm_format("%s/ref", folder),
                     nm_format("%s/second", folder)};
    write_lines(paths[0], hypotheses, 4);
    write_lines(paths[1], references, 4);
    write_lines(paths[2], references + 4, 4);
    for (size_t m = 0; m < 3; m++) {
        nm_scorer *scorer = opened(metrics[m], NULL);
        nm_scores *texts = scored(scorer, hypotheses, references, 4, 2), *files;
        nm_error err;
        const char *const both[] = {paths[1], paths[2]};
        assert_int_equal(nm_scorer_run_files(scorer, paths[0], both, 2, &files, &err), NM_OK);
        nm_scorer_close(scorer);
        assert_int_equal(nm_scores_n(texts), 4);
        assert_string_equal(nm_scores_line(texts), nm_scores_line(files));
        assert_string_equal(nm_scores_signature(texts), nm_scores_signature(files));
        assert_true(nm_scores_value(texts) == nm_scores_value(files));
        for (size_t i = 0; i < 4; i++)
            assert_true(nm_scores_segment(texts, i) == nm_scores_segment(files, i));
        assert_true(isnan(nm_scores_segment(texts, 4)));
        nm_interval a, b;
        assert_true(nm_scores_interval(texts, &a) && nm_scores_interval(files, &b));
        assert_memory_equal(&a, &b, sizeof a);
        nm_paired paired;
        assert_int_equal(nm_scores_compare(texts, files, &paired, &err), NM_OK);
        assert_true(a.low <= a.mean && a.mean <= a.high);
        nm_scores_free(texts);
        nm_scores_free(files);
    }
    for (size_t i = 0; i < 3; i++) {
        unlink(paths[i]);
        free(paths[i]);
    }
    rmdir(folder);
}

static void test_options_select_the_variant(void **state)
{
    (void)state;
    const char *const zh[] = {"tokenize", "zh", "score.lowercase", "true", NULL};
    const char *const texts[] = {"我们 WALK"}, *const gold[] = {"我 们 walk"};
    nm_scorer *scorer = opened("bleu", zh);
    nm_scores *scores = scored(scorer, texts, gold, 1, 1);
    nm_scorer_close(scorer);
    assert_non_null(strstr(nm_scores_signature(scores), "case:lc|eff:no|tok:zh"));
    assert_non_null(strstr(nm_scores_line(scores), "100.0/100.0"));
    nm_scores_free(scores);
    const char *const multi_bleu[] = {"metric_variant", "multi-bleu", "split_compounds", "true", NULL};
    const char *const *const variants[] = {NULL, multi_bleu};
    for (size_t i = 0; i < 2; i++) {
        scorer = opened("bleu", variants[i]);
        scores = scored(scorer, texts, gold, 1, 1);
        assert_true((strstr(nm_scores_signature(scores), "tok:13a|smooth:exp") != NULL) == (i == 0));
        nm_scorer_close(scorer);
        nm_scores_free(scores);
    }
}

static void test_labels_and_tags(void **state)
{
    (void)state;
    const char *const labels[] = {"good", " bad ", "new york"}, *const gold[] = {"good", "bad", "york"};
    nm_scorer *scorer = opened("accuracy", NULL);
    nm_scores *scores = scored(scorer, labels, gold, 3, 1);
    assert_true(fabs(nm_scores_value(scores) - 200.0 / 3) < 1e-12);
    assert_true(nm_scores_segment(scores, 1) == 100 && nm_scores_segment(scores, 2) == 0);
    assert_string_equal(nm_scores_line(scores), "accuracy = 66.67 (2 of 3)");
    nm_scores_free(scores);
    nm_scorer_close(scorer);

    const char *const found[] = {"B-PER I-PER O B-LOC", "", "O"}, *const tags[] = {"S-PER O O S-LOC", " ",
                                                                                   "B-ORG"};
    scorer = opened("f1", NULL);
    scores = scored(scorer, found, tags, 3, 1);
    assert_string_equal(nm_scores_line(scores),
                        "F1 = 40.00 (precision 50.00, recall 33.33; 3 gold spans, 2 predicted, 1 correct)");
    nm_scores_free(scores);
    nm_scorer_close(scorer);
}

static void test_paired(void **state)
{
    (void)state;
    nm_scorer *scorer = opened("chrf", NULL);
    nm_scores *a = scored(scorer, hypotheses, references, 4, 1),
              *b = scored(scorer, references, references, 4, 1),
              *shorter = scored(scorer, hypotheses, references, 3, 1),
              *other_text = scored(scorer, hypotheses, references + 4, 4, 1);
    const char *const seeded[] = {"seed", "2", NULL}, *const none[] = {"bootstrap", "0", NULL};
    nm_scorer *other_seed = opened("chrf", seeded), *no_resamples = opened("chrf", none);
    nm_scores *c = scored(other_seed, hypotheses, references, 4, 1),
              *d = scored(no_resamples, hypotheses, references, 4, 1);
    nm_paired paired;
    nm_interval interval;
    nm_error err;
    assert_int_equal(nm_scores_compare(a, b, &paired, &err), NM_OK);
    assert_true(paired.score_a == nm_scores_value(a) && paired.score_b == 100 && paired.difference.high < 0);
    assert_true(paired.p == 1.0 / 1001);
    assert_true(nm_scores_interval(a, &interval));
    assert_memory_equal(&interval, &paired.a, sizeof interval);
    assert_int_equal(nm_scores_compare(a, a, &paired, &err), NM_OK);
    assert_true(paired.p == 1);
    assert_int_equal(nm_scores_compare(a, shorter, &paired, &err), NM_MISMATCH);
    assert_int_equal(nm_scores_compare(a, other_text, &paired, &err), NM_MISMATCH);
    assert_string_equal(err.text, "the systems were scored against different references");
    assert_int_equal(nm_scores_compare(a, c, &paired, &err), NM_USAGE);
    assert_int_equal(nm_scores_compare(d, d, &paired, &err), NM_USAGE);
    assert_int_equal(nm_scores_compare(a, NULL, &paired, &err), NM_USAGE);
    assert_false(nm_scores_interval(d, &interval));
    nm_scores *const all[] = {a, b, c, d, shorter, other_text};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        nm_scores_free(all[i]);
    nm_scorer_close(scorer);
    nm_scorer_close(other_seed);
    nm_scorer_close(no_resamples);
}

static void refuses_options(nm_status wanted, const char *text, const char *metric, const char *name,
                            const char *value)
{
    const char *const options[] = {name, value, NULL};
    nm_scorer *scorer;
    nm_error err;
    assert_int_equal(nm_scorer_open(&scorer, metric, options, &err), wanted);
    if (!strstr(err.text, text))
        fail_msg("'%s' is not in '%s'", text, err.text);
}

static void refuses_texts(nm_status wanted, const char *text, const char *metric, const char *hypothesis,
                          const char *reference)
{
    nm_scorer *scorer = opened(metric, NULL);
    const char *const texts[] = {"O", hypothesis}, *const gold[] = {"O", reference};
    nm_scores *scores = NULL;
    nm_error err;
    assert_int_equal(nm_scorer_run(scorer, texts, 2, gold, 1, &scores, &err), wanted);
    if (!strstr(err.text, text) || scores)
        fail_msg("'%s' is not in '%s'", text, err.text);
    nm_scorer_close(scorer);
}

static void test_errors(void **state)
{
    (void)state;
    refuses_options(NM_USAGE, "available: bleu, chrf", "rouge", NULL, NULL);
    refuses_options(NM_USAGE, "metric is NULL", NULL, NULL, NULL);
    refuses_options(NM_USAGE, "tokenizer", "bleu", "tokenizer", "13a");
    refuses_options(NM_USAGE, "no value", "bleu", "tokenize", NULL);
    refuses_options(NM_USAGE, "no effect on this metric", "chrf", "tokenize", "13a");
    refuses_options(NM_USAGE, "no effect on this metric", "bleu", "word_order", "2");
    refuses_options(NM_USAGE, "SentencePiece", "bleu", "tokenize", "spm");
    refuses_options(NM_USAGE, "word_order", "chrf", "word_order", "99");
    refuses_options(NM_USAGE, "an option of multi-bleu", "bleu", "split_compounds", "true");
    assert_int_equal(nm_scorer_open(NULL, "bleu", NULL, NULL), NM_USAGE);
    refuses_texts(NM_FORMAT, "hypothesis 1: not UTF-8", "bleu", "a\xff", "a");
    refuses_texts(NM_FORMAT, "reference 1: not UTF-8", "ter", "a", "a\xff");
    refuses_texts(NM_FORMAT, "reference 1: a line break at position 2", "chrf", "a", "a\nb");
    refuses_texts(NM_FORMAT, "hypothesis 1: \"B+PER\" is not a tag", "f1", "B+PER", "O");
    refuses_texts(NM_MISMATCH, "hypothesis 1: 2 tags, the reference has 1", "f1", "O O", "O");
    refuses_texts(NM_USAGE, "reference 1 is NULL", "bleu", "a", NULL);
    nm_scorer *scorer = opened("f1", NULL);
    nm_scores *scores;
    nm_error err;
    const char *const tags[] = {"O", "O"}, *const absent[] = {"/nowhere/ref"};
    assert_int_equal(nm_scorer_run(scorer, tags, 1, tags, 2, &scores, &err), NM_USAGE);
    assert_int_equal(nm_scorer_run(scorer, tags, 1, tags, 0, &scores, &err), NM_USAGE);
    assert_int_equal(nm_scorer_run(scorer, tags, 0, tags, 1, &scores, &err), NM_USAGE);
    assert_int_equal(nm_scorer_run(NULL, tags, 1, tags, 1, &scores, NULL), NM_USAGE);
    assert_int_equal(nm_scorer_run_files(scorer, absent[0], absent, 1, &scores, &err), NM_IO);
    assert_int_equal(nm_scorer_run_files(scorer, NULL, absent, 1, &scores, &err), NM_USAGE);
    nm_scorer_close(scorer);
    nm_scorer_close(NULL);
    nm_scores_free(NULL);
    assert_int_equal(nm_scores_n(NULL), 0);
    assert_true(isnan(nm_scores_value(NULL)) && !nm_scores_line(NULL) && !nm_scores_signature(NULL));
}

enum { N_THREADS = 16, ROUNDS = 20 };

static void *score_in_thread(void *scorer)
{
    double *values = nm_allocate(ROUNDS * sizeof *values);
    for (size_t round = 0; round < ROUNDS; round++) {
        nm_scores *scores = scored(scorer, hypotheses, references, 4 - round % 2, 1);
        values[round] = nm_scores_value(scores);
        nm_scores_free(scores);
    }
    return values;
}

static void test_threads_share_a_scorer(void **state)
{
    (void)state;
    const char *const options[] = {"tokenize", "intl", NULL};
    nm_scorer *scorer = opened("bleu", options);
    pthread_t threads[N_THREADS];
    double *expected = score_in_thread(scorer);
    for (size_t i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, score_in_thread, scorer);
    for (size_t i = 0; i < N_THREADS; i++) {
        void *values;
        pthread_join(threads[i], &values);
        assert_memory_equal(values, expected, ROUNDS * sizeof *expected);
        free(values);
    }
    free(expected);
    nm_scorer_close(scorer);
}

/* Counts the calls and ends the computation at the third one. */
static bool proceed_twice(void *user)
{
    return ++*(int *)user < 3;
}

static void test_calls_can_be_stopped(void **state)
{
    (void)state;
    enum { MANY = 2000000 };
    int asked = 0;
    nm_error err;
    nm_interval interval;
    nm_paired paired;
    nm_scores *none = NULL;
    nm_scorer *scorer = opened("chrf", (const char *const[]){"bootstrap", "10000000", NULL});
    const char **many = nm_allocate(MANY * sizeof *many);
    for (size_t i = 0; i < MANY; i++)
        many[i] = references[0];
    nm_scorer_set_proceed(scorer, proceed_twice, &asked);
    assert_int_equal(nm_scorer_run(scorer, many, MANY, many, 1, &none, &err), NM_INTERRUPTED);
    assert_null(none);
    assert_int_equal(asked, 3);
    nm_scorer_set_proceed(scorer, NULL, NULL);
    nm_scores *scores = scored(scorer, hypotheses, references, 4, 1);
    nm_scores_set_proceed(scores, proceed_twice, &asked);
    asked = 0;
    assert_false(nm_scores_interval(scores, &interval));
    assert_int_equal(asked, 3);
    asked = 0;
    assert_int_equal(nm_scores_compare(scores, scores, &paired, &err), NM_INTERRUPTED);
    assert_int_equal(asked, 3);
    nm_scores_free(scores);
    nm_scorer_close(scorer);
    nm_scorer_set_proceed(NULL, NULL, NULL);
    nm_scores_set_proceed(NULL, NULL, NULL);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts_and_files_have_equal_scores),
        cmocka_unit_test(test_options_select_the_variant),
        cmocka_unit_test(test_labels_and_tags),
        cmocka_unit_test(test_paired),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_threads_share_a_scorer),
        cmocka_unit_test(test_calls_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
