/* Options without effect: an error if set on the command line, one warning if a file or a preset set them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "data/prepare.h"
#include "task/tasks.h"
#include "train/train_options.h"

static nm_options *training_options(const char *recipe)
{
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_translation);
    if (recipe && nm_options_read_text(options, "recipe.ini", recipe, &err) != NM_OK)
        fail_msg("%s", err.text);
    return options;
}

static void set(nm_options *options, const char *path, const char *value)
{
    nm_error err;
    assert_int_equal(nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err), NM_OK);
}

/* path = value on the command line with one other setting. */
static void assert_refused(const char *path, const char *value, const char *other, const char *other_value,
                           const char *reason)
{
    nm_options *options = training_options(NULL);
    nm_error err;
    char *warning;
    set(options, other, other_value);
    set(options, path, value);
    assert_int_equal(nm_options_check(options, &warning, &err), NM_USAGE);
    assert_null(warning);
    if (!strstr(err.text, path) || !strstr(err.text, value) || !strstr(err.text, other_value) ||
        !strstr(err.text, reason))
        fail_msg("%s", err.text);
    nm_options_free(options);
}

static void test_command_line_is_an_error(void **state)
{
    (void)state;
    assert_refused("optim.eps", "0.01", "optim.name", "sgd", "denominator");
    assert_refused("optim.beta1", "0.9", "optim.name", "sgd", "optim.momentum");
    assert_refused("optim.momentum", "0.95", "optim.name", "adamw", "only SGD");
    assert_refused("optim.momentum", "0.95", "optim.name", "muon", "optim.muon_momentum");
    assert_refused("optim.muon_momentum", "0.9", "optim.name", "sgd", "optim.momentum");
    assert_refused("optim.muon_nesterov", "true", "optim.name", "sgd", "only Muon");
    assert_refused("optim.muon_steps", "3", "optim.name", "adamw", "only Muon");
    assert_refused("optim.muon_scale", "original", "optim.name", "adam", "only Muon");
    assert_refused("optim.muon_lr_factor", "2", "optim.name", "adam-fairseq", "schedule");
    assert_refused("train.clip_value", "5", "optim.name", "muon", "train.max_grad_norm");
    assert_refused("train.clip_value", "5", "optim.name", "adam", "train.max_grad_norm");
    assert_refused("train.smoothing", "others", "train.label_smoothing", "0", "no label smoothing");
    assert_refused("schedule.lr", "0.001", "schedule.name", "val-decay", "schedule.scale");
    assert_refused("schedule.scale", "2", "schedule.name", "cosine", "schedule.lr");
    assert_refused("schedule.patience", "5", "schedule.name", "linear", "validations");
    assert_refused("schedule.final_fraction", "0.1", "schedule.name", "inverse-sqrt", "final value");
    assert_refused("optim.decayed_parameters", "matrices", "optim.weight_decay", "0", "no weight decay");
    assert_refused("schedule.updates", "1000", "schedule.name", "constant", "number of updates");
    nm_options *options = training_options(NULL);
    nm_error err;
    char *warning;
    set(options, "train.score", "false");
    set(options, "train.best_by", "score");
    assert_int_equal(nm_options_check(options, &warning, &err), NM_USAGE);
    nm_options_free(options);
    static const char *const names[] = {"wsd", "cosine"}; /* only the rate of wsd would be constant */
    for (int i = 0; i < 2; i++) {
        options = training_options(NULL);
        set(options, "schedule.name", names[i]);
        set(options, "schedule.decay_fraction", "0");
        set(options, "schedule.final_fraction", "0.1");
        assert_int_equal(nm_options_check(options, &warning, &err), i ? NM_OK : NM_USAGE);
        nm_options_free(options);
    }
}

