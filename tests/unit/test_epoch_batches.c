/* Batches of an epoch: their examples, limits and order, and word dropout. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "train/batches.h"

enum { MAX = 4096 };

static nm_error err;

/* A corpus in memory whose token t of sequence i is 10 i + t. Heap, freed by free_corpus. */
static nm_corpus corpus_of(const int32_t *lengths, int64_t n)
{
    uint64_t *offsets = nm_allocate(((size_t)n + 1) * sizeof *offsets);
    int32_t *ids = nm_allocate(MAX * sizeof *ids);
    for (int64_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i] + (uint64_t)lengths[i];
        for (int32_t t = 0; t < lengths[i]; t++)
            ids[offsets[i] + (uint64_t)t] = (int32_t)(10 * i) + t;
    }
    return (nm_corpus){.ids = ids, .offsets = offsets, .n = n};
}

static void free_corpus(nm_corpus *corpus)
{
    free((void *)(uintptr_t)corpus->ids);
    free((void *)(uintptr_t)corpus->offsets);
}

static void create(nm_batches *batches, const nm_batching *batching, uint32_t epoch, bool shuffle)
{
    if (nm_batches_create(batches, batching, epoch, shuffle, &err) != NM_OK)
        fail_msg("%s", err.text);
}

static void test_a_batch_is_filled_up_to_the_limit_of_either_side(void **state)
{
    (void)state;
    static const struct {
        int32_t source[4], target[4];
        int64_t batches;
    } cases[] = {{{5, 5, 5, 5}, {5, 5, 5, 5}, 2},
                 {{2, 2, 2, 2}, {5, 5, 5, 5}, 2},
                 {{5, 5, 5, 5}, {2, 2, 2, 2}, 2},
                 {{6, 6, 6, 6}, {2, 2, 2, 2}, 4},
                 {{2, 2, 2, 2}, {6, 6, 6, 6}, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nm_corpus source = corpus_of(cases[i].source, 4), target = corpus_of(cases[i].target, 4);
        const nm_batching batching = {
            .source = &source, .target = &target, .max_tokens = 10, .max_length = 10, .by_length = true};
        nm_batches batches;
        create(&batches, &batching, 0, true);
        assert_int_equal(batches.n, cases[i].batches);
        assert_int_equal(batches.skipped, 0);
        nm_batches_release(&batches);
        free_corpus(&source);
        free_corpus(&target);
    }
}

static void test_a_batch_has_at_most_max_examples(void **state)
{
    (void)state;
    static const int32_t lengths[] = {1, 1, 1, 1, 1, 1, 1};
    nm_corpus source = corpus_of(lengths, 7);
    const nm_batching batching = {.source = &source, .max_tokens = 100, .max_length = 10, .max_examples = 3};
    nm_batches batches;
    create(&batches, &batching, 0, true);
    assert_int_equal(batches.n, 3);
    nm_batches_release(&batches);
    free_corpus(&source);
}

static void test_empty_and_long_sequences_are_skipped(void **state)
{
    (void)state;
    static const int32_t source_lengths[] = {3, 0, 3, 5, 3, 4}, target_lengths[] = {3, 3, 0, 3, 5, 4};
    nm_corpus source = corpus_of(source_lengths, 6), target = corpus_of(target_lengths, 6);
    const nm_batching batching = {.source = &source, .target = &target, .max_tokens = 100, .max_length = 4};
    nm_batches batches;
    create(&batches, &batching, 0, false);
    assert_int_equal(batches.skipped, 4);
    assert_int_equal(batches.starts[batches.n], 2);
    assert_int_equal(batches.order[0], 0);
    assert_int_equal(batches.order[1], 5);
    nm_batches_release(&batches);
    free_corpus(&source);
    free_corpus(&target);
}

/* Batches of similar length would otherwise be trained from the shortest to the longest. */
static void test_the_order_of_batches_is_random_in_training(void **state)
{
    (void)state;
    enum { N = 40 };
    int32_t lengths[N];
    for (int32_t i = 0; i < N; i++)
        lengths[i] = 1 + i;
    nm_corpus source = corpus_of(lengths, N);
    const nm_batching batching = {
        .source = &source, .max_tokens = N, .max_length = N, .by_length = true, .seed = 3};
    int descents[3] = {0};
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        nm_batches batches;
        create(&batches, &batching, epoch, epoch < 2);
        for (int64_t i = 1; i < batches.n; i++)
            descents[epoch] += batches.order[batches.starts[i]] < batches.order[batches.starts[i - 1]];
        nm_batches_release(&batches);
    }
    assert_true(descents[0] > 4 && descents[1] > 4);
    assert_int_equal(descents[2], 0); /* evaluation: by length */
    free_corpus(&source);
}

