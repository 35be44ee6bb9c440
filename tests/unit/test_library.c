/* include/norma/classifier.h, tagger.h, language_model.h: results, errors, and one model used by 16 threads.
 * Trained models and comparisons with the program: tests/e2e/e2e_library.sh. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "api/classifications.h"
#include "norma/classifier.h"
#include "norma/language_model.h"
#include "norma/tagger.h"
#include "norma/text.h"
#include "support/tiny_run.h"
#include "train/trainer_private.h"

enum { N_TEXTS = 20, N_THREADS = 16, ROUNDS = 3, LONGEST = 12 };

static const char *const device[] = {"device.threads", "1", NULL};

/* Texts of "w0" to "w11"; the training data has the first ten words. */
static char memory[N_TEXTS][128];
static const char *texts[N_TEXTS];
static char *words[N_TEXTS * LONGEST];
static size_t lengths[N_TEXTS], firsts[N_TEXTS];
static char *lm_run, *tag_run, *class_run, *corpus; /* folders */

static void make_texts(void)
{
    size_t n = 0;
    for (uint32_t i = 0; i < N_TEXTS; i++) {
        char *at = memory[i];
        lengths[i] = 1 + i % LONGEST;
        firsts[i] = n;
        for (uint32_t t = 0; t < lengths[i]; t++) {
            words[n] = nm_format("w%u", nm_random4(5, NM_RANDOM_TEST, 0, i, t).w[0] % 12);
            at += sprintf(at, "%s%s", t ? " " : "", words[n++]);
        }
        texts[i] = memory[i];
    }
}

/* A request to stop ends the score of a task. */
static void assert_score_can_stop(nm_trainer *trainer)
{
    nm_stop stop = {.requested = 1};
    nm_task *task = &trainer->task;
    nm_task_score score;
    nm_error err;
    assert_int_equal(task->type->score(task, trainer->model, NM_SPLIT_TRAIN, 0, &score, &err), NM_OK);
    nm_task_score_release(&score);
    task->stop = &stop;
    assert_int_equal(task->type->score(task, trainer->model, NM_SPLIT_TRAIN, 0, &score, &err),
                     NM_INTERRUPTED);
    task->stop = NULL;
}

static char *trained(const nm_task_type *task, const char *const *settings)
{
    char *folder = tiny_folder();
    nm_options *options = nm_options_create();
    nm_error err;
    nm_trainer *trainer;
    nm_train_options_add(options, task);
    for (int i = 0; settings[i]; i += 2)
        if (nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_FILE, &err) != NM_OK)
            fail_msg("%s", err.text);
    if (nm_trainer_open(&trainer, task, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK)
        fail_msg("%s", err.text);
    assert_score_can_stop(trainer);
    nm_trainer_close(trainer);
    nm_options_free(options);
    return folder;
}

/* The translation corpus has a dictionary and splits, which are also those of a text. */
static void make_lm_data(const char *folder)
{
    char *from = nm_path_join(data, "dict.source.txt"), *to = nm_path_join(folder, "dict.txt"), *text;
    nm_error err;
    assert_int_equal(nm_file_read(from, &text, NULL, &err), NM_OK);
    tiny_write_text(folder, "dict.txt", text);
    tiny_write_text(folder, "data.ini", "[prepare]\nformat = text\n");
    nm_corpus_writer writer;
    char *prefix = nm_path_join(folder, "train.text");
    assert_int_equal(nm_corpus_writer_open(&writer, prefix, &err), NM_OK);
    for (uint32_t s = 0; s < 60; s++) {
        int32_t ids[10], n = 2 + (int32_t)s % 8;
        for (int32_t t = 0; t < n; t++)
            ids[t] = TINY_SPECIAL + (int32_t)(nm_random4(1, NM_RANDOM_TEST, 0, s, (uint64_t)t).w[0] % 10);
        ids[n] = TINY_EOS;
        nm_corpus_writer_add(&writer, ids, n + 1);
    }
    assert_int_equal(nm_corpus_writer_commit(&writer, &err), NM_OK);
    free(prefix);
    free(text);
    free(from);
    free(to);
}

