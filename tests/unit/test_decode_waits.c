/* How often the host waits for the device while it translates: once per step, for the best tokens of all
 * hypotheses, also with several models. The backend `emulated` counts. */
#include "decode_search.h"

#include "backend/device/launch.h"

enum { MODELS = 3 };

/* steps: launches of the kernel that finds the best tokens */
typedef struct counts {
    int64_t waits, steps;
} counts;

static const char *const settings[] = {"model.norm",          "layer", "decode.beam", "2",
                                       "decode.max_length_b", "4",     NULL};

/* Waits of a search with some models; forced: of the log probabilities of given texts, with their attention
 * if it is requested. */
static counts count(int32_t n_models, bool forced, const nm_attention_choice *attention)
{
    nm_backend *backend = backend_of("emulated", NM_F32, 1, false);
    tiny made[MODELS];
    nm_model *models[MODELS];
    for (int32_t m = 0; m < n_models; m++) {
        made[m] = tiny_create(backend, WORDS, 21 + (uint64_t)m, settings);
        models[m] = made[m].model;
    }
    corpus *text = random_corpus();
    nm_decoder *decoder;
    nm_translation out[SOURCES];
    nm_error err = {0};
    const counts before = {nm_backend_waits(backend), *nm_device_log_top_k.launches};
    if (nm_decoder_create(&decoder, models, n_models, decode_of(&made[0]), &special, &err) != NM_OK ||
        (forced ? nm_decode_score(decoder, text->list, text->list, SOURCES, attention, out, &err)
                : nm_decode(decoder, text->list, SOURCES, out, &err)) != NM_OK)
        fail_msg("%s", err.text);
    const counts after = {nm_backend_waits(backend) - before.waits,
                          *nm_device_log_top_k.launches - before.steps};
    nm_decoder_free(decoder);
    release_all(out, SOURCES);
    free(text);
    for (int32_t m = 0; m < n_models; m++)
        tiny_release(&made[m]);
    nm_backend_free(backend);
    return after;
}

static void print(const char *what, counts c)
{
    printf("%s: %lld steps, %lld waits\n", what, (long long)c.steps, (long long)c.waits);
}

static void test_search(void **state)
{
    (void)state;
    const counts one = count(1, false, NULL), ensemble = count(MODELS, false, NULL);
    print("one model", one);
    print("three models", ensemble);
    assert_true(one.steps > 4 && ensemble.steps > 4);
    assert_int_equal(one.waits, one.steps);
    assert_int_equal(ensemble.waits, ensemble.steps);
}

/* The queries of a layer are copied in each step, its keys once. */
static void test_attention(void **state)
{
    (void)state;
    const nm_attention_choice mean = {1, -1};
    const counts plain = count(1, true, NULL), weights = count(1, true, &mean);
    print("given texts", plain);
    print("with attention", weights);
    assert_true(plain.steps > 0 && plain.steps == weights.steps);
    assert_int_equal(plain.waits, plain.steps);
    assert_int_equal(weights.waits, 2 * weights.steps + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_search), cmocka_unit_test(test_attention)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
