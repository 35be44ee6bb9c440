/* Decoding: greedy search, beam search against exhaustive search, results that do not depend on batches and
 * threads. */
#include "model/beam.h"
#include "decode_search.h"

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

/* A second restriction replaces the first one, in the same memory. */
static void test_allowed_tokens(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made = tiny_create(backend, WORDS, 1, NULL);
    corpus *text = random_corpus();
    nm_error err = {0};
    const uint8_t *memory = NULL;
    for (int32_t word = FIRST_WORD; word < FIRST_WORD + 2; word++) {
        uint8_t allowed[WORDS] = {[EOS] = 1};
        allowed[word] = 1;
        assert_int_equal(nm_model_allow(made.model, allowed, &err), NM_OK);
        assert_true(!memory || memory == made.model->allowed);
        memory = made.model->allowed;
        nm_translation out;
        decode_all(&made.model, 1, decode_of(&made), text->list, 1, &out);
        assert_true(out.list[0].n > 1);
        for (int32_t i = 0; i < out.list[0].n; i++)
            assert_int_equal(out.list[0].ids[i], i + 1 < out.list[0].n ? word : EOS);
        release_all(&out, 1);
    }
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

/* Translations with a batch size, a number of threads and the sources rotated by `turn`, in the order of the
 * corpus. */
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

/* Sets the output bias of pad, eos and unk, which makes them more probable than all words. */
static void prefer_special(tiny *made, double value)
{
    nm_tensor *bias = nm_seq2seq_of(made->model)->output_bias;
    double values[WORDS] = {[PAD] = value, [EOS] = value, [UNK] = value};
    nm_backend_upload(made->backend, bias->data, values, sizeof values);
}

static int32_t count_unknown(const nm_hypothesis *h)
{
    int32_t n = 0;
    for (int32_t i = 0; i < h->n; i++)
        n += h->ids[i] == UNK;
    return n;
}

/* The log probabilities of the tokens are those of the models, in which unk keeps its probability. */
static void assert_model_scores(tiny *models, int32_t n_models, const nm_id_list *source,
                                const nm_hypothesis *h)
{
    int32_t prefix[128] = {EOS};
    for (int32_t i = 0; i < h->n; i++) {
        double next[WORDS], mean = 0;
        for (int32_t m = 0; m < n_models; m++) {
            next_words(&models[m], source, prefix, i + 1, next);
            mean += exp(next[h->ids[i]]) / n_models;
        }
        prefix[i + 1] = h->ids[i];
        assert_true(fabs(h->token_scores[i] - log(mean)) < 1e-12);
    }
}

static void check_unknown(nm_decode_options options, tiny *models, int32_t n_models, const corpus *text)
{
    nm_model *const list[] = {models[0].model, models[1].model};
    nm_translation with[SOURCES], without[SOURCES];
    int32_t n = 0;
    options.unknown = true;
    decode_all(list, n_models, &options, text->list, SOURCES, with);
    options.unknown = false;
    decode_all(list, n_models, &options, text->list, SOURCES, without);
    for (size_t s = 0; s < SOURCES; s++) {
        for (int32_t i = 0; i < with[s].n; i++)
            n += count_unknown(&with[s].list[i]);
        assert_in_range(without[s].n, options.diverse_groups > 1 ? 1 : options.nbest, options.nbest);
        for (int32_t i = 0; i < without[s].n; i++) {
            assert_true(without[s].list[i].n > 1);
            assert_int_equal(count_unknown(&without[s].list[i]), 0);
            assert_model_scores(models, n_models, &text->list[s], &without[s].list[i]);
        }
    }
    assert_true(n > 0);
    release_all(with, SOURCES);
    release_all(without, SOURCES);
}

/* A prefix and a constraint may contain unk; the tokens after them do not. */
static void check_forced_unknown(nm_decode_options options, tiny *made, const corpus *text)
{
    const int32_t unk = UNK;
    const nm_id_list prefix = {&unk, 1};
    const nm_phrase phrase = {.ids = &unk, .n = 1};
    const nm_constraints constraints = {.phrases = &phrase, .n = 1};
    nm_decoder *decoder;
    nm_error err = {0};
    options.unknown = false;
    assert_int_equal(nm_decoder_create(&decoder, &made->model, 1, &options, &special, &err), NM_OK);
    for (int constrained = 0; constrained < 2; constrained++) {
        nm_translation out;
        assert_int_equal(nm_decode_prefixes(decoder, text->list, constrained ? NULL : &prefix,
                                            constrained ? &constraints : NULL, 1, &out, &err),
                         NM_OK);
        assert_true(out.n > 0);
        for (int32_t i = 0; i < out.n; i++) {
            assert_int_equal(count_unknown(&out.list[i]), 1);
            assert_true(constrained || out.list[i].ids[0] == UNK);
        }
        nm_translation_release(&out);
    }
    nm_decoder_free(decoder);
}

static void test_unknown(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "model.output_bias", "true", "decode.max_length_b", "4", "decode.min_length", "1", NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    tiny made[2] = {tiny_create(backend, WORDS, 41, settings), tiny_create(backend, WORDS, 42, settings)};
    corpus *text = random_corpus();
    prefer_special(&made[0], 8);
    prefer_special(&made[1], 8);
    for (int32_t n_models = 1; n_models <= 2; n_models++)
        for (int search = NM_SEARCH_FAIRSEQ; search <= NM_SEARCH_SAMPLE; search++)
            for (int beam = 1; beam <= 4; beam += 3) {
                nm_decode_options options = *decode_of(&made[0]);
                options.search = search;
                options.beam = options.nbest = beam;
                check_unknown(options, made, n_models, text);
                options.diverse_groups = 2;
                if (beam == 4 && search != NM_SEARCH_SAMPLE)
                    check_unknown(options, made, n_models, text);
            }
    check_forced_unknown(*decode_of(&made[0]), &made[0], text);
    free(text);
    tiny_release(&made[0]);
    tiny_release(&made[1]);
    nm_backend_free(backend);
}

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

/* Several threads: one batch fails, the results of the others are released, and the decoder can be used
 * again. */
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

static void decode_with(tiny *made, const nm_special_tokens *tokens, const nm_id_list *source,
                        const nm_id_list *prefix, nm_translation *out)
{
    nm_decoder *decoder;
    nm_error err = {0};
    if (nm_decoder_create(&decoder, &made->model, 1, decode_of(made), tokens, &err) != NM_OK ||
        nm_decode_prefixes(decoder, source, prefix, NULL, 1, out, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_free(decoder);
}

/* Whether an n-gram of this size occurs twice. */
static bool repeats(const int32_t *ids, int32_t n, int32_t size)
{
    for (int32_t a = 0; a + size <= n; a++)
        for (int32_t b = a + 1; b + size <= n; b++)
            if (!memcmp(ids + a, ids + b, (size_t)size * sizeof *ids))
                return true;
    return false;
}

static void test_no_ngram_twice(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    corpus *text = random_corpus();
    int32_t repeated = 0;
    for (int search = 0; search < 3; search++)
        for (int32_t size = 0; size <= 3; size++) {
            char number[8];
            snprintf(number, sizeof number, "%d", size);
            const char *const settings[] = {"decode.no_repeat_ngram_size",
                                            number,
                                            "decode.search",
                                            search == 0   ? "fairseq"
                                            : search == 1 ? "tears"
                                                          : "sample",
                                            "decode.max_length_a",
                                            "0",
                                            "decode.max_length_b",
                                            "9",
                                            "decode.min_length",
                                            "6",
                                            NULL};
            tiny made = tiny_create(backend, WORDS, 21, settings);
            nm_translation out[SOURCES];
            decode_all(&made.model, 1, decode_of(&made), text->list, SOURCES, out);
            for (int32_t s = 0; s < SOURCES; s++) {
                assert_true(out[s].n > 0);
                for (int32_t i = 0; i < out[s].n; i++) {
                    const nm_hypothesis *h = &out[s].list[i];
                    int32_t n = nm_hypothesis_length(h, EOS);
                    if (size)
                        assert_false(repeats(h->ids, n, size));
                    else
                        repeated += repeats(h->ids, n, 2);
                    /* scores are those of the model: blocked tokens give their probability to no other */
                    double next[WORDS];
                    int32_t fed[16] = {EOS};
                    for (int32_t t = 0; t < h->n && search < 2; t++) {
                        next_words(&made, &text->list[s], fed, t + 1, next);
                        assert_true(fabs(next[h->ids[t]] - h->token_scores[t]) < 1e-9);
                        fed[t + 1] = h->ids[t];
                    }
                }
            }
            release_all(out, SOURCES);
            tiny_release(&made);
        }
    assert_true(repeated > SOURCES); /* without the rule */
    free(text);
    nm_backend_free(backend);
}

/* log softmax of the scores after the repetition penalty (Keskar et al. 2019) for the tokens so far. */
static void penalized(double scores[WORDS], const int32_t *ids, int32_t n, double penalty)
{
    bool seen[WORDS] = {false};
    double sum = 0;
    for (int32_t t = 0; t < n; t++)
        if (!seen[ids[t]]) {
            double *x = &scores[ids[t]];
            *x = *x > 0 ? *x / penalty : *x * penalty;
            seen[ids[t]] = true;
        }
    for (int32_t v = 0; v < WORDS; v++)
        sum += exp(scores[v]);
    for (int32_t v = 0; v < WORDS; v++)
        scores[v] -= log(sum);
}

/* Greedy search with a penalty on the logits of one model, and on the log probabilities of an ensemble. */
static void test_repetition_penalty(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    corpus *text = random_corpus();
    const double penalty = 1.4;
    const char *const settings[] = {"decode.repetition_penalty",
                                    "1.4",
                                    "decode.beam",
                                    "1",
                                    "decode.max_length_a",
                                    "0",
                                    "decode.max_length_b",
                                    "6",
                                    "model.output_bias",
                                    "true",
                                    "decode.min_length",
                                    "5",
                                    NULL};
    tiny made = tiny_create(backend, WORDS, 33, settings);
    int32_t changed = 0, positive = 0;
    for (int32_t n_models = 1; n_models <= 2; n_models++) {
        nm_model *const models[] = {made.model, made.model};
        nm_translation out[SOURCES];
        decode_all(models, n_models, decode_of(&made), text->list, SOURCES, out);
        for (int32_t s = 0; s < SOURCES; s++) {
            int32_t fed[16] = {EOS};
            const nm_hypothesis *h = &out[s].list[0];
            for (int32_t t = 0; t < h->n; t++) {
                double scores[WORDS], plain[WORDS];
                next_scores(&made, &text->list[s], fed, t + 1, n_models > 1, scores);
                next_words(&made, &text->list[s], fed, t + 1, plain);
                for (int32_t i = 0; i < t; i++)
                    positive += scores[fed[1 + i]] > 0;
                penalized(scores, fed + 1, t, penalty);
                int32_t best = h->ids[t], unpenalized = FIRST_WORD;
                for (int32_t v = 0; v < WORDS && t < 6; v++) {
                    assert_true(v == PAD || (v == EOS && t < 5) || scores[v] <= scores[best] + 1e-9);
                    unpenalized =
                        v != PAD && (v != EOS || t >= 5) && plain[v] > plain[unpenalized] ? v : unpenalized;
                }
                changed += t < 6 && unpenalized != best;
                assert_true(fabs(h->token_scores[t] - scores[best]) < 1e-9);
                fed[t + 1] = best;
            }
        }
        release_all(out, SOURCES);
    }
    assert_true(changed > 3 && positive > 3);
    tiny_release(&made);
    free(text);
    nm_backend_free(backend);
}

/* Tokens that are no text are never chosen, also if they are the most probable ones, and not sampled. */
static void test_excluded(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    corpus *text = random_corpus();
    bool excluded[WORDS] = {false};
    nm_special_tokens tokens = special;
    static const char *const searches[] = {"fairseq", "tears", "sample"};
    for (int32_t v = FIRST_WORD; v < WORDS - 2; v++) { /* all words but two */
        excluded[v] = true;
        tokens.n_excluded++;
    }
    excluded[BOS] = true;
    tokens.n_excluded++;
    tokens.excluded = excluded;
    for (int search = 0; search < 3; search++) {
        const char *const settings[] = {"decode.search", searches[search], "decode.unknown", "false", NULL};
        tiny made = tiny_create(backend, WORDS, 21, settings);
        for (int32_t s = 0; s < SOURCES; s++) {
            nm_translation out;
            decode_with(&made, &tokens, &text->list[s], NULL, &out);
            assert_true(out.n > 0);
            for (int32_t t = 0; t < nm_hypothesis_length(&out.list[0], EOS); t++)
                assert_true(out.list[0].ids[t] >= WORDS - 2);
            nm_translation_release(&out);
        }
        tiny_release(&made);
    }
    free(text);
    nm_backend_free(backend);
}

/* A prefix that reaches the length limit is continued: the limit counts from its end. */
static void test_long_prefix(void **state)
{
    (void)state;
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    corpus *text = random_corpus();
    const char *const settings[] = {
        "decode.max_length_a", "0", "decode.max_length_b", "3", "decode.min_length", "0", NULL};
    tiny made = tiny_create(backend, WORDS, 21, settings);
    const int32_t ids[] = {FIRST_WORD, FIRST_WORD + 1, FIRST_WORD, FIRST_WORD + 1, FIRST_WORD};
    for (int32_t n = 1; n <= 5; n++) {
        const nm_id_list prefix = {ids, n};
        nm_decode_options *options = decode_of(&made);
        options->min_length = n + 1; /* one more token than the prefix */
        options->beam = 2;
        options->nbest = 2;
        nm_translation out;
        decode_with(&made, &special, &text->list[3], &prefix, &out);
        assert_int_equal(out.n, 2);
        int32_t length = nm_hypothesis_length(&out.list[0], EOS);
        assert_true(length <= (n < 3 ? 3 : n + 3));
        assert_true(length > n);
        assert_memory_equal(out.list[0].ids, ids, (size_t)n * sizeof *ids);
        nm_translation_release(&out);
    }
    free(text);
    tiny_release(&made);
    nm_backend_free(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),         cmocka_unit_test(test_length_penalties),
        cmocka_unit_test(test_exhaustive),     cmocka_unit_test(test_allowed_tokens),
        cmocka_unit_test(test_independence),   cmocka_unit_test(test_nbest),
        cmocka_unit_test(test_ensemble),       cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_refused),        cmocka_unit_test(test_failing_batch),
        cmocka_unit_test(test_no_ngram_twice), cmocka_unit_test(test_repetition_penalty),
        cmocka_unit_test(test_excluded),       cmocka_unit_test(test_long_prefix)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
