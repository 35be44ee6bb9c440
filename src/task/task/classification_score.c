/* Class probabilities of texts at inference, independent of the other texts of a batch; accuracy of a
 * split. */
#include <math.h>

#include "task/classification.h"
#include "nn/tape.h"

enum { BATCH_TOKENS = 4096 }; /* maximum number of tokens per batch of several texts */

/* The most probable class; of equally probable ones the first. */
static int32_t most_probable(const double *probabilities, int32_t classes)
{
    int32_t best = 0;
    for (int32_t k = 1; k < classes; k++)
        best = probabilities[k] > probabilities[best] ? k : best;
    return best;
}

static void softmax(const double *logits, int32_t n, double *probabilities)
{
    double top = -INFINITY, sum = 0;
    for (int32_t k = 0; k < n; k++)
        top = fmax(top, logits[k]);
    for (int32_t k = 0; k < n; k++)
        sum += probabilities[k] = exp(logits[k] - top);
    for (int32_t k = 0; k < n; k++)
        probabilities[k] /= sum;
}

typedef struct finder {
    nm_model *model;
    const nm_stop *stop;
    nm_tape tape;
    nm_arena host;
    nm_batching batching;
    int32_t classes;
} finder;

static nm_status run_batch(finder *self, const int64_t *examples, int32_t n, double *probabilities,
                           nm_error *err)
{
    static const nm_batch_words words = {0};
    NM_TRY(nm_check_stop(self->stop, err));
    nm_arena_reset(&self->host);
    nm_batch batch = nm_batch_pack(&self->batching, examples, n, &words, &self->host);
    nm_tape_start(&self->tape, false, 0, 0);
    nm_model_output out = self->model->type->forward(self->model, &self->tape, &batch);
    nm_tensor *logits = nm_linear(&self->tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0);
    if (nm_tape_exhausted(&self->tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", batch.source.n_tokens);
    nm_backend_read(self->model->backend, probabilities, logits->data, (size_t)n * (size_t)self->classes);
    NM_TRY(nm_backend_check(self->model->backend, err));
    for (int32_t i = 0; i < n * self->classes; i++)
        if (!isfinite(probabilities[i]))
            return nm_fail(err, NM_DIVERGED, "the model's logits are not finite");
    for (int32_t i = 0; i < n; i++) {
        double *row = probabilities + (size_t)i * (size_t)self->classes;
        softmax(row, self->classes, row);
    }
    return NM_OK;
}

static nm_status run_all(finder *self, double *probabilities, nm_error *err)
{
    const nm_corpus *texts = self->batching.source;
    NM_AUTO_FREE int64_t *examples = nm_allocate(((size_t)texts->n + 1) * sizeof *examples);
    nm_status status = NM_OK;
    for (int64_t i = 0; i < texts->n; i++)
        examples[i] = i;
    for (int64_t first = 0, next; first < texts->n && status == NM_OK; first = next) {
        int64_t tokens = nm_corpus_length(texts, first);
        for (next = first + 1; next < texts->n; next++) {
            tokens += nm_corpus_length(texts, next);
            if (tokens > BATCH_TOKENS)
                break;
        }
        status = run_batch(self, examples + first, (int32_t)(next - first),
                           probabilities + (size_t)first * (size_t)self->classes, err);
    }
    return status;
}

nm_status nm_classification_probabilities(nm_task *task, nm_model *model, const nm_corpus *texts,
                                          double *probabilities, nm_error *err)
{
    finder self = {.model = model,
                   .stop = task->stop,
                   .batching = {.source = texts},
                   .classes = nm_classification_classes(nm_classification_parts_of(task))};
    nm_tape_init_growing(&self.tape, model->backend);
    nm_arena_init(&self.host, SIZE_MAX);
    nm_status status = run_all(&self, probabilities, err);
    nm_arena_release(&self.host);
    nm_tape_release(&self.tape);
    return status;
}

void nm_classification_count(const nm_classification_parts *parts, nm_split split, const int32_t *predicted,
                             size_t n, nm_task_score *score)
{
    const bool macro = parts->macro_f1;
    int32_t classes = nm_classification_classes(parts), labels = nm_classification_labels(parts);
    size_t columns = macro ? nm_macro_f1_counts(labels) : NM_ACCURACY_COUNTS;
    NM_AUTO(nm_confusion_release) nm_confusion confusion = nm_confusion_create(labels);
    int64_t *rows = nm_allocate((n + 1) * columns * sizeof *rows);
    for (size_t i = 0; i < n; i++) {
        int32_t gold = parts->sets[split].labels.data[i];
        int64_t *row = rows + columns * i;
        nm_confusion_add(&confusion, gold, predicted[i]);
        row[0] = gold == predicted[i];
        row[1] = 1;
        if (macro)
            nm_macro_f1_count(row, labels, gold, predicted[i]);
    }
    const double accuracy = nm_confusion_accuracy(&confusion), f1 = nm_confusion_macro_f1(&confusion);
    score->name = macro ? "macro_f1" : "accuracy";
    score->title = macro ? "macro-F1" : "accuracy";
    score->value = macro ? f1 : accuracy;
    score->counts = (nm_counts){rows, n, (int)columns};
    score->of_counts = macro ? nm_macro_f1_of_counts : nm_accuracy_of_counts;
    score->samples = nm_format("  %s %.2f\n", macro ? "accuracy" : "macro-F1", macro ? accuracy : f1);
    int used = snprintf(score->signature, sizeof score->signature, "%s|classes:%d|examples:%zu", score->name,
                        classes, n);
    if (n > parts->n_known[split])
        snprintf(score->signature + used, sizeof score->signature - (size_t)used, "|unknown labels:%zu",
                 n - parts->n_known[split]);
}

nm_status nm_classification_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                                  nm_task_score *score, nm_error *err)
{
    const nm_classification_parts *parts = nm_classification_parts_of(task);
    nm_corpus texts = parts->corpora[split];
    *score = (nm_task_score){0};
    if (!texts.n)
        return nm_fail(err, NM_USAGE, "there are no texts to score: set data.%s",
                       split == NM_SPLIT_TEST ? "test" : "valid");
    if (examples && examples < texts.n)
        texts.n = examples;
    size_t n = (size_t)texts.n, classes = (size_t)nm_classification_classes(parts);
    NM_AUTO_FREE double *probabilities = nm_allocate((n * classes + 1) * sizeof *probabilities);
    nm_status status = nm_classification_probabilities(task, model, &texts, probabilities, err);
    NM_AUTO_FREE int32_t *predicted = nm_allocate((n + 1) * sizeof *predicted);
    for (size_t i = 0; i < n && status == NM_OK; i++)
        predicted[i] = most_probable(probabilities + i * classes, (int32_t)classes);
    if (status == NM_OK)
        nm_classification_count(parts, split, predicted, n, score);
    return status;
}
