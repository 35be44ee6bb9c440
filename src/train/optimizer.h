/* The optimizer of a run. Its state has the layout of the parameters.
 *
 * With several processes and comm.shard_optimizer (ZeRO stage 1: Rajbhandari et al. 2020, "ZeRO: Memory Optimizations Toward
 * Training Trillion Parameter Models") each process has the state of one part of the parameters (nm_shard_tree_part), updates
 * this part, and the parts are gathered. An exchange of gradients is thereby replaced by one of parameters, so the bytes are
 * the same. Every element is computed by the same operations, and the gradient norm is a sum of blocks in a fixed order: the
 * parameters are bitwise identical to those without sharding. */
#ifndef NM_OPTIMIZER_H
#define NM_OPTIMIZER_H

#include "train/options.h"
#include "train/shards.h"

/* Consecutive trainable elements of the parameter memory. */
typedef struct nm_param_range {
    size_t first, n;
} nm_param_range;

typedef struct nm_optimizer {
    const nm_optim_config *config;
    double clip_value; /* train.clip_value */
    nm_shard_tree *tree;
    nm_param_range part;       /* the elements that this process updates; all without sharding */
    void *m, *v;               /* device, [part.n]: first and second moment of Adam; v: momentum of SGD */
    void *whole_m, *whole_v;   /* device, [n_elements], see nm_optimizer_collect; without sharding m and v */
    nm_param_range *trainable; /* [n_trainable], within the part */
    size_t n_trainable;
    double *block_sums; /* of the gradient norm; with sharding */
} nm_optimizer;

/* clip_value: train.clip_value. config and tree must outlive the optimizer. NM_MEMORY; release in every case. */
nm_status nm_optimizer_init(nm_optimizer *optimizer, const nm_optim_config *config, double clip_value,
                            nm_shard_tree *tree, nm_error *err);
void nm_optimizer_release(nm_optimizer *optimizer);
/* Bytes of m and v. */
size_t nm_optimizer_bytes(const nm_optimizer *optimizer);

/* Optimizers of one kind share the meaning of their state: 0: first and second moment; 1: SGD's momentum. */
int64_t nm_optimizer_state_kind(const nm_optim_config *config);

/* The functions below are called by all ranks; errors of nm_comm_exchange. */

/* L2 norm of the summed gradients, without those of fixed parameters, which are zeroed. */
nm_status nm_optimizer_gradient_norm(nm_optimizer *optimizer, double *norm, nm_error *err);
/* Update number `step`, from 1. grad_scale: factor of the gradients. */
nm_status nm_optimizer_step(nm_optimizer *optimizer, int64_t step, double lr, double grad_scale,
                            nm_error *err);
/* With sharding, rank 0 gets the whole state in whole_m and whole_v, in memory of gradients, which are lost; and all ranks
 * get their parts from there. Without sharding nothing is done. */
nm_status nm_optimizer_collect(nm_optimizer *optimizer, nm_error *err);
nm_status nm_optimizer_distribute(nm_optimizer *optimizer, nm_error *err);

#endif
