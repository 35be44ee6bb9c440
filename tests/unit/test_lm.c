/* Language models: segments, scoring of a text, adaptive softmax as a distribution, windows. threads = 1. */
#include "lm_rig.h"

static char *warning_of(const char *attention, const char *context)
{
    rig r;
    rig_open(&r, (const char *const[]){"model.attention", attention, "model.context", context, NULL});
    char *text = nm_model_lm.warning(r.model);
    rig_close(&r);
    return text;
}

static void test_long_contexts_of_block_term_attention_are_warned_about(void **state)
{
    (void)state;
    assert_null(warning_of("block-term", "128"));
    assert_null(warning_of("softmax", "256"));
    char *text = warning_of("block-term", "256");
    assert_non_null(text);
    assert_non_null(strstr(text, "model.context = 256"));
    assert_non_null(strstr(text, " 4.0 times"));
    free(text);
}

static void test_segments_cover_the_text(void **state)
{
    (void)state;
    static const int32_t ids[23] = {0};
    nm_lm_segments s;
    nm_error err;
    for (int64_t streams = 1; streams <= 3; streams++) {
        bool seen[23] = {false};
        check(nm_lm_segments_make(&s, ids, 23, streams, 5, true, 2, &err), &err);
        for (int64_t i = 0; i < s.streams * s.per_stream; i++) {
            int32_t length;
            int64_t begin = nm_lm_segment_begin(&s, i, &length);
            assert_true(length >= 1 && length <= 5);
            assert_int_equal(begin / (23 / streams), i % streams); /* the stream it belongs to */
            for (int32_t t = 0; t < length; t++) {
                assert_false(seen[begin + t]);
                seen[begin + t] = true;
            }
        }
        for (int64_t i = 0; i < 23; i++)
            assert_int_equal(seen[i], i < 23 / streams * streams);
    }
    check(nm_lm_segments_make(&s, ids, 23, 2, 5, false, 2, &err), &err);
    assert_int_equal(s.per_stream, 2);
    assert_int_equal(nm_lm_segments_make(&s, ids, 4, 1, 5, false, 2, &err), NM_USAGE);
    assert_int_equal(nm_lm_segments_make(&s, ids, 2, 3, 5, true, 2, &err), NM_USAGE);
}

static void test_inputs_are_preceding_tokens(void **state)
{
    (void)state;
    static const int32_t ids[] = {10, 11, 12, 13, 14, 15};
    static const int64_t begins[] = {0, 3};
    static const int32_t lengths[] = {3, 2};
    static const int32_t in[] = {2, 10, 11, 12, 13}, out[] = {10, 11, 12, 13, 14}, pos[] = {0, 1, 2, 0, 1};
    nm_arena arena;
    nm_arena_init(&arena, 1 << 20);
    nm_batch batch = nm_lm_pack(ids, 2, begins, NULL, lengths, 2, &arena);
    assert_int_equal(batch.tokens, 5);
    assert_int_equal(batch.target.longest, 3);
    assert_memory_equal(batch.target_in, in, sizeof in);
    assert_memory_equal(batch.target_out, out, sizeof out);
    assert_memory_equal(batch.target_pos, pos, sizeof pos);
    nm_arena_release(&arena);
}

/* The clusters of a vocabulary of some size, or the message of the error. */
static nm_adaptive_clusters clusters_of(int32_t words, nm_error *err)
{
    nm_backend *backend;
    nm_backend_options device = {.name = "cpu", .threads = 1};
    check(nm_backend_create(&backend, &device, err), err);
    nm_options *options = nm_options_create();
    nm_model_options_add(options, &nm_model_lm);
    nm_norm_options_add(options);
    check(nm_options_set(options, "model.preset", "tiny", NM_ORIGIN_FILE, err), err);
    check(nm_options_set(options, "model.adaptive", "true", NM_ORIGIN_COMMAND, err), err);
    nm_model_sizes sizes = {.source = words, .target = words};
    nm_adaptive_clusters clusters = {0};
    nm_model *model;
    if (nm_model_create(&model, &nm_model_lm, backend, options, &sizes, false, err) == NM_OK) {
        clusters = ((const nm_lm *)model->parts)->clusters;
        nm_model_free(model);
    }
    nm_options_free(options);
    nm_backend_free(backend);
    return clusters;
}

