/* Runs of at most a few hundred updates on the corpus of tiny_data.h, from the start or resumed. Include
 * after cmocka.h. */
#ifndef NM_TINY_JOB_H
#define NM_TINY_JOB_H

#include "support/tiny_run.h"

typedef struct job {             /* a short run */
    const char *const *settings; /* pairs, NULL at the end */
    const char *norm, *threads, *updates;
    char *folder;
    bool resume;
    nm_train_state ended; /* output: the state at the end of the run */
} job;

/* Options of the job; free with nm_options_free. */
static inline nm_options *options_of(const job *j)
{
    static const char *const settings[] = {"train.validate_every", "15", "train.score", "true",
                                           "decode.beam",          "2",  NULL};
    nm_options *options = tiny_options(settings);
    tiny_set(options, "model.norm", j->norm ? j->norm : "layer");
    tiny_set(options, "device.threads", j->threads ? j->threads : "1");
    tiny_set(options, "train.updates", j->updates);
    for (int i = 0; j->settings && j->settings[i]; i += 2)
        tiny_set(options, j->settings[i], j->settings[i + 1]);
    return options;
}

/* Runs the job; returns the hash of the final weights. */
static inline uint64_t run(job *j, nm_status expected, nm_error *err)
{
    nm_options *options = options_of(j);
    nm_trainer *trainer;
    uint64_t hash = 0;
    nm_status status =
        nm_trainer_open(&trainer, &nm_task_translation, options, j->folder, j->resume, NULL, err);
    if (status == NM_OK) {
        status = nm_trainer_run(trainer, err);
        hash = nm_trainer_weights_hash(trainer);
        j->ended = *nm_trainer_state(trainer);
        nm_trainer_close(trainer);
    }
    if (status != expected)
        fail_msg("status %d, expected %d: %s", status, expected, status ? err->text : "");
    nm_options_free(options);
    return hash;
}

/* Path of a file of the checkpoints; heap. */
static inline char *checkpoint_file(const char *folder, const char *name)
{
    return nm_format("%s/checkpoints/%s", folder, name);
}

#endif
