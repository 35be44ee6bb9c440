#include "train/recipe_sizes.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

/* "path = value, ..." of the options that sections [size.N] have set; heap. */
static char *list_settings(const nm_options *options)
{
    char *list = nm_duplicate(""), *path;
    for (size_t i = 0; (path = nm_options_path(options, i)) != NULL; i++) {
        if (nm_options_origin(options, path) == NM_ORIGIN_SIZE) {
            char *value = nm_options_get(options, path);
            char *longer = nm_format("%s%s%s = %s", list, *list ? ", " : "", path, value);
            free(value);
            free(list);
            list = longer;
        }
        free(path);
    }
    return list;
}

nm_status nm_recipe_apply_sizes(nm_options *options, const nm_task_type *task, const nm_sized_recipe *recipe,
                                char **message, nm_error *err)
{
    int64_t size;
    *message = NULL;
    if (!nm_options_has_sizes(options))
        return NM_OK;
    NM_TRY(task->measure(recipe->data, &size, err));
    NM_TRY(nm_options_read_sizes(options, recipe->name, recipe->text, size, err));
    char *settings = list_settings(options);
    *message = nm_format("%lld %s for training: the recipe sets %s", (long long)size, task->size_unit,
                         *settings ? settings : "nothing for this size");
    free(settings);
    return NM_OK;
}
