#include "task/model_loader.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/model_file.h"
#include "train/train_options.h"
#include "train/schedule.h"

static const nm_backend_options PLAIN = {.name = "ref", .dtype = NM_F32, .threads = 1};

nm_status nm_loaded_model_begin(nm_loaded_model *loaded, const nm_task_type *task, nm_error *err)
{
    nm_options *options = nm_options_create();
    nm_train_options_add(options, task);
    *loaded = (nm_loaded_model){
        .options = options,
        .task = {.type = task, .options = options, .config = nm_options_find(options, "data")}};
    return nm_backend_create(&loaded->own, &PLAIN, err);
}

nm_status nm_loaded_model_write(const nm_loaded_model *loaded, const char *path, nm_error *err)
{
    return nm_checkpoint_write(path, loaded->model, &loaded->task, 0, err);
}

/* Checksums of the tensors are verified when the model is opened. */
static nm_status open_metadata(nm_safetensors **file, const char *path, nm_error *err)
{
    struct stat info;
    if (!stat(path, &info) && S_ISDIR(info.st_mode))
        return nm_fail(
            err, NM_IO,
            "%s: the folder contains no best.safetensors or last.safetensors: expected a run folder "
            "or a model file",
            path);
    return nm_safetensors_open_metadata(file, path, err);
}

nm_status nm_loaded_model_options(const char *path, nm_options **options, const nm_task_type **task,
                                  char **file_path, nm_error *err)
{
    NM_AUTO_FREE char *chosen = nm_model_path(path);
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    NM_AUTO(nm_options_release) nm_options *read = nm_options_create();
    nm_status status;
    *options = NULL;
    *file_path = NULL;
    NM_TRY(open_metadata(&file, chosen, err));
    const char *task_name = nm_safetensors_metadata(file, "task"),
               *config = nm_safetensors_metadata(file, "config");
    *task = task_name ? nm_task_type_find(task_name) : NULL;
    if (!*task || !config) {
        status = nm_model_file_not_a_model(file, err);
    } else {
        nm_train_options_add(read, *task);
        status = nm_options_read_saved(read, chosen, config, err);
    }
    NM_TRY(nm_model_file_explain(file, status, err));
    *options = read;
    *file_path = chosen;
    read = NULL;
    chosen = NULL;
    return NM_OK;
}

static nm_status build_loaded(nm_loaded_model *loaded, const char *file_path, nm_backend *backend,
                              bool with_grads, nm_error *err)
{
    nm_task *task = &loaded->task;
    nm_model_sizes sizes = task->type->sizes(task);
    nm_status status =
        nm_model_create(&loaded->model, task->type->model, backend, loaded->options, &sizes, with_grads, err);
    if (status == NM_OK && task->type->prepare_model)
        status = task->type->prepare_model(task, loaded->model, err);
    return status == NM_OK ? NM_OK : nm_error_prefix(err, "%s", file_path);
}

/* map: parameters may stay in the mapped file (nm_model_file_map). */
static nm_status load_model(nm_loaded_model *loaded, nm_safetensors *file, bool map, nm_error *err)
{
    nm_params_from_int8(&loaded->model->params);
    NM_TRY(
        (map ? nm_model_file_map(file, loaded->model, err) : nm_model_file_load(file, loaded->model, err)));
    if (loaded->fold)
        nm_model_fold(loaded->model, NULL);
    return loaded->int8 ? nm_params_to_int8(&loaded->model->params, err) : NM_OK;
}

nm_status nm_loaded_model_open(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                               nm_options *options, nm_backend *backend, bool fold, bool int8, nm_error *err)
{
    *loaded = (nm_loaded_model){.options = options, .fold = fold, .int8 = int8};
    nm_task opened = {.type = task, .options = options, .config = nm_options_find(options, "data")};
    nm_safetensors *file;
    nm_status status = nm_safetensors_open(&file, file_path, err);
    if (status == NM_OK) {
        status = task->open_model(&opened, file, err);
        loaded->task = opened; /* closed by the caller, also after an error */
        NM_THEN(status, build_loaded(loaded, file_path, backend, false, err));
        NM_THEN(status, load_model(loaded, file, !int8, err));
        NM_THEN(status, nm_model_file_check_finite(file, err));
        status = nm_model_file_explain(file, status, err);
        loaded->file = file;
    }
    if (status != NM_OK)
        nm_loaded_model_close(loaded);
    return status;
}

/* The backend is the model's, or freed if the model could not be opened. */
static nm_status own(nm_loaded_model *loaded, nm_backend *backend, nm_status status)
{
    if (status == NM_OK)
        loaded->own = backend;
    else
        nm_backend_free(backend);
    return status;
}

nm_status nm_loaded_model_open_plain(nm_loaded_model *loaded, const char *path, char **file_path,
                                     nm_error *err)
{
    nm_options *options;
    const nm_task_type *task;
    nm_backend *backend;
    NM_TRY(nm_loaded_model_options(path, &options, &task, file_path, err));
    nm_status status = nm_backend_create(&backend, &PLAIN, err);
    if (status == NM_OK)
        status = nm_loaded_model_open(loaded, *file_path, task, options, backend, false, false, err);
    else
        nm_options_free(options);
    if (status != NM_OK) {
        free(*file_path);
        *file_path = NULL;
    }
    return own(loaded, backend, status);
}

