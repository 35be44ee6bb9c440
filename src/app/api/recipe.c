#include "api/recipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "train/comm_options.h"
#include "train/run_config.h"

void nm_recipe_options_add(nm_options *options)
{
    nm_run_options_add(options);
    nm_comm_options_add(options);
}

bool nm_recipe_is_text(const char *recipe)
{
    return strchr(recipe, '\n') != NULL;
}

nm_status nm_recipe_find_task(const char *recipe, const char *const *settings, const nm_task_type **task,
                              nm_error *err)
{
    char *name = NULL;
    for (size_t i = 0; settings && settings[i] && settings[i + 1]; i += 2)
        if (!strcmp(settings[i], "run.task")) {
            free(name);
            name = nm_duplicate(settings[i + 1]);
        }
    nm_status status = NM_OK;
    if (!name && nm_recipe_is_text(recipe)) {
        NM_AUTO(nm_options_release) nm_options *options = nm_options_create();
        nm_recipe_options_add(options);
        status = nm_options_read_saved(options, "the recipe", recipe, err);
        name = nm_options_get(options, "run.task");
    } else if (!name) {
        status = nm_options_peek(recipe, "run.task", &name, err);
    }
    NM_THEN(status, nm_task_type_choose(name, task, err));
    free(name);
    return status;
}
