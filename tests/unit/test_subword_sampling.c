/* BPE-dropout: the distribution of the segmentations of a word, enumerated from the definition of
 * subword-nmt; and the sampler of a training text. */
#include "text_helper.h"

#include <math.h>
#include <string.h>

#include "data/subword_sampler.h"

static const char codes[] = "#version: 0.2\na a\nl o\na b</w>\naa aa\nlo w\ne r</w>\nlow er</w>\no w\n";
static const char *const merges[][2] = {{"a", "a"},  {"l", "o"},     {"a", "b</w>"},    {"aa", "aa"},
                                        {"lo", "w"}, {"e", "r</w>"}, {"low", "er</w>"}, {"o", "w"}};
enum { N_MERGES = sizeof merges / sizeof *merges, MAX_SYMBOLS = 8, MAX_RESULTS = 256 };

typedef struct segmentation {
    char symbols[MAX_SYMBOLS][24];
    int n;
} segmentation;

typedef struct distribution {
    segmentation items[MAX_RESULTS];
    double chance[MAX_RESULTS];
    int n;
} distribution;

static int rank_of(const segmentation *s, int i)
{
    for (int rank = 0; rank < N_MERGES; rank++)
        if (!strcmp(s->symbols[i], merges[rank][0]) && !strcmp(s->symbols[i + 1], merges[rank][1]))
            return rank;
    return -1;
}

static void add_result(distribution *all, const segmentation *s, double chance)
{
    int i = 0;
    while (i < all->n && (all->items[i].n != s->n || memcmp(&all->items[i], s, sizeof *s)))
        i++;
    assert_true(i < MAX_RESULTS);
    if (i == all->n)
        all->items[all->n++] = *s;
    all->chance[i] += chance;
}

/* Every subset of the pairs that merges apply to can be left out. */
static void enumerate(distribution *all, const segmentation *s, double dropout, double chance)
{
    int pairs[MAX_SYMBOLS], n = 0;
    for (int i = 0; i + 1 < s->n; i++)
        if (rank_of(s, i) >= 0)
            pairs[n++] = i;
    for (int kept = 0; kept < 1 << n; kept++) {
        double here = chance;
        int best = N_MERGES;
        for (int k = 0; k < n; k++) {
            bool is_kept = kept >> k & 1;
            here *= is_kept ? 1 - dropout : dropout;
            if (is_kept && rank_of(s, pairs[k]) < best)
                best = rank_of(s, pairs[k]);
        }
        if (!kept) {
            add_result(all, s, here);
            continue;
        }
        segmentation next = {0};
        for (int i = 0; i < s->n; i++) {
            bool merged = false;
            for (int k = 0; k < n; k++)
                merged |= pairs[k] == i && (kept >> k & 1) && rank_of(s, i) == best;
            snprintf(next.symbols[next.n++], sizeof next.symbols[0], "%s%s", s->symbols[i],
                     merged ? s->symbols[i + 1] : "");
            i += merged;
        }
        enumerate(all, &next, dropout, here);
    }
}

static void write_segmentation(const segmentation *s, nm_buffer *out)
{
    for (int i = 0; i < s->n; i++) {
        size_t bytes = strlen(s->symbols[i]);
        bool last = i + 1 == s->n;
        nm_buffer_append(out, s->symbols[i], last ? bytes - strlen(NM_BPE_WORD_END) : bytes);
        if (!last)
            nm_buffer_append(out, "@@ ", 3);
    }
}

static nm_bpe *read_codes(void)
{
    nm_bpe *bpe;
    nm_error err;
    assert_int_equal(nm_bpe_parse(codes, strlen(codes), "codes", &bpe, &err), NM_OK);
    return bpe;
}

