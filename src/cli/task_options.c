/* The task determines the sections of options, so it is determined before the command line is parsed: from the command line,
 * otherwise from the recipe, otherwise it is translation. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/cli.h"
#include "probe/probe.h"
#include "task/tasks.h"
#include "train/options.h"

/* The value of the last "--run.task" or "--task" on the command line, or NULL. */
static const char *named_task(int argc, char **argv)
{
    static const char *const names[] = {"--run.task", "--task"};
    const char *task = NULL;
    for (int i = 0; i < argc && strcmp(argv[i], "--"); i++)
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            size_t length = strlen(names[k]);
            if (strncmp(argv[i], names[k], length))
                continue;
            if (argv[i][length] == '=')
                task = argv[i] + length + 1;
            else if (!argv[i][length] && i + 1 < argc)
                task = argv[i + 1];
        }
    return task;
}

/* *task: run.task of the recipe, heap, or NULL. A recipe that does not exist or is malformed is reported later, when it is read
 * completely; a recipe that cannot be read is reported here, because its options would be unknown without its task. */
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

static nm_status unknown_task(const char *name, nm_error *err)
{
    char *known = nm_duplicate("");
    for (const nm_task_type *const *type = nm_task_types; *type; type++) {
        char *longer = nm_format("%s%s%s", known, *known ? ", " : "", (*type)->name);
        free(known);
        known = longer;
    }
    nm_fail(err, NM_USAGE, "run.task = %.100s: no such task; available: %s", name, known);
    free(known);
    return err->status;
}

nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const nm_task_type **task,
                              nm_error *err)
{
    const char *named = named_task(argc, argv);
    char *name = nm_duplicate(named);
    nm_status found = named ? NM_OK : find_recipe_task(argc, argv, &name, err);
    const nm_task_type *type = name ? nm_task_type_find(name) : &nm_task_translation;
    *task = type ? type : &nm_task_translation;
    nm_train_options_add(options, *task);
    nm_probe_options_add(options);
    nm_status status = found != NM_OK || type ? found : unknown_task(name, err);
    free(name);
    return status;
}