static void test_cutoffs_adapt_to_the_vocabulary(void **state)
{
    (void)state;
    static const int32_t expected[][4] = {
        {14, 1, 2, 10}, {64008, 4800, 9601, 48006}, {267735, 20000, 40000, 200000}};
    nm_error err = {0};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        nm_adaptive_clusters clusters = clusters_of(expected[i][0], &err);
        assert_int_equal(clusters.n, 3);
        for (int k = 0; k < 3; k++)
            assert_int_equal(clusters.first[k], expected[i][k + 1]);
    }
    assert_int_equal(clusters_of(13, &err).n, 0);
    assert_non_null(strstr(err.text, "13 tokens"));
}

/* All blocks have NM_LM_BLOCK_TOKENS tokens, except the last one. */
static nm_lm_scored score_blocks(rig *r, int64_t n, int64_t context, int64_t max_tokens)
{
    nm_lm_scoring how = {.context = context, .max_tokens = max_tokens, .before = 2};
    nm_lm_scored scored = {0};
    nm_error err;
    check(nm_lm_score_ids(r->model, r->text, n, &how, &scored, &err), &err);
    assert_int_equal(scored.tokens, n);
    assert_int_equal(scored.n_blocks, (n + NM_LM_BLOCK_TOKENS - 1) / NM_LM_BLOCK_TOKENS);
    for (size_t i = 0; i < scored.n_blocks; i++) {
        int64_t rest = n - (int64_t)i * NM_LM_BLOCK_TOKENS;
        assert_int_equal(scored.counts[2 * i + 1], rest < NM_LM_BLOCK_TOKENS ? rest : NM_LM_BLOCK_TOKENS);
    }
    return scored;
}

static double score(rig *r, int64_t n, int64_t context, int64_t max_tokens)
{
    nm_lm_scored scored = score_blocks(r, n, context, max_tokens);
    double nll = scored.nll;
    nm_lm_scored_release(&scored);
    return nll;
}
/* Token by token: context c means at least min(c, all) tokens before it, in windows of SEGMENT. */
static double score_plainly(rig *r, int32_t n, int32_t context)
{
    nm_tape tape;
    nm_error err;
    double sum = 0;
    check(nm_tape_init(&tape, r->backend, (size_t)64 << 20, &err), &err);
    int32_t step = context ? SEGMENT - context + 1 : SEGMENT;
    for (int32_t i = 0; i < n; i++) {
        int32_t window = i < SEGMENT ? 0 : (i - SEGMENT) / step + 1; /* the window that scores it */
        sum += score_one(r, &tape, i, i - window * step + 1);
    }
    nm_tape_release(&tape);
    return sum;
}

static void assert_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * fabs(b)))
        fail_msg("%.10g is not %.10g", a, b);
}

static void test_scores_equal_single_tokens(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        rig_open(&r, kinds[kind]);
        for (int32_t context = 0; context <= SEGMENT; context += 2)
            assert_near(score(&r, TEXT, context, 1000), score_plainly(&r, TEXT, context), 1e-5);
        rig_close(&r);
    }
}

static void test_scores_do_not_depend_on_batches(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        rig_open(&r, kinds[kind]);
        for (int32_t context = 0; context <= SEGMENT; context += 3)
            for (int64_t n = 1; n <= TEXT; n += 7) {
                double whole = score(&r, n, context, 1000);
                for (int64_t tokens = 1; tokens < 40; tokens += 9)
                    assert_near(score(&r, n, context, tokens), whole, 1e-6);
            }
        rig_close(&r);
    }
}

