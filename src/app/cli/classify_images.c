/* Labels image files, or evaluates a model on labeled images. */
#include "base/json.h"
#include "base/record.h"
#include "cli/classify_images.h"

#include <jansson.h>
#include <string.h>

#include "cli/model_command.h"
#include "cli/open_backend.h"
#include "text/classes.h"
#include "norma/image_classifier.h"
#include "task/image.h"
#include "task/model_loader.h"

nm_status nm_find_image_model(const char *path, bool *found, nm_error *err)
{
    NM_AUTO(nm_options_release) nm_options *options = NULL;
    const nm_task_type *task;
    NM_AUTO_FREE char *file = NULL;
    NM_TRY(nm_loaded_model_options(path, &options, &task, &file, err));
    *found = task == &nm_task_image;
    return NM_OK;
}

typedef struct job {
    const nm_classify_images_config *config;
    nm_model_session *session;
    nm_image_classifier *classifier;
    nm_loaded_model loaded; /* evaluate */
    nm_backend *backend;    /* evaluate */
    size_t n_classes;
} job;

/* The model with its task, which reads labeled images. */
static nm_status open_for_evaluation(job *self, const nm_cli *cli, const char *path, nm_error *err)
{
    const nm_device_config *device = nm_options_find(cli->options, "device");
    nm_options *options;
    const nm_task_type *task;
    NM_AUTO_FREE char *file = NULL;
    NM_TRY(nm_loaded_model_options(path, &options, &task, &file, err));
    nm_status status = nm_cli_open_backend(cli, options, &self->backend, err);
    if (status == NM_OK)
        status = nm_loaded_model_open(&self->loaded, file, task, options, self->backend, device->fold,
                                      device->precision == NM_PRECISION_INT8, err);
    else
        nm_options_free(options);
    if (status == NM_OK)
        self->n_classes = ((const nm_image_parts *)self->loaded.task.parts)->classes.n;
    return status;
}

static nm_status open_model(nm_model_session *session, void *state, const char *path, nm_error *err)
{
    job *self = state;
    if (self->config->evaluate)
        return open_for_evaluation(self, session->cli, path, err);
    NM_AUTO_FREE const char **settings = nm_cli_settings(session->cli, "classify,data");
    nm_status status = nm_image_classifier_open(&self->classifier, path, settings, err);
    nm_cli_warn(nm_image_classifier_warning(self->classifier));
    self->n_classes = nm_image_classifier_n_classes(self->classifier);
    return status;
}

static void release(void *state)
{
    job *self = state;
    nm_image_classifier_close(self->classifier);
    if (self->loaded.model)
        nm_loaded_model_close(&self->loaded);
    nm_backend_free(self->backend);
}

#define CLASSIFIED_IMAGE(F)                                                                                  \
    F(text, file, "Image file")                                                                              \
    F(text, label, "Predicted class")                                                                        \
    F(json, probabilities, "Probability of each class", "probabilities?")
NM_RECORD(classified_image, CLASSIFIED_IMAGE)
static NM_FIELDS(classified_image, CLASSIFIED_IMAGE)

static void write_json(const job *self, FILE *out, const char *path, const char *label,
                       const double *probabilities)
{
    json_t *each = self->config->probabilities ? json_object() : NULL;
    for (size_t k = 0; each && k < self->n_classes; k++)
        json_object_set_new(each, nm_image_classifier_class(self->classifier, k),
                            json_real(probabilities[k]));
    const classified_image record = {path, label, each};
    nm_json_print(nm_record_json(classified_image_fields(), &record), JSON_COMPACT, out);
}

static void write_one(const job *self, FILE *out, const char *path, const nm_classifications *results)
{
    const char *label = nm_classifications_label(results, 0);
    const double *probabilities = nm_classifications_probabilities(results, 0);
    if (self->config->json) {
        write_json(self, out, path, label, probabilities);
        return;
    }
    fputs(label, out);
    for (size_t k = 0; self->config->probabilities && k < self->n_classes; k++)
        fprintf(out, "\t%.6f", probabilities[k]);
    putc('\n', out);
}

/* Number of files that a process classifies before the output of all is written. */
enum { ROUND_FILES = 8 };

