#include "norma/classifier.h"

#include <stdlib.h>

#include "api/classifications.h"
#include "api/inference.h"
#include "task/classification.h"
#include "base/words.h"

/* Workspace of one call: copies of the task and the model of the classifier, with a separate text coder and
 * backend. */
typedef struct workspace {
    nm_classification_parts parts;
    nm_task task;
    nm_model *model;
    nm_labeled_set set;
    nm_buffer line;
} workspace;

struct nm_classifier {
    nm_inference inference;
    const nm_classification_parts *parts;
    size_t n_classes;
    nm_workspaces pool;
};

static void no_options(nm_options *options)
{
    (void)options;
}

static const nm_inference_type inference_type = {
    .task = &nm_task_classification, .sections = "device", .add_options = no_options};

static void workspace_free(void *space)
{
    workspace *w = space;
    nm_text_coder_close(&w->parts.coder);
    nm_model_free_worker(w->model);
    nm_labeled_set_release(&w->set);
    nm_buffer_release(&w->line);
    free(w);
}

static nm_status workspace_create(const nm_classifier *self, workspace **out, nm_error *err)
{
    const nm_loaded_model *loaded = &self->inference.models[0];
    workspace *w = nm_allocate(sizeof *w);
    w->parts = *self->parts;
    w->parts.coder = (nm_text_coder){0};
    w->task = loaded->task;
    w->task.parts = &w->parts;
    nm_status status =
        nm_classification_open_coder(&w->parts, loaded->task.config, "the model's BPE codes", err);
    NM_THEN(status, nm_model_create_worker(&w->model, loaded->model, err));
    NM_RETURN_NEW(status, out, w, workspace_free);
}

nm_status nm_classifier_open(nm_classifier **classifier, const char *path, const char *const *options,
                             nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!classifier)
        return nm_fail(err, NM_USAGE, "nm_classifier_open: classifier is NULL");
    nm_classifier *self = nm_allocate(sizeof *self);
    nm_workspaces_init(&self->pool);
    nm_status status = nm_inference_open(&self->inference, &inference_type, path, options, err);
    if (status != NM_OK) {
        nm_classifier_close(self);
        return status;
    }
    self->parts = self->inference.models[0].task.parts;
    self->n_classes = (size_t)nm_classification_classes(self->parts);
    *classifier = self;
    return NM_OK;
}

void nm_classifier_close(nm_classifier *self)
{
    if (!self)
        return;
    nm_workspaces_release(&self->pool, workspace_free);
    nm_inference_close(&self->inference);
    free(self);
}

NM_INFERENCE_FUNCTIONS(nm_classifier)

size_t nm_classifier_n_classes(const nm_classifier *self)
{
    return self ? self->n_classes : 0;
}

const char *nm_classifier_class(const nm_classifier *self, size_t index)
{
    return index < nm_classifier_n_classes(self) ? nm_classification_name(self->parts, (int32_t)index) : NULL;
}

static void encode(const nm_classifier *self, workspace *w, const char *text, bool *truncated)
{
    const nm_classification_config *config = self->inference.models[0].task.config;
    int64_t cut = w->set.cut;
    size_t bytes = nm_text_length(text);
    nm_buffer_clear(&w->line);
    nm_buffer_append(&w->line, text, bytes);
    nm_buffer_join_lines(&w->line);
    nm_classification_encode(&w->parts, config->max_length, w->line.data, bytes, &w->set);
    *truncated = w->set.cut > cut;
}

static nm_status classify(const nm_classifier *self, workspace *w, const char *const *texts,
                          nm_classifications *out, nm_error *err)
{
    nm_labeled_set_clear(&w->set);
    for (size_t i = 0; i < out->n; i++) {
        NM_TRY(nm_check_stop(w->task.stop, err));
        encode(self, w, texts[i], &out->truncated[i]);
    }
    nm_corpus corpus = nm_labeled_set_corpus(&w->set);
    return nm_classification_probabilities(&w->task, w->model, &corpus, out->probabilities, err);
}

nm_status nm_classifier_run(nm_classifier *self, const char *const *texts, size_t n,
                            nm_classifications **results, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !results)
        return nm_fail(err, NM_USAGE, "nm_classifier_run: %s is NULL", self ? "results" : "classifier");
    NM_TRY(nm_texts_check(texts, n, "text", err));
    workspace *w = nm_workspaces_acquire(&self->pool);
    if (!w)
        NM_TRY(workspace_create(self, &w, err));
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    w->task.stop = &call.stop;
    NM_AUTO_FREE const char **names = nm_allocate((self->n_classes + 1) * sizeof *names);
    for (size_t k = 0; k < self->n_classes; k++)
        names[k] = nm_classifier_class(self, k);
    nm_classifications *out = nm_classifications_create(n, self->n_classes, names);
    nm_status status = n ? classify(self, w, texts, out, err) : NM_OK;
    w->task.stop = NULL;
    nm_workspaces_return(&self->pool, w);
    NM_RETURN_NEW(status, results, out, nm_classifications_free);
}
