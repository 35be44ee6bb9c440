#include "model/model.h"

#include <stdlib.h>

void nm_model_options_add(nm_options *options, const nm_model_type *type)
{
    nm_options_add(options, "model", type->options, type->presets, type->config_size);
    if (type->rules)
        nm_options_add_rules(options, type->rules);
}

/* Registers the parameters and norms of the type, and checks that every entry of norm.at applies to a
 * site. */
static nm_status build(nm_model *model, nm_error *err)
{
    const nm_norm_config *norm = nm_options_find(model->options, "norm");
    NM_TRY(nm_params_assign_norms(&model->params, norm->at, err));
    NM_TRY(model->type->build(model, err));
    return nm_params_check_assignments(&model->params, err);
}

nm_status nm_model_declare(nm_model **out, const nm_model_type *type, nm_backend *backend,
                           const nm_options *options, const nm_model_sizes *sizes, nm_error *err)
{
    nm_model *model = nm_allocate(sizeof *model);
    *model = (nm_model){.type = type,
                        .backend = backend,
                        .options = options,
                        .config = nm_options_find(options, "model"),
                        .source_size = sizes->source,
                        .target_size = sizes->target,
                        .more_sizes = sizes->more,
                        .plan = sizes->plan};
    nm_params_init(&model->params, backend);
    nm_status status = build(model, err);
    NM_RETURN_NEW(status, out, model, nm_model_free);
}

nm_status nm_model_allocate(nm_model *model, bool with_grads, nm_error *err)
{
    const nm_stack_options *stack = model->config; /* the first member of every configuration */
    if (with_grads)
        NM_TRY(nm_params_freeze(&model->params, stack->freeze, err));
    NM_TRY(nm_params_allocate(&model->params, with_grads, err));
    return model->type->ready ? model->type->ready(model, err) : NM_OK;
}

nm_status nm_model_create(nm_model **out, const nm_model_type *type, nm_backend *backend,
                          const nm_options *options, const nm_model_sizes *sizes, bool with_grads,
                          nm_error *err)
{
    nm_model *model;
    NM_TRY(nm_model_declare(&model, type, backend, options, sizes, err));
    nm_status status = nm_model_allocate(model, with_grads, err);
    NM_RETURN_NEW(status, out, model, nm_model_free);
}

void nm_model_free(nm_model *model)
{
    if (!model)
        return;
    if (model->parts)
        model->type->release(model);
    if (model->allowed)
        nm_backend_dealloc(model->backend, model->allowed);
    nm_params_release(&model->params);
    free(model);
}

nm_status nm_model_create_worker(nm_model **out, const nm_model *main, nm_error *err)
{
    nm_backend *backend;
    NM_TRY(nm_backend_create_worker(&backend, main->backend, main->backend->threads, err));
    nm_model *worker = nm_allocate(sizeof *worker);
    *worker = *main;
    worker->backend = backend;
    *out = worker;
    return NM_OK;
}

void nm_model_free_worker(nm_model *worker)
{
    if (!worker)
        return;
    nm_backend_free(worker->backend);
    free(worker);
}

nm_status nm_model_allow(nm_model *model, const uint8_t *allowed, nm_error *err)
{
    void *device = model->allowed;
    if (!device)
        NM_TRY(nm_backend_alloc(model->backend, (size_t)model->target_size, &device, err));
    model->allowed = device;
    nm_backend_upload(model->backend, device, allowed, (size_t)model->target_size);
    return NM_OK;
}

size_t nm_model_fold(nm_model *model, nm_options *options)
{
    NM_AUTO(nm_fold_release) nm_fold fold = {.assignments = &model->params.assignments};
    NM_ASSERT(!model->params.grads);
    if (model->type->fold)
        model->type->fold(model, &fold);
    nm_fold_run(&fold, model->backend);
    if (options)
        nm_fold_write_options(&fold, options);
    return nm_fold_count(&fold);
}
