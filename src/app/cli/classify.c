/* norma classify: labels texts with a trained classifier, or evaluates it on a labeled file. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text_input.h"
#include "base/record.h"
#include "cli/classify_images.h"
#include "cli/line_numbers.h"
#include "cli/model_command.h"
#include "base/line_list.h"
#include "norma/classifier.h"
#include "task/classification.h"

/* Maximum size of a buffer: number and bytes of the texts that are read before they are classified. */
enum { BUFFER_TEXTS = 2000, BUFFER_BYTES = 4 << 20 };

enum { SKIPPED = -1 }; /* label of an invalid line */

typedef struct classify_config { /* section [classify] */
    const char *output;
    bool probabilities, evaluate, json;
    int64_t bootstrap, seed;
    nm_on_invalid on_invalid;
} classify_config;

typedef struct columns_config { /* section [data], options of files with tables */
    NM_LABELED_FIELDS;
} columns_config;

/* clang-format off */
static const nm_option classify_rows[] = {
    NM_OPTION(classify_config, output, "-", 0, 0, "Output file, complete or absent; - is standard output."),
    NM_OPTION(classify_config, probabilities, "false", 0, 1,
        "Append the probability of every class to each line; the first line names the classes."),
    NM_OPTION(classify_config, evaluate, "false", 0, 1,
        "Compare with the labels of the file and print accuracy, macro-F1 and confusion matrix."),
    NM_OPTION(classify_config, json, "false", 0, 1,
        "Write one JSON object per text, or one for the evaluation."),
    NM_OPTION(classify_config, bootstrap, "1000", 0, 10000000,
        "Number of bootstrap resamples for the interval of --evaluate; 0: no interval."),
    NM_OPTION(classify_config, seed, "1", 0, 9e15, "Random seed of the bootstrap."),
    NM_CHOICE(classify_config, on_invalid, "error", NM_ON_INVALID_CHOICES,
        "Treatment of lines and rows that are not UTF-8 or contain zero bytes: stop with an error after the "
        "preceding lines, or skip: write a line without a label."),
    {0}};
static const nm_option_rule classify_rules[] = {
    {"classify.bootstrap", "classify.evaluate", "true", "only the evaluation has an interval", NULL},
    {"classify.seed", "classify.evaluate", "true", "only the evaluation has resamples", NULL},
    {"classify.on_invalid", "classify.evaluate", "false", "the evaluation prints no texts", NULL},
    {"classify.probabilities", "classify.evaluate", "false", "the evaluation prints no texts", NULL},
    NM_LABELED_RULES,
    {0}};
static const nm_option column_rows[] = {NM_LABELED_ROWS(columns_config), {0}};
/* clang-format on */

static void classify_options(nm_options *options)
{
    nm_options_add(options, "data", column_rows, NULL, sizeof(columns_config));
}

typedef struct job {
    const classify_config *config;
    nm_status unread; /* of the model, when its task was looked up; if not NM_OK, with this error */
    nm_error why;
    nm_model_session *session;
    nm_classifier *classifier;
    FILE *output;
    nm_counter classes; /* item i is class i */
    nm_labeled texts;
    nm_line_list lines; /* the texts in the buffer, NUL-terminated */
    nm_ids labels;      /* evaluate: labels of the texts in the buffer; otherwise SKIPPED or 0 */
    int64_t *numbers;   /* [lines.n]: numbers of their lines in the file */
    size_t numbers_capacity;
    nm_counter others;      /* evaluate: labels of the file that are not classes */
    nm_confusion confusion; /* evaluate: of the classes, then the others */
    nm_ids results;         /* evaluate: labels and predictions of all texts, alternating */
    nm_ids pairs; /* evaluate: labels and predictions of this process since the last exchange, alternating */
    nm_cli_line_numbers truncated, skipped;
    nm_cli_line_numbers unknown; /* evaluate: lines of the texts whose label is not a class */
    int64_t block;               /* number of the buffer; rank block % size classifies it */
} job;

static nm_status open_classifier(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    job *self = state;
    if (self->unread != NM_OK) {
        *err = self->why;
        return self->unread;
    }
    NM_AUTO_FREE const char **settings = nm_cli_settings(session->cli, "classify,data");
    nm_status status = nm_classifier_open(&self->classifier, path, settings, err);
    nm_cli_warn(nm_classifier_warning(self->classifier));
    return status;
}

