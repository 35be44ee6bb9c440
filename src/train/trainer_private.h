/* What the files of the trainer share: options and opening (trainer.c), the loop (loop.c), one update (update.c), validation
 * (validate.c), saving and resuming (resume.c), the log (log.c). */
#ifndef NM_TRAINER_PRIVATE_H
#define NM_TRAINER_PRIVATE_H

#include "backend/device.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

typedef struct nm_span { /* a run of learned elements of the slab */
    size_t first, n;
} nm_span;

struct nm_trainer {
    const nm_options *options;
    const nm_train_config *config;
    const nm_optim_config *optim;
    const nm_device_config *device;
    nm_train_listener listener;
    char *folder;
    nm_folder_lock lock; /* of the folder; released at close */
    nm_backend *backend;
    nm_task task;
    nm_model *model;
    nm_tape tape;
    nm_arena host; /* contents of the batch at hand */
    nm_schedule schedule;
    nm_train_state state;
    nm_batches batches; /* of the epoch in state */
    bool batches_ready;
    int64_t total_updates; /* 0: no limit by updates */
    void *m, *v;           /* optimizer slabs of the parameters' layout */
    nm_span *spans;
    size_t n_spans;
    size_t peak_bytes;
    FILE *log;
    double started, seconds_before; /* clock at open; seconds of earlier sessions */
    double validating;              /* seconds spent outside updates since the last report */
    double report_clock;
    struct {
        int64_t updates, tokens;
        double seconds;
        bool warm; /* a first update was made */
    } profile;
    bool watched; /* instruments look at the update at hand */
};

/* Optimizers of one kind share the meaning of their state: 0: first and second moment; 1: SGD's momentum. */
int64_t nm_optimizer_state_kind(const nm_optim_config *optim);

double nm_clock(void); /* seconds, monotonic */

void nm_trainer_message(const nm_trainer *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

nm_status nm_trainer_dry_run(nm_trainer *trainer, nm_error *err);       /* update.c: measures memory */
nm_status nm_trainer_ready_batches(nm_trainer *trainer, nm_error *err); /* update.c */
nm_status nm_trainer_has_checkpoint(const nm_trainer *trainer, bool *has, nm_error *err); /* resume.c */
nm_status nm_trainer_resume(nm_trainer *trainer, bool *found, nm_error *err);
nm_status nm_trainer_save_best(nm_trainer *trainer, nm_error *err);

/* log.c: truncates log.jsonl to state.log_bytes; records of resumed sessions behind them stay. */
nm_status nm_log_open(nm_trainer *trainer, nm_error *err);
/* Records the changed options of nm_run_config_changes; releases them. */
nm_status nm_log_resume(nm_trainer *trainer, json_t *changes, nm_error *err);
nm_status nm_log_sync(nm_trainer *trainer, nm_error *err); /* before a checkpoint refers to its length */
nm_status nm_log_progress(nm_trainer *trainer, const nm_progress *progress, nm_error *err);
nm_status nm_log_objects(nm_trainer *trainer, json_t *objects, nm_error *err); /* of an array; releases it */
nm_status nm_log_validation(nm_trainer *trainer, const nm_validation *validation, nm_error *err);

#endif
