/* The optimizer of a run. Its state has the layout of the parameters.
 *
 * Muon (train/muon.h) updates the hidden weights (nm_params_mark_hidden), that is, the weights of the linear
 * layers in stacks, each of the projections q, k and v as a separate matrix. AdamW updates all other
 * parameters: embeddings, position tables, output projections, vectors, and matrices that are not weights of
 * linear layers. Hidden weights have no second moment.
 *
 * With several processes and comm.shard_optimizer (ZeRO stage 1: Rajbhandari et al. 2020, "ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models") each process has the state of one part of the
 * parameters (nm_shard_tree_part) and updates this part; then the parts are gathered. The all-gather of
 * parameters replaces that of gradients, so that the number of exchanged bytes is the same. The parameters
 * are bitwise identical to those without sharding: each element is computed by the same operations, and the
 * gradient norm is a sum of blocks in a fixed order. */
#pragma once

#include "train/optimizer_type.h"
#include "train/shards.h"

/* Consecutive trainable elements of the parameter memory. */
typedef struct nm_param_range {
    size_t first, n;
    size_t v;        /* first element of v */
    bool decays;     /* whether weight decay applies */
    double decay_to; /* value towards which it pulls the elements */
} nm_param_range;

/* A block of rows of a hidden weight (nm_params_mark_hidden), which nm_optimizer_type.update_matrix
 * updates. */
typedef struct nm_matrix_block {
    size_t first; /* element of the parameter memory */
    int32_t rows, cols;
} nm_matrix_block;

typedef struct nm_optimizer {
    const nm_optim_config *config;
    const nm_optimizer_type *type;
    double clip_value; /* train.clip_value */
    nm_shard_tree *tree;
    nm_param_range part; /* the elements that this process updates; without sharding all */
    /* Device, [part.n] and [n_v]: the moments that the type has, otherwise NULL and 0. Matrices have no
     * elements in v. */
    void *m, *v;
    /* Device, [n_whole_m] and [n_whole_v], see nm_optimizer_collect; without sharding m and v. */
    void *whole_m, *whole_v;
    size_t n_v, n_whole_m, n_whole_v;
    nm_param_range *trainable; /* [n_trainable], within the part; without matrices */
    size_t n_trainable;
    nm_matrix_block *blocks; /* [n_blocks], trainable; none if the type updates no matrices */
    size_t n_blocks;
    void *workspace; /* device, [n_workspace], of update_matrix */
    size_t n_workspace;
    double *block_sums; /* [n_elements / NM_DOT_BLOCK + 1], of the gradient norm; NULL without sharding */
} nm_optimizer;

/* clip_value: train.clip_value. config and tree must outlive the optimizer. NM_USAGE if Muon has no matrix to
 * update, or with sharding, because a part can end inside a matrix; NM_MEMORY. Release in every case. */
nm_status nm_optimizer_init(nm_optimizer *optimizer, const nm_optim_config *config, double clip_value,
                            nm_shard_tree *tree, nm_error *err);
void nm_optimizer_release(nm_optimizer *optimizer);
/* Size of m, v and the workspace in bytes, together, without the elements of fixed parameters, whose memory
 * is never touched. */
size_t nm_optimizer_bytes(const nm_optimizer *optimizer);
/* Sets whole_m and whole_v to the contents of a checkpoint (host), except for fixed parameters. */
void nm_optimizer_load(nm_optimizer *optimizer, const void *m, const void *v);

/* All ranks must call the functions below. Errors as nm_comm_exchange. */

/* Squared L2 norm of the summed gradients, in device memory: nothing waits for it. The gradients of fixed
 * parameters are zeroed and not included. */
nm_status nm_optimizer_gradient_square(nm_optimizer *optimizer, double *square, nm_error *err);
/* Whether the parameters stay as they are if the scale of nm_optimizer_step is NaN. */
bool nm_optimizer_skips(const nm_optimizer *optimizer);
/* Update `step`, from 1, with the gradients times *scale (device, [1]). */
nm_status nm_optimizer_step(nm_optimizer *optimizer, int64_t step, double lr, const double *scale,
                            nm_error *err);
/* With sharding: collect gathers the whole state in whole_m and whole_v of rank 0, which overwrites
 * gradients; distribute scatters it to the parts of all ranks. No effect without sharding. */
nm_status nm_optimizer_collect(nm_optimizer *optimizer, nm_error *err);
nm_status nm_optimizer_distribute(nm_optimizer *optimizer, nm_error *err);