/* Classifies the files first .. end - 1. */
static nm_status label_some(job *self, int first, int end, nm_error *err)
{
    for (int i = first; i < end; i++) {
        const char *path = self->session->inputs[i];
        nm_classifications *results;
        if (!strcmp(path, "-"))
            return nm_fail(err, NM_USAGE, "give the image files as arguments: norma classify MODEL FILE ...");
        NM_TRY(nm_image_classifier_run(self->classifier, &path, 1, &results, err));
        write_one(self, self->session->output.stream, path, results);
        nm_classifications_free(results);
    }
    return NM_OK;
}

/* Writes the output of a round. After a failure of a process, the lines of the processes after it are left
 * out, and *stop is set on all: a single process would not have written them. */
static nm_status end_round(job *self, nm_status status, bool *stop, nm_error *err)
{
    nm_comm *comm = self->session->comm;
    NM_AUTO_FREE nm_status *all = nm_allocate((size_t)comm->size * sizeof *all);
    const nm_error own = *err;
    all[comm->rank] = status;
    nm_status exchanged = nm_comm_gather(comm, all, sizeof *all, err);
    bool failed_before = false;
    for (int32_t rank = 0; rank < comm->size && exchanged == NM_OK; rank++) {
        failed_before |= rank < comm->rank && all[rank] != NM_OK;
        *stop |= all[rank] != NM_OK;
    }
    NM_TRY(exchanged);
    if (failed_before)
        rewind(self->session->output.stream);
    NM_TRY(nm_model_session_flush(self->session, err));
    if (status != NM_OK)
        *err = own;
    return failed_before ? NM_OK : status;
}

static nm_status label_files(job *self, nm_error *err)
{
    const nm_comm *comm = self->session->comm;
    FILE *out = self->session->output.stream;
    if (self->config->probabilities && !self->config->json && !comm->rank) {
        fputs("label", out);
        for (size_t k = 0; k < self->n_classes; k++)
            fprintf(out, "\t%s", nm_image_classifier_class(self->classifier, k));
        putc('\n', out);
    }
    const int n = self->session->n_inputs;
    bool stop = false;
    for (int round = 0; round < n && !stop; round += comm->size * ROUND_FILES) {
        const int own = round + comm->rank * ROUND_FILES, first = own < n ? own : n,
                  end = first + ROUND_FILES < n ? first + ROUND_FILES : n;
        nm_status status = label_some(self, first, end, err);
        NM_TRY(comm->size > 1 ? end_round(self, status, &stop, err) : status);
    }
    return NM_OK;
}

static nm_interval interval_of(const job *self, const nm_task_score *score)
{
    nm_bootstrap_config resamples = nm_bootstrap_default();
    resamples.n_resamples = (int)self->config->bootstrap;
    resamples.seed = (uint64_t)self->config->seed;
    return nm_bootstrap_interval(score->counts, score->of_counts, score->context, &resamples);
}

#define IMAGE_SCORES(F)                                                                                      \
    F(real, accuracy, "Accuracy in percent")                                                                 \
    F(real, macro_f1, "Macro-F1 in percent")                                                                 \
    F(int, images, "Number of images")                                                                       \
    F(real, accuracy_low, "95 % bootstrap interval", "accuracy_low?")                                        \
    F(real, accuracy_high, "Upper end of the interval", "accuracy_high?")                                    \
    F(json, classes, "Names of the classes")                                                                 \
    F(json, confusion, "Confusion matrix")
NM_RECORD(image_scores, IMAGE_SCORES)
static NM_FIELDS(image_scores, IMAGE_SCORES)

static void print_json(const job *self, const nm_task_score *score, const nm_confusion *confusion,
                       const char *const *names)
{
    const nm_interval interval =
        self->config->bootstrap ? interval_of(self, score) : (nm_interval){.low = NAN, .high = NAN};
    const image_scores record = {.accuracy = score->value,
                                 .macro_f1 = nm_confusion_macro_f1(confusion),
                                 .images = (int64_t)score->counts.n_segments,
                                 .accuracy_low = interval.low,
                                 .accuracy_high = interval.high,
                                 .classes = nm_json_texts(names, self->n_classes),
                                 .confusion = nm_confusion_json(confusion)};
    nm_json_print(nm_record_json(image_scores_fields(), &record), JSON_INDENT(1),
                  self->session->output.stream);
}

