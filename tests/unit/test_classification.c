/* Classification: reading of tables; probabilities that do not depend on the other texts of a batch; a
 * resumed run is bitwise identical. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/classifier_model.h"
#include "support/tiny_data.h"
#include "task/classification.h"
#include "train/trainer.h"

static char *folder; /* with the files of the test */

static char *in_folder(const char *name)
{
    return nm_path_join(folder, name);
}

/* Texts of a few words, some of which determine the class. */
static void write_table(const char *name, int n, uint32_t seed)
{
    static const char *const words[2][3] = {{"good", "fine", "nice"}, {"bad", "poor", "dull"}};
    static const char *const fillers[] = {"the", "a", "film", "it's", "plot", "was"};
    char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        nm_random_words r = nm_random4(seed, NM_RANDOM_TEST, 0, 0, (uint64_t)i);
        int side = (int)(r.w[0] % 2), length = 1 + (int)(r.w[1] % 9);
        fprintf(file, "%s\t", side ? "minus" : "plus");
        for (int k = 0; k < length; k++)
            fprintf(file, "%s ", fillers[(r.w[2] >> (3 * k)) % 6]);
        fprintf(file, "%s.\n", words[side][r.w[3] % 3]);
    }
    fclose(file);
    free(path);
}

static int make_files(void **state)
{
    (void)state;
    folder = nm_duplicate("/tmp/norma-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    write_table("train.tsv", 200, 1);
    write_table("test.tsv", 40, 2);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    tiny_data_remove(folder);
    return 0;
}

static nm_options *options_with(const char *const *settings)
{
    static const char *const common[] = {"model.preset",
                                         "tiny",
                                         "train.max_tokens",
                                         "256",
                                         "data.batch",
                                         "8",
                                         "train.label_smoothing",
                                         "0",
                                         "optim.name",
                                         "adamw",
                                         "schedule.name",
                                         "constant",
                                         "schedule.lr",
                                         "0.01",
                                         "schedule.warmup",
                                         "0",
                                         "train.log_every",
                                         "1000",
                                         "data.max_length",
                                         "32",
                                         "model.max_positions",
                                         "32",
                                         "device.threads",
                                         "1",
                                         NULL};
    nm_options *options = nm_options_create();
    nm_train_options_add(options, &nm_task_classification);
    char *train = in_folder("train.tsv"), *test = in_folder("test.tsv");
    nm_error err;
    assert_int_equal(nm_options_set(options, "data.train", train, NM_ORIGIN_FILE, &err), NM_OK);
    assert_int_equal(nm_options_set(options, "data.test", test, NM_ORIGIN_FILE, &err), NM_OK);
    for (int i = 0; common[i]; i += 2)
        assert_int_equal(nm_options_set(options, common[i], common[i + 1], NM_ORIGIN_FILE, &err), NM_OK);
    for (int i = 0; settings && settings[i]; i += 2)
        assert_int_equal(nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_COMMAND, &err),
                         NM_OK);
    free(train);
    free(test);
    return options;
}

static nm_task task_of(const nm_options *options)
{
    return (nm_task){.type = &nm_task_classification,
                     .options = options,
                     .config = nm_options_find(options, "data"),
                     .seed = 1,
                     .max_tokens = 256};
}

