/* norma inspect: measurements of the papers on trained models, for the best model of each run or for every
 * saved checkpoint, as tables or JSON, with advice on which remedies of the papers they indicate. */
#include <stdlib.h>
#include <string.h>

#include "backend/device_options.h"
#include "base/json.h"
#include "base/record.h"
#include "base/file.h"
#include "cli/inspect_file.h"
#include "cli/inspect_print.h"
#include "cli/open_comm.h"
#include "cli/open_backend.h"
#include "task/model_loader.h"
#include "train/checkpoint.h"

typedef struct inspect_config { /* section [inspect] */
    const char *measure, *data, *tid_sites;
    int64_t batches, gradient_batches;
    bool checkpoints, advise, json, save;
} inspect_config;

#define ROW(field, initial, min, max, help) NM_OPTION(inspect_config, field, initial, min, max, help)
/* clang-format off */
static const nm_option inspect_rows[] = {
    ROW(measure, "all", 0, 0,
        "Measurements, comma-separated: tid, spectrum, condition, bounds, confidence; or all."),
    ROW(batches, "50", 0, 1e12, "Number of batches per measurement; 0: all of the split."),
    ROW(gradient_batches, "8", 0, 1e12,
        "Number of batches for bounds, which needs gradients; 0: all of the split."),
    ROW(tid_sites, "auto", 0, 0,
        "Norm sites that TID is averaged over: auto (norms with batch statistics, otherwise the encoder), "
        "all, or comma-separated beginnings of names such as enc,dec.0.self."),
    ROW(checkpoints, "false", 0, 1, "Inspect every checkpoint of the run instead of the best model."),
    ROW(data, "", 0, 0, "Data folder, if it has moved since training; empty: that of the run."),
    ROW(advise, "false", 0, 1, "Print which of the papers' remedies the measurements indicate."),
    ROW(json, "false", 0, 1, "Print one JSON array."),
    ROW(save, "false", 0, 1, "Save the results in RUN/inspection.json, which norma report reads."),
    {0}};
/* clang-format on */

static bool measures(const nm_options *options, const char *name)
{
    const inspect_config *config = nm_options_find(options, "inspect");
    return !strcmp(config->measure, "all") || strstr(config->measure, name);
}

static bool measures_bounds(const nm_options *options)
{
    return measures(options, "bounds");
}

static bool measures_tid(const nm_options *options)
{
    return measures(options, "tid");
}

static const nm_option_rule inspect_rules[] = {
    {"inspect.gradient_batches", "inspect.measure", NULL, "only bounds needs gradients", measures_bounds},
    {"inspect.tid_sites", "inspect.measure", NULL, "TID is not measured", measures_tid},
    {0}};

typedef struct job {
    const inspect_config *config;
    nm_inspection_plan plan;
    nm_backend *backend;
    json_t *results; /* NULL: print text */
    nm_comm *comm;   /* processes that divide the model files; the first one prints */
    int64_t n_files; /* number of model files so far */
    char *own;       /* result of this process until the next exchange, one line of JSON, heap; NULL: none */
} job;

/* *update: number of updates of the model; -1 if the file does not contain it. */
static nm_status read_update(const char *path, int64_t *update, nm_error *err)
{
    NM_AUTO(nm_safetensors_release) nm_safetensors *file = NULL;
    NM_TRY(nm_safetensors_open_metadata(&file, path, err));
    const char *text = nm_safetensors_metadata(file, "update");
    *update = text ? strtoll(text, NULL, 10) : -1;
    return NM_OK;
}

#define RESULT(F)                                                                                            \
    F(text, run, "Run folder")                                                                               \
    F(text, model, "Model file")                                                                             \
    F(int, update, "Update of the model")
#define RESULT_ADVICE(F)      F(json, advice, "Advice, after the measurements", "advice?")
#define RESULT_WITH_ADVICE(F) RESULT(F) RESULT_ADVICE(F)
NM_RECORD(model_result, RESULT_WITH_ADVICE)
static NM_FIELDS_OF(result, model_result, RESULT)
static NM_FIELDS_OF(result_advice, model_result, RESULT_ADVICE)

#define REPORTED(F)                                                                                          \
    F(text, run, "Run folder")                                                                               \
    F(text, text, "Result as text")                                                                          \
    F(json, result, "Result")
NM_RECORD(reported, REPORTED)
static NM_FIELDS(reported, REPORTED)

