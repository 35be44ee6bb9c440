/* train.balance_shards: the same sentences in batches of nearly equal cost, none of which is too large. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/random.h"
#include "train/batches.h"

enum { N = 3000, SHARDS = 8, MAX_TOKENS = 500 };

/* Source and target lengths of similar ratio, as in translation: most short, a few long. */
static void make_corpora(nm_corpus *source, nm_corpus *target)
{
    nm_corpus *sides[] = {source, target};
    uint64_t *offsets[2];
    for (int k = 0; k < 2; k++)
        offsets[k] = nm_allocate((N + 1) * sizeof *offsets[k]);
    for (uint64_t i = 0; i < N; i++) {
        nm_random_words words = nm_random4(3, NM_RANDOM_TEST, 0, 0, i);
        uint64_t length = 2 + words.w[0] % 20 + (words.w[1] % 10 ? 0 : words.w[2] % 100);
        offsets[0][i + 1] = offsets[0][i] + length;
        offsets[1][i + 1] = offsets[1][i] + 1 + length * (70 + words.w[3] % 60) / 100;
    }
    for (int k = 0; k < 2; k++)
        *sides[k] = (nm_corpus){.n = N, .offsets = offsets[k]};
}

static double cost_of(const nm_batches *batches, int64_t batch, double *longest)
{
    double sum = 0;
    for (int64_t i = batches->starts[batch]; i < batches->starts[batch + 1]; i++) {
        double cost = nm_batches_cost(&batches->batching, batches->order[i]);
        sum += cost;
        *longest = cost > *longest ? cost : *longest;
    }
    return sum;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void check_group(const nm_batches *before, const nm_batches *after, int64_t first, int64_t n,
                        double *imbalance)
{
    const nm_batching *b = &after->batching;
    int64_t begin = before->starts[first], items = before->starts[first + n] - begin;
    int64_t *sorted[2];
    assert_true(after->starts[first] == begin && after->starts[first + n] == begin + items);
    for (int k = 0; k < 2; k++) {
        sorted[k] = nm_allocate((size_t)items * sizeof **sorted);
        memcpy(sorted[k], (k ? after : before)->order + begin, (size_t)items * sizeof **sorted);
        qsort(sorted[k], (size_t)items, sizeof **sorted, compare);
    }
    assert_memory_equal(sorted[0], sorted[1], (size_t)items * sizeof **sorted);
    double highest = 0, lowest = 1e9, sum = 0, longest = 0;
    for (int64_t batch = first; batch < first + n; batch++) {
        int64_t source = 0, target = 0;
        for (int64_t i = after->starts[batch]; i < after->starts[batch + 1]; i++) {
            source += nm_corpus_length(b->source, after->order[i]);
            target += nm_corpus_length(b->target, after->order[i]);
        }
        assert_true(source > 0 && source <= MAX_TOKENS && target <= MAX_TOKENS);
        double cost = cost_of(after, batch, &longest);
        highest = cost > highest ? cost : highest;
        lowest = cost < lowest ? cost : lowest;
        sum += cost;
    }
    assert_true(highest - lowest <= longest);
    *imbalance += highest / (sum / (double)n) - 1;
    for (int k = 0; k < 2; k++)
        free(sorted[k]);
}

static void test_balance(void **unused)
{
    (void)unused;
    nm_corpus source, target;
    make_corpora(&source, &target);
    for (int by_length = 0; by_length < 2; by_length++) {
        const nm_batching batching = {.source = &source,
                                      .target = &target,
                                      .max_tokens = MAX_TOKENS,
                                      .max_length = 200,
                                      .by_length = by_length,
                                      .seed = 5};
        nm_batches before, after;
        nm_error err;
        double imbalance = 0, unbalanced = 0;
        int64_t n_groups = 0;
        assert_int_equal(nm_batches_create(&before, &batching, 0, true, &err), NM_OK);
        assert_int_equal(nm_batches_create(&after, &batching, 0, true, &err), NM_OK);
        for (int64_t first = 0; first + SHARDS <= before.n; first += SHARDS, n_groups++) {
            double highest = 0, sum = 0, longest = 0;
            nm_batches_balance(&after, first, SHARDS);
            check_group(&before, &after, first, SHARDS, &imbalance);
            for (int64_t batch = first; batch < first + SHARDS; batch++) {
                double cost = cost_of(&before, batch, &longest);
                highest = cost > highest ? cost : highest;
                sum += cost;
            }
            unbalanced += highest / (sum / SHARDS) - 1;
        }
        assert_true(n_groups >= 5 && imbalance < 0.5 * unbalanced);
        int64_t start = after.starts[before.n - 1];
        nm_batches_balance(&after, before.n - 1, 1); /* the rest of an epoch may be one shard */
        assert_true(after.starts[before.n - 1] == start);
        nm_batches_release(&before);
        nm_batches_release(&after);
    }
    free((void *)(uintptr_t)source.offsets);
    free((void *)(uintptr_t)target.offsets);
}

/* Equal sentences that fill every batch: nothing fits elsewhere, and nothing is lost. */
static void test_full_batches(void **unused)
{
    (void)unused;
    enum { SENTENCES = 7, LENGTH = 10 };
    uint64_t offsets[SENTENCES + 1];
    for (uint64_t i = 0; i <= SENTENCES; i++)
        offsets[i] = i * LENGTH;
    offsets[SENTENCES] -= LENGTH - 1; /* the last one is short */
    const nm_corpus source = {.n = SENTENCES, .offsets = offsets};
    const nm_batching batching = {
        .source = &source, .max_tokens = 100, .max_examples = 2, .max_length = 100, .seed = 1};
    nm_batches batches;
    nm_error err;
    assert_int_equal(nm_batches_create(&batches, &batching, 0, true, &err), NM_OK);
    assert_int_equal(batches.n, 4);
    nm_batches_balance(&batches, 0, 4);
    bool seen[SENTENCES] = {0};
    for (int64_t i = 0; i < SENTENCES; i++) {
        assert_false(seen[batches.order[i]]);
        seen[batches.order[i]] = true;
    }
    for (int64_t i = 0; i < 4; i++)
        assert_true(batches.starts[i + 1] - batches.starts[i] >= 1 &&
                    batches.starts[i + 1] - batches.starts[i] <= 2);
    nm_batches_release(&batches);
}

/* Lengths of more than one digit of the sort. */
static void test_long_sentences_are_sorted(void **unused)
{
    (void)unused;
    enum { SENTENCES = 200 };
    uint64_t offsets[2][SENTENCES + 1] = {{0}};
    for (uint64_t i = 0; i < SENTENCES; i++)
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t random = nm_random4(4, NM_RANDOM_TEST, k, 0, i).w[0];
            offsets[k][i + 1] = offsets[k][i] + (random % 3 ? 2047 : 1) + (random >> 8) % 3 * (k ? 1 : 2500);
        }
    const nm_corpus source = {.n = SENTENCES, .offsets = offsets[0]},
                    target = {.n = SENTENCES, .offsets = offsets[1]};
    const nm_batching batching = {
        .source = &source, .target = &target, .max_tokens = 20000, .max_length = 10000, .by_length = true};
    nm_batches batches;
    nm_error err;
    assert_int_equal(nm_batches_create(&batches, &batching, 0, false, &err), NM_OK);
    for (int64_t i = 1; i < SENTENCES; i++) {
        int64_t a = batches.order[i - 1], b = batches.order[i];
        int64_t more = nm_corpus_length(&target, b) - nm_corpus_length(&target, a);
        more = more ? more : nm_corpus_length(&source, b) - nm_corpus_length(&source, a);
        assert_true(more ? more > 0 : b > a);
    }
    nm_batches_release(&batches);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_balance), cmocka_unit_test(test_full_batches),
                                       cmocka_unit_test(test_long_sentences_are_sorted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