static int setup(void **state)
{
    make_data(state);
    make_texts();
    char *folder = corpus = tiny_folder();
    make_lm_data(folder);
    char *table = nm_duplicate(""), *columns = nm_duplicate("");
    for (int i = 0; i < 40; i++) {
        char *rows =
            nm_format("%s%s\tw%d w%d w%d\n", table, i % 2 ? "good" : "bad", i % 2, 2 + i % 3, 5 + i % 5);
        char *lines = nm_format("%sw%d B-PER\nw3 I-PER\nw%d O\nw9 B-LOC\n\n", columns, i % 3, 4 + i % 4);
        free(table);
        free(columns);
        table = rows;
        columns = lines;
    }
    tiny_write_text(folder, "table.tsv", table);
    tiny_write_text(folder, "columns.txt", columns);
    char *table_path = nm_path_join(folder, "table.tsv"), *columns_path = nm_path_join(folder, "columns.txt");
    lm_run =
        trained(&nm_task_lm, (const char *const[]){"data.folder", folder, "model.preset", "tiny",
                                                   "model.width", "16", "model.heads", "2", "model.context",
                                                   "8", "train.max_tokens", "64", "train.updates", "8",
                                                   "train.score", "false", "device.threads", "1", NULL});
    class_run =
        trained(&nm_task_classification,
                (const char *const[]){"data.train", table_path, "model.preset", "tiny", "data.max_length",
                                      "9", "train.max_tokens", "64", "train.updates", "8", "train.score",
                                      "false", "device.threads", "1", NULL});
    tag_run =
        trained(&nm_task_tagging,
                (const char *const[]){"data.train", columns_path, "model.preset", "tiny",
                                      "model.max_positions", "10", "data.max_length", "8", "train.updates",
                                      "8", "train.score", "false", "device.threads", "1", NULL});
    free(table);
    free(columns);
    free(table_path);
    free(columns_path);
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < N_TEXTS; i++)
        for (size_t t = 0; t < lengths[i]; t++)
            free(words[firsts[i] + t]);
    tiny_data_remove(corpus);
    tiny_data_remove(lm_run);
    tiny_data_remove(tag_run);
    tiny_data_remove(class_run);
    return drop_data(state);
}

enum { MOST_NUMBERS = 4096 };

/* Runs `call` on texts first .. first + n - 1; appends what it returns for each to numbers, *ends [i] after
 * text i. */
typedef nm_status run_call(void *model, size_t first, size_t n, double *numbers, size_t *ends);

typedef struct caller {
    run_call *call;
    void *model;
    const double *expected;
    const size_t *expected_ends;
    pthread_t thread;
    size_t first;
    bool equal;
} caller;

static void *run_caller(void *argument)
{
    caller *self = argument;
    double *numbers = nm_allocate(MOST_NUMBERS * sizeof *numbers);
    size_t ends[N_TEXTS];
    self->equal = true;
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t first = (self->first + 3 * round) % N_TEXTS, n = 1 + (self->first + 2 * round) % 5;
        n = first + n > N_TEXTS ? N_TEXTS - first : n;
        self->equal = self->equal && self->call(self->model, first, n, numbers, ends) == NM_OK;
        for (size_t i = 0; i < n && self->equal; i++) {
            size_t at = i ? ends[i - 1] : 0, from = first + i ? self->expected_ends[first + i - 1] : 0;
            self->equal = ends[i] - at == self->expected_ends[first + i] - from &&
                          !memcmp(numbers + at, self->expected + from, (ends[i] - at) * sizeof *numbers);
        }
    }
    free(numbers);
    return NULL;
}

static void check_threads(run_call *call, void *model)
{
    double *expected = nm_allocate(MOST_NUMBERS * sizeof *expected);
    size_t ends[N_TEXTS];
    caller callers[N_THREADS];
    assert_int_equal(call(model, 0, N_TEXTS, expected, ends), NM_OK);
    assert_true(ends[N_TEXTS - 1] >= N_TEXTS);
    for (size_t t = 0; t < N_THREADS; t++) {
        callers[t] =
            (caller){.call = call, .model = model, .expected = expected, .expected_ends = ends, .first = t};
        assert_int_equal(pthread_create(&callers[t].thread, NULL, run_caller, &callers[t]), 0);
    }
    bool equal = true;
    for (size_t t = 0; t < N_THREADS; t++) {
        pthread_join(callers[t].thread, NULL);
        equal = equal && callers[t].equal;
    }
    assert_true(equal);
    free(expected);
}

static nm_status classify(void *model, size_t first, size_t n, double *numbers, size_t *ends)
{
    nm_classifications *found;
    size_t at = 0, classes = nm_classifier_n_classes(model);
    NM_TRY(nm_classifier_run(model, texts + first, n, &found, NULL));
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < classes; k++)
            numbers[at++] = nm_classifications_probabilities(found, i)[k];
        ends[i] = at;
    }
    nm_classifications_free(found);
    return NM_OK;
}

