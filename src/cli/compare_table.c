#include "cli/compare_table.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "probe/tid.h"
#include "train/checkpoint.h"
#include "task/loaded.h"
#include "train/trainer.h"

compare_row *compare_table_add(compare_table *table, const char *variant, int64_t seed)
{
    NM_GROW(table->rows, table->n, table->capacity);
    compare_row *row = &table->rows[table->n++];
    *row = (compare_row){.seed = seed, .p = NAN, .loss = NAN, .nll = NAN, .tokens_per_second = NAN};
    snprintf(row->variant, sizeof row->variant, "%s", variant);
    return row;
}

static void release_row(compare_row *row)
{
    nm_task_score_release(&row->score);
    json_decref(row->tid);
}

void compare_table_release(compare_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        release_row(&table->rows[i]);
    free(table->rows);
    *table = (compare_table){0};
}

/* ---- measuring ---- */

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

/* Loss of the best validation, updates, and the median of the training speed. */
static nm_status read_log(compare_row *row, const char *folder, nm_error *err)
{
    char *path = nm_path_join(folder, "log.jsonl"), *text;
    nm_status status = nm_file_read(path, &text, NULL, err);
    free(path);
    NM_TRY(status);
    double *speeds = NULL;
    size_t n = 0, capacity = 0;
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        const char *type = json_string_value(json_object_get(object, "type"));
        if (type && !strcmp(type, "train")) {
            NM_GROW(speeds, n, capacity);
            speeds[n++] = number_of(object, "tokens_per_second");
            row->updates = (int64_t)number_of(object, "update");
        } else if (type && json_is_true(json_object_get(object, "best"))) {
            row->loss = number_of(object, "loss");
            row->nll = number_of(object, "nll");
        }
        json_decref(object);
    }
    if (n) {
        qsort(speeds, n, sizeof *speeds, compare_doubles);
        row->tokens_per_second = speeds[n / 2];
    }
    free(speeds);
    free(text);
    return NM_OK;
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *tid_json(const nm_tid *tid)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tid->n; i++) {
        json_t *site = json_object();
        json_object_set_new(site, "site", json_string(tid->sites[i].name));
        json_object_set_new(site, "mean", number_or_null(tid->sites[i].mean));
        json_object_set_new(site, "variance", number_or_null(tid->sites[i].variance));
        json_array_append_new(list, site);
    }
    return list;
}

static nm_status measure_model(compare_row *row, nm_task *task, nm_model *model, int64_t tid_batches,
                               nm_error *err)
{
    NM_TRY(task->type->score(task, model, NM_SPLIT_TEST, 0, &row->score, err));
    row->perplexity = nm_task_has_perplexity(task->type, task->options);
    nm_bootstrap_config config = nm_bootstrap_default();
    nm_interval interval =
        nm_bootstrap_interval(row->score.counts, row->score.of_counts, row->score.context, &config);
    row->low = interval.low;
    row->high = interval.high;
    nm_tid tid;
    NM_TRY(nm_tid_measure(&tid, task, model, tid_batches, err));
    const nm_tid_site *last = nm_tid_last(&tid);
    row->tid_mean = last ? last->mean : NAN;
    row->tid_variance = last ? last->variance : NAN;
    row->tid = tid_json(&tid);
    nm_tid_release(&tid);
    return NM_OK;
}

/* The model with its data folder beside it, as training had them. */
static nm_status open_with_data(nm_task *task, nm_model **model, nm_backend *backend,
                                const nm_options *options, const char *path, nm_error *err)
{
    NM_TRY(task->type->open(task, err));
    nm_model_sizes sizes = task->type->sizes(task);
    NM_TRY(nm_model_create(model, task->type->model, backend, options, &sizes, false, err));
    if (task->type->prepare_model)
        NM_TRY(task->type->prepare_model(task, *model, err));
    nm_safetensors *file;
    NM_TRY(nm_safetensors_open(&file, path, err));
    nm_status status = nm_checkpoint_load(file, *model, err);
    nm_safetensors_close(file);
    return status;
}