/* The columns are those of the training data of the model, unless the command line sets others. */
static nm_status open_input(job *self, nm_error *err)
{
    static const char *const columns[] = {"data.quotes", "data.header", "data.label", "data.text"};
    nm_options *options = self->session->cli->options;
    const columns_config *data = nm_options_find(options, "data");
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (nm_options_origin(options, columns[i]) != NM_ORIGIN_COMMAND)
            NM_TRY(nm_options_set(options, columns[i], nm_classifier_option(self->classifier, columns[i]),
                                  NM_ORIGIN_FILE, err));
    for (size_t k = 0; k < nm_classifier_n_classes(self->classifier); k++) {
        const char *name = nm_classifier_class(self->classifier, k);
        nm_counter_add(&self->classes, name, strlen(name), 1);
    }
    bool of_model = nm_options_origin(options, "data.header") != NM_ORIGIN_COMMAND;
    const nm_labeled_config table = {.encoding = data->encoding,
                                     .format = data->format,
                                     .quotes = data->quotes,
                                     .header = data->header,
                                     .label = data->label,
                                     .text = data->text,
                                     .lines_by_default = !self->config->evaluate,
                                     .with_label = self->config->evaluate,
                                     .skip_invalid = self->config->on_invalid == NM_INVALID_IS_SKIPPED,
                                     .labels = of_model ? &self->classes : NULL};
    NM_TRY(nm_labeled_open(&self->texts, self->session->inputs[0], &table, err));
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++)
        if (self->texts.format == NM_LABELED_LINES &&
            nm_options_origin(options, columns[i]) == NM_ORIGIN_COMMAND)
            return nm_fail(
                err, NM_USAGE,
                "%s has no effect: the name of %s does not end in .csv, .tsv or .jsonl, so its lines "
                "are texts; --format reads a table",
                columns[i], self->texts.path);
    return NM_OK;
}

static void release(void *state)
{
    job *self = state;
    nm_classifier_close(self->classifier);
    nm_counter_release(&self->classes);
    nm_labeled_close(&self->texts);
    nm_line_list_release(&self->lines);
    nm_ids_release(&self->labels);
    nm_confusion_release(&self->confusion);
    nm_counter_release(&self->others);
    nm_ids_release(&self->results);
    nm_ids_release(&self->pairs);
    free(self->numbers);
}

/* The text of a table without a header would be lost without a message. */
static void report_assumed_header(job *self)
{
    if (!self->texts.assumed_header || self->session->comm->rank)
        return;
    fprintf(stderr,
            "norma: %s: the first row is skipped as the header, because the model was trained with "
            "data.header = yes; --header no reads it as a text\n",
            self->texts.path);
    self->texts.assumed_header = false;
}

/* After an error the buffer has the texts before it. */
static nm_status read_texts(job *self, nm_error *err)
{
    size_t max_texts = isatty(fileno(self->texts.stream)) ? 1 : BUFFER_TEXTS, bytes = 0;
    nm_line_list_clear(&self->lines);
    self->labels.n = 0;
    while (self->lines.n < max_texts && bytes < BUFFER_BYTES) {
        bool more;
        int32_t label = 0;
        NM_TRY(nm_labeled_next(&self->texts, &more, err));
        report_assumed_header(self);
        if (!more)
            break;
        if (self->texts.invalid) {
            nm_cli_line_numbers_add(&self->skipped, nm_labeled_line(&self->texts));
            label = SKIPPED;
        }
        if (self->config->evaluate)
            NM_TRY(nm_classification_find(&self->classes, &self->others, &self->texts, &label, err));
        if (self->config->evaluate && (size_t)label >= self->classes.n)
            nm_cli_line_numbers_add(&self->unknown, nm_labeled_line(&self->texts));
        NM_GROW(self->numbers, self->lines.n, self->numbers_capacity);
        self->numbers[self->lines.n] = nm_labeled_line(&self->texts);
        nm_line_list_add(&self->lines, self->texts.text.data, self->texts.text.bytes + 1);
        nm_ids_append(&self->labels, label);
        bytes += self->texts.text.bytes;
    }
    return NM_OK;
}

