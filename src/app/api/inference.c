#include "api/inference.h"

#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/option_value.h"
#include "base/words.h"

nm_status nm_settings_apply(nm_options *options, const char *sections, const char *const *settings,
                            nm_error *err)
{
    for (size_t i = 0; settings && settings[i]; i += 2) {
        if (!settings[i + 1])
            return nm_fail(err, NM_USAGE, "option %s has no value", settings[i]);
        NM_AUTO_FREE char *path = nm_option_path(options, sections, settings[i]);
        NM_TRY(nm_options_set(options, path, settings[i + 1], NM_ORIGIN_COMMAND, err));
    }
    return NM_OK;
}

typedef struct model_file {
    char *path;
    nm_options *options;
} model_file;

typedef struct model_files {
    model_file *files; /* [n] */
    size_t n, capacity;
} model_files;

static void model_files_release(model_files *self)
{
    for (size_t i = 0; i < self->n; i++) {
        free(self->files[i].path);
        nm_options_free(self->files[i].options);
    }
    free(self->files);
}

/* Appends the model of a file or a run folder. */
static nm_status add_file(model_files *self, const nm_task_type *task, const char *path, nm_error *err)
{
    if (!*path)
        return nm_fail(err, NM_USAGE, "the path of a model is empty");
    model_file file;
    const nm_task_type *found;
    NM_TRY(nm_loaded_model_options(path, &file.options, &found, &file.path, err));
    NM_APPEND(self->files, self->n, self->capacity, file);
    if (found != task)
        return nm_fail(err, NM_UNSUPPORTED, "%s: the task of the model is %s, not %s", file.path, found->name,
                       task->name);
    return NM_OK;
}

/* paths: one model, or an ensemble (nm_path_list_next). */
static nm_status find_files(model_files *self, const nm_inference_type *type, const char *paths,
                            nm_error *err)
{
    if (!type->ensemble || !paths[strspn(paths, ",")])
        return add_file(self, type->task, paths, err);
    nm_status status = NM_OK;
    for (char *path; status == NM_OK && (path = nm_path_list_next(&paths, NULL, NULL)); free(path))
        status = add_file(self, type->task, path, err);
    return status;
}

static bool are_trained_in_bf16(const model_files *self)
{
    bool all = true;
    for (size_t i = 0; i < self->n; i++)
        all = all && nm_device_is_bf16(self->files[i].options);
    return all;
}

/* Overrides the options of a model file with the settings that it has. */
static nm_status override(nm_options *model_options, const nm_inference *self, const nm_inference_type *type,
                          const char *const *settings, nm_error *err)
{
    for (size_t i = 0; settings && settings[i]; i += 2) {
        NM_AUTO_FREE char *path = nm_option_path(self->options, type->sections, settings[i]);
        nm_status status = NM_OK;
        if (nm_options_row(model_options, path))
            status = nm_options_set(model_options, path, settings[i + 1], NM_ORIGIN_COMMAND, err);
        NM_TRY(status);
    }
    return NM_OK;
}

static nm_status open_models(nm_inference *self, const nm_inference_type *type, model_files *files,
                             const char *const *settings, nm_error *err)
{
    const nm_device_config *device = nm_options_find(self->options, "device");
    self->models = nm_allocate(files->n * sizeof *self->models);
    for (size_t i = 0; i < files->n; i++) {
        model_file *file = &files->files[i];
        NM_TRY(override(file->options, self, type, settings, err));
        nm_options *options = file->options;
        file->options = NULL; /* nm_loaded_model_open takes them, also after an error */
        NM_TRY(nm_loaded_model_open(&self->models[i], file->path, type->task, options, self->backend,
                                    device->fold, device->precision == NM_PRECISION_INT8, err));
        self->n_models++;
    }
    return NM_OK;
}

