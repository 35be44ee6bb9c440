/* The task determines the sections of options, so it is found before the command line is parsed: on the command line, else in
 * the recipe, else translation. */
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

/* run.task of the recipe, heap, or NULL. A file that cannot be read is reported later, when it is read completely. */
static char *recipe_task(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        size_t length = strlen(argv[i]);
        char *task;
        nm_error ignored;
        bool ini = length >= 4 && !strcmp(argv[i] + length - 4, ".ini");
        if ((!ini && i) || !strncmp(argv[i], "--", 2))
            continue;
        char *path;
        if (nm_cli_find_recipe(argv[i], &path, &ignored) != NM_OK)
            continue;
        nm_status status = nm_options_peek(path, "run.task", &task, &ignored);
        free(path);
        if (status == NM_OK && task)
            return task;
        free(task);
    }
    return NULL;
}

static nm_status unknown_task(const char *name, nm_error *err)
{
    char *known = nm_duplicate("");
    for (const nm_task_type *const *type = nm_task_types; *type; type++) {
        char *longer = nm_format("%s%s%s", known, *known ? ", " : "", (*type)->name);
        free(known);
        known = longer;
    }
    nm_fail(err, NM_USAGE, "run.task = %.100s: no such task; known: %s", name, known);
    free(known);
    return err->status;
}

nm_status nm_cli_task_options(nm_options *options, int argc, char **argv, const nm_task_type **task,
                              nm_error *err)
{
    const char *named = named_task(argc, argv);
    char *name = named ? nm_duplicate(named) : recipe_task(argc, argv);
    const nm_task_type *type = name ? nm_task_type_find(name) : &nm_task_translation;
    *task = type ? type : &nm_task_translation;
    nm_train_options_add(options, *task);
    nm_probe_options_add(options);
    nm_status status = type ? NM_OK : unknown_task(name, err);
    free(name);
    return status;
}
