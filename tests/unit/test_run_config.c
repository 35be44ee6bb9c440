/* The configuration of a resumed run: the run's own, with the options of the command line that may differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "support/tiny_data.h"
#include "task/tasks.h"
#include "train/run_config.h"
#include "train/train_options.h"

static char *folder;

/* Options from a recipe and the command line: pairs of path and value, NULL at the end. */
static nm_options *configure(const char *recipe, const char *const *command)
{
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_translation);
    for (int i = 0; command && command[i]; i += 2)
        if (nm_options_set(options, command[i], command[i + 1], NM_ORIGIN_COMMAND, &err) != NM_OK)
            fail_msg("%s", err.text);
    if (recipe && nm_options_read_text(options, "recipe.ini", recipe, &err) != NM_OK)
        fail_msg("%s", err.text);
    return options;
}

static void start_run(const char *recipe, const char *const *command)
{
    nm_options *options = configure(recipe, command);
    nm_error err;
    char *text;
    assert_int_equal(nm_run_config_text(options, &text, &err), NM_OK);
    assert_int_equal(nm_run_config_write(text, folder, &err), NM_OK);
    free(text);
    nm_options_free(options);
}

/* The value of an option after a resume with these options, heap; NULL: refused, and the message is in
 * *err. */
static char *resumed_value(const char *recipe, const char *const *command, nm_resume resume, const char *path,
                           char **warning, nm_error *err)
{
    nm_options *options = configure(recipe, command), *effective = NULL;
    char *value = NULL;
    if (nm_run_config_merge(&effective, options, folder, resume, warning, err) == NM_OK) {
        assert_non_null(effective);
        value = nm_options_get(effective, path);
    }
    nm_options_free(effective);
    nm_options_free(options);
    return value;
}

static void assert_value(const char *recipe, const char *const *command, nm_resume resume, const char *path,
                         const char *expected)
{
    char *warning;
    nm_error err;
    char *value = resumed_value(recipe, command, resume, path, &warning, &err);
    if (!value)
        fail_msg("%s", err.text);
    assert_string_equal(value, expected);
    assert_null(warning);
    free(value);
}

static const char recipe[] = "[schedule]\nlr = 0.003\n[train]\nupdates = 100\n[model]\nnorm = power\n";
static const char *const started_with[] = {"schedule.lr", "0.007", "device.threads", "2", NULL};

static void test_run_keeps_its_configuration(void **state)
{
    (void)state;
    static const char *const same[] = {"schedule.lr", "7e-3", NULL};
    start_run(recipe, started_with);
    assert_value(recipe, NULL, NM_RESUME_YES, "schedule.lr", "0.007");
    assert_value(recipe, same, NM_RESUME_YES, "schedule.lr", "0.007");
    assert_value(recipe, NULL, NM_RESUME_OVERRIDE, "schedule.lr", "0.007");
    assert_value(recipe, NULL, NM_RESUME_YES, "model.norm", "power");
}

static void test_different_option_is_refused(void **state)
{
    (void)state;
    static const char *const other[] = {"schedule.lr", "0.01", NULL};
    char *warning;
    nm_error err;
    start_run(recipe, started_with);
    assert_null(resumed_value(recipe, other, NM_RESUME_YES, "schedule.lr", &warning, &err));
    assert_int_equal(err.status, NM_USAGE);
    assert_non_null(strstr(err.text, "0.01"));
    assert_non_null(strstr(err.text, "0.007"));
    assert_non_null(strstr(err.text, "--resume=override"));
    assert_value(recipe, other, NM_RESUME_OVERRIDE, "schedule.lr", "0.01");
}

static void test_limits_and_threads_may_differ(void **state)
{
    (void)state;
    static const char *const longer[] = {"train.updates", "200", "device.threads", "1", NULL};
    start_run(recipe, started_with);
    assert_value(recipe, longer, NM_RESUME_YES, "train.updates", "200");
    assert_value(recipe, longer, NM_RESUME_YES, "device.threads", "1");
}

/* A schedule that ends with the run would change all its rates. */
static void test_length_of_the_schedule_may_not_differ(void **state)
{
    (void)state;
    static const char *const longer[] = {"train.updates", "200", NULL};
    static const char cosine[] = "[schedule]\nname = cosine\n[train]\nupdates = 100\n";
    static const char fixed[] = "[schedule]\nname = cosine\nupdates = 400\n[train]\nupdates = 100\n";
    char *warning;
    nm_error err;
    start_run(cosine, NULL);
    assert_null(resumed_value(cosine, longer, NM_RESUME_YES, "train.updates", &warning, &err));
    assert_non_null(strstr(err.text, "schedule.updates"));
    start_run(fixed, NULL);
    assert_value(fixed, longer, NM_RESUME_YES, "train.updates", "200");
}

