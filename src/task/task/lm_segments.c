/* Contiguous streams and their segments as in Transformer-XL's code (Dai et al. 2019), except that the first
 * token of the text is scored, too: its input is </s>. */
#include "task/lm_task.h"

nm_status nm_lm_segments_make(nm_lm_segments *segments, const int32_t *ids, int64_t n, int64_t streams,
                              int32_t length, bool incomplete, int32_t before, nm_error *err)
{
    if (streams < 1)
        streams = 1;
    *segments = (nm_lm_segments){.ids = ids,
                                 .n = n,
                                 .streams = streams,
                                 .stream_length = n / streams,
                                 .length = length,
                                 .before = before};
    int64_t stream = segments->stream_length;
    segments->per_stream = stream / length + (incomplete && stream % length > 0);
    if (!segments->per_stream)
        return nm_fail(err, NM_USAGE,
                       "a text of %lld tokens in %lld streams has no %ssegment of %d: more text, a lower "
                       "train.max_tokens or model.context is needed",
                       (long long)n, (long long)streams, incomplete ? "" : "complete ", length);
    return NM_OK;
}

int64_t nm_lm_segment_begin(const nm_lm_segments *segments, int64_t i, int32_t *length)
{
    int64_t stream = i % segments->streams, at = i / segments->streams * segments->length;
    int64_t left = segments->stream_length - at;
    *length = left < segments->length ? (int32_t)left : segments->length;
    return stream * segments->stream_length + at;
}

nm_batch nm_lm_pack(const int32_t *ids, int32_t before, const int64_t *begins, const bool *starts,
                    const int32_t *lengths, int32_t n, nm_arena *arena)
{
    int32_t *offsets = nm_arena_alloc(arena, ((size_t)n + 1) * sizeof *offsets), longest = 0;
    offsets[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + lengths[i];
        longest = lengths[i] > longest ? lengths[i] : longest;
    }
    size_t bytes = (size_t)offsets[n] * sizeof(int32_t);
    int32_t *in = nm_arena_alloc(arena, bytes), *out = nm_arena_alloc(arena, bytes),
            *pos = nm_arena_alloc(arena, bytes);
    for (int32_t i = 0; i < n; i++)
        for (int32_t t = 0; t < lengths[i]; t++) {
            int64_t at = begins[i] + t;
            bool first = !at || (!t && starts && starts[i]);
            in[offsets[i] + t] = first ? before : ids[at - 1];
            out[offsets[i] + t] = ids[at];
            pos[offsets[i] + t] = t;
        }
    return (nm_batch){.n = n,
                      .n_targets = offsets[n],
                      .tokens = offsets[n],
                      .target = {.n_seqs = n, .n_tokens = offsets[n], .longest = longest, .offsets = offsets},
                      .target_in = in,
                      .target_out = out,
                      .target_pos = pos};
}
