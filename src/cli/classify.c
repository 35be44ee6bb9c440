/* norma classify: texts through a trained classifier, or a labeled file against it. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/open_model.h"
#include "task/classification.h"

/* So many texts are read before any is classified; fewer of them where they are long. */
enum { TEXTS_AT_ONCE = 2000, TOKENS_AT_ONCE = 1 << 20 };

typedef struct classify_config { /* section [classify] */
    bool probabilities, evaluate, json;
    int64_t bootstrap, seed;
} classify_config;

typedef struct columns_config { /* section [data], the part that says how a table is read */
    NM_LABELED_FIELDS;
} columns_config;

/* clang-format off */
static const nm_option classify_rows[] = {
    NM_OPTION(classify_config, probabilities, "false", 0, 1, "behind the label the probability of every class; the first line names them"),
    NM_OPTION(classify_config, evaluate, "false", 0, 1, "the file holds labels too: print accuracy, macro-F1 and confusion matrix"),
    NM_OPTION(classify_config, json, "false", 0, 1, "one JSON object for each text, or for the evaluation"),
    NM_OPTION(classify_config, bootstrap, "1000", 0, 10000000, "draws for the interval of evaluate; 0: no interval"),
    NM_OPTION(classify_config, seed, "1", 0, 9e15, "seed of the draws"),
    {0}};
static const nm_option column_rows[] = {NM_LABELED_ROWS(columns_config), {0}};
/* clang-format on */

static void classify_options(nm_options *options)
{
    nm_options_add(options, "classify", classify_rows, NULL, sizeof(classify_config));
    nm_options_add(options, "data", column_rows, NULL, sizeof(columns_config));
    nm_device_options_add(options);
}

typedef struct job {
    const nm_cli *cli;
    const classify_config *config;
    nm_backend *backend;
    nm_loaded_model loaded;
    nm_classification_parts *parts;
    int32_t classes;
    int64_t max_length;
    nm_labeled texts;
    nm_labeled_set set; /* the texts at hand */
    nm_confusion confusion;
    nm_ids right; /* evaluate: 1 or 0 for every text */
    int64_t cut;
} job;

/* ---- opening ---- */

static nm_status job_open(job *self, int argc, char **argv, nm_error *err)
{
    NM_TRY(nm_cli_open_backend(self->cli, &self->backend, err));
    NM_TRY(nm_cli_open_model(self->cli, argv[0], &nm_task_classification, "does not classify", self->backend,
                             &self->loaded, err));
    const nm_classification_config *data = self->loaded.task.config;
    const columns_config *said = nm_options_find(self->cli->options, "data");
    self->parts = nm_classification_parts_of(&self->loaded.task);
    self->classes = nm_classification_classes(self->parts);
    self->max_length = data->max_length;
    self->confusion = nm_confusion_create(self->classes);
    nm_labeled_config table =
        nm_classification_table(data); /* columns are the model's unless said otherwise */
    table.format = said->format;
    table.lines_by_default = !self->config->evaluate;
    table.with_label = self->config->evaluate;
    return nm_labeled_open(&self->texts, argc > 1 ? argv[1] : "-", &table, err);
}

static void job_release(job *self)
{
    nm_labeled_close(&self->texts);
    nm_labeled_set_release(&self->set);
    nm_confusion_release(&self->confusion);
    nm_ids_release(&self->right);
    nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
}

/* ---- texts ---- */

static nm_status read_texts(job *self, nm_error *err)
{
    size_t most = isatty(fileno(self->texts.stream)) ? 1 : TEXTS_AT_ONCE;
    nm_labeled_set_clear(&self->set);
    while (self->set.n < most && self->set.ids.n < TOKENS_AT_ONCE) {
        bool more;
        int32_t label = 0;
        NM_TRY(nm_labeled_next(&self->texts, &more, err));
        if (!more)
            break;
        if (self->config->evaluate)
            NM_TRY(nm_classification_find(self->parts, &self->texts, &label, err));
        nm_classification_encode(self->parts, self->max_length, self->texts.text.data, self->texts.text.bytes,
                                 &self->set);
        nm_ids_append(&self->set.labels, label);
    }
    self->cut += self->set.cut;
    return NM_OK;
}

