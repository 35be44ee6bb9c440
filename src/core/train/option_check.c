#include "train/option_check.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "norm/norm_assignment.h"
#include "train/train_options.h"
#include "train/schedule.h"

enum { ASSUMED_VOCABULARY = 1 << 24 };

static bool has_norm(const nm_params *params, const char *type)
{
    for (size_t i = 0; i < params->n_norms; i++)
        if (!strcmp(params->norms[i]->type->name, type))
            return true;
    return false;
}

/* Options of section [norm] that no norm uses. */
static nm_status check_shared_options(const nm_options *options, nm_error *err)
{
    static const char *const paths[] = {"norm.groups", "norm.state", "norm.statistics"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (nm_options_origin(options, paths[i]) == NM_ORIGIN_COMMAND &&
            !nm_norm_option_applies(options, paths[i]))
            return nm_fail(err, NM_USAGE, "%s has no effect: no norm of the model uses it", paths[i]);
    return NM_OK;
}

nm_status nm_model_check_norm_options(const nm_params *params, const nm_options *options, nm_error *err)
{
    const char *name;
    const nm_option *rows;
    const nm_preset *presets;
    NM_TRY(check_shared_options(options, err));
    for (size_t s = 0; nm_options_section(options, s, &name, &rows, &presets); s++) {
        const char *type = !strncmp(name, "norm.", 5) ? name + 5 : NULL;
        for (size_t i = 0; type && rows && rows[i].name && !has_norm(params, type); i++) {
            NM_AUTO_FREE char *path = nm_format("%s.%s", name, rows[i].name);
            bool given = nm_options_origin(options, path) == NM_ORIGIN_COMMAND;
            NM_TRY(given ? nm_fail(err, NM_USAGE, "%s has no effect: no norm of the model is of the type %s",
                                   path, type)
                         : NM_OK);
        }
    }
    return NM_OK;
}

bool nm_model_uses_batch(const nm_params *params)
{
    for (size_t i = 0; i < params->n_norms; i++)
        if (params->norms[i]->type->traits & NM_USES_BATCH)
            return true;
    return false;
}

nm_status nm_model_check_statistics(const nm_params *params, const nm_options *options, bool *joint,
                                    nm_error *err)
{
    const nm_norm_config *norms = nm_options_find(options, "norm");
    const nm_train_config *train = nm_options_find(options, "train");
    *joint = norms->statistics == NM_STATISTICS_UPDATE && train->shards > 1 && nm_model_uses_batch(params);
    if (*joint && norms->state != NM_STATE_UPDATE)
        return nm_fail(err, NM_USAGE,
                       "norm.statistics = update requires norm.state = update: running statistics advance "
                       "once per update");
    return NM_OK;
}

static nm_status check_model(nm_model *model, const nm_options *options, nm_error *err)
{
    const nm_stack_options *stack = model->config; /* the first member of every configuration */
    bool joint;
    NM_TRY(nm_params_freeze(&model->params, stack->freeze, err));
    NM_TRY(nm_model_check_norm_options(&model->params, options, err));
    return nm_model_check_statistics(&model->params, options, &joint, err);
}

/* The length of an epoch, which the plan may depend on, is not known without data. */
static nm_status plan_of(const nm_task_type *type, const nm_options *options, nm_norm_plan *plan,
                         nm_error *err)
{
    const nm_train_config *train = nm_options_find(options, "train");
    nm_task task = {.type = type, .options = options};
    nm_schedule schedule;
    if (train->epochs && !train->updates)
        return NM_OK;
    NM_TRY(nm_schedule_of_task(&schedule, &task, err));
    *plan = task.plan;
    return NM_OK;
}

nm_status nm_train_options_check(const nm_task_type *task, const nm_options *options, nm_error *err)
{
    char *warning;
    const nm_backend_options device = {.name = "ref", .threads = 1}; /* the run may be on another machine */
    nm_model_sizes sizes = {
        .source = ASSUMED_VOCABULARY, .target = ASSUMED_VOCABULARY, .more = task->assumed_sizes};
    nm_backend *backend;
    nm_model *model;
    NM_TRY(nm_options_check(options, &warning, err));
    free(warning);
    NM_TRY(nm_device_reject_inference(nm_options_find(options, "device"), "training", err));
    NM_TRY(plan_of(task, options, &sizes.plan, err));
    NM_TRY(nm_backend_create(&backend, &device, err));
    nm_status status = nm_model_declare(&model, task->model, backend, options, &sizes, err);
    if (status == NM_OK) {
        status = check_model(model, options, err);
        nm_model_free(model);
    }
    nm_backend_free(backend);
    return status;
}
