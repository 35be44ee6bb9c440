/* A normalization layer of a model: runs the layer's type (src/core/norm) and calls the hooks of
 * instruments. */
#include "nn/residual.h"

static void *alloc_on_tape(void *tape, size_t bytes)
{
    return nm_tape_alloc(tape, bytes);
}

/* Without the statistics of the other shards the results of a pass are meaningless: the tape is marked as
 * exhausted, which ends the pass. */
static void end_failed_pass(nm_tape *tape, const nm_norm_call *call)
{
    tape->device.exhausted |= call->joiner && call->joiner->failed;
}

typedef struct normalization {
    nm_norm_call call;
    nm_node *residual; /* connection whose result x the norm computes; NULL: x is computed before the norm */
} normalization;

/* The rows that the norm normalizes: a row of a tensor that is a multiple of the norm's width is several
 * rows. */
static nm_mat norm_rows(const nm_norm *norm, void *data, const nm_tensor *tensor)
{
    int32_t parts = tensor->cols / norm->site.width;
    NM_ASSERT(parts * norm->site.width == tensor->cols);
    return nm_mat_of(data, tensor->rows * parts, norm->site.width);
}

static void normalize_backward(nm_tape *tape, nm_node *node)
{
    normalization *saved = node->saved;
    nm_norm_call *call = &saved->call;
    nm_tensor *y = node->out;
    nm_residual_grad residual;
    call->y = norm_rows(call->norm, y->data, y); /* nm_tape_keep_operand moves it */
    call->dy = norm_rows(call->norm, y->grad, y);
    call->dx = norm_rows(call->norm, nm_tensor_grad(tape, node->in[0], &call->add).data, y);
    if (!call->dx.data || (saved->residual && !nm_residual_grad_of(tape, saved->residual, &residual).data))
        return;
    for (int i = 0; i < call->norm->shape.n_params; i++)
        nm_tape_gradient_written(tape, call->norm->param_grads[i]);
    call->residual = saved->residual ? &residual : NULL;
    call->recomputed = false;
    call->norm->type->backward(call);
    call->residual = NULL; /* instruments may call backward again */
    end_failed_pass(tape, call);
    if (node->in[1])
        nm_residual_pass_gradient(tape, y, node->in[1]);
    if (tape->listen)
        tape->listen(tape->listener, call, true);
}

/* A backward pass that changes the running state runs in any case. */
static bool normalize_learns(const nm_node *node)
{
    const nm_norm *norm = ((const normalization *)node->saved)->call.norm;
    return norm->learns || norm->shape.n_state || norm->shape.n_statistics || norm->shape.n_counters;
}

static const nm_op normalize_op = {
    .name = "norm", .backward = normalize_backward, .learns = normalize_learns};

/* y = norm(x), or with relu y = relu(norm(x) + added); added: or NULL.
 * residual: connection whose result is x and is not computed yet; NULL: x is computed. */
static nm_tensor *normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_node *residual, bool relu,
                            nm_tensor *added)
{
    const bool fused = residual && norm->type->traits & NM_SUMS_RESIDUAL && !norm->folded;
    if (residual && !fused)
        nm_residual_compute(tape, residual, x);
    if (norm->folded) {
        NM_ASSERT(!tape->training && !tape->batch_stats);
        return x;
    }
    const nm_residual_saved *connection = fused ? residual->saved : NULL;
    nm_tensor *y = nm_tape_tensor(tape, x->rows, x->cols);
    normalization *saved = nm_tape_host(tape, sizeof *saved);
    bool train = tape->training || tape->batch_stats;
    bool recomputed = tape->recomputed;
    if (nm_tape_exhausted(tape))
        return y;
    nm_norm_call *call = &saved->call;
    saved->residual = fused ? residual : NULL;
    y->name = norm->site.name;
    *call = (nm_norm_call){.backend = tape->backend,
                           .norm = norm,
                           .alloc = alloc_on_tape,
                           .allocator = tape,
                           .x = norm_rows(norm, x->data, x),
                           .sum = connection ? &connection->sum : NULL,
                           .y = norm_rows(norm, y->data, y),
                           .relu = relu,
                           .added = added ? norm_rows(norm, added->data, y) : (nm_mat){0},
                           .n_targets = tape->n_targets,
                           .mean_loss = tape->mean_loss,
                           .padding = tape->padding,
                           .joiner = tape->training ? tape->joiner : NULL,
                           .grad_scale = tape->grad_scale,
                           .recomputed = recomputed};
    (train ? norm->type->train : norm->type->infer)(call);
    call->sum = NULL; /* x is now computed */
    end_failed_pass(tape, call);
    if (call->penalty)
        nm_tape_record_penalty(tape, call->penalty);
    if (tape->listen && !recomputed)
        tape->listen(tape->listener, call, false);
    nm_node *node = nm_tape_record(tape, &normalize_op, y, saved);
    node->in[0] = x;
    node->in[1] = added;
    return y;
}

nm_tensor *nm_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x)
{
    return normalize(tape, norm, x, NULL, false, NULL);
}

/* Instruments receive the result of a norm and that of its residual connection, which one kernel omits. */
nm_tensor *nm_normalize_relu(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_tensor *added)
{
    if (norm->type->traits & NM_COMPUTES_RELU && tape->training && !norm->folded && !tape->listen &&
        !tape->listen_residual) {
        tape->site += added ? 2 : 1; /* dropout sites of the single operations */
        return normalize(tape, norm, x, NULL, true, added);
    }
    nm_tensor *f = nm_normalize(tape, norm, x), *sum = added ? nm_residual(tape, added, f, 0) : f,
              *y = nm_activated(tape, sum, NM_MAP_RELU, 0);
    if (added)
        nm_tape_report_residual(tape, norm->site.name, added, f, y, NULL);
    return y;
}

nm_tensor *nm_residual_normalize(nm_tape *tape, nm_norm *norm, nm_tensor *x, nm_tensor *f, double drop_rate,
                                 nm_tensor **sum)
{
    nm_node *residual = nm_residual_record(tape, x, f, drop_rate, sum);
    return normalize(tape, norm, *sum, residual, false, NULL);
}
