/* Incremental decoding with a KV cache equals the forward pass over the whole target, up to the rounding of a
 * bf16 cache. */
#include "decode_model.h"

#include <math.h>

#include "model/token_scorer.h"

enum { N = 3, STEPS = 6 };

static const int32_t source_offsets[] = {0, 3, 8, 10};
static const int32_t source_ids[] = {5, 4, EOS, 3, 8, 7, 4, EOS, 6, EOS};
static const int32_t target_in[] = {EOS, 4, 5, 6, 3, 3, EOS, 8, 7, 8, 7, 3, EOS, 5, 5, 5, 4, 6};

static const nm_packing sources = {.n_seqs = N, .n_tokens = 10, .longest = 5, .offsets = source_offsets};

/* One step of all sequences; in odd steps in reverse order, so that the lists of cache rows are not
 * ranges. */
typedef struct feeder {
    int32_t seq[N], ids[N], row_of[N][STEPS]; /* row_of: cache row of each sequence's inputs */
    int32_t self_rows[N * STEPS], self_offsets[N + 1], cross_rows[10], cross_offsets[N + 1];
} feeder;

static nm_decode_step feed(feeder *f, int32_t t)
{
    int32_t n_self = 0, n_cross = 0;
    for (int32_t i = 0; i < N; i++) {
        int32_t s = f->seq[i] = t % 2 ? N - 1 - i : i;
        f->ids[i] = target_in[s * STEPS + t];
        f->row_of[s][t] = t * N + i;
        for (int32_t j = 0; j <= t; j++)
            f->self_rows[n_self++] = f->row_of[s][j];
        for (int32_t j = source_offsets[s]; j < source_offsets[s + 1]; j++)
            f->cross_rows[n_cross++] = j;
        f->self_offsets[i + 1] = n_self;
        f->cross_offsets[i + 1] = n_cross;
    }
    return (nm_decode_step){.n = N,
                            .position = t,
                            .ids = f->ids,
                            .first_row = t * N,
                            .self_rows = f->self_rows,
                            .self_offsets = f->self_offsets,
                            .cross_rows = f->cross_rows,
                            .cross_offsets = f->cross_offsets};
}

static void check_against_full(nm_backend *backend, const char *const *settings, bool int8, double most)
{
    tiny made = tiny_create(backend, WORDS, 7, settings);
    if (int8)
        to_int8(made.model);
    const int32_t target_offsets[] = {0, STEPS, 2 * STEPS, 3 * STEPS};
    nm_packing targets = {.n_seqs = N, .n_tokens = N * STEPS, .longest = STEPS, .offsets = target_offsets};
    double *full = teacher_forced(&made, &sources, source_ids, &targets, target_in);
    nm_token_scorer scorer;
    nm_error err = {0};
    feeder f = {0};
    assert_int_equal(nm_token_scorer_init(&scorer, &made.model, 1, EOS, WORDS, &err), NM_OK);
    assert_int_equal(nm_token_scorer_refresh(&scorer, &err), NM_OK);
    assert_int_equal(nm_token_scorer_start(&scorer, &sources, source_ids, &err), NM_OK);
    for (int32_t t = 0; t < STEPS; t++) {
        nm_decode_step step = feed(&f, t);
        assert_int_equal(nm_token_scorer_step(&scorer, &step, &err), NM_OK);
        for (int32_t i = 0; i < N; i++) {
            const double *expected = full + (size_t)(f.seq[i] * STEPS + t) * WORDS;
            for (int32_t k = 0; k < WORDS; k++)
                assert_true(fabs(scorer.values[i * WORDS + k] - expected[scorer.columns[i * WORDS + k]]) <
                            most);
            assert_true(fabs(scorer.eos_values[i] - expected[EOS]) < most);
        }
    }
    nm_token_scorer_release(&scorer);
    free(full);
    tiny_release(&made);
}