/* A schedule that ends with the time follows a new limit: the run continues with a warning. */
static void test_a_new_time_limit_is_reported(void **state)
{
    (void)state;
    static const char *const longer[] = {"train.seconds", "200", NULL};
    static const char cosine[] = "[schedule]\nname = cosine\n[train]\nseconds = 100\n";
    static const char plain[] = "[schedule]\nname = inverse-sqrt\n[train]\nseconds = 100\n";
    static const char updates[] = "[schedule]\nname = cosine\n[train]\nupdates = 100\n";
    static const char *const more[] = {"train.updates", "200", NULL};
    nm_error err;
    const struct {
        const char *run, *const *options;
        nm_resume resume;
        const char *path, *text;
    } cases[] = {
        {cosine, longer, NM_RESUME_YES, "train.seconds",
         "train.seconds = 200 instead of 100: the schedule ends"},
        {plain, longer, NM_RESUME_YES, "train.seconds", NULL},
        {updates, more, NM_RESUME_OVERRIDE, "train.updates", "train.updates = 200 instead of 100: the sch"},
        {cosine, NULL, NM_RESUME_YES, "train.seconds", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *warning = NULL;
        start_run(cases[i].run, NULL);
        free(resumed_value(cases[i].run, cases[i].options, cases[i].resume, cases[i].path, &warning, &err));
        assert_int_equal(!warning, !cases[i].text);
        assert_true(!warning || strstr(warning, cases[i].text));
        free(warning);
    }
}

/* Batch Renormalization shortens its ramps to the planned updates. */
static void test_length_of_ramps_may_not_differ(void **state)
{
    (void)state;
    static const char *const longer[] = {"train.updates", "200", NULL};
    static const char *const norms[] = {"norm = renorm", "norm = progressive",
                                        "norm = layer\nencoder_final_norm = renorm",
                                        "norm = layer\n[norm]\nat = enc.0=batch,dec.1.self=renorm"};
    for (size_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        char *short_run = nm_format("[train]\nupdates = 100\n[model]\n%s\n", norms[i]), *warning;
        nm_error err;
        start_run(short_run, NULL);
        assert_null(resumed_value(short_run, longer, NM_RESUME_YES, "train.updates", &warning, &err));
        assert_non_null(strstr(err.text, "shortens the ramps of its norms"));
        assert_value(short_run, longer, NM_RESUME_OVERRIDE, "train.updates", "200");
        free(short_run);
    }
    static const char fixed[] =
        "[train]\nupdates = 100\n[model]\nnorm = renorm\n[norm.renorm]\nshorten_ramp = false\n";
    start_run(fixed, NULL);
    assert_value(fixed, longer, NM_RESUME_YES, "train.updates", "200");
}

static void test_edited_recipe_is_reported(void **state)
{
    (void)state;
    static const char edited[] = "[schedule]\nlr = 0.002\n[train]\nupdates = 100\n[model]\nnorm = batch\n";
    char *warning;
    nm_error err;
    start_run(recipe, started_with);
    char *norm = resumed_value(edited, NULL, NM_RESUME_YES, "model.norm", &warning, &err);
    assert_string_equal(norm, "power");
    assert_non_null(strstr(warning, "model.norm = batch (the run uses power)"));
    assert_null(strstr(warning, "schedule.lr")); /* set on the command line when the run was started */
    free(norm);
    free(warning);
}

static void test_changes_are_listed(void **state)
{
    (void)state;
    static const char *const other[] = {"schedule.lr", "0.01", "device.threads", "2", NULL};
    json_t *changes;
    nm_error err;
    start_run(recipe, started_with);
    nm_options *same = configure(recipe, started_with), *changed = configure(recipe, other);
    assert_int_equal(nm_run_config_changes(same, folder, &changes, &err), NM_OK);
    assert_null(changes);
    assert_int_equal(nm_run_config_changes(changed, folder, &changes, &err), NM_OK);
    assert_int_equal(json_object_size(changes), 1);
    const json_t *lr = json_object_get(changes, "schedule.lr");
    assert_string_equal(json_string_value(json_object_get(lr, "from")), "0.007");
    assert_string_equal(json_string_value(json_object_get(lr, "to")), "0.01");
    json_decref(changes);
    nm_options_free(same);
    nm_options_free(changed);
}

static void test_folder_without_a_run(void **state)
{
    (void)state;
    char *empty = nm_format("%s/empty", folder), *warning;
    nm_options *options = configure(recipe, NULL), *effective;
    nm_error err;
    assert_int_equal(nm_run_config_merge(&effective, options, empty, NM_RESUME_YES, &warning, &err), NM_OK);
    assert_null(effective);
    nm_options_free(options);
    free(empty);
}

static int create_folder(void **state)
{
    (void)state;
    folder = nm_duplicate("/tmp/norma-config-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    tiny_data_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run_keeps_its_configuration),
        cmocka_unit_test(test_different_option_is_refused),
        cmocka_unit_test(test_limits_and_threads_may_differ),
        cmocka_unit_test(test_length_of_the_schedule_may_not_differ),
        cmocka_unit_test(test_a_new_time_limit_is_reported),
        cmocka_unit_test(test_length_of_ramps_may_not_differ),
        cmocka_unit_test(test_edited_recipe_is_reported),
        cmocka_unit_test(test_changes_are_listed),
        cmocka_unit_test(test_folder_without_a_run),
    };
    return cmocka_run_group_tests(tests, create_folder, remove_folder);
}
