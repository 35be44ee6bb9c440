/* RUN/log.jsonl: one JSON object per line, the source of every plot. A resumed run truncates the file to its
 * length at the checkpoint, so that it is the log of an uninterrupted run except for records of changes to
 * the configuration, which the next checkpoint makes permanent together with them. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
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
    NM_AUTO_FREE char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    int failed = !text || fprintf(trainer->log, "%s\n", text) < 0 || fflush(trainer->log);
    if (failed)
        return nm_fail(err, nm_file_error_status(errno), "%s/log.jsonl: writing failed: %s", trainer->folder,
                       strerror(errno));
    trainer->state.log_bytes = ftell(trainer->log);
    return NM_OK;
}

#define LOG_SESSION(F)                                                                                       \
    F(text, host, "Host name")                                                                               \
    F(text, command, "Command line", "command?")                                                             \
    F(text, started, "Start of the session in UTC")

#define LOG_START(F)                                                                                         \
    F(text, type, "start")                                                                                   \
    F(int, update, "0")                                                                                      \
    F(text, norma, "Version of Norma")                                                                       \
    F(text, compiler, "Compiler")                                                                            \
    F(text, device, "Backend, CPU level and threads")                                                        \
    F(text, precision, "float or bf16")                                                                      \
    F(int, parameters, "Number of learned parameters")                                                       \
    F(int, layers, "Number of layers of all stacks")                                                         \
    F(int, batch_layers, "Number of layers with a norm that uses batch statistics")                          \
    F(int, step_mib, "Memory of the largest step, MiB")                                                      \
    F(int, data_size, "Size of the training data in units of size_unit")                                     \
    F(text, size_unit, "Sentence pairs, tokens, sentences or texts")                                         \
    F(text, build, "Build ID of the program")                                                                \
    F(hash, data, "Fingerprint of the training data")                                                        \
    F(hash, valid_data, "Fingerprint of the validation data")                                                \
    F(hash, weights, "XXH3-64 of the initial parameters")                                                    \
    F(json, init_from, "With model.init_from: the source and what was copied", "init_from?")                 \
    F(int, ranks, "Number of processes that train together, if several", "ranks?")                           \
    LOG_SESSION(F)
NM_RECORD(log_start_record, LOG_START)
static NM_FIELDS(log_start_record, LOG_START)

#define LOG_RESUME(F)                                                                                        \
    F(text, type, "resume")                                                                                  \
    F(int, update, "Update of the checkpoint")                                                               \
    F(text, norma, "Version of Norma")                                                                       \
    F(json, changed, "Changed options: `\"section.key\": {\"from\": OLD, \"to\": NEW}`, values as text")     \
    LOG_SESSION(F)
NM_RECORD(log_resume_record, LOG_RESUME)
static NM_FIELDS(log_resume_record, LOG_RESUME)

#define LOG_WEIGHTS(F)                                                                                       \
    F(text, type, "weights")                                                                                 \
    F(int, update, "Number of updates")                                                                      \
    F(hash, xxh3, "XXH3-64 of the parameters")
NM_RECORD(log_weights_record, LOG_WEIGHTS)
static NM_FIELDS(log_weights_record, LOG_WEIGHTS)

#define LOG_SAMPLES(F)                                                                                       \
    F(text, type, "samples")                                                                                 \
    F(int, update, "Number of updates")                                                                      \
    F(text, text, "A few inputs with outputs and references, as lines `label: text`")
NM_RECORD(log_samples_record, LOG_SAMPLES)
static NM_FIELDS(log_samples_record, LOG_SAMPLES)
static NM_FIELDS(nm_training_progress, NM_TRAINING_PROGRESS)
static NM_FIELDS(nm_training_validation, NM_TRAINING_VALIDATION)
static NM_FIELDS(nm_log_machine, NM_LOG_MACHINE)

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

/* Texts of this session. */
typedef struct session {
    char host[256], started[32];
} session;

