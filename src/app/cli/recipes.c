/* norma recipes: lists the recipes that other commands find by name. They are in share/norma/recipes of the
 * installation, or in recipes/ of the build folder, a link to those of the source tree. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/edit_distance.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"

typedef struct recipes_config { /* section [recipes] */
    bool names, paths;
} recipes_config;

/* clang-format off */
static const nm_option recipes_rows[] = {
    NM_OPTION(recipes_config, names, "false", 0, 1, "Print names only, one per line."),
    NM_OPTION(recipes_config, paths, "false", 0, 1, "Print the paths of the files, one per line."),
    {0}};
/* clang-format on */

typedef struct recipe_list {
    char *folder, **names; /* names relative to the folder, without .ini: "pn/table1-iwslt-bn"; sorted */
    size_t n, capacity;
} recipe_list;

static nm_status fail_listing(const char *path, nm_error *err)
{
    return nm_fail(err, nm_file_error_status(errno), "cannot list the recipes: %s: %s", path,
                   strerror(errno));
}

/* *folder: the folder of the recipes, found relative to the folder of the program; heap, NULL if there is
 * none. */
static nm_status find_recipe_folder(char **folder, nm_error *err)
{
    static const char *const candidates[] = {"../share/norma/recipes", "recipes"};
    nm_status status = NM_OK;
    *folder = NULL;
    for (size_t i = 0; status == NM_OK && !*folder && i < sizeof candidates / sizeof *candidates; i++) {
        NM_AUTO_FREE char *path = nm_cli_beside_program(candidates[i]);
        *folder = path ? realpath(path, NULL) : NULL;
        if (!*folder && (!path || (errno != ENOENT && errno != ENOTDIR)))
            status = fail_listing(path ? path : "/proc/self/exe", err);
    }
    return status;
}

/* Recipes outside the papers' folders come first: those for the user's own data and the demos. */
static int compare_names(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    int folders = (strchr(x, '/') != NULL) - (strchr(y, '/') != NULL);
    return folders ? folders : strcmp(x, y);
}

static nm_status list_folder(recipe_list *list, const char *prefix, nm_error *err);

/* Adds a recipe, or a folder with recipes, if it is one. name: relative to the folder of all recipes. Files
 * in common/ are parts of recipes. */
static nm_status add_entry(recipe_list *list, const char *name, nm_error *err)
{
    struct stat info;
    size_t length = strlen(name);
    NM_AUTO_FREE char *path = nm_path_join(list->folder, name);
    bool found = !stat(path, &info), dangling = !found && errno == ENOENT;
    nm_status status = found || dangling ? NM_OK : fail_listing(path, err);
    if (!found)
        return status;
    if (S_ISDIR(info.st_mode))
        return strcmp(name, "common") ? list_folder(list, name, err) : NM_OK;
    if (!S_ISREG(info.st_mode) || length <= 4 || strcmp(name + length - 4, ".ini"))
        return NM_OK;
    NM_APPEND(list->names, list->n, list->capacity, nm_format("%.*s", (int)length - 4, name));
    return NM_OK;
}

/* Adds the recipes in a folder and its subfolders. prefix: relative to the folder of all recipes, "" for that
 * folder. */
static nm_status list_folder(recipe_list *list, const char *prefix, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(list->folder, prefix);
    DIR *dir = opendir(path);
    nm_status status = dir ? NM_OK : fail_listing(path, err);
    struct dirent *entry;
    while (status == NM_OK && (errno = 0, entry = readdir(dir)) != NULL) {
        if (*entry->d_name == '.')
            continue;
        NM_AUTO_FREE char *name = nm_format("%s%s%s", prefix, *prefix ? "/" : "", entry->d_name);
        status = add_entry(list, name, err);
    }
    if (status == NM_OK && errno)
        status = fail_listing(path, err);
    if (dir)
        closedir(dir);
    return status;
}

static nm_status list_recipes(recipe_list *list, nm_error *err)
{
    *list = (recipe_list){0};
    NM_TRY(find_recipe_folder(&list->folder, err));
    nm_status status = list->folder ? list_folder(list, "", err) : NM_OK;
    if (list->n)
        qsort(list->names, list->n, sizeof *list->names, compare_names);
    return status;
}

static void release_recipes(recipe_list *list)
{
    nm_free_list(list->names, list->n);
    free(list->folder);
    *list = (recipe_list){0};
}

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static nm_status folder_is_no_recipe(const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *config = nm_path_join(folder, "config.ini");
    bool has_run;
    NM_TRY(nm_file_find(config, &has_run, err));
    return has_run ? nm_fail(err, NM_IO,
                             "%.300s: is a run folder, not a recipe; the recipe of the run is %.300s "
                             "(--resume continues the run)",
                             folder, config)
                   : nm_fail(err, NM_IO, "%.300s: is a folder, not a recipe", folder);
}

/* Sets *path, heap, if the list contains a recipe of this name. */
static void find_name(const recipe_list *list, const char *name, char **path)
{
    size_t length = strlen(name);
    if (nm_ends_with(name, ".ini"))
        length -= strlen(".ini");
    for (size_t i = 0; i < list->n && !*path; i++)
        if (strlen(list->names[i]) == length && !strncmp(list->names[i], name, length))
            *path = nm_format("%s/%s.ini", list->folder, list->names[i]);
}

