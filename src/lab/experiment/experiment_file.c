/* FOLDER/comparison.json: the variants, settings and measurement of a comparison. With it, the table is
 * printed again from the logs and test.json files of the runs, without recipe, data or models. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/record.h"
#include "experiment/experiment.h"

#define VARIANT_FILE(F)                                                                                      \
    F(text, name, "Name of the variant")                                                                     \
    F(json, settings, "Options and values")                                                                  \
    F(int, origin, "Number of the variant of which this is a grid point")                                    \
    F(flag, grid_point, "One of several points of a grid")
NM_RECORD(variant_file, VARIANT_FILE)
static NM_FIELDS(variant_file, VARIANT_FILE)

#define COMPARISON_FILE(F)                                                                                   \
    F(text, version, "Version of Norma")                                                                     \
    F(text, recipe, "Name of the recipe")                                                                    \
    F(text, profile, "Profile of the recipe")                                                                \
    F(text, task, "Task of the recipe")                                                                      \
    F(json, settings, "Options of all runs")                                                                 \
    F(int, seeds, "Number of seeds")                                                                         \
    F(int, average, "Number of averaged checkpoints")                                                        \
    F(int, tid_batches, "Batches of TID")                                                                    \
    F(flag, score_grid, "Whether all grid points are scored")                                                \
    F(int, tuning_seeds, "Seeds of all grid points; 0: all")                                                 \
    F(text, factorial, "Factors and levels; null: no factorial comparison")                                  \
    F(flag, perplexity, "Whether the loss is a perplexity")                                                  \
    F(json, variants, "The variants")
NM_RECORD(comparison_file, COMPARISON_FILE)
static NM_FIELDS(comparison_file, COMPARISON_FILE)

static json_t *variant_json(const void *list, size_t i)
{
    const nm_variant *variant = (const nm_variant *)list + i;
    const variant_file record = {variant->name, nm_settings_json(&variant->settings),
                                 (int64_t)variant->origin, variant->point};
    return nm_record_json(variant_file_fields(), &record);
}

nm_status nm_experiment_save(const nm_experiment *c, nm_error *err)
{
    const char *slash = strrchr(c->queue.recipe, '/');
    const comparison_file record = {.version = NORMA_VERSION,
                                    .recipe = slash ? slash + 1 : c->queue.recipe,
                                    .profile = c->queue.profile,
                                    .task = c->queue.task->name,
                                    .settings = nm_settings_json(&c->queue.settings),
                                    .seeds = c->config.seeds,
                                    .average = c->config.measurement.average,
                                    .tid_batches = c->config.measurement.tid_batches,
                                    .score_grid = c->config.score_grid,
                                    .tuning_seeds = c->config.tuning_seeds,
                                    .factorial = c->factorial.n_cells ? c->config.factorial : NULL,
                                    .perplexity = c->table.perplexity,
                                    .variants = nm_json_list(c->points.n, variant_json, c->points.list)};
    json_auto_t *o = nm_record_json(comparison_file_fields(), &record);
    NM_AUTO_FREE char *text = json_dumps(o, JSON_INDENT(1)),
                      *path = nm_path_join(c->folder, "comparison.json");
    return nm_file_write(path, text ? text : "", text ? strlen(text) : 0, err);
}

static bool read_variant(nm_variants *points, const json_t *o, size_t n)
{
    const char *name = json_string_value(json_object_get(o, "name")), *key;
    json_t *settings = json_object_get(o, "settings"), *value;
    json_int_t origin = json_integer_value(json_object_get(o, "origin"));
    if (!name || !*name || !json_is_object(settings) || origin < 0 || (size_t)origin >= n)
        return false;
    NM_GROW(points->list, points->n, points->capacity);
    nm_variant *variant = &points->list[points->n++];
    *variant = (nm_variant){.name = nm_duplicate(name),
                            .origin = (size_t)origin,
                            .point = json_is_true(json_object_get(o, "grid_point"))};
    json_object_foreach(settings, key, value)
    {
        if (!json_is_string(value))
            return false;
        nm_settings_add(&variant->settings, key, json_string_value(value));
    }
    return true;
}

static bool read_comparison(nm_experiment *c, const json_t *o)
{
    const json_t *list = json_object_get(o, "variants");
    c->config.seeds = json_integer_value(json_object_get(o, "seeds"));
    c->config.score_grid = json_is_true(json_object_get(o, "score_grid"));
    c->table.perplexity = json_is_true(json_object_get(o, "perplexity"));
    c->config.tuning_seeds = json_integer_value(json_object_get(o, "tuning_seeds"));
    const char *factorial = json_string_value(json_object_get(o, "factorial"));
    if (factorial && nm_factorial_parse(&c->factorial, factorial, NM_IGNORED) != NM_OK)
        return false;
    size_t n = json_array_size(list);
    bool valid = n && n <= 10000 && c->config.seeds > 0 && c->config.seeds <= 10000;
    for (size_t i = 0; i < n && valid; i++)
        valid = read_variant(&c->points, json_array_get(list, i), n);
    return valid;
}

nm_status nm_experiment_open(nm_experiment *c, nm_error *err)
{
    char *path = nm_path_join(c->folder, "comparison.json"), *text;
    nm_status status = nm_file_read(path, &text, NULL, err);
    if (status == NM_OK) {
        json_auto_t *o = json_loads(text, 0, NULL);
        if (!read_comparison(c, o))
            status = nm_fail(err, NM_FORMAT, "%s: not the description of a comparison", path);
        free(text);
    }
    free(path);
    NM_THEN(status, nm_experiment_add_runs(c, err));
    for (size_t i = 0; i < c->queue.n && status == NM_OK; i++) {
        nm_run_job *job = &c->queue.jobs[i];
        nm_error missing;
        job->state = NM_RUN_FINISHED;
        nm_status found = nm_run_result_read(&job->result, job->folder, &missing);
        if (found != NM_OK && found != NM_MISMATCH)
            status = nm_fail(err, found, "%s", missing.text);
        else if (found != NM_OK && (!job->variant->point || c->config.score_grid))
            nm_run_result_fail(&job->result, &missing);
    }
    return status;
}
