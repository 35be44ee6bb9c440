/* Common part of translator, tagger, classifier and language model of the C interface: options by name, the
 * backend, the loaded models, and workspaces for concurrent calls. */
#pragma once

#include <pthread.h>

#include "api/call.h"
#include "api/option_values.h"
#include "task/model_loader.h"

typedef struct nm_inference_type {
    const nm_task_type *task;
    bool ensemble;                            /* several comma-separated paths are allowed */
    const char *sections;                     /* sections whose options need no "section.", comma-separated */
    void (*add_options)(nm_options *options); /* registers its own sections */
} nm_inference_type;

typedef struct nm_inference {
    nm_options *options; /* the sections of the type, with the settings of the caller */
    nm_backend *backend;
    nm_loaded_model *models; /* [n_models] */
    int32_t n_models;
    nm_option_values values; /* options of the first model */
    nm_call_requests calls;
} nm_inference;

/* Opens the models at `path`. settings: alternating names and values, ends with NULL, or NULL; they also
 * override the options in the model files. NM_USAGE for unknown options, NM_UNSUPPORTED for a model of
 * another task, errors of nm_loaded_model_open. The caller closes it, also after an error. */
nm_status nm_inference_open(nm_inference *inference, const nm_inference_type *type, const char *path,
                            const char *const *settings, nm_error *err);
void nm_inference_close(nm_inference *inference);
/* The value of an option of the first model, valid until nm_inference_close; NULL: there is no such
 * option. */
const char *nm_inference_option(const nm_inference *inference, const char *name);
/* A warning about the device, or NULL. */
const char *nm_inference_warning(const nm_inference *inference);

/* The functions HANDLE_option, _warning, _stop and _set_proceed of a handle with the member `inference`. */
#define NM_INFERENCE_FUNCTIONS(handle)                                                                       \
    const char *handle##_option(const handle *self, const char *name)                                        \
    {                                                                                                        \
        return self ? nm_inference_option(&self->inference, name) : NULL;                                    \
    }                                                                                                        \
    const char *handle##_warning(const handle *self)                                                         \
    {                                                                                                        \
        return self ? nm_inference_warning(&self->inference) : NULL;                                         \
    }                                                                                                        \
    void handle##_stop(handle *self)                                                                         \
    {                                                                                                        \
        if (self)                                                                                            \
            nm_call_requests_stop(&self->inference.calls);                                                   \
    }                                                                                                        \
    void handle##_set_proceed(handle *self, bool (*proceed)(void *user), void *user)                         \
    {                                                                                                        \
        if (self)                                                                                            \
            nm_call_requests_set_proceed(&self->inference.calls, proceed, user);                             \
    }

/* Sets options. settings: alternating names, as for nm_option_path, and values, ends with NULL, or NULL.
 * NM_USAGE for an unknown name or an invalid or missing value. */
nm_status nm_settings_apply(nm_options *options, const char *sections, const char *const *settings,
                            nm_error *err);

/* Checks texts [n]: NM_FORMAT unless each is UTF-8, NM_USAGE for NULL. name: of one text in messages, "text"
 * for "text 0". nm_lines_check: also NM_FORMAT for a line break, except at the end. */
nm_status nm_texts_check(const char *const *texts, size_t n, const char *name, nm_error *err);
nm_status nm_lines_check(const char *const *lines, size_t n, const char *name, nm_error *err);

typedef struct nm_workspaces {
    pthread_mutex_t mutex;
    void **idle;
    size_t n_idle, capacity;
} nm_workspaces;

void nm_workspaces_init(nm_workspaces *pool);
/* Removes a workspace from the pool; NULL: none is idle, and the caller creates another one. */
void *nm_workspaces_acquire(nm_workspaces *pool);
/* Returns a workspace to the pool after a call. */
void nm_workspaces_return(nm_workspaces *pool, void *workspace);
/* Calls free_one for every workspace in the pool and releases the pool. */
void nm_workspaces_release(nm_workspaces *pool, void (*free_one)(void *workspace));
