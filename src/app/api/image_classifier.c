#include "norma/image_classifier.h"

#include <pthread.h>
#include <stdlib.h>

#include "api/classifications.h"
#include "api/inference.h"
#include "task/image.h"

struct nm_image_classifier {
    pthread_mutex_t mutex; /* of the model, which computes one call at a time */
    nm_inference inference;
    const nm_image_parts *parts;
};

static void no_options(nm_options *options)
{
    (void)options;
}

static const nm_inference_type inference_type = {
    .task = &nm_task_image, .sections = "device", .add_options = no_options};

nm_status nm_image_classifier_open(nm_image_classifier **classifier, const char *path,
                                   const char *const *options, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!classifier || !path)
        return nm_fail(err, NM_USAGE, "nm_image_classifier_open: %s is NULL",
                       classifier ? "path" : "classifier");
    nm_image_classifier *self = nm_allocate(sizeof *self);
    pthread_mutex_init(&self->mutex, NULL);
    nm_status status = nm_inference_open(&self->inference, &inference_type, path, options, err);
    if (status != NM_OK) {
        nm_image_classifier_close(self);
        return status;
    }
    self->parts = self->inference.models[0].task.parts;
    *classifier = self;
    return NM_OK;
}

void nm_image_classifier_close(nm_image_classifier *self)
{
    if (!self)
        return;
    nm_inference_close(&self->inference);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

NM_INFERENCE_FUNCTIONS(nm_image_classifier)

size_t nm_image_classifier_n_classes(const nm_image_classifier *self)
{
    return self ? self->parts->classes.n : 0;
}

const char *nm_image_classifier_class(const nm_image_classifier *self, size_t index)
{
    return index < nm_image_classifier_n_classes(self) ? self->parts->classes.items[index].text : NULL;
}

static nm_status classify(nm_image_classifier *self, const char *const *paths, nm_classifications *out,
                          nm_error *err)
{
    const nm_loaded_model *loaded = &self->inference.models[0];
    NM_AUTO(nm_image_set_release) nm_image_set set = {.size = self->parts->size.height};
    nm_status status = NM_OK;
    for (size_t i = 0; i < out->n && status == NM_OK; i++)
        status = paths[i] ? nm_image_file_read(paths[i], set.size, nm_image_set_add(&set, 0), err)
                          : nm_fail(err, NM_USAGE, "nm_image_classifier_run: path %zu is NULL", i);
    pthread_mutex_lock(&self->mutex);
    nm_call call;
    nm_call_begin(&call, &self->inference.calls);
    nm_task task = loaded->task;
    task.stop = &call.stop;
    NM_THEN(status, nm_image_probabilities(&task, loaded->model, &set, out->n, out->probabilities, err));
    pthread_mutex_unlock(&self->mutex);
    return status;
}

nm_status nm_image_classifier_run(nm_image_classifier *self, const char *const *paths, size_t n,
                                  nm_classifications **results, nm_error *err)
{
    err = err ? err : NM_IGNORED;
    if (!self || !results || (n && !paths))
        return nm_fail(err, NM_USAGE, "nm_image_classifier_run: an argument is NULL");
    NM_AUTO_FREE const char **names = nm_allocate((self->parts->classes.n + 1) * sizeof *names);
    for (size_t k = 0; k < self->parts->classes.n; k++)
        names[k] = self->parts->classes.items[k].text;
    nm_classifications *out = nm_classifications_create(n, self->parts->classes.n, names);
    nm_status status = classify(self, paths, out, err);
    NM_RETURN_NEW(status, results, out, nm_classifications_free);
}