static void test_reading(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "data.valid_fraction", "0.25", "data.min_count", "2", "data.max_length", "6", NULL};
    nm_options *options = options_with(settings);
    nm_task task = task_of(options);
    nm_error err;
    assert_int_equal(task.type->open(&task, &err), NM_OK);
    const nm_classification_parts *parts = nm_classification_parts_of(&task);
    size_t train = parts->sets[NM_SPLIT_TRAIN].n, valid = parts->sets[NM_SPLIT_VALID].n;
    assert_int_equal(train + valid, 200);
    assert_true(valid > 30 && valid < 70);
    assert_int_equal(parts->sets[NM_SPLIT_TEST].n, 40);
    assert_int_equal(nm_classification_classes(parts), 2);
    assert_string_equal(nm_classification_name(parts, 0), "minus");
    assert_string_equal(parts->texts[NM_CLASS_TEXT_LABELS], "minus\nplus\n");
    assert_true(nm_vocab_find(parts->vocab, "film", 4) >= NM_VOCAB_N_SPECIAL);
    assert_true(nm_vocab_find(parts->vocab, "'", 1) >= NM_VOCAB_N_SPECIAL); /* "it's" in parts */
    int64_t cut = 0;
    for (int split = 0; split < NM_CLASS_SPLITS; split++) {
        const nm_corpus *corpus = &parts->corpora[split];
        cut += parts->sets[split].cut;
        for (int64_t i = 0; i < corpus->n; i++) {
            const int32_t *first = corpus->ids + corpus->offsets[i],
                          *end = corpus->ids + corpus->offsets[i + 1];
            assert_true(end - first >= 2 && end - first <= 6);
            assert_int_equal(*first, parts->vocab->bos);
            assert_int_equal(end[-1], parts->vocab->eos);
        }
    }
    assert_true(cut > 0);
    task.type->close(&task);
    nm_options_free(options);
}

/* The dictionary counts training texts only, so it depends on the held-out texts. */
static void test_held_out_texts(void **state)
{
    (void)state;
    static const char *const seeds[] = {"1", "1", "2"};
    uint64_t prints[3];
    for (int i = 0; i < 3; i++) {
        const char *const settings[] = {"data.valid_seed", seeds[i], "train.seed", i ? "5" : "6", NULL};
        nm_options *options = options_with(settings);
        nm_task task = task_of(options);
        nm_error err;
        assert_int_equal(task.type->open(&task, &err), NM_OK);
        prints[i] = task.fingerprint;
        task.type->close(&task);
        nm_options_free(options);
    }
    assert_true(prints[0] == prints[1]);
    assert_true(prints[0] != prints[2]);
}

static void test_class_order(void **state)
{
    (void)state;
    char *path = in_folder("numbers.tsv");
    FILE *file = fopen(path, "wb");
    fputs("10\ta\n9\tb\n010\tc\nx\td\n9\te\n", file);
    fclose(file);
    const char *const settings[] = {"data.train", path, "data.test", "", "data.valid_fraction", "0", NULL};
    nm_options *options = options_with(settings);
    nm_task task = task_of(options);
    nm_error err;
    assert_int_equal(task.type->open(&task, &err), NM_OK);
    const nm_classification_parts *parts = nm_classification_parts_of(&task);
    assert_string_equal(parts->texts[NM_CLASS_TEXT_LABELS], "9\n10\n010\nx\n");
    static const int32_t wanted[] = {1, 0, 2, 3, 0};
    for (int i = 0; i < 5; i++)
        assert_int_equal(parts->sets[NM_SPLIT_TRAIN].labels.data[i], wanted[i]);
    task.type->close(&task);
    nm_options_free(options);
    free(path);
}

/* Seven texts of class a, three of b, one of c: class_balance repeats those of b and c evenly and changes no
 * other split. */
static void test_class_balance(void **state)
{
    (void)state;
    static const struct {
        const char *balance;
        int64_t texts[3], least_of_b, most_of_b;
    } cases[] = {{"0", {7, 3, 1}, 1, 1}, {"0.5", {7, 4, 2}, 1, 2}, {"1", {7, 7, 7}, 2, 3}};
    char *path = in_folder("rare.tsv");
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 11; i++)
        fprintf(file, "%c\tword%d of\n", "abaabacaaba"[i], i);
    fclose(file);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const char *const settings[] = {"data.train", path, "data.valid",         path,
                                        "data.test",  path, "data.class_balance", cases[c].balance,
                                        NULL};
        nm_options *options = options_with(settings);
        nm_task task = task_of(options);
        nm_error err;
        assert_int_equal(task.type->open(&task, &err), NM_OK);
        const nm_classification_parts *parts = nm_classification_parts_of(&task);
        const nm_labeled_set *train = &parts->sets[NM_SPLIT_TRAIN];
        int64_t texts[3] = {0}, copies[11] = {0};
        for (size_t i = 0; i < train->n; i++) {
            const int32_t *ids = train->ids.data + train->offsets[i];
            assert_int_equal(train->offsets[i + 1] - train->offsets[i], 4);
            texts[train->labels.data[i]]++;
            copies[atoi(nm_vocab_symbol(parts->vocab, ids[1]) + 4)]++;
        }
        for (int k = 0; k < 3; k++)
            assert_int_equal(texts[k], cases[c].texts[k]);
        for (int i = 0; i < 11; i++)
            if ("abaabacaaba"[i] == 'b')
                assert_in_range(copies[i], cases[c].least_of_b, cases[c].most_of_b);
            else if ("abaabacaaba"[i] == 'a')
                assert_int_equal(copies[i], 1);
        assert_int_equal(parts->corpora[NM_SPLIT_TRAIN].n, train->n);
        assert_int_equal(parts->sets[NM_SPLIT_VALID].n, 11);
        assert_int_equal(parts->sets[NM_SPLIT_TEST].n, 11);
        assert_int_equal(task.size, 11);
        task.type->close(&task);
        nm_options_free(options);
    }
    free(path);
}

