/* All target tokens are known, so one step processes many tokens of a target: they attend to earlier ones in
 * the KV cache, including those of the same step. */
#include "model/forced.h"

#include <string.h>

enum { STEP_TOKENS = 1024 }; /* maximum number of target tokens per step, to bound its memory */

typedef struct forced {
    nm_token_scorer *scorer;
    const nm_special_tokens *special;
    const nm_packing *sources;
    const nm_id_list *targets;
    nm_hypothesis *out;
    int32_t *first_rows; /* [sources] KV cache row of the first token of each target */
    nm_attention_request attention;
    bool observed; /* the attention is requested */
    struct input { /* a row of the step: the decoder input that predicts this token of this target */
        int32_t target, token;
    } input[STEP_TOKENS];
    int32_t ids[STEP_TOKENS], positions[STEP_TOKENS], given[STEP_TOKENS];
    int32_t self_offsets[STEP_TOKENS + 1], cross_offsets[STEP_TOKENS + 1];
    int32_t *self_rows, *cross_rows, n_rows, first_row;
    size_t self_capacity, cross_capacity, weights_capacity;
} forced;

static int32_t source_length(const forced *f, int32_t i)
{
    return f->sources->offsets[i + 1] - f->sources->offsets[i];
}

/* The input that predicts a token is the token before it. */
static void add_input(forced *f, int32_t target, int32_t token)
{
    const nm_id_list *list = &f->targets[target];
    int32_t row = f->n_rows++, self = f->self_offsets[row], cross = f->cross_offsets[row];
    f->input[row] = (struct input){target, token};
    f->ids[row] = token ? list->ids[token - 1] : f->special->first;
    f->positions[row] = token;
    f->given[row] = list->ids[token];
    NM_RESERVE(f->self_rows, (size_t)(self + token + 1), f->self_capacity);
    for (int32_t t = 0; t <= token; t++)
        f->self_rows[self + t] = f->first_rows[target] + t;
    f->self_offsets[row + 1] = self + token + 1;
    NM_RESERVE(f->cross_rows, (size_t)(cross + source_length(f, target)), f->cross_capacity);
    for (int32_t s = 0; s < source_length(f, target); s++)
        f->cross_rows[cross + s] = f->sources->offsets[target] + s;
    f->cross_offsets[row + 1] = cross + source_length(f, target);
}

static void store(forced *f)
{
    for (int32_t row = 0; row < f->n_rows; row++) {
        struct input at = f->input[row];
        nm_hypothesis *out = &f->out[at.target];
        size_t n = (size_t)source_length(f, at.target);
        out->ids[at.token] = f->given[row];
        out->token_scores[at.token] = f->scorer->given_values[row];
        if (f->observed)
            memcpy(out->attention + (size_t)at.token * n, f->attention.weights + f->cross_offsets[row],
                   n * sizeof(double));
    }
}

static nm_status run_step(forced *f, nm_error *err)
{
    if (f->observed)
        NM_RESERVE(f->attention.weights, (size_t)f->cross_offsets[f->n_rows], f->weights_capacity);
    nm_decode_step step = {.n = f->n_rows,
                           .positions = f->positions,
                           .ids = f->ids,
                           .first_row = f->first_row,
                           .self_rows = f->self_rows,
                           .self_offsets = f->self_offsets,
                           .cross_rows = f->cross_rows,
                           .cross_offsets = f->cross_offsets,
                           .attention = f->observed ? &f->attention : NULL,
                           .given = f->given};
    NM_TRY(nm_token_scorer_step(f->scorer, &step, err));
    store(f);
    f->first_row += f->n_rows;
    f->n_rows = 0;
    return NM_OK;
}

static nm_status run_targets(forced *f, nm_error *err)
{
    for (int32_t i = 0; i < f->sources->n_seqs; i++) {
        int32_t n = f->targets[i].n;
        f->first_rows[i] = f->first_row + f->n_rows;
        f->out[i] = (nm_hypothesis){.ids = nm_allocate((size_t)n * sizeof(int32_t)),
                                    .n = n,
                                    .token_scores = nm_allocate((size_t)n * sizeof(double))};
        if (f->observed)
            f->out[i].attention = nm_allocate((size_t)n * (size_t)source_length(f, i) * sizeof(double));
        for (int32_t t = 0; t < n; t++) {
            add_input(f, i, t);
            if (f->n_rows == STEP_TOKENS)
                NM_TRY(run_step(f, err));
        }
    }
    return f->n_rows ? run_step(f, err) : NM_OK;
}

nm_status nm_forced_run(nm_token_scorer *scorer, const nm_special_tokens *special,
                        const nm_attention_choice *attention, const nm_packing *sources, const int32_t *ids,
                        const nm_id_list *targets, nm_hypothesis *out, nm_error *err)
{
    NM_TRY(nm_token_scorer_start(scorer, sources, ids, err));
    NM_AUTO_FREE forced *f = nm_allocate(sizeof *f);
    *f = (forced){.scorer = scorer,
                  .special = special,
                  .sources = sources,
                  .targets = targets,
                  .out = out,
                  .first_rows = nm_allocate((size_t)sources->n_seqs * sizeof(int32_t)),
                  .observed = attention != NULL};
    if (attention)
        f->attention = (nm_attention_request){.layer = attention->layer, .head = attention->head};
    nm_status status = run_targets(f, err);
    NM_FREE(f->first_rows, f->self_rows, f->cross_rows, f->attention.weights);
    return status;
}
