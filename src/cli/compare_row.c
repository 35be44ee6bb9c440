/* What is measured of one run, and test.json: see compare_row.h. */
#include "cli/compare_row.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/file.h"
#include "probe/tid.h"
#include "task/model_loader.h"
#include "train/trainer.h"

void compare_row_release(compare_row *row)
{
    free(row->samples);
    free(row->draws);
    json_decref(row->tid);
    *row = (compare_row){0};
}

/* ---- what a measurement belongs to ---- */

static char *options_text(const nm_options *options, const nm_options *like)
{
    char *text = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&text, &bytes);
    NM_ASSERT(stream);
    nm_options_write_like(options, like, stream);
    fclose(stream);
    return text;
}

char *compare_section_text(const nm_options *options, const char *section)
{
    static const nm_option none[] = {{0}};
    nm_options *like = nm_options_create();
    nm_options_add(like, section, none, NULL, 1);
    char *text = options_text(options, like);
    nm_options_free(like);
    return text;
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
    nm_arena arena = {0};
    if (task->type->epoch(task, NM_SPLIT_TEST, 0, false, &batches, err) != NM_OK)
        return nm_while(err, "a comparison needs a test set (data.test, or that of data.folder)");
    nm_status status = nm_arena_init(&arena, (size_t)1 << 36, err);
    for (int64_t i = 0; i < batches.n && status == NM_OK; i++) {
        nm_batch batch = task->type->batch(task, NM_SPLIT_TEST, &batches, i, 0, false, &arena);
        *hash = hash_batch(&batch, *hash);
    }
    nm_arena_release(&arena);
    nm_batches_release(&batches);
    return status;
}

static nm_status hash_data(const nm_task_type *type, const nm_options *options, uint64_t *hash, nm_error *err)
{
    const nm_train_config *train = nm_options_find(options, "train");
    nm_task task = {.type = type,
                    .options = options,
                    .config = nm_options_find(options, "data"),
                    .seed = (uint64_t)train->seed,
                    .max_tokens = train->max_tokens};
    nm_status status = type->open(&task, err);
    *hash = task.fingerprint;
    if (status == NM_OK)
        status = hash_test_set(&task, hash, err);
    type->close(&task);
    return status;
}

nm_status compare_key(char key[COMPARE_KEY_BYTES], const nm_task_type *type, const nm_options *options,
                      int64_t tid_batches, char **last, uint64_t *data, nm_error *err)
{
    char *section = compare_section_text(options, "data");
    bool same = *last && !strcmp(*last, section);
    free(*last);
    *last = section;
    if (!same)
        NM_TRY(hash_data(type, options, data, err));
    nm_options *like = nm_options_create(); /* what a model's numbers depend on */
    nm_trainer_options_add(like, type);
    char *settings = options_text(options, like);
    char *text = nm_format(NORMA_VERSION "\n%s\n%lld\n%016" PRIx64 "\n%s", type->name, (long long)tid_batches,
                           *data, settings);
    XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    snprintf(key, COMPARE_KEY_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64,
             (uint64_t)hash.low64);
    free(text);
    free(settings);
    nm_options_free(like);
    return NM_OK;
}

/* The model that is scored: the best, else the last. */
static char *model_path(const char *folder)
{
    char *path = nm_path_join(folder, "best.safetensors");
    if (nm_file_exists(path))
        return path;
    free(path);
    return nm_path_join(folder, "last.safetensors");
}

/* "" when there is none. */
static void hash_model(const char *folder, char text[COMPARE_KEY_BYTES])
{
    char *path = model_path(folder);
    nm_file_map map;
    nm_error ignored;
    *text = 0;
    if (nm_file_map_open(&map, path, &ignored) == NM_OK) {
        snprintf(text, COMPARE_KEY_BYTES, "%016" PRIx64,
                 (uint64_t)XXH3_64bits(map.data ? map.data : "", map.bytes));
        nm_file_unmap(&map);
    }
    free(path);
}

