/* A small language model with larger weights, and what the tests of scores and of generation share. */
#ifndef LM_RIG_H
#define LM_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "model/incremental.h"
#include "task/sampler_tokens.h"
#include "task/lm_task.h"

enum { WORDS = 23, SEGMENT = 6, TEXT = 150 };

typedef struct rig {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    int32_t text[TEXT];
} rig;

static inline void check(nm_status status, const nm_error *err)
{
    if (status != NM_OK)
        fail_msg("%s", err->text);
}

static const char *rig_backend = "cpu";

static inline void rig_open(rig *r, const char *const *settings)
{
    static const char *const common[] = {"model.preset",  "tiny", "model.width", "16",
                                         "model.context", "6",    NULL};
    nm_error err;
    nm_backend_options device = {.name = rig_backend, .threads = 1};
    check(nm_backend_create(&r->backend, &device, &err), &err);
    r->options = nm_options_create();
    nm_model_options_add(r->options, &nm_model_lm);
    nm_norm_options_add(r->options);
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

static inline void rig_close(rig *r)
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
/* As GPT-2: embeddings that are not scaled, and shared with the output projection. */
static const char *const unscaled[] = {
    "model.preset", "gpt2", "model.attention_dropout", "0", "model.embedding_scale", "none", NULL};
static const char *const *const kinds[] = {softmax, block_term, adaptive, windows, unscaled};
enum { N_KINDS = 5 };

/* Reference: the loss of one token given the `seen` inputs before it. */
static inline double score_one(rig *r, nm_tape *tape, int32_t at, int32_t seen)
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

static inline nm_vocab *numbered_words(void)
{
    char text[WORDS * 16] = "";
    nm_vocab *vocab;
    nm_error err;
    for (int i = NM_VOCAB_N_SPECIAL; i < WORDS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "w%d %d\n", i, WORDS - i);
    check(nm_vocab_parse(text, strlen(text), "words", NM_VOCAB_FAIRSEQ, &vocab, &err), &err);
    return vocab;
}

#endif
