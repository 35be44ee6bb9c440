#include "experiment/run_result.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/record.h"
#include "base/sort.h"
#include "base/utf8_cut.h"
#include "train/model_average.h"
#include "probe/tid.h"
#include "base/bootstrap.h"
#include "task/model_loader.h"
#include "train/checkpoint.h"
#include "train/schedule.h"
#include "train/train_options.h"

void nm_run_result_release(nm_run_result *result)
{
    NM_FREE(result->samples, result->draws);
    json_decref(result->tid);
    *result = (nm_run_result){0};
}

void nm_run_result_fail(nm_run_result *result, const nm_error *err)
{
    result->exit_code = (int)err->status;
    snprintf(result->failure, sizeof result->failure, "%.500s", err->text);
    nm_utf8_trim(result->failure);
}

static char *options_text(const nm_options *options, const nm_options *like)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = nm_text_stream_open(&text, &bytes);
    nm_options_write_like(options, like, stream);
    nm_text_stream_close(stream);
    return text;
}

static char *section_text(const nm_options *options, const char *section)
{
    static const nm_option none[] = {{0}};
    NM_AUTO(nm_options_release) nm_options *like = nm_options_create();
    nm_options_add(like, section, none, NULL, 1);
    return options_text(options, like);
}

static uint64_t hash_batch(const nm_batch *batch, uint64_t seed)
{
    size_t unit = sizeof *batch->source_ids;
    if (batch->source_ids)
        seed = XXH3_64bits_withSeed(batch->source_ids, (size_t)batch->source.n_tokens * unit, seed);
    if (batch->target_out)
        seed = XXH3_64bits_withSeed(batch->target_out, (size_t)batch->target.n_tokens * unit, seed);
    return seed;
}

static nm_status hash_test_set(nm_task *task, uint64_t *hash, nm_error *err)
{
    nm_batches batches;
    NM_AUTO(nm_arena_release) nm_arena arena = {0};
    if (task->type->epoch(task, NM_SPLIT_TEST, 0, false, &batches, err) != NM_OK)
        return nm_error_prefix(err, "a comparison needs a test set (data.test, or that of data.folder)");
    nm_arena_init(&arena, SIZE_MAX);
    for (int64_t i = 0; i < batches.n; i++) {
        nm_batch batch = task->type->batch(task, NM_SPLIT_TEST, &batches, i, 0, false, &arena);
        *hash = hash_batch(&batch, *hash);
    }
    nm_batches_release(&batches);
    return NM_OK;
}

static nm_task task_of(const nm_task_type *type, const nm_options *options)
{
    const nm_train_config *train = nm_options_find(options, "train");
    return (nm_task){.type = type,
                     .options = options,
                     .config = nm_options_find(options, "data"),
                     .seed = (uint64_t)train->seed,
                     .max_tokens = train->max_tokens};
}

nm_status nm_run_planned_updates(const nm_task_type *type, const nm_options *options, int64_t *updates,
                                 nm_error *err)
{
    const nm_train_config *train = nm_options_find(options, "train");
    *updates = train->updates;
    if (train->updates || !train->epochs)
        return NM_OK;
    nm_task task = task_of(type, options);
    nm_status status = type->open(&task, err);
    NM_THEN(status, nm_schedule_planned_updates(&task, updates, err));
    type->close(&task);
    return status;
}

static nm_status hash_data(const nm_task_type *type, const nm_options *options, uint64_t *hash, nm_error *err)
{
    nm_task task = task_of(type, options);
    nm_status status = type->open(&task, err);
    *hash = XXH3_64bits_withSeed(&task.valid_fingerprint, sizeof task.valid_fingerprint, task.fingerprint);
    NM_THEN(status, hash_test_set(&task, hash, err));
    type->close(&task);
    return status;
}

/* Hash of the whole file as hexadecimal text; *weights: hash of its tensors alone, without metadata such as
 * the options. "" and 0 without a file, and *weights 0 for a file that is not a model: its reader reports
 * that. NM_IO if it cannot be read. */
