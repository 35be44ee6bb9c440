/* A task combines data, vocabulary, model, loss, prediction and metric. The training loop accesses a task
 * only through this table. */
#pragma once

#include "base/counts.h"
#include "base/safetensors.h"
#include "base/stop.h"
#include "train/comm.h"
#include "model/model.h"
#include "train/batches.h"

typedef struct nm_task nm_task;

#define NM_SPLITS(C) C(NM_SPLIT_TRAIN, "train") C(NM_SPLIT_VALID, "valid") C(NM_SPLIT_TEST, "test")
NM_CHOICES(nm_split, NM_SPLITS);

/* Score of a validation by the task's metric. */
typedef struct nm_task_score {
    const char *name, *title; /* "bleu" in logs, "BLEU" in tables; name NULL: the task has no metric */
    bool lower_is_better;
    double value;
    char signature[256];
    char *samples;    /* a few inputs, outputs and references as text, heap; or NULL */
    nm_counts counts; /* statistics per example, heap, for confidence intervals and paired tests */
    nm_score_of_counts of_counts;
    const void *context; /* argument of of_counts, static */
} nm_task_score;

/* Frees samples and counts. */
void nm_task_score_release(nm_task_score *score);

typedef struct nm_task_type {
    const char *name;
    const char *recipe; /* the recipe for the user's own data */
    const nm_model_type *model;
    const nm_option *options; /* section [data] */
    size_t config_size;
    /* Options of [data] that determine the entries of the dictionaries, ends with NULL: a model that is
     * trained further keeps its own. NULL: none. */
    const char *const *text_options;
    /* Registers further sections, such as [decode]; may be NULL. */
    void (*add_options)(nm_options *options);
    /* Registers the section of the search with which the task generates text, [decode] or [sample]; NULL: it
     * generates none. */
    void (*add_search_options)(nm_options *options);
    bool perplexity; /* whether exp(loss per target) is a perplexity */
    /* The loss of the task's reference code is a mean over tokens or examples, not a sum over tokens as in
     * fairseq: the default scale of penalties (norm.rbn.scale). */
    bool mean_loss;
    /* Whether a model with these options has access to the tokens that it predicts (target leakage), so that
     * exp(loss) is not a perplexity. NULL: never. */
    bool (*is_noncausal)(const nm_options *options);
    /* Opens the data, for training; or the texts in a model file, for inference. Sets task->parts; close in
     * every case. */
    nm_status (*open)(nm_task *task, nm_error *err);
    nm_status (*open_model)(nm_task *task, const nm_safetensors *file, nm_error *err);
    /* A line of text for the user about the data that `open` has read; NULL: none. May be NULL. */
    const char *(*note)(const nm_task *task);
    /* A warning about the data that `open` has read, heap; NULL: none. May be NULL. */
    char *(*data_warning)(const nm_task *task);
    /* Size of the training data for the sections [size.N] of a recipe, in `size_unit`; config: section
     * [data]. */
    nm_status (*measure)(const void *config, int64_t *size, nm_error *err);
    const char *size_unit; /* "sentence pairs" */
    nm_model_sizes (*sizes)(const nm_task *task);
    const void *assumed_sizes; /* nm_model_sizes.more of a model that is declared without data */
    /* Called after the model is created, e.g. to set the output vocabulary; may be NULL. */
    nm_status (*prepare_model)(nm_task *task, nm_model *model, nm_error *err);
    /* Initializes parameters that are not random, such as word vectors. Called when training opens, before a
     * checkpoint is loaded. May be NULL. */
    nm_status (*init_params)(nm_task *task, nm_model *model, nm_error *err);
    /* Whether a warm start may copy a parameter. source: the task of the model it comes from; NULL: another
     * task than this one.
     * NULL: every parameter. */
    bool (*transfers)(const nm_task *task, const nm_task *source, const char *param);
    /* Name of row (axis 0) or column (axis 1) `index` of a parameter that has one per entry of a dictionary;
     * the name identifies the entry in a model with another dictionary. NULL for other axes and parameters,
     * and for an index past the last entry. May be NULL. */
    const char *(*entry_name)(const nm_task *task, const char *param, int axis, int32_t index);
    /* The batches of one epoch, released by the caller. NM_USAGE: there is no data for the split. */
    nm_status (*epoch)(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                       nm_error *err);
    /* Contents of batch i, allocated in the arena, which is reset first. step: number of the micro-batch, for
     * random numbers. */
    nm_batch (*batch)(nm_task *task, nm_split split, const nm_batches *batches, int64_t i, uint32_t step,
                      bool training, nm_arena *arena);
    /* The largest possible batch with arbitrary contents, for the dry run that measures memory. */
    nm_batch (*largest)(nm_task *task, nm_arena *arena);
    /* Forward pass. Returns device doubles [2], sums over the targets of the smoothed loss and of the
     * negative log-likelihood; NULL if the tape is exhausted. */
    double *(*loss)(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch, bool smoothed);
    /* Score on the first examples of a split; examples 0: all. */
    nm_status (*score)(nm_task *task, nm_model *model, nm_split split, int64_t examples, nm_task_score *score,
                       nm_error *err);
    /* Chance-level loss: loss per target of the uniform distribution. NULL: ln(number of classes of the
     * output). */
    double (*chance_loss)(const nm_task *task);
    /* Adds the texts that inference needs to the metadata of a model file. */
    void (*save)(const nm_task *task, nm_safetensors_writer *writer);
    void (*close)(nm_task *task);
} nm_task_type;

static inline bool nm_task_is_noncausal(const nm_task_type *type, const nm_options *options)
{
    return type->is_noncausal && type->is_noncausal(options);
}

static inline bool nm_task_has_perplexity(const nm_task_type *type, const nm_options *options)
{
    return type->perplexity && !nm_task_is_noncausal(type, options);
}

struct nm_task {
    const nm_task_type *type;
    const nm_options *options;
    const void *config;
    uint64_t seed;      /* train.seed */
    int64_t max_tokens; /* maximum number of tokens per batch and side */
    nm_norm_plan plan;  /* of the training run */
    int64_t size;       /* of the training data, as `measure` returns it; set by `open` */
    /* Hashes of the training and the validation data, checked when a run is resumed. */
    uint64_t fingerprint, valid_fingerprint;
    /* Model of this task whose dictionary entries are kept, after those of the training data; NULL: none. */
    const char *kept_entries_of;
    nm_comm *comm; /* processes that compute a score together, all of which call it; NULL: a single process */
    const nm_stop *stop; /* requested: a score or TID ends early, with NM_INTERRUPTED; NULL: never */
    void *parts;         /* owned by the task type */
};
