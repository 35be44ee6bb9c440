/* A tiny random translation model and its teacher-forced log probabilities, for the decoding tests. */
#ifndef DECODE_MODEL_H
#define DECODE_MODEL_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/random.h"
#include "model/decode.h"
#include "model/seq2seq.h"

enum { BOS = 0, PAD = 1, EOS = 2, FIRST_WORD = 3, UNK = 3, WORDS = 9 };

typedef struct tiny {
    nm_backend *backend;
    nm_options *options;
    nm_model *model;
    nm_tape tape;
} tiny;

static inline nm_backend *backend_create(const nm_backend_options *options)
{
    nm_backend *backend;
    nm_error err = {0};
    if (nm_backend_create(&backend, options, &err) != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

static inline nm_backend *backend_of(const char *name, nm_dtype dtype, int32_t threads, bool fenced)
{
    return backend_create(&(nm_backend_options){
        .name = name, .dtype = dtype, .isa = "auto", .threads = threads, .fenced = fenced});
}

static inline nm_backend *bf16_backend_of(const char *name, int32_t threads, bool fenced)
{
    return backend_create(&(nm_backend_options){
        .name = name, .isa = "auto", .bf16 = true, .threads = threads, .fenced = fenced});
}

static inline void to_int8(nm_model *model)
{
    nm_error err = {0};
    if (nm_params_to_int8(&model->params, &err) != NM_OK)
        fail_msg("%s", err.text);
}

static inline void set(nm_options *options, const char *path, const char *value)
{
    nm_error err = {0};
    if (nm_options_set(options, path, value, NM_ORIGIN_COMMAND, &err) != NM_OK)
        fail_msg("%s", err.text);
}

/* A random bias and larger output weights; otherwise all tokens are nearly equally probable. */
static inline void sharpen(nm_model *model, uint64_t seed)
{
    nm_backend *b = model->backend;
    nm_seq2seq *s = nm_seq2seq_of(model);
    nm_mat weight = nm_tensor_mat(s->output_weight);
    NM_CALL(b, scale, .alpha = 2, .x = weight, .y = weight);
    if (!s->output_bias)
        return;
    size_t n = (size_t)s->output_bias->cols, unit = nm_dtype_bytes(b->dtype);
    void *values = nm_allocate(n * unit);
    for (size_t i = 0; i < n; i++) {
        nm_random_words words = nm_random4(seed, NM_RANDOM_TEST, 0, 0, i);
        double value = nm_random_normal(words.w[0], words.w[1]);
        if (b->dtype == NM_F64)
            ((double *)values)[i] = value;
        else
            ((float *)values)[i] = (float)value;
    }
    nm_backend_upload(b, s->output_bias->data, values, n * unit);
    free(values);
}

/* settings: pairs "model.norm", "scale", ..., NULL */
static inline tiny tiny_create(nm_backend *backend, int32_t words, uint64_t seed, const char *const *settings)
{
    static const char *const common[] = {"model.width",
                                         "16",
                                         "model.ff",
                                         "24",
                                         "model.heads",
                                         "2",
                                         "model.encoder_layers",
                                         "2",
                                         "model.decoder_layers",
                                         "2",
                                         "model.max_positions",
                                         "64",
                                         "model.init",
                                         "xavier-normal",
                                         NULL};
    tiny made = {.backend = backend, .options = nm_options_create()};
    nm_error err = {0};
    nm_model_options_add(made.options, &nm_model_seq2seq);
    nm_norm_options_add(made.options);
    nm_decode_options_add(made.options);
    for (int i = 0; common[i]; i += 2)
        set(made.options, common[i], common[i + 1]);
    for (int i = 0; settings && settings[i]; i += 2)
        set(made.options, settings[i], settings[i + 1]);
    nm_model_sizes sizes = {.source = words, .target = words, .plan = {.warmup_updates = 1}};
    if (nm_model_create(&made.model, &nm_model_seq2seq, backend, made.options, &sizes, false, &err) !=
            NM_OK ||
        nm_tape_init(&made.tape, backend, (size_t)64 << 20, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_params_initialize(&made.model->params, seed);
    sharpen(made.model, seed);
    return made;
}

static inline void tiny_release(tiny *made)
{
    nm_tape_release(&made->tape);
    nm_model_free(made->model);
    nm_options_free(made->options);
}

/* Logits, or log probabilities, [target tokens, V] of a forward pass over packed sources and target inputs;
 * the caller frees them. */
static inline double *forced_scores(tiny *made, const nm_packing *source, const int32_t *source_ids,
                                    const nm_packing *target, const int32_t *target_in, bool normalized)
{
    nm_backend *b = made->backend;
    int32_t *source_pos = nm_allocate((size_t)source->n_tokens * sizeof(int32_t));
    int32_t *target_pos = nm_allocate((size_t)target->n_tokens * sizeof(int32_t));
    for (int32_t s = 0; s < source->n_seqs; s++) {
        for (int32_t i = source->offsets[s]; i < source->offsets[s + 1]; i++)
            source_pos[i] = i - source->offsets[s];
        for (int32_t i = target->offsets[s]; i < target->offsets[s + 1]; i++)
            target_pos[i] = i - target->offsets[s];
    }
    nm_batch batch = {.n = source->n_seqs,
                      .source = *source,
                      .target = *target,
                      .source_ids = source_ids,
                      .source_pos = source_pos,
                      .target_in = target_in,
                      .target_pos = target_pos};
    nm_tape_start(&made->tape, false, 0, 0);
    nm_model_output out = made->model->type->forward(made->model, &made->tape, &batch);
    nm_tensor *logits = nm_linear(&made->tape, out.hidden, out.weight, out.bias, NM_ACT_NONE, 0);
    if (normalized)
        NM_CALL(b, log_softmax, .x = nm_tensor_mat(logits), .allowed = made->model->allowed,
                .y = nm_tensor_mat(logits));
    size_t n = (size_t)logits->rows * (size_t)logits->cols, unit = nm_dtype_bytes(b->dtype);
    double *values = nm_allocate(n * sizeof *values);
    void *raw = nm_allocate(n * unit);
    nm_backend_download(b, raw, logits->data, n * unit);
    for (size_t i = 0; i < n; i++)
        values[i] = b->dtype == NM_F64 ? ((double *)raw)[i] : (double)((float *)raw)[i];
    free(raw);
    free(source_pos);
    free(target_pos);
    return values;
}

static inline double *teacher_forced(tiny *made, const nm_packing *source, const int32_t *source_ids,
                                     const nm_packing *target, const int32_t *target_in)
{
    return forced_scores(made, source, source_ids, target, target_in, true);
}

#endif
