/* Generation with language models: KV cache against the whole context, greedy tokens, repetition penalty,
 * ends of texts, samples that do not depend on batches. threads = 1. */
#include "lm_rig.h"

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
    check(
        nm_sampler_create(&sampler, r->model, options, nm_lm_sampler_tokens(&texts, options->unknown), &err),
        &err);
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

/* Greedy sampling returns the token with the highest score after the prompt in the same context; a full
 * context is replaced by its second half. The scores are the logits, with clusters the log probabilities,
 * those of repeated tokens with the penalty. */
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

/* The largest difference between the rows of the stack's output of a step and of a forward pass over all
 * inputs. */
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

/* Keskar et al. 2019: the tokens of the prompt and of the text are less probable, with a penalty below 1 more
 * probable. */
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

static void write_until(rig *r, const nm_vocab *vocab, const nm_sample_options *options,
                        const nm_sampler_prompts *prompts, nm_ids *out)
{
    const nm_sampler_texts texts = {vocab, vocab->eos, false, NULL};
    nm_sampler *sampler;
    nm_error err;
    check(
        nm_sampler_create(&sampler, r->model, options, nm_lm_sampler_tokens(&texts, options->unknown), &err),
        &err);
    check(nm_sampler_run(sampler, prompts, NULL, out, &err), &err);
    nm_sampler_free(sampler);
}

/* A text that ends early is a beginning of the text that does not, whatever the other texts of its batch. The
 * texts end at different steps. */