static void write_json(const job *self, int32_t best, const double *probabilities)
{
    json_t *root = json_object();
    json_object_set_new(root, "label", json_string(nm_classification_name(self->parts, best)));
    if (self->config->probabilities) {
        json_t *each = json_object();
        for (int32_t k = 0; k < self->classes; k++)
            json_object_set_new(each, nm_classification_name(self->parts, k), json_real(probabilities[k]));
        json_object_set_new(root, "probabilities", each);
    }
    json_dumpf(root, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(root);
}

static void write_one(const job *self, int32_t best, const double *probabilities)
{
    if (self->config->json) {
        write_json(self, best, probabilities);
        return;
    }
    fputs(nm_classification_name(self->parts, best), stdout);
    for (int32_t k = 0; self->config->probabilities && k < self->classes; k++)
        printf("\t%.6f", probabilities[k]);
    putchar('\n');
}

static nm_status classify_texts(job *self, nm_error *err)
{
    nm_corpus texts = nm_labeled_set_corpus(&self->set);
    size_t classes = (size_t)self->classes;
    double *probabilities = calloc(self->set.n * classes, sizeof *probabilities);
    NM_ASSERT(probabilities);
    nm_status status =
        nm_classification_probabilities(&self->loaded.task, self->loaded.model, &texts, probabilities, err);
    for (size_t i = 0; i < self->set.n && status == NM_OK; i++) {
        int32_t best = nm_classification_best(probabilities + i * classes, self->classes);
        if (self->config->evaluate) {
            nm_confusion_add(&self->confusion, self->set.labels.data[i], best);
            nm_ids_append(&self->right, self->set.labels.data[i] == best);
        } else {
            write_one(self, best, probabilities + i * classes);
        }
    }
    free(probabilities);
    return status == NM_OK ? nm_file_flush(stdout, "standard output", err) : status;
}

static nm_status classify_all(job *self, nm_error *err)
{
    if (self->config->probabilities && !self->config->json && !self->config->evaluate) {
        fputs("label", stdout);
        for (int32_t k = 0; k < self->classes; k++)
            printf("\t%s", nm_classification_name(self->parts, k));
        putchar('\n');
    }
    do {
        NM_TRY(read_texts(self, err));
        if (self->set.n)
            NM_TRY(classify_texts(self, err));
    } while (self->set.n);
    return NM_OK;
}

/* ---- evaluation ---- */

static nm_interval interval_of(const job *self)
{
    nm_bootstrap_config draws = nm_bootstrap_default();
    draws.n_resamples = (int)self->config->bootstrap;
    draws.seed = (uint64_t)self->config->seed;
    int64_t *rows = calloc(self->right.n + 1, NM_ACCURACY_COUNTS * sizeof *rows);
    NM_ASSERT(rows);
    for (size_t i = 0; i < self->right.n; i++) {
        rows[NM_ACCURACY_COUNTS * i] = self->right.data[i];
        rows[NM_ACCURACY_COUNTS * i + 1] = 1;
    }
    const nm_counts counts = {rows, self->right.n, NM_ACCURACY_COUNTS};
    nm_interval interval = nm_bootstrap_interval(counts, nm_accuracy_of_counts, NULL, &draws);
    free(rows);
    return interval;
}

static json_t *matrix_json(const job *self)
{
    json_t *rows = json_array();
    for (int32_t wanted = 0; wanted < self->classes; wanted++) {
        json_t *row = json_array();
        for (int32_t found = 0; found < self->classes; found++)
            json_array_append_new(
                row, json_integer((json_int_t)self->confusion.matrix[wanted * self->classes + found]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static void print_evaluation_json(const job *self)
{
    json_t *root = json_object(), *names = json_array();
    for (int32_t k = 0; k < self->classes; k++)
        json_array_append_new(names, json_string(nm_classification_name(self->parts, k)));
    json_object_set_new(root, "accuracy", json_real(nm_confusion_accuracy(&self->confusion)));
    json_object_set_new(root, "macro_f1", json_real(nm_confusion_macro_f1(&self->confusion)));
    json_object_set_new(root, "texts", json_integer((json_int_t)self->right.n));
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self);
        json_object_set_new(root, "accuracy_low", json_real(interval.low));
        json_object_set_new(root, "accuracy_high", json_real(interval.high));
    }
    json_object_set_new(root, "classes", names);
    json_object_set_new(root, "confusion", matrix_json(self));
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(root);
}

static nm_status print_evaluation(const job *self, nm_error *err)
{
    if (!self->right.n)
        return nm_fail(err, NM_FORMAT, "%s: no text in it", self->texts.path);
    if (self->config->json) {
        print_evaluation_json(self);
        return NM_OK;
    }
    const char **names = calloc((size_t)self->classes, sizeof *names);
    NM_ASSERT(names);
    for (int32_t k = 0; k < self->classes; k++)
        names[k] = nm_classification_name(self->parts, k);
    printf("accuracy %.2f", nm_confusion_accuracy(&self->confusion));
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self);
        printf("  [%.2f, %.2f]", interval.low, interval.high);
    }
    printf("  macro-F1 %.2f  texts %zu\n\n", nm_confusion_macro_f1(&self->confusion), self->right.n);
    nm_confusion_print(&self->confusion, names, stdout);
    free(names);
    return NM_OK;
}

static int classify_run(nm_cli *cli, int argc, char **argv)
{
    nm_error err = {0};
    job self = {.cli = cli, .config = nm_options_find(cli->options, "classify")};
    nm_status status = nm_cli_want(cli, argc, 1, 2, &err);
    if (status == NM_OK)
        status = job_open(&self, argc, argv, &err);
    if (status == NM_OK)
        status = classify_all(&self, &err);
    if (status == NM_OK && self.config->evaluate)
        status = print_evaluation(&self, &err);
    if (status == NM_OK && self.cut)
        fprintf(stderr, "norma: %lld texts have more than %lld tokens; only their beginning was looked at\n",
                (long long)self.cut, (long long)self.max_length);
    job_release(&self);
    return status == NM_OK ? NM_OK : nm_cli_fail(&err);
}

const nm_command nm_command_classify = {
    .name = "classify",
    .summary = "classify texts with a trained model",
    .usage = "RUN|MODEL [FILE] [--probabilities] [--evaluate] [--json] [OPTION ...]",
    .details =
        "Reads one text a line (or a table, by the name's ending .tsv or .csv or by --format) and writes one "
        "label a line. A run folder stands for its best model, else its last one. Tokenizer, dictionary, "
        "label names and columns come from inside the model; the options of [data] below say otherwise. "
        "Texts longer than data.max_length of the model are cut, and counted.\n\n"
        "With --evaluate the file is a table of labels and texts, and what is printed is accuracy with "
        "its 95 % bootstrap interval, macro-F1 and the confusion matrix: wanted classes in rows, found "
        "ones in columns.\n",
    .section = "classify,data,device",
    .options = classify_options,
    .run = classify_run,
};
