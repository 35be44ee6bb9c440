/* Sampling of a token: frequencies against the distribution, recomputed by complete sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/token_sampling.h"

enum { TOKENS = 60, DRAWS = 4000 };

/* Log probabilities in steps of 0.25, so that some are equal, and one of 0 probability. */
static void make_candidates(nm_sample_candidate *candidates, uint32_t seed)
{
    for (int32_t i = 0; i < TOKENS; i++) {
        uint32_t steps = nm_random_below(nm_random4(seed, NM_RANDOM_TEST, 0, 0, (uint64_t)i).w[0], 16);
        candidates[i] = (nm_sample_candidate){-0.25 * steps - 1, 100 + i};
    }
    candidates[TOKENS / 2].log_p = -INFINITY;
}

static int descending(const void *left, const void *right)
{
    const nm_sample_candidate *a = left, *b = right;
    if (a->log_p != b->log_p)
        return a->log_p > b->log_p ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

/* p[i]: the probability of token 100 + i. */
static void expected_probabilities(const nm_sampling *how, const nm_sample_candidate *candidates,
                                   double p[TOKENS])
{
    nm_sample_candidate sorted[TOKENS];
    double total = 0, kept = 0, shares[TOKENS] = {0};
    int32_t n = how->temperature > 0 ? (how->top_k ? (int32_t)how->top_k : TOKENS) : 1;
    double temperature = how->temperature > 0 ? how->temperature : 1;
    memcpy(sorted, candidates, sizeof sorted);
    qsort(sorted, TOKENS, sizeof *sorted, descending);
    memset(p, 0, TOKENS * sizeof *p);
    n = n < TOKENS ? n : TOKENS;
    for (int32_t i = 0; i < n; i++)
        total += shares[i] = exp(sorted[i].log_p / temperature);
    int32_t last = 0;
    for (kept = shares[0]; last + 1 < n && kept < how->top_p * total; kept += shares[last])
        last++;
    while (last && shares[last] < how->min_p * shares[0] * (1 - 1e-12))
        kept -= shares[last--];
    for (int32_t i = 0; i <= last; i++)
        p[sorted[i].id - 100] = shares[i] / kept;
}

static void check_frequencies(const nm_sampling *how, uint32_t seed)
{
    nm_sample_candidate candidates[TOKENS], copy[TOKENS];
    double p[TOKENS];
    int32_t counts[TOKENS] = {0};
    make_candidates(candidates, seed);
    expected_probabilities(how, candidates, p);
    for (uint64_t i = 0; i < DRAWS; i++) {
        memcpy(copy, candidates, sizeof copy);
        int32_t id = nm_token_sample(how, copy, TOKENS, (nm_sample_position){0, 3, i}) - 100;
        assert_in_range(id, 0, TOKENS - 1);
        counts[id]++;
    }
    for (int32_t i = 0; i < TOKENS; i++) {
        double mean = DRAWS * p[i], deviation = sqrt(mean * (1 - p[i]));
        if (p[i] < 1e-9 ? counts[i] > 0 : fabs(counts[i] - mean) > 4.5 * deviation + 1e-6)
            fail_msg("temperature %g, top_k %d, top_p %g, min_p %g: token %d was drawn %d times, expected %g",
                     how->temperature, (int)how->top_k, how->top_p, how->min_p, i, counts[i], mean);
    }
}

static void test_frequencies(void **state)
{
    (void)state;
    static const nm_sampling settings[] = {
        {.temperature = 1, .top_p = 1},
        {.temperature = 0, .top_p = 1},
        {.temperature = 0.5, .top_p = 1},
        {.temperature = 1.5, .top_p = 1, .top_k = 7},
        {.temperature = 1, .top_p = 1, .top_k = 1},
        {.temperature = 1, .top_p = 1, .top_k = TOKENS + 1},
        {.temperature = 1, .top_p = 0.63},
        {.temperature = 1, .top_p = 0},
        {.temperature = 2, .top_p = 0.93, .top_k = 21},
        {.temperature = 1, .top_p = 1, .min_p = 0.21},
        {.temperature = 1, .top_p = 1, .min_p = 1},
        {.temperature = 1.5, .top_p = 0.9, .top_k = 30, .min_p = 0.3},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        for (uint32_t seed = 1; seed <= 3; seed++) {
            nm_sampling how = settings[i];
            how.seed = seed;
            check_frequencies(&how, seed);
        }
}

/* Of equally probable tokens, those with lower ids are kept. */
static void test_ties(void **state)
{
    (void)state;
    const nm_sampling how = {.temperature = 1, .top_p = 1, .top_k = 3};
    for (uint64_t i = 0; i < 200; i++) {
        nm_sample_candidate candidates[] = {{-2, 9}, {-2, 4}, {-2, 8}, {-2, 2}, {-2, 7}, {-1, 30}};
        int32_t id = nm_token_sample(&how, candidates, 6, (nm_sample_position){0, 0, i});
        assert_true(id == 30 || id == 2 || id == 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