/* Probabilities of all test texts in one call and in a call per text, after some training with the norm. */
static void test_texts_are_independent(void **state)
{
    (void)state;
    static const char *const norms[] = {"layer", "batch", "power", "rbn", "none"};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        const char *const settings[] = {"model.norm", norms[k], "model.norm_position", "pre", "train.updates",
                                        "20",         NULL};
        nm_options *options = options_with(settings);
        char *run = in_folder(norms[k]);
        nm_trainer *trainer;
        nm_error err;
        if (nm_trainer_open(&trainer, &nm_task_classification, options, run, false, NULL, &err) != NM_OK ||
            nm_trainer_run(trainer, &err) != NM_OK)
            fail_msg("%s", err.text);
        nm_task task = task_of(options);
        assert_int_equal(task.type->open(&task, &err), NM_OK);
        const nm_labeled_set *set = &nm_classification_parts_of(&task)->sets[NM_SPLIT_TEST];
        nm_corpus all = nm_labeled_set_corpus(set);
        double *together = nm_allocate(set->n * 2 * sizeof *together), alone[2];
        nm_model *model = nm_trainer_model(trainer);
        assert_int_equal(nm_classification_probabilities(&task, model, &all, together, &err), NM_OK);
        for (size_t i = 0; i < set->n; i++) {
            nm_corpus one = {.ids = all.ids, .offsets = all.offsets + i, .n = 1};
            assert_int_equal(nm_classification_probabilities(&task, model, &one, alone, &err), NM_OK);
            if (!(fabs(alone[0] - together[2 * i]) < 1e-5))
                fail_msg("%s: text %zu: %.9g alone, %.9g with others", norms[k], i, alone[0],
                         together[2 * i]);
        }
        free(together);
        task.type->close(&task);
        nm_trainer_close(trainer);
        nm_options_free(options);
        free(run);
    }
}

/* The host waits once for the probabilities of a batch of texts. */
static void test_waits_of_the_host(void **state)
{
    (void)state;
    static const char *const settings[] = {"device.backend", "emulated", "train.updates", "1", NULL};
    nm_options *options = options_with(settings);
    char *run = in_folder("waits");
    nm_trainer *trainer;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_classification, options, run, false, NULL, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_task task = task_of(options);
    assert_int_equal(task.type->open(&task, &err), NM_OK);
    const nm_labeled_set *set = &nm_classification_parts_of(&task)->sets[NM_SPLIT_TEST];
    nm_corpus texts = nm_labeled_set_corpus(set);
    double *probabilities = nm_allocate(set->n * 2 * sizeof *probabilities);
    nm_model *model = nm_trainer_model(trainer);
    const int64_t before = nm_backend_waits(model->backend);
    assert_int_equal(nm_classification_probabilities(&task, model, &texts, probabilities, &err), NM_OK);
    assert_int_equal(nm_backend_waits(model->backend) - before, 1);
    free(probabilities);
    task.type->close(&task);
    nm_trainer_close(trainer);
    nm_options_free(options);
    free(run);
}