#define CLASSIFIED(F)                                                                                        \
    F(text, label, "Predicted class; null for a skipped line")                                               \
    F(flag, truncated, "Whether the text was cut")                                                           \
    F(json, probabilities, "Probability of each class", "probabilities?")
NM_RECORD(classified, CLASSIFIED)
static NM_FIELDS(classified, CLASSIFIED)

/* probabilities: NULL for a skipped line. */
static void write_json(const job *self, const char *label, const double *probabilities, bool truncated)
{
    json_t *each = self->config->probabilities && probabilities ? json_object() : NULL;
    for (size_t k = 0; each && k < self->classes.n; k++)
        json_object_set_new(each, self->classes.items[k].text, json_real(probabilities[k]));
    const classified record = {probabilities ? label : NULL, truncated, each};
    nm_json_print(nm_record_json(classified_fields(), &record), JSON_COMPACT, self->output);
}

static void write_one(const job *self, const char *label, const double *probabilities, bool truncated)
{
    if (self->config->json) {
        write_json(self, label, probabilities, truncated);
        return;
    }
    fputs(probabilities ? label : "", self->output);
    for (size_t k = 0; self->config->probabilities && k < self->classes.n; k++)
        if (probabilities)
            fprintf(self->output, "\t%.6f", probabilities[k]);
        else
            putc('\t', self->output);
    putc('\n', self->output);
}

static nm_status classify_texts(job *self, nm_error *err)
{
    nm_classifications *results;
    NM_AUTO_FREE const char **texts = nm_line_list_texts(&self->lines);
    NM_TRY(nm_classifier_run(self->classifier, texts, self->lines.n, &results, err));
    for (size_t i = 0; i < self->lines.n; i++) {
        int32_t best = (int32_t)nm_classifications_best(results, i);
        bool truncated = nm_classifications_truncated(results, i);
        if (truncated)
            nm_cli_line_numbers_add(&self->truncated, self->numbers[i]);
        if (self->config->evaluate) {
            nm_ids_append(&self->pairs, self->labels.data[i]);
            nm_ids_append(&self->pairs, best);
        } else {
            write_one(self, nm_classifications_label(results, i),
                      self->labels.data[i] == SKIPPED ? NULL : nm_classifications_probabilities(results, i),
                      truncated);
        }
    }
    nm_classifications_free(results);
    return NM_OK;
}

/* Gathers the results of all processes, in the order of the texts, after each process has classified one
 * buffer. */
static nm_status exchange_results(job *self, nm_error *err)
{
    nm_comm *comm = self->session->comm;
    if (!self->config->evaluate)
        return nm_model_session_flush(self->session, err);
    NM_AUTO_FREE char *all = NULL;
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)comm->size * sizeof *ends);
    nm_status status = nm_comm_gather_bytes(comm, self->pairs.data, self->pairs.n * sizeof *self->pairs.data,
                                            &all, ends, err);
    const int32_t *pairs = (const int32_t *)(const void *)all;
    for (size_t i = 0; status == NM_OK && i < ends[comm->size - 1] / sizeof *pairs; i++)
        nm_ids_append(&self->results, pairs[i]);
    self->pairs.n = 0;
    return status;
}

static nm_status classify_all(job *self, nm_error *err)
{
    const nm_comm *comm = self->session->comm;
    if (self->config->probabilities && !self->config->json && !self->config->evaluate && !comm->rank) {
        fputs("label", self->output);
        for (size_t k = 0; k < self->classes.n; k++)
            fprintf(self->output, "\t%s", self->classes.items[k].text);
        putc('\n', self->output);
    }
    do {
        nm_error unread = {0};
        nm_status read = read_texts(self, &unread);
        int32_t rank = (int32_t)(self->block++ % comm->size);
        if (self->lines.n && rank == comm->rank)
            NM_TRY(classify_texts(self, err));
        if (rank == comm->size - 1 || !self->lines.n || read != NM_OK)
            NM_TRY(exchange_results(self, err));
        if (read != NM_OK)
            *err = unread;
        NM_TRY(read);
    } while (self->lines.n);
    return NM_OK;
}