static nm_status hash_model(const char *path, char text[NM_RUN_KEY_BYTES], uint64_t *weights, nm_error *err)
{
    nm_file_map map;
    nm_safetensors *file;
    struct stat info;
    bool found;
    *text = 0;
    *weights = 0;
    NM_TRY(nm_file_find(path, &found, err));
    if (!found || (!stat(path, &info) && S_ISDIR(info.st_mode))) /* a run folder without a model */
        return NM_OK;
    NM_TRY(nm_file_map_open(&map, path, err));
    snprintf(text, NM_RUN_KEY_BYTES, "%016" PRIx64,
             (uint64_t)XXH3_64bits(map.data ? map.data : "", map.bytes));
    nm_file_unmap(&map);
    nm_status status = nm_safetensors_open(&file, path, err);
    if (status != NM_OK)
        return status == NM_FORMAT ? NM_OK : status;
    for (size_t i = 0; i < nm_safetensors_count(file); i++) {
        const nm_safetensor *tensor = nm_safetensors_at(file, i);
        *weights = XXH3_64bits_withSeed(tensor->name, strlen(tensor->name), *weights);
        *weights = XXH3_64bits_withSeed(tensor->data, tensor->bytes, *weights);
    }
    nm_safetensors_close(file);
    return NM_OK;
}

/* Hash of the file that model.init_from names; "" without one, and for a missing file, which training
 * reports. */
static nm_status hash_initial_model(const nm_options *options, char hash[NM_RUN_KEY_BYTES], nm_error *err)
{
    NM_AUTO_FREE char *source = nm_options_get(options, "model.init_from");
    nm_status status = NM_OK;
    *hash = 0;
    if (source && *source) {
        uint64_t weights;
        NM_AUTO_FREE char *path = nm_model_path(source);
        status = hash_model(path, hash, &weights, err);
    }
    return status;
}

/* The record of the initial model in the first line of the log; NULL: there is none. The caller releases
 * it. */
static json_t *read_warm_start(const char *folder)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "log.jsonl"), *line = NULL;
    size_t capacity = 0;
    FILE *file = fopen(path, "rb");
    json_auto_t *start = file && getline(&line, &capacity, file) > 0 ? json_loads(line, 0, NULL) : NULL;
    json_t *record = json_incref(json_object_get(start, "init_from"));
    if (file)
        fclose(file);
    return record;
}

nm_status nm_run_check_initial_model(const nm_options *options, const char *folder, nm_error *err)
{
    char hash[NM_RUN_KEY_BYTES];
    NM_TRY(hash_initial_model(options, hash, err));
    json_auto_t *record = *hash ? read_warm_start(folder) : NULL;
    const char *used = json_string_value(json_object_get(record, "fingerprint"));
    nm_status status = NM_OK;
    if (used && strcmp(used, hash))
        status = nm_fail(err, NM_MISMATCH,
                         "%s: the run began with another initial model: the file of model.init_from has "
                         "changed (fingerprint %.16s, now %s); choose another --folder",
                         folder, used, hash);
    return status;
}

