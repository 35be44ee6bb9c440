/* Language models: segments, scoring of a text, KV cache against the whole context, adaptive softmax as a distribution,
 * sampling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "decode/incremental.h"
#include "decode/sampler.h"
#include "task/lm_task.h"

enum { WORDS = 23, SEGMENT = 6, TEXT = 150 };

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    int32_t text[TEXT];
} rig;

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

static void rig_open(rig *r, const char *const *settings)
{
    static const char *const common[] = {"model.preset",  "tiny", "model.width", "16",
                                         "model.context", "6",    NULL};
    nm_error err;
    nm_backend_options device = {.name = "cpu", .threads = 1};
    check(nm_backend_create(&r->backend, &device, &err), &err);
    r->options = nm_options_create();
    nm_model_options_add(r->options, &nm_model_lm);
    for (int i = 0; common[i]; i += 2)
        check(nm_options_set(r->options, common[i], common[i + 1], NM_ORIGIN_FILE, &err), &err);
    for (int i = 0; settings[i]; i += 2)
        check(nm_options_set(r->options, settings[i], settings[i + 1], NM_ORIGIN_COMMAND, &err), &err);
    nm_model_sizes sizes = {.source = WORDS, .target = WORDS};
    check(nm_model_create(&r->model, &nm_model_lm, r->backend, r->options, &sizes, false, &err), &err);
    nm_params_initialize(&r->model->params, 3);
    nm_params *params = &r->model->params;
    for (size_t i = 0; i < params->n; i++) { /* with N(0, 0.02) predictions hardly depend on the input */
        nm_mat all = nm_tensor_mat(&params->list[i]->tensor);
        if (!strstr(params->list[i]->tensor.name, "norm"))
            NM_CALL(r->backend, scale, .alpha = 12, .x = all, .y = all);
    }
    for (int32_t i = 0; i < TEXT; i++)
        r->text[i] = (int32_t)nm_random_below(nm_random4(5, NM_RANDOM_TEST, 0, 0, (uint64_t)i).w[0], WORDS);
}

static void rig_close(rig *r)
{
    nm_model_free(r->model);
    nm_options_free(r->options);
    nm_backend_free(r->backend);
}

static const char *const softmax[] = {"model.attention", "softmax", NULL};
static const char *const block_term[] = {"model.attention", "block-term", "model.cores", "2", NULL};
static const char *const adaptive[] = {"model.adaptive", "true", "model.cutoffs", "5,9,20", NULL};
/* A layer with a window of three tokens and its own angles, and one without. */
static const char *const windows[] = {
    "model.window",          "3", "model.global_every", "2",    "model.rope", "half",
    "model.local_rope_base", "3", "model.positions",    "none", NULL};
static const char *const *const kinds[] = {softmax, block_term, adaptive, windows};
enum { N_KINDS = 4 };

/* ---- warnings ---- */

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

/* ---- segments ---- */

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

/* ---- scoring ---- */

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

