/* Saving and resuming. A checkpoint consists of three files: checkpoints/N.state.safetensors (optimizer state
 * and nm_train_state) is written first, then its manifest, N.intoto.json; N.safetensors (the model) gets its
 * name last, so that a model implies a complete checkpoint. last.safetensors is a link to the newest
 * model. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "train/run_config.h"
#include "train/trainer_private.h"

static char *checkpoint_path(const nm_trainer *trainer, int64_t update, const char *suffix)
{
    return nm_format("%s/checkpoints/%08" PRId64 ".%s", trainer->folder, update, suffix);
}

enum { FINGERPRINT_BYTES = 17 };

static void format_fingerprint(char text[FINGERPRINT_BYTES], uint64_t fingerprint)
{
    snprintf(text, FINGERPRINT_BYTES, "%016" PRIx64, fingerprint);
}

/* A moment in host memory; without elements if the optimizer does not have it. */
static const void *moment(nm_host_copies *copies, nm_backend *backend, const void *device, size_t n)
{
    return device ? nm_host_copies_add(copies, backend, device, n * nm_dtype_bytes(backend->dtype)) : "";
}

static nm_status write_state(nm_trainer *trainer, const char *path, nm_error *err)
{
    nm_safetensors_writer *writer = nm_safetensors_begin();
    NM_AUTO(nm_host_copies_release) nm_host_copies copies = {0};
    const nm_optimizer *optimizer = &trainer->optimizer;
    const int64_t n_m = (int64_t)optimizer->n_whole_m, n_v = (int64_t)optimizer->n_whole_v;
    nm_tensor_type type = nm_model_file_dtype(trainer->backend);
    const void *m = moment(&copies, trainer->backend, optimizer->whole_m, optimizer->n_whole_m);
    const void *v = moment(&copies, trainer->backend, optimizer->whole_v, optimizer->n_whole_v);
    nm_safetensors_add(writer, "optimizer.m", type, 1, &n_m, m);
    nm_safetensors_add(writer, "optimizer.v", type, 1, &n_v, v);
    const int64_t n_ema = trainer->ema.values ? (int64_t)trainer->model->params.n_elements : 0;
    if (n_ema)
        nm_safetensors_add(writer, "ema", type, 1, &n_ema,
                           moment(&copies, trainer->backend, trainer->ema.values, (size_t)n_ema));
    nm_workers_write(&trainer->workers, writer, type);
    nm_train_state_write(&trainer->state, writer);
    char text[FINGERPRINT_BYTES];
    format_fingerprint(text, trainer->task.fingerprint);
    nm_safetensors_add_metadata(writer, "data", text);
    format_fingerprint(text, trainer->task.valid_fingerprint);
    nm_safetensors_add_metadata(writer, "valid_data", text);
    nm_safetensors_add_metadata(writer, "level", nm_backend_training_level(trainer->backend));
    nm_safetensors_add_metadata(writer, "configuration", trainer->config_text);
    return nm_safetensors_finish(writer, path, err);
}

static int compare_descending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Updates of the checkpoints, newest first; the caller frees *updates. NM_IO if the folder cannot be read,
 * which does not mean that it is empty. */
static nm_status list_checkpoints(const nm_trainer *trainer, int64_t **updates, size_t *n, nm_error *err)
{
    size_t capacity = 0;
    *updates = NULL;
    *n = 0;
    NM_AUTO_FREE char *folder = nm_path_join(trainer->folder, "checkpoints");
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (errno = 0, entry = readdir(dir)) != NULL) {
        char *end;
        int64_t update = strtoll(entry->d_name, &end, 10);
        if (end == entry->d_name || strcmp(end, ".safetensors"))
            continue;
        NM_GROW(*updates, *n, capacity);
        (*updates)[(*n)++] = update;
    }
    nm_status status =
        errno || !dir ? nm_fail(err, nm_file_error_status(errno), "%s: %s", folder, strerror(errno)) : NM_OK;
    if (dir)
        closedir(dir);
    if (*n)
        qsort(*updates, *n, sizeof **updates, compare_descending);
    return status;
}

static void remove_checkpoint(const nm_trainer *trainer, int64_t update)
{
    NM_AUTO_FREE char *model = checkpoint_path(trainer, update, "safetensors");
    NM_AUTO_FREE char *state = checkpoint_path(trainer, update, "state.safetensors");
    NM_AUTO_FREE char *manifest = nm_manifest_path(trainer->folder, update);
    unlink(model); /* first, because a state without a model is not a checkpoint */
    unlink(state);
    unlink(manifest);
}