/* The blocks of bootstrap resamples, so that paired tests compare the same tokens. */
static void test_blocks_do_not_depend_on_batches(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        rig_open(&r, kinds[kind]);
        for (int32_t context = 0; context <= SEGMENT; context += 3) {
            nm_lm_scored whole = score_blocks(&r, TEXT, context, 1000);
            for (int64_t tokens = 1; tokens < 100; tokens += 31) {
                nm_lm_scored scored = score_blocks(&r, TEXT, context, tokens);
                for (size_t i = 0; i < whole.n_blocks; i++)
                    assert_near((double)scored.counts[2 * i], (double)whole.counts[2 * i], 1e-6);
                nm_lm_scored_release(&scored);
            }
            nm_lm_scored_release(&whole);
        }
        rig_close(&r);
    }
}

/* The loss of the token that follows the five inputs before token 10, if input `changed` of them is another
 * word. */
static double loss_after_change(const char *const *settings, int32_t changed)
{
    enum { AT = 10, INPUTS = 5 };
    rig r;
    nm_tape tape;
    nm_error err;
    rig_open(&r, settings);
    check(nm_tape_init(&tape, r.backend, (size_t)64 << 20, &err), &err);
    if (changed < INPUTS)
        r.text[AT - INPUTS + changed] = (r.text[AT - INPUTS + changed] + 1) % WORDS;
    double loss = score_one(&r, &tape, AT, INPUTS);
    nm_tape_release(&tape);
    rig_close(&r);
    return loss;
}

/* In two layers, a window of two tokens reaches the last three inputs; a window of one token only the last;
 * one that is as long as the context all of them. */
static void test_windows_limit_what_a_token_depends_on(void **state)
{
    (void)state;
    static const struct {
        const char *const settings[9];
        int32_t reached;
    } cases[] = {{{"model.window", "2", NULL}, 3},
                 {{"model.window", "1", NULL}, 1},
                 {{"model.window", "5", NULL}, 5},
                 {{"model.window", "2", "model.global_every", "2", NULL}, 5},
                 {{"model.window", "2", "model.global_every", "3", NULL}, 3},
                 {{"model.window", "2", "model.rope", "half", "model.positions", "none", NULL}, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double unchanged = loss_after_change(cases[i].settings, INT32_MAX);
        for (int32_t input = 0; input < 5; input++)
            if ((loss_after_change(cases[i].settings, input) != unchanged) != (input >= 5 - cases[i].reached))
                fail_msg("case %zu: the effect of input %d is wrong", i, input);
    }
}

/* A window that holds every context changes nothing, bitwise, unless its angles differ. */
static void test_long_windows_have_no_effect(void **state)
{
    (void)state;
    static const char *const plain[] = {"model.rope", "half", NULL};
    static const char *const window[] = {"model.rope", "half", "model.window", "6", NULL};
    static const char *const angles[] = {"model.rope", "half", "model.window", "6", "model.local_rope_base",
                                         "10000",      NULL};
    static const char *const others[] = {"model.rope", "half", "model.window", "6", "model.local_rope_base",
                                         "100",        NULL};
    const double expected = loss_after_change(plain, 2);
    assert_true(loss_after_change(window, 2) == expected);
    assert_true(loss_after_change(angles, 2) == expected);
    assert_true(loss_after_change(others, 2) != expected);
}

static void test_noncausal_scores_whole_segments(void **state)
{
    (void)state;
    static const char *const ahead[] = {"model.attention", "block-term", "model.causal", "false", NULL};
    rig r;
    nm_error err;
    nm_lm_scored scored = {0};
    rig_open(&r, ahead);
    nm_lm_scoring how = {.max_tokens = 100, .before = 2};
    assert_int_equal(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), NM_USAGE);
    how.drop_incomplete = true;
    check(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), &err);
    assert_int_equal(scored.tokens, TEXT / SEGMENT * SEGMENT);
    assert_int_equal(scored.left_out, TEXT % SEGMENT);
    nm_lm_scored_release(&scored);
    how = (nm_lm_scoring){.max_tokens = 100, .context = 3, .drop_incomplete = true};
    assert_int_equal(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), NM_USAGE);
    rig_close(&r);
}