static void check_distribution(const char *word, double dropout)
{
    enum { DRAWS = 100000 };
    segmentation start = {0};
    distribution all = {0};
    int64_t found[MAX_RESULTS] = {0};
    double sum = 0;
    for (const char *at = word; *at; at++)
        snprintf(start.symbols[start.n++], sizeof start.symbols[0], "%c%s", *at,
                 at[1] ? "" : NM_BPE_WORD_END);
    enumerate(&all, &start, dropout, 1);
    nm_bpe *bpe = read_codes();
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_random_stream random = nm_random_stream_at(7, NM_RANDOM_TEST, 0, 0, 0);
    nm_buffer drawn = {0}, expected[MAX_RESULTS] = {{0}};
    for (int i = 0; i < all.n; i++) {
        write_segmentation(&all.items[i], &expected[i]);
        sum += all.chance[i];
    }
    assert_true(fabs(sum - 1) < 1e-12);
    for (int d = 0; d < DRAWS; d++) {
        nm_buffer_clear(&drawn);
        nm_bpe_sample_word(applier, word, strlen(word), dropout, &random, &drawn);
        int i = 0;
        while (i < all.n &&
               (expected[i].bytes != drawn.bytes || memcmp(expected[i].data, drawn.data, drawn.bytes)))
            i++;
        if (i == all.n)
            fail_msg("%s: %.*s is not a segmentation", word, (int)drawn.bytes, drawn.data);
        found[i]++;
    }
    for (int i = 0; i < all.n; i++) { /* within 5 standard deviations of a binomial distribution */
        double p = all.chance[i], spread = sqrt(p * (1 - p) / DRAWS);
        if (fabs((double)found[i] / DRAWS - p) > 5 * spread + 1e-12)
            fail_msg("%s, dropout %g, %.*s: %.5f instead of %.5f", word, dropout, (int)expected[i].bytes,
                     expected[i].data, (double)found[i] / DRAWS, p);
        nm_buffer_release(&expected[i]);
    }
    nm_buffer_release(&drawn);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
}

static void test_bpe_dropout_has_the_exact_distribution(void **state)
{
    (void)state;
    static const char *const words[] = {"lower", "aaaab", "aaa", "ow", "ab"};
    static const double rates[] = {0.1, 0.5, 0, 1};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++)
        for (size_t r = 0; r < sizeof rates / sizeof *rates; r++)
            check_distribution(words[w], rates[r]);
}

static void test_without_dropout_it_is_bpe(void **state)
{
    (void)state;
    nm_bpe *bpe = read_codes();
    nm_bpe_applier *applier = nm_bpe_applier_create(bpe, NULL, 0);
    nm_random_stream random = nm_random_stream_at(7, NM_RANDOM_TEST, 0, 0, 0);
    nm_buffer drawn = {0}, applied = {0};
    static const char *const words[] = {"lower", "aaaaaab", "low", "é", "éa", "slower"};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        nm_bpe_apply_line(applier, words[w], strlen(words[w]), &applied);
        nm_bpe_sample_word(applier, words[w], strlen(words[w]), 0, &random, &drawn);
        nm_buffer_append_byte(&applied, 0);
        assert_buffer(&drawn, applied.data);
        nm_buffer_clear(&applied);
    }
    nm_buffer_release(&drawn);
    nm_buffer_release(&applied);
    nm_bpe_applier_free(applier);
    nm_bpe_free(bpe);
}

static const char dictionary[] = "lower 9\nlow@@ 8\ner 7\naa@@ 6\nab 5\nl@@ 4\no@@ 4\nw@@ 4\ne@@ 4\nr 4\na@@ "
                                 "4\nb 4\nlo@@ 3\now@@ 2\naaaa@@ 2\n"
                                 "w 1\nq 1\n";
static const char settings[] = "[prepare]\nsubword_sampling = true\n";
enum { LINES = 60, LINE_TOKENS = 7 };

typedef struct text {
    nm_vocab *vocab;
    nm_bpe *bpe;
    int32_t ids[LINES * LINE_TOKENS];
    uint64_t offsets[LINES + 1];
    nm_corpus corpus;
} text;

/* Every third line is an incomplete word. */
static void open_text(text *t)
{
    nm_error err;
    nm_ids ids = {0};
    assert_int_equal(
        nm_vocab_parse(dictionary, strlen(dictionary), "dictionary", NM_VOCAB_FAIRSEQ, &t->vocab, &err),
        NM_OK);
    for (int i = 0; i < LINES; i++) {
        t->offsets[i] = ids.n;
        const char *line = i % 3 ? "lower <unk> aaaa@@ ab lower" : "lo@@";
        nm_vocab_encode(t->vocab, line, strlen(line), &ids);
        nm_ids_append(&ids, t->vocab->eos);
    }
    t->offsets[LINES] = ids.n;
    memcpy(t->ids, ids.data, ids.n * sizeof *ids.data);
    nm_ids_release(&ids);
    t->corpus = (nm_corpus){.ids = t->ids, .offsets = t->offsets, .n = LINES};
}

