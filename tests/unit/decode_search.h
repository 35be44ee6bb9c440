/* Shared by the tests of decoding: searches over random sources, and a comparison of their results. */
#ifndef DECODE_SEARCH_H
#define DECODE_SEARCH_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "decode_model.h"

static const nm_special_tokens special = {.first = EOS, .eos = EOS, .pad = PAD, .unk = UNK};

static inline nm_decode_options *decode_of(tiny *made)
{
    return nm_options_find(made->options, "decode");
}

/* Translates n sources; the caller releases out[n]. */
static inline void decode_all(nm_model *const *models, int32_t n_models, const nm_decode_options *options,
                              const nm_id_list *sources, size_t n, nm_translation *out)
{
    nm_decoder *decoder;
    nm_error err = {0};
    if (nm_decoder_create(&decoder, models, n_models, options, &special, &err) != NM_OK ||
        nm_decode(decoder, sources, n, out, &err) != NM_OK)
        fail_msg("%s", err.text);
    nm_decoder_free(decoder);
}

static inline void release_all(nm_translation *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nm_translation_release(&list[i]);
}

/* Logits, or log probabilities, of the next token after `prefix`, which includes the first target input. */
static inline void next_scores(tiny *made, const nm_id_list *source, const int32_t *prefix, int32_t n,
                               bool normalized, double *out)
{
    const int32_t source_offsets[] = {0, source->n}, target_offsets[] = {0, n};
    nm_packing packed = {1, source->n, source->n, source_offsets, NULL},
               fed = {1, n, n, target_offsets, NULL};
    double *all = forced_scores(made, &packed, source->ids, &fed, prefix, normalized);
    int32_t words = made->model->target_size;
    memcpy(out, all + (size_t)(n - 1) * (size_t)words, (size_t)words * sizeof *out);
    free(all);
}

static inline void next_words(tiny *made, const nm_id_list *source, const int32_t *prefix, int32_t n,
                              double *out)
{
    next_scores(made, source, prefix, n, true, out);
}

enum { SOURCES = 12, LONGEST = 12 };

typedef struct corpus {
    int32_t ids[SOURCES][LONGEST];
    nm_id_list list[SOURCES];
} corpus;

static inline corpus *random_corpus(void)
{
    corpus *made = nm_allocate(sizeof *made);
    for (int32_t s = 0; s < SOURCES; s++) {
        int32_t n = 1 + s * 7 % 11;
        for (int32_t i = 0; i < n; i++) {
            nm_random_words words = nm_random4(3, NM_RANDOM_TEST, (uint32_t)s, 0, (uint64_t)i);
            made->ids[s][i] = FIRST_WORD + (int32_t)(words.w[0] % (WORDS - FIRST_WORD));
        }
        made->ids[s][n] = EOS;
        made->list[s] = (nm_id_list){made->ids[s], n + 1};
    }
    return made;
}

static inline void assert_same(const nm_translation *a, const nm_translation *b)
{
    assert_int_equal(a->n, b->n);
    for (int32_t i = 0; i < a->n; i++) {
        size_t n = (size_t)a->list[i].n;
        assert_int_equal(a->list[i].n, b->list[i].n);
        assert_memory_equal(a->list[i].ids, b->list[i].ids, n * sizeof(int32_t));
        assert_memory_equal(a->list[i].token_scores, b->list[i].token_scores, n * sizeof(double));
        assert_true(a->list[i].score == b->list[i].score);
    }
}

#endif
