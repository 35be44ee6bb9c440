/* The training runs of a comparison, each a process "PROGRAM train RECIPE --section.key=value ...", as many
 * in parallel as the cores allow. The failure of one run does not affect the others. All progress is stored
 * in the run folders, so another queue can continue after one that stopped for any reason. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "experiment/core_share.h"
#include "experiment/run_result.h"
#include "experiment/variants.h"
#include "norma/compare.h"

typedef struct nm_run_job { /* one run */
    const nm_variant *variant;
    char *folder, *log_path; /* heap; log_path: standard error of the process */
    char key[NM_RUN_KEY_BYTES];
    nm_settings continued; /* with which a run that exists continues (experiment/run_match.h) */
    /* Before the run: reason for waiting, or ""; after it has ended: the last line of log_path, Norma's
     * message, or the score. */
    char last_line[256];
    nm_run_result result;
    nm_run_state state; /* NM_RUN_FINISHED from the start if its test.json is valid */
    bool score_failed;  /* during the training of other runs; it is scored again after them */
    pid_t process;
    /* Clock at its start; duration of its process, which may have continued a run; of scoring the test
     * set. NaN or 0 if not in this process. */
    double begun, seconds, score_seconds;
} nm_run_job;

typedef struct nm_run_queue {
    const char *program, *recipe, *profile; /* profile "": none */
    const char *launch; /* command that starts each run, such as "mpirun -n 4"; "" or NULL: none */
    const nm_task_type *task;
    /* Registers the sections of `norma train` that are not part of the trainer. */
    void (*add_options)(nm_options *options);
    const char *norm_option; /* option that the settings of model.norm are applied to; NULL: model.norm */
    nm_settings settings;    /* of all runs; the settings of a variant override them */
    nm_run_job *jobs;
    size_t n, capacity;
    /* Status NM_OK: none. A run exists with other settings (nm_run_match); with Slurm reported after its
     * queue has been read, because a task may be training the run. */
    nm_error mismatch;
    nm_core_share share;
    int lock;            /* descriptor of the lock file, inherited by the runs; -1 or 0: none */
    const nm_stop *stop; /* requested: stop all runs and return NM_INTERRUPTED; may be NULL */
    /* nonzero: SIGSTOP to all runs and this process; becomes 0; may be NULL */
    volatile sig_atomic_t *suspend;
    /* Callbacks; each may be NULL. on_tick is called about ten times per second during training, and before a
     * run is scored. */
    void (*on_started)(void *user, const nm_run_job *job);
    void (*on_finished)(void *user, const nm_run_job *job);
    void (*on_scored)(void *user, const nm_run_job *job);
    void (*on_tick)(void *user, const struct nm_run_queue *queue);
    void (*on_message)(void *user, const char *text); /* such as the number of a Slurm job */
    void *user;
    /* Scores finished runs while others are training; called about ten times per second. Returns whether it
     * uses the cores of one run. May be NULL. */
    bool (*score_finished)(void *scorer);
    void *scorer;
} nm_run_queue;

/* The options of a run: recipe and profile, overridden by the settings of the queue, those of the variant
 * (NULL: none) and the seed. The caller frees *options, which is NULL on failure. */
nm_status nm_run_queue_options(const nm_run_queue *queue, const nm_variant *variant, int64_t seed,
                               nm_options **options, nm_error *err);
/* The command that trains a run: launcher, program, arguments. It has no --device.threads if share.threads is
 * 0. Ends with NULL; the caller frees it with nm_run_arguments_free. */
char **nm_run_queue_arguments(const nm_run_queue *queue, const nm_run_job *job);
void nm_run_arguments_free(char **arguments);
/* Sets the state, the last line and the result of a run that has ended. exit_code: 128 + N for signal N. */
void nm_run_job_finish(nm_run_job *job, int exit_code);
/* Locks the folder against other comparisons until the queue is released and its runs have ended. Waits up to
 * ten seconds for the runs of a killed comparison. NM_USAGE if another process holds the lock; NM_IO. */
nm_status nm_run_queue_lock(nm_run_queue *queue, const char *folder, nm_error *err);
/* Trains all waiting runs. A run that fails is reported in its result. On NM_INTERRUPTED and on any other
 * failure, all processes have been stopped, each after writing a checkpoint. */
nm_status nm_run_queue_train(nm_run_queue *queue, nm_error *err);
/* Call on_message and score_finished. */
void nm_run_queue_send_message(const nm_run_queue *queue, const char *text);
bool nm_run_queue_score_finished(const nm_run_queue *queue);
void nm_run_queue_clear(nm_run_queue *queue); /* removes the jobs */
void nm_run_queue_release(nm_run_queue *queue);

/* The last line of a text file that neither begins with a space, as continued messages and examples do, nor
 * is empty or a frame of a launcher's message; control characters replaced by spaces; "" if there is none.
 * bytes: size of line. */
void nm_last_line(const char *path, char *line, size_t bytes);
/* The last line that begins with "norma: ", in the same way. */
void nm_last_message(const char *path, char *line, size_t bytes);
