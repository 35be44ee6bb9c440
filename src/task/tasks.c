/* The table of tasks. */
#include <string.h>

#include "task/tasks.h"

const nm_task_type *const nm_task_types[] = {&nm_task_translation, &nm_task_lm, &nm_task_classification,
                                             &nm_task_tagging, NULL};

const nm_task_type *nm_task_type_find(const char *name)
{
    for (const nm_task_type *const *type = nm_task_types; *type; type++)
        if (!strcmp((*type)->name, name))
            return *type;
    return NULL;
}
