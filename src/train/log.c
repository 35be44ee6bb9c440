/* RUN/log.jsonl: one object per report; the source of every plot. On resume the file is cut where the checkpoint was
 * made, so that it reads as if the run had never stopped. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "train/trainer_private.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static nm_status write_line(nm_trainer *trainer, json_t *object, nm_error *err)
{
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    int failed = !text || fprintf(trainer->log, "%s\n", text) < 0 || fflush(trainer->log);
    free(text);
    if (failed)
        return nm_fail(err, NM_IO, "%s/log.jsonl: writing failed: %s", trainer->folder, strerror(errno));
    trainer->state.log_bytes = ftell(trainer->log);
    return NM_OK;
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

/* What the run stands on. Only at its very beginning: the log reads as if there had been no stop. */
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
    json_object_set_new(o, "parameters",
                        json_integer((json_int_t)nm_params_learned(&trainer->model->params)));
    json_object_set_new(o, "step_mib", json_integer((json_int_t)(nm_trainer_peak_bytes(trainer) >> 20)));
    return write_line(trainer, o, err);
}

nm_status nm_log_open(nm_trainer *trainer, nm_error *err)
{
    char *path = nm_path_join(trainer->folder, "log.jsonl");
    nm_status status = NM_OK;
    trainer->log = fopen(path, nm_file_exists(path) ? "r+b" : "w+b");
    if (!trainer->log || ftruncate(fileno(trainer->log), trainer->state.log_bytes) ||
        fseek(trainer->log, 0, SEEK_END))
        status = nm_fail(err, NM_IO, "%s: %s", path, strerror(errno));
    free(path);
    return status == NM_OK && !trainer->state.log_bytes ? log_start(trainer, err) : status;
}

nm_status nm_log_progress(nm_trainer *trainer, const nm_progress *p, nm_error *err)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string("train"));
    json_object_set_new(o, "update", json_integer(p->update));
    json_object_set_new(o, "epoch", json_integer(p->epoch));
    json_object_set_new(o, "loss", number(p->loss));
    json_object_set_new(o, "nll", number(p->nll));
    json_object_set_new(o, "penalty", number(p->penalty));
    json_object_set_new(o, "lr", number(p->lr));
    json_object_set_new(o, "grad_norm", number(p->grad_norm));
    if (p->backward_state > 0)
        json_object_set_new(o, "backward_state", number(p->backward_state));
    json_object_set_new(o, "tokens", json_integer(p->tokens));
    json_object_set_new(o, "tokens_per_second", number(p->tokens_per_second));
    json_object_set_new(o, "seconds", number(p->seconds));
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
    json_object_set_new(o, "loss", number(v->loss));
    json_object_set_new(o, "nll", number(v->nll));
    json_object_set_new(o, "perplexity", number(v->perplexity));
    if (isfinite(v->batch_nll)) {
        json_object_set_new(o, "batch_loss", number(v->batch_loss));
        json_object_set_new(o, "batch_nll", number(v->batch_nll));
    }
    if (v->masked)
        json_object_set_new(o, "masked_targets", json_integer(v->masked));
    if (v->score.name) {
        json_object_set_new(o, v->score.name, number(v->score.value));
        json_object_set_new(o, "signature", json_string(v->score.signature));
    }
    json_object_set_new(o, "best", json_boolean(v->best));
    json_object_set_new(o, "seconds", number(trainer->state.seconds));
    NM_TRY(write_line(trainer, o, err));
    return v->score.samples ? log_samples(trainer, v->score.samples, err) : NM_OK;
}
