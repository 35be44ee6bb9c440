/* What `norma train` needs in addition to norma/train.h: the processes that train together. Only the program is linked with
 * MPI, so the public header has no communicator. */
#ifndef NM_TRAINING_H
#define NM_TRAINING_H

#include "comm/comm.h"
#include "comm/comm_options.h"
#include "norma/train.h"

typedef struct nm_training_ranks {
    nm_comm *comm;                /* outlives the training */
    const nm_comm_config *config; /* of which comm was opened; a recipe may not set other values */
} nm_training_ranks;

/* As nm_training_open, by every process with the same arguments. Rank 0 calls the functions of `events` and writes the
 * files; the others only train. ranks NULL: this process alone. err is not NULL. */
nm_status nm_training_open_ranks(nm_training **training, const char *recipe, const char *folder,
                                 const char *const *options, nm_training_resume resume,
                                 const nm_training_events *events, const nm_training_ranks *ranks,
                                 nm_error *err);

#endif
