#include "model/viterbi.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

void nm_chain_init(nm_chain *chain, int32_t tags)
{
    size_t n = (size_t)tags;
    double *block = nm_allocate((n * n + 2 * n) * sizeof *block);
    *chain = (nm_chain){tags, block, block + n * n, block + n * n + n};
}

void nm_chain_release(nm_chain *chain)
{
    free(chain->transitions);
    *chain = (nm_chain){0};
}

/* now [T]: scores of the best paths to each tag of a token; from [T]: the previous tag on each path; before
 * [T]: scores of the paths to the tags of the previous token. */
static void step(const nm_chain *chain, const double *before, const double *emissions, double *now,
                 int32_t *from)
{
    size_t tags = (size_t)chain->tags;
    for (size_t t = 0; t < tags; t++) {
        double best = -INFINITY;
        from[t] = 0;
        for (size_t s = 0; s < tags; s++) {
            double score = before[s] + chain->transitions[s * tags + t];
            if (score > best) {
                best = score;
                from[t] = (int32_t)s;
            }
        }
        now[t] = best + emissions[t];
    }
}

double nm_viterbi(const nm_chain *chain, const double *emissions, int32_t n, int32_t *path)
{
    size_t tags = (size_t)chain->tags;
    NM_AUTO_FREE int32_t *from = nm_allocate((size_t)n * tags * sizeof *from);
    double *scores = nm_allocate(2 * tags * sizeof *scores), *now = scores, best = -INFINITY;
    NM_ASSERT(n >= 1);
    for (size_t t = 0; t < tags; t++)
        now[t] = chain->start[t] + emissions[t];
    for (int32_t i = 1; i < n; i++) {
        double *before = now;
        now = now == scores ? scores + tags : scores;
        step(chain, before, emissions + (size_t)i * tags, now, from + (size_t)i * tags);
    }
    path[n - 1] = 0;
    for (size_t t = 0; t < tags; t++)
        if (now[t] + chain->end[t] > best) {
            best = now[t] + chain->end[t];
            path[n - 1] = (int32_t)t;
        }
    for (int32_t i = n - 1; i > 0; i--)
        path[i - 1] = from[(size_t)i * tags + (size_t)path[i]];
    free(scores);
    return best;
}
