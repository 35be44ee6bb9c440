/* Loss of a linear-chain conditional random field, summed over sequences; the formula is in
 * src/core/backend/ref_crf.inc. The kernel computes all gradients in the same pass; the node only assigns
 * d_emissions to the emissions. A log-softmax of the emissions would have no effect: it shifts the scores of
 * all paths of a sequence by the same amount. */
#include "nn/tape.h"

static void crf_backward(nm_tape *tape, nm_node *node)
{
    (void)tape;
    nm_tensor *emissions = node->in[0];
    NM_ASSERT(emissions->pooled && !emissions->grad_started);
    emissions->grad = node->saved;
    emissions->grad_started = true;
}

static const nm_op crf_op = {.name = "crf_loss", .backward = crf_backward};

double *nm_crf_loss(nm_tape *tape, nm_tensor *emissions, const nm_crf_scores *scores,
                    const nm_packing *packing, const int32_t *gold)
{
    double *sums = nm_tape_alloc(tape, 2 * sizeof *sums);
    const int32_t *tags = nm_tape_upload(tape, gold, (size_t)emissions->rows * sizeof *tags);
    nm_tensor *d_emissions = tape->training ? nm_tape_tensor(tape, emissions->rows, emissions->cols) : NULL;
    if (nm_tape_exhausted(tape))
        return NULL;
    nm_crf_args crf = {.emissions = nm_tensor_mat(emissions),
                       .transitions = scores->transitions->data,
                       .start = scores->start->data,
                       .end = scores->end->data,
                       .packing = packing,
                       .gold = tags,
                       .grad_scale = tape->grad_scale,
                       .sums = sums};
    if (d_emissions) {
        crf.d_emissions = d_emissions->data;
        crf.d_transitions = nm_tensor_grad_sum(tape, scores->transitions).data;
        crf.d_start = nm_tensor_grad_sum(tape, scores->start).data;
        crf.d_end = nm_tensor_grad_sum(tape, scores->end).data;
        nm_tape_record(tape, &crf_op, NULL, d_emissions->data)->in[0] = emissions;
    }
    tape->backend->k.crf(tape->backend, &crf);
    return sums;
}
