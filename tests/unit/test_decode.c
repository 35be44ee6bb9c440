/* Decoding: greedy search, beam search against exhaustive search, results that do not depend on batches and threads. */
#include "decode_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const nm_special_tokens special = {.first = EOS, .eos = EOS, .pad = PAD};

static nm_decode_options *decode_of(tiny *made)
{
    return nm_options_find(made->options, "decode");
}

/* Translates n sources; the caller releases out[n]. */
static void decode_all(nm_model *const *models, int32_t n_models, const nm_decode_options *options,
                       const nm_id_list *sources, size_t n, nm_translation *out)
{
    nm_decoder *decoder;
    nm_error err = {0};
    if (nm_decoder_create(&decoder, models, n_models, options, &special, &err) != NM_OK ||
        nm_decode(decoder, sources, n, out, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_free(decoder);
}

static void release_all(nm_translation *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nm_translation_release(&list[i]);
}

/* Log probabilities of the next token after `prefix`, which includes the first target input. */
static void next_words(tiny *made, const nm_id_list *source, const int32_t *prefix, int32_t n, double *out)
{
    const int32_t source_offsets[] = {0, source->n}, target_offsets[] = {0, n};
    nm_packing packed = {1, source->n, source->n, source_offsets, NULL},
               fed = {1, n, n, target_offsets, NULL};
    double *all = teacher_forced(made, &packed, source->ids, &fed, prefix);
    int32_t words = made->model->target_size;
    memcpy(out, all + (size_t)(n - 1) * (size_t)words, (size_t)words * sizeof *out);
    free(all);
}

enum { SOURCES = 12, LONGEST = 12 };

typedef struct corpus {
    int32_t ids[SOURCES][LONGEST];
    nm_id_list list[SOURCES];
} corpus;

static corpus *random_corpus(void)
{
    corpus *made = nm_allocate(sizeof *made);
    for (int32_t s = 0; s < SOURCES; s++) {
        int32_t n = 1 + s * 7 % 11;
        for (int32_t i = 0; i < n; i++) {
            nm_random_words words = nm_random4(3, NM_RANDOM_TEST, (uint32_t)s, 0, (uint64_t)i);
            made->ids[s][i] = FIRST_WORD + (int32_t)(words.w[0] % (WORDS - FIRST_WORD));
        }
        made->ids[s][n] = EOS;
        made->list[s] = (nm_id_list){made->ids[s], n + 1};
    }
    return made;
}

/* Reference greedy search: the most probable token of each step, without a KV cache. */
static int32_t greedy(tiny *made, const nm_id_list *source, int32_t limit, int32_t *ids)
{
    int32_t prefix[64] = {EOS}, n = 0;
    double next[WORDS];
    for (bool ended = false; !ended; n++) {
        next_words(made, source, prefix, n + 1, next);
        int32_t best = EOS;
        for (int32_t v = 0; v < WORDS && n < limit; v++)
            if (v != PAD && !(v == EOS && n == 0) && (next[v] > next[best] || (best == EOS && n == 0)))
                best = v;
        ids[n] = prefix[n + 1] = best;
        ended = best == EOS;
    }
    return n;
}

static void test_greedy(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    static const char *const settings[] = {
        "model.norm",          "layer", "model.output_bias",      "true", "decode.beam", "1",
        "decode.max_length_b", "4",     "model.share_embeddings", "none", NULL};
    tiny made = tiny_create(backend, WORDS, 21, settings);
    corpus *text = random_corpus();
    nm_translation out[SOURCES];
    decode_all(&made.model, 1, decode_of(&made), text->list, SOURCES, out);
    int32_t different = 0;
    for (int32_t s = 0; s < SOURCES; s++) {
        int32_t ids[64], n = greedy(&made, &text->list[s], text->list[s].n + 4, ids);
        assert_int_equal(out[s].n, 1);
        assert_int_equal(out[s].list[0].n, n);
        assert_memory_equal(out[s].list[0].ids, ids, (size_t)n * sizeof *ids);
        different += n != text->list[s].n + 5;
    }
    assert_true(different > 0); /* some end before the limit */
    release_all(out, SOURCES);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* length^alpha, and ((5 + length)/6)^alpha (Wu et al. 2016). */
static void test_length_penalties(void **state)
{
    (void)state;
    const nm_decode_options power = {.length_penalty = NM_PENALTY_POWER, .alpha = 2},
                            gnmt = {.length_penalty = NM_PENALTY_GNMT, .alpha = 2};
    assert_true(nm_length_penalty(&power, 1) == 1);
    assert_true(nm_length_penalty(&power, 7) == 49);
    assert_true(nm_length_penalty(&gnmt, 1) == 1);
    assert_true(nm_length_penalty(&gnmt, 7) == 4);
    assert_true(nm_length_penalty(&gnmt, 13) == 9);
}

/* ---- exhaustive search ---- */

enum { LETTERS = 3, LIMIT = 3 };

typedef struct exhaustive {
    tiny *made;
    const nm_id_list *source;
    const nm_decode_options *options;
    bool unfinished; /* sequences of LIMIT tokens without eos are candidates (tears) */
    double best;
    int32_t ids[LIMIT + 1], n;
} exhaustive;

static void offer(exhaustive *e, const int32_t *prefix, int32_t n, double sum)
{
    double score = sum / nm_length_penalty(e->options, n);
    if (score > e->best) {
        e->best = score;
        e->n = n;
        memcpy(e->ids, prefix + 1, (size_t)n * sizeof *prefix);
    }
}

/* prefix: the first target input and n tokens with this sum of log probabilities. */
static void try_all(exhaustive *e, int32_t *prefix, int32_t n, double sum)
{
    double next[WORDS];
    next_words(e->made, e->source, prefix, n + 1, next);
    if (n > 0) {
        prefix[n + 1] = EOS;
        offer(e, prefix, n + 1, sum + next[EOS]);
    }
    for (int32_t letter = FIRST_WORD; letter < FIRST_WORD + LETTERS && n < LIMIT; letter++) {
        prefix[n + 1] = letter;
        if (!e->unfinished)
            try_all(e, prefix, n + 1, sum + next[letter]);
        else if (n + 1 < LIMIT)
            try_all(e, prefix, n + 1, sum + next[letter]);
        else
            offer(e, prefix, n + 1, sum + next[letter]);
    }
}

static void check_exhaustive(const char *search, const char *penalty, const char *alpha, uint64_t seed)
{
    const char *const settings[] = {"model.norm",
                                    "layer",
                                    "model.output_bias",
                                    "true",
                                    "decode.search",
                                    search,
                                    "decode.length_penalty",
                                    penalty,
                                    "decode.alpha",
                                    alpha,
                                    "decode.beam",
                                    "40",
                                    "decode.max_length_a",
                                    "0",
                                    "decode.max_length_b",
                                    "3",
                                    NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, seed, settings);
    uint8_t allowed[WORDS] = {0};
    allowed[EOS] = 1;
    memset(allowed + FIRST_WORD, 1, LETTERS);
    nm_error err = {0};
    assert_int_equal(nm_model_allow(made.model, allowed, &err), NM_OK);
    const int32_t ids[] = {4, 7, 3, EOS};
    nm_id_list source = {ids, 4};
    nm_translation out;
    decode_all(&made.model, 1, decode_of(&made), &source, 1, &out);
    exhaustive e = {.made = &made,
                    .source = &source,
                    .options = decode_of(&made),
                    .unfinished = !strcmp(search, "tears"),
                    .best = -INFINITY};
    int32_t prefix[LIMIT + 2] = {EOS};
    try_all(&e, prefix, 0, 0);
    assert_int_equal(out.n, 1);
    assert_int_equal(out.list[0].n, e.n);
    assert_memory_equal(out.list[0].ids, e.ids, (size_t)e.n * sizeof *e.ids);
    assert_true(fabs(out.list[0].score - e.best) < 1e-12);
    double sum = 0;
    for (int32_t i = 0; i < out.list[0].n; i++)
        sum += out.list[0].token_scores[i];
    assert_true(fabs(sum / nm_length_penalty(e.options, e.n) - e.best) < 1e-12);
    nm_translation_release(&out);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void test_exhaustive(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        check_exhaustive("fairseq", "power", "1", seed);
        check_exhaustive("fairseq", "power", "0", seed);
        check_exhaustive("fairseq", "gnmt", "0.6", seed);
        check_exhaustive("tears", "gnmt", "0.6", seed);
        check_exhaustive("tears", "power", "2", seed);
    }
}

/* ---- independence of batches, threads and order ---- */

static void assert_same(const nm_translation *a, const nm_translation *b)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        size_t n = (size_t)a->list[i].n;
        assert_int_equal(a->list[i].n, b->list[i].n);
        assert_memory_equal(a->list[i].ids, b->list[i].ids, n * sizeof(int32_t));
        assert_memory_equal(a->list[i].token_scores, b->list[i].token_scores, n * sizeof(double));
        assert_true(a->list[i].score == b->list[i].score);
    }
}

/* Translations with a batch size, a number of threads and the sources rotated by `turn`, in the order of the corpus. */
static void decode_turned(const char *name, nm_dtype dtype, int32_t threads, const char *search,
                          const char *batch_tokens, size_t turn, nm_translation *out)
{
    const char *const settings[] = {
        "model.norm",          "power",      "decode.beam", "4", "decode.nbest", "4", "decode.search", search,
        "decode.batch_tokens", batch_tokens, NULL};
    nm_backend *backend = backend_of(name, dtype, threads, false);
    tiny made = tiny_create(backend, WORDS, 5, settings);
    corpus *text = random_corpus();
    nm_id_list turned[SOURCES];
    nm_translation got[SOURCES];
    for (size_t i = 0; i < SOURCES; i++)
        turned[i] = text->list[(i * 5 + turn) % SOURCES];
    decode_all(&made.model, 1, decode_of(&made), turned, SOURCES, got);
    for (size_t i = 0; i < SOURCES; i++)
        out[(i * 5 + turn) % SOURCES] = got[i];
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void check_independence(const char *name, nm_dtype dtype, const char *search)
{
    static const char *const tokens[] = {"1", "20", "33", "4096"};
    nm_translation want[SOURCES], got[SOURCES];
    decode_turned(name, dtype, 1, search, "4096", 0, want);
    for (size_t i = 0; i < 8; i++) {
        decode_turned(name, dtype, 1 + (int32_t)i % 3, search, tokens[i % 4], i, got);
        for (size_t s = 0; s < SOURCES; s++)
            assert_same(&got[s], &want[s]);
        release_all(got, SOURCES);
    }
    release_all(want, SOURCES);
}

static void test_independence(void **state)
{
    (void)state;
    check_independence("ref", NM_F64, "fairseq");
    check_independence("ref", NM_F32, "tears");
    check_independence("cpu", NM_F32, "fairseq");
    check_independence("cpu", NM_F32, "tears");
}

static void check_nbest(const char *search)
{
    const char *const settings[] = {"model.output_bias",
                                    "true",
                                    "decode.beam",
                                    "6",
                                    "decode.nbest",
                                    "5",
                                    "decode.search",
                                    search,
                                    "decode.max_length_a",
                                    "0",
                                    "decode.max_length_b",
                                    "7",
                                    "decode.min_length",
                                    "2",
                                    NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 9, settings);
    corpus *text = random_corpus();
    nm_translation out[SOURCES];
    decode_all(&made.model, 1, decode_of(&made), text->list, SOURCES, out);
    for (size_t s = 0; s < SOURCES; s++) {
        assert_int_equal(out[s].n, 5);
        for (int32_t i = 0; i < 5; i++) {
            const nm_hypothesis *h = &out[s].list[i];
            int32_t words = nm_hypothesis_length(h, EOS);
            assert_true(i == 0 || h->score <= out[s].list[i - 1].score);
            assert_in_range(words, 2, 7);
            for (int32_t w = 0; w < words; w++)
                assert_true(h->ids[w] != PAD && h->ids[w] != EOS);
            for (int32_t j = 0; j < i; j++)
                assert_true(out[s].list[j].n != h->n ||
                            memcmp(out[s].list[j].ids, h->ids, (size_t)h->n * sizeof(int32_t)) != 0);
        }
    }
    release_all(out, SOURCES);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void test_nbest(void **state)
{
    (void)state;
    check_nbest("fairseq");
    check_nbest("tears");
}

/* ---- ensembles ---- */

static void test_ensemble(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    static const char *const settings[] = {"decode.beam", "3", NULL};
    tiny a = tiny_create(backend, WORDS, 31, settings), b = tiny_create(backend, WORDS, 32, settings);
    corpus *text = random_corpus();
    nm_model *both[] = {a.model, b.model}, *twice[] = {a.model, a.model};
    nm_translation one[SOURCES], same[SOURCES], mixed[SOURCES];
    decode_all(&a.model, 1, decode_of(&a), text->list, SOURCES, one);
    decode_all(twice, 2, decode_of(&a), text->list, SOURCES, same);
    decode_all(both, 2, decode_of(&a), text->list, SOURCES, mixed);
    for (size_t s = 0; s < SOURCES; s++) {
        const nm_hypothesis *h = &mixed[s].list[0];
        assert_int_equal(one[s].list[0].n, same[s].list[0].n);
        assert_memory_equal(one[s].list[0].ids, same[s].list[0].ids,
                            (size_t)one[s].list[0].n * sizeof(int32_t));
        assert_true(fabs(one[s].list[0].score - same[s].list[0].score) < 1e-12);
        int32_t prefix[128] = {EOS};
        for (int32_t i = 0; i < h->n; i++) {
            double p[WORDS], q[WORDS];
            next_words(&a, &text->list[s], prefix, i + 1, p);
            next_words(&b, &text->list[s], prefix, i + 1, q);
            int32_t id = prefix[i + 1] = h->ids[i];
            assert_true(fabs(h->token_scores[i] - log((exp(p[id]) + exp(q[id])) / 2)) < 1e-12);
        }
    }
    release_all(one, SOURCES);
    release_all(same, SOURCES);
    release_all(mixed, SOURCES);
    free(text);
    tiny_release(&a);
    tiny_release(&b);
    nm_backend_free(backend);
}

/* ---- forced decoding ---- */

/* Scores every translation of the search; batches differ from those of the search. */
static void check_forced(const char *name, nm_dtype dtype, const char *search, int32_t n_models)
{
    const char *const settings[] = {"decode.beam", "4",          "decode.nbest", "4", "decode.search",
                                    search,        "model.norm", "power",        NULL};
    nm_backend *backend = backend_of(name, dtype, 2, false);
    tiny made[2] = {tiny_create(backend, WORDS, 5, settings), tiny_create(backend, WORDS, 6, settings)};
    nm_model *models[] = {made[0].model, made[1].model};
    corpus *text = random_corpus();
    nm_translation found[SOURCES], scored[4 * SOURCES];
    nm_id_list sources[4 * SOURCES], targets[4 * SOURCES];
    decode_all(models, n_models, decode_of(made), text->list, SOURCES, found);
    size_t n = 0;
    for (size_t s = 0; s < SOURCES; s++)
        for (int32_t i = 0; i < found[s].n; i++, n++) {
            sources[n] = text->list[s];
            targets[n] = (nm_id_list){found[s].list[i].ids, found[s].list[i].n};
        }
    nm_decoder *decoder;
    nm_error err = {0};
    if (nm_decoder_create(&decoder, models, n_models, decode_of(made), &special, &err) != NM_OK ||
        nm_decode_score(decoder, sources, targets, n, NULL, scored, &err) != NM_OK)
        fail_msg("%s", err.text);
    n = 0;
    for (size_t s = 0; s < SOURCES; s++)
        for (int32_t i = 0; i < found[s].n; i++, n++)
            assert_same(&scored[n], &(nm_translation){&found[s].list[i], 1});
    assert_true(n > 3 * SOURCES);
    nm_decoder_free(decoder);
    release_all(found, SOURCES);
    release_all(scored, n);
    free(text);
    for (int i = 0; i < 2; i++)
        tiny_release(&made[i]);
    nm_backend_free(backend);
}

static void test_forced_as_in_the_search(void **state)
{
    (void)state;
    for (int32_t n_models = 1; n_models <= 2; n_models++) {
        check_forced("ref", NM_F64, "fairseq", n_models);
        check_forced("ref", NM_F32, "tears", n_models);
        check_forced("cpu", NM_F32, "fairseq", n_models);
        check_forced("cpu", NM_F32, "tears", n_models);
    }
}

/* A target of more tokens than a step has, against the model without a KV cache; a token that may not be output. */
static void test_forced_targets(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.max_positions", "1500", NULL};
    enum { LONG = 1200 };
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 8, settings);
    corpus *text = random_corpus();
    int32_t *prefix = nm_allocate((LONG + 1) * sizeof *prefix);
    prefix[0] = EOS;
    for (int32_t i = 1; i < LONG; i++)
        prefix[i] = FIRST_WORD + i * 7 % 5;
    prefix[LONG] = EOS;
    const nm_id_list sources[] = {text->list[3], text->list[4], text->list[5], text->list[6]},
                     targets[] = {
                         {prefix + 1, LONG}, {prefix + LONG, 1}, {prefix, 0}, {prefix + LONG - 3, 4}};
    const int32_t source_offsets[] = {0, sources[0].n}, target_offsets[] = {0, LONG};
    nm_packing packed = {1, sources[0].n, sources[0].n, source_offsets, NULL},
               fed = {1, LONG, LONG, target_offsets, NULL};
    double *want = teacher_forced(&made, &packed, sources[0].ids, &fed, prefix);
    nm_translation out[4];
    nm_decoder *decoder;
    nm_error err = {0};
    uint8_t allowed[WORDS];
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err), NM_OK);
    assert_int_equal(nm_decode_score(decoder, sources, targets, 4, NULL, out, &err), NM_OK);
    assert_int_equal(out[2].n, 0);
    assert_int_equal(out[1].list[0].n, 1);
    for (int32_t t = 0; t < LONG; t++)
        assert_true(fabs(out[0].list[0].token_scores[t] - want[t * WORDS + prefix[t + 1]]) < 1e-12);
    release_all(out, 4);
    memset(allowed, 1, sizeof allowed);
    allowed[prefix[LONG - 2]] = 0;
    assert_int_equal(nm_model_allow(made.model, allowed, &err), NM_OK);
    assert_int_equal(nm_decode_score(decoder, sources, targets, 4, NULL, out, &err), NM_OK);
    assert_true(out[3].list[0].token_scores[1] == -INFINITY && out[3].list[0].score == -INFINITY);
    assert_true(isfinite(out[3].list[0].token_scores[2]));
    release_all(out, 4);
    nm_decoder_free(decoder);
    free(want);
    free(prefix);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* ---- attention ---- */

/* Probabilities of each head and their mean. */
static void test_attention(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    tiny made = tiny_create(backend, WORDS, 3, NULL);
    corpus *text = random_corpus();
    nm_decoder *decoder;
    nm_error err = {0};
    nm_translation out[3][SOURCES];
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err), NM_OK);
    assert_int_equal(nm_decoder_layers(decoder), 2);
    assert_int_equal(nm_decoder_heads(decoder), 2);
    for (int32_t head = -1; head < 2; head++)
        assert_int_equal(nm_decode_score(decoder, text->list, text->list, SOURCES,
                                         &(nm_attention_choice){1, head}, out[head + 1], &err),
                         NM_OK);
    bool peaked = false;
    for (size_t s = 0; s < SOURCES; s++) {
        int32_t n = text->list[s].n;
        for (int32_t t = 0; t < n; t++) {
            double sum = 0;
            for (int32_t i = t * n; i < (t + 1) * n; i++) {
                const double mean = out[0][s].list[0].attention[i], a = out[1][s].list[0].attention[i],
                             b = out[2][s].list[0].attention[i];
                assert_true(fabs(mean - (a + b) / 2) < 1e-12);
                peaked |= fabs(a - 1.0 / n) > 1e-3 && fabs(a - b) > 1e-3;
                sum += a;
            }
            assert_true(fabs(sum - 1) < 1e-12);
        }
    }
    assert_true(peaked);
    nm_translation wrong[SOURCES];
    const nm_attention_choice none[] = {{2, 0}, {-1, 0}, {0, 2}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(nm_decode_score(decoder, text->list, text->list, SOURCES, &none[i], wrong, &err),
                         NM_USAGE);
    for (int i = 0; i < 3; i++)
        release_all(out[i], SOURCES);
    nm_decoder_free(decoder);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* ---- samples ---- */

/* The probabilities of the first token, recomputed: temperature, then the top_k most probable, then the fewest of them with the
 * mass top_p. */
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

/* With temperature 0 a sample is the greedy translation; samples do not depend on other sentences, batches or threads. */
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

/* ---- diverse beam search ---- */

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
        nm_hypothesis each[2] = {groups[s].list[0], groups[s].list[2]};
        bool differ = false;
        assert_same(&(nm_translation){each, 2}, &one[s]); /* both groups find the same */
        assert_int_equal(groups[s].n, 4);
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

/* ---- prefixes ---- */

static void check_prefixes(const char *search)
{
    const char *const settings[] = {
        "decode.search",       search, "decode.beam", "3", "decode.nbest", "3", "decode.max_length_a", "0",
        "decode.max_length_b", "4",    NULL};
    nm_backend *backend = backend_of("cpu", NM_F32, 1, false);
    tiny made = tiny_create(backend, WORDS, 15, settings);
    corpus *text = random_corpus();
    nm_id_list prefixes[SOURCES];
    const int32_t longest[64] = {FIRST_WORD};
    for (int32_t s = 0; s < SOURCES; s++) /* of 0 to 6 tokens, more than the limit of 4 */
        prefixes[s] =
            (nm_id_list){text->ids[(s + 5) % SOURCES], s % 7 < 2 ? 0 : text->list[(s + 5) % SOURCES].n / 2};
    nm_translation out[SOURCES], free_out[SOURCES], scored;
    nm_decoder *decoder;
    nm_error err = {0};
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err), NM_OK);
    assert_int_equal(nm_decode_prefixes(decoder, text->list, prefixes, SOURCES, out, &err), NM_OK);
    assert_int_equal(nm_decode(decoder, text->list, SOURCES, free_out, &err), NM_OK);
    for (int32_t s = 0; s < SOURCES; s++) {
        assert_true(out[s].n > 0);
        if (!prefixes[s].n)
            assert_same(&out[s], &free_out[s]);
        for (int32_t i = 0; i < out[s].n; i++) {
            const nm_hypothesis *h = &out[s].list[i];
            assert_true(h->n >= prefixes[s].n);
            assert_memory_equal(h->ids, prefixes[s].ids, (size_t)prefixes[s].n * sizeof(int32_t));
            assert_int_equal(
                nm_decode_score(decoder, &text->list[s], &(nm_id_list){h->ids, h->n}, 1, NULL, &scored, &err),
                NM_OK);
            assert_same(&scored, &(nm_translation){&out[s].list[i], 1});
            nm_translation_release(&scored);
        }
    }
    release_all(out, SOURCES);
    release_all(free_out, SOURCES);
    assert_int_equal(nm_decode_prefixes(decoder, text->list, &(nm_id_list){longest, 64}, 1, out, &err),
                     NM_OK);
    assert_int_equal(out[0].n, 0);
    nm_decoder_free(decoder);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

