/* Segments of a model that run twice (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): forward keeps
 * a segment's result alone, and backward runs the segment again from its inputs before it walks through it.
 *
 * The second run gives the first one's bits. Dropout masks depend on their sites' numbers, which are set back; the running
 * state of norms changes only after the backward pass, and statistics are collected in the first run. A segment's gradients
 * are summed in the order of a tape that keeps everything, so they have its bits too.
 *
 * Where nothing is learned nothing runs twice, and a segment gives its memory back but for the result. */
#include <string.h>

#include "tape/tape.h"

struct nm_segment {
    nm_tensor *(*run)(nm_tape *tape, const void *context);
    const void *context;
    uint32_t site;
    bool again;
};

bool nm_segment_is_recomputed(const nm_tape *tape)
{
    return tape->segment && tape->segment->again;
}

static nm_tensor *run(nm_tape *tape, nm_segment *s, bool again)
{
    s->again = again;
    tape->segment = s;
    nm_tensor *out = s->run(tape, s->context);
    tape->segment = NULL;
    return out;
}

static void recompute_backward(nm_tape *tape, nm_node *node)
{
    nm_tensor *out = node->out;
    int first = (int)(node - tape->nodes) + 1;
    uint32_t site = tape->site;
    nm_segment *s = node->saved;
    tape->n_nodes = first;
    tape->site = s->site;
    nm_tape_dealloc(tape,
                    out); /* nobody behind the segment needs it any more, and the second run makes it anew */
    nm_tensor *same = run(tape, s, true);
    tape->site = site;
    if (nm_tape_exhausted(tape))
        return;
    same->grad = out->grad;
    same->grad_started = true;
    out->grad = NULL;
    nm_tape_walk(tape, first);
}

static const nm_op recompute_op = {"recompute", recompute_backward};

/* The result moves to where the segment's memory begins, and the rest of that memory is free: what the next segment uses is
 * still in the caches. */
static void settle(nm_tape *tape, size_t mark, nm_tensor *out)
{
    nm_backend *b = tape->backend;
    char *begin = tape->device.base + mark, *data = out->data;
    size_t bytes = (size_t)out->rows * (size_t)out->cols * nm_dtype_bytes(b->dtype);
    bool inside = data >= begin && data < begin + (tape->device.used - mark), moves = inside && data != begin;
    if (nm_tape_exhausted(tape) || (moves && (size_t)(data - begin) < bytes))
        return;
    int kept = 0;
    for (int i = 0; i < tape->n_pool; i++)
        if ((char *)tape->pool[i].data < begin)
            tape->pool[kept++] = tape->pool[i];
    tape->n_pool = kept;
    if (moves) {
        nm_backend_copy(b, begin, data, bytes);
        out->data = begin;
    }
    tape->device.used = mark;
    if (inside)
        nm_arena_alloc(&tape->device, bytes);
}

static bool only_result_counts(const nm_tape *tape)
{
    return !tape->training && !tape->batch_stats && !tape->listen;
}

nm_tensor *nm_recomputed_segment(nm_tape *tape, nm_tensor *(*segment)(nm_tape *tape, const void *context),
                                 const void *context, size_t bytes)
{
    if (only_result_counts(tape)) {
        size_t mark = tape->device.used;
        nm_tensor *out = segment(tape, context);
        settle(tape, mark, out);
        return out;
    }
    if (!tape->recompute || !tape->training || tape->segment)
        return segment(tape, context);
    nm_segment *s = nm_tape_host(tape, sizeof *s);
    void *kept = nm_tape_host(tape, bytes);
    if (nm_tape_exhausted(tape))
        return nm_tape_tensor(tape, 0, 0);
    memcpy(kept, context, bytes);
    *s = (nm_segment){.run = segment, .context = kept, .site = tape->site};
    int first = tape->n_nodes;
    nm_tensor *out = run(tape, s, false);
    if (!nm_tape_exhausted(tape))
        nm_tape_forget(tape, first, out);
    nm_tape_record(tape, &recompute_op, out, s);
    return out;
}
