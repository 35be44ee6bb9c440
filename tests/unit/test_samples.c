/* Several different translations: samples, whose frequencies are those of the distribution, and diverse beam
 * search. */
#include "model/beam.h"
#include "decode_search.h"

/* The probabilities of the first token, recomputed: temperature, then the top_k most probable, then the
 * fewest of them with the mass top_p. */
static void sampled_probabilities(const nm_decode_options *o, const double *log_p, double *p)
{
    double total = 0, kept = 0, sorted[WORDS];
    int32_t n = 0;
    for (int32_t v = 0; v < WORDS; v++)
        p[v] = v == PAD || v == EOS ? 0 : exp(log_p[v] / o->temperature);
    for (int32_t v = 0; v < WORDS; v++) { /* insertion in descending order */
        int32_t at = n++;
        for (; at > 0 && sorted[at - 1] < p[v]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = p[v];
    }
    for (int32_t i = 0; i < o->top_k; i++)
        total += sorted[i];
    int32_t last = 0;
    for (kept = sorted[0]; kept < o->top_p * total; kept += sorted[last])
        last++;
    for (int32_t v = 0; v < WORDS; v++)
        p[v] = p[v] >= sorted[last] ? p[v] / kept : 0;
}

/* The first tokens of 8,000 samples against their distribution, by Pearson's chi-square. */
static void test_sample_frequencies(void **state)
{
    (void)state;
    static const char *const settings[] = {"decode.search",
                                           "sample",
                                           "decode.nbest",
                                           "1000",
                                           "decode.temperature",
                                           "1.5",
                                           "decode.top_k",
                                           "5",
                                           "decode.top_p",
                                           "0.95",
                                           "decode.max_length_a",
                                           "0",
                                           "decode.max_length_b",
                                           "1",
                                           "model.output_bias",
                                           "true",
                                           NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 2, false);
    tiny made = tiny_create(backend, WORDS, 12, settings);
    nm_decode_options *options = decode_of(&made);
    corpus *text = random_corpus();
    const int32_t first[] = {EOS};
    for (int32_t s = 2; s < 4; s++) {
        double log_p[WORDS], p[WORDS], chi = 0, n = 0;
        int32_t counts[WORDS] = {0}, classes = 0;
        next_words(&made, &text->list[s], first, 1, log_p);
        sampled_probabilities(options, log_p, p);
        for (options->seed = 1; options->seed <= 8; options->seed++) {
            nm_translation out;
            decode_all(&made.model, 1, options, &text->list[s], 1, &out);
            assert_int_equal(out.n, 1000);
            for (int32_t i = 0; i < out.n; i++, n++) {
                const nm_hypothesis *h = &out.list[i];
                assert_int_equal(h->n, 2);
                counts[h->ids[0]]++;
                assert_true(fabs(h->token_scores[0] - log_p[h->ids[0]]) < 1e-12);
            }
            nm_translation_release(&out);
        }
        for (int32_t v = 0; v < WORDS; v++) {
            assert_true(p[v] > 0 || counts[v] == 0);
            if (p[v] > 0) {
                chi += (counts[v] - n * p[v]) * (counts[v] - n * p[v]) / (n * p[v]);
                classes++;
            }
        }
        assert_in_range(classes, 3, 5);
        if (chi > 18.5) /* 4 degrees of freedom: p = 0.001 */
            fail_msg("chi-square %g with %d classes", chi, classes);
    }
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* With temperature 0 a sample is the greedy translation; samples do not depend on other sentences, batches or
 * threads. */
static void test_samples(void **state)
{
    (void)state;
    static const char *const settings[] = {"decode.search", "sample", "decode.nbest", "3", NULL};
    nm_backend *backend = backend_of("cpu", NM_F32, 2, false);
    tiny made = tiny_create(backend, WORDS, 13, settings);
    corpus *text = random_corpus();
    nm_decode_options plain = *decode_of(&made), cold = plain, greedy_search = plain;
    cold.temperature = 0;
    cold.nbest = 1;
    greedy_search.search = NM_SEARCH_FAIRSEQ;
    greedy_search.beam = greedy_search.nbest = 1;
    nm_translation all[SOURCES], single[SOURCES], frozen[SOURCES], greedy_found[SOURCES];
    decode_all(&made.model, 1, &plain, text->list, SOURCES, all);
    plain.batch_tokens = 5;
    for (size_t s = 0; s < SOURCES; s++)
        decode_all(&made.model, 1, &plain, &text->list[s], 1, &single[s]);
    decode_all(&made.model, 1, &cold, text->list, SOURCES, frozen);
    decode_all(&made.model, 1, &greedy_search, text->list, SOURCES, greedy_found);
    int32_t different = 0;
    for (size_t s = 0; s < SOURCES; s++) {
        assert_same(&all[s], &single[s]);
        assert_int_equal(frozen[s].list[0].n, greedy_found[s].list[0].n);
        assert_memory_equal(frozen[s].list[0].ids, greedy_found[s].list[0].ids,
                            (size_t)frozen[s].list[0].n * sizeof(int32_t));
        different +=
            all[s].list[0].n != all[s].list[1].n ||
            memcmp(all[s].list[0].ids, all[s].list[1].ids, (size_t)all[s].list[0].n * sizeof(int32_t));
    }
    assert_true(different > SOURCES / 2);
    release_all(all, SOURCES);
    release_all(single, SOURCES);
    release_all(frozen, SOURCES);
    release_all(greedy_found, SOURCES);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void check_diverse(const char *search)
{
    const char *const settings[] = {"decode.search",
                                    search,
                                    "decode.beam",
                                    "4",
                                    "decode.nbest",
                                    "4",
                                    "decode.diverse_groups",
                                    "2",
                                    "decode.diverse_strength",
                                    "0",
                                    NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 14, settings);
    corpus *text = random_corpus();
    nm_decode_options diverse = *decode_of(&made), beam = diverse;
    beam.beam = beam.nbest = 2;
    beam.diverse_groups = 1;
    nm_translation groups[SOURCES], one[SOURCES], strong[SOURCES];
    decode_all(&made.model, 1, &diverse, text->list, SOURCES, groups);
    decode_all(&made.model, 1, &beam, text->list, SOURCES, one);
    diverse.diverse_strength = 100;
    decode_all(&made.model, 1, &diverse, text->list, SOURCES, strong);
    for (size_t s = 0; s < SOURCES; s++) {
        bool differ = false;
        assert_int_equal(groups[s].n, one[s].n); /* both groups find the same, which is listed once */
        assert_same(&groups[s], &one[s]);
        assert_true(strong[s].n > 2);
        for (int32_t i = 1; i < strong[s].n; i++)
            differ |= strong[s].list[i].ids[0] != strong[s].list[0].ids[0];
        assert_true(differ);
        for (int32_t i = 0; i < strong[s].n; i++) { /* without the diversity term */
            double sum = 0;
            for (int32_t t = 0; t < strong[s].list[i].n; t++)
                sum += strong[s].list[i].token_scores[t];
            assert_true(sum / nm_length_penalty(&diverse, strong[s].list[i].n) == strong[s].list[i].score);
        }
    }
    release_all(groups, SOURCES);
    release_all(one, SOURCES);
    release_all(strong, SOURCES);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void test_diverse_beam_search(void **state)
{
    (void)state;
    check_diverse("fairseq");
    check_diverse("tears");
    nm_error err = {0};
    assert_int_equal(
        nm_decode_options_check(&(nm_decode_options){.beam = 5, .nbest = 1, .diverse_groups = 2}, &err),
        NM_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sample_frequencies),
                                       cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_diverse_beam_search)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