static nm_subword_sampler *open_sampler_of(const text *t, const char *data_ini, int32_t threads,
                                           int64_t max_length)
{
    const nm_subword_sampling how = {.dropout = 0.4};
    const nm_subword_source source = {.corpus = &t->corpus,
                                      .vocab = t->vocab,
                                      .settings = data_ini,
                                      .codes = codes,
                                      .seed = 3,
                                      .max_length = max_length,
                                      .threads = threads};
    nm_subword_sampler *sampler;
    nm_error err;
    if (nm_subword_sampler_create(&sampler, &how, &source, &err) != NM_OK)
        fail_msg("%s", err.text);
    return sampler;
}

static nm_subword_sampler *open_sampler(const text *t, int32_t threads, int64_t max_length)
{
    return open_sampler_of(t, settings, threads, max_length);
}

static bool same_text(const nm_corpus *a, const nm_corpus *b)
{
    return !memcmp(a->offsets, b->offsets, (LINES + 1) * sizeof *a->offsets) &&
           !memcmp(a->ids, b->ids, a->offsets[LINES] * sizeof *a->ids);
}

static void test_sampler_keeps_the_text(void **state)
{
    (void)state;
    text t;
    nm_buffer stored = {0}, drawn = {0}, words = {0};
    open_text(&t);
    nm_subword_sampler *sampler = open_sampler(&t, 1, 0);
    const nm_corpus *corpus = nm_subword_sampler_sample(sampler, 0);
    int differ = 0;
    for (int i = 0; i < LINES; i++) {
        size_t n = (size_t)nm_corpus_length(corpus, i), before = (size_t)nm_corpus_length(&t.corpus, i);
        const int32_t *ids = corpus->ids + corpus->offsets[i];
        nm_vocab_decode(t.vocab, ids, n, &drawn);
        nm_vocab_decode(t.vocab, t.ids + t.offsets[i], before, &words);
        assert_int_equal(ids[n - 1], t.vocab->eos);
        differ += n != before;
        nm_bpe_remove(words.data, words.bytes, &stored);
        nm_buffer_append_byte(&stored, 0);
        nm_buffer_clear(&words);
        nm_bpe_remove(drawn.data, drawn.bytes, &words);
        assert_buffer(&words, stored.data);
        if (i % 3 == 0)
            assert_int_equal(n, before); /* not a word */
        nm_buffer_clear(&stored);
        nm_buffer_clear(&drawn);
    }
    assert_true(differ > LINES / 3);
    nm_buffer_release(&stored);
    nm_buffer_release(&drawn);
    nm_buffer_release(&words);
    nm_subword_sampler_free(sampler);
    nm_vocab_free(t.vocab);
}

static void test_draws_depend_on_epoch_and_line_only(void **state)
{
    (void)state;
    text t;
    open_text(&t);
    nm_subword_sampler *one = open_sampler(&t, 1, 0), *three = open_sampler(&t, 3, 0);
    const nm_corpus *first = nm_subword_sampler_sample(one, 4);
    assert_true(same_text(first, nm_subword_sampler_sample(three, 4)));
    assert_false(same_text(first, nm_subword_sampler_sample(three, 5)));
    /* an earlier epoch again, as after a resume */
    assert_true(same_text(first, nm_subword_sampler_sample(three, 4)));
    nm_subword_sampler_free(one);
    nm_subword_sampler_free(three);
    nm_vocab_free(t.vocab);
}

static void test_user_symbols_are_not_split(void **state)
{
    (void)state;
    static const char with_symbols[] = "[prepare]\nsubword_sampling = true\nuser_symbols = q,lower\n";
    text t;
    open_text(&t);
    nm_subword_sampler *sampler = open_sampler_of(&t, with_symbols, 1, 0);
    int32_t lower = nm_vocab_find(t.vocab, "lower", 5);
    const nm_corpus *corpus = nm_subword_sampler_sample(sampler, 0);
    int differ = 0;
    for (int i = 0; i < LINES; i++) {
        const int32_t *ids = corpus->ids + corpus->offsets[i];
        size_t n = (size_t)nm_corpus_length(corpus, i);
        differ += n != (size_t)nm_corpus_length(&t.corpus, i);
        if (i % 3) {
            assert_int_equal(ids[0], lower);
            assert_int_equal(ids[n - 2], lower);
        }
    }
    assert_true(differ > LINES / 3); /* the other words */
    nm_subword_sampler_free(sampler);
    nm_vocab_free(t.vocab);
}

