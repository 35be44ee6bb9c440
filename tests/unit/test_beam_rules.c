/* The rules of beam search on given candidates: which hypotheses stay, which are finished, when a sentence is
 * done. */
#include "decode_model.h"

#include <math.h>

#include "decode/beam.h"

enum { BEAM = 3, MAX_CANDIDATES = 2 * BEAM };

typedef struct choice {
    nm_beam_entry entries[2 * BEAM];
    nm_beam_sentence sentence;
} choice;

/* Applies a rule to candidates that are finished where the pattern has 'f'. */
static void choose(choice *c, const nm_beam_rule *rule, const char *pattern, int32_t n_tokens, int32_t limit)
{
    nm_beam_candidate candidates[MAX_CANDIDATES] = {0};
    int32_t n = 0;
    for (; pattern[n]; n++) {
        candidates[n].key = -n;
        candidates[n].entry = (nm_beam_entry){.id = n, .score = -n, .finished = pattern[n] == 'f'};
    }
    *c = (choice){.sentence = {.limit = limit}};
    c->sentence.live = c->entries;
    c->sentence.finals = c->entries + BEAM;
    rule->choose(&c->sentence, candidates, n, BEAM, n_tokens);
}

/* Finished hypotheses leave the beam, and later candidates take their places. */
static void test_fairseq(void **state)
{
    (void)state;
    choice c;
    choose(&c, &nm_beam_fairseq, "flfllf", 4, 9);
    assert_int_equal(c.sentence.n_live, 3);
    assert_int_equal(c.sentence.live[0].id, 1);
    assert_int_equal(c.sentence.live[1].id, 3);
    assert_int_equal(c.sentence.live[2].id, 4);
    assert_int_equal(c.sentence.n_finals, 2);
    assert_int_equal(c.sentence.finals[1].id, 2);
    assert_false(c.sentence.done);
    choose(&c, &nm_beam_fairseq, "llffff", 4, 9); /* only the first BEAM candidates finish */
    assert_int_equal(c.sentence.n_finals, 1);
    assert_int_equal(c.sentence.finals[0].id, 2);
    choose(&c, &nm_beam_fairseq, "fffl", 4, 9);
    assert_true(c.sentence.done);
    choose(&c, &nm_beam_fairseq, "lll", 9, 9);
    assert_false(c.sentence.done);
    choose(&c, &nm_beam_fairseq, "lll", 10, 9);
    assert_true(c.sentence.done);
    choose(&c, &nm_beam_fairseq, "f", 4, 9);
    assert_true(c.sentence.done);
}

/* Finished hypotheses stay in the beam. */
static void test_tears(void **state)
{
    (void)state;
    choice c;
    choose(&c, &nm_beam_tears, "flfl", 4, 9);
    assert_int_equal(c.sentence.n_live, 3);
    assert_int_equal(c.sentence.live[2].id, 2);
    assert_int_equal(c.sentence.n_finals, 0);
    assert_false(c.sentence.done);
    choose(&c, &nm_beam_tears, "ffff", 4, 9);
    assert_true(c.sentence.done);
    assert_int_equal(c.sentence.n_finals, 3);
    choose(&c, &nm_beam_tears, "lfl", 8, 9);
    assert_false(c.sentence.done);
    choose(&c, &nm_beam_tears, "lfl", 9, 9);
    assert_true(c.sentence.done);
}

enum { MAX_TOKENS = 7, SEARCH_BEAM = 3 };

typedef struct hypothesis {
    int32_t ids[MAX_TOKENS + 1], n; /* ids[0]: first target input */
    double sum, score;
    bool finished;
} hypothesis;

static void next_tokens(tiny *made, const nm_id_list *source, const hypothesis *h, double *out)
{
    const int32_t source_offsets[] = {0, source->n}, target_offsets[] = {0, h->n + 1};
    nm_packing packed = {1, source->n, source->n, source_offsets, NULL},
               fed = {1, h->n + 1, h->n + 1, target_offsets, NULL};
    double *all = teacher_forced(made, &packed, source->ids, &fed, h->ids);
    for (int32_t v = 0; v < WORDS; v++)
        out[v] = all[h->n * WORDS + v];
    free(all);
}

