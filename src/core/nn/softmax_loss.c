/* Label-smoothed cross-entropy over the vocabulary. The logits h W^T + b are computed in blocks and not
 * stored. The kernel computes all gradients in the same pass; the node only assigns or adds d_hidden. */
#include "nn/tape.h"

static void loss_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *hidden = node->in[0];
    if (!hidden->grad && hidden->pooled) {
        hidden->grad = node->saved;
        hidden->grad_started = true;
        return;
    }
    nm_mat dh = nm_tensor_grad_sum(tape, hidden);
    if (dh.data)
        NM_CALL(tape->backend, add, .alpha = 1, .x = nm_mat_of(node->saved, hidden->rows, hidden->cols),
                .y = dh);
}

static const nm_op loss_op = {.name = "softmax_loss", .backward = loss_backward};

double *nm_softmax_loss_of(nm_tape *tape, nm_tensor *hidden, nm_tensor *weight, nm_tensor *bias,
                           const nm_loss_spec *spec)
{
    double *sums = nm_tape_alloc(tape, 2 * sizeof *sums);
    const int32_t *targets = nm_tape_upload(tape, spec->targets, (size_t)hidden->rows * sizeof *targets);
    nm_tensor *d_hidden = tape->training ? nm_tape_tensor(tape, hidden->rows, hidden->cols) : NULL;
    if (nm_tape_exhausted(tape))
        return NULL;
    nm_softmax_loss_args loss = {.hidden = nm_tensor_mat(hidden),
                                 .weight = nm_tensor_mat(weight),
                                 .bias = bias ? bias->data : NULL,
                                 .targets = targets,
                                 .allowed = spec->allowed,
                                 .smoothing = spec->smoothing,
                                 .eps = spec->eps,
                                 .grad_scale = tape->grad_scale,
                                 .sums = sums};
    if (d_hidden) {
        loss.d_hidden = d_hidden->data;
        loss.d_weight = nm_learned_grad_sum(tape, weight).data;
        loss.d_bias = nm_learned_grad_sum(tape, bias).data;
        nm_tape_record(tape, &loss_op, NULL, d_hidden->data)->in[0] = hidden;
    }
    tape->backend->k.softmax_loss(tape->backend, &loss);
    return sums;
}
