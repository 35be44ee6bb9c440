/* Given translations and prefixes of translations: their scores are those of the search, the attention is
 * that of the model. */
#include "decode_search.h"

/* Scores every translation of the search; batches differ from those of the search, and so do the rows of the
 * KV cache. Frees the backend. */
static void check_forced(nm_backend *backend, bool int8, const char *search, int32_t n_models)
{
    const char *const settings[] = {"decode.beam", "4",          "decode.nbest", "4", "decode.search",
                                    search,        "model.norm", "power",        NULL};
    tiny made[2] = {tiny_create(backend, WORDS, 5, settings), tiny_create(backend, WORDS, 6, settings)};
    nm_model *models[] = {made[0].model, made[1].model};
    for (int i = 0; int8 && i < 2; i++)
        to_int8(models[i]);
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
        check_forced(backend_of("ref", NM_F64, 2, false), false, "fairseq", n_models);
        check_forced(backend_of("ref", NM_F32, 2, false), false, "tears", n_models);
        check_forced(backend_of("cpu", NM_F32, 2, false), false, "fairseq", n_models);
        check_forced(backend_of("cpu", NM_F32, 2, false), false, "tears", n_models);
        check_forced(bf16_backend_of("ref", 2, false), false, "fairseq", n_models);
        check_forced(bf16_backend_of("cpu", 2, false), false, "tears", n_models);
        check_forced(backend_of("ref", NM_F64, 2, false), true, "tears", n_models);
        check_forced(backend_of("cpu", NM_F32, 2, false), true, "fairseq", n_models);
    }
}

/* A target with more tokens than a step processes, compared with the model without a KV cache; a token that
 * must not be generated. */
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

/* Attention weights of each source as its own translation: out[0] is the mean of the heads, out[h + 1] head
 * h. */
static void attention_of(nm_decoder *decoder, const corpus *text, nm_translation out[3][SOURCES])
{
    nm_error err = {0};
    for (int32_t head = -1; head < 2; head++)
        assert_int_equal(nm_decode_score(decoder, text->list, text->list, SOURCES,
                                         &(nm_attention_choice){1, head}, out[head + 1], &err),
                         NM_OK);
}

/* The weights of a bf16 cache are near those of a float cache. */
static void test_attention_in_bf16(void **state)
{
    (void)state;
    nm_translation out[2][3][SOURCES];
    corpus *text = random_corpus();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        nm_backend *backend = bf16 ? bf16_backend_of("ref", 1, true) : backend_of("ref", NM_F32, 1, true);
        tiny made = tiny_create(backend, WORDS, 3, NULL);
        nm_decoder *decoder;
        nm_error err = {0};
        assert_int_equal(nm_decoder_create(&decoder, &made.model, 1, decode_of(&made), &special, &err),
                         NM_OK);
        attention_of(decoder, text, out[bf16]);
        nm_decoder_free(decoder);
        tiny_release(&made);
        nm_backend_free(backend);
    }
    for (int i = 0; i < 3; i++)
        for (size_t s = 0; s < SOURCES; s++) {
            const nm_hypothesis *rounded = out[1][i][s].list, *plain = out[0][i][s].list;
            for (int32_t j = 0; j < text->list[s].n * text->list[s].n; j++)
                assert_true(fabs(rounded->attention[j] - plain->attention[j]) < 0.01);
        }
    for (int i = 0; i < 6; i++)
        release_all(out[i / 3][i % 3], SOURCES);
    free(text);
}

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
    attention_of(decoder, text, out);
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
    assert_int_equal(nm_decode_prefixes(decoder, text->list, prefixes, NULL, SOURCES, out, &err), NM_OK);
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
    assert_int_equal(nm_decode_prefixes(decoder, text->list, &(nm_id_list){longest, 64}, NULL, 1, out, &err),
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forced_as_in_the_search), cmocka_unit_test(test_forced_targets),
        cmocka_unit_test(test_attention), cmocka_unit_test(test_attention_in_bf16),
        cmocka_unit_test(test_prefixes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
