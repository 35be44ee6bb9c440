/* Values that an option rejects: outside its range, not an integer, not one of its choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "task/tasks.h"
#include "train/train_options.h"

static void test_refused_values(void **state)
{
    (void)state;
    static const char *const refused[][2] = {{"train.updates", "1.5"},         {"train.updates", "-1"},
                                             {"schedule.lr", "101"},           {"schedule.lr", "-0.1"},
                                             {"schedule.lr", "nan"},           {"schedule.name", "lin"},
                                             {"schedule.name", "linears"},     {"schedule.name", ""},
                                             {"model.share_embeddings", "al"}, {"train.score", "maybe"}};
    static const char *const accepted[][2] = {{"train.updates", "15"},     {"train.updates", "0"},
                                              {"schedule.lr", "100"},      {"schedule.lr", "0"},
                                              {"schedule.name", "linear"}, {"schedule.name", "constant"},
                                              {"train.score", "off"}};
    nm_options *options = nm_options_create();
    nm_error err;
    nm_train_options_add(options, &nm_task_translation);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        if (nm_options_set(options, refused[i][0], refused[i][1], NM_ORIGIN_COMMAND, &err) != NM_USAGE)
            fail_msg("%s = %s is accepted", refused[i][0], refused[i][1]);
        assert_non_null(strstr(err.text, refused[i][0]));
    }
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++)
        if (nm_options_set(options, accepted[i][0], accepted[i][1], NM_ORIGIN_COMMAND, &err) != NM_OK)
            fail_msg("%s", err.text);
    nm_options_free(options);
}

/* Texts that an INI file cannot hold are refused, except in options that are never saved. */
static void test_texts(void **state)
{
    (void)state;
    static const char *const texts[] = {"a ", " a", "a\nb", "a ;b", "; a"};
    nm_error err;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        nm_options *saved = nm_options_create(), *other = nm_options_create();
        nm_train_options_add(saved, &nm_task_translation);
        nm_train_options_add(other, &nm_task_translation);
        nm_options_accept_any_text(other);
        assert_int_equal(nm_options_set(saved, "data.folder", texts[i], NM_ORIGIN_COMMAND, &err), NM_USAGE);
        assert_int_equal(nm_options_set(other, "data.folder", texts[i], NM_ORIGIN_COMMAND, &err), NM_OK);
        char *value = nm_options_get(other, "data.folder");
        assert_string_equal(value, texts[i]);
        free(value);
        nm_options_free(saved);
        nm_options_free(other);
    }
}

static void test_lists(void **state)
{
    (void)state;
    char *list = NULL, *text = NULL;
    nm_list_append(&list, "a");
    nm_list_append(&list, "b c");
    nm_list_append(&list, "d");
    assert_string_equal(list, "a, b c, d");
    nm_format_append(&text, "%d", 12);
    nm_format_append(&text, " of %s%s", text, "");
    assert_string_equal(text, "12 of 12");
    free(list);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused_values), cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
