#include "task/tune.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "task/model_loader.h"
#include "train/run_config.h"

/* Whether the option determines the function of a model and its text processing, so that the model and not
 * the recipe decides it. */
static bool is_of_model(const char *path, const nm_options *model, const nm_task_type *task)
{
    for (const char *const *of_text = task->text_options; of_text && *of_text; of_text++)
        if (!strcmp(path, *of_text))
            return true;
    return nm_run_config_is_of_model(model, path);
}

/* Dropout rates are those of the model unless the recipe or the command line sets them. */
static bool is_rate(const char *path)
{
    return !strncmp(path, "model.", 6) && nm_ends_with(path, "dropout");
}

static nm_status use_structure(nm_options *options, const nm_options *model, const nm_task_type *task,
                               nm_error *err)
{
    char *path;
    nm_status status = NM_OK;
    for (size_t i = 0; status == NM_OK && (path = nm_options_path(options, i)) != NULL; i++) {
        bool rate = is_rate(path);
        NM_AUTO_FREE char *value =
            rate || is_of_model(path, model, task) ? nm_options_get(model, path) : NULL;
        if (value)
            status = nm_options_set(options, path, value, rate ? NM_ORIGIN_PRESET : NM_ORIGIN_TUNE, err);
        free(path);
    }
    return status;
}

/* The section [tune] states the learning rate for models of the width run.tune_width. */
static nm_status scale_rate(nm_options *options, const nm_options *model, nm_error *err)
{
    const nm_run_options *run = nm_options_find(options, "run");
    if (!run->tune_width || nm_options_origin(options, "schedule.lr") != NM_ORIGIN_TUNE)
        return NM_OK;
    NM_AUTO_FREE char *rate = nm_options_get(options, "schedule.lr"),
                      *width = nm_options_get(model, "model.width");
    NM_AUTO_FREE char *scaled = nm_format("%.6g", atof(rate) * (double)run->tune_width / atof(width));
    return nm_options_set(options, "schedule.lr", scaled, NM_ORIGIN_TUNE, err);
}

static nm_status use_section(nm_options *options, const nm_options *model, const nm_recipe_source *recipe,
                             char **message, nm_error *err)
{
    NM_TRY(nm_options_read_tune(options, recipe->name, recipe->text, err));
    NM_TRY(scale_rate(options, model, err));
    *message = nm_recipe_describe_tune(options);
    return NM_OK;
}

nm_status nm_tune_apply(nm_options *options, const nm_task_type *task, const nm_recipe_source *recipe,
                        char **message, nm_error *err)
{
    const nm_run_options *run = nm_options_find(options, "run");
    NM_AUTO(nm_options_release) nm_options *model = NULL;
    const nm_task_type *found;
    NM_AUTO_FREE char *file = NULL;
    *message = NULL;
    if (!run || !*run->tune)
        return NM_OK;
    NM_TRY(nm_loaded_model_options(run->tune, &model, &found, &file, err));
    if (found != task)
        return nm_fail(err, NM_MISMATCH, "%s: a model of the task %s, but the recipe has the task %s",
                       run->tune, found->name, task->name);
    NM_TRY(use_section(options, model, recipe, message, err));
    NM_TRY(use_structure(options, model, task, err));
    return nm_options_set(options, "model.init_from", file, NM_ORIGIN_TUNE, err);
}