/* ---- the log ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

typedef struct speeds { /* tokens per second of every line of the log */
    double *list;
    size_t n, capacity;
} speeds;

static void read_line(compare_row *row, const json_t *object, speeds *all)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    if (!type)
        return;
    if (!strcmp(type, "start")) {
        row->step_mib = number_of(object, "step_mib");
    } else if (!strcmp(type, "train")) {
        NM_GROW(all->list, all->n, all->capacity);
        all->list[all->n++] = number_of(object, "tokens_per_second");
        row->updates = json_integer_value(json_object_get(object, "update"));
    } else if (json_is_true(json_object_get(object, "best"))) {
        row->loss = number_of(object, "loss");
        row->nll = number_of(object, "nll");
    }
}

nm_status compare_row_read_log(compare_row *row, const char *folder, nm_error *err)
{
    char *path = nm_path_join(folder, "log.jsonl"), *text;
    nm_status status = nm_file_read(path, &text, NULL, err);
    free(path);
    NM_TRY(status);
    speeds all = {0};
    row->loss = row->nll = row->tokens_per_second = row->step_mib = NAN;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        read_line(row, object, &all);
        json_decref(object);
    }
    if (all.n) {
        qsort(all.list, all.n, sizeof *all.list, compare_doubles);
        row->tokens_per_second = all.list[all.n / 2];
    }
    free(all.list);
    free(text);
    return NM_OK;
}

/* ---- measuring ---- */

static void keep_score(compare_row *row, nm_task_score *score)
{
    const nm_bootstrap_config config = nm_bootstrap_default();
    snprintf(row->name, sizeof row->name, "%s", score->name ? score->name : "score");
    snprintf(row->title, sizeof row->title, "%s", score->title ? score->title : "score");
    snprintf(row->signature, sizeof row->signature, "%s", score->signature);
    row->lower_is_better = score->lower_is_better;
    row->value = score->value;
    row->segments = (int64_t)score->counts.n_segments;
    row->draws = nm_bootstrap_resamples(score->counts, score->of_counts, score->context, &config);
    nm_interval interval = nm_bootstrap_interval_of(row->draws, &config);
    row->low = interval.low;
    row->high = interval.high;
    row->samples = score->samples;
    score->samples = NULL;
}

static nm_status measure(compare_row *row, nm_task *task, nm_model *model, int64_t tid_batches, nm_error *err)
{
    nm_task_score score;
    NM_TRY(task->type->score(task, model, NM_SPLIT_TEST, 0, &score, err));
    keep_score(row, &score);
    nm_task_score_release(&score);
    nm_tid tid;
    NM_TRY(nm_tid_measure(&tid, task, model, tid_batches, err));
    const nm_tid_site *last = nm_tid_last(&tid);
    row->tid_mean = last ? last->mean : NAN;
    row->tid_variance = last ? last->variance : NAN;
    json_t *measured = nm_tid_json(&tid);
    row->tid = json_incref(json_object_get(measured, "sites"));
    json_decref(measured);
    nm_tid_release(&tid);
    return NM_OK;
}

nm_status compare_row_measure(compare_row *row, const char *folder, const nm_task_type *type,
                              nm_options *options, int64_t tid_batches, nm_error *err)
{
    nm_backend *backend = NULL;
    nm_backend_options device = {.name = "cpu"};
    nm_status status = nm_backend_create(&backend, &device, err);
    if (status != NM_OK) {
        nm_options_free(options);
        return status;
    }
    char *path = model_path(folder);
    nm_loaded_model run;
    status = nm_loaded_model_open_run(&run, path, type, options, backend, false, err);
    if (status == NM_OK) {
        status = measure(row, &run.task, run.model, tid_batches, err);
        nm_loaded_model_close(&run);
    }
    nm_backend_free(backend);
    free(path);
    row->measured = status == NM_OK;
    return status;
}

/* ---- test.json ---- */

