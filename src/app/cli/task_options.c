/* The sections of options of a command. Those of training depend on the task, which is determined before the
 * command line is parsed: from the command line, otherwise from the recipe, otherwise it is translation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "base/memory.h"
#include "cli/cli.h"
#include "cli/open_comm.h"
#include "probe/probe.h"
#include "task/model_loader.h"
#include "train/run_config.h"
#include "train/train_options.h"

/* The value of the last "--run.KEY" or "--KEY" on the command line, or NULL. */
static const char *named(const char *key, int argc, char **argv)
{
    const char *value = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++) {
        if (strncmp(argv[i], "--", 2))
            continue;
        const char *name = argv[i] + (strncmp(argv[i], "--run.", 6) ? 2 : 6);
        size_t length = strlen(key);
        if (strncmp(name, key, length))
            continue;
        if (name[length] == '=')
            value = name + length + 1;
        else if (!name[length] && i + 1 < argc)
            value = argv[i + 1];
    }
    return value;
}

/* *task: run.task of the recipe, heap, or NULL. A recipe that does not exist or is malformed is reported
 * later, when it is read completely; a recipe that cannot be read is reported here, because its options would
 * be unknown without its task. */
static nm_status find_recipe_task(int argc, char **argv, char **task, nm_error *err)
{
    *task = NULL;
    for (int i = 0; i < argc; i++) {
        if ((i && !nm_ends_with(argv[i], ".ini")) || !strncmp(argv[i], "--", 2))
            continue;
        char *path;
        NM_TRY(nm_cli_look_up_recipe(argv[i], &path, err));
        if (!path)
            continue;
        nm_status status = nm_options_peek(path, "run.task", task, err);
        free(path);
        if (status == NM_IO || status == NM_MEMORY || (status == NM_OK && *task))
            return status;
        free(*task);
        *task = NULL;
    }
    return NM_OK;
}

/* *recipe: the recipe for the task of the model, heap. */
static nm_status recipe_of_model(const char *model, char **recipe, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    const nm_task_type *type;
    NM_AUTO_FREE char *file = NULL;
    NM_TRY(nm_loaded_model_options(model, &options, &type, &file, err));
    *recipe = nm_duplicate(type->recipe);
    return NM_OK;
}

/* *recipe: the configuration of the run in the folder, if there is one, otherwise the recipe for the task of
 * the model; heap, or NULL. Empty names, and NULL: none. */
/* Restores config.ini of a run if it is missing. */
static nm_status restore_config(const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *message = NULL;
    NM_TRY(nm_run_config_restore(folder, &message, err));
    if (message && nm_cli_launched_rank() == 0)
        fprintf(stderr, "norma: warning: %s\n", message);
    return NM_OK;
}

static nm_status default_recipe(const char *folder, const char *model, char **recipe, nm_error *err)
{
    bool found = false;
    *recipe = NULL;
    if (folder && *folder)
        NM_TRY(restore_config(folder, err));
    if (folder && *folder)
        NM_TRY(nm_file_find_in(folder, "config.ini", &found, err));
    if (found)
        *recipe = nm_path_join(folder, "config.ini");
    return found || !model || !*model ? NM_OK : recipe_of_model(model, recipe, err);
}

nm_status nm_cli_default_recipe(const nm_options *options, char **recipe, nm_error *err)
{
    NM_AUTO_FREE char *folder = nm_options_get(options, "run.folder"),
                      *model = nm_options_get(options, "run.tune");
    NM_AUTO_FREE char *resume = nm_options_get(options, "run.resume");
    bool resumes = folder && *folder && resume && strcmp(resume, "no");
    NM_TRY(default_recipe(resumes ? folder : NULL, model, recipe, err));
    if (resumes && !*recipe)
        return nm_fail(err, NM_USAGE, "%s: there is no run to continue, and no recipe is named", folder);
    return NM_OK;
}

/* *task: that of nm_cli_default_recipe, heap, or NULL. Errors are reported when the recipe is determined from
 * the options. */
static void find_default_task(int argc, char **argv, char **task)
{
    char *recipe, *path;
    if (default_recipe(named("folder", argc, argv), named("tune", argc, argv), &recipe, NM_IGNORED) !=
            NM_OK ||
        !recipe)
        return;
    if (nm_cli_look_up_recipe(recipe, &path, NM_IGNORED) == NM_OK && path)
        (void)nm_options_peek(path, "run.task", task, NM_IGNORED);
    NM_FREE(path, recipe);
}

nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const nm_task_type **task,
                              nm_error *err)
{
    const char *given = named("task", argc, argv);
    NM_AUTO_FREE char *name = nm_duplicate(given);
    nm_status found = given ? NM_OK : find_recipe_task(argc, argv, &name, err);
    if (!name)
        find_default_task(argc, argv, &name);
    *task = NULL;
    nm_status status = found == NM_OK ? nm_task_type_choose(name, task, err) : found;
    if (!*task)
        *task = &nm_task_translation;
    nm_train_options_add(options, *task);
    nm_probe_options_add(options);
    return status;
}

static void add_own_rows(const nm_command *command, nm_options *options)
{
    NM_AUTO_FREE char *section = nm_format("%.*s", (int)strcspn(command->section, ","), command->section);
    nm_options_add(options, section, command->rows, NULL, command->config_bytes);
}

nm_status nm_cli_add_options(const nm_command *command, nm_options *options, int argc, char **argv,
                             const struct nm_task_type **task, nm_error *err)
{
    if (command->rows)
        add_own_rows(command, options);
    if (command->options)
        command->options(options);
    if (command->searches)
        command->searches->add_search_options(options);
    if (command->infers)
        nm_device_inference_options_add(options);
    if (!command->saves)
        nm_options_accept_any_text(options);
    if (command->rules)
        nm_options_add_rules(options, command->rules);
    return command->trains ? nm_cli_task_options(options, argc, argv, task, err) : NM_OK;
}
