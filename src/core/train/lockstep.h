/* Passes of several shards in lockstep: norm.statistics = update.
 *
 * A norm needs the statistics of all shards before it can normalize one of them. The passes of the shards of
 * this process are therefore coroutines: each computes until a norm joins its statistics (nm_norm_joiner);
 * when all passes have reached this join, the statistics are combined with those of the other processes. Each
 * pass has separate gradients and statistics. One pass computes at a time, with all threads of the backend,
 * so that the result is the same as that of consecutive passes. */
#pragma once

#include "train/shards.h"

typedef struct nm_lockstep nm_lockstep;

/* For the shards of this process; tree must outlive it. NM_MEMORY. */
nm_status nm_lockstep_create(nm_lockstep **lockstep, nm_shard_tree *tree, nm_error *err);
/* NULL is accepted. */
void nm_lockstep_free(nm_lockstep *lockstep);

/* Calls pass(user, i, joiner), forward and backward pass with this joiner, for each shard i of this process,
 * from 0. A pass that fails must return early; then, and if the exchange fails, the other passes end after
 * their next join, with joiner->failed set. In the first case the result is NM_OK, and the caller returns the
 * error of the pass whose joiner has not failed. */
nm_status nm_lockstep_run(nm_lockstep *lockstep, void (*pass)(void *user, int32_t i, nm_norm_joiner *joiner),
                          void *user, nm_error *err);
/* Copies the gradients and statistics of pass i to the parameters. */
void nm_lockstep_load(nm_lockstep *lockstep, int32_t i);
