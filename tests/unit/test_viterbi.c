/* Viterbi decoding finds the best path, with start, transition and end scores. */
#include "model/viterbi.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"

enum { TAGS = 3, MAX_TOKENS = 5 };

static double number(uint64_t seed, uint64_t index)
{
    nm_random_words words = nm_random4(seed, NM_RANDOM_TEST, 0, 0, index);
    return nm_random_normal(words.w[0], words.w[1]);
}

static double score_of(const nm_chain *chain, const double *emissions, int32_t n, const int32_t *path)
{
    double score = chain->start[path[0]] + chain->end[path[n - 1]];
    for (int32_t i = 0; i < n; i++)
        score += emissions[i * TAGS + path[i]] + (i ? chain->transitions[path[i - 1] * TAGS + path[i]] : 0);
    return score;
}

static void test_best_of_all_paths(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        nm_chain chain;
        double emissions[MAX_TOKENS * TAGS];
        int32_t n = 1 + (int32_t)(seed % MAX_TOKENS), n_paths = 1, path[MAX_TOKENS], found[MAX_TOKENS];
        nm_chain_init(&chain, TAGS);
        for (int i = 0; i < TAGS * TAGS; i++)
            chain.transitions[i] = number(seed, (uint64_t)i);
        for (int i = 0; i < TAGS; i++) {
            chain.start[i] = number(seed, 100 + (uint64_t)i);
            chain.end[i] = 2 * number(seed, 200 + (uint64_t)i);
        }
        for (int i = 0; i < n * TAGS; i++)
            emissions[i] = number(seed, 300 + (uint64_t)i);
        for (int32_t i = 0; i < n; i++)
            n_paths *= TAGS;
        double best = -INFINITY;
        for (int32_t p = 0; p < n_paths; p++) {
            for (int32_t i = 0, rest = p; i < n; i++, rest /= TAGS)
                path[i] = rest % TAGS;
            best = fmax(best, score_of(&chain, emissions, n, path));
        }
        double score = nm_viterbi(&chain, emissions, n, found);
        assert_true(fabs(score - best) < 1e-12);
        assert_true(fabs(score_of(&chain, emissions, n, found) - best) < 1e-12);
        nm_chain_release(&chain);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_best_of_all_paths)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
