/* data.mask_words with validation targets that the training targets lack, as on every real corpus: such a
 * target has no loss, is counted, and changes nothing about the other targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>

#include "probe/confidence.h"
#include "support/tiny_run.h"
#include "train/trainer_private.h"

enum { TRAIN_WORDS = 10, ALL_WORDS = 13 };

/* The dictionary and the validation set contain three words that the training set does not. */
static int make_unseen_data(void **state)
{
    (void)state;
    data = tiny_data_create(200, ALL_WORDS);
    tiny_write_split(data, "train", 200, TRAIN_WORDS, 1);
    return 0;
}

static int64_t count_unseen_targets(int64_t *targets)
{
    char *path = nm_format("%s/valid.target.words", data), *text;
    nm_error err;
    assert_int_equal(nm_file_read(path, &text, NULL, &err), NM_OK);
    int64_t unseen = 0;
    *targets = 0;
    for (const char *c = text; *c; c++) {
        *targets += *c == '\n' || *c == 'w'; /* </s> and words */
        unseen += *c == 'w' && atoi(c + 1) >= TRAIN_WORDS;
    }
    free(text);
    free(path);
    return unseen;
}

typedef struct measured {
    nm_training_validation validation;
    nm_confidence confidence;
    char *log;
} measured;

static measured validate(const char *const *settings)
{
    measured m;
    char *folder = tiny_folder();
    nm_options *options = tiny_options(settings);
    nm_trainer *trainer;
    nm_task_score score;
    nm_error err;
    if (nm_trainer_open(&trainer, &nm_task_translation, options, folder, false, NULL, &err) != NM_OK ||
        nm_trainer_run(trainer, &err) != NM_OK ||
        nm_trainer_validate(trainer, &m.validation, &score, &err) != NM_OK ||
        nm_confidence_measure(&m.confidence, &trainer->task, nm_trainer_model(trainer), NM_SPLIT_VALID, 0,
                              &err) != NM_OK)
        fail_msg("%s", err.text);
    m.log = tiny_log(folder);
    nm_trainer_close(trainer);
    nm_options_free(options);
    tiny_data_remove(folder);
    return m;
}

static void test_unseen_targets_are_counted(void **state)
{
    (void)state;
    int64_t targets, unseen = count_unseen_targets(&targets);
    assert_true(unseen > 5);
    const char *masked[] = {"data.mask_words", "true", "train.updates", "8", "model.norm", "batch", NULL};
    measured m = validate(masked);
    assert_int_equal(m.validation.masked, unseen);
    assert_true(isfinite(m.validation.loss) && isfinite(m.validation.perplexity));
    assert_true(isfinite(m.validation.batch_nll));
    assert_true(m.validation.nll < 2 * log(ALL_WORDS)); /* a logit of -1e9 would decide the mean */
    char *expected = nm_format("\"masked_targets\":%d", (int)unseen);
    assert_non_null(strstr(m.log, expected));
    assert_int_equal(m.confidence.masked, unseen);
    assert_int_equal(m.confidence.targets, targets - unseen);
    assert_true(fabs(m.confidence.nll - m.validation.nll) < 1e-5);
    free(expected);
    free(m.log);
}

static void test_nothing_is_ignored_without_mask(void **state)
{
    (void)state;
    const char *plain[] = {"train.updates", "8", NULL};
    measured m = validate(plain);
    assert_int_equal(m.validation.masked, 0);
    assert_int_equal(m.confidence.masked, 0);
    assert_null(strstr(m.log, "masked_targets"));
    free(m.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unseen_targets_are_counted),
                                       cmocka_unit_test(test_nothing_is_ignored_without_mask)};
    return cmocka_run_group_tests(tests, make_unseen_data, drop_data);
}
