/* RUN/log.jsonl: one JSON object per line, the source of every plot. A resumed run truncates the file to its length at the
 * checkpoint, so that it is the log of an uninterrupted run except for records of changes to the configuration, which the
 * next checkpoint makes permanent together with them. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "train/trainer_private.h"

static nm_status write_line(nm_trainer *trainer, json_t *object, nm_error *err)
{
    if (!trainer->log) { /* only rank 0 writes the log */
        json_decref(object);
        return NM_OK;
    }
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    int failed = !text || fprintf(trainer->log, "%s\n", text) < 0 || fflush(trainer->log);
    free(text);
    if (failed)
        return nm_fail(err, nm_file_error_status(errno), "%s/log.jsonl: writing failed: %s", trainer->folder,
                       strerror(errno));
    trainer->state.log_bytes = ftell(trainer->log);
    return NM_OK;
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

/* Adds host, start time and command line of this session. */
static void add_session(const nm_trainer *trainer, json_t *object)
{
    char host[256] = "", started[32];
    time_t now = time(NULL);
    struct tm utc;
    gethostname(host, sizeof host - 1);
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    json_object_set_new(object, "host", json_string(host));
    if (trainer->callbacks.command)
        json_object_set_new(object, "command", json_string(trainer->callbacks.command));
    json_object_set_new(object, "started", json_string(started));
}

/* Length of the layer's name, "enc.3" in "enc.3.ffn.norm"; 0 for a site outside layers. */
static size_t layer_prefix(const char *site)
{
    size_t stack = strcspn(site, ".");
    size_t digits = site[stack] ? strspn(site + stack + 1, "0123456789") : 0;
    return digits ? stack + 1 + digits : 0;
}

/* Number of layers that have a norm with these traits; 0: with any norm. */
static int64_t count_layers(const nm_params *params, unsigned traits)
{
    int64_t n = 0;
    for (size_t i = 0; i < params->n_norms; i++) {
        const char *site = params->norms[i]->site.name;
        size_t length = layer_prefix(site), k = 0;
        if (!length || (params->norms[i]->type->traits & traits) != traits)
            continue;
        while (k < i && ((params->norms[k]->type->traits & traits) != traits ||
                         layer_prefix(params->norms[k]->site.name) != length ||
                         strncmp(params->norms[k]->site.name, site, length)))
            k++;
        n += k == i;
    }
    return n;
}

static void add_hash(json_t *object, const char *key, uint64_t hash)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    json_object_set_new(object, key, json_string(text));
}

/* Written once, at the beginning of the run. */
static nm_status log_start(nm_trainer *trainer, nm_error *err)
{
    char device[256];
    nm_backend_describe(nm_trainer_backend(trainer), device, sizeof device);
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("start"));
    json_object_set_new(o, "update", json_integer(trainer->state.update));
    json_object_set_new(o, "norma", json_string(NORMA_VERSION));
    json_object_set_new(o, "compiler", json_string(COMPILER));
    json_object_set_new(o, "device", json_string(device));
    json_object_set_new(o, "precision", json_string(nm_trainer_backend(trainer)->bf16 ? "bf16" : "float"));
    json_object_set_new(o, "parameters",
                        json_integer((json_int_t)nm_params_learned(&trainer->model->params)));
    json_object_set_new(o, "layers", json_integer(count_layers(&trainer->model->params, 0)));
    json_object_set_new(o, "batch_layers",
                        json_integer(count_layers(&trainer->model->params, NM_USES_BATCH)));
    json_object_set_new(o, "step_mib", json_integer((json_int_t)(nm_trainer_peak_bytes(trainer) >> 20)));
    json_object_set_new(o, "data_size", json_integer((json_int_t)trainer->task.size));
    json_object_set_new(o, "size_unit", json_string(trainer->task.type->size_unit));
    char build[NM_BUILD_TEXT];
    nm_build_id(build);
    json_object_set_new(o, "build", json_string(build));
    add_hash(o, "data", trainer->task.fingerprint);
    add_hash(o, "valid_data", trainer->task.valid_fingerprint);
    add_hash(o, "weights", nm_trainer_weights_hash(trainer));
    if (trainer->init_from)
        json_object_set(o, "init_from", trainer->init_from);
    if (trainer->comm->size > 1)
        json_object_set_new(o, "ranks", json_integer(trainer->comm->size));
    add_session(trainer, o);
    return write_line(trainer, o, err);
}

nm_status nm_log_resume(nm_trainer *trainer, json_t *changes, nm_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("resume"));
    json_object_set_new(o, "update", json_integer(trainer->state.update));
    json_object_set_new(o, "norma", json_string(NORMA_VERSION));
    json_object_set_new(o, "changed", changes);
    add_session(trainer, o);
    return write_line(trainer, o, err);
}

nm_status nm_log_sync(nm_trainer *trainer, nm_error *err)
{
    if (!trainer->log || (!fflush(trainer->log) && !fsync(fileno(trainer->log))))
        return NM_OK;
    return nm_fail(err, nm_file_error_status(errno), "%s/log.jsonl: writing failed: %s", trainer->folder,
                   strerror(errno));
}

nm_status nm_log_weights(nm_trainer *trainer, nm_error *err)
{
    if (!trainer->log)
        return NM_OK;
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("weights"));
    json_object_set_new(o, "update", json_integer(trainer->state.update));
    add_hash(o, "xxh3", nm_trainer_weights_hash(trainer));
    return write_line(trainer, o, err);
}

