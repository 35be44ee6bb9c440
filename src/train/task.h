/* A task binds files, vocabulary, model, loss, prediction and score for one kind of work. The training loop knows a task
 * by this table alone. */
#ifndef NM_TASK_H
#define NM_TASK_H

#include "base/safetensors.h"
#include "data/batches.h"
#include "metric/bootstrap.h"
#include "model/model.h"

typedef struct nm_task nm_task;

typedef enum nm_split { NM_SPLIT_TRAIN, NM_SPLIT_VALID, NM_SPLIT_TEST } nm_split;

typedef struct nm_task_score { /* of a validation by the task's own measure */
    const char *name, *title;  /* "bleu" in logs, "BLEU" in tables */
    bool lower_is_better;
    double value;
    char signature[256];
    char *samples;    /* a few inputs, outputs and references as text, heap; or NULL */
    nm_counts counts; /* statistics per example, heap: for intervals and paired tests */
    nm_score_of_counts of_counts;
    const void *context; /* of of_counts; static */
} nm_task_score;

/* Frees samples and counts. */
void nm_task_score_release(nm_task_score *score);

typedef struct nm_task_type {
    const char *name;
    const nm_model_type *model;
    const nm_option *options; /* section [data] */
    size_t config_size;
    void (*more_options)(nm_options *options); /* registers further sections, e.g. [decode]; may be NULL */
    bool perplexity;                           /* exp(loss per unit) means something to people */
    /* The task's loss is a mean over examples, not a sum over tokens: the default scale of penalties (norm.rbn.scale). */
    bool mean_loss;
    /* Says of these options that the model sees what it is to predict, so that there is no perplexity; NULL: never. */
    bool (*sees_ahead)(const nm_options *options);
    /* From a data folder, for training; or the texts of a model file, for use. */
    nm_status (*open)(nm_task *task, nm_error *err);
    nm_status (*open_model)(nm_task *task, const nm_safetensors *file, nm_error *err);
    nm_model_sizes (*sizes)(const nm_task *task);
    nm_status (*prepare_model)(nm_task *task, nm_model *model,
                               nm_error *err); /* e.g. allowed words; may be NULL */
    /* Learned numbers that do not begin at random, e.g. word vectors; not called for a model that is read. May be NULL. */
    nm_status (*first_values)(nm_task *task, nm_model *model, nm_error *err);
    /* Batches of one epoch and their contents; memory for contents comes from the arena, reset by each call. */
    nm_status (*epoch)(nm_task *task, nm_split split, uint32_t epoch, bool shuffle, nm_batches *batches,
                       nm_error *err);
    nm_batch (*batch)(nm_task *task, nm_split split, const nm_batches *batches, int64_t i, uint32_t step,
                      bool training, nm_arena *arena);
    /* The largest batch that can occur, with made-up contents: for the dry run that measures memory. */
    nm_batch (*largest)(nm_task *task, nm_arena *arena);
    /* Forward pass and loss sums (device doubles [2]: smoothed, plain negative log-likelihood); NULL if memory ran out */
    double *(*loss)(nm_task *task, nm_model *model, nm_tape *tape, const nm_batch *batch, bool smoothed);
    /* Score on a split; examples 0: all. *score.name NULL when the task has none. */
    nm_status (*score)(nm_task *task, nm_model *model, nm_split split, int64_t examples, nm_task_score *score,
                       nm_error *err);
    /* Loss per unit of a model that knows nothing; NULL: ln(target size). A multiple of it counts as diverged. */
    double (*ignorance)(const nm_task *task);
    /* Texts that travel in the model file. */
    void (*save)(const nm_task *task, nm_safetensors_writer *writer);
    void (*close)(nm_task *task);
} nm_task_type;

static inline bool nm_task_is_noncausal(const nm_task_type *type, const nm_options *options)
{
    return type->sees_ahead && type->sees_ahead(options);
}

static inline bool nm_task_has_perplexity(const nm_task_type *type, const nm_options *options)
{
    return type->perplexity && !nm_task_is_noncausal(type, options);
}

struct nm_task {
    const nm_task_type *type;
    const nm_options *options;
    const void *config;
    uint64_t seed;        /* of the run */
    int64_t max_tokens;   /* of a batch, per side */
    nm_norm_plan plan;    /* of the training run */
    uint64_t fingerprint; /* of the training data: a resume checks it */
    void *parts;
};

#endif
