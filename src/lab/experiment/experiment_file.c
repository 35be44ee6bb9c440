/* FOLDER/comparison.json: the variants, settings and measurement of a comparison. With it, the table is printed again from
 * the logs and test.json files of the runs, without recipe, data or models. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "experiment/experiment.h"

static json_t *variant_json(const nm_variant *variant)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", json_string(variant->name));
    json_object_set_new(o, "settings", nm_settings_json(&variant->settings));
    json_object_set_new(o, "origin", json_integer((json_int_t)variant->origin));
    json_object_set_new(o, "grid_point", json_boolean(variant->point));
    return o;
}

nm_status nm_experiment_save(const nm_experiment *c, nm_error *err)
{
    json_t *o = json_object(), *points = json_array();
    for (size_t i = 0; i < c->points.n; i++)
        json_array_append_new(points, variant_json(&c->points.list[i]));
    const char *slash = strrchr(c->queue.recipe, '/');
    json_object_set_new(o, "version", json_string(NORMA_VERSION));
    json_object_set_new(o, "recipe", json_string(slash ? slash + 1 : c->queue.recipe));
    json_object_set_new(o, "profile", json_string(c->queue.profile));
    json_object_set_new(o, "task", json_string(c->queue.task->name));
    json_object_set_new(o, "settings", nm_settings_json(&c->queue.settings));
    json_object_set_new(o, "seeds", json_integer(c->config.seeds));
    json_object_set_new(o, "average", json_integer(c->config.measurement.average));
    json_object_set_new(o, "tid_batches", json_integer(c->config.measurement.tid_batches));
    json_object_set_new(o, "score_grid", json_boolean(c->config.score_grid));
    json_object_set_new(o, "perplexity", json_boolean(c->table.perplexity));
    json_object_set_new(o, "variants", points);
    char *text = json_dumps(o, JSON_INDENT(1)), *path = nm_path_join(c->folder, "comparison.json");
    nm_status status = nm_file_write(path, text ? text : "", text ? strlen(text) : 0, err);
    json_decref(o);
    free(text);
    free(path);
    return status;
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
        json_t *o = json_loads(text, 0, NULL);
        if (!read_comparison(c, o))
            status = nm_fail(err, NM_FORMAT, "%s: not the description of a comparison", path);
        json_decref(o);
        free(text);
    }
    free(path);
    if (status == NM_OK)
        status = nm_experiment_add_runs(c, err);
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