static void classifier(void **state)
{
    (void)state;
    nm_error err;
    nm_classifier *model = NULL;
    nm_classifications *found = NULL;
    assert_int_equal(nm_classifier_open(&model, class_run, device, &err), NM_OK);
    assert_int_equal(nm_classifier_n_classes(model), 2);
    assert_string_equal(nm_classifier_class(model, 0), "bad");
    assert_null(nm_classifier_class(model, 2));
    assert_string_equal(nm_classifier_option(model, "model.norm"), "layer");
    assert_non_null(nm_classifier_option(model, "data.max_length"));
    assert_null(nm_classifier_option(model, "data.unknown"));
    assert_null(nm_classifier_option(model, NULL));
    assert_null(nm_classifier_option(NULL, "model.norm"));
    assert_null(nm_classifier_warning(model));
    const char *const list[] = {"w1 w2", "w1\nw2\r\n", "", "w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1", "wörter"};
    assert_int_equal(nm_classifier_run(model, list, 5, &found, &err), NM_OK);
    for (size_t i = 0; i < 5; i++) {
        const double *p = nm_classifications_probabilities(found, i);
        assert_true(fabs(p[0] + p[1] - 1) < 1e-12);
        assert_string_equal(nm_classifications_label(found, i), p[1] > p[0] ? "good" : "bad");
        assert_int_equal(nm_classifications_best(found, i), p[1] > p[0]);
        assert_int_equal(nm_classifications_truncated(found, i), i == 3);
    }
    assert_memory_equal(nm_classifications_probabilities(found, 0),
                        nm_classifications_probabilities(found, 1), 2 * sizeof(double));
    assert_null(nm_classifications_label(found, 5));
    nm_classifications_free(found);
    found = NULL;
    assert_int_equal(nm_classifier_run(model, (const char *const[]){"w1", "\xc3("}, 2, &found, &err),
                     NM_FORMAT);
    assert_string_equal(err.text, "text 1: not UTF-8: byte 0xc3 at position 1");
    assert_int_equal(nm_classifier_run(model, (const char *const[]){NULL}, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_classifier_run(model, NULL, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_classifier_run(NULL, list, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_classifier_run(model, list, 1, NULL, &err), NM_USAGE);
    assert_null(found);
    assert_int_equal(nm_classifier_run(model, NULL, 0, &found, &err), NM_OK);
    assert_int_equal(nm_classifications_n(found), 0);
    nm_classifications_free(found);
    check_threads(classify, model);
    nm_classifier_close(model);
    nm_classifier_close(NULL);
}

/* The most probable class, the first one of equal ones. */
static void best_class(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    static const struct {
        double p[3];
        size_t best;
    } cases[] = {{{0.5, 0.3, 0.2}, 0}, {{0.2, 0.5, 0.3}, 1}, {{0.2, 0.3, 0.5}, 2}, {{0.4, 0.4, 0.2}, 0},
                 {{0.4, 0.2, 0.4}, 0}, {{0.2, 0.4, 0.4}, 1}, {{0, 0, 0}, 0}};
    enum { N = sizeof cases / sizeof *cases };
    nm_classifications *found = nm_classifications_create(N, 3, names);
    for (size_t i = 0; i < N; i++)
        memcpy(found->probabilities + 3 * i, cases[i].p, sizeof cases[i].p);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(nm_classifications_best(found, i), cases[i].best);
        assert_string_equal(nm_classifications_label(found, i), names[cases[i].best]);
        assert_false(nm_classifications_truncated(found, i));
    }
    assert_int_equal(nm_classifications_n(found), N);
    assert_int_equal(nm_classifications_best(found, N), 0);
    assert_null(nm_classifications_label(found, N));
    assert_null(nm_classifications_probabilities(found, N));
    assert_false(nm_classifications_truncated(found, N));
    nm_classifications_free(found);
}

static nm_status tag(void *model, size_t first, size_t n, double *numbers, size_t *ends)
{
    nm_tagged *found;
    size_t at = 0;
    NM_TRY(
        nm_tagger_run(model, (const char *const *)words + firsts[first], lengths + first, n, &found, NULL));
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < lengths[first + i]; t++)
            numbers[at++] = (double)nm_tagged_tag(found, i, t)[0] + 256.0 * nm_tagged_tag(found, i, t)[1];
        numbers[at++] = (double)nm_tagged_n_spans(found, i);
        ends[i] = at;
    }
    nm_tagged_free(found);
    return NM_OK;
}

