#include "train/recipe_sections.h"

#include <stdlib.h>

#include "base/memory.h"

/* "path = value, ..." of the options with this origin; heap. */
static char *list_settings(const nm_options *options, nm_origin origin)
{
    char *list = nm_duplicate(""), *path;
    for (size_t i = 0; (path = nm_options_path(options, i)) != NULL; i++) {
        if (nm_options_origin(options, path) == origin) {
            NM_AUTO_FREE char *value = nm_options_get(options, path);
            nm_format_append(&list, "%s%s = %s", *list ? ", " : "", path, value);
        }
        free(path);
    }
    return list;
}

nm_status nm_recipe_apply_sizes(nm_options *options, const nm_task_type *task, const nm_recipe_source *recipe,
                                const void *data, int64_t *size, nm_error *err)
{
    *size = -1;
    if (!nm_options_has_sizes(options))
        return NM_OK;
    NM_TRY(task->measure(data, size, err));
    return nm_options_read_sizes(options, recipe->name, recipe->text, *size, err);
}

char *nm_recipe_describe_sizes(const nm_options *options, const nm_task_type *task, int64_t size)
{
    NM_AUTO_FREE char *settings = list_settings(options, NM_ORIGIN_SIZE);
    return nm_format("%lld %s for training: the recipe sets %s", (long long)size, task->size_unit,
                     *settings ? settings : "nothing for this size");
}

char *nm_recipe_describe_tune(const nm_options *options)
{
    NM_AUTO_FREE char *settings = list_settings(options, NM_ORIGIN_TUNE);
    return *settings ? nm_format("further training of a model: the recipe sets %s", settings) : NULL;
}
