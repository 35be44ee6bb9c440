/* Training by several processes, for norma train, in addition to norma/train.h. Only the program is linked
 * with MPI, so the public interface has no communicator. */
#pragma once

#include "train/comm.h"
#include "train/comm_options.h"
#include "norma/train.h"

typedef struct nm_training_ranks {
    nm_comm *comm;                /* must outlive the training */
    const nm_comm_config *config; /* options with which comm was opened, instead of those of the recipe */
    /* Training ends with a checkpoint after this update, as if it had not ended; 0: with the run. The
     * configuration of the folder is then used as it is: the caller has compared it with the checkpoint
     * (norma verify). */
    int64_t last_update;
} nm_training_ranks;

/* As nm_training_open; collective: all processes call it with the same arguments. Only rank 0 calls the
 * functions of `events` and writes files. ranks NULL: a single process. err must not be NULL. */
nm_status nm_training_open_ranks(nm_training **training, const char *recipe, const char *folder,
                                 const char *const *options, nm_training_resume resume,
                                 const nm_training_events *events, const nm_training_ranks *ranks,
                                 nm_error *err);
