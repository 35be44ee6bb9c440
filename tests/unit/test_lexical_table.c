/* IBM Model 1 against a dense implementation of its equations; results that do not depend on the threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/lexical_table.h"

enum { EOS = 2, SOURCES = 23, TARGETS = 31, PAIRS = 300, LONGEST = 9, EMPTY = SOURCES };

typedef struct pairs {
    int32_t ids[2][PAIRS * (LONGEST + 1)];
    uint64_t offsets[2][PAIRS + 1];
    nm_corpus sides[2];
} pairs;

/* Targets resemble their source: token t of the source often becomes t + 3. Some lines are empty. */
static pairs *make_pairs(void)
{
    pairs *made = nm_allocate(sizeof *made);
    for (int side = 0; side < 2; side++) {
        uint64_t n = 0;
        for (uint32_t p = 0; p < PAIRS; p++) {
            int32_t words = (int32_t)((p * 7 + (side ? p / 3 : 0)) % LONGEST);
            for (int32_t i = 0; i < words; i++) {
                const nm_random_words r = nm_random4(11, NM_RANDOM_TEST, p, (uint32_t)i, 0);
                int32_t source = 3 + (int32_t)(r.w[0] % (SOURCES - 3));
                bool noise = side && r.w[1] % 4 == 0;
                made->ids[side][n++] = noise ? 3 + (int32_t)(r.w[2] % (TARGETS - 3)) : source + 3 * side;
            }
            made->ids[side][n++] = EOS;
            made->offsets[side][p + 1] = n;
        }
        made->sides[side] = (nm_corpus){.ids = made->ids[side], .offsets = made->offsets[side], .n = PAIRS};
    }
    return made;
}

static nm_lexical_config config_of(int64_t iterations, int32_t threads)
{
    return (nm_lexical_config){.source_size = SOURCES,
                               .target_size = TARGETS,
                               .source_eos = EOS,
                               .target_eos = EOS,
                               .iterations = iterations,
                               .max_pairs = PAIRS,
                               .best = TARGETS,
                               .threads = threads};
}

static nm_lexical_table learn(const pairs *from, const nm_lexical_config *config)
{
    nm_lexical_table table;
    nm_error err;
    if (nm_lexical_table_learn(&table, from->sides, config, &err) != NM_OK)
        fail_msg("%s", err.text);
    return table;
}

/* t [SOURCES + 1][TARGETS] after EM on every step-th pair; returns the perplexity of the last iteration. */
static double dense(const pairs *from, int iterations, int step, double t[SOURCES + 1][TARGETS])
{
    double log_likelihood = 0;
    int64_t tokens = 0;
    for (int e = 0; e <= SOURCES; e++)
        for (int f = 0; f < TARGETS; f++)
            t[e][f] = 1;
    for (int k = 0; k < iterations; k++) {
        double counts[SOURCES + 1][TARGETS] = {{0}};
        log_likelihood = 0;
        tokens = 0;
        for (int p = 0; p < PAIRS; p += step) {
            int32_t sources[LONGEST + 1], n = 0;
            for (uint64_t i = from->offsets[0][p]; i + 1 < from->offsets[0][p + 1]; i++)
                sources[n++] = from->ids[0][i];
            sources[n++] = EMPTY;
            for (uint64_t j = from->offsets[1][p]; j + 1 < from->offsets[1][p + 1]; j++, tokens++) {
                const int32_t f = from->ids[1][j];
                double sum = 0;
                for (int32_t i = 0; i < n; i++)
                    sum += t[sources[i]][f];
                for (int32_t i = 0; i < n; i++)
                    counts[sources[i]][f] += t[sources[i]][f] / sum;
                log_likelihood += log(sum / n);
            }
        }
        for (int e = 0; e <= SOURCES; e++) {
            double sum = 0;
            for (int f = 0; f < TARGETS; f++)
                sum += counts[e][f];
            for (int f = 0; f < TARGETS; f++)
                t[e][f] = sum > 0 ? counts[e][f] / sum : 0;
        }
    }
    return exp(-log_likelihood / (double)tokens);
}