nm_status nm_run_key(char key[NM_RUN_KEY_BYTES], const nm_task_type *type, const nm_options *options,
                     const nm_run_measurement *measurement, char **last, uint64_t *data, nm_error *err)
{
    char *section = section_text(options, "data");
    bool same = *last && !strcmp(*last, section);
    free(*last);
    *last = section;
    if (!same)
        NM_TRY(hash_data(type, options, data, err));
    char initial[NM_RUN_KEY_BYTES];
    NM_TRY(hash_initial_model(options, initial, err));
    NM_AUTO(nm_options_release) nm_options *like = nm_options_create();
    nm_train_options_add(like, type);
    NM_AUTO_FREE char *settings = options_text(options, like),
                      *average = nm_format("average %lld\n", (long long)measurement->average),
                      *text =
                          nm_format(NORMA_VERSION "\n%s\n%lld\n%016" PRIx64 "\n%s%s%s%s", type->name,
                                    (long long)measurement->tid_batches, *data, settings,
                                    measurement->average ? average : "", *initial ? "initial " : "", initial);
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    snprintf(key, NM_RUN_KEY_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
    return NM_OK;
}

/* The model file that is scored; heap. */
static char *scored_model(const char *folder, const nm_run_measurement *measurement)
{
    return measurement->average ? nm_path_join(folder, "average.safetensors") : nm_model_path(folder);
}

/* Writes the mean of the last checkpoints to path. */
static nm_status average_checkpoints(const char *folder, int64_t count, const char *path, nm_error *err)
{
    size_t n;
    char **paths;
    NM_TRY(nm_checkpoint_list(folder, &paths, &n, err));
    nm_status status;
    if ((int64_t)n < count)
        status = nm_fail(
            err, NM_MISMATCH,
            "%s: %zu checkpoints, but compare.average is %lld; see train.keep_last and train.save_every",
            folder, n, (long long)count);
    else
        status = nm_model_average((const char *const *)paths + n - count, (int)count, path, err);
    nm_checkpoint_list_free(paths, n);
    return status;
}

/* Of nm_run_result. */
#define LOG_VALUES(F)                                                                                        \
    F(int, updates, "Number of updates")                                                                     \
    NM_LOG_MEASUREMENTS(F)
static NM_FIELDS_OF(log_values, nm_run_result, LOG_VALUES)

typedef struct numbers {
    double *list;
    size_t n, capacity;
} numbers;

static void add_number(numbers *all, double value)
{
    NM_APPEND(all->list, all->n, all->capacity, value);
}

/* Seconds per update between lines without a validation, and with one. */
typedef struct pace {
    numbers updates, validations;
    double update, seconds; /* of the last line */
    bool validated;         /* since then */
} pace;

static void add_pace(pace *p, double update, double seconds)
{
    if (p->update > 0 && update > p->update)
        add_number(p->validated ? &p->validations : &p->updates,
                   (seconds - p->seconds) / (p->validated ? 1 : update - p->update));
    p->update = update;
    p->seconds = seconds;
    p->validated = false;
}

static void read_line(nm_run_result *result, const json_t *object, numbers *speeds, numbers *gradients,
                      pace *p)
{
    static const char *const scores[] = {"bleu", "f1", "accuracy"}; /* docs/formats.md, record valid */
    const char *type = json_string_value(json_object_get(object, "type"));
    int64_t update = json_integer_value(json_object_get(object, "update"));
    if (!type)
        return;
    p->validated = p->validated || !strcmp(type, "valid");
    result->updates = update > result->updates ? update : result->updates;
    if (!strcmp(type, "start")) {
        const char *precision = json_string_value(json_object_get(object, "precision"));
        result->step_mib = nm_json_number_of(object, "step_mib");
        result->bf16 = precision && !strcmp(precision, "bf16");
    } else if (!strcmp(type, "train")) {
        add_number(speeds, nm_json_number_of(object, "tokens_per_second"));
        add_number(gradients, nm_json_number_of(object, "grad_norm"));
        result->train_seconds = nm_json_number_of(object, "seconds");
        add_pace(p, (double)update, result->train_seconds);
    } else if (json_is_true(json_object_get(object, "best"))) {
        result->loss = nm_json_number_of(object, "loss");
        result->nll = nm_json_number_of(object, "nll");
        for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
            if (json_object_get(object, scores[i]))
                result->valid_score = nm_json_number_of(object, scores[i]);
        result->gap = result->loss - nm_json_number_of(object, "batch_loss");
    }
}

nm_status nm_run_result_read_log(nm_run_result *result, const char *folder, nm_error *err)
{
    NM_AUTO_FREE char *path = nm_path_join(folder, "log.jsonl"), *text = NULL;
    NM_TRY(nm_file_read(path, &text, NULL, err));
    numbers speeds = {0}, gradients = {0};
    pace p = {0};
    nm_record_clear(log_values_fields(), result);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        read_line(result, object, &speeds, &gradients, &p);
        json_decref(object);
    }
    result->tokens_per_second = nm_median(speeds.list, speeds.n);
    result->grad_norm = nm_median(gradients.list, gradients.n);
    result->update_seconds = nm_median(p.updates.list, p.updates.n);
    result->validation_seconds = nm_median(p.validations.list, p.validations.n) - result->update_seconds;
    NM_FREE(p.updates.list, p.validations.list, speeds.list, gradients.list);
    return NM_OK;
}

static void store_score(nm_run_result *result, nm_task_score *score)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    snprintf(result->name, sizeof result->name, "%s", score->name ? score->name : "score");
    snprintf(result->title, sizeof result->title, "%s", score->title ? score->title : "score");
    snprintf(result->signature, sizeof result->signature, "%s", score->signature);
    result->lower_is_better = score->lower_is_better;
    result->value = score->value;
    result->segments = (int64_t)score->counts.n_segments;
    result->draws = nm_bootstrap_resamples(score->counts, score->of_counts, score->context, &config);
    nm_interval interval = nm_bootstrap_interval_of(result->draws, &config);
    result->low = interval.low;
    result->high = interval.high;
    result->samples = score->samples;
    score->samples = NULL;
}