json_t *compare_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *measured_json(const compare_row *row)
{
    json_t *o = json_object(), *draws = json_array();
    for (int k = 0; k < nm_bootstrap_default().n_resamples; k++)
        json_array_append_new(draws, compare_number(row->draws[k]));
    json_object_set_new(o, "updates", json_integer(row->updates));
    json_object_set_new(o, "score", json_string(row->name));
    json_object_set_new(o, "title", json_string(row->title));
    json_object_set_new(o, "lower_is_better", json_boolean(row->lower_is_better));
    json_object_set_new(o, "value", compare_number(row->value));
    json_object_set_new(o, "low", compare_number(row->low));
    json_object_set_new(o, "high", compare_number(row->high));
    json_object_set_new(o, "segments", json_integer(row->segments));
    json_object_set_new(o, "signature", json_string(row->signature));
    json_object_set_new(o, "tid_mean", compare_number(row->tid_mean));
    json_object_set_new(o, "tid_variance", compare_number(row->tid_variance));
    if (row->against) {
        json_object_set_new(o, "p", compare_number(row->p));
        json_object_set_new(o, "against", json_string(row->against));
    }
    json_object_set(o, "tid", row->tid);
    if (row->samples)
        json_object_set_new(o, "samples", json_string(row->samples));
    json_object_set_new(o, "draws", draws);
    return o;
}

nm_status compare_row_save(const compare_row *row, const char *folder, const char *key, nm_error *err)
{
    char model[COMPARE_KEY_BYTES];
    hash_model(folder, model);
    json_t *o = measured_json(row);
    json_object_set_new(o, "key", json_string(key));
    json_object_set_new(o, "model", json_string(model));
    /* All digits: a row that is read back gives the same table. */
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)),
         *path = nm_path_join(folder, "test.json");
    nm_status status = nm_file_write(path, text ? text : "", text ? strlen(text) : 0, err);
    json_decref(o);
    free(text);
    free(path);
    return status;
}

static bool take_text(const json_t *object, const char *key, char *text, size_t bytes)
{
    const char *value = json_string_value(json_object_get(object, key));
    snprintf(text, bytes, "%s", value ? value : "");
    return value && strlen(value) < bytes;
}

static bool is_text(const json_t *object, const char *key, const char *wanted)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value && *wanted && !strcmp(value, wanted);
}

/* False when something is missing: then it is measured again. */
static bool take_measured(compare_row *row, const json_t *o)
{
    const json_t *draws = json_object_get(o, "draws");
    size_t n = (size_t)nm_bootstrap_default().n_resamples;
    json_t *tid = json_object_get(o, "tid");
    if (!take_text(o, "score", row->name, sizeof row->name) ||
        !take_text(o, "title", row->title, sizeof row->title) ||
        !take_text(o, "signature", row->signature, sizeof row->signature) || !json_is_array(tid) ||
        json_array_size(draws) != n || !json_is_integer(json_object_get(o, "segments")))
        return false;
    row->lower_is_better = json_is_true(json_object_get(o, "lower_is_better"));
    row->value = number_of(o, "value");
    row->low = number_of(o, "low");
    row->high = number_of(o, "high");
    row->segments = json_integer_value(json_object_get(o, "segments"));
    row->tid_mean = number_of(o, "tid_mean");
    row->tid_variance = number_of(o, "tid_variance");
    row->tid = json_incref(tid);
    row->samples = nm_duplicate(json_string_value(json_object_get(o, "samples")));
    row->draws = nm_allocate(n * sizeof *row->draws);
    for (size_t k = 0; k < n; k++) {
        const json_t *draw = json_array_get(draws, k);
        row->draws[k] = json_is_number(draw) ? json_number_value(draw) : NAN;
    }
    return true;
}

void compare_row_load(compare_row *row, const char *folder, const char *key)
{
    char model[COMPARE_KEY_BYTES], *path = nm_path_join(folder, "test.json");
    json_t *o = json_load_file(path, 0, NULL);
    free(path);
    hash_model(folder, model);
    row->measured = is_text(o, "key", key) && is_text(o, "model", model) && take_measured(row, o);
    json_decref(o);
}
