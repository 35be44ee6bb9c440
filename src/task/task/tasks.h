/* The table of tasks. */
#pragma once

#include "train/task.h"

#define NM_TASKS(T)           T(translation) T(lm) T(classification) T(tagging) T(image)
#define NM_DECLARE_TASK(name) extern const nm_task_type nm_task_##name;
NM_TASKS(NM_DECLARE_TASK)
extern const nm_task_type *const nm_task_types[];        /* NULL at the end */
const nm_task_type *nm_task_type_find(const char *name); /* NULL if there is none with this name */
/* The task of run.task; NULL: translation. NM_USAGE: no task has this name; the message lists all of them. */
nm_status nm_task_type_choose(const char *name, const nm_task_type **type, nm_error *err);