static void print_text(const job *self, const nm_task_score *score, const nm_confusion *confusion,
                       const char *const *names)
{
    FILE *out = self->session->output.stream;
    fprintf(out, "accuracy %.2f", score->value);
    if (self->config->bootstrap) {
        nm_interval interval = interval_of(self, score);
        fprintf(out, "  [%.2f, %.2f]", interval.low, interval.high);
    }
    fprintf(out, "  macro-F1 %.2f  images %zu\n\n", nm_confusion_macro_f1(confusion),
            score->counts.n_segments);
    nm_confusion_print(confusion, names, out);
}

static void print_evaluation(const job *self, nm_image_parts *parts, const int32_t *predicted)
{
    const nm_image_set *set = &parts->sets[NM_SPLIT_VALID];
    NM_AUTO_FREE const char **names = nm_allocate(self->n_classes * sizeof *names);
    NM_AUTO(nm_task_score_release) nm_task_score score = {0};
    NM_AUTO(nm_confusion_release) nm_confusion confusion = nm_confusion_create((int32_t)self->n_classes);
    for (size_t k = 0; k < self->n_classes; k++)
        names[k] = parts->classes.items[k].text;
    for (size_t i = 0; i < set->n; i++)
        nm_confusion_add(&confusion, set->labels[i], predicted[i]);
    nm_image_count(parts, NM_SPLIT_VALID, predicted, set->n, &score);
    if (self->config->json)
        print_json(self, &score, &confusion, names);
    else
        print_text(self, &score, &confusion, names);
    if (set->n_broken)
        fprintf(stderr, "norma: %zu files are not readable and left out; the first: %s\n", set->n_broken,
                set->broken);
}

/* The classes of all n images; each process computes those of a part of the images. */
static nm_status predict(job *self, const nm_image_set *set, int32_t *predicted, nm_error *err)
{
    nm_comm *comm = self->session->comm;
    const size_t ranks = (size_t)comm->size, first = set->n * (size_t)comm->rank / ranks,
                 n = set->n * ((size_t)comm->rank + 1) / ranks - first;
    const nm_image_set own = {.size = set->size, .n = n, .pixels = set->pixels + first * nm_image_bytes(set)};
    NM_AUTO_FREE double *probabilities = nm_allocate((n * self->n_classes + 1) * sizeof *probabilities);
    NM_AUTO_FREE int32_t *classes = nm_allocate((n + 1) * sizeof *classes);
    NM_AUTO_FREE size_t *ends = nm_allocate(ranks * sizeof *ends);
    NM_AUTO_FREE char *all = NULL;
    nm_status status =
        nm_image_probabilities(&self->loaded.task, self->loaded.model, &own, n, probabilities, err);
    for (size_t i = 0; i < n && status == NM_OK; i++)
        classes[i] = nm_image_best(probabilities + i * self->n_classes, self->n_classes);
    NM_THEN(status, nm_comm_gather_bytes(comm, classes, n * sizeof *classes, &all, ends, err));
    if (status == NM_OK && all)
        memcpy(predicted, all, set->n * sizeof *predicted);
    return status;
}

/* The labeled images are those of a validation split of the loaded task. */
static nm_status evaluate_loaded(job *self, nm_error *err)
{
    nm_image_parts *parts = self->loaded.task.parts;
    nm_image_set *set = &parts->sets[NM_SPLIT_VALID];
    const nm_image_source source = {.path = self->session->inputs[0], .test = true};
    set->size = parts->size.height;
    NM_TRY(nm_image_set_read(set, &source, &parts->classes, err));
    NM_AUTO_FREE int32_t *predicted = nm_allocate((set->n + 1) * sizeof *predicted);
    nm_status status = predict(self, set, predicted, err);
    if (status == NM_OK && !self->session->comm->rank)
        print_evaluation(self, parts, predicted);
    return status;
}

static nm_status process(nm_model_session *session, void *state, nm_error *err)
{
    job *self = state;
    self->session = session;
    return self->config->evaluate ? evaluate_loaded(self, err) : label_files(self, err);
}

int nm_classify_images(const nm_cli *cli, const nm_classify_images_config *config, int argc, char **argv)
{
    job self = {.config = config};
    const nm_model_command command = {.open = open_model,
                                      .max_inputs = config->evaluate ? 1 : 1 << 20,
                                      .output = config->output,
                                      .process = process,
                                      .release = release};
    return nm_model_command_run(&command, cli, argc, argv, &self);
}