static void tagger(void **state)
{
    (void)state;
    nm_error err;
    nm_tagger *model = NULL;
    nm_tagged *found = NULL;
    const size_t counts[] = {4, 0, 12, 1}, too_many[] = {70000};
    const char *tokens[17];
    for (size_t i = 0; i < 17; i++)
        tokens[i] = i % 4 == 1 ? "w3" : i % 4 == 3 ? "w9" : "w1";
    assert_int_equal(nm_tagger_open(&model, tag_run, (const char *const[]){"scheme", "iob2", NULL}, &err),
                     NM_USAGE);
    assert_null(model);
    assert_int_equal(nm_tagger_open(&model, tag_run, device, &err), NM_OK);
    assert_true(nm_tagger_n_tags(model) >= 5);
    assert_string_equal(nm_tagger_tag(model, 0), "O");
    assert_null(nm_tagger_tag(model, nm_tagger_n_tags(model)));
    assert_int_equal(nm_tagger_run(model, tokens, counts, 4, &found, &err), NM_OK);
    assert_int_equal(nm_tagged_n(found), 4);
    for (size_t s = 0; s < 4; s++) {
        assert_int_equal(nm_tagged_length(found, s), counts[s]);
        assert_int_equal(nm_tagged_in_pieces(found, s), s == 2);
        assert_null(nm_tagged_tag(found, s, counts[s]));
        size_t in_spans = 0, tagged = 0;
        nm_tagged_span span;
        for (size_t k = 0; nm_tagged_get_span(found, s, k, &span); k++) {
            assert_true(span.first < span.end && span.end <= counts[s]);
            assert_string_equal(nm_tagged_tag(found, s, span.first) + 2, span.label);
            in_spans += span.end - span.first;
        }
        for (size_t t = 0; t < counts[s]; t++)
            tagged += strcmp(nm_tagged_tag(found, s, t), "O") != 0;
        assert_int_equal(in_spans, tagged);
    }
    nm_tagged_free(found);
    found = NULL;
    static const char *const bad[] = {"\xff", "", "a\nb"};
    for (size_t i = 0; i < 3; i++) {
        const char *const list[] = {"w1", bad[i]};
        assert_int_equal(nm_tagger_run(model, list, (const size_t[]){2}, 1, &found, &err), NM_FORMAT);
        assert_memory_equal(err.text, "token 1", 7);
    }
    assert_int_equal(nm_tagger_run(model, tokens, too_many, 1, &found, &err), NM_FORMAT);
    assert_int_equal(nm_tagger_run(model, NULL, counts, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_tagger_run(model, tokens, NULL, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_tagger_run(NULL, tokens, counts, 1, &found, &err), NM_USAGE);
    assert_int_equal(nm_tagger_run(model, tokens, counts, 1, NULL, &err), NM_USAGE);
    assert_null(found);
    check_threads(tag, model);
    nm_tagger_close(model);
}

static nm_status score(void *model, size_t first, size_t n, double *numbers, size_t *ends)
{
    nm_lm_scores *found;
    size_t at = 0;
    NM_TRY(nm_language_model_score(model, texts + first, n, NM_LM_LINES, &found, NULL));
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < nm_lm_scores_n_tokens(found, i); t++)
            numbers[at++] = nm_lm_scores_tokens(found, i)[t];
        ends[i] = at;
    }
    nm_lm_scores_free(found);
    return NM_OK;
}

static nm_status generate(void *model, size_t first, size_t n, double *numbers, size_t *ends)
{
    nm_lm_texts *found;
    size_t at = 0;
    NM_TRY(nm_language_model_generate(model, texts + first, n, first, &found, NULL));
    for (size_t i = 0; i < n; i++) {
        for (const char *c = nm_lm_texts_get(found, i); *c; c++)
            numbers[at++] = *c;
        ends[i] = at;
    }
    nm_lm_texts_free(found);
    return NM_OK;
}

/* A line break in a prompt is an EOS token, and a prompt that is repeated has several continuations. */
static void check_prompt_lines(nm_language_model *model)
{
    const char *const prompts[] = {"w1 w2\nw3", "w1 w2\nw3\n", "w1 w2 w3", "w1 w2\nw3"};
    nm_error err;
    nm_lm_texts *all, *second;
    assert_int_equal(nm_language_model_generate(model, prompts, 4, 0, &all, &err), NM_OK);
    assert_int_equal(nm_language_model_generate(model, prompts + 3, 1, 3, &second, &err), NM_OK);
    for (size_t i = 0; i < 4; i++) {
        char *whole = nm_format("%s%s", i == 2 ? "w1 w2 w3 " : "w1 w2\nw3 ", nm_lm_texts_get(all, i));
        assert_string_equal(nm_lm_texts_with_prompt(all, i), whole);
        free(whole);
    }
    assert_string_not_equal(nm_lm_texts_get(all, 0), nm_lm_texts_get(all, 3));
    assert_string_equal(nm_lm_texts_get(second, 0), nm_lm_texts_get(all, 3));
    assert_null(nm_lm_texts_with_prompt(all, 4));
    nm_lm_texts_free(all);
    nm_lm_texts_free(second);
}

/* Two stop strings: each text ends before the first occurrence of one of them, which one text has within the
 * first words. */