nm_status nm_cli_look_up_recipe(const char *name, char **path, nm_error *err)
{
    *path = NULL;
    bool found;
    NM_TRY(nm_file_find(name, &found, err));
    if (found && !is_folder(name)) {
        *path = nm_duplicate(name);
        return NM_OK;
    }
    recipe_list list;
    nm_status status = list_recipes(&list, err);
    if (status == NM_OK)
        find_name(&list, name, path);
    release_recipes(&list);
    return status;
}

static nm_status no_recipe(const char *name, nm_error *err)
{
    if (is_folder(name))
        return folder_is_no_recipe(name, err);
    recipe_list list;
    size_t nearest = 0;
    nm_status status = list_recipes(&list, err);
    for (size_t i = 1; i < list.n; i++)
        if (nm_edit_distance(name, list.names[i]) < nm_edit_distance(name, list.names[nearest]))
            nearest = i;
    if (status == NM_OK && list.n &&
        nm_edit_distance_is_near(nm_edit_distance(name, list.names[nearest]), name))
        status = nm_fail(err, NM_IO,
                         "%.300s: No such file, and no recipe of this name; the most similar one is %s", name,
                         list.names[nearest]);
    else if (status == NM_OK && list.n)
        status = nm_fail(err, NM_IO,
                         "%.300s: No such file, and no recipe of this name; norma recipes lists the recipes",
                         name);
    else if (status == NM_OK)
        status =
            nm_fail(err, NM_IO, "%.300s: No such file, and the folder of the recipes was not found", name);
    release_recipes(&list);
    return status;
}

nm_status nm_cli_find_recipe(const char *name, char **path, nm_error *err)
{
    NM_TRY(nm_cli_look_up_recipe(name, path, err));
    return *path ? NM_OK : no_recipe(name, err);
}

/* *description: the first sentence of the comment at the top of the file; heap. */
static nm_status describe(const char *path, char **description, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL;
    NM_TRY(nm_file_read(path, &text, NULL, err));
    const char *start = text;
    while (*start == '#' || *start == ' ')
        start++;
    size_t length = *text == '#' ? strcspn(start, "\n") : 0;
    const char *end = strstr(start, ". ");
    if (end && (size_t)(end - start) < length)
        length = (size_t)(end - start);
    while (length && start[length - 1] == '.')
        length--;
    *description = nm_format("%.*s", (int)length, start);
    return NM_OK;
}

static bool matches(const char *text, int n_words, char **words)
{
    for (int i = 0; i < n_words; i++)
        if (!strcasestr(text, words[i]))
            return false;
    return true;
}

/* NM_USAGE: no recipe contains the words. A single word may be a misspelled name. */
static nm_status no_match(const recipe_list *list, int n_words, char **words, nm_error *err)
{
    const char *nearest = list->names[0];
    for (size_t i = 1; i < list->n; i++)
        if (nm_edit_distance(words[0], list->names[i]) < nm_edit_distance(words[0], nearest))
            nearest = list->names[i];
    bool near = n_words == 1 && nm_edit_distance_is_near(nm_edit_distance(words[0], nearest), words[0]);
    return near ? nm_fail(err, NM_USAGE, "no recipe contains %.100s; the most similar name is %s", words[0],
                          nearest)
                : nm_fail(err, NM_USAGE, "no recipe contains %.100s%s; norma recipes lists all", words[0],
                          n_words > 1 ? " and the other words" : "");
}

static int recipes_run(nm_cli *cli, int argc, char **argv)
{
    const recipes_config *config = nm_options_find(cli->options, "recipes");
    recipe_list list;
    nm_error err;
    bool any = false;
    nm_status status = list_recipes(&list, &err);
    for (size_t i = 0; i < list.n && status == NM_OK; i++) {
        NM_AUTO_FREE char *path = nm_format("%s/%s.ini", list.folder, list.names[i]), *description = NULL;
        status = describe(path, &description, &err);
        NM_AUTO_FREE char *text = nm_format("%s %s", list.names[i], description ? description : "");
        bool found = status == NM_OK && matches(text, argc, argv);
        any |= found;
        if (!found)
            ;
        else if (config->names)
            puts(list.names[i]);
        else if (config->paths)
            puts(path);
        else
            printf("%-32s  %s\n", list.names[i], description);
    }
    if (status == NM_OK && !list.n)
        status =
            nm_fail(&err, NM_IO,
                    "no recipes found: neither share/norma/recipes nor the source tree's recipes exists");
    else if (status == NM_OK && !any)
        status = no_match(&list, argc, argv, &err);
    release_recipes(&list);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_recipes = {
    .name = "recipes",
    .summary = "list the recipes that come with Norma",
    .usage = "[WORD ...] [--names] [--paths]",
    .details = "Lists the recipes whose name or description contains every WORD; it is an error (exit "
               "code 2) if there is none. norma train and norma compare "
               "accept the name of a recipe instead of a file: norma train multi30k-de-en.\n",
    .section = "recipes",
    .rows = recipes_rows,
    .config_bytes = sizeof(recipes_config),
    .run = recipes_run,
};