static void check_dense(const pairs *from, const nm_lexical_config *config, int step)
{
    double want[SOURCES + 1][TARGETS];
    double perplexity = dense(from, (int)config->iterations, step, want);
    nm_lexical_table table = learn(from, config);
    assert_true(fabs(table.perplexity / perplexity - 1) < 1e-5);
    assert_int_equal(table.pairs, PAIRS / step);
    for (int e = 0; e < SOURCES; e++) {
        double got[TARGETS] = {0};
        for (size_t i = table.offsets[e]; i < table.offsets[e + 1]; i++) {
            const nm_lexical_entry *entry = &table.entries[i];
            got[entry->target] = (double)entry->probability;
            assert_true(i == table.offsets[e] || entry->probability <= entry[-1].probability);
        }
        for (int f = 0; f < TARGETS; f++)
            assert_true(fabs(got[f] - want[e][f]) < 1e-5);
    }
    nm_lexical_table_release(&table);
}

static void test_equations(void **state)
{
    (void)state;
    pairs *from = make_pairs();
    for (int64_t iterations = 1; iterations <= 6; iterations += 5) {
        nm_lexical_config config = config_of(iterations, 2);
        check_dense(from, &config, 1);
        config.max_pairs = PAIRS / 3; /* every third pair */
        check_dense(from, &config, 3);
    }
    free(from);
}

static void test_threads(void **state)
{
    (void)state;
    pairs *from = make_pairs();
    nm_lexical_config config = config_of(4, 1);
    nm_lexical_table one = learn(from, &config);
    config.threads = 5;
    nm_lexical_table five = learn(from, &config);
    size_t n = one.offsets[SOURCES];
    assert_true(n > 3 * SOURCES);
    assert_memory_equal(one.offsets, five.offsets, (SOURCES + 1) * sizeof *one.offsets);
    assert_memory_equal(one.entries, five.entries, n * sizeof *one.entries);
    assert_true(one.perplexity == five.perplexity);
    nm_lexical_table_release(&one);
    nm_lexical_table_release(&five);
    free(from);
}

/* The most probable entries stay. */
static void test_limits(void **state)
{
    (void)state;
    pairs *from = make_pairs();
    nm_lexical_config config = config_of(5, 1);
    nm_lexical_table all = learn(from, &config);
    config.best = 2;
    config.min_probability = 0.1;
    nm_lexical_table some = learn(from, &config);
    for (int e = 0; e < SOURCES; e++) {
        size_t n = 0, begin = all.offsets[e];
        while (n < 2 && begin + n < all.offsets[e + 1] && all.entries[begin + n].probability >= 0.1f)
            n++;
        assert_int_equal(some.offsets[e + 1] - some.offsets[e], n);
        assert_memory_equal(some.entries + some.offsets[e], all.entries + begin, n * sizeof *all.entries);
    }
    nm_lexical_table_release(&all);
    nm_lexical_table_release(&some);
    free(from);
}

static void test_stops(void **state)
{
    (void)state;
    pairs *from = make_pairs();
    const nm_stop stop = {.requested = 1};
    nm_lexical_config config = config_of(4, 1);
    nm_lexical_table table;
    nm_error err;
    config.stop = &stop;
    assert_int_equal(nm_lexical_table_learn(&table, from->sides, &config, &err), NM_INTERRUPTED);
    nm_lexical_table_release(&table);
    config.stop = NULL;
    const nm_corpus empty[2] = {{.n = 0}, {.n = 0}};
    assert_int_equal(nm_lexical_table_learn(&table, empty, &config, &err), NM_USAGE);
    nm_lexical_table_release(&table);
    free(from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equations), cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_limits), cmocka_unit_test(test_stops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