/* Removes old checkpoints (train.keep_last). If the folder cannot be listed they are kept until the next
 * save. */
static void remove_old(const nm_trainer *trainer)
{
    size_t n;
    NM_AUTO_FREE int64_t *updates = NULL;
    nm_status status = list_checkpoints(trainer, &updates, &n, NM_IGNORED);
    for (size_t i = (size_t)trainer->config->keep_last; status == NM_OK && i < n; i++)
        if (updates[i] || !trainer->config->save_initial)
            remove_checkpoint(trainer, updates[i]);
}

/* Renames a file of a damaged checkpoint to "NAME.damaged", or "NAME.damaged.2" and so on if that exists. */
static nm_status set_aside(const nm_trainer *trainer, int64_t update, const char *suffix, nm_error *err)
{
    char *path = checkpoint_path(trainer, update, suffix), *damaged = nm_format("%s.damaged", path);
    bool found;
    nm_status status = nm_file_find(damaged, &found, err);
    for (int i = 2; status == NM_OK && found; i++) {
        free(damaged);
        damaged = nm_format("%s.damaged.%d", path, i);
        status = nm_file_find(damaged, &found, err);
    }
    if (status == NM_OK && rename(path, damaged) && errno != ENOENT)
        status = nm_fail(err, nm_file_error_status(errno), "%s: cannot be renamed to %s: %s", path, damaged,
                         strerror(errno));
    NM_FREE(path, damaged);
    return status;
}

/* Renames the damaged checkpoints, which are newer than the loaded one: otherwise they would count as the
 * newest ones when old checkpoints are removed, and their models could be paired with states that are written
 * later. Removes temporary files. */
static nm_status clean_up(const nm_trainer *trainer, const int64_t *updates, size_t n_damaged, nm_error *err)
{
    for (size_t i = 0; i < n_damaged; i++) {
        /* The model first: only a pair with a model counts as complete. */
        NM_TRY(set_aside(trainer, updates[i], "safetensors", err));
        NM_TRY(set_aside(trainer, updates[i], "state.safetensors", err));
        NM_TRY(set_aside(trainer, updates[i], "intoto.json", err));
    }
    NM_AUTO_FREE char *checkpoints = nm_path_join(trainer->folder, "checkpoints");
    nm_folder_remove_temporaries(checkpoints);
    nm_folder_remove_temporaries(trainer->folder);
    return NM_OK;
}

static nm_status write_manifest(nm_trainer *trainer, const char *model, const char *state, nm_error *err)
{
    nm_manifest m = {.update = trainer->state.update,
                     .log_bytes = trainer->state.log_bytes,
                     .version = NORMA_VERSION,
                     .previous = trainer->chain[trainer->chain[0].update == trainer->state.update]};
    NM_TRY(nm_digest_of_file(model, m.model, err));
    NM_TRY(nm_digest_of_file(state, m.state, err));
    NM_TRY(nm_log_digest(trainer, m.log_bytes, m.log, err));
    nm_digest_of_text(trainer->config_text, m.config);
    format_fingerprint(m.data, trainer->task.fingerprint);
    format_fingerprint(m.valid_data, trainer->task.valid_fingerprint);
    nm_build_id(m.build);
    snprintf(m.level, sizeof m.level, "%s", nm_backend_training_level(trainer->backend));
    NM_AUTO_FREE char *path = nm_manifest_path(trainer->folder, m.update);
    nm_status status = nm_manifest_write(&m, path, err);
    trainer->chain[0].update = m.update;
    trainer->chain[1] = m.previous;
    NM_THEN(status, nm_digest_of_file(path, trainer->chain[0].digest, err));
    return status;
}

/* The model gets its name last: it implies a complete checkpoint. Its temporary name is one that clean_up
 * removes. */
static nm_status write_checkpoint(nm_trainer *trainer, const char *model, nm_error *err)
{
    const int64_t update = trainer->state.update;
    NM_AUTO_FREE char *state = checkpoint_path(trainer, update, "state.safetensors"),
                      *unnamed = nm_format("%s.%08x.new", model, (unsigned)update);
    /* A checkpoint that is written again is without a manifest until the new one is complete: otherwise a
     * failure in between would leave a manifest of other files. */
    NM_AUTO_FREE char *manifest = nm_manifest_path(trainer->folder, update);
    unlink(manifest);
    NM_TRY(write_state(trainer, state, err));
    NM_TRY(nm_checkpoint_write(unnamed, trainer->model, &trainer->task, update, err));
    NM_TRY(write_manifest(trainer, unnamed, state, err));
    return nm_file_rename(unnamed, model, err);
}

