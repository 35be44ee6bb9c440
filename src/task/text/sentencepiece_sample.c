/* Sampling of segmentations from a unigram model (Kudo 2018, "Subword Regularization"). */
#include "text/sentencepiece_coder.h"

#include <math.h>
#include <string.h>

#include "text/utf8.h"

/* Builds the lattice of the text: edges are sorted by start, and those with the same end are linked. */
static void build_lattice(nm_spm_coder *coder)
{
    const nm_buffer *text = &coder->text;
    coder->n_edges = 0;
    NM_RESERVE(coder->last_edges, text->bytes + 1, coder->last_edge_capacity);
    for (size_t i = 0; i <= text->bytes; i++)
        coder->last_edges[i] = SIZE_MAX;
    for (size_t at = 0; at < text->bytes; at += nm_utf8_length(text->data[at]))
        nm_spm_add_edges(coder, at);
    for (size_t i = 0; i < coder->n_edges; i++) {
        coder->edges[i].same_end = coder->last_edges[coder->edges[i].end];
        coder->last_edges[coder->edges[i].end] = i;
    }
}

/* log(exp(a) + exp(b)) */
static double add_logs(double a, double b)
{
    double high = fmax(a, b);
    return isinf(high) ? high : high + log1p(exp(fmin(a, b) - high));
}

/* Forward filtering, backward sampling. Sets coder->ends to the edges of the path, the last one first. */
static void sample_path(nm_spm_coder *coder, double alpha, nm_random_stream *random)
{
    size_t bytes = coder->text.bytes;
    NM_RESERVE(coder->forward, bytes + 1, coder->forward_capacity);
    for (size_t i = 0; i <= bytes; i++)
        coder->forward[i] = i ? -INFINITY : 0;
    /* Edges are sorted by start, so forward[start] is complete when it is used. */
    for (size_t i = 0; i < coder->n_edges; i++) {
        const edge *e = &coder->edges[i];
        coder->forward[e->end] =
            add_logs(coder->forward[e->end], coder->forward[e->start] + alpha * e->score);
    }
    for (size_t end = bytes; end > 0;) {
        double left = nm_random_next(random);
        size_t sampled = coder->last_edges[end];
        for (size_t i = sampled; i != SIZE_MAX && left >= 0; i = coder->edges[i].same_end) {
            const edge *e = &coder->edges[i];
            left -= exp(coder->forward[e->start] + alpha * e->score - coder->forward[end]);
            sampled = i;
        }
        nm_spm_push_end(coder, sampled);
        end = coder->edges[sampled].start;
    }
}

/* Inserts a segmentation into the n best ones, which are sorted by descending score; of equal ones, earlier
 * ones come first. Returns their new number, at most `limit`. */
static size_t insert_partial(partial *best, size_t n, size_t limit, partial next)
{
    size_t at = n;
    while (at && next.score > best[at - 1].score)
        at--;
    if (at == limit)
        return n;
    size_t kept = n < limit ? n : limit - 1;
    memmove(best + at + 1, best + at, (kept - at) * sizeof *best);
    best[at] = next;
    return kept + 1;
}

/* Samples one of the nbest paths. Sets coder->ends to its edges, the last one first. */
static void sample_best_path(nm_spm_coder *coder, double alpha, size_t nbest, nm_random_stream *random)
{
    size_t bytes = coder->text.bytes, n = 0;
    NM_RESERVE(coder->partials, (bytes + 1) * nbest, coder->partial_capacity);
    for (size_t i = 0; i < (bytes + 1) * nbest; i++)
        coder->partials[i].score = -INFINITY; /* no segmentation */
    coder->partials[0] = (partial){0};
    for (size_t end = 1; end <= bytes; end++) {
        partial *best = coder->partials + end * nbest;
        n = 0;
        for (size_t i = coder->last_edges[end]; i != SIZE_MAX; i = coder->edges[i].same_end) {
            const partial *from = coder->partials + coder->edges[i].start * nbest;
            for (size_t rank = 0; rank < nbest && !isinf(from[rank].score); rank++)
                n = insert_partial(best, n, nbest,
                                   (partial){from[rank].score + coder->edges[i].score, i, rank});
        }
    }
    const partial *all = coder->partials + bytes * nbest;
    double sum = 0;
    for (size_t rank = 0; rank < n; rank++)
        sum += exp(alpha * (all[rank].score - all[0].score));
    double left = nm_random_next(random) * sum;
    size_t sampled = 0;
    for (size_t rank = 0; rank < n && left >= 0; rank++) {
        left -= exp(alpha * (all[rank].score - all[0].score));
        sampled = rank;
    }
    for (size_t end = bytes; end > 0;) {
        const partial *at = &coder->partials[end * nbest + sampled];
        nm_spm_push_end(coder, at->edge);
        sampled = at->rank;
        end = coder->edges[at->edge].start;
    }
}

void nm_spm_sample(nm_spm_coder *coder, const char *text, size_t bytes, double alpha, int64_t nbest,
                   nm_random_stream *random, nm_buffer *out)
{
    nm_spm_set_text(coder, text, bytes);
    nm_spm_start_line(coder, out, false);
    build_lattice(coder);
    coder->n_ends = 0;
    if (nbest > 0)
        sample_best_path(coder, alpha, (size_t)nbest, random);
    else
        sample_path(coder, alpha, random);
    while (coder->n_ends) {
        const edge *e = &coder->edges[coder->ends[--coder->n_ends]];
        nm_spm_append_piece(coder, coder->text.data + e->start, e->end - e->start, e->piece, out);
    }
}
