/* A normalization layer of a model: runs the layer's type (src/norm) and calls the hooks of instruments. */
#include "tape/tape.h"

static void *alloc_on_tape(void *tape, size_t bytes)
{
    return nm_tape_alloc(tape, bytes);
}

/* Without the statistics of the other shards the results of a pass are meaningless: it ends like one without memory. */
static void end_failed_pass(nm_tape *tape, const nm_norm_call *call)
{
    tape->device.exhausted |= call->joiner && call->joiner->failed;
}

static void normalize_backward(nm_tape *tape, nm_node *node)
{
    nm_norm_call *call = node->saved;
    nm_tensor *y = node->out;
    call->dy = nm_mat_of(y->grad, y->rows, y->cols);
    call->dx = nm_tensor_grad(tape, node->in[0], &call->add);
    if (!call->dx.data)
        return;
    for (int i = 0; i < call->norm->shape.n_params; i++)
        nm_tape_gradient_written(tape, call->norm->param_grads[i]);
    call->recomputed = false;
    call->norm->type->backward(call);
    end_failed_pass(tape, call);
    if (tape->listen)
        tape->listen(tape->listener, call, true);
}

static const nm_op normalize_op = {"norm", normalize_backward};

nm_tensor *nm_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x)
{
    if (norm->folded) {
        NM_ASSERT(!tape->training && !tape->batch_stats);
        return x;
    }
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    nm_norm_call *call = nm_tape_host(tape, sizeof *call);
    bool train = tape->training || tape->batch_stats;
    bool recomputed = nm_segment_is_recomputed(tape);
    if (nm_tape_exhausted(tape))
        return y;
    y->name = norm->site.name;
    *call = (nm_norm_call){.backend = tape->backend,
                           .norm = norm,
                           .alloc = alloc_on_tape,
                           .allocator = tape,
                           .x = nm_tensor_mat(x),
                           .y = nm_tensor_mat(y),
                           .n_targets = tape->n_targets,
                           .mean_loss = tape->mean_loss,
                           .joiner = tape->training ? tape->joiner : NULL,
                           .grad_scale = tape->grad_scale,
                           .recomputed = recomputed};
    (train ? norm->type->train : norm->type->infer)(call);
    end_failed_pass(tape, call);
    if (call->penalty && !recomputed && tape->n_penalties < NM_TAPE_MAX_PENALTIES)
        tape->penalties[tape->n_penalties++] = call->penalty;
    if (tape->listen && !recomputed)
        tape->listen(tape->listener, call, false);
    nm_tape_record(tape, &normalize_op, y, call)->in[0] = x;
    return y;
}