static size_t n_evaluated(const job *self)
{
    return self->results.n / 2;
}

static size_t n_labels(const job *self)
{
    return self->classes.n + self->others.n;
}

/* The classes of the model, then the other labels of the file; the caller frees the array. */
static const char **label_names(const job *self)
{
    const char **names = nm_allocate((n_labels(self) + 1) * sizeof *names);
    for (size_t k = 0; k < n_labels(self); k++)
        names[k] =
            (k < self->classes.n ? self->classes.items[k] : self->others.items[k - self->classes.n]).text;
    return names;
}

static nm_interval interval_of(const job *self)
{
    nm_bootstrap_config resamples = nm_bootstrap_default();
    resamples.n_resamples = (int)self->config->bootstrap;
    resamples.seed = (uint64_t)self->config->seed;
    const size_t n = n_evaluated(self);
    NM_AUTO_FREE int64_t *rows = nm_allocate((n + 1) * NM_ACCURACY_COUNTS * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        rows[NM_ACCURACY_COUNTS * i] = self->results.data[2 * i] == self->results.data[2 * i + 1];
        rows[NM_ACCURACY_COUNTS * i + 1] = 1;
    }
    const nm_counts counts = {rows, n, NM_ACCURACY_COUNTS};
    return nm_bootstrap_interval(counts, nm_accuracy_of_counts, NULL, &resamples);
}

#define CLASS_EVALUATION(F)                                                                                  \
    F(real, accuracy, "Accuracy in percent")                                                                 \
    F(real, macro_f1, "Mean of F1 over the classes that occur as gold or predicted labels")                  \
    F(int, texts, "Number of texts")                                                                         \
    F(int, unknown_labels, "Number of texts whose label is not a class of the model; they count as errors")  \
    F(real, accuracy_low, "95 % bootstrap interval of the accuracy", "accuracy_low?")                        \
    F(real, accuracy_high, "Upper end of the interval", "accuracy_high?")                                    \
    F(json, classes, "Names of the classes, then of other labels of the file")                               \
    F(json, confusion, "Confusion matrix, gold classes in rows")
NM_RECORD(class_evaluation, CLASS_EVALUATION)
static NM_FIELDS(class_evaluation, CLASS_EVALUATION)

static void print_evaluation_json(const job *self)
{
    NM_AUTO_FREE const char **names = label_names(self);
    const nm_interval interval = self->config->bootstrap ? interval_of(self) : (nm_interval){NAN, NAN, NAN};
    const class_evaluation record = {.accuracy = nm_confusion_accuracy(&self->confusion),
                                     .macro_f1 = nm_confusion_macro_f1(&self->confusion),
                                     .texts = (int64_t)n_evaluated(self),
                                     .unknown_labels = (int64_t)self->unknown.n,
                                     .accuracy_low = interval.low,
                                     .accuracy_high = interval.high,
                                     .classes = nm_json_texts(names, n_labels(self)),
                                     .confusion = nm_confusion_json(&self->confusion)};
    nm_json_print(nm_record_json(class_evaluation_fields(), &record), JSON_INDENT(1), self->output);
}

static void print_evaluation_text(const job *self)
{
    NM_AUTO_FREE const char **names = label_names(self);
    fprintf(self->output, "accuracy %.2f", nm_confusion_accuracy(&self->confusion));
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self);
        fprintf(self->output, "  [%.2f, %.2f]", interval.low, interval.high);
    }
    fprintf(self->output, "  macro-F1 %.2f  texts %zu\n\n", nm_confusion_macro_f1(&self->confusion),
            n_evaluated(self));
    nm_confusion_print(&self->confusion, names, self->output);
}

static nm_status print_evaluation(job *self, nm_error *err)
{
    const size_t n = n_evaluated(self);
    if (!n)
        return nm_fail(err, NM_FORMAT, "%s: no texts to evaluate", self->texts.path);
    NM_TRY(nm_classification_check_known(&self->classes, &self->others, n - (size_t)self->unknown.n,
                                         &self->texts, err));
    self->confusion = nm_confusion_create((int32_t)n_labels(self));
    for (size_t i = 0; i < n; i++)
        nm_confusion_add(&self->confusion, self->results.data[2 * i], self->results.data[2 * i + 1]);
    if (self->config->json)
        print_evaluation_json(self);
    else
        print_evaluation_text(self);
    return NM_OK;
}

