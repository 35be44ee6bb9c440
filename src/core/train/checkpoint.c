#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "train/train_options.h"

char *nm_model_path(const char *path)
{
    static const char *const candidates[] = {"best.safetensors", "last.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        char *inside = nm_path_join(path, candidates[i]);
        if (nm_file_may_exist(inside))
            return inside;
        free(inside);
    }
    return nm_duplicate(path);
}

static int is_checkpoint(const struct dirent *entry)
{
    const size_t digits = strspn(entry->d_name, "0123456789");
    return digits && !strcmp(entry->d_name + digits, ".safetensors");
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

nm_status nm_checkpoint_list(const char *run, char ***paths, size_t *n, nm_error *err)
{
    NM_AUTO_FREE struct dirent **entries = NULL;
    NM_AUTO_FREE char *folder = nm_path_join(run, "checkpoints");
    const int found = scandir(folder, &entries, is_checkpoint, compare_names); /* updates of eight digits */
    const bool missing = found < 0 && (errno == ENOENT || errno == ENOTDIR);
    nm_status status = NM_OK;
    *paths = NULL;
    *n = found > 0 ? (size_t)found : 0;
    if (found < 0 && !missing)
        status = nm_fail(err, nm_file_error_status(errno), "%s: %s", folder, strerror(errno));
    if (*n)
        *paths = nm_allocate(*n * sizeof **paths);
    for (size_t i = 0; i < *n; i++) {
        (*paths)[i] = nm_path_join(folder, entries[i]->d_name);
        free(entries[i]);
    }
    return status;
}

void nm_checkpoint_list_free(char **paths, size_t n)
{
    nm_free_list(paths, n);
}

/* Without origins, which differ between an uninterrupted run and a resumed one. */
static void add_config(nm_safetensors_writer *writer, const nm_options *options, const nm_task_type *task)
{
    NM_AUTO_FREE char *config = NULL;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&config, &bytes);
    /* the sections of a model; not [run] */
    NM_AUTO(nm_options_release) nm_options *like = nm_options_create();
    nm_train_options_add(like, task);
    nm_options_write_values(options, like, stream);
    nm_text_stream_close(stream);
    nm_safetensors_add_metadata(writer, "config", config);
}

static void add_texts(nm_safetensors_writer *writer, const nm_options *options, const nm_task *task,
                      int64_t update)
{
    add_config(writer, options, task->type);
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, update);
    nm_safetensors_add_metadata(writer, "update", text);
    nm_safetensors_add_metadata(writer, "norma", NORMA_VERSION);
    nm_safetensors_add_metadata(writer, "task", task->type->name);
    task->type->save(task, writer);
}

/* Writes the file if status is NM_OK; frees the writer in every case. */
static nm_status finish(nm_safetensors_writer *writer, nm_status status, const char *path, nm_error *err)
{
    if (status == NM_OK)
        return nm_safetensors_finish(writer, path, err);
    nm_safetensors_abandon(writer);
    return nm_error_prefix(err, "%s", path);
}

nm_status nm_checkpoint_write(const char *path, const nm_model *model, const nm_task *task, int64_t update,
                              nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    NM_AUTO(nm_host_copies_release) nm_host_copies copies = {0};
    nm_status status = nm_model_file_add(writer, model, NM_WEIGHTS_FLOAT, &copies, err);
    add_texts(writer, model->options, task, update);
    return finish(writer, status, path, err);
}

/* Texts of the task that are stored as bytes and not as metadata: SentencePiece models, the tokens that may
 * be output. No parameter has this type. */
static void copy_byte_tensors(nm_safetensors_writer *writer, const nm_safetensors *file)
{
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *t = nm_safetensors_at(file, i);
        if (t->type == NM_TENSOR_U8)
            nm_safetensors_add(writer, t->name, t->type, t->rank, t->shape, t->data);
    }
}

nm_status nm_checkpoint_rewrite(const char *path, const nm_model *model, const nm_task_type *task,
                                nm_weight_format format, const nm_safetensors *like, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    NM_AUTO(nm_host_copies_release) nm_host_copies copies = {0};
    nm_status status = nm_model_file_add(writer, model, format, &copies, err);
    nm_safetensors_copy_metadata(writer, like);
    copy_byte_tensors(writer, like);
    add_config(writer, model->options, task);
    return finish(writer, status, path, err);
}
