/* What the models of the C interface have in common: options by name, the backend, the loaded models, and workspaces for
 * concurrent calls. */
#ifndef NM_INFERENCE_H
#define NM_INFERENCE_H

#include <pthread.h>

#include "api/option_values.h"
#include "task/model_loader.h"

typedef struct nm_inference_type {
    const nm_task_type *task;
    const char *refusal;  /* of models of other tasks: "does not translate" */
    bool ensemble;        /* the path may be several, comma-separated */
    const char *sections; /* whose options need no "section.", comma-separated */
    void (*add_options)(nm_options *options);
} nm_inference_type;

typedef struct nm_inference {
    nm_options *options; /* the sections of the type, with the caller's settings */
    nm_backend *backend;
    nm_loaded_model *models;
    int32_t n_models;
    nm_option_values values; /* of the first model */
} nm_inference;

/* settings: alternating names and values that end with NULL, or NULL; they also override the options inside the model files.
 * Close it also after an error. */
nm_status nm_inference_open(nm_inference *inference, const nm_inference_type *type, const char *path,
                            const char *const *settings, nm_error *err);
void nm_inference_close(nm_inference *inference);
/* The value of an option of the first model; NULL: it has no such option. Valid until nm_inference_close. */
const char *nm_inference_option(const nm_inference *inference, const char *name);
/* A warning about the device, or NULL. */
const char *nm_inference_warning(const nm_inference *inference);

/* The full name of an option: a name without a section is that of the first of the sections (comma-separated) that has it.
 * Heap. */
char *nm_settings_path(const nm_options *options, const char *sections, const char *name);
/* Sets options by alternating names and values that end with NULL, or NULL. Names as for
 * nm_settings_path. NM_USAGE: an unknown name or value. */
nm_status nm_settings_apply(nm_options *options, const char *sections, const char *const *settings,
                            nm_error *err);

/* Checks n texts: NM_FORMAT unless each is UTF-8; NM_USAGE for NULL. `name` is what messages call one of them, which are
 * numbered from 0. nm_lines_check: also NM_FORMAT for a line break, except at the end. */
nm_status nm_texts_check(const char *const *texts, size_t n, const char *name, nm_error *err);
nm_status nm_lines_check(const char *const *lines, size_t n, const char *name, nm_error *err);

/* ---- workspaces that no call is using ---- */

typedef struct nm_workspaces {
    pthread_mutex_t mutex;
    void **idle;
    size_t n_idle, capacity;
} nm_workspaces;

void nm_workspaces_init(nm_workspaces *pool);
/* NULL: no workspace is idle, so the caller creates another one. */
void *nm_workspaces_take(nm_workspaces *pool);
void nm_workspaces_give(nm_workspaces *pool, void *workspace);
/* Calls free_one for every workspace in the pool. */
void nm_workspaces_release(nm_workspaces *pool, void (*free_one)(void *workspace));

#endif