static void test_probabilities_sum_to_one(void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        nm_tape tape;
        nm_error err;
        rig_open(&r, kinds[kind]);
        check(nm_tape_init(&tape, r.backend, (size_t)64 << 20, &err), &err);
        double sum = 0;
        for (int32_t word = 0; word < WORDS; word++) {
            r.text[10] = word;
            sum += exp(-score_one(&r, &tape, 10, 4));
        }
        assert_near(sum, 1, 1e-5);
        nm_tape_release(&tape);
        rig_close(&r);
    }
}

/* The others have their probability divided by the sum of those of all others. */
static void test_omitted_symbols_have_no_probability(void **state)
{
    (void)state;
    rig r;
    nm_error err;
    nm_lm_scored scored = {0};
    double all[TEXT], masked[TEXT], omitted = 0;
    rig_open(&r, kinds[0]);
    nm_vocab *vocab = numbered_words();
    check(nm_vocab_omit(vocab, "bos,unk", &err), &err);
    nm_lm_scoring how = {.max_tokens = 100, .before = 2, .token_nll = all, .vocab = vocab};
    for (int32_t i = 0; i < TEXT; i++)
        r.text[i] = 4 + i % (WORDS - 4);
    const int32_t kept = r.text[0], not_output[] = {vocab->bos, vocab->unk};
    for (int i = 0; i < 2; i++) {
        r.text[0] = not_output[i];
        assert_int_equal(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), NM_MISMATCH);
        assert_string_equal(
            err.text, i ? "token 1 of the text is unknown, which has no probability (prepare.omit_symbols)"
                        : "token 1 of the text is <s>, which has no probability (prepare.omit_symbols)");
        how.vocab = NULL;
        check(nm_lm_score_ids(r.model, r.text, 1, &how, &scored, &err), &err);
        how.vocab = vocab;
        omitted += exp(-all[0]);
    }
    r.text[0] = kept;
    check(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), &err);
    double sum = score(&r, TEXT, 0, 100), masked_sum = 0;
    uint8_t *mask = nm_vocab_output_mask(vocab);
    check(nm_model_allow(r.model, mask, &err), &err);
    how.token_nll = masked;
    check(nm_lm_score_ids(r.model, r.text, TEXT, &how, &scored, &err), &err);
    assert_near(exp(-masked[0]), exp(-all[0]) / (1 - omitted), 1e-5);
    for (int32_t i = 0; i < TEXT; i++) {
        assert_true(masked[i] < all[i]);
        masked_sum += masked[i];
    }
    assert_near(score(&r, TEXT, 0, 100), masked_sum, 1e-6); /* the sums of the loss kernel */
    assert_true(masked_sum < sum);
    free(mask);
    nm_lm_scored_release(&scored);
    nm_vocab_free(vocab);
    rig_close(&r);
}

/* The code of the tensorized Transformer has a mean loss; norm.rbn.scale = auto follows it. */
static void test_penalties_are_added_to_the_mean_loss(void **state)
{
    (void)state;
    assert_true(nm_task_lm.mean_loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_penalties_are_added_to_the_mean_loss),
        cmocka_unit_test(test_segments_cover_the_text),
        cmocka_unit_test(test_long_contexts_of_block_term_attention_are_warned_about),
        cmocka_unit_test(test_inputs_are_preceding_tokens),
        cmocka_unit_test(test_cutoffs_adapt_to_the_vocabulary),
        cmocka_unit_test(test_scores_equal_single_tokens),
        cmocka_unit_test(test_scores_do_not_depend_on_batches),
        cmocka_unit_test(test_blocks_do_not_depend_on_batches),
        cmocka_unit_test(test_windows_limit_what_a_token_depends_on),
        cmocka_unit_test(test_long_windows_have_no_effect),
        cmocka_unit_test(test_noncausal_scores_whole_segments),
        cmocka_unit_test(test_probabilities_sum_to_one),
        cmocka_unit_test(test_omitted_symbols_have_no_probability)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
