/* Every recipe of a table or figure resolves to the settings that recipe_settings.ini lists from the papers,
 * with and without its reduced profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fnmatch.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "probe/probe.h"
#include "task/tasks.h"
#include "train/train_options.h"

enum { RECIPES = 284, REDUCED_RECIPES = 133, LEAST_CHECKS = 7, LEAST_PROFILE_CHECKS = 3 };

typedef struct run_options { /* section [run] of the recipes */
    const char *task;
} run_options;

static const nm_option run_rows[] = {NM_OPTION(run_options, task, "translation", 0, 0, "Kind of task."), {0}};

typedef struct recipe {
    const char *path, *name, *profile; /* name: tears/table3-1-gl-en */
    nm_options *options;
} recipe;

static void resolve(recipe *r)
{
    nm_error err;
    char *task = NULL;
    r->options = nm_options_create();
    nm_options_add(r->options, "run", run_rows, NULL, sizeof(run_options));
    if (nm_options_peek(r->path, "run.task", &task, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_train_options_add(r->options, nm_task_type_find(task ? task : "translation"));
    nm_probe_options_add(r->options);
    free(task);
    if (nm_options_read_profile(r->options, r->path, r->profile, &err) != NM_OK)
        fail_msg("%s", err.text);
}

/* The value of a key as text, heap. A norm that is not set is that of the key it defaults to. */
static char *get_setting(const recipe *r, const char *key)
{
    static const char *const defaults[][2] = {{"encoder_final_norm", "encoder_norm"},
                                              {"decoder_final_norm", "decoder_norm"},
                                              {"encoder_norm", "norm"},
                                              {"decoder_norm", "norm"}};
    if (strchr(key, '.'))
        return nm_options_get(r->options, key);
    char *path = nm_format("model.%s", key), *value = nm_options_get(r->options, path);
    free(path);
    if (!value || *value)
        return value;
    free(value);
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (!strcmp(key, defaults[i][0]))
            return get_setting(r, defaults[i][1]);
    return nm_options_get(r->options, "model.norm");
}

static bool equal_values(const char *actual, const char *expected)
{
    char *end, *expected_end;
    double number = strtod(actual, &end), expected_number = strtod(expected, &expected_end);
    if (*actual && *expected && !*end && !*expected_end)
        return number == expected_number;
    return !strcmp(actual, expected);
}

/* header: "PATTERN ..." or "PATTERN ... : PROFILE" */
static bool section_applies(const char *header, const recipe *r)
{
    char *text = nm_duplicate(header), *profile = text, *patterns = strsep(&profile, ":");
    bool applies = false;
    if (!strcmp(profile ? profile + strspn(profile, " ") : "", r->profile))
        for (char *pattern; (pattern = strsep(&patterns, " ")) != NULL;)
            applies |= *pattern && !fnmatch(pattern, r->name, 0);
    free(text);
    return applies;
}

/* Returns the number of settings checked; adds those that differ to *n_wrong. */
static int check_recipe(const recipe *r, const char *list, int *n_wrong)
{
    char *text = nm_duplicate(list), *rest = text;
    bool applies = false;
    int checked = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line == '[') {
            *strrchr(line, ']') = 0; /* patterns contain brackets, too */
            applies = section_applies(line + 1, r);
            continue;
        }
        if (!applies || !*line || *line == '#')
            continue;
        char *expected = line, *key = strsep(&expected, "=");
        assert_non_null(expected);
        key[strcspn(key, " ")] = 0;
        expected += strspn(expected, " ");
        char *actual = get_setting(r, key);
        if (!actual || !equal_values(actual, expected)) {
            print_error("%s%s%s: %s is %s instead of %s\n", r->name, *r->profile ? " --profile " : "",
                        r->profile, key, actual ? actual : "unknown", expected);
            ++*n_wrong;
        }
        free(actual);
        checked++;
    }
    free(text);
    return checked;
}

static void check_all(const char *profile, int expected_recipes)
{
    char *list;
    glob_t files;
    nm_error err;
    int n_wrong = 0, n_recipes = 0;
    assert_int_equal(nm_file_read("unit/recipe_settings.ini", &list, NULL, &err), NM_OK);
    assert_int_equal(glob("../recipes/*/*.ini", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        char *name = nm_duplicate(files.gl_pathv[i] + strlen("../recipes/"));
        name[strlen(name) - strlen(".ini")] = 0;
        recipe r = {.path = files.gl_pathv[i], .name = name, .profile = profile};
        bool has_profile = !*profile ||
                           (!strncmp(name, "rbn/", 4) && !strstr(name, "iwslt") && !strstr(name, "wmt")) ||
                           strstr(name, "ptb") || strstr(name, "wt103") || strstr(name, "resnet");
        if (strncmp(name, "common/", 7) && strncmp(name, "data/", 5) && has_profile) {
            resolve(&r);
            int checked = check_recipe(&r, list, &n_wrong);
            if (checked < (*profile ? LEAST_PROFILE_CHECKS : LEAST_CHECKS))
                fail_msg("%s: only %d settings are listed", name, checked);
            nm_options_free(r.options);
            n_recipes++;
        }
        free(name);
    }
    globfree(&files);
    free(list);
    assert_int_equal(n_recipes, expected_recipes);
    assert_int_equal(n_wrong, 0);
}

static void test_recipes(void **state)
{
    (void)state;
    check_all("", RECIPES);
}

static void test_reduced_profiles(void **state)
{
    (void)state;
    check_all("small", REDUCED_RECIPES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recipes),
                                       cmocka_unit_test(test_reduced_profiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