static void check_stops(nm_language_model *model)
{
    nm_error err;
    nm_language_model *stopped = NULL;
    nm_lm_texts *all, *cut;
    int n_cut = 0;
    const char *const options[] = {"device.threads", "1", "sample.stop", "5 w", "tokens", "9",
                                   "stop",           "",  "stop",        "2",   NULL};
    assert_int_equal(nm_language_model_open(&stopped, lm_run, options, &err), NM_OK);
    assert_int_equal(nm_language_model_generate(model, texts, N_TEXTS, 0, &all, &err), NM_OK);
    assert_int_equal(nm_language_model_generate(stopped, texts, N_TEXTS, 0, &cut, &err), NM_OK);
    for (size_t i = 0; i < N_TEXTS; i++) {
        const char *whole = nm_lm_texts_get(all, i), *text = nm_lm_texts_get(cut, i);
        const char *first = strstr(whole, "5 w"), *second = strstr(whole, "2");
        const char *end = second && (!first || second < first) ? second : first;
        size_t bytes = end ? (size_t)(end - whole) : strlen(whole);
        assert_int_equal(strlen(text), bytes);
        assert_memory_equal(text, whole, bytes);
        const char *with_prompt = nm_lm_texts_with_prompt(cut, i);
        assert_string_equal(with_prompt + strlen(with_prompt) - bytes, text);
        n_cut += end != NULL;
    }
    assert_in_range(n_cut, 2, N_TEXTS - 1);
    nm_lm_texts_free(all);
    nm_lm_texts_free(cut);
    nm_language_model_close(stopped);
    stopped = NULL;
    assert_int_equal(
        nm_language_model_open(&stopped, lm_run, (const char *const[]){"stop", "a\xff", NULL}, &err),
        NM_USAGE);
    assert_string_equal(err.text, "sample.stop: not UTF-8: byte 0xff at position 2");
    assert_null(stopped);
}

/* All resamples are the same block of tokens. */
static void check_one_block(nm_language_model *model, const char *path)
{
    nm_error err;
    nm_perplexity *one;
    tiny_write_text(lm_run, "lines.txt", "w1 w2\tw3\n");
    assert_int_equal(nm_language_model_perplexity(model, path, &one, &err), NM_OK);
    const nm_perplexity_sums sums = nm_perplexity_get_sums(one);
    const nm_interval interval = nm_perplexity_interval(one);
    double perplexity = exp(sums.nll / (double)sums.tokens);
    assert_true(interval.low == perplexity && interval.mean == perplexity && interval.high == perplexity);
    assert_int_equal(sums.words, 4); /* with the newline */
    nm_perplexity_free(one);
}

/* The perplexity of a file is that of its lines as one text. */
static void check_perplexity(nm_language_model *model)
{
    char *text = nm_duplicate(""), *path = nm_path_join(lm_run, "lines.txt");
    size_t tokens = 0;
    for (size_t i = 0; i < N_TEXTS; i++) {
        char *longer = nm_format("%s%s\n", text, texts[i]);
        free(text);
        text = longer;
        tokens += lengths[i] + 1;
    }
    tiny_write_text(lm_run, "lines.txt", text);
    nm_error err;
    nm_lm_scores *scores;
    nm_perplexity *one = NULL, *total;
    assert_int_equal(nm_language_model_score(model, texts, N_TEXTS, NM_LM_TEXT, &scores, &err), NM_OK);
    assert_int_equal(nm_language_model_perplexity(model, path, &one, &err), NM_OK);
    assert_int_equal(nm_language_model_perplexity(model, path, &total, &err), NM_OK);
    nm_perplexity_sums sums = nm_perplexity_get_sums(one);
    assert_int_equal(sums.tokens, tokens);
    assert_int_equal(sums.words, tokens);
    assert_int_equal(sums.left_out, 0);
    assert_true(sums.unknown > 0 && sums.unknown < sums.tokens);
    double perplexity = exp(sums.nll / (double)sums.tokens);
    /* The log probability of each token is rounded to float. */
    assert_true(fabs(log(nm_lm_scores_perplexity(scores) / perplexity)) < 1e-6);
    const nm_interval narrow = nm_perplexity_interval(one);
    assert_true(narrow.low < perplexity && perplexity < narrow.high);
    nm_perplexity_add(total, one);
    nm_perplexity_add(NULL, one);
    nm_perplexity_add(total, NULL);
    const nm_perplexity_sums both = nm_perplexity_get_sums(total);
    assert_true(both.tokens == 2 * sums.tokens && both.words == 2 * sums.words && both.nll == 2 * sums.nll);
    assert_int_equal(both.unknown, 2 * sums.unknown);
    const nm_interval wide = nm_perplexity_interval(total);
    assert_true(wide.high - wide.low < narrow.high - narrow.low);
    nm_perplexity_free(one);
    nm_perplexity_free(total);
    nm_lm_scores_free(scores);
    check_one_block(model, path);
    one = NULL;
    tiny_write_text(lm_run, "lines.txt", "");
    assert_int_equal(nm_language_model_perplexity(model, path, &one, &err), NM_FORMAT);
    tiny_write_text(lm_run, "lines.txt", "w1\nw\xff\n");
    assert_int_equal(nm_language_model_perplexity(model, path, &one, &err), NM_FORMAT);
    assert_non_null(strstr(err.text, "lines.txt:2: "));
    assert_int_equal(nm_language_model_perplexity(model, NULL, &one, &err), NM_USAGE);
    assert_int_equal(nm_language_model_perplexity(NULL, path, &one, &err), NM_USAGE);
    assert_null(one);
    free(path);
    free(text);
}