static void test_prefixes(void **state)
{
    (void)state;
    check_prefixes("fairseq");
    check_prefixes("tears");
    check_prefixes("sample");
}

/* ---- sources that cannot be translated ---- */

static void test_refused(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, true);
    tiny made = tiny_create(backend, WORDS, 1, NULL), other = tiny_create(backend, WORDS + 1, 1, NULL);
    int32_t longest[65];
    for (int i = 0; i < 65; i++)
        longest[i] = i % 65 == 64 ? EOS : FIRST_WORD;
    const nm_id_list sources[] = {{longest, 65}, {longest + 1, 64}, {longest, 0}};
    nm_translation out[3];
    decode_all(&made.model, 1, decode_of(&made), sources, 3, out);
    assert_int_equal(out[0].n, 0); /* exceeds the position table */
    assert_int_equal(out[1].n, 1);
    assert_int_equal(out[2].n, 0);
    release_all(out, 3);

    nm_decoder *decoder;
    nm_error err = {0};
    nm_model *both[] = {made.model, other.model};
    assert_int_equal(nm_decoder_create(&decoder, both, 2, decode_of(&made), &special, &err), NM_MISMATCH);

    nm_mat weight = nm_tensor_mat(nm_seq2seq_of(made.model)->output_weight);
    NM_CALL(backend, scale, .alpha = NAN, .x = weight, .y = weight);
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err), NM_OK);
    assert_int_equal(nm_decode(decoder, sources, 3, out, &err), NM_DIVERGED);
    assert_null(out[1].list);
    nm_decoder_free(decoder);
    tiny_release(&made);
    tiny_release(&other);
    nm_backend_free(backend);
}

