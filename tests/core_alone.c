/* A program that is linked with norma-core only, and sees its headers only: language models with LayerNorm
 * and PowerNorm learn a periodic sequence of tokens. Exit code 0: the loss per token fell from about
 * ln(VOCAB) to less than a tenth. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/device_options.h"
#include "base/memory.h"
#include "model/lm.h"
#include "train/schedule.h"

enum { VOCAB = 16, SEQUENCES = 6, LENGTH = 12, TOKENS = SEQUENCES * LENGTH, UPDATES = 150 };

static void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK) {
        fprintf(stderr, "core_alone: %s\n", err->text);
        exit(1);
    }
}

/* Sequence s repeats s + 2 tokens. */
static int32_t token_at(int32_t s, int32_t i)
{
    return 4 + (s + i % (s + 2)) % (VOCAB - 4);
}

static double train_once(nm_model *model, nm_tape *tape, const nm_batch *batch, void *moments[2],
                         int64_t update)
{
    const nm_params *params = &model->params;
    nm_error err;
    double sums[2];
    nm_params_zero_grads(params, params->grads);
    nm_tape_start(tape, true, 1, (uint32_t)update);
    tape->n_targets = TOKENS;
    tape->grad_scale = 1.0 / TOKENS;
    const nm_model_output out = model->type->forward(model, tape, batch);
    const nm_loss_spec spec = {.targets = batch->target_out};
    nm_backend_download(model->backend, sums,
                        nm_softmax_loss_of(tape, out.hidden, out.weight, out.bias, &spec), sizeof sums);
    check(nm_tape_backward(tape, &err), &err);
    nm_params_update_norms(&model->params, tape->grad_scale);
    const nm_adam adam = {.variant = NM_ADAMW_TORCH,
                          .lr = 0.003,
                          .beta1 = 0.9,
                          .beta2 = 0.99,
                          .eps = 1e-8,
                          .grad_scale = 1,
                          .step = update + 1};
    NM_CALL(model->backend, adam, .config = &adam, .n = params->n_elements, .p = params->values,
            .g = params->grads, .m = moments[0], .v = moments[1]);
    return sums[0] / TOKENS;
}

/* Whether a model with this norm learns. */
static bool learns(const char *norm)
{
    nm_error err;
    nm_backend *backend;
    nm_model *model;
    nm_tape tape;
    int32_t offsets[SEQUENCES + 1], in[TOKENS], out[TOKENS], pos[TOKENS];
    for (int32_t s = 0; s <= SEQUENCES; s++)
        offsets[s] = s * LENGTH;
    for (int32_t i = 0; i < TOKENS; i++) {
        in[i] = token_at(i / LENGTH, i % LENGTH);
        out[i] = token_at(i / LENGTH, i % LENGTH + 1);
        pos[i] = i % LENGTH;
    }
    const nm_packing packing = {
        .n_seqs = SEQUENCES, .n_tokens = TOKENS, .longest = LENGTH, .offsets = offsets};
    const nm_batch batch = {.n = SEQUENCES,
                            .n_targets = TOKENS,
                            .tokens = TOKENS,
                            .target = packing,
                            .target_in = in,
                            .target_out = out,
                            .target_pos = pos};
    check(
        nm_backend_create(&backend, &(nm_backend_options){.name = "cpu", .isa = "auto", .threads = 1}, &err),
        &err);
    nm_options *options = nm_options_create();
    nm_model_options_add(options, &nm_model_lm);
    nm_norm_options_add(options);
    static const char *const settings[] = {
        "model.preset=tiny",     "model.width=32",   "model.ff=64",     "model.heads=2",
        "model.context=16",      "model.norm=power", "model.dropout=0", "model.embedding_dropout=0",
        "model.hidden_dropout=0"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char path[32];
        size_t length = 0;
        while (settings[i][length] != '=')
            length++;
        snprintf(path, sizeof path, "%.*s", (int)length, settings[i]);
        check(nm_options_set(options, path, settings[i] + length + 1, NM_ORIGIN_FILE, &err), &err);
    }
    check(nm_options_set(options, "model.norm", norm, NM_ORIGIN_FILE, &err), &err);
    const nm_model_sizes sizes = {.source = VOCAB, .target = VOCAB, .plan = {.warmup_updates = 10}};
    check(nm_model_create(&model, &nm_model_lm, backend, options, &sizes, true, &err), &err);
    nm_params_initialize(&model->params, 3);
    check(nm_tape_init(&tape, backend, (size_t)16 << 20, &err), &err);
    void *moments[2];
    const size_t bytes = nm_params_bytes(&model->params);
    for (int i = 0; i < 2; i++)
        check(nm_backend_alloc(backend, bytes, &moments[i], &err), &err);
    double first = 0, last = 0;
    for (int64_t update = 0; update < UPDATES; update++) {
        last = train_once(model, &tape, &batch, moments, update);
        first = update ? first : last;
    }
    printf("%s: loss per token %.3f before training, %.3f after %d updates\n", norm, first, last, UPDATES);
    for (int i = 0; i < 2; i++)
        nm_backend_dealloc(backend, moments[i]);
    nm_tape_release(&tape);
    nm_model_free(model);
    nm_options_free(options);
    nm_backend_free(backend);
    return first > 2 && last < first / 10;
}

int main(void)
{
    const bool layer = learns("layer"), power = learns("power");
    return layer && power ? 0 : 1;
}