/* Length of the name in a line of a list; dictionary: the count after the last space is not part of it. */
static size_t name_length(const char *line, bool dictionary)
{
    size_t length = strcspn(line, "\n");
    const char *space = dictionary ? memrchr(line, ' ', length) : NULL;
    return space ? (size_t)(space - line) : length;
}

/* Compares two lists with a name per line, in the order of the ids. */
static nm_status compare_lists(const char *path, const char *name, const char *data, const char *model,
                               nm_error *err)
{
    bool dictionary = !strncmp(name, "dict.", 5);
    for (int line = 1; *data || *model; line++) {
        size_t a = name_length(data, dictionary), b = name_length(model, dictionary);
        if (a != b || memcmp(data, model, a))
            return nm_fail(err, NM_MISMATCH,
                           "%s: the data has another %s than the model (line %d: \"%.*s\", the model has "
                           "\"%.*s\"); use the data with which the model was trained",
                           path, name, line, (int)(a < 40 ? a : 40), data, (int)(b < 40 ? b : 40), model);
        data += strcspn(data, "\n");
        model += strcspn(model, "\n");
        data += *data == '\n';
        model += *model == '\n';
    }
    return NM_OK;
}

/* NM_MISMATCH if the ids of the data have another meaning than those of the model. */
static nm_status check_ids(const nm_loaded_model *loaded, const nm_safetensors *file, nm_error *err)
{
    static const char *const lists[] = {"dict.source.txt", "dict.target.txt", "dict.txt",    "labels.txt",
                                        "words.txt",       "chars.txt",       "bigrams.txt", "tags.txt"};
    nm_safetensors_writer *data = nm_safetensors_begin();
    nm_status status = NM_OK;
    loaded->task.type->save(&loaded->task, data);
    for (size_t i = 0; i < sizeof lists / sizeof *lists && status == NM_OK; i++) {
        const char *of_data = nm_safetensors_added_metadata(data, lists[i]),
                   *of_model = nm_safetensors_metadata(file, lists[i]);
        if (of_data && of_model)
            status = compare_lists(nm_safetensors_path(file), lists[i], of_data, of_model, err);
    }
    nm_safetensors_abandon(data);
    return status;
}

size_t nm_loaded_model_fold(nm_loaded_model *loaded)
{
    return nm_model_fold(loaded->model, loaded->options);
}

nm_status nm_loaded_model_change(nm_loaded_model *loaded, const char *file_path, nm_error *err)
{
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    NM_TRY(nm_safetensors_open(&file, file_path, err));
    NM_TRY(check_ids(loaded, file, err));
    NM_TRY(load_model(loaded, file, false, err));
    return nm_model_file_check_finite(file, err);
}

nm_status nm_loaded_model_open_run(nm_loaded_model *loaded, const char *file_path, const nm_task_type *task,
                                   nm_options *options, nm_backend *backend, bool with_grads, nm_error *err)
{
    const nm_train_config *train = nm_options_find(options, "train");
    const nm_stack_options *model = nm_options_find(options, "model");
    nm_schedule schedule;
    *loaded = (nm_loaded_model){.options = options,
                                .task = {.type = task,
                                         .options = options,
                                         .config = nm_options_find(options, "data"),
                                         .seed = (uint64_t)train->seed,
                                         .kept_entries_of = *model->init_from ? file_path : NULL,
                                         .max_tokens = train->max_tokens}};
    nm_status status = task->open(&loaded->task, err);
    NM_THEN(status, nm_schedule_of_task(&schedule, &loaded->task, err));
    NM_THEN(status, build_loaded(loaded, file_path, backend, with_grads, err));
    NM_THEN(status, nm_loaded_model_change(loaded, file_path, err));
    if (status != NM_OK)
        nm_loaded_model_close(loaded);
    return status;
}

nm_status nm_loaded_model_open_run_on_cpu(nm_loaded_model *loaded, const char *file_path,
                                          const nm_task_type *task, nm_options *options, int32_t threads,
                                          nm_error *err)
{
    const nm_backend_options cpu = {.name = "cpu", .threads = threads};
    nm_backend *backend;
    nm_status status = nm_backend_create(&backend, &cpu, err);
    if (status == NM_OK)
        status = nm_loaded_model_open_run(loaded, file_path, task, options, backend, false, err);
    else
        nm_options_free(options);
    return own(loaded, backend, status);
}

void nm_loaded_model_close(nm_loaded_model *loaded)
{
    nm_model_free(loaded->model);
    if (loaded->task.type)
        loaded->task.type->close(&loaded->task);
    nm_options_free(loaded->options);
    nm_safetensors_close(loaded->file);
    nm_backend_free(loaded->own);
    *loaded = (nm_loaded_model){0};
}