nm_status compare_measure(compare_row *row, const char *folder, int64_t tid_batches, nm_error *err)
{
    nm_options *options = NULL;
    const nm_task_type *type;
    char *path;
    NM_TRY(nm_loaded_options(folder, &options, &type, &path, err));
    const nm_train_config *train = nm_options_find(options, "train");
    nm_task task = {.type = type,
                    .options = options,
                    .config = nm_options_find(options, "data"),
                    .seed = (uint64_t)train->seed,
                    .max_tokens = train->max_tokens};
    nm_backend *backend = NULL;
    nm_model *model = NULL;
    nm_backend_options device = {.name = "cpu"};
    nm_status status = nm_backend_create(&backend, &device, err);
    if (status == NM_OK)
        status = open_with_data(&task, &model, backend, options, path, err);
    if (status == NM_OK)
        status = measure_model(row, &task, model, tid_batches, err);
    if (status == NM_OK)
        status = read_log(row, folder, err);
    nm_model_free(model);
    type->close(&task);
    nm_backend_free(backend);
    nm_options_free(options);
    free(path);
    return status;
}

/* ---- printing ---- */

static void test_against_first(compare_table *table)
{
    nm_bootstrap_config config = nm_bootstrap_default();
    for (size_t i = 0; i < table->n; i++) {
        compare_row *row = &table->rows[i], *first = NULL;
        for (size_t k = 0; k < i && !first; k++)
            if (table->rows[k].seed == row->seed && table->rows[k].exit_code == 0)
                first = &table->rows[k];
        if (first && row->exit_code == 0)
            memcpy(row->against, first->variant, sizeof row->against);
        if (first && row->exit_code == 0)
            row->p = nm_bootstrap_paired(first->score.counts, row->score.counts, row->score.of_counts,
                                         row->score.context, &config)
                         .p;
    }
}

/* One text per cell, for both aligned text and Markdown. */
enum { CELLS = 10, CELL_BYTES = 64 };

static void fill_cells(const compare_row *row, char cells[CELLS][CELL_BYTES])
{
    const struct {
        int digits;
        double value;
    } numbers[] = {{3, row->p},
                   {3, row->loss},
                   {2, exp(row->nll)},
                   {0, row->tokens_per_second},
                   {1, 100 * row->tid_mean},
                   {1, 100 * row->tid_variance}};
    snprintf(cells[0], CELL_BYTES, "%.60s", row->variant);
    snprintf(cells[1], CELL_BYTES, "%lld", (long long)row->seed);
    snprintf(cells[2], CELL_BYTES, "%.2f", row->score.value);
    snprintf(cells[3], CELL_BYTES, "%.1f-%.1f", row->low, row->high);
    for (int i = 0; i < 6; i++) {
        if (isfinite(numbers[i].value))
            snprintf(cells[4 + i], CELL_BYTES, "%.*f", numbers[i].digits, numbers[i].value);
        else
            snprintf(cells[4 + i], CELL_BYTES, "-");
    }
}

enum { SCORE_CELL = 2, PERPLEXITY_CELL = 6 };

static const compare_row *first_finished(const compare_table *table)
{
    for (size_t i = 0; i < table->n; i++)
        if (table->rows[i].exit_code == 0)
            return &table->rows[i];
    return NULL;
}

static const char *cell_title(const compare_row *finished, int cell)
{
    static const char *const titles[CELLS] = {"norm", "seed", "score", "95 %",       "p",
                                              "loss", "ppl",  "tok/s", "TID mean %", "TID var %"};
    return cell == SCORE_CELL && finished && finished->score.title ? finished->score.title : titles[cell];
}

static int cell_width(const compare_row *finished, int cell)
{
    static const int widths[CELLS] = {-14, 4, 6, 11, 6, 6, 7, 6, 10, 9};
    int length = (int)strlen(cell_title(finished, cell));
    return widths[cell] > 0 && length > widths[cell] ? length : widths[cell];
}

static void print_lines(const compare_table *table, bool markdown, FILE *out)
{
    const compare_row *finished = first_finished(table);
    char cells[CELLS][CELL_BYTES];
    for (size_t r = 0; r <= table->n; r++) {
        const compare_row *row = r ? &table->rows[r - 1] : NULL;
        if (row && row->exit_code) {
            fprintf(out, markdown ? "| %s | %lld | failed: %s |\n" : "%-14s  %4lld  failed: %s\n",
                    row->variant, (long long)row->seed, row->trouble);
            continue;
        }
        if (row)
            fill_cells(row, cells);
        for (int i = 0; i < CELLS; i++)
            if (i != PERPLEXITY_CELL || (finished && finished->perplexity))
                fprintf(out, markdown ? (i ? " %*s |" : "| %*s |") : (i ? "  %*s" : "%*s"),
                        cell_width(finished, i), row ? cells[i] : cell_title(finished, i));
        fputc('\n', out);
        if (!row && markdown) {
            for (int i = 0; i < CELLS; i++)
                if (i != PERPLEXITY_CELL || (finished && finished->perplexity))
                    fputs(i ? "--:|" : "|---|", out);
            fputc('\n', out);
        }
    }
}

