/* Declarations that the files of the trainer share: opening (trainer.c), access (trainer_state.c), loop
 * (loop.c), update (update.c), validation (validate.c), checkpoints (resume.c), several ranks (ranks.c), log
 * (log.c). */
#pragma once

#include "backend/device_options.h"
#include "base/clock.h"
#include "base/file.h"
#include "train/checkpoint.h"
#include "train/ema.h"
#include "train/machine_load.h"
#include "train/manifest.h"
#include "train/lockstep.h"
#include "train/optimizer.h"
#include "train/results.h"
#include "train/shards.h"
#include "train/trainer.h"
#include "train/warm_start.h"
#include "train/workers.h"

/* The pass of a shard that runs in lockstep with others. */
typedef struct nm_lane {
    nm_tape tape;
    nm_arena host; /* contents of its batch */
    nm_batch batch;
    int64_t step;
    nm_shard_sums sums;
    nm_status status;
    nm_error error;
} nm_lane;

struct nm_trainer {
    const nm_options *options;
    const nm_train_config *config;
    const nm_device_config *device;
    nm_train_callbacks callbacks;
    char *folder;
    bool made_folder, made_checkpoints; /* this session has created the folder, and its subfolder */
    nm_folder_lock lock;                /* of the folder; released at close */
    nm_backend *backend;
    nm_task task;
    nm_model *model;
    nm_tape tape;
    nm_arena host; /* contents of the current batch */
    nm_schedule schedule;
    nm_train_state state;
    nm_batches batches; /* of the current epoch, if batches_ready */
    bool batches_ready;
    int64_t total_updates; /* train.updates; 0: not limited */
    nm_optimizer optimizer;
    nm_ema ema;            /* train.ema_decay */
    nm_comm *comm;         /* the processes of the run */
    nm_comm alone;         /* *comm of a single process */
    nm_shard_tree shards;  /* sums of the current update */
    nm_results results;    /* of the current update */
    nm_lockstep *lockstep; /* norm.statistics = update; otherwise NULL */
    nm_lane *lanes;        /* [n_lanes], with lockstep */
    int32_t n_lanes;
    nm_workers workers; /* norm.state = worker */
    bool stop;          /* with several processes: one of them was requested to stop, when they last agreed */
    /* With several processes: messages of this one since nm_ranks_share_messages, each ending with a newline;
     * heap or NULL. */
    char *messages;
    double logged_wait;   /* comm->wait_seconds at the last record of the log */
    int64_t logged_bytes; /* comm->sent_bytes at the last record of the log */
    size_t peak_bytes;
    FILE *log;
    nm_digest log_digest; /* of the first `digested` bytes of the log */
    int64_t digested;
    nm_manifest_link chain[2]; /* the last checkpoint, and the one before */
    char *config_text;         /* contents of config.ini, heap; NULL except in rank 0 */
    bool unchanged;            /* the state is that of the checkpoint from which the run was resumed */
    bool config_pending;       /* config.ini does not have this text before the next checkpoint */
    json_t *init_from;         /* record of nm_warm_start for the log; NULL: none */
    double started;            /* nm_clock at open */
    double seconds_before;     /* training time of earlier sessions */
    double validating;         /* duration of validations since the last record of the log */
    double last_validation;    /* duration of the last validation of this session, 0: none */
    double report_clock;       /* nm_clock at the last record of the log, or at open */
    int64_t earlier_tokens;    /* part of state.sum_tokens of earlier sessions, whose clocks have stopped */
    nm_load_meter load;        /* read at each record of the log */
    struct {
        int64_t updates, tokens;
        double seconds;
        bool warm; /* the first update is finished */
    } profile;
    struct {                    /* train.check_shard */
        bool due;               /* in the current update */
        int64_t shard;          /* that is computed twice */
        int32_t owner, checker; /* ranks; equal with one process */
        uint64_t first, second; /* hashes of its gradients by the owner and by the checker */
    } check;
    bool hooks_due; /* the hooks are called for the current update */
};