/* Reference: the loss of one token given the `seen` inputs before it. */
static double score_one(rig *r, nm_tape *tape, int32_t at, int32_t seen)
{
    int32_t in[SEGMENT], pos[SEGMENT], offsets[] = {0, seen};
    for (int32_t i = 0; i < seen; i++) {
        int32_t from = at - seen + i;
        in[i] = from < 0 ? 2 : r->text[from];
        pos[i] = i;
    }
    nm_batch batch = {.n = 1, .target = {1, seen, seen, offsets, NULL}, .target_in = in, .target_pos = pos};
    nm_tape_start(tape, false, 0, 0);
    nm_tensor *hidden = nm_lm_hidden(r->model, tape, &batch);
    nm_tensor last = {.data = (float *)hidden->data + (size_t)(seen - 1) * (size_t)hidden->cols,
                      .rows = 1,
                      .cols = hidden->cols};
    nm_loss_spec spec = {.targets = r->text + at};
    double sums[2];
    nm_backend_download(r->backend, sums, nm_lm_loss(r->model, tape, &last, &spec), sizeof sums);
    return sums[1];
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

/* The loss of the token that follows the five inputs before token 10, if input `changed` of them is another word. */
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

/* In two layers, a window of two tokens reaches the last three inputs; a window of one token only the last; one that is as long as
 * the context all of them. */
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

/* ---- omitted symbols ---- */

static nm_vocab *numbered_words(void)
{
    char text[WORDS * 16] = "";
    nm_vocab *vocab;
    nm_error err;
    for (int i = NM_VOCAB_N_SPECIAL; i < WORDS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "w%d %d\n", i, WORDS - i);
    check(nm_vocab_parse(text, strlen(text), "words", NM_VOCAB_FAIRSEQ, &vocab, &err), &err);
    return vocab;
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

/* ---- generation ---- */

enum { PROMPTS = 5, DRAWN = 17 };

static const int32_t prompt_words[] = {5, 9, 7, 12, 4, 4, 8, 20, 11, 6, 19};
static const nm_id_list some_prompts[PROMPTS] = {
    {prompt_words, 3}, {prompt_words, 0}, {prompt_words + 3, 8}, {prompt_words, 1}, {prompt_words + 1, 2}};

static void write_on(rig *r, const nm_vocab *vocab, const nm_sample_options *options,
                     int32_t out[PROMPTS][DRAWN])
{
    nm_ids drawn[PROMPTS] = {{0}};
    nm_sampler *sampler;
    nm_error err;
    const nm_sampler_texts texts = {vocab, vocab->eos, false, NULL};
    const nm_sampler_prompts prompts = {.list = some_prompts, .n = PROMPTS};
    check(nm_sampler_create(&sampler, r->model, options, &texts, &err), &err);
    check(nm_sampler_run(sampler, &prompts, NULL, drawn, &err), &err);
    for (int i = 0; i < PROMPTS; i++) {
        assert_int_equal(drawn[i].n, DRAWN);
        memcpy(out[i], drawn[i].data, sizeof out[i]);
        nm_ids_release(&drawn[i]);
    }
    nm_sampler_free(sampler);
}

/* The logit of r->text[at] given the `seen` inputs before it, of a model without clusters. */
static double logit_of(rig *r, nm_tape *tape, int32_t at, int32_t seen)
{
    int32_t in[SEGMENT], pos[SEGMENT], offsets[] = {0, seen};
    for (int32_t i = 0; i < seen; i++) {
        in[i] = at - seen + i < 0 ? 2 : r->text[at - seen + i];
        pos[i] = i;
    }
    nm_batch batch = {.n = 1, .target = {1, seen, seen, offsets, NULL}, .target_in = in, .target_pos = pos};
    nm_tape_start(tape, false, 0, 0);
    const nm_model_output out = r->model->type->forward(r->model, tape, &batch);
    const float *hidden = (float *)out.hidden->data + (size_t)(seen - 1) * (size_t)out.hidden->cols;
    const float *weight = (float *)out.weight->data + (size_t)r->text[at] * (size_t)out.weight->cols;
    double sum = out.bias ? (double)((float *)out.bias->data)[r->text[at]] : 0;
    for (int32_t i = 0; i < out.hidden->cols; i++)
        sum += (double)hidden[i] * (double)weight[i];
    return sum;
}

/* Greedy sampling returns the token with the highest score after the prompt in the same context; a full context is replaced by its
 * second half. The scores are the logits, with clusters the log probabilities, those of repeated tokens with the penalty. */
static void check_greedy(rig *r, const nm_id_list *prompt, const int32_t drawn[DRAWN], double penalty)
{
    const bool clusters = nm_lm_config_of(r->model)->adaptive;
    nm_tape tape;
    nm_error err;
    check(nm_tape_init(&tape, r->backend, (size_t)64 << 20, &err), &err);
    memcpy(r->text, prompt->ids, (size_t)prompt->n * sizeof *r->text);
    memcpy(r->text + prompt->n, drawn, DRAWN * sizeof *drawn);
    for (int32_t at = 0, begin = 0; at < prompt->n + DRAWN; at++) {
        bool seen[WORDS] = {false};
        if (at - begin >= SEGMENT)
            begin = at - SEGMENT / 2 + 1;
        if (at < prompt->n)
            continue;
        double best = -INFINITY;
        int32_t choice = -1, chosen = r->text[at];
        for (int32_t i = 0; i < at; i++)
            seen[r->text[i]] = true;
        for (int32_t word = 2; word < WORDS; word++) {
            r->text[at] = word;
            double score =
                clusters ? -score_one(r, &tape, at, at - begin + 1) : logit_of(r, &tape, at, at - begin + 1);
            if (seen[word])
                score = score > 0 ? score / penalty : score * penalty;
            if (word != 3 && score > best) {
                choice = word;
                best = score;
            }
        }
        r->text[at] = chosen;
        assert_int_equal(chosen, choice);
    }
    nm_tape_release(&tape);
}

/* The largest difference between the rows of the stack's output of a step and of a forward pass over all inputs. */
static double cache_difference(rig *r, nm_incremental *inc, nm_tape *tape, int32_t at)
{
    int32_t in[SEGMENT], pos[SEGMENT], rows[SEGMENT], offsets[] = {0, at + 1};
    for (int32_t i = 0; i <= at; i++) {
        in[i] = r->text[i];
        pos[i] = rows[i] = i;
    }
    const nm_decode_step step = {
        .n = 1, .position = at, .ids = in + at, .first_row = at, .self_rows = rows, .self_offsets = offsets};
    nm_batch batch = {
        .n = 1, .target = {1, at + 1, at + 1, offsets, NULL}, .target_in = in, .target_pos = pos};
    nm_error err;
    nm_mat hidden;
    check(nm_incremental_step(inc, &step, &hidden, &err), &err);
    nm_tape_start(tape, false, 0, 0);
    nm_mat all = nm_tensor_mat(nm_lm_hidden(r->model, tape, &batch));
    const float *a = hidden.data, *b = (const float *)all.data + (size_t)at * (size_t)all.stride;
    double most = 0;
    for (int32_t i = 0; i < hidden.cols; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void test_cache_equals_forward_pass(void **state)
{
    (void)state;
    static const char *const *const cached[] = {softmax, adaptive, windows};
    for (int kind = 0; kind < 3; kind++) {
        rig r;
        nm_tape tape;
        nm_error err;
        nm_incremental *inc;
        rig_open(&r, cached[kind]);
        check(nm_tape_init(&tape, r.backend, (size_t)64 << 20, &err), &err);
        check(nm_incremental_create(&inc, r.model, &err), &err);
        check(nm_incremental_refresh(inc, &err), &err);
        for (int32_t at = 0; at < SEGMENT; at++) {
            double difference = cache_difference(&r, inc, &tape, at);
            if (!(difference < 1e-5))
                fail_msg("kind %d, position %d: the output differs by %g", kind, at, difference);
        }
        nm_incremental_free(inc);
        nm_tape_release(&tape);
        rig_close(&r);
    }
}

static void test_greedy_tokens_are_most_probable(void **state)
{
    (void)state;
    nm_vocab *vocab = numbered_words();
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        int32_t out[PROMPTS][DRAWN];
        nm_sample_options options = {
            .temperature = 0, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 3};
        rig_open(&r, kinds[kind]);
        write_on(&r, vocab, &options, out);
        check_greedy(&r, &some_prompts[1], out[1], 1);
        check_greedy(&r, &some_prompts[2], out[2], 1);
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

/* Keskar et al. 2019: the tokens of the prompt and of the text are less probable, with a penalty below 1 more probable. */
static void test_repetition_penalty(void **state)
{
    (void)state;
    static const double penalties[] = {1.3, 4, 0.8};
    nm_vocab *vocab = numbered_words();
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        int32_t out[PROMPTS][DRAWN], plain[PROMPTS][DRAWN];
        nm_sample_options options = {.top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 3};
        rig_open(&r, kinds[kind]);
        write_on(&r, vocab, &options, plain);
        for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
            options.repetition_penalty = penalties[i];
            write_on(&r, vocab, &options, out);
            assert_memory_not_equal(out, plain, sizeof out);
            for (int k = 0; k < PROMPTS; k++)
                check_greedy(&r, &some_prompts[k], out[k], penalties[i]);
        }
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

typedef struct ending { /* texts end with the second one of these tokens after the prompt */
    int32_t token;
    size_t longest; /* length of the longest text so far */
} ending;

static size_t length_until(const int32_t *ids, size_t n, int32_t token)
{
    int count = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] == token && ++count == 2)
            return i + 1;
    return n;
}

static bool ends_with_second(void *user, const nm_id_list *prompt, const nm_ids *generated)
{
    ending *self = user;
    assert_true(prompt >= some_prompts && prompt < some_prompts + PROMPTS);
    self->longest = generated->n > self->longest ? generated->n : self->longest;
    int count = 0;
    for (size_t i = 0; i < generated->n; i++)
        count += generated->data[i] == self->token;
    return count == 2 && generated->data[generated->n - 1] == self->token;
}

/* A text that ends early is a beginning of the text that does not, whatever the other texts of its batch. */
static void test_texts_end_where_the_caller_ends_them(void **state)
{
    (void)state;
    nm_vocab *vocab = numbered_words();
    rig r;
    int32_t whole[PROMPTS][DRAWN];
    nm_sample_options options = {
        .temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .seed = 3};
    rig_open(&r, softmax);
    size_t shorter = 0;
    for (options.batch = 1; options.batch <= PROMPTS; options.batch++) {
        write_on(&r, vocab, &options, whole);
        for (int32_t token = 4; token < WORDS; token++) {
            ending end = {.token = token};
            nm_ids out[PROMPTS] = {{0}};
            nm_sampler *sampler;
            nm_error err;
            const nm_sampler_texts texts = {vocab, vocab->eos, false, NULL};
            const nm_sampler_prompts prompts = {some_prompts, PROMPTS, 0, ends_with_second, &end};
            check(nm_sampler_create(&sampler, r.model, &options, &texts, &err), &err);
            check(nm_sampler_run(sampler, &prompts, NULL, out, &err), &err);
            size_t longest = 0;
            for (int i = 0; i < PROMPTS; i++) {
                const size_t n = length_until(whole[i], DRAWN, token);
                assert_int_equal(out[i].n, n);
                assert_memory_equal(out[i].data, whole[i], n * sizeof *whole[i]);
                longest = n > longest ? n : longest;
                shorter += n < DRAWN;
                nm_ids_release(&out[i]);
            }
            assert_true(end.longest <= longest); /* not called after the end */
            nm_sampler_free(sampler);
        }
    }
    assert_true(shorter > PROMPTS);
    rig_close(&r);
    nm_vocab_free(vocab);
}

/* At temperatures at which the probability of all other tokens is 0 in double precision. */
static void test_low_temperatures_are_greedy(void **state)
{
    (void)state;
    static const double temperatures[] = {1e-6, 1e-9};
    nm_vocab *vocab = numbered_words();
    rig r;
    int32_t greedy[PROMPTS][DRAWN], next[PROMPTS][DRAWN];
    nm_sample_options options = {
        .temperature = 0, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 3, .seed = 2};
    rig_open(&r, kinds[0]);
    write_on(&r, vocab, &options, greedy);
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        options.temperature = temperatures[i];
        write_on(&r, vocab, &options, next);
        assert_memory_equal(greedy, next, sizeof greedy);
    }
    rig_close(&r);
    nm_vocab_free(vocab);
}

static void test_samples_do_not_depend_on_batches(void **state)
{
    (void)state;
    nm_vocab *vocab = numbered_words();
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        int32_t first[PROMPTS][DRAWN], next[PROMPTS][DRAWN];
        nm_sample_options options = {.temperature = 1.3,
                                     .top_p = 0.95,
                                     .repetition_penalty = 1,
                                     .top_k = 15,
                                     .tokens = DRAWN,
                                     .batch = 1,
                                     .seed = 4};
        rig_open(&r, kinds[kind]);
        write_on(&r, vocab, &options, first);
        for (options.batch = 2; options.batch <= 5; options.batch++) {
            write_on(&r, vocab, &options, next);
            assert_memory_equal(first, next, sizeof first);
        }
        options.seed = 5;
        write_on(&r, vocab, &options, next);
        assert_memory_not_equal(first, next, sizeof first);
        for (int i = 0; i < PROMPTS * DRAWN; i++) {
            int32_t id = first[i / DRAWN][i % DRAWN];
            assert_false(id == vocab->unk || id == vocab->bos || id == vocab->pad);
        }
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

/* Long prompts take several steps. Next to an empty prompt, which generates from the beginning, each position is a step. */
static void test_prompts_are_processed_in_steps(void **state)
{
    (void)state;
    enum { LONG = 600, NEW = 12 };
    static const char *const contexts[][5] = {{"model.context", "640"},
                                              {"model.context", "603"}, /* full after three tokens */
                                              {"model.context", "640", "model.window", "300"}};
    nm_vocab *vocab = numbered_words();
    int32_t words[LONG];
    for (int32_t i = 0; i < LONG; i++)
        words[i] = 4 + (i * i + i / 7) % (WORDS - 4);
    const nm_id_list prompts[] = {{words, LONG}, {words, 0}, {words, LONG}, {words, LONG}};
    for (size_t kind = 0; kind < sizeof contexts / sizeof *contexts; kind++) {
        rig r;
        nm_error err;
        nm_sampler *sampler;
        nm_ids out[4] = {{0}};
        const nm_sampler_texts texts = {vocab, vocab->eos, false, NULL};
        nm_sample_options options = {
            .temperature = 0, .top_p = 1, .repetition_penalty = 1, .tokens = NEW, .batch = 2};
        rig_open(&r, contexts[kind]);
        check(nm_sampler_create(&sampler, r.model, &options, &texts, &err), &err);
        check(nm_sampler_run(sampler, &(nm_sampler_prompts){.list = prompts, .n = 4}, NULL, out, &err), &err);
        for (int i = 2; i < 4; i++) {
            assert_int_equal(out[i].n, NEW);
            assert_memory_equal(out[0].data, out[i].data, NEW * sizeof *out[0].data);
        }
        assert_memory_not_equal(out[0].data, out[1].data, NEW * sizeof *out[0].data);
        for (int i = 0; i < 4; i++)
            nm_ids_release(&out[i]);
        nm_sampler_free(sampler);
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

/* A dictionary is padded with entries that no text contains. */
static void test_padding_is_not_generated(void **state)
{
    (void)state;
    const int32_t first = 9;
    char text[WORDS * 24] = "";
    nm_vocab *vocab;
    nm_error err;
    rig r;
    int32_t out[PROMPTS][DRAWN];
    for (int i = NM_VOCAB_N_SPECIAL; i < first; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "w%d 1\n", i);
    for (int i = first; i < WORDS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "madeupword%04d 0\n", i);
    check(nm_vocab_parse(text, strlen(text), "words", NM_VOCAB_FAIRSEQ, &vocab, &err), &err);
    const nm_sample_options options = {
        .temperature = 100, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 5};
    rig_open(&r, softmax);
    write_on(&r, vocab, &options, out);
    for (int i = 0; i < PROMPTS * DRAWN; i++)
        assert_in_range(out[i / DRAWN][i % DRAWN], vocab->eos, first - 1);
    rig_close(&r);
    nm_vocab_free(vocab);
}

static void test_top_1_is_greedy(void **state)
{
    (void)state;
    nm_vocab *vocab = numbered_words();
    rig r;
    int32_t greedy[PROMPTS][DRAWN], other[PROMPTS][DRAWN];
    nm_sample_options options = {
        .temperature = 0, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 5};
    rig_open(&r, softmax);
    write_on(&r, vocab, &options, greedy);
    options = (nm_sample_options){
        .temperature = 2, .top_p = 1, .repetition_penalty = 1, .top_k = 1, .tokens = DRAWN, .batch = 5};
    write_on(&r, vocab, &options, other);
    assert_memory_equal(greedy, other, sizeof greedy);
    options = (nm_sample_options){
        .temperature = 1, .top_p = 1e-9, .repetition_penalty = 1, .tokens = DRAWN, .batch = 5};
    write_on(&r, vocab, &options, other);
    assert_memory_equal(greedy, other, sizeof greedy);
    rig_close(&r);
    nm_vocab_free(vocab);
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
        cmocka_unit_test(test_scores_equal_single_tokens),
        cmocka_unit_test(test_scores_do_not_depend_on_batches),
        cmocka_unit_test(test_blocks_do_not_depend_on_batches),
        cmocka_unit_test(test_windows_limit_what_a_token_depends_on),
        cmocka_unit_test(test_long_windows_have_no_effect),
        cmocka_unit_test(test_noncausal_scores_whole_segments),
        cmocka_unit_test(test_probabilities_sum_to_one),
        cmocka_unit_test(test_omitted_symbols_have_no_probability),
        cmocka_unit_test(test_cache_equals_forward_pass),
        cmocka_unit_test(test_greedy_tokens_are_most_probable),
        cmocka_unit_test(test_repetition_penalty),
        cmocka_unit_test(test_texts_end_where_the_caller_ends_them),
        cmocka_unit_test(test_low_temperatures_are_greedy),
        cmocka_unit_test(test_samples_do_not_depend_on_batches),
        cmocka_unit_test(test_prompts_are_processed_in_steps),
        cmocka_unit_test(test_padding_is_not_generated),
        cmocka_unit_test(test_top_1_is_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
