/* Training of models from recipes: progress and validations as callbacks, a request to stop, and resuming.
 * `norma train` is a program over this header: a run folder has the files of docs/formats.md, and its tensors
 * are identical to those that the program writes with the same recipe and options. examples/train.c is a
 * complete program. */
#ifndef NORMA_TRAIN_H
#define NORMA_TRAIN_H

#include "norma/record.h"
#include "norma/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nm_training nm_training;

/* After every update. Losses are means in nats per target token (or per example, for classification and
 * tagging); in the log they are means since the previous record. */
#define NM_TRAINING_PROGRESS(F)                                                                              \
    F(int, update, "Number of finished updates")                                                             \
    F(int, updates, "Planned number of updates; 0 if unknown", "")                                           \
    F(int, epoch, "Epoch, from 0")                                                                           \
    F(int, batch, "Number of finished batches of the epoch", "")                                             \
    F(int, batches, "Number of batches of the epoch", "")                                                    \
    F(real, loss, "Loss")                                                                                    \
    F(real, nll, "Loss without label smoothing and penalties")                                               \
    F(real, perplexity, "exp(nll); NaN for a task without perplexity", "")                                   \
    F(real, penalty, "Penalty of RBN and loss of guided alignment")                                          \
    F(real, learning_rate, "Learning rate", "lr")                                                            \
    F(real, schedule_position,                                                                               \
      "Completed fraction of the schedule, if it depends on time or early stopping", "schedule_position?")   \
    F(real, grad_norm, "L2 norm of the gradient before clipping")                                            \
    F(int, tokens, "Target tokens so far")                                                                   \
    F(real, tokens_per_second, "Throughput since the previous record of the log, without validations")       \
    F(real, seconds, "Training time so far, including the time before resumes")                              \
    F(real, seconds_left, "Estimated remaining time; NaN if unknown", "")                                    \
    F(real, fraction, "Completed fraction of the training, 0 to 1; NaN without a limit", "")
NM_RECORD(nm_training_progress, NM_TRAINING_PROGRESS)

#define NM_TRAINING_VALIDATION(F)                                                                            \
    F(int, update, "Number of finished updates")                                                             \
    F(int, epoch, "Epoch, from 0")                                                                           \
    F(real, loss, "Loss with running statistics, as at inference")                                           \
    F(real, nll, "Loss without label smoothing and penalties")                                               \
    F(real, perplexity, "exp(nll); NaN for a task without perplexity")                                       \
    F(flag, noncausal, "The model is not causal, and exp(nll) not a perplexity", "")                         \
    F(real, batch_loss, "Loss with batch statistics; NaN if no norm has running ones", "batch_loss?")        \
    F(real, batch_nll, "The same without label smoothing and penalties", "batch_nll?")                       \
    F(int, masked, "Target tokens outside the output vocabulary, which the losses exclude",                  \
      "masked_targets?")                                                                                     \
    F(text, score_name, "Name of the score, for example bleu; NULL if none was computed", "")                \
    F(text, score_title, "Title of the score, for example BLEU; NULL if none was computed", "")              \
    F(real, score, "Score of the task in percent; NaN if none was computed", "")                             \
    F(text, signature, "How the score was computed", "signature?")                                           \
    F(text, samples, "A few inputs, outputs and references; or NULL", "")                                    \
    F(flag, best, "The best validation so far, whose model is best.safetensors")                             \
    F(real, seconds, "Duration of the validation", "")                                                       \
    F(real, training_seconds, "Training time so far, including the time before resumes", "seconds")
NM_RECORD(nm_training_validation, NM_TRAINING_VALIDATION)

/* Called from nm_training_open and nm_training_run, in the thread that called these; what they receive is
 * valid during the call. Any function may be NULL. */
typedef struct nm_training_events {
    void *user; /* first argument of the functions */
    void (*progress)(void *user, const nm_training_progress *progress);
    void (*validated)(void *user, const nm_training_validation *validation);
    void (*message)(void *user, const char *text); /* notes, and warnings as "warning: ...", one line each */
    const char *command; /* for the start record of the log; NULL: "nm_training_open" */
    /* Before a validation; last_seconds: the duration of the one before, 0 if there was none since
     * nm_training_open. */
    void (*validating)(void *user, int64_t update, double last_seconds);
} nm_training_events;