static json_t *result_of(const char *run, const char *path, int64_t update, const nm_inspection *inspection,
                         const nm_advice *advice)
{
    const model_result record = {run, path, update, advice ? inspect_json_advice(advice, NM_N_ADVICE) : NULL};
    json_t *object = nm_record_json(result_fields(), &record);
    json_object_update_new(object, inspect_json(inspection));
    nm_record_add_json(object, result_advice_fields(), &record);
    return object;
}

/* Stores a result, as text and as JSON, for the next exchange. */
static nm_status keep_result(job *self, const char *run, const char *path, const nm_inspection *inspection,
                             const nm_advice *advice, nm_error *err)
{
    int64_t update;
    NM_AUTO_FREE char *text = NULL;
    size_t bytes;
    NM_TRY(read_update(path, &update, err));
    FILE *out = nm_text_stream_open(&text, &bytes);
    fprintf(out, "%s (update %lld)\n", path, (long long)update);
    inspect_print(inspection, out);
    if (advice)
        inspect_print_advice(advice, NM_N_ADVICE, out);
    nm_text_stream_close(out);
    const reported record = {run, text, result_of(run, path, update, inspection, advice)};
    json_auto_t *all = nm_record_json(reported_fields(), &record);
    NM_AUTO_FREE char *line = json_dumps(all, JSON_COMPACT);
    self->own = nm_format("%s\n", line);
    return NM_OK;
}

static nm_status report_result(job *self, const char *line, size_t bytes, nm_error *err)
{
    json_t *all = json_loadb(line, bytes, 0, NULL), *result = json_object_get(all, "result");
    NM_ASSERT(result);
    nm_status status = self->config->save
                           ? inspect_file_add(json_string_value(json_object_get(all, "run")), result, err)
                           : NM_OK;
    if (self->results) {
        json_array_append(self->results, result);
    } else {
        fputs(json_string_value(json_object_get(all, "text")), stdout);
        fflush(stdout);
    }
    json_decref(all);
    return status;
}

/* Gathers the results after each process has inspected one model file; rank 0 reports them in the order of
 * the files. */
static nm_status exchange_results(job *self, nm_error *err)
{
    NM_AUTO_FREE char *all = NULL;
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)self->comm->size * sizeof *ends);
    nm_status status =
        nm_comm_gather_bytes(self->comm, self->own, self->own ? strlen(self->own) : 0, &all, ends, err);
    free(self->own);
    self->own = NULL;
    const char *at = all, *end = status == NM_OK ? all + ends[self->comm->size - 1] : all;
    while (status == NM_OK && !self->comm->rank && at < end) {
        const char *next = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
        status = report_result(self, at, (size_t)(next - at), err);
        at = next;
    }
    return status;
}

static nm_status inspect_loaded(job *self, const char *run, const char *path, nm_loaded_model *loaded,
                                nm_error *err)
{
    nm_inspection inspection;
    nm_advice advice[NM_N_ADVICE];
    NM_TRY(nm_inspection_measure(&inspection, &self->plan, &loaded->task, loaded->model, err));
    nm_status status = NM_OK;
    if (self->config->advise) {
        nm_advice_inputs inputs;
        NM_AUTO_FREE char *log_path = nm_path_join(run, "log.jsonl");
        status = nm_advice_inputs_collect(&inputs, &inspection, &loaded->task, loaded->model, log_path, err);
        nm_advise(&inputs, advice);
    }
    NM_THEN(status, keep_result(self, run, path, &inspection, self->config->advise ? advice : NULL, err));
    nm_inspection_release(&inspection);
    return status;
}

static nm_status open_run(job *self, const char *run, nm_loaded_model *loaded, char **best, nm_error *err)
{
    nm_options *options;
    const nm_task_type *task;
    NM_TRY(nm_loaded_model_options(run, &options, &task, best, err));
    nm_status status = NM_OK;
    if (*self->config->data && !nm_options_row(options, "data.folder"))
        status = nm_fail(err, NM_USAGE,
                         "inspect.data: the data of %.300s are files, not a folder; run norma in the folder "
                         "to which the paths "
                         "in its config.ini are relative",
                         run);
    else if (*self->config->data)
        status = nm_options_set(options, "data.folder", self->config->data, NM_ORIGIN_COMMAND, err);
    if (status == NM_OK) {
        status =
            nm_loaded_model_open_run(loaded, *best, task, options, self->backend, self->plan.bounds, err);
    } else {
        nm_options_free(options);
    }
    if (status != NM_OK)
        free(*best);
    return status;
}