static void describe_session(session *s)
{
    time_t now = time(NULL);
    struct tm utc;
    *s = (session){0};
    gethostname(s->host, sizeof s->host - 1);
    strftime(s->started, sizeof s->started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
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

/* Written once, at the beginning of the run. */
static nm_status log_start(nm_trainer *trainer, nm_error *err)
{
    const nm_params *params = &trainer->model->params;
    char device[256], build[NM_BUILD_TEXT];
    session now;
    describe_session(&now);
    nm_build_id(build);
    nm_backend_describe(nm_trainer_backend(trainer), device, sizeof device);
    const log_start_record record = {.type = "start",
                                     .update = trainer->state.update,
                                     .norma = NORMA_VERSION,
                                     .compiler = COMPILER,
                                     .device = device,
                                     .precision = nm_trainer_backend(trainer)->bf16 ? "bf16" : "float",
                                     .parameters = (int64_t)nm_params_learned(params),
                                     .layers = count_layers(params, 0),
                                     .batch_layers = count_layers(params, NM_USES_BATCH),
                                     .step_mib = (int64_t)(nm_trainer_peak_bytes(trainer) >> 20),
                                     .data_size = (int64_t)trainer->task.size,
                                     .size_unit = trainer->task.type->size_unit,
                                     .build = build,
                                     .data = trainer->task.fingerprint,
                                     .valid_data = trainer->task.valid_fingerprint,
                                     .weights = nm_trainer_weights_hash(trainer),
                                     .init_from = json_incref(trainer->init_from),
                                     .ranks = trainer->comm->size > 1 ? trainer->comm->size : 0,
                                     .host = now.host,
                                     .command = trainer->callbacks.command,
                                     .started = now.started};
    return write_line(trainer, nm_record_json(log_start_record_fields(), &record), err);
}

nm_status nm_log_resume(nm_trainer *trainer, json_t *changes, nm_error *err)
{
    session now;
    describe_session(&now);
    const log_resume_record record = {.type = "resume",
                                      .update = trainer->state.update,
                                      .norma = NORMA_VERSION,
                                      .changed = changes,
                                      .host = now.host,
                                      .command = trainer->callbacks.command,
                                      .started = now.started};
    return write_line(trainer, nm_record_json(log_resume_record_fields(), &record), err);
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
    const log_weights_record record = {"weights", trainer->state.update, nm_trainer_weights_hash(trainer)};
    return write_line(trainer, nm_record_json(log_weights_record_fields(), &record), err);
}

nm_status nm_log_digest(nm_trainer *trainer, int64_t bytes, char text[NM_DIGEST_TEXT], nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(trainer->folder, "log.jsonl");
    if (bytes < trainer->digested || !trainer->digested) {
        nm_digest_init(&trainer->log_digest);
        trainer->digested = 0;
    }
    nm_status status = nm_digest_add_part(&trainer->log_digest, path, trainer->digested, bytes, err);
    trainer->digested = status == NM_OK ? bytes : 0;
    if (status == NM_OK)
        nm_digest_text(&trainer->log_digest, text);
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
    NM_AUTO_FREE char *path = nm_path_join(trainer->folder, "log.jsonl"), *text = NULL;
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
    if (status == NM_OK) {
        trainer->log = fopen(path, bytes ? "r+b" : "w+b");
        if (!trainer->log || ftruncate(fileno(trainer->log), (off_t)length) ||
            fseek(trainer->log, 0, SEEK_END))
            status = nm_fail(err, nm_file_error_status(errno), "%s: %s", path, strerror(errno));
        else
            trainer->state.log_bytes = ftell(trainer->log);
    }
    return status == NM_OK && !length ? log_start(trainer, err) : status;
}

static json_t *new_record(const char *type, const nm_field *fields, const void *values)
{
    json_t *o = json_object();
    json_object_set_new(o, "type", json_string(type));
    nm_record_add_json(o, fields, values);
    return o;
}

/* Adds the load of the machine since the last record. */
static void add_machine(nm_trainer *trainer, nm_log_machine *machine, json_t *object)
{
    machine->load = nm_load_average();
    machine->other_cores = round(1e3 * nm_load_meter_read(&trainer->load)) / 1e3;
    nm_record_add_json(object, nm_log_machine_fields(), machine);
}

nm_status nm_log_progress(nm_trainer *trainer, const nm_training_progress *progress, nm_log_machine *machine,
                          nm_error *err)
{
    if (!trainer->log) /* only rank 0 writes the log */
        return NM_OK;
    json_t *o = new_record("train", nm_training_progress_fields(), progress);
    add_machine(trainer, machine, o);
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

nm_status nm_log_validation(nm_trainer *trainer, const nm_training_validation *v, nm_error *err)
{
    nm_log_machine machine;
    nm_record_clear(nm_log_machine_fields(), &machine);
    json_t *o = new_record("valid", nm_training_validation_fields(), v);
    if (v->score_name)
        json_object_set_new(o, v->score_name, nm_json_number(v->score));
    add_machine(trainer, &machine, o);
    NM_TRY(write_line(trainer, o, err));
    const log_samples_record samples = {"samples", v->update, v->samples};
    return v->samples ? write_line(trainer, nm_record_json(log_samples_record_fields(), &samples), err)
                      : NM_OK;
}