static void test_variants(void **state)
{
    (void)state;
    static const char *const variants[][13] = {
        {"model.norm", "layer", NULL},
        {"model.norm", "layer", "model.norm_position", "post", "model.output_bias", "true", NULL},
        {"model.norm", "scale", "model.fixnorm", "true", "model.positions", "tears", NULL},
        {"model.norm", "batch", "model.share_embeddings", "none", NULL},
        {"model.norm", "power", "model.decoder_norm", "power", "model.share_embeddings", "decoder",
         "model.fixnorm", "true", NULL},
        {"model.norm", "rms", "model.encoder_layers", "1", "model.heads", "4", NULL},
        {"model.norm_position", "sandwich", "model.embedding_norm", "rms", "model.gated", "true", NULL},
        {"model.norm_position", "inside", "model.residual", "layerscale", "model.bias", "false", NULL},
        {"model.norm_position", "post", "model.residual", "resi-dual", NULL},
        {"model.norm_position", "sub", "model.residual", "depth-scaled", "model.activation", "gelu", NULL},
        {"model.norm_position", "mix", "model.head_width", "6", NULL},
        {"model.rope", "half", "model.positions", "none", "model.key_value_heads", "1", NULL},
        {"model.rope", "interleaved", "model.qk_norm", "head", "model.v_norm", "head", NULL},
        {"model.qk_norm", "full", "model.key_value_heads", "1", "model.rope", "half",
         "model.qk_norm_after_rope", "true", "model.bias", "false", NULL}};
    nm_backend *backend = backend_of("ref", NM_F64, 1, false);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        check_against_full(backend, variants[i], false, 1e-12);
    nm_backend_free(backend);
}

/* Device memory is fenced: an access by host code crashes. */
static void test_fenced(void **state)
{
    (void)state;
    static const char *const settings[] = {"model.norm", "scale", "model.fixnorm", "true", NULL};
    nm_backend *backend = backend_of("ref", NM_F64, 1, true);
    check_against_full(backend, settings, false, 1e-12);
    nm_backend_free(backend);
}

static void (*attend)(nm_backend *backend, const nm_attention_cached_args *args);
static int calls, bf16_calls;

static void count_calls(nm_backend *backend, const nm_attention_cached_args *args)
{
    const size_t bytes = args->bf16 ? sizeof(uint16_t) : nm_dtype_bytes(backend->dtype);
    assert_int_equal((const char *)args->v.data - (const char *)args->k.data, (size_t)args->k.cols * bytes);
    assert_int_equal(args->k.stride, args->k.cols + args->v.cols);
    calls++;
    bf16_calls += args->bf16;
    attend(backend, args);
}

/* The settings are those of layers whose keys and values are written by the linear layer, and of other
 * layers. Frees the backend. */
static void check_precision(nm_backend *backend, bool int8, bool bf16_cache, double most)
{
    static const char *const settings[][5] = {{"model.norm", "layer", NULL},
                                              {"model.rope", "half", "model.key_value_heads", "1", NULL}};
    attend = backend->k.attention_cached;
    backend->k.attention_cached = count_calls;
    for (int i = 0; i < 2; i++) {
        calls = bf16_calls = 0;
        check_against_full(backend, settings[i], int8, most);
        assert_int_equal(calls, 2 * 2 * STEPS); /* layers, self-attention and cross-attention */
        assert_int_equal(bf16_calls, bf16_cache ? calls : 0);
    }
    backend->k.attention_cached = attend;
    nm_backend_free(backend);
}

/* If the rows of two hypotheses are exchanged, a log probability changes by 0.17 or more. */
static void test_precisions(void **state)
{
    (void)state;
    check_precision(backend_of("ref", NM_F32, 1, true), false, false, 1e-5);
    check_precision(backend_of("cpu", NM_F32, 1, false), false, false, 1e-5);
    check_precision(bf16_backend_of("ref", 1, true), false, true, 0.05);
    check_precision(bf16_backend_of("cpu", 1, false), false, true, 0.05);
    check_precision(backend_of("ref", NM_F64, 1, true), true, true, 0.1);
    check_precision(backend_of("cpu", NM_F32, 1, false), true, true, 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_variants), cmocka_unit_test(test_fenced),
                                       cmocka_unit_test(test_precisions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