typedef enum nm_training_resume {
    /* the value of the option run.resume; by default NM_USAGE if the folder contains a run */
    NM_TRAINING_NEW,
    NM_TRAINING_RESUME,           /* continue with the configuration of the run; see `norma train --help` */
    NM_TRAINING_RESUME_OVERRIDING /* options replace the options of the run */
} nm_training_resume;

/* Opens the data, builds the model, creates and locks the run folder. recipe: the path of an INI file, or its
 * text if that contains a line break. folder: of the run; NULL: the option run.folder, or else "runs/NAME" or
 * "runs/NAME-PROFILE" with the name of the recipe's file. options: alternating names and values that end with
 * NULL, or NULL; full names such as "train.updates", which take precedence over the recipe, and
 * "run.profile". events: copied, but not `command`; may be NULL. Relative paths start in the working
 * directory, which must not change until nm_training_close. err may be NULL.
 *
 * NM_USAGE: unknown option or value, NULL, a folder with a run, or a data folder
 * NM_IO: a file cannot be read
 * NM_FORMAT: a file is malformed
 * NM_MISMATCH: a checkpoint of another configuration
 * NM_MEMORY */
NM_API nm_status nm_training_open(nm_training **training, const char *recipe, const char *folder,
                                  const char *const *options, nm_training_resume resume,
                                  const nm_training_events *events, nm_error *err);
/* Trains until a limit of [train] or schedule.min_lr is reached; the model is FOLDER/best.safetensors, or
 * last.safetensors without validation data.
 *
 * NM_INTERRUPTED: nm_training_stop was called; there is a checkpoint from which NM_TRAINING_RESUME continues
 *     bitwise identically
 * NM_DIVERGED: the loss is not finite or exceeds the divergence threshold */
NM_API nm_status nm_training_run(nm_training *training, nm_error *err);
/* Requests the end of nm_training_run after the current update, or during a validation, which a resumed
 * training then repeats (with several processes, its loss may end early, its score not). Later calls of
 * nm_training_run end at once: a training is continued by nm_training_open. May be called from a callback,
 * another thread or a signal handler. */
NM_API void nm_training_stop(nm_training *training);
/* NULL is accepted. */
NM_API void nm_training_close(nm_training *training);

/* The run folder. And the value of an option as text, such as "train.updates"; NULL: there is no such
 * option. */
NM_API const char *nm_training_folder(const nm_training *training);
NM_API const char *nm_training_option(const nm_training *training, const char *name);
/* The backend, its CPU level and threads in one line; and a warning about it, such as more threads than
 * cores, or NULL. */
NM_API const char *nm_training_device(const nm_training *training);
NM_API const char *nm_training_warning(const nm_training *training);

/* Number of finished updates; and of learned parameters. */
NM_API int64_t nm_training_updates(const nm_training *training);
NM_API size_t nm_training_parameters(const nm_training *training);
/* Memory of an update in bytes at most: parameters, gradients, optimizer state, activations. */
NM_API size_t nm_training_bytes(const nm_training *training);

/* The state of a run. */
typedef struct nm_training_summary {
    int64_t updates, tokens; /* finished updates; target tokens */
    int64_t best_update;     /* 0: no validation so far */
    double best_loss;        /* validation loss at best_update */
    const char *score_title; /* "BLEU"; NULL: no score was computed at best_update */
    double best_score;       /* NaN without one */
} nm_training_summary;
/* Valid until the next call for this training. */
NM_API nm_training_summary nm_training_summarize(const nm_training *training);

/* Time per kernel over all updates except the first, which allocates memory. */
typedef struct nm_training_profile {
    int64_t updates, tokens; /* 0: the option device.profile is not set */
    double seconds;
    /* [n_kernels], norma/backend.h; longest first, their sum is less than `seconds` */
    const struct nm_kernel_time *kernels;
    int32_t n_kernels;
} nm_training_profile;
/* kernels are valid until nm_training_close. */
NM_API nm_training_profile nm_training_get_profile(nm_training *training);

#ifdef __cplusplus
}
#endif
#endif