/* Several threads: one batch fails, the results of the others are released, and the decoder can be used again. */
static void test_failing_batch(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("cpu", NM_F32, 3, false);
    tiny made = tiny_create(backend, WORDS, 1, NULL);
    corpus *text = random_corpus();
    nm_translation out[SOURCES];
    nm_decoder *decoder;
    nm_error err = {0};
    nm_mat weight = nm_tensor_mat(nm_seq2seq_of(made.model)->output_weight);
    nm_mat row = nm_mat_of((float *)weight.data + (size_t)EOS * (size_t)weight.cols, 1, weight.cols);
    float *kept = nm_allocate((size_t)weight.cols * sizeof *kept);
    nm_backend_download(backend, kept, row.data, (size_t)weight.cols * sizeof *kept);
    NM_CALL(backend, scale, .alpha = NAN, .x = row, .y = row);
    assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err), NM_OK);
    assert_int_equal(nm_decode(decoder, text->list, SOURCES, out, &err), NM_DIVERGED);
    assert_non_null(strstr(err.text, "not finite"));
    for (size_t i = 0; i < SOURCES; i++)
        assert_null(out[i].list);
    nm_backend_upload(backend, row.data, kept, (size_t)weight.cols * sizeof *kept);
    assert_int_equal(nm_decoder_refresh(decoder, &err), NM_OK);
    assert_int_equal(nm_decode(decoder, text->list, SOURCES, out, &err), NM_OK);
    assert_int_equal(out[0].n, 1);
    release_all(out, SOURCES);
    nm_decoder_free(decoder);
    free(kept);
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy),
                                       cmocka_unit_test(test_length_penalties),
                                       cmocka_unit_test(test_exhaustive),
                                       cmocka_unit_test(test_independence),
                                       cmocka_unit_test(test_nbest),
                                       cmocka_unit_test(test_ensemble),
                                       cmocka_unit_test(test_forced_as_in_the_search),
                                       cmocka_unit_test(test_forced_targets),
                                       cmocka_unit_test(test_attention),
                                       cmocka_unit_test(test_sample_frequencies),
                                       cmocka_unit_test(test_samples),
                                       cmocka_unit_test(test_diverse_beam_search),
                                       cmocka_unit_test(test_prefixes),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_failing_batch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