/* Inspects a model file if it is assigned to this process. loaded: the model of the run. */
static nm_status inspect_model(job *self, const char *run, const char *path, nm_loaded_model *loaded,
                               nm_error *err)
{
    int32_t rank = (int32_t)(self->n_files++ % self->comm->size);
    if (rank == self->comm->rank) {
        if (self->config->checkpoints)
            NM_TRY(nm_loaded_model_change(loaded, path, err));
        NM_TRY(inspect_loaded(self, run, path, loaded, err));
    }
    return rank == self->comm->size - 1 ? exchange_results(self, err) : NM_OK;
}

static nm_status inspect_run(job *self, const char *run, nm_error *err)
{
    nm_loaded_model loaded;
    char *best, **checkpoints = NULL;
    size_t n = 0;
    NM_TRY(open_run(self, run, &loaded, &best, err));
    nm_status status = NM_OK;
    if (!self->config->checkpoints)
        status = inspect_model(self, run, best, &loaded, err);
    else
        status = nm_checkpoint_list(run, &checkpoints, &n, err);
    if (status == NM_OK && self->config->checkpoints && !n)
        status = nm_fail(err, NM_IO, "%s: no run with saved checkpoints", run);
    for (size_t i = 0; i < n && status == NM_OK; i++)
        status = inspect_model(self, run, checkpoints[i], &loaded, err);
    nm_checkpoint_list_free(checkpoints, n);
    nm_loaded_model_close(&loaded);
    free(best);
    return status;
}

static nm_status inspect_all(job *self, const nm_cli *cli, int argc, char **argv, nm_error *err)
{
    const inspect_config *config = self->config;
    self->plan = (nm_inspection_plan){.batches = config->batches,
                                      .gradient_batches = config->gradient_batches,
                                      .tid_sites = config->tid_sites};
    NM_TRY(nm_cli_check_arguments(cli, argc, argv, 1, NM_CLI_NO_LIMIT, err));
    NM_TRY(nm_inspection_select(&self->plan, config->measure, err));
    NM_TRY(nm_device_choose_trained(cli->options, false, err));
    NM_TRY(nm_device_reject_inference(nm_options_find(cli->options, "device"), "inspect", err));
    for (int i = 0; i < argc && config->save; i++)
        NM_TRY(inspect_file_check(argv[i], err));
    NM_TRY(nm_cli_open_backend(cli, NULL, &self->backend, err));
    nm_status status = NM_OK;
    for (int i = 0; i < argc && status == NM_OK; i++)
        status = inspect_run(self, argv[i], err);
    NM_THEN(status, exchange_results(self, err));
    nm_backend_free(self->backend);
    return status;
}

static int inspect(nm_cli *cli, int argc, char **argv)
{
    nm_error err;
    job self = {.config = nm_options_find(cli->options, "inspect")};
    bool prints;
    if (nm_cli_join_ranks(&self.comm, cli->command, &err) != NM_OK)
        return nm_cli_fail_to_join(&err);
    if (self.config->json)
        self.results = json_array();
    nm_status status = nm_comm_finish(self.comm, inspect_all(&self, cli, argc, argv, &err), &prints, &err);
    if (status == NM_OK && self.results && !self.comm->rank)
        nm_json_print(json_incref(self.results), JSON_INDENT(1) | JSON_REAL_PRECISION(9), stdout);
    if (prints && status != NM_OK)
        nm_cli_fail(&err);
    json_decref(self.results);
    free(self.own);
    nm_comm_free(self.comm);
    return (int)status;
}

const nm_command nm_command_inspect = {
    .name = "inspect",
    .summary = "measure what normalization does in trained models",
    .usage = "RUN... [--checkpoints] [--advise] [--json] [--save] [--measure tid,...] [--batches N]",
    .details =
        "Measures on the data of the run, for the best model of each RUN (or for a model file): tid, the "
        "discrepancy of batch statistics between training and inference at each norm's input; spectrum, "
        "the singular values of the embedding matrix; condition, the condition numbers of the layers' "
        "inputs; bounds, Lemma 2 and Theorem 4 of the PowerNorm paper evaluated on batches, and gradient "
        "norms by layer; confidence, the calibration of the model's predictions. docs/instruments.md "
        "describes each.",
    .section = "inspect,device",
    .rows = inspect_rows,
    .config_bytes = sizeof(inspect_config),
    .infers = true,
    .rules = inspect_rules,
    .ranks = true,
    .run = inspect,
};