static void print_json(const compare_table *table, FILE *out)
{
    json_t *list = json_array();
    for (size_t i = 0; i < table->n; i++) {
        const compare_row *row = &table->rows[i];
        json_t *o = json_object();
        json_object_set_new(o, "norm", json_string(row->variant));
        json_object_set_new(o, "seed", json_integer(row->seed));
        json_object_set_new(o, "exit_code", json_integer(row->exit_code));
        if (row->exit_code == 0) {
            json_object_set_new(o, "updates", json_integer(row->updates));
            json_object_set_new(o, row->score.name ? row->score.name : "score",
                                number_or_null(row->score.value));
            json_object_set_new(o, "low", number_or_null(row->low));
            json_object_set_new(o, "high", number_or_null(row->high));
            json_object_set_new(o, "p_against_first", number_or_null(row->p));
            json_object_set_new(o, "valid_loss", number_or_null(row->loss));
            json_object_set_new(o, "valid_nll", number_or_null(row->nll));
            json_object_set_new(o, "tokens_per_second", number_or_null(row->tokens_per_second));
            json_object_set_new(o, "tid_mean", number_or_null(row->tid_mean));
            json_object_set_new(o, "tid_variance", number_or_null(row->tid_variance));
            json_object_set_new(o, "signature", json_string(row->score.signature));
        }
        json_array_append_new(list, o);
    }
    json_dumpf(list, out, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    fputc('\n', out);
    json_decref(list);
}

static bool is_better(const nm_task_score *a, const nm_task_score *b)
{
    return a->lower_is_better ? a->value < b->value : a->value > b->value;
}

/* test.json: what was measured of one run. */
static json_t *measured_json(const compare_row *row)
{
    json_t *o = json_object();
    json_object_set_new(o, "updates", json_integer(row->updates));
    json_object_set_new(o, "score", json_string(row->score.name));
    json_object_set_new(o, "value", number_or_null(row->score.value));
    json_object_set_new(o, "low", number_or_null(row->low));
    json_object_set_new(o, "high", number_or_null(row->high));
    json_object_set_new(o, "signature", json_string(row->score.signature));
    json_object_set_new(o, "tid_mean", number_or_null(row->tid_mean));
    json_object_set_new(o, "tid_variance", number_or_null(row->tid_variance));
    if (*row->against) {
        json_object_set_new(o, "p", number_or_null(row->p));
        json_object_set_new(o, "against", json_string(row->against));
    }
    json_object_set(o, "tid", row->tid);
    return o;
}

nm_status compare_save(const compare_row *row, const char *folder, nm_error *err)
{
    json_t *o = measured_json(row);
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9)),
         *path = nm_path_join(folder, "test.json");
    nm_status status = nm_file_write(path, text ? text : "", text ? strlen(text) : 0, err);
    json_decref(o);
    free(text);
    free(path);
    return status;
}

static void print_samples(const compare_table *table, int64_t samples, FILE *out)
{
    const compare_row *best = NULL;
    for (size_t i = 0; i < table->n; i++)
        if (table->rows[i].exit_code == 0 && (!best || is_better(&table->rows[i].score, &best->score)))
            best = &table->rows[i];
    if (best && best->score.samples && samples)
        fprintf(out, "\nFrom the test set, by %s:\n%s", best->variant, best->score.samples);
}

void compare_table_print(compare_table *table, const char *format, int64_t samples, FILE *out)
{
    test_against_first(table);
    if (!strcmp(format, "json")) {
        print_json(table, out);
        return;
    }
    print_lines(table, !strcmp(format, "markdown"), out);
    const compare_row *finished = first_finished(table);
    if (finished && finished->score.title)
        fprintf(
            out,
            "\n%s: %s; p: paired bootstrap against the first row; loss: as trained, validation; TID: last "
            "encoder layer\n",
            finished->score.title, finished->score.signature);
    print_samples(table, samples, out);
}