static nm_status measure(nm_run_result *result, nm_task *task, nm_model *model, int64_t tid_batches,
                         nm_error *err)
{
    nm_task_score score;
    NM_TRY(task->type->score(task, model, NM_SPLIT_TEST, 0, &score, err));
    store_score(result, &score);
    nm_task_score_release(&score);
    nm_tid tid;
    NM_TRY(nm_tid_measure(&tid, task, model, tid_batches, err));
    const nm_tid_site *last = nm_tid_last(&tid);
    result->tid_mean = last ? last->mean : NAN;
    result->tid_variance = last ? last->variance : NAN;
    json_auto_t *measured = nm_tid_json(&tid);
    result->tid = json_incref(json_object_get(measured, "sites"));
    nm_tid_release(&tid);
    return NM_OK;
}

nm_status nm_run_result_measure(nm_run_result *result, const char *folder, const nm_task_type *type,
                                nm_options *options, const nm_run_measurement *measurement,
                                const nm_stop *stop, nm_error *err)
{
    char *path = scored_model(folder, measurement), model[NM_RUN_KEY_BYTES];
    nm_loaded_model run;
    nm_status status = NM_OK;
    if (measurement->average)
        status = average_checkpoints(folder, measurement->average, path, err);
    if (status == NM_OK)
        status =
            nm_loaded_model_open_run_on_cpu(&run, path, type, options, (int32_t)measurement->threads, err);
    else
        nm_options_free(options);
    if (status == NM_OK) {
        run.task.stop = stop;
        status = measure(result, &run.task, run.model, measurement->tid_batches, err);
        nm_loaded_model_close(&run);
    }
    NM_THEN(status, hash_model(path, model, &result->weights, err));
    free(path);
    result->measured = status == NM_OK;
    return status;
}

/* Of nm_run_result. */
#define TEST_SCORE(F)                                                                                        \
    F(chars(32), name, "Name of the score", "score")                                                         \
    F(chars(48), title, "Title of the score")                                                                \
    F(flag, lower_is_better, "Whether a lower score is better")                                              \
    F(real, value, "Score of the test set")                                                                  \
    F(real, low, "95 % bootstrap interval")                                                                  \
    F(real, high, "Upper end of the interval")                                                               \
    F(int, segments, "Number of segments of the test set")                                                   \
    F(chars(256), signature, "How the score was computed")
#define TEST_AGAINST(F)                                                                                      \
    F(real, p, "p of the paired test against the run of the first variant")                                  \
    F(real, p_holm, "p of the variant with Holm's correction")                                               \
    F(text, against, "First variant")
#define TEST_SOURCE(F)                                                                                       \
    F(text, key, "Hash of everything that determines the score except the model")                            \
    F(text, model, "Hash of the scored model file")                                                          \
    F(hash, weights, "Hash of its tensors")
#define SCORE_VALUES(F)                                                                                      \
    F(real, low, "")                                                                                         \
    F(real, high, "")                                                                                        \
    F(real, p, "")                                                                                           \
    F(hash, weights, "")                                                                                     \
    NM_TEST_MEASUREMENTS(F)
#define UPDATES(F) F(int, updates, "Number of updates")
NM_RECORD(test_source, TEST_SOURCE)
static NM_FIELDS(test_source, TEST_SOURCE)
static NM_FIELDS_OF(test_score, nm_run_result, TEST_SCORE)
static NM_FIELDS_OF(test_against, nm_run_result, TEST_AGAINST)
static NM_FIELDS_OF(test_measurements, nm_run_result, NM_TEST_MEASUREMENTS)
static NM_FIELDS_OF(updates, nm_run_result, UPDATES)
static NM_FIELDS_OF(score_values, nm_run_result, SCORE_VALUES)
static NM_FIELDS(nm_compared_run, NM_COMPARED_RUN)

