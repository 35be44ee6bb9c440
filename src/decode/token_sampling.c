#include "decode/token_sampling.h"

#include <math.h>
#include <stdlib.h>

#include "base/random.h"

static int by_probability(const void *left, const void *right)
{
    const nm_sample_candidate *a = left, *b = right;
    if (a->log_p != b->log_p)
        return a->log_p > b->log_p ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Applies temperature, top_k and top_p: the first n candidates remain, with unnormalized probabilities in log_p, whose sum is
 * *mass. Returns n. */
static int32_t shortlist(const nm_sampling *how, nm_sample_candidate *candidates, int32_t n, double *mass)
{
    double temperature = how->temperature > 0 ? how->temperature : 1, total = 0, top = -INFINITY;
    if (how->top_k || how->top_p < 1 || how->temperature <= 0)
        qsort(candidates, (size_t)n, sizeof *candidates, by_probability);
    if (how->temperature <= 0)
        n = 1;
    else if (how->top_k && how->top_k < n)
        n = (int32_t)how->top_k;
    for (int32_t i = 0; i < n; i++)
        top = fmax(top, candidates[i].log_p);
    /* relative to the largest, so that not all underflow at low temperatures */
    for (int32_t i = 0; i < n; i++)
        total += candidates[i].log_p = exp((candidates[i].log_p - top) / temperature);
    double kept = 0;
    for (int32_t i = 0; how->top_p < 1 && i < n; i++) {
        kept += candidates[i].log_p;
        if (kept >= how->top_p * total) {
            n = i + 1;
            total = kept;
        }
    }
    *mass = total;
    return n;
}

int32_t nm_token_sample(const nm_sampling *how, nm_sample_candidate *candidates, int32_t n,
                        nm_sample_position at)
{
    double total, sum = 0;
    n = shortlist(how, candidates, n, &total);
    nm_random_words words = nm_random4(how->seed, NM_RANDOM_SAMPLE, at.site, at.step, at.index);
    double point = (nm_random_unit(words.w[0]) + (double)words.w[1] * 0x1p-64) * total;
    for (int32_t i = 0; i < n; i++) {
        sum += candidates[i].log_p;
        if (point < sum)
            return candidates[i].id;
    }
    return candidates[n - 1].id;
}