nm_status nm_trainer_save(nm_trainer *trainer, nm_error *err)
{
    NM_AUTO_FREE char *model = checkpoint_path(trainer, trainer->state.update, "safetensors"),
                      *last = nm_path_join(trainer->folder, "last.safetensors");
    nm_status status = nm_log_sync(trainer, err);
    if (status == NM_OK && !trainer->unchanged)
        status = write_checkpoint(trainer, model, err);
    if (status == NM_OK && !trainer->unchanged && trainer->config_pending) {
        status = nm_run_config_write(trainer->config_text, trainer->folder, err);
        trainer->config_pending = status != NM_OK;
    }
    NM_THEN(status, nm_file_link(model, last, err));
    if (status == NM_OK)
        remove_old(trainer);
    return status;
}

nm_status nm_trainer_save_best(nm_trainer *trainer, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(trainer->folder, "best.safetensors");
    return nm_checkpoint_write(path, trainer->model, &trainer->task, trainer->state.update, err);
}

/* Checked before the model, whose dictionary depends on the training data. */
static nm_status check_train_data(const nm_trainer *trainer, const nm_safetensors *file, nm_error *err)
{
    char text[FINGERPRINT_BYTES];
    const char *data = nm_safetensors_metadata(file, "data");
    format_fingerprint(text, trainer->task.fingerprint);
    if (data && !strcmp(data, text))
        return NM_OK;
    return nm_fail(
        err, NM_MISMATCH,
        "%s: the run was trained on other data (fingerprint %s, now %s); restore the training data "
        "or choose another folder",
        nm_safetensors_path(file), data ? data : "none", text);
}

/* The best checkpoint, early stopping and some schedules compare validations of all sessions. checked_update:
 * of the last validation; 0: none. States of earlier versions have no fingerprint of the validation data. */
static nm_status check_valid_data(const nm_trainer *trainer, const nm_safetensors *file,
                                  int64_t checked_update, nm_error *err)
{
    char text[FINGERPRINT_BYTES];
    const char *valid = nm_safetensors_metadata(file, "valid_data");
    format_fingerprint(text, trainer->task.valid_fingerprint);
    if (!valid || !checked_update || !strcmp(valid, text))
        return NM_OK;
    return nm_fail(err, NM_MISMATCH,
                   "%s: the run was validated on other data (fingerprint %s, now %s), so its validations "
                   "cannot be compared; restore the validation data or choose another folder",
                   nm_safetensors_path(file), valid, text);
}

/* The parameters are those of the checkpoint. */
static nm_status load_ema(nm_trainer *trainer, const nm_safetensors *file, nm_error *err)
{
    const nm_safetensor *values;
    const size_t n = trainer->model->params.n_elements;
    if (!trainer->ema.values)
        return NM_OK;
    if (!nm_safetensors_find(file, "ema")) {
        nm_trainer_message(trainer, "train.ema_decay is new: the average starts at the current parameters");
        nm_ema_start(&trainer->ema);
        return NM_OK;
    }
    NM_TRY(nm_safetensors_expect(file, "ema", nm_model_file_dtype(trainer->backend), n, &values, err));
    nm_backend_upload(trainer->backend, trainer->ema.values, values->data,
                      n * nm_dtype_bytes(trainer->backend->dtype));
    return NM_OK;
}

static nm_status load_state(nm_trainer *trainer, const nm_safetensors *file, nm_error *err)
{
    nm_tensor_type type = nm_model_file_dtype(trainer->backend);
    nm_train_state loaded = trainer->state;
    NM_TRY(nm_train_state_read(&loaded, file, err));
    const char *level = nm_safetensors_metadata(file, "level"),
               *current = nm_backend_training_level(trainer->backend);
    if (level && strcmp(level, current))
        nm_trainer_message(trainer,
                           "warning: the checkpoint was computed at CPU level %s, this session computes at "
                           "%s: weights will not be bitwise identical to those of an uninterrupted run",
                           level, current);
    NM_TRY(check_valid_data(trainer, file, loaded.checked_update, err));
    const nm_optimizer *optimizer = &trainer->optimizer;
    const int64_t kind = optimizer->type->state;
    if (loaded.optimizer == kind) {
        /* Files of earlier versions also have moments that the type does not have. */
        const nm_safetensor *m = NULL, *v = NULL;
        if (optimizer->m)
            NM_TRY(nm_safetensors_expect(file, "optimizer.m", type, optimizer->n_whole_m, &m, err));
        if (optimizer->v)
            NM_TRY(nm_safetensors_expect(file, "optimizer.v", type, optimizer->n_whole_v, &v, err));
        nm_optimizer_load(&trainer->optimizer, m ? m->data : NULL, v ? v->data : NULL);
    } else {
        nm_trainer_message(trainer, "warning: optim.name has changed: the optimizer state starts from zero");
    }
    NM_TRY(load_ema(trainer, file, err));
    trainer->state = loaded;
    trainer->state.optimizer = kind;
    trainer->schedule.state = trainer->state.schedule;
    return NM_OK;
}

