/* norma classify: labels texts with a trained classifier, or evaluates it on a labeled file. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/model_command.h"
#include "task/classification.h"

/* Limits of the texts that are read before they are classified. */
enum { BUFFER_TEXTS = 2000, BUFFER_TOKENS = 1 << 20 };

typedef struct classify_config { /* section [classify] */
    const char *output;
    bool probabilities, evaluate, json;
    int64_t bootstrap, seed;
} classify_config;

typedef struct columns_config { /* section [data], the options of tables */
    NM_LABELED_FIELDS;
} columns_config;

/* clang-format off */
static const nm_option classify_rows[] = {
    NM_OPTION(classify_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_OPTION(classify_config, probabilities, "false", 0, 1, "Append the probability of every class to each line; the first line names the classes."),
    NM_OPTION(classify_config, evaluate, "false", 0, 1, "Compare with the labels of the file and print accuracy, macro-F1 and confusion matrix."),
    NM_OPTION(classify_config, json, "false", 0, 1, "Write one JSON object per text, or one for the evaluation."),
    NM_OPTION(classify_config, bootstrap, "1000", 0, 10000000, "Number of bootstrap resamples for the interval of --evaluate; 0: no interval."),
    NM_OPTION(classify_config, seed, "1", 0, 9e15, "Random seed of the bootstrap."),
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
    const classify_config *config;
    nm_model_session *session;
    nm_loaded_model *loaded;
    FILE *output;
    nm_classification_parts *parts;
    int32_t classes;
    int64_t max_length;
    nm_labeled texts;
    nm_labeled_set set; /* the texts in the buffer */
    nm_confusion confusion;
    nm_ids correct; /* evaluate: 1 or 0 for every text */
    int64_t cut;
} job;

/* The columns are those of the model's training data unless the command line names others. */
static nm_status open_input(job *self, nm_error *err)
{
    const nm_classification_config *data = self->loaded->task.config;
    const columns_config *given = nm_options_find(self->session->cli->options, "data");
    self->parts = nm_classification_parts_of(&self->loaded->task);
    self->classes = nm_classification_classes(self->parts);
    self->max_length = data->max_length;
    self->confusion = nm_confusion_create(self->classes);
    nm_labeled_config table = nm_classification_table(data);
    table.encoding = given->encoding;
    table.format = given->format;
    table.lines_by_default = !self->config->evaluate;
    table.with_label = self->config->evaluate;
    return nm_labeled_open(&self->texts, self->session->inputs[0], &table, err);
}

static void release(void *state)
{
    job *self = state;
    nm_labeled_close(&self->texts);
    nm_labeled_set_release(&self->set);
    nm_confusion_release(&self->confusion);
    nm_ids_release(&self->correct);
}

/* ---- texts ---- */

static nm_status read_texts(job *self, nm_error *err)
{
    size_t max_texts = isatty(fileno(self->texts.stream)) ? 1 : BUFFER_TEXTS;
    nm_labeled_set_clear(&self->set);
    while (self->set.n < max_texts && self->set.ids.n < BUFFER_TOKENS) {
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
    json_dumpf(root, self->output, JSON_COMPACT | JSON_PRESERVE_ORDER);
    putc('\n', self->output);
    json_decref(root);
}

static void write_one(const job *self, int32_t best, const double *probabilities)
{
    if (self->config->json) {
        write_json(self, best, probabilities);
        return;
    }
    fputs(nm_classification_name(self->parts, best), self->output);
    for (int32_t k = 0; self->config->probabilities && k < self->classes; k++)
        fprintf(self->output, "\t%.6f", probabilities[k]);
    putc('\n', self->output);
}

static nm_status classify_texts(job *self, nm_error *err)
{
    nm_corpus texts = nm_labeled_set_corpus(&self->set);
    size_t classes = (size_t)self->classes;
    double *probabilities = nm_allocate(self->set.n * classes * sizeof *probabilities);
    nm_status status =
        nm_classification_probabilities(&self->loaded->task, self->loaded->model, &texts, probabilities, err);
    for (size_t i = 0; i < self->set.n && status == NM_OK; i++) {
        int32_t best = nm_classification_best(probabilities + i * classes, self->classes);
        if (self->config->evaluate) {
            nm_confusion_add(&self->confusion, self->set.labels.data[i], best);
            nm_ids_append(&self->correct, self->set.labels.data[i] == best);
        } else {
            write_one(self, best, probabilities + i * classes);
        }
    }
    free(probabilities);
    return status == NM_OK ? nm_file_flush(self->output, self->session->output.name, err) : status;
}

static nm_status classify_all(job *self, nm_error *err)
{
    if (self->config->probabilities && !self->config->json && !self->config->evaluate) {
        fputs("label", self->output);
        for (int32_t k = 0; k < self->classes; k++)
            fprintf(self->output, "\t%s", nm_classification_name(self->parts, k));
        putc('\n', self->output);
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
    nm_bootstrap_config resamples = nm_bootstrap_default();
    resamples.n_resamples = (int)self->config->bootstrap;
    resamples.seed = (uint64_t)self->config->seed;
    int64_t *rows = nm_allocate((self->correct.n + 1) * NM_ACCURACY_COUNTS * sizeof *rows);
    for (size_t i = 0; i < self->correct.n; i++) {
        rows[NM_ACCURACY_COUNTS * i] = self->correct.data[i];
        rows[NM_ACCURACY_COUNTS * i + 1] = 1;
    }
    const nm_counts counts = {rows, self->correct.n, NM_ACCURACY_COUNTS};
    nm_interval interval = nm_bootstrap_interval(counts, nm_accuracy_of_counts, NULL, &resamples);
    free(rows);
    return interval;
}

static json_t *matrix_json(const job *self)
{
    json_t *rows = json_array();
    for (int32_t gold = 0; gold < self->classes; gold++) {
        json_t *row = json_array();
        for (int32_t found = 0; found < self->classes; found++)
            json_array_append_new(
                row, json_integer((json_int_t)self->confusion.matrix[gold * self->classes + found]));
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
    json_object_set_new(root, "texts", json_integer((json_int_t)self->correct.n));
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self);
        json_object_set_new(root, "accuracy_low", json_real(interval.low));
        json_object_set_new(root, "accuracy_high", json_real(interval.high));
    }
    json_object_set_new(root, "classes", names);
    json_object_set_new(root, "confusion", matrix_json(self));
    json_dumpf(root, self->output, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    putc('\n', self->output);
    json_decref(root);
}

static nm_status print_evaluation(const job *self, nm_error *err)
{
    if (!self->correct.n)
        return nm_fail(err, NM_FORMAT, "%s: no texts to evaluate", self->texts.path);
    if (self->config->json) {
        print_evaluation_json(self);
        return NM_OK;
    }
    const char **names = nm_allocate((size_t)self->classes * sizeof *names);
    for (int32_t k = 0; k < self->classes; k++)
        names[k] = nm_classification_name(self->parts, k);
    fprintf(self->output, "accuracy %.2f", nm_confusion_accuracy(&self->confusion));
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self);
        fprintf(self->output, "  [%.2f, %.2f]", interval.low, interval.high);
    }
    fprintf(self->output, "  macro-F1 %.2f  texts %zu\n\n", nm_confusion_macro_f1(&self->confusion),
            self->correct.n);
    nm_confusion_print(&self->confusion, names, self->output);
    free(names);
    return NM_OK;
}

static nm_status classify(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    self->loaded = &session->model;
    self->output = session->output.stream;
    NM_TRY(open_input(self, err));
    NM_TRY(classify_all(self, err));
    if (self->config->evaluate)
        NM_TRY(print_evaluation(self, err));
    if (self->cut)
        fprintf(stderr, "norma: %lld texts have more than %lld tokens and were truncated\n",
                (long long)self->cut, (long long)self->max_length);
    return NM_OK;
}

static int classify_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "classify")};
    const nm_model_command command = {.task = &nm_task_classification,
                                      .refusal = "does not classify",
                                      .max_inputs = 1,
                                      .output = self.config->output,
                                      .process = classify,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_classify = {
    .name = "classify",
    .summary = "classify texts with a trained model",
    .usage = "MODEL [FILE] [--probabilities] [--evaluate] [--json] [--output FILE] [OPTION ...]",
    .details =
        "Reads one text per line, or a table (file name ending in .tsv or .csv, or --format), from FILE "
        "or standard input, and writes one label per line. MODEL is a model file or a run folder, of "
        "which the best model is used, or else the last one. Tokenizer, dictionary, labels and columns "
        "come from the model; the options of [data] override them. Texts with more than data.max_length "
        "tokens are truncated and counted.\n\n"
        "With --evaluate the file is a table of labels and texts, and the output is the accuracy with "
        "its 95 % bootstrap interval, macro-F1, and the confusion matrix with gold classes in rows and "
        "predicted classes in columns.\n",
    .section = "classify,data,device",
    .options = classify_options,
    .run = classify_run,
};
