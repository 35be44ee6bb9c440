/* Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): forward
 * stores only the result of a segment, and backward runs the segment again from its inputs before the
 * segment's backward pass.
 *
 * The gradients are bitwise identical to those without checkpointing. Dropout masks depend on the indices of
 * their sites, which are reset for the second run. The running state of norms is updated only after the
 * backward pass, and statistics are collected only in the first run. Gradients are summed in the same order.
 *
 * At inference a segment runs once, and the memory of its intermediates is freed. */
#include <string.h>

#include "nn/tape.h"

typedef struct saved_segment {
    nm_tensor *(*run)(nm_tape *tape, const void *context);
    const void *context;
    uint32_t site; /* first dropout site of the segment */
} saved_segment;

static nm_tensor *run(nm_tape *tape, const saved_segment *s, bool recomputed)
{
    tape->in_segment = true;
    tape->recomputed = recomputed;
    nm_tensor *out = s->run(tape, s->context);
    tape->in_segment = tape->recomputed = false;
    return out;
}

static void recompute_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *out = node->out;
    int first = (int)(node - tape->nodes) + 1;
    uint32_t site = tape->site;
    const saved_segment *s = node->saved;
    tape->n_nodes = first;
    tape->site = s->site;
    nm_tape_free_data(tape, out); /* its readers have run, and the second run computes it again */
    nm_tensor *recomputed = run(tape, s, true);
    tape->site = site;
    if (nm_tape_exhausted(tape))
        return;
    recomputed->grad = out->grad;
    recomputed->grad_started = true;
    out->grad = NULL;
    nm_tape_backward_from(tape, first);
}

static const nm_op recompute_op = {
    .name = "recompute", .backward = recompute_backward, .learns = nm_op_learns};

/* Moves the result to the beginning of the segment's memory, which starts at offset `mark` of the arena, and
 * frees the rest, so that the next segment uses memory that is still in the CPU caches. */
static void compact(nm_tape *tape, size_t mark, nm_tensor *out)
{
    nm_backend *b = tape->backend;
    char *begin = tape->device.base + mark, *data = out->data;
    size_t bytes = (size_t)out->rows * (size_t)out->cols * nm_dtype_bytes(b->dtype);
    bool inside = data >= begin && data < begin + (tape->device.used - mark), moves = inside && data != begin;
    if (nm_tape_exhausted(tape) || (moves && (size_t)(data - begin) < bytes))
        return;
    int n_kept = 0;
    for (int i = 0; i < tape->n_pool; i++)
        if ((char *)tape->pool[i].data < begin)
            tape->pool[n_kept++] = tape->pool[i];
    tape->n_pool = n_kept;
    if (moves) {
        nm_backend_copy(b, begin, data, bytes);
        out->data = begin;
    }
    tape->device.used = mark;
    if (inside)
        nm_tape_alloc(tape, bytes);
}

/* Inference, and no instrument reads the intermediates. */
static bool is_plain_inference(const nm_tape *tape)
{
    return !tape->training && !tape->batch_stats && !tape->listen;
}

nm_tensor *nm_recomputed_segment(nm_tape *tape, nm_tensor *(*segment)(nm_tape *tape, const void *context),
                                 const void *context, size_t bytes)
{
    if (is_plain_inference(tape)) {
        size_t mark = tape->device.used;
        const char *region = tape->device.base;
        nm_tensor *out = segment(tape, context);
        if (tape->device.base == region) /* otherwise the segment's memory is not contiguous */
            compact(tape, mark, out);
        return out;
    }
    if (!tape->recompute || !tape->training || tape->in_segment)
        return segment(tape, context);
    saved_segment *s = nm_tape_host(tape, sizeof *s);
    void *context_copy = nm_tape_host(tape, bytes);
    if (nm_tape_exhausted(tape))
        return nm_tape_tensor(tape, 0, 0);
    memcpy(context_copy, context, bytes);
    *s = (saved_segment){.run = segment, .context = context_copy, .site = tape->site};
    int first = tape->n_nodes;
    nm_tensor *out = run(tape, s, false);
    if (!nm_tape_exhausted(tape))
        nm_tape_truncate(tape, first, out);
    nm_tape_record(tape, &recompute_op, out, s);
    return out;
}