/* Whether a checkpoint of the run has a manifest. Those of version 0.1 have none. */
static bool any_has_manifest(const nm_trainer *trainer, const int64_t *updates, size_t n)
{
    bool found = false;
    for (size_t i = 0; i < n && !found; i++) {
        NM_AUTO_FREE char *path = nm_manifest_path(trainer->folder, updates[i]);
        found = nm_file_may_exist(path);
    }
    return found;
}

/* Compares the manifest with the files. *found: whether there is one. */
static nm_status check_manifest(nm_trainer *trainer, int64_t update, nm_manifest *manifest, bool *found,
                                nm_error *err)
{
    NM_AUTO_FREE char *path = nm_manifest_path(trainer->folder, update);
    nm_status status = nm_manifest_read(manifest, path, found, err);
    if (status == NM_OK && *found)
        status = nm_manifest_check(manifest, trainer->folder, update, err);
    trainer->chain[0] = (nm_manifest_link){.update = update};
    trainer->chain[1] = manifest->previous;
    if (status == NM_OK && *found)
        status = nm_digest_of_file(path, trainer->chain[0].digest, err);
    return status;
}

/* The updates do not depend on the log, so that a run with another one may continue. */
static void check_log(nm_trainer *trainer, const nm_manifest *manifest)
{
    char actual[NM_DIGEST_TEXT];
    if (nm_log_digest(trainer, manifest->log_bytes, actual, NM_IGNORED) != NM_OK ||
        strcmp(actual, manifest->log))
        nm_trainer_message(trainer,
                           "warning: %s/log.jsonl: its first %" PRId64 " bytes are not the log of checkpoint "
                           "%" PRId64 ": it is not the record of this run",
                           trainer->folder, manifest->log_bytes, manifest->update);
}

/* A file of another checkpoint with this name. */
static nm_status check_update(const nm_trainer *trainer, const nm_safetensors *model, int64_t update,
                              nm_error *err)
{
    const char *text = nm_safetensors_metadata(model, "update");
    const int64_t of_model = text ? strtoll(text, NULL, 10) : update;
    if (of_model != update)
        return nm_fail(err, NM_FORMAT, "%s: is of update %" PRId64, nm_safetensors_path(model), of_model);
    if (trainer->state.update != update)
        return nm_fail(err, NM_FORMAT, "the training state is of update %" PRId64, trainer->state.update);
    return NM_OK;
}

/* Loads a checkpoint. NM_FORMAT if the contents of a file are invalid, or if the state is missing. */
static nm_status load_pair(nm_trainer *trainer, int64_t update, nm_error *err)
{
    NM_AUTO_FREE char *model_path = checkpoint_path(trainer, update, "safetensors"),
                      *state_path = checkpoint_path(trainer, update, "state.safetensors");
    NM_AUTO(nm_safetensors_release) nm_safetensors *model = NULL;
    NM_AUTO(nm_safetensors_release) nm_safetensors *state = NULL;
    nm_status status = NM_OK;
    if (access(state_path, F_OK) && errno == ENOENT)
        status = nm_fail(err, NM_FORMAT, "%s: missing", state_path);
    NM_THEN(status, nm_safetensors_open(&model, model_path, err));
    NM_THEN(status, nm_safetensors_open(&state, state_path, err));
    NM_THEN(status, check_train_data(trainer, state, err));
    NM_THEN(status, nm_model_file_load(model, trainer->model, err));
    NM_THEN(status, load_state(trainer, state, err));
    NM_THEN(status, check_update(trainer, model, update, err));
    NM_THEN(status, nm_workers_read(&trainer->workers, &trainer->model->params, state,
                                    nm_model_file_dtype(trainer->backend), err));
    return status;
}

nm_status nm_trainer_has_checkpoint(const nm_trainer *trainer, bool *has, nm_error *err)
{
    size_t n;
    NM_AUTO_FREE int64_t *updates = NULL;
    nm_status status = list_checkpoints(trainer, &updates, &n, err);
    *has = n > 0;
    return status;
}

/* The files keep their names: without a checkpoint, the next start would begin the run anew and replace its
 * log. */