static nm_status open_with_settings(nm_inference *self, const nm_inference_type *type, model_files *files,
                                    const char *const *settings, nm_error *err)
{
    NM_TRY(nm_settings_apply(self->options, type->sections, settings, err));
    NM_TRY(nm_device_choose_trained(self->options, are_trained_in_bf16(files), err));
    NM_TRY(nm_device_open(nm_options_find(self->options, "device"), &self->backend, err));
    NM_TRY(open_models(self, type, files, settings, err));
    nm_option_values_list(&self->values, self->models[0].options);
    return NM_OK;
}

nm_status nm_inference_open(nm_inference *self, const nm_inference_type *type, const char *path,
                            const char *const *settings, nm_error *err)
{
    *self = (nm_inference){.options = nm_options_create()};
    nm_options_accept_any_text(self->options);
    nm_call_requests_init(&self->calls);
    type->add_options(self->options);
    if (type->task->add_search_options)
        type->task->add_search_options(self->options);
    nm_device_inference_options_add(self->options);
    if (!path)
        return nm_fail(err, NM_USAGE, "the path of the model is NULL");
    /* First the task: the settings may be those of another one. */
    model_files files = {0};
    nm_status status = find_files(&files, type, path, err);
    NM_THEN(status, open_with_settings(self, type, &files, settings, err));
    model_files_release(&files);
    return status;
}

void nm_inference_close(nm_inference *self)
{
    for (int32_t m = 0; m < self->n_models; m++)
        nm_loaded_model_close(&self->models[m]);
    free(self->models);
    nm_option_values_release(&self->values);
    nm_backend_free(self->backend);
    nm_options_free(self->options);
    nm_call_requests_release(&self->calls);
    *self = (nm_inference){0};
}

const char *nm_inference_option(const nm_inference *self, const char *name)
{
    return nm_option_values_find(&self->values, name);
}

const char *nm_inference_warning(const nm_inference *self)
{
    return nm_backend_lacks_threads(self->backend) ? nm_backend_warning(self->backend) : NULL;
}

nm_status nm_texts_check(const char *const *texts, size_t n, const char *name, nm_error *err)
{
    if (n && !texts)
        return nm_fail(err, NM_USAGE, "%s: the array is NULL", name);
    for (size_t i = 0; i < n; i++) {
        char where[64];
        snprintf(where, sizeof where, "%s %zu", name, i);
        if (!texts[i])
            return nm_fail(err, NM_USAGE, "%s is NULL", where);
        NM_TRY(nm_text_check(texts[i], strlen(texts[i]), where, err));
    }
    return NM_OK;
}

nm_status nm_lines_check(const char *const *lines, size_t n, const char *name, nm_error *err)
{
    NM_TRY(nm_texts_check(lines, n, name, err));
    for (size_t i = 0; i < n; i++) {
        const char *line_end = memchr(lines[i], '\n', nm_text_length(lines[i]));
        if (line_end)
            return nm_fail(err, NM_FORMAT, "%s %zu: a line break at position %zu", name, i,
                           (size_t)(line_end - lines[i]) + 1);
    }
    return NM_OK;
}

void nm_workspaces_init(nm_workspaces *pool)
{
    *pool = (nm_workspaces){0};
    pthread_mutex_init(&pool->mutex, NULL);
}

void *nm_workspaces_acquire(nm_workspaces *pool)
{
    pthread_mutex_lock(&pool->mutex);
    void *workspace = pool->n_idle ? pool->idle[--pool->n_idle] : NULL;
    pthread_mutex_unlock(&pool->mutex);
    return workspace;
}

void nm_workspaces_return(nm_workspaces *pool, void *workspace)
{
    pthread_mutex_lock(&pool->mutex);
    NM_APPEND(pool->idle, pool->n_idle, pool->capacity, workspace);
    pthread_mutex_unlock(&pool->mutex);
}

void nm_workspaces_release(nm_workspaces *pool, void (*free_one)(void *workspace))
{
    while (pool->n_idle)
        free_one(pool->idle[--pool->n_idle]);
    free(pool->idle);
    pthread_mutex_destroy(&pool->mutex);
}