/* The lines as one text, with more context per token, have other probabilities than single lines. */
static void language_model(void **state)
{
    (void)state;
    nm_error err;
    nm_language_model *model = NULL;
    nm_lm_scores *lines = NULL, *text = NULL, *one = NULL;
    const char *const options[] = {"device.threads",          "1",  "tokens", "9",
                                   "perplexity.batch_tokens", "20", NULL};
    assert_int_equal(nm_language_model_open(&model, lm_run, options, &err), NM_OK);
    assert_int_equal(nm_language_model_score(model, texts, N_TEXTS, NM_LM_LINES, &lines, &err), NM_OK);
    assert_int_equal(nm_language_model_score(model, texts, N_TEXTS, NM_LM_TEXT, &text, &err), NM_OK);
    double sum = 0, n = 0;
    for (size_t i = 0; i < N_TEXTS; i++) {
        size_t tokens = nm_lm_scores_n_tokens(lines, i);
        assert_int_equal(tokens, lengths[i] + 1);
        assert_string_equal(nm_lm_scores_token(lines, i, tokens - 1), "</s>");
        assert_null(nm_lm_scores_token(lines, i, tokens));
        for (size_t t = 0; t < tokens; t++)
            assert_true(nm_lm_scores_tokens(lines, i)[t] < 0);
        sum += nm_lm_scores_line(lines, i);
        n += (double)tokens;
    }
    assert_true(nm_lm_scores_tokens(lines, 0)[0] == nm_lm_scores_tokens(text, 0)[0]);
    assert_true(fabs(nm_lm_scores_perplexity(lines) / exp(-sum / n) - 1) < 1e-12);
    assert_true(fabs(nm_lm_scores_perplexity(text) / nm_lm_scores_perplexity(lines) - 1) > 1e-6);
    assert_null(nm_lm_scores_tokens(lines, N_TEXTS));
    nm_lm_scores_free(lines);
    nm_lm_scores_free(text);
    assert_int_equal(
        nm_language_model_score(model, (const char *const[]){"", "w1\n", "w1"}, 3, NM_LM_LINES, &one, &err),
        NM_OK);
    assert_int_equal(nm_lm_scores_n_tokens(one, 0), 1);
    assert_true(nm_lm_scores_line(one, 1) == nm_lm_scores_line(one, 2));
    nm_lm_scores_free(one);
    one = NULL;
    assert_int_equal(
        nm_language_model_score(model, (const char *const[]){"w1\nw2"}, 1, NM_LM_LINES, &one, &err),
        NM_FORMAT);
    assert_string_equal(err.text, "line 0: a line break at position 3");
    nm_lm_texts *found = NULL;
    assert_int_equal(nm_language_model_generate(model, (const char *const[]){"\xff"}, 1, 0, &found, &err),
                     NM_FORMAT);
    assert_string_equal(err.text, "prompt 0: not UTF-8: byte 0xff at position 1");
    assert_int_equal(nm_language_model_generate(NULL, texts, 1, 0, &found, &err), NM_USAGE);
    assert_int_equal(nm_language_model_generate(model, texts, 1, 0, NULL, &err), NM_USAGE);
    assert_int_equal(nm_language_model_score(model, NULL, 1, NM_LM_LINES, &one, &err), NM_USAGE);
    assert_int_equal(nm_language_model_score(NULL, texts, 1, NM_LM_LINES, &one, &err), NM_USAGE);
    assert_int_equal(nm_language_model_score(model, texts, 1, (nm_lm_context)7, &one, &err), NM_USAGE);
    assert_true(!one && !found);
    assert_true(isnan(nm_lm_scores_perplexity(NULL)));
    check_prompt_lines(model);
    check_stops(model);
    check_perplexity(model);
    check_threads(score, model);
    check_threads(generate, model);
    nm_language_model_close(model);
    model = NULL;
    assert_int_equal(
        nm_language_model_open(&model, lm_run, (const char *const[]){"perplexity.context", "9", NULL}, &err),
        NM_USAGE);
    const char *const separator[] = {"perplexity.document_separator", "x", NULL};
    assert_int_equal(nm_language_model_open(&model, lm_run, separator, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "has no effect with perplexity.documents = auto"));
    assert_null(model);
}

