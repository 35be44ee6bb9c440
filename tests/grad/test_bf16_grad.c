/* Loss and gradients of a small encoder-decoder with bf16 matrix multiplications against float, for every
 * norm, on `ref` and on `cpu`. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/random.h"
#include "model/seq2seq.h"

enum { VOCAB = 37, SENTENCES = 8, LENGTH = 9, TOKENS = SENTENCES * LENGTH };

typedef struct step {
    double loss;
    float *grads; /* heap */
    size_t n;
} step;

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

/* Loss and gradients of one batch; dropout included. */
static step compute(const char *backend_name, bool bf16, const char *norm)
{
    nm_error err;
    nm_backend *b;
    nm_model *model;
    nm_tape tape;
    int32_t offsets[SENTENCES + 1], ids[TOKENS], out[TOKENS], pos[TOKENS];
    for (int32_t i = 0; i <= SENTENCES; i++)
        offsets[i] = i * LENGTH;
    for (int32_t i = 0; i < TOKENS; i++) {
        ids[i] = 4 + i * i % (VOCAB - 4);
        out[i] = 4 + (i * 7 + 3) % (VOCAB - 4);
        pos[i] = i % LENGTH;
    }
    const nm_packing packing = {
        .n_seqs = SENTENCES, .n_tokens = TOKENS, .longest = LENGTH, .offsets = offsets};
    const nm_batch batch = {.n = SENTENCES,
                            .source = packing,
                            .target = packing,
                            .source_ids = ids,
                            .source_pos = pos,
                            .target_in = ids,
                            .target_out = out,
                            .target_pos = pos};
    const nm_backend_options device = {.name = backend_name, .isa = "auto", .bf16 = bf16, .threads = 2};
    check(nm_backend_create(&b, &device, &err), &err);
    nm_options *options = nm_options_create();
    nm_model_options_add(options, &nm_model_seq2seq);
    nm_norm_options_add(options);
    /* By default, Partial RMSNorm would use 2 features, and RepBN's alpha of 1 would double the vectors at
     * each of its sites. */
    const char *const settings[] = {"model.preset",
                                    "tiny",
                                    "model.width",
                                    "32",
                                    "model.ff",
                                    "64",
                                    "model.heads",
                                    "2",
                                    "model.relu_dropout",
                                    "0.1",
                                    "model.norm",
                                    norm,
                                    "model.decoder_norm",
                                    norm,
                                    "norm.prms.fraction",
                                    "0.5",
                                    "norm.repbn.alpha_init",
                                    "0.1",
                                    NULL};
    for (int i = 0; settings[i]; i += 2)
        check(nm_options_set(options, settings[i], settings[i + 1], NM_ORIGIN_FILE, &err), &err);
    const nm_model_sizes sizes = {.source = VOCAB, .target = VOCAB, .plan = {.warmup_updates = 4}};
    check(nm_model_create(&model, &nm_model_seq2seq, b, options, &sizes, true, &err), &err);
    nm_params_initialize(&model->params, 3);
    check(nm_tape_init(&tape, b, (size_t)64 << 20, &err), &err);
    nm_tape_start(&tape, true, 5, 0);
    tape.n_targets = TOKENS;
    nm_model_output hidden = model->type->forward(model, &tape, &batch);
    nm_loss_spec spec = {.eps = 0.1, .targets = batch.target_out};
    double *sums = nm_softmax_loss_of(&tape, hidden.hidden, hidden.weight, hidden.bias, &spec), pair[2];
    nm_backend_download(b, pair, sums, sizeof pair);
    check(nm_tape_backward(&tape, &err), &err);
    step s = {.loss = pair[0] / TOKENS, .n = model->params.n_elements};
    s.grads = nm_allocate(s.n * sizeof *s.grads);
    nm_backend_download(b, s.grads, model->params.grads, s.n * sizeof *s.grads);
    nm_tape_release(&tape);
    nm_model_free(model);
    nm_options_free(options);
    nm_backend_free(b);
    return s;
}

/* L2 norm of the difference relative to the norm of b. */
static double distance(const step *a, const step *b)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < a->n; i++) {
        difference += pow((double)a->grads[i] - (double)b->grads[i], 2);
        size += pow((double)b->grads[i], 2);
    }
    return sqrt(difference / size);
}

/* Rounding to bf16 has a relative error of 2^-9.8 in root mean square. The errors of the two operands of
 * about 20 matrix multiplications on the longest path add up in quadrature to 0.007; hidden units whose sign
 * changes and norms of few tokens increase it. A gradient that lacks a term or has a wrong one differs by far
 * more. */
static void test_every_norm(void **state)
{
    (void)state;
    for (const nm_norm_type *const *type = nm_norm_types; *type; type++) {
        step exact = compute("cpu", false, (*type)->name), cpu = compute("cpu", true, (*type)->name),
             ref = compute("ref", true, (*type)->name);
        double error = distance(&cpu, &exact), levels = distance(&cpu, &ref);
        print_message(
            "%s: loss %.6f in float, %.6f in bf16; gradients differ by %.5f, cpu from ref by %.6f\n",
            (*type)->name, exact.loss, cpu.loss, error, levels);
        if (!(error > 0x1p-12 && error < 0x1p-5))
            fail_msg("%s: the gradients in bf16 differ from float by %.3g", (*type)->name, error);
        assert_true(levels < error);
        assert_true(fabs(cpu.loss - exact.loss) < 2e-3 * exact.loss && cpu.loss != exact.loss);
        assert_true(fabs(cpu.loss - ref.loss) < 1e-3 * exact.loss);
        free(exact.grads);
        free(cpu.grads);
        free(ref.grads);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
