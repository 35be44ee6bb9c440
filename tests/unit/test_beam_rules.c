/* The rules of beam search on given candidates: which hypotheses stay, which are finished, when a sentence is
 * done. */
#include "decode_model.h"

#include <math.h>
#include <string.h>

#include "model/beam.h"

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

enum { MAX_TOKENS = 7, SEARCH_BEAM = 6 };

typedef struct hypothesis {
    int32_t ids[MAX_TOKENS + 1], n; /* ids[0]: first target input */
    double sum, score, key;         /* key: the order of the candidates of a group */
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

static int higher_key(const void *a, const void *b)
{
    const hypothesis *x = a, *y = b;
    return x->key > y->key ? -1 : x->key < y->key;
}

/* One step of a group of n hypotheses: equation 6 of Vijayakumar et al. 2018 with Hamming diversity to the
 * hypotheses of the groups before it that this step extended; given: the token of the prefix, or
 * NM_TARGET_IGNORED. Returns their number. */
static int32_t advance_group(tiny *made, const nm_id_list *source, const nm_decode_options *options,
                             int32_t t, int32_t given, int32_t size, const hypothesis *before,
                             int32_t n_before, hypothesis *group, int32_t n)
{
    hypothesis all[SEARCH_BEAM * (WORDS + 1)];
    int32_t n_all = 0;
    for (int32_t i = 0; i < n; i++) {
        double next[WORDS];
        if (group[i].finished) {
            all[n_all] = group[i];
            all[n_all].key = group[i].score;
            n_all++;
            continue;
        }
        next_tokens(made, source, &group[i], next);
        for (int32_t v = 0; v < WORDS; v++) {
            if (given != NM_TARGET_IGNORED ? v != given : v == PAD || (v == EOS && t == 1))
                continue;
            hypothesis *h = &all[n_all++];
            *h = group[i];
            h->ids[t] = v;
            h->n = t;
            h->sum += next[v];
            h->key = h->score = h->sum / nm_length_penalty(options, t);
            h->finished = v == EOS;
            for (int32_t k = 0; k < n_before; k++)
                h->key -= before[k].n == t && before[k].ids[t] == v ? options->diverse_strength : 0;
        }
    }
    qsort(all, (size_t)n_all, sizeof *all, higher_key);
    n = n_all < size ? n_all : size;
    memcpy(group, all, (size_t)n * sizeof *all);
    return n;
}

/* Leaves the different hypotheses of all groups, best first, in `beam`; returns their number. */
static int32_t search_tears(tiny *made, const nm_id_list *source, const nm_id_list *prefix,
                            const nm_decode_options *options, int32_t limit, hypothesis *beam)
{
    const int32_t groups = (int32_t)options->diverse_groups, size = SEARCH_BEAM / groups;
    int32_t sizes[SEARCH_BEAM], n = 0, n_different = 0;
    hypothesis found[SEARCH_BEAM]; /* [groups][size] */
    for (int32_t g = 0; g < groups; g++) {
        sizes[g] = 1;
        found[g * size] = (hypothesis){.ids = {EOS}};
    }
    for (int32_t t = 1; t <= limit; t++) {
        hypothesis before[SEARCH_BEAM];
        int32_t n_before = 0;
        for (int32_t g = 0; g < groups; g++) {
            hypothesis *group = found + g * size;
            const int32_t given = t <= prefix->n ? prefix->ids[t - 1] : NM_TARGET_IGNORED;
            sizes[g] =
                advance_group(made, source, options, t, given, size, before, n_before, group, sizes[g]);
            memcpy(before + n_before, group, (size_t)sizes[g] * sizeof *group);
            n_before += sizes[g];
        }
    }
    for (int32_t g = 0; g < groups; g++)
        for (int32_t i = 0; i < sizes[g]; i++) {
            beam[n] = found[g * size + i];
            beam[n].key = beam[n].score;
            n++;
        }
    qsort(beam, (size_t)n, sizeof *beam, higher_key);
    for (int32_t i = 0; i < n; i++)
        if (!n_different || memcmp(beam[n_different - 1].ids, beam[i].ids, sizeof beam->ids))
            beam[n_different++] = beam[i];
    return n_different;
}

static void check_tears_search(const char *alpha, const char *groups, const char *strength, int32_t n_given,
                               uint64_t seed)
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
                                    "6",
                                    "decode.nbest",
                                    "6",
                                    "decode.diverse_groups",
                                    groups,
                                    "decode.diverse_strength",
                                    strength,
                                    "decode.max_length_a",
                                    "0",
                                    "decode.max_length_b",
                                    "6",
                                    NULL};
    const int32_t ids[] = {4, 7, 3, EOS}, given[] = {5, UNK, 5, 8, 4};
    nm_id_list source = {ids, 4}, prefix = {given, n_given};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, seed, settings);
    const nm_decode_options *options = nm_options_find(made.options, "decode");
    nm_decoder *decoder;
    nm_translation out;
    nm_error err;
    const nm_special_tokens special = {.pad = PAD, .unk = UNK, .eos = EOS, .first = EOS};
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, options, &special, &err), NM_OK);
    assert_int_equal(nm_decode_prefixes(decoder, &source, &prefix, NULL, 1, &out, &err), NM_OK);
    hypothesis expected[SEARCH_BEAM];
    int32_t n = search_tears(&made, &source, &prefix, options, 6, expected);
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
        check_tears_search("0", "1", "0.5", 0, seed);
        check_tears_search("0.6", "1", "0.5", 0, seed);
        check_tears_search("2", "1", "0.5", 0, seed);
    }
    for (uint64_t seed = 1; seed <= 20; seed++) {
        check_tears_search("0.6", "2", "0.1", 0, seed);
        check_tears_search("0", "3", "0.3", 0, seed);
        check_tears_search("0.6", "6", "1", 0, seed);
    }
    for (int32_t n_given = 1; n_given <= 5; n_given++) {
        check_tears_search("0.6", "1", "0.5", n_given, 1);
        check_tears_search("0", "3", "0.3", n_given, 2);
        check_tears_search("0.6", "2", "2", n_given, 3);
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