static void bad_files(void **state)
{
    (void)state;
    nm_error err;
    nm_classifier *c = NULL;
    nm_tagger *t = NULL;
    nm_language_model *m = NULL;
    const char *const unknown[] = {"beam", "3", NULL};
    assert_int_equal(nm_classifier_open(&c, tag_run, NULL, &err), NM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the task of the model is tagging, not classification"));
    assert_int_equal(nm_tagger_open(&t, lm_run, NULL, &err), NM_UNSUPPORTED);
    assert_int_equal(nm_language_model_open(&m, class_run, NULL, &err), NM_UNSUPPORTED);
    assert_int_equal(nm_classifier_open(&c, "/nowhere", NULL, &err), NM_IO);
    assert_int_equal(nm_tagger_open(&t, NULL, NULL, &err), NM_USAGE);
    assert_int_equal(nm_language_model_open(&m, NULL, NULL, NULL), NM_USAGE);
    assert_int_equal(nm_classifier_open(&c, class_run, unknown, &err), NM_USAGE);
    assert_int_equal(nm_tagger_open(&t, tag_run, unknown, &err), NM_USAGE);
    assert_int_equal(nm_language_model_open(&m, lm_run, unknown, &err), NM_USAGE);
    assert_int_equal(nm_classifier_open(NULL, class_run, NULL, NULL), NM_USAGE);
    assert_int_equal(nm_tagger_open(NULL, tag_run, NULL, NULL), NM_USAGE);
    assert_int_equal(nm_language_model_open(NULL, lm_run, NULL, NULL), NM_USAGE);
    assert_true(!c && !t && !m);
}

/* The contexts of a long prompt that precede the last one are skipped, unless the batch has a shorter prompt:
 * model.context is 8, and the context advances by 5. */
static void generation_after_long_prompts(void **state)
{
    (void)state;
    const char *const options[] = {"tokens", "12", "temperature", "0.7", "device.threads", "1", NULL};
    nm_language_model *model;
    nm_error err;
    assert_int_equal(nm_language_model_open(&model, lm_run, options, &err), NM_OK);
    char *prompt = nm_duplicate("w1");
    for (int n = 1; n < 32; n++) {
        const char *const both[] = {prompt, ""};
        nm_lm_texts *alone, *with_short;
        assert_int_equal(nm_language_model_generate(model, both, 1, 0, &alone, &err), NM_OK);
        assert_int_equal(nm_language_model_generate(model, both, 2, 0, &with_short, &err), NM_OK);
        assert_string_equal(nm_lm_texts_get(alone, 0), nm_lm_texts_get(with_short, 0));
        nm_lm_texts_free(alone);
        nm_lm_texts_free(with_short);
        char *longer = nm_format("%s w%d", prompt, n * 7 % 10);
        free(prompt);
        prompt = longer;
    }
    free(prompt);
    nm_language_model_close(model);
}

enum { N_MANY = 200000 }; /* texts, lines or tokens of a call that would last for seconds */

/* The second answer ends the call. */
static bool proceed_once(void *user)
{
    return ++*(int *)user < 2;
}

static void assert_stopped(nm_status status, int *asked, const nm_error *err, const void *result)
{
    assert_int_equal(status, NM_INTERRUPTED);
    assert_string_equal(err->text, "stopped");
    assert_int_equal(*asked, 2);
    assert_null(result);
    *asked = 0;
}

static void calls_can_be_stopped(void **state)
{
    (void)state;
    const char **many = nm_allocate(N_MANY * sizeof *many);
    size_t *counts = nm_allocate(N_MANY * sizeof *counts);
    for (size_t i = 0; i < N_MANY; i++) {
        many[i] = i % 2 ? "w1" : "w4";
        counts[i] = 1;
    }
    int asked = 0;
    nm_error err;
    nm_classifier *classifier;
    nm_classifications *classes = NULL;
    assert_int_equal(nm_classifier_open(&classifier, class_run, device, &err), NM_OK);
    nm_classifier_set_proceed(classifier, proceed_once, &asked);
    assert_stopped(nm_classifier_run(classifier, many, N_MANY, &classes, &err), &asked, &err, classes);
    nm_classifier_set_proceed(classifier, NULL, NULL);
    assert_int_equal(nm_classifier_run(classifier, many, 1, &classes, &err), NM_OK);
    nm_classifications_free(classes);
    nm_classifier_close(classifier);

    nm_tagger *tagger;
    nm_tagged *tagged = NULL;
    assert_int_equal(nm_tagger_open(&tagger, tag_run, device, &err), NM_OK);
    nm_tagger_set_proceed(tagger, proceed_once, &asked);
    assert_stopped(nm_tagger_run(tagger, many, counts, N_MANY, &tagged, &err), &asked, &err, tagged);
    nm_tagger_set_proceed(tagger, NULL, NULL);
    assert_int_equal(nm_tagger_run(tagger, many, counts, 1, &tagged, &err), NM_OK);
    nm_tagged_free(tagged);
    nm_tagger_close(tagger);

    nm_language_model *model;
    nm_lm_scores *scores = NULL;
    nm_lm_texts *generated = NULL;
    nm_perplexity *perplexity = NULL;
    const char *const options[] = {"tokens", "1000000", "device.threads", "1", NULL};
    char *file = nm_path_join(corpus, "many.txt");
    FILE *lines = fopen(file, "w");
    assert_non_null(lines);
    for (size_t i = 0; i < N_MANY; i++)
        fprintf(lines, "%s\n", many[i]);
    assert_int_equal(fclose(lines), 0);
    assert_int_equal(nm_language_model_open(&model, lm_run, options, &err), NM_OK);
    nm_language_model_set_proceed(model, proceed_once, &asked);
    assert_stopped(nm_language_model_score(model, many, N_MANY, NM_LM_LINES, &scores, &err), &asked, &err,
                   scores);
    assert_stopped(nm_language_model_generate(model, many, 2, 0, &generated, &err), &asked, &err, generated);
    assert_stopped(nm_language_model_perplexity(model, file, &perplexity, &err), &asked, &err, perplexity);
    nm_language_model_set_proceed(model, NULL, NULL);
    assert_int_equal(nm_language_model_score(model, many, 1, NM_LM_LINES, &scores, &err), NM_OK);
    nm_lm_scores_free(scores);
    nm_language_model_close(model);
    nm_classifier_stop(NULL);
    nm_tagger_stop(NULL);
    nm_language_model_stop(NULL);
    free(file);
    free(counts);
    free(many);
}

static void assert_filtered(nm_text_step step, const char *const *options, const char *line,
                            const char *expected)
{
    nm_text_filter *filter;
    const char *result;
    nm_error err;
    assert_int_equal(nm_text_filter_open(&filter, step, options, &err), NM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nm_text_filter_run(filter, line, &result, &err), NM_OK);
        assert_string_equal(result, expected);
    }
    assert_int_equal(nm_text_filter_run(filter, "\xff", &result, &err), NM_FORMAT);
    assert_int_equal(nm_text_filter_run(filter, "a\nb", &result, &err), NM_FORMAT);
    assert_int_equal(nm_text_filter_run(filter, NULL, &result, &err), NM_USAGE);
    nm_text_filter_close(filter);
}