static int higher_score(const void *a, const void *b)
{
    const hypothesis *x = a, *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

/* Leaves the final beam, best first, in `beam`; returns their number. */
static int32_t search_tears(tiny *made, const nm_id_list *source, const nm_decode_options *options,
                            int32_t limit, hypothesis *beam)
{
    int32_t n_beam = 1;
    beam[0] = (hypothesis){.ids = {EOS}};
    for (int32_t t = 1; t <= limit; t++) {
        hypothesis all[SEARCH_BEAM * (WORDS + 1)];
        int32_t n = 0, n_finished = 0;
        for (int32_t i = 0; i < n_beam; i++) {
            double next[WORDS];
            if (beam[i].finished) {
                all[n++] = beam[i];
                continue;
            }
            next_tokens(made, source, &beam[i], next);
            for (int32_t v = 0; v < WORDS; v++) {
                if (v == PAD || (v == EOS && t == 1))
                    continue;
                all[n] = beam[i];
                all[n].ids[t] = v;
                all[n].n = t;
                all[n].sum += next[v];
                all[n].score = all[n].sum / nm_length_penalty(options, t);
                all[n++].finished = v == EOS;
            }
        }
        qsort(all, (size_t)n, sizeof *all, higher_score);
        n_beam = n < SEARCH_BEAM ? n : SEARCH_BEAM;
        for (int32_t i = 0; i < n_beam; i++) {
            beam[i] = all[i];
            n_finished += all[i].finished;
        }
        if (n_finished == n_beam)
            break;
    }
    return n_beam;
}

static void check_tears_search(const char *alpha, uint64_t seed)
{
    const char *const settings[] = {"model.norm",
                                    "layer",
                                    "model.output_bias",
                                    "true",
                                    "decode.search",
                                    "tears",
                                    "decode.alpha",
                                    alpha,
                                    "decode.beam",
                                    "3",
                                    "decode.nbest",
                                    "3",
                                    "decode.max_length_a",
                                    "0",
                                    "decode.max_length_b",
                                    "6",
                                    NULL};
    const int32_t ids[] = {4, 7, 3, EOS};
    nm_id_list source = {ids, 4};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, seed, settings);
    const nm_decode_options *options = nm_options_find(made.options, "decode");
    nm_decoder *decoder;
    nm_translation out;
    nm_error err;
    const nm_special_tokens special = {.pad = PAD, .unk = UNK, .eos = EOS, .first = EOS};
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, options, &special, &err), NM_OK);
    assert_int_equal(nm_decode(decoder, &source, 1, &out, &err), NM_OK);
    hypothesis expected[SEARCH_BEAM];
    int32_t n = search_tears(&made, &source, options, 6, expected);
    assert_int_equal(out.n, n);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(out.list[i].n, expected[i].n);
        assert_memory_equal(out.list[i].ids, expected[i].ids + 1, (size_t)expected[i].n * sizeof(int32_t));
        assert_true(fabs(out.list[i].score - expected[i].score) < 1e-12);
    }
    nm_translation_release(&out);
    nm_decoder_free(decoder);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void test_tears_search(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        check_tears_search("0", seed);
        check_tears_search("0.6", seed);
        check_tears_search("2", seed);
    }
}

/* The shortest positions of an ensemble limit it, in any order. */
static void test_ensemble_positions(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    static const char *const shorter[] = {"model.max_positions", "20", NULL};
    tiny made[2] = {tiny_create(backend, WORDS, 1, NULL), tiny_create(backend, WORDS, 2, shorter)};
    const nm_special_tokens special = {.pad = PAD, .unk = UNK, .eos = EOS, .first = EOS};
    for (int first = 0; first < 2; first++) {
        nm_model *models[] = {made[first].model, made[1 - first].model};
        nm_decoder *decoder;
        nm_error err;
        assert_int_equal(nm_decoder_create(&decoder, models, 2, nm_options_find(made[0].options, "decode"),
                                           &special, &err),
                         NM_OK);
        assert_int_equal(nm_decoder_longest(decoder), 20);
        nm_decoder_free(decoder);
    }
    tiny_release(&made[0]);
    tiny_release(&made[1]);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fairseq), cmocka_unit_test(test_tears),
                                       cmocka_unit_test(test_tears_search),
                                       cmocka_unit_test(test_ensemble_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