static void test_effective_options_pass(void **state)
{
    (void)state;
    nm_options *options = training_options(NULL);
    nm_error err;
    char *warning;
    assert_int_equal(nm_options_check(options, &warning, &err), NM_OK);
    assert_null(warning);
    set(options, "optim.name", "sgd");
    set(options, "optim.momentum", "0.95");
    set(options, "optim.weight_decay", "0.01");
    set(options, "train.clip_value", "5");
    set(options, "schedule.name", "val-decay");
    set(options, "schedule.scale", "2");
    assert_int_equal(nm_options_check(options, &warning, &err), NM_OK);
    assert_null(warning);
    nm_options_free(options);
    /* Muon's own options, and those of the AdamW that updates the other parameters */
    static const char *const muon[] = {"optim.muon_momentum", "0.9",   "optim.muon_nesterov",  "false",
                                       "optim.muon_steps",    "3",     "optim.muon_scale",     "original",
                                       "optim.beta1",         "0.8",   "optim.muon_lr_factor", "2",
                                       "optim.beta2",         "0.999", "optim.weight_decay",   "0.1",
                                       "optim.eps",           "1e-6"};
    options = training_options(NULL);
    set(options, "optim.name", "muon");
    for (size_t i = 0; i < sizeof muon / sizeof *muon; i += 2)
        set(options, muon[i], muon[i + 1]);
    assert_int_equal(nm_options_check(options, &warning, &err), NM_OK);
    assert_null(warning);
    nm_options_free(options);
}

static void test_recipe_gives_one_warning(void **state)
{
    (void)state;
    nm_options *options = training_options("[optim]\nname = sgd\neps = 1e-4\nmomentum = 0.9\nbeta1 = 0.9\n"
                                           "[schedule]\nname = val-decay\nlr = 0.001\n");
    nm_error err;
    char *warning;
    assert_int_equal(nm_options_check(options, &warning, &err), NM_OK);
    assert_non_null(warning);
    assert_non_null(strstr(warning, "optim.eps = 0.0001"));
    assert_non_null(strstr(warning, "schedule.lr = 0.001"));
    assert_null(strstr(warning, "momentum = "));
    assert_null(strstr(warning, "beta1 = ")); /* the default, as in a saved configuration */
    free(warning);
    nm_options_free(options);
}

/* Its warnings were printed before it was saved. A resumed run reads the values of its presets from it. */
static void test_saved_configuration_passes(void **state)
{
    (void)state;
    nm_options *options = training_options("[optim]\nname = sgd\neps = 1e-4\n");
    nm_options *again = training_options(NULL);
    char *text = NULL, *warning;
    size_t bytes;
    nm_error err;
    FILE *stream = open_memstream(&text, &bytes);
    assert_non_null(stream);
    nm_options_write(options, stream);
    fclose(stream);
    assert_int_equal(nm_options_read_saved(again, "config.ini", text, &err), NM_OK);
    assert_int_equal(nm_options_check(again, &warning, &err), NM_OK);
    assert_null(warning);
    set(again, "optim.beta1", "0.8");
    assert_int_equal(nm_options_check(again, &warning, &err), NM_USAGE);
    nm_options_free(options);
    nm_options_free(again);
    free(text);
}

/* Splitting at hyphens is an option of one tokenizer only. */
static void test_hyphens_need_the_moses_tokenizer(void **state)
{
    static const char *const tokenizers[] = {"moses", "none", "basic_english", "sentencepiece", "byte_level"};
    (void)state;
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        nm_options *options = nm_options_create();
        nm_error err;
        char *warning;
        nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
        nm_options_add_rules(options, nm_prepare_rules);
        set(options, "prepare.tokenizer", tokenizers[i]);
        set(options, "prepare.aggressive", "true");
        assert_int_equal(nm_options_check(options, &warning, &err), i ? NM_USAGE : NM_OK);
        assert_null(warning);
        nm_options_free(options);
    }
}

/* Settings of a preparation with training text; the last one has no effect, or it has one after `other`
 * instead of the setting before it. */