static void text_filters(void **state)
{
    (void)state;
    const char *const german[] = {"language", "de", "text.lowercase", "true", NULL},
                      *const unknown[] = {"language", "xx", NULL}, *const useless[] = {"codes", "f", NULL};
    nm_text_filter *filter = NULL;
    nm_error err;
    assert_filtered(NM_STEP_TOKENIZE, german, "Hallo, Welt!\n", "hallo , welt !");
    assert_filtered(NM_STEP_TOKENIZE, NULL, "", "");
    assert_filtered(NM_STEP_DETOKENIZE, NULL, "Hello , world !", "Hello, world!");
    assert_filtered(NM_STEP_NORMALIZE, NULL, "\uff21\u00bd", "A1\u20442");
    assert_int_equal(nm_text_filter_open(&filter, NM_STEP_TOKENIZE, useless, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "only subword applies BPE"));
    assert_int_equal(nm_text_filter_open(&filter, NM_STEP_SUBWORD, NULL, &err), NM_USAGE);
    assert_int_equal(nm_text_filter_open(&filter, NM_STEP_TOKENIZE, unknown, NULL), NM_OK);
    assert_non_null(nm_text_filter_warning(filter));
    nm_text_filter_close(filter);
    nm_text_filter_close(NULL);
    assert_int_equal(nm_shortlist_learn("/nowhere/at/all", "-", NULL, NULL, &err), NM_IO);
    assert_int_equal(nm_shortlist_learn(NULL, "-", NULL, NULL, NULL), NM_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_class),
        cmocka_unit_test(classifier),
        cmocka_unit_test(tagger),
        cmocka_unit_test(language_model),
        cmocka_unit_test(generation_after_long_prompts),
        cmocka_unit_test(calls_can_be_stopped),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(text_filters),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
