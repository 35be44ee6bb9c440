/* N-gram language models: unigrams, and the order with the lowest perplexity on the validation text. The same
 * tokens are scored as with a Transformer (data.eval_streams, data.incomplete), so that perplexities are
 * comparable. */

#include "task/baseline.h"
#include "task/kneser_ney.h"
#include "task/lm_task.h"

enum { FIRST_ORDER = 2, LAST_ORDER = 16, DEFAULT_ORDER = 5 };

static nm_status score_split(const nm_task *task, const nm_kneser_ney *model, nm_split split,
                             nm_task_score *score, nm_error *err)
{
    const nm_lm_parts *parts = task->parts;
    const nm_lm_task_config *config = task->config;
    const nm_lm_config *lm = nm_options_find(task->options, "model");
    const nm_corpus *corpus = &parts->splits[split];
    int64_t n = (int64_t)corpus->offsets[corpus->n];
    bool incomplete = config->incomplete == NM_LM_INCOMPLETE_SCORE && lm->causal;
    nm_lm_segments segments;
    nm_lm_scored scored = {0};
    NM_TRY(nm_lm_segments_make(&segments, corpus->ids, n, config->eval_streams, (int32_t)lm->context,
                               incomplete, parts->vocab->eos, err));
    NM_AUTO_FREE double *nll = nm_allocate((size_t)n * sizeof *nll);
    nm_kneser_ney_score(model, corpus->ids, n, nll);
    for (int64_t s = 0; s < segments.streams * segments.per_stream; s++) {
        int32_t length;
        int64_t begin = nm_lm_segment_begin(&segments, s, &length);
        for (int32_t at = 0, end; at < length; at = end) {
            double sum = 0;
            end = at + NM_LM_BLOCK_TOKENS < length ? at + NM_LM_BLOCK_TOKENS : length;
            for (int32_t i = at; i < end; i++)
                sum += nll[begin + i];
            nm_lm_scored_add(&scored, sum, end - at);
        }
    }
    nm_lm_scored_fill(&scored, score);
    snprintf(score->signature, sizeof score->signature, "perplexity|order:%d|tokens:%lld|left out:%lld",
             nm_kneser_ney_order(model), (long long)scored.tokens, (long long)(n - scored.tokens));
    return NM_OK;
}

static nm_status score_all(const nm_task *task, const nm_kneser_ney *model, nm_task_score *scores,
                           nm_error *err)
{
    const nm_lm_parts *parts = task->parts;
    for (nm_split split = NM_SPLIT_VALID; split <= NM_SPLIT_TEST; split++)
        if (parts->splits[split].n)
            NM_TRY(score_split(task, model, split, &scores[split], err));
    return NM_OK;
}

static void release_scores(nm_task_score *scores)
{
    for (int split = 0; split < NM_BASELINE_SPLITS; split++)
        nm_task_score_release(&scores[split]);
}

/* Increases the order while the perplexity of the validation text decreases. Sets the scores and *order of
 * the best one. */
static nm_status choose_order(const nm_task *task, nm_kneser_ney *model, nm_baseline_result *result,
                              int *order, nm_error *err)
{
    for (int k = FIRST_ORDER; k <= LAST_ORDER; k++) {
        nm_task_score scores[NM_BASELINE_SPLITS] = {0};
        nm_status status = nm_kneser_ney_extend(model, err);
        NM_THEN(status, score_all(task, model, scores, err));
        bool better = k == FIRST_ORDER || scores[NM_SPLIT_VALID].value < result->scores[NM_SPLIT_VALID].value;
        if (status != NM_OK || !better) {
            release_scores(scores);
            return status;
        }
        release_scores(result->scores);
        for (int split = 0; split < NM_BASELINE_SPLITS; split++)
            result->scores[split] = scores[split];
        *order = k;
    }
    return NM_OK;
}

static nm_status fit(const nm_task *task, nm_kneser_ney *model, int order, nm_baseline_result *result,
                     nm_error *err)
{
    const nm_lm_parts *parts = task->parts;
    bool choose = !order && parts->splits[NM_SPLIT_VALID].n;
    if (!order)
        order = choose ? FIRST_ORDER - 1 : DEFAULT_ORDER;
    for (int k = 0; k < order; k++)
        NM_TRY(nm_kneser_ney_extend(model, err));
    NM_TRY(choose ? choose_order(task, model, result, &order, err)
                  : score_all(task, model, result->scores, err));
    result->settings = nm_format("order %d", order);
    return NM_OK;
}

/* order 0: choose it on the validation text. */
static nm_status run(const nm_task *task, int order, nm_baseline_result *result, nm_error *err)
{
    const nm_lm_parts *parts = task->parts;
    const nm_corpus *train = &parts->splits[NM_SPLIT_TRAIN];
    nm_kneser_ney *model = nm_kneser_ney_create(train->ids, (int64_t)train->offsets[train->n],
                                                parts->vocab->eos, nm_vocab_size(parts->vocab));
    nm_status status = fit(task, model, order, result, err);
    nm_kneser_ney_free(model);
    return status;
}

static nm_status unigram_run(const nm_task *task, const nm_baseline_config *config,
                             nm_baseline_result *result, nm_error *err)
{
    (void)config;
    return run(task, 1, result, err);
}

static nm_status kneser_ney_run(const nm_task *task, const nm_baseline_config *config,
                                nm_baseline_result *result, nm_error *err)
{
    return run(task, (int)config->order, result, err);
}

const nm_baseline_type nm_baseline_unigram = {
    .name = "unigram",
    .title = "unigrams",
    .task = &nm_task_lm,
    .run = unigram_run,
};

const nm_baseline_type nm_baseline_kneser_ney = {
    .name = "kneser-ney",
    .title = "n-grams, modified Kneser-Ney",
    .task = &nm_task_lm,
    .run = kneser_ney_run,
};