static void test_preparation(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *with, *with_value, *other;
    } cases[] = {
        {"prepare.bpe_merges", "500", "prepare.codes", "codes.bpe", ""},
        {"prepare.min_count", "2", "prepare.dict_source", "dict", ""},
        {"prepare.max_words", "100", "prepare.dict_target", "dict", ""},
        {"prepare.dict_multiple", "16", "prepare.dict_source", "dict", ""},
        {"prepare.escape", "true", "prepare.tokenizer", "none", "moses"},
        {"prepare.bpe_vocabulary_threshold", "5", "prepare.bpe_merges", "0", "10"},
        {"prepare.spm_byte_fallback", "true", "prepare.tokenizer", "moses", "sentencepiece"},
        {"prepare.min_length", "2", "prepare.format", "text", "parallel"},
        {"prepare.max_length", "100", "prepare.format", "text", "parallel"},
        {"prepare.ratio", "3", "prepare.format", "text", "parallel"},
        {"prepare.min_length", "2", "prepare.train", "", "corpus"},
        {"prepare.max_length", "100", "prepare.train", "", "corpus"},
        {"prepare.ratio", "3", "prepare.train", "", "corpus"},
        {"prepare.drop_copies", "true", "prepare.train", "", "corpus"},
        {"prepare.drop_duplicates", "true", "prepare.train", "", "corpus"},
        {"prepare.joint", "true", "prepare.format", "text", "parallel"},
        {"prepare.joint", "false", "prepare.format", "text", "parallel"},
        {"prepare.escape", "false", "prepare.tokenizer", "none", "moses"},
        {"prepare.spm_byte_fallback", "false", "prepare.spm_model", "file.model", ""},
        {"prepare.lowercase", "true", "prepare.tokenizer", "basic_english", "none"},
        {"prepare.target_prefixes", "Dr", "prepare.format", "text", "parallel"},
        {"prepare.spm_target_model", "file.model", "prepare.format", "text", "parallel"},
        {"prepare.dict_target", "dict", "prepare.format", "text", "parallel"},
        {"prepare.target_lang", "en", "prepare.format", "text", "parallel"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        nm_options *options = nm_options_create();
        nm_error err;
        char *warning;
        nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
        nm_options_add_rules(options, nm_prepare_rules);
        set(options, "prepare.train", "corpus");
        if (strstr(cases[i / 2].name, "spm_"))
            set(options, "prepare.tokenizer", "sentencepiece");
        set(options, cases[i / 2].with, i % 2 ? cases[i / 2].other : cases[i / 2].with_value);
        set(options, cases[i / 2].name, cases[i / 2].value);
        if (nm_options_check(options, &warning, &err) != (i % 2 ? NM_OK : NM_USAGE))
            fail_msg("%s with %s", cases[i / 2].name, cases[i / 2].with);
        if (i % 2 == 0 && !strstr(err.text, cases[i / 2].name))
            fail_msg("%s with %s: %s", cases[i / 2].name, cases[i / 2].with, err.text);
        nm_options_free(options);
    }
}

/* With two dictionaries of which one is built, its size matters. Values that leave the text as it is are
 * accepted. */
static void test_preparation_in_effect(void **state)
{
    (void)state;
    static const char *const settings[] = {"prepare.joint",     "false", "prepare.dict_source", "dict",
                                           "prepare.min_count", "2",     "prepare.tokenizer",   "moses",
                                           "prepare.documents", "line",  "prepare.escape",      "false"};
    nm_options *options = nm_options_create();
    nm_error err;
    char *warning;
    nm_options_add(options, "prepare", nm_prepare_options, NULL, sizeof(nm_prepare_config));
    nm_options_add_rules(options, nm_prepare_rules);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i += 2)
        set(options, settings[i], settings[i + 1]);
    if (nm_options_check(options, &warning, &err) != NM_OK)
        fail_msg("%s", err.text);
    assert_null(warning);
    set(options, "prepare.documents", "file");
    assert_int_equal(nm_options_check(options, &warning, &err), NM_USAGE);
    nm_options_free(options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_command_line_is_an_error),
        cmocka_unit_test(test_effective_options_pass),
        cmocka_unit_test(test_recipe_gives_one_warning),
        cmocka_unit_test(test_saved_configuration_passes),
        cmocka_unit_test(test_hyphens_need_the_moses_tokenizer),
        cmocka_unit_test(test_preparation),
        cmocka_unit_test(test_preparation_in_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
