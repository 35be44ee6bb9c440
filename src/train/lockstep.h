/* Passes of several shards in lockstep: norm.statistics = update.
 *
 * Every norm needs the statistics of all shards before it can normalize one of them. The passes of the shards of this
 * process are therefore coroutines: each computes until a norm joins its statistics (nm_norm_joiner), and when all have
 * arrived there, the statistics are combined with those of the other processes. Each pass has its own gradients and
 * statistics. One of them computes at a time, with all threads of the backend, so the result is that of the passes one
 * after another. */
#ifndef NM_LOCKSTEP_H
#define NM_LOCKSTEP_H

#include "train/shards.h"

typedef struct nm_lockstep nm_lockstep;

/* For the shards of this process; tree must outlive it. NM_MEMORY. */
nm_status nm_lockstep_create(nm_lockstep **lockstep, nm_shard_tree *tree, nm_error *err);
/* NULL is accepted. */
void nm_lockstep_free(nm_lockstep *lockstep);

/* Calls pass(user, i, joiner) for each shard i of this process, counted from 0: forward and backward with this joiner.
 * A pass that fails returns early; then, and if the exchange fails, the others end after their next join. In the first case
 * the result is NM_OK, and the caller has the error of that pass. */
nm_status nm_lockstep_run(nm_lockstep *lockstep, void (*pass)(void *user, int32_t i, nm_norm_joiner *joiner),
                          void *user, nm_error *err);
/* Copies the gradients and statistics of pass i to the parameters. */
void nm_lockstep_load(nm_lockstep *lockstep, int32_t i);

#endif
