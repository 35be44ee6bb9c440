/* The table of tasks. */
#include <string.h>

#include "base/memory.h"
#include "task/tasks.h"

#define TASK(name) &nm_task_##name,
const nm_task_type *const nm_task_types[] = {NM_TASKS(TASK) NULL};

const nm_task_type *nm_task_type_find(const char *name)
{
    for (const nm_task_type *const *type = nm_task_types; *type; type++)
        if (!strcmp((*type)->name, name))
            return *type;
    return NULL;
}

static nm_status unknown_task(const char *name, nm_error *err)
{
    NM_AUTO_FREE char *known = NULL;
    for (const nm_task_type *const *type = nm_task_types; *type; type++)
        nm_list_append(&known, (*type)->name);
    return nm_fail(err, NM_USAGE, "run.task = %.100s: no such task; available: %s", name, known);
}

nm_status nm_task_type_choose(const char *name, const nm_task_type **type, nm_error *err)
{
    *type = name ? nm_task_type_find(name) : &nm_task_translation;
    return *type ? NM_OK : unknown_task(name, err);
}