nm_compared_run nm_run_result_describe(const nm_run_result *result)
{
    nm_compared_run run;
    nm_record_clear(nm_compared_run_fields(), &run);
    run.variant = result->variant;
    run.seed = result->seed;
    run.exit_code = result->exit_code;
    run.failure = result->exit_code ? result->failure : NULL;
    run.same_weights_as = result->same_weights ? result->same_weights->variant : NULL;
    if (result->updates > 0)
        nm_record_copy(nm_compared_run_fields(), &run, log_values_fields(), result);
    if (result->measured) {
        nm_record_copy(nm_compared_run_fields(), &run, score_values_fields(), result);
        run.scored = true;
        run.score_name = result->name;
        run.score = result->value;
        run.signature = result->signature;
    }
    return run;
}

static json_t *measured_json(const nm_run_result *result)
{
    json_t *o = nm_record_json(updates_fields(), result);
    nm_record_add_json(o, test_score_fields(), result);
    nm_record_add_json(o, test_measurements_fields(), result);
    if (result->against)
        nm_record_add_json(o, test_against_fields(), result);
    nm_json_add(o, "{s:O*, s:s*, s:o}", "tid", result->tid, "samples", result->samples, "draws",
                nm_json_numbers(result->draws, (size_t)nm_bootstrap_default().n_resamples));
    return o;
}

nm_status nm_run_result_save(const nm_run_result *result, const char *folder, const char *key,
                             const nm_run_measurement *measurement, nm_error *err)
{
    NM_AUTO_FREE char *scored = scored_model(folder, measurement);
    char model[NM_RUN_KEY_BYTES];
    uint64_t hash;
    NM_TRY(hash_model(scored, model, &hash, err));
    const test_source source = {key, model, hash};
    json_auto_t *o = measured_json(result);
    nm_record_add_json(o, test_source_fields(), &source);
    /* 17 digits: a result that is read back gives the same table. */
    NM_AUTO_FREE char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)),
                      *path = nm_path_join(folder, "test.json");
    return nm_file_write(path, text ? text : "", text ? strlen(text) : 0, err);
}

static bool has_text(const json_t *object, const char *key, const char *expected)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && *expected && !strcmp(value, expected);
}

/* False if a value is missing; the run is then measured again. */
static bool read_measured(nm_run_result *result, const json_t *o)
{
    const json_t *draws = json_object_get(o, "draws");
    size_t n = (size_t)nm_bootstrap_default().n_resamples;
    json_t *tid = json_object_get(o, "tid");
    if (!nm_record_read_json(test_score_fields(), result, o) || !json_is_array(tid) ||
        json_array_size(draws) != n)
        return false;
    nm_record_clear(test_measurements_fields(), result);
    nm_record_read_json(test_measurements_fields(), result, o);
    result->tid = json_incref(tid);
    result->samples = nm_duplicate(json_string_value(json_object_get(o, "samples")));
    result->draws = nm_allocate(n * sizeof *result->draws);
    for (size_t k = 0; k < n; k++) {
        const json_t *draw = json_array_get(draws, k);
        result->draws[k] = json_is_number(draw) ? json_number_value(draw) : NAN;
    }
    return true;
}

nm_status nm_run_result_load(nm_run_result *result, const char *folder, const char *key,
                             const nm_run_measurement *measurement, nm_error *err)
{
    NM_AUTO_FREE char *text = NULL, *path = nm_path_join(folder, "test.json"),
                      *scored = scored_model(folder, measurement);
    char model[NM_RUN_KEY_BYTES];
    nm_status status = nm_file_read_optional(path, &text, err);
    json_auto_t *o = text ? json_loads(text, 0, NULL) : NULL;
    NM_THEN(status, hash_model(scored, model, &result->weights, err));
    result->measured =
        status == NM_OK && has_text(o, "key", key) && has_text(o, "model", model) && read_measured(result, o);
    return status;
}

nm_status nm_run_result_read(nm_run_result *result, const char *folder, nm_error *err)
{
    char *path = nm_path_join(folder, "test.json"), *text;
    nm_status status = nm_file_read_optional(path, &text, err);
    if (status == NM_OK && !text)
        status = nm_fail(err, NM_MISMATCH, "%s: No such file or directory", path);
    if (status == NM_OK) {
        json_auto_t *o = json_loads(text, 0, NULL);
        const char *weights = json_string_value(json_object_get(o, "weights"));
        result->measured = read_measured(result, o);
        result->weights = weights ? strtoull(weights, NULL, 16) : 0;
        if (!result->measured)
            status = nm_fail(err, NM_FORMAT, "%s: not a result of this version of norma compare", path);
        free(text);
    }
    free(path);
    return status;
}