/* Penalty of the first update for a value of norm.rbn.scale. */
static double first_penalty(const char *scale)
{
    const char *const settings[] = {"model.norm", "rbn", "norm.rbn.scale", scale, "train.updates", "1", NULL};
    nm_options *options = options_with(settings);
    char *run = nm_format("%s/penalty-%s", folder, scale);
    nm_trainer *trainer;
    nm_training_progress progress;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_classification, options, run, false, NULL, &err) != NM_OK ||
        nm_trainer_update(trainer, &progress, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_trainer_close(trainer);
    nm_options_free(options);
    free(run);
    return progress.penalty;
}

static void test_penalty_is_added_to_the_mean_loss(void **state)
{
    (void)state;
    double penalty = first_penalty("auto");
    assert_true(penalty > 0 && penalty == first_penalty("mean"));
    assert_true(penalty > 4 * first_penalty("sum"));
}

typedef struct outcome {
    uint64_t hash;
    double accuracy;
} outcome;

static outcome train(const char *name, const char *updates, const char *threads, bool resume)
{
    const char *const settings[] = {"model.norm",
                                    "batch",
                                    "model.dropout",
                                    "0.1",
                                    "train.updates",
                                    updates,
                                    "device.threads",
                                    threads,
                                    "data.word_dropout",
                                    "0.1",
                                    NULL};
    nm_options *options = options_with(settings);
    char *run = in_folder(name);
    nm_trainer *trainer;
    nm_training_validation validation;
    nm_task_score score;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_classification, options, run, resume, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK ||
        nm_trainer_validate(trainer, &validation, &score, &err) != NM_OK)
        fail_msg("%s", err.text);
    outcome got = {nm_trainer_weights_hash(trainer), validation.score};
    assert_string_equal(validation.score_name, "accuracy");
    nm_task_score_release(&score);
    nm_trainer_close(trainer);
    nm_options_free(options);
    free(run);
    return got;
}

static void test_resume_is_exact(void **state)
{
    (void)state;
    outcome straight = train("straight", "60", "1", false), wide = train("wide", "60", "3", false);
    train("stopped", "25", "1", false);
    outcome resumed = train("stopped", "60", "2", true);
    assert_true(straight.hash == wide.hash);
    assert_true(straight.hash == resumed.hash);
    assert_true(straight.accuracy > 90);
}

/* No batch is larger than the batch of the dry run. */
static void test_largest_batch(void **state)
{
    (void)state;
    static const char *const settings[] = {"data.batch", "3", NULL};
    nm_options *options = options_with(settings);
    nm_task task = task_of(options);
    nm_error err;
    nm_arena arena;
    nm_batches batches;
    assert_int_equal(task.type->open(&task, &err), NM_OK);
    nm_arena_init(&arena, (size_t)1 << 24);
    nm_batch largest = task.type->largest(&task, &arena);
    int32_t tokens = largest.tokens;
    assert_int_equal(largest.n_targets, 3);
    assert_int_equal(task.type->epoch(&task, NM_SPLIT_TRAIN, 0, true, &batches, &err), NM_OK);
    int64_t seen = 0;
    for (int64_t i = 0; i < batches.n; i++) {
        nm_batch batch = task.type->batch(&task, NM_SPLIT_TRAIN, &batches, i, 0, true, &arena);
        assert_true(batch.n_targets <= 3 && batch.tokens <= tokens && batch.target.n_tokens == batch.n);
        for (int32_t e = 0; e < batch.n; e++)
            assert_int_equal(
                batch.target_out[e],
                nm_classification_parts_of(&task)->sets[NM_SPLIT_TRAIN].labels.data[batch.index[e]]);
        seen += batch.n;
    }
    assert_int_equal(seen, nm_classification_parts_of(&task)->sets[NM_SPLIT_TRAIN].n);
    nm_batches_release(&batches);
    nm_arena_release(&arena);
    task.type->close(&task);
    nm_options_free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reading),
                                       cmocka_unit_test(test_held_out_texts),
                                       cmocka_unit_test(test_class_order),
                                       cmocka_unit_test(test_class_balance),
                                       cmocka_unit_test(test_texts_are_independent),
                                       cmocka_unit_test(test_waits_of_the_host),
                                       cmocka_unit_test(test_resume_is_exact),
                                       cmocka_unit_test(test_largest_batch),
                                       cmocka_unit_test(test_penalty_is_added_to_the_mean_loss)};
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