static void test_texts_end_where_the_caller_ends_them(void **state)
{
    (void)state;
    nm_vocab *vocab = numbered_words();
    for (int kind = 0; kind < N_KINDS; kind++) {
        rig r;
        int32_t whole[PROMPTS][DRAWN];
        nm_sample_options options = {
            .temperature = 1.5, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = 1, .seed = 3};
        rig_open(&r, kinds[kind]);
        write_on(&r, vocab, &options, whole);
        int at_step[DRAWN + 1] = {0};
        for (options.batch = 1; options.batch <= PROMPTS; options.batch++)
            for (int32_t token = 4; token < WORDS; token++) {
                ending end = {.token = token};
                nm_ids out[PROMPTS] = {{0}};
                const nm_sampler_prompts prompts = {some_prompts, PROMPTS, 0, ends_with_second, &end};
                write_until(&r, vocab, &options, &prompts, out);
                size_t longest = 0;
                for (int i = 0; i < PROMPTS; i++) {
                    const size_t n = length_until(whole[i], DRAWN, token);
                    assert_int_equal(out[i].n, n);
                    assert_memory_equal(out[i].data, whole[i], n * sizeof *whole[i]);
                    longest = n > longest ? n : longest;
                    at_step[n]++;
                    nm_ids_release(&out[i]);
                }
                assert_true(end.longest <= longest); /* not called after the end */
            }
        int different = 0;
        for (int n = 1; n < DRAWN; n++)
            different += at_step[n] > 0;
        if (different < 4)
            fail_msg("kind %d: texts end at %d different steps", kind, different);
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

static bool ends_with_fourth_token(void *user, const nm_id_list *prompt, const nm_ids *generated)
{
    (void)user;
    (void)prompt;
    return generated->data[generated->n - 1] % 4 == 0;
}

/* Floating-point operations so far of linear layers and of attention. */
static double operations(const nm_backend *b)
{
    nm_kernel_time times[NM_N_KERNELS];
    double flops = 0;
    const int n = nm_backend_times(b, times);
    for (int i = 0; i < n; i++)
        if (!strcmp(times[i].kernel, "linear") || !strcmp(times[i].kernel, "attention_cached"))
            flops += times[i].flops;
    return flops;
}

/* Texts that have ended are not computed, and prompts have no output projection: a batch needs the operations
 * of its texts. */
static void test_batches_need_the_operations_of_their_texts(void **state)
{
    (void)state;
    static const char *const *const cached[] = {softmax, adaptive, windows};
    nm_vocab *vocab = numbered_words();
    nm_id_list list[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) /* shorter than a context */
        list[i] = (nm_id_list){prompt_words + i, 2 * i % PROMPTS};
    for (int kind = 0; kind < 3; kind++) {
        rig r;
        nm_sample_options options = {.temperature = 1.5,
                                     .top_p = 1,
                                     .repetition_penalty = 1,
                                     .tokens = DRAWN,
                                     .batch = PROMPTS,
                                     .seed = 3};
        rig_open(&r, cached[kind]);
        nm_backend_profile(r.backend, true);
        nm_ids alone[PROMPTS] = {{0}}, out[PROMPTS] = {{0}};
        for (uint64_t i = 0; i < PROMPTS; i++) {
            const nm_sampler_prompts one = {list + i, 1, i, ends_with_fourth_token, NULL};
            write_until(&r, vocab, &options, &one, alone + i);
        }
        const double expected = operations(r.backend);
        const nm_sampler_prompts all = {list, PROMPTS, 0, ends_with_fourth_token, NULL};
        write_until(&r, vocab, &options, &all, out);
        const double actual = operations(r.backend) - expected;
        size_t shortest = SIZE_MAX, longest = 0;
        for (int i = 0; i < PROMPTS; i++) {
            assert_int_equal(out[i].n, alone[i].n);
            assert_memory_equal(out[i].data, alone[i].data, out[i].n * sizeof *out[i].data);
            shortest = out[i].n < shortest ? out[i].n : shortest;
            longest = out[i].n > longest ? out[i].n : longest;
            nm_ids_release(&alone[i]);
            nm_ids_release(&out[i]);
        }
        assert_true(shortest < longest);
        if (actual != expected)
            fail_msg("kind %d: %g operations, alone %g", kind, actual, expected);
        rig_close(&r);
    }
    nm_vocab_free(vocab);
}

/* Once per step, for the logits of all texts: in the 25 steps from the shortest prompt, which is empty, to
 * the end of the longest text, which begins with 8 tokens. The backend `emulated` counts. */
static void test_waits_of_the_host(void **state)
{
    (void)state;
    static const char *const *const kinds_here[] = {softmax, block_term, adaptive};
    const nm_sample_options options = {
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .tokens = DRAWN, .batch = PROMPTS};
    nm_vocab *vocab = numbered_words();
    rig_backend = "emulated";
    for (int kind = 0; kind < 3; kind++) {
        int32_t out[PROMPTS][DRAWN];
        rig r;
        rig_open(&r, kinds_here[kind]);
        const int64_t before = nm_backend_waits(r.backend);
        write_on(&r, vocab, &options, out);
        assert_int_equal(nm_backend_waits(r.backend) - before, 8 + DRAWN);
        rig_close(&r);
    }
    rig_backend = "cpu";
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

/* Long prompts take several steps. Next to an empty prompt, which generates from the beginning, each position
 * is a step. */
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
        check(nm_sampler_create(&sampler, r.model, &options, nm_lm_sampler_tokens(&texts, options.unknown),
                                &err),
              &err);
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cache_equals_forward_pass),
                                       cmocka_unit_test(test_greedy_tokens_are_most_probable),
                                       cmocka_unit_test(test_repetition_penalty),
                                       cmocka_unit_test(test_texts_end_where_the_caller_ends_them),
                                       cmocka_unit_test(test_batches_need_the_operations_of_their_texts),
                                       cmocka_unit_test(test_waits_of_the_host),
                                       cmocka_unit_test(test_low_temperatures_are_greedy),
                                       cmocka_unit_test(test_samples_do_not_depend_on_batches),
                                       cmocka_unit_test(test_prompts_are_processed_in_steps),
                                       cmocka_unit_test(test_padding_is_not_generated),
                                       cmocka_unit_test(test_top_1_is_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