static void test_a_line_is_not_longer_than_the_limit(void **state)
{
    (void)state;
    text t;
    open_text(&t);
    nm_subword_sampler *sampler = open_sampler(&t, 2, 9), *free_of_limits = open_sampler(&t, 2, 0);
    const nm_corpus *corpus = nm_subword_sampler_sample(sampler, 0),
                    *all = nm_subword_sampler_sample(free_of_limits, 0);
    int longer = 0;
    for (int i = 0; i < LINES; i++) {
        bool exceeds = nm_corpus_length(all, i) > 9;
        longer += exceeds;
        assert_int_equal(nm_corpus_length(corpus, i), nm_corpus_length(exceeds ? &t.corpus : all, i));
    }
    assert_true(longer > 0 && longer < LINES);
    nm_subword_sampler_free(sampler);
    nm_subword_sampler_free(free_of_limits);
    nm_vocab_free(t.vocab);
}

/* The time for a word is quadratic, so a very long word is not sampled. */
static void test_a_very_long_word_keeps_its_subwords(void **state)
{
    (void)state;
    enum { SUBWORDS = NM_BPE_SAMPLE_MAX_WORD / 4 };
    text t;
    nm_ids ids = {0};
    nm_buffer word = {0};
    open_text(&t);
    for (int i = 0; i < SUBWORDS; i++)
        nm_buffer_append(&word, "aaaa@@ ", 7);
    nm_buffer_append(&word, "ab", 2);
    nm_vocab_encode(t.vocab, word.data, word.bytes, &ids);
    nm_ids_append(&ids, t.vocab->eos);
    uint64_t offsets[] = {0, ids.n};
    t.corpus = (nm_corpus){.ids = ids.data, .offsets = offsets, .n = 1};
    nm_subword_sampler *sampler = open_sampler(&t, 1, 0);
    const nm_corpus *drawn = nm_subword_sampler_sample(sampler, 0);
    assert_int_equal(drawn->offsets[1], ids.n);
    assert_memory_equal(drawn->ids, ids.data, ids.n * sizeof *ids.data);
    nm_subword_sampler_free(sampler);
    nm_buffer_release(&word);
    nm_ids_release(&ids);
    nm_vocab_free(t.vocab);
}

static void test_refusals(void **state)
{
    (void)state;
    text t;
    open_text(&t);
    nm_subword_source source = {
        .corpus = &t.corpus, .vocab = t.vocab, .settings = "[prepare]\n", .codes = codes};
    nm_subword_sampler *sampler;
    nm_error err;
    assert_int_equal(nm_subword_sampler_create(&sampler, &(nm_subword_sampling){0}, &source, &err), NM_OK);
    assert_null(sampler);
    assert_int_equal(
        nm_subword_sampler_create(&sampler, &(nm_subword_sampling){.dropout = 0.1}, &source, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "--subword-sampling true"));
    assert_int_equal(nm_subword_sampler_create(&sampler, &(nm_subword_sampling){.alpha = 0.1}, &source, &err),
                     NM_USAGE);
    assert_non_null(strstr(err.text, "unigram"));
    source.codes = NULL;
    assert_int_equal(
        nm_subword_sampler_create(&sampler, &(nm_subword_sampling){.dropout = 0.1}, &source, &err), NM_USAGE);
    assert_non_null(strstr(err.text, "no BPE codes"));
    nm_vocab_free(t.vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_dropout_has_the_exact_distribution),
        cmocka_unit_test(test_without_dropout_it_is_bpe),
        cmocka_unit_test(test_sampler_keeps_the_text),
        cmocka_unit_test(test_draws_depend_on_epoch_and_line_only),
        cmocka_unit_test(test_user_symbols_are_not_split),
        cmocka_unit_test(test_a_line_is_not_longer_than_the_limit),
        cmocka_unit_test(test_a_very_long_word_keeps_its_subwords),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