static void test_the_decoder_input_is_the_target_shifted(void **state)
{
    (void)state;
    static const int32_t lengths[] = {3, 2};
    static const int64_t examples[] = {1, 0};
    nm_corpus source = corpus_of(lengths, 2), target = corpus_of(lengths, 2);
    const nm_batching batching = {.source = &source, .target = &target, .max_tokens = 10, .max_length = 10};
    const nm_batch_words words = {.target_first = 99, .unknown = 98};
    nm_arena arena;
    nm_arena_init(&arena, 1 << 20);
    nm_batch batch = nm_batch_pack(&batching, examples, 2, &words, &arena);
    static const int32_t input[] = {99, 10, 99, 0, 1}, output[] = {10, 11, 0, 1, 2}, pos[] = {0, 1, 0, 1, 2};
    assert_memory_equal(batch.target_in, input, sizeof input);
    assert_memory_equal(batch.target_out, output, sizeof output);
    assert_memory_equal(batch.target_pos, pos, sizeof pos);
    assert_memory_equal(batch.source_ids, output, sizeof output);
    nm_arena_release(&arena);
    free_corpus(&source);
    free_corpus(&target);
}

/* 4,000 tokens: the standard deviation of the fraction is below 0.008. */
static void test_the_fraction_of_dropped_words(void **state)
{
    (void)state;
    enum { N = 2, LENGTH = 2000, UNKNOWN = -1 };
    static const int32_t lengths[N] = {LENGTH, LENGTH};
    static const int64_t examples[N] = {0, 1};
    nm_corpus source = corpus_of(lengths, N), target = corpus_of(lengths, N);
    const nm_batching batching = {
        .source = &source, .target = &target, .max_tokens = N * LENGTH, .max_length = LENGTH};
    nm_arena arena;
    nm_arena_init(&arena, 1 << 22);
    for (int k = 0; k < 3; k++) {
        const double fraction = 0.1 * k;
        const nm_batch_words words = {.target_first = 2, .unknown = UNKNOWN, .word_dropout = fraction};
        nm_batch batch = nm_batch_pack(&batching, examples, N, &words, &arena);
        int dropped[3] = {0};
        for (int32_t i = 0; i < N * LENGTH; i++) {
            dropped[0] += batch.source_ids[i] == UNKNOWN;
            dropped[1] += batch.target_in[i] == UNKNOWN;
            dropped[2] += batch.target_out[i] == UNKNOWN;
        }
        for (int side = 0; side < 2; side++)
            assert_true(dropped[side] >= (fraction - 0.04) * N * LENGTH &&
                        dropped[side] <= (k ? fraction + 0.04 : 0) * N * LENGTH);
        assert_int_equal(dropped[2], 0);
    }
    nm_arena_release(&arena);
    free_corpus(&source);
    free_corpus(&target);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_batch_is_filled_up_to_the_limit_of_either_side),
        cmocka_unit_test(test_a_batch_has_at_most_max_examples),
        cmocka_unit_test(test_empty_and_long_sequences_are_skipped),
        cmocka_unit_test(test_the_order_of_batches_is_random_in_training),
        cmocka_unit_test(test_the_decoder_input_is_the_target_shifted),
        cmocka_unit_test(test_the_fraction_of_dropped_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