/* Fraction of train.seconds that has passed; 0: not limited. */
double nm_trainer_time_fraction(const nm_trainer *trainer);
/* Calls the message callback. With several ranks the message is also stored for nm_ranks_share_messages. */
void nm_trainer_message(nm_trainer *trainer, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* update.c: measures the memory of an update. */
nm_status nm_trainer_dry_run(nm_trainer *trainer, nm_error *err);
/* update.c: forms the batches of state.epoch, all of which may have been used. */
nm_status nm_trainer_form_batches(nm_trainer *trainer, int64_t shard, nm_error *err);
/* update.c: makes state.batch the index of an existing batch; begins the next epoch if necessary. shard:
 * index of the batch in the update. */
nm_status nm_trainer_ready_batches(nm_trainer *trainer, int64_t shard, nm_error *err);

/* profile_init.c: completes model.init = admin; no effect with another initialization. NM_MEMORY. */
nm_status nm_trainer_profile_init(nm_trainer *trainer, nm_error *err);

/* ranks.c; all ranks must call these functions. NM_MISMATCH if ranks have different programs, options, data
 * or devices. */
nm_status nm_ranks_compare_setup(const nm_trainer *trainer, nm_error *err);
/* NM_MISMATCH unless the parameters of all ranks are bitwise equal. */
nm_status nm_ranks_compare_weights(const nm_trainer *trainer, nm_error *err);
/* NM_INTERRUPTED on all ranks if one of them was requested to stop. */
nm_status nm_ranks_share_stop(nm_trainer *trainer, nm_error *err);
/* nm_comm_share_interruption; if a rank was interrupted, all stop after the update. */
nm_status nm_ranks_share_interruption(nm_trainer *trainer, nm_status status, nm_error *err);
/* Copies the training state of rank 0 to all ranks. */
nm_status nm_ranks_share_state(nm_trainer *trainer, nm_error *err);
/* Copies parameters, running statistics, optimizer state and training state of rank 0 to all ranks. */
nm_status nm_ranks_share_checkpoint(nm_trainer *trainer, nm_error *err);
/* Passes the messages that rank 0 does not have to its callback as "rank N: ...". */
nm_status nm_ranks_share_messages(nm_trainer *trainer, nm_error *err);

/* resume.c */
nm_status nm_trainer_has_checkpoint(const nm_trainer *trainer, bool *has, nm_error *err);
/* Loads the newest complete checkpoint; *found is false if there is none. NM_FORMAT if all are damaged. */
nm_status nm_trainer_resume(nm_trainer *trainer, bool *found, nm_error *err);
nm_status nm_trainer_save_best(nm_trainer *trainer, nm_error *err);

/* log.c: opens log.jsonl and truncates it to state.log_bytes. */
nm_status nm_log_open(nm_trainer *trainer, nm_error *err);
/* Writes a record with the changes of nm_run_config_changes; releases them. */
nm_status nm_log_resume(nm_trainer *trainer, json_t *changes, nm_error *err);
/* Writes a record with the hash of the parameters. */
nm_status nm_log_weights(nm_trainer *trainer, nm_error *err);
/* The digest of the first `bytes` bytes. NM_IO; NM_FORMAT if the log is shorter. */
nm_status nm_log_digest(nm_trainer *trainer, int64_t bytes, char text[NM_DIGEST_TEXT], nm_error *err);
/* Flushes the file to disk, before a checkpoint stores its length. */
nm_status nm_log_sync(nm_trainer *trainer, nm_error *err);
/* What only the log has. */
#define NM_LOG_MACHINE(F)                                                                                    \
    F(real, backward_state,                                                                                  \
      "Largest root mean square of a running gradient vector (`ema_gz` of PowerNorm and "                    \
      "Unified Normalization, `buffer_gz` of MABN and Unified Normalization)",                               \
      "backward_state?")                                                                                     \
    F(real, load, "1-minute load average")                                                                   \
    F(real, other_cores,                                                                                     \
      "Mean number of cores that other processes and other virtual machines used since the "                 \
      "previous record, from `/proc/stat`",                                                                  \
      "other_cores?")                                                                                        \
    F(real, exchange_seconds,                                                                                \
      "With several processes: time since the previous record in which rank 0 exchanged "                    \
      "data with others or waited for them",                                                                 \
      "exchange_seconds?")                                                                                   \
    F(int, exchange_bytes, "With several processes: bytes that rank 0 has sent since the previous record",   \
      "exchange_bytes?")
NM_RECORD(nm_log_machine, NM_LOG_MACHINE)
/* machine: without the load. */
nm_status nm_log_progress(nm_trainer *trainer, const nm_training_progress *progress, nm_log_machine *machine,
                          nm_error *err);
/* Writes the objects of an array; releases it. */
nm_status nm_log_objects(nm_trainer *trainer, json_t *objects, nm_error *err);
nm_status nm_log_validation(nm_trainer *trainer, const nm_training_validation *validation, nm_error *err);