static nm_status all_are_damaged(const nm_trainer *trainer, nm_error *err)
{
    NM_AUTO_FREE char *best = nm_path_join(trainer->folder, "best.safetensors");
    NM_AUTO_FREE char *remedy =
        nm_file_may_exist(best) ? nm_format("%s can be trained further with --tune in another folder", best)
                                : nm_format("train in another folder");
    return nm_fail(err, NM_FORMAT, "%s/checkpoints: no checkpoint can be used; %s", trainer->folder, remedy);
}

/* Loads a checkpoint that is what its manifest says. manifests: the run has some. */
static nm_status load_proven(nm_trainer *trainer, int64_t update, bool manifests, nm_error *err)
{
    nm_manifest manifest;
    bool found;
    NM_TRY(check_manifest(trainer, update, &manifest, &found, err));
    if (manifests && !found)
        return nm_fail(err, NM_FORMAT, "it has no manifest, which other checkpoints of the run have");
    NM_TRY(load_pair(trainer, update, err));
    if (found)
        check_log(trainer, &manifest);
    else
        nm_trainer_message(trainer,
                           "checkpoint %" PRId64
                           " has no manifest, as those of version 0.1: that its files belong "
                           "together is not proven",
                           update);
    return NM_OK;
}

/* best.safetensors is the model of its update (or its average, which cannot be restored): if it is missing or
 * another file, which gets another name, it becomes the model of this checkpoint again. */
static nm_status restore_best(nm_trainer *trainer, nm_error *err)
{
    const int64_t update = trainer->state.best_update;
    NM_AUTO_FREE char *best = nm_path_join(trainer->folder, "best.safetensors"),
                      *model = checkpoint_path(trainer, update, "safetensors"),
                      *path = nm_manifest_path(trainer->folder, update), *aside = nm_format("%s.other", best);
    nm_manifest manifest;
    char actual[NM_DIGEST_TEXT];
    nm_error why;
    bool found;
    if (!update || trainer->ema.values || !nm_file_may_exist(path)) {
        if (update && !nm_file_may_exist(best))
            nm_trainer_message(trainer, "warning: %s is missing until the next best validation", best);
        return NM_OK;
    }
    NM_TRY(nm_manifest_read(&manifest, path, &found, err));
    if (nm_digest_of_file(best, actual, &why) == NM_OK && !strcmp(actual, manifest.model))
        return NM_OK;
    NM_TRY(nm_manifest_check(&manifest, trainer->folder, update, err));
    nm_trainer_message(trainer, "warning: %s was not the model of update %" PRId64 " and is restored", best,
                       update);
    if (rename(best, aside) && errno != ENOENT)
        return nm_fail(err, nm_file_error_status(errno), "%s: %s", aside, strerror(errno));
    /* no link: who changes the best model would damage the checkpoint */
    NM_AUTO(nm_file_unmap) nm_file_map file = {0};
    NM_TRY(nm_file_map_open(&file, model, err));
    return nm_file_write(best, file.data, file.bytes, err);
}

/* A checkpoint is damaged only if its contents are invalid. After any other error (permissions, I/O, memory,
 * file descriptors) the newest checkpoint may be intact: the error is returned and no file is changed. */
nm_status nm_trainer_resume(nm_trainer *trainer, bool *found, nm_error *err)
{
    size_t n;
    NM_AUTO_FREE int64_t *updates = NULL;
    nm_status status = list_checkpoints(trainer, &updates, &n, err);
    *found = false;
    size_t i = 0;
    const bool manifests = any_has_manifest(trainer, updates, n);
    for (; i < n && !*found && (status == NM_OK || status == NM_FORMAT); i++) {
        status = load_proven(trainer, updates[i], manifests, err);
        /* A failed allocation inside the parser is also reported as NM_FORMAT: the contents are read
         * again. */
        if (status == NM_FORMAT)
            status = load_proven(trainer, updates[i], manifests, err);
        *found = status == NM_OK;
        if (status == NM_FORMAT)
            nm_trainer_message(trainer, "checkpoint %" PRId64 " is damaged: %s", updates[i], err->text);
    }
    NM_THEN(status, clean_up(trainer, updates, *found ? i - 1 : 0, err));
    NM_AUTO_FREE char *last = nm_path_join(trainer->folder, "last.safetensors");
    if (status == NM_FORMAT)
        return all_are_damaged(trainer, err);
    if (status == NM_OK && !n && nm_file_may_exist(last))
        nm_trainer_message(trainer, "warning: %s/checkpoints is empty: the run starts anew, and replaces %s",
                           trainer->folder, last);
    return status == NM_OK && *found ? restore_best(trainer, err) : status;
}
