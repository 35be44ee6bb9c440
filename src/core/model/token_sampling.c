#include "model/token_sampling.h"

#include <math.h>
#include <stdbool.h>

#include "base/random.h"

static bool precedes(const nm_sample_candidate *a, const nm_sample_candidate *b)
{
    return a->log_p > b->log_p || (a->log_p == b->log_p && a->id < b->id);
}

static void swap(nm_sample_candidate *a, nm_sample_candidate *b)
{
    nm_sample_candidate before = *a;
    *a = *b;
    *b = before;
}

/* Restores the order of a heap, in which no child precedes its parent, below item i. */
static void sift_down(nm_sample_candidate *heap, int32_t n, int32_t i)
{
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && precedes(&heap[child + 1], &heap[child]))
            child++;
        if (!precedes(&heap[child], &heap[i]))
            return;
        swap(&heap[child], &heap[i]);
    }
}

/* Moves the best candidates in descending order to the front, until they are `most` or their log_p have the
 * sum `mass`, at least one. Returns their number. Only these few are sorted, with a heap. */
static int32_t best_first(nm_sample_candidate *candidates, int32_t n, int64_t most, double mass)
{
    int32_t left = n;
    double sum = 0;
    for (int32_t i = n / 2; i-- > 0;)
        sift_down(candidates, n, i);
    do {
        sum += candidates[0].log_p;
        left--;
        swap(&candidates[0], &candidates[left]);
        sift_down(candidates, left, 0);
    } while (left && n - left < most && sum < mass);
    for (int32_t i = 0; i < n / 2; i++)
        swap(&candidates[i], &candidates[n - 1 - i]);
    return n - left;
}

/* Replaces log_p by the probabilities at the temperature, relative to the largest, so that not all underflow
 * at low ones. Returns their sum. */
static double exponentiate(nm_sample_candidate *candidates, int32_t n, double temperature)
{
    double top = -INFINITY, total = 0;
    for (int32_t i = 0; i < n; i++)
        top = fmax(top, candidates[i].log_p);
    for (int32_t i = 0; i < n; i++)
        total += candidates[i].log_p = exp((candidates[i].log_p - top) / temperature);
    return total;
}

static double sum_of(const nm_sample_candidate *candidates, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += candidates[i].log_p;
    return sum;
}

/* Moves the candidates with at least this probability to the front. Returns their number. */
static int32_t keep_probable(nm_sample_candidate *candidates, int32_t n, double least)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (candidates[i].log_p >= least)
            candidates[kept++] = candidates[i];
    return kept;
}

/* Applies temperature, top_k, top_p and min_p, in this order: the first candidates remain, with unnormalized
 * probabilities in log_p, whose sum is *mass. Returns their number. */
static int32_t shortlist(const nm_sampling *how, nm_sample_candidate *candidates, int32_t n, double *mass)
{
    bool greedy = how->temperature <= 0;
    if (greedy)
        n = best_first(candidates, n, 1, INFINITY);
    else if (how->top_k && how->top_k < n)
        n = best_first(candidates, n, how->top_k, INFINITY);
    *mass = exponentiate(candidates, n, greedy ? 1 : how->temperature);
    if (how->top_p < 1) {
        n = best_first(candidates, n, n, how->top_p * *mass);
        *mass = sum_of(candidates, n);
    }
    if (how->min_p > 0) {
        n = keep_probable(candidates, n, how->min_p);
        *mass = sum_of(candidates, n);
    }
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