nm_status nm_log_digest(nm_trainer *trainer, int64_t bytes, char text[NM_DIGEST_TEXT], nm_error *err)
{
    char *path = nm_path_join(trainer->folder, "log.jsonl");
    if (bytes < trainer->digested || !trainer->digested) {
        nm_digest_init(&trainer->log_digest);
        trainer->digested = 0;
    }
    nm_status status = nm_digest_add_part(&trainer->log_digest, path, trainer->digested, bytes, err);
    trainer->digested = status == NM_OK ? bytes : 0;
    if (status == NM_OK)
        nm_digest_text(&trainer->log_digest, text);
    free(path);
    return status;
}

/* Number of bytes of complete lines among the first `length` bytes. */
static size_t whole_lines(const char *log, size_t length)
{
    while (length && log[length - 1] != '\n')
        length--;
    return length;
}

nm_status nm_log_open(nm_trainer *trainer, nm_error *err)
{
    char *path = nm_path_join(trainer->folder, "log.jsonl"), *text = NULL;
    size_t bytes = 0, length = 0;
    bool found;
    nm_status status = nm_file_find(path, &found, err);
    if (status == NM_OK && found)
        status = nm_file_read(path, &text, &bytes, err);
    if (status == NM_OK && (int64_t)bytes < trainer->state.log_bytes)
        nm_trainer_message(trainer, "warning: %s has %zu bytes, at the checkpoint it had %lld", path, bytes,
                           (long long)trainer->state.log_bytes);
    if (status == NM_OK && text)
        length = whole_lines(text, (size_t)fmin((double)bytes, (double)trainer->state.log_bytes));
    free(text);
    if (status == NM_OK) {
        trainer->log = fopen(path, bytes ? "r+b" : "w+b");
        if (!trainer->log || ftruncate(fileno(trainer->log), (off_t)length) ||
            fseek(trainer->log, 0, SEEK_END))
            status = nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno));
        else
            trainer->state.log_bytes = ftell(trainer->log);
    }
    free(path);
    return status == NM_OK && !length ? log_start(trainer, err) : status;
}

/* Adds the load of the machine since the last record. */
static void add_load(nm_trainer *trainer, json_t *object)
{
    double others = nm_load_meter_read(&trainer->load);
    json_object_set_new(object, "load", nm_json_number(nm_load_average()));
    if (isfinite(others))
        json_object_set_new(object, "other_cores", json_real(round(1e3 * others) / 1e3));
}

nm_status nm_log_progress(nm_trainer *trainer, const nm_progress *p, nm_error *err)
{
    if (!trainer->log) /* only rank 0 writes the log */
        return NM_OK;
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("train"));
    json_object_set_new(o, "update", json_integer(p->update));
    json_object_set_new(o, "epoch", json_integer(p->epoch));
    json_object_set_new(o, "loss", nm_json_number(p->loss));
    json_object_set_new(o, "nll", nm_json_number(p->nll));
    json_object_set_new(o, "penalty", nm_json_number(p->penalty));
    json_object_set_new(o, "lr", nm_json_number(p->lr));
    if (isfinite(p->position))
        json_object_set_new(o, "schedule_position", nm_json_number(p->position));
    json_object_set_new(o, "grad_norm", nm_json_number(p->grad_norm));
    if (p->backward_state > 0)
        json_object_set_new(o, "backward_state", nm_json_number(p->backward_state));
    json_object_set_new(o, "tokens", json_integer(p->tokens));
    json_object_set_new(o, "tokens_per_second", nm_json_number(p->tokens_per_second));
    json_object_set_new(o, "seconds", nm_json_number(p->seconds));
    add_load(trainer, o);
    if (trainer->comm->size > 1) {
        json_object_set_new(o, "exchange_seconds", nm_json_number(p->exchange_seconds));
        json_object_set_new(o, "exchange_bytes", json_integer(p->exchange_bytes));
    }
    return write_line(trainer, o, err);
}

static nm_status log_samples(nm_trainer *trainer, const char *samples, nm_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("samples"));
    json_object_set_new(o, "update", json_integer(trainer->state.update));
    json_object_set_new(o, "text", json_string(samples));
    return write_line(trainer, o, err);
}

nm_status nm_log_objects(nm_trainer *trainer, json_t *objects, nm_error *err)
{
    nm_status status = NM_OK;
    for (size_t i = 0; i < json_array_size(objects) && status == NM_OK; i++)
        status = write_line(trainer, json_incref(json_array_get(objects, i)), err);
    json_decref(objects);
    return status;
}

nm_status nm_log_validation(nm_trainer *trainer, const nm_validation *v, nm_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("valid"));
    json_object_set_new(o, "update", json_integer(v->update));
    json_object_set_new(o, "epoch", json_integer(v->epoch));
    json_object_set_new(o, "loss", nm_json_number(v->loss));
    json_object_set_new(o, "nll", nm_json_number(v->nll));
    json_object_set_new(o, "perplexity", nm_json_number(v->perplexity));
    if (isfinite(v->batch_nll)) {
        json_object_set_new(o, "batch_loss", nm_json_number(v->batch_loss));
        json_object_set_new(o, "batch_nll", nm_json_number(v->batch_nll));
    }
    if (v->masked)
        json_object_set_new(o, "masked_targets", json_integer(v->masked));
    if (v->score.name) {
        json_object_set_new(o, v->score.name, nm_json_number(v->score.value));
        json_object_set_new(o, "signature", json_string(v->score.signature));
    }
    json_object_set_new(o, "best", json_boolean(v->best));
    json_object_set_new(o, "seconds", nm_json_number(trainer->state.seconds));
    add_load(trainer, o);
    NM_TRY(write_line(trainer, o, err));
    return v->score.samples ? log_samples(trainer, v->score.samples, err) : NM_OK;
}