static void report_unknown_labels(const job *self)
{
    if (!self->unknown.n)
        return;
    NM_AUTO_FREE char *lines = nm_cli_line_numbers_text(&self->unknown),
                      *names = nm_classification_list(&self->others);
    fprintf(stderr,
            "norma: the labels of %lld of %zu texts are not among the model's classes: %s (%s); they count "
            "as errors\n",
            (long long)self->unknown.n, n_evaluated(self), names, lines);
}

static void report_lines(const job *self)
{
    const char *unit = self->texts.lines ? "lines" : "rows";
    long long n = (long long)self->texts.row + 1;
    char *lines = nm_cli_line_numbers_text(&self->skipped);
    if (self->skipped.n)
        fprintf(stderr, "norma: %lld of %lld %s are not UTF-8 or contain zero bytes and have no label (%s)\n",
                (long long)self->skipped.n, n, unit, lines);
    free(lines);
    lines = nm_cli_line_numbers_text(&self->truncated);
    if (self->truncated.n)
        fprintf(stderr, "norma: %lld of %lld texts have more than %s tokens and were truncated (%s)\n",
                (long long)self->truncated.n, n, nm_classifier_option(self->classifier, "data.max_length"),
                lines);
    free(lines);
}

static nm_status classify(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    self->output = session->output.stream;
    NM_TRY(open_input(self, err));
    NM_TRY(classify_all(self, err));
    NM_TRY(nm_cli_line_numbers_gather(&self->truncated, session->comm, err));
    if (session->comm->rank)
        return NM_OK;
    if (self->config->evaluate)
        NM_TRY(print_evaluation(self, err));
    report_lines(self);
    report_unknown_labels(self);
    return NM_OK;
}

static int classify_run(nm_cli *cli, int argc, char **argv)
{
    job self = {.config = nm_options_find(cli->options, "classify")};
    const classify_config *c = self.config;
    bool of_images = false;
    if (argc)
        self.unread = nm_find_image_model(argv[0], &of_images, &self.why);
    if (of_images) {
        const nm_classify_images_config images = {c->output, c->probabilities, c->evaluate,
                                                  c->json,   c->bootstrap,     c->seed};
        return nm_classify_images(cli, &images, argc, argv);
    }
    const nm_model_command command = {.open = open_classifier,
                                      .max_inputs = self.unread == NM_OK ? 1 : 1 << 20,
                                      .output = self.config->output,
                                      .process = classify,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}

const nm_command nm_command_classify = {
    .name = "classify",
    .summary = "classify texts or images with a trained model",
    .usage = "MODEL [FILE ...] [--probabilities] [--evaluate] [--json] [--output FILE] [OPTION ...]",
    .details =
        "Reads one text per line, or a table (file name ending in .tsv, .csv, .jsonl, .ndjson or .json, "
        "or --format), from FILE or standard input, and writes one label per line. MODEL is a model file "
        "or a run folder, of which the best model is used, or else the last one. Tokenizer, dictionary, "
        "labels and columns come from the model; the options of [data] override them. Texts with more "
        "than data.max_length tokens are truncated, counted, and named by their line numbers.\n\n"
        "With --evaluate the file is a table of labels and texts. The output is the accuracy with its 95 % "
        "bootstrap interval, macro-F1, and the confusion matrix with gold classes in rows and predicted "
        "classes in columns. With more than 20 classes, precision, recall and F1 of each class and the most "
        "frequent errors replace the matrix. Labels of the file that the model does not have count as "
        "errors.\n\n"
        "With a model of images (norma train image), FILE ... are JPEG or PNG files, whose labels are "
        "written in "
        "this order. With --evaluate, FILE is a folder with one folder of images per class, or CIFAR-10's "
        "binary "
        "records.\n",
    .section = "classify,data,device",
    .rows = classify_rows,
    .config_bytes = sizeof(classify_config),
    .infers = true,
    .options = classify_options,
    .rules = classify_rules,
    .ranks = true,
    .run = classify_run,
};
