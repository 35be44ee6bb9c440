/* Hidden vectors are processed in blocks of rows, which bounds the memory for logits. */
#include "decode/token_scorer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 128 };

static double number_at(const nm_token_scorer *scorer, const void *array, size_t i)
{
    return nm_dtype_get(scorer->backend->dtype, array, i);
}

static nm_status alloc_block(nm_token_scorer *scorer, nm_error *err)
{
    size_t unit = nm_dtype_bytes(scorer->backend->dtype), rows = BLOCK_ROWS;
    size_t k = (size_t)scorer->k, vocab_size = (size_t)scorer->vocab_size;
    void *columns, *given;
    NM_TRY(nm_backend_alloc(scorer->backend, rows * vocab_size * unit, &scorer->logits, err));
    NM_TRY(nm_backend_alloc(scorer->backend, rows * k * unit, &scorer->top, err));
    NM_TRY(nm_backend_alloc(scorer->backend, rows * unit, &scorer->eos_column, err));
    NM_TRY(nm_backend_alloc(scorer->backend, rows * unit, &scorer->given_column, err));
    NM_TRY(nm_backend_alloc(scorer->backend, rows * k * sizeof(int32_t), &columns, err));
    scorer->top_columns = columns;
    NM_TRY(nm_backend_alloc(scorer->backend, rows * sizeof(int32_t), &given, err));
    scorer->given = given;
    scorer->raw = nm_allocate(rows * (scorer->n_models > 1 ? vocab_size : k) * unit);
    scorer->mixture = scorer->n_models > 1 ? nm_allocate(rows * vocab_size * sizeof(double)) : NULL;
    return NM_OK;
}

static nm_token_scorer scorer_of(nm_backend *backend, int32_t n_models, int32_t vocab_size, int32_t eos,
                                 int32_t k)
{
    return (nm_token_scorer){.backend = backend,
                             .models = nm_allocate((size_t)n_models * sizeof(nm_incremental *)),
                             .of = nm_allocate((size_t)n_models * sizeof(nm_model *)),
                             .n_models = n_models,
                             .vocab_size = vocab_size,
                             .eos = eos,
                             .k = k < vocab_size ? k : vocab_size};
}

nm_status nm_token_scorer_init(nm_token_scorer *scorer, nm_model *const *models, int32_t n_models,
                               int32_t eos, int32_t k, nm_error *err)
{
    NM_ASSERT(n_models > 0);
    *scorer = scorer_of(models[0]->backend, n_models, models[0]->target_size, eos, k);
    for (int32_t m = 0; m < n_models; m++) {
        NM_ASSERT(models[m]->backend == scorer->backend && models[m]->target_size == scorer->vocab_size);
        scorer->of[m] = models[m];
        NM_TRY(nm_incremental_create(&scorer->models[m], models[m], err));
    }
    return alloc_block(scorer, err);
}

nm_status nm_token_scorer_init_worker(nm_token_scorer *scorer, const nm_token_scorer *main,
                                      nm_backend *worker, nm_error *err)
{
    *scorer = scorer_of(worker, main->n_models, main->vocab_size, main->eos, main->k);
    for (int32_t m = 0; m < main->n_models; m++) {
        scorer->of[m] = main->of[m];
        NM_TRY(nm_incremental_create_worker(&scorer->models[m], main->models[m], worker, err));
    }
    return alloc_block(scorer, err);
}

void nm_token_scorer_release(nm_token_scorer *scorer)
{
    for (int32_t m = 0; m < scorer->n_models; m++)
        nm_incremental_free(scorer->models[m]);
    void *device[] = {scorer->logits,       scorer->top,         scorer->eos_column,
                      scorer->given_column, scorer->top_columns, scorer->given};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (device[i])
            nm_backend_dealloc(scorer->backend, device[i]);
    free(scorer->models);
    free(scorer->of);
    free(scorer->raw);
    free(scorer->mixture);
    free(scorer->values);
    free(scorer->eos_values);
    free(scorer->given_values);
    free(scorer->all);
    free(scorer->columns);
    *scorer = (nm_token_scorer){0};
}

nm_status nm_token_scorer_refresh(nm_token_scorer *scorer, nm_error *err)
{
    for (int32_t m = 0; m < scorer->n_models; m++)
        NM_TRY(nm_incremental_refresh(scorer->models[m], err));
    return NM_OK;
}

nm_status nm_token_scorer_start(nm_token_scorer *scorer, const nm_packing *sources, const int32_t *ids,
                                nm_error *err)
{
    for (int32_t m = 0; m < scorer->n_models; m++)
        NM_TRY(nm_incremental_start(scorer->models[m], sources, ids, err));
    return NM_OK;
}

static void reserve_results(nm_token_scorer *scorer, const nm_decode_step *step)
{
    const int32_t n = step->n;
    size_t rows = (size_t)n, k = (size_t)scorer->k;
    if (step->scores != NM_SCORES_BEST && n > scorer->all_capacity) {
        size_t words = (size_t)scorer->vocab_size;
        scorer->all = nm_reallocate(scorer->all, rows * words * sizeof *scorer->all);
        scorer->raw = nm_reallocate(scorer->raw, BLOCK_ROWS * words * nm_dtype_bytes(scorer->backend->dtype));
        scorer->all_capacity = n;
    }
    if (n <= scorer->capacity)
        return;
    scorer->values = nm_reallocate(scorer->values, rows * k * sizeof *scorer->values);
    scorer->columns = nm_reallocate(scorer->columns, rows * k * sizeof *scorer->columns);
    scorer->eos_values = nm_reallocate(scorer->eos_values, rows * sizeof *scorer->eos_values);
    scorer->given_values = nm_reallocate(scorer->given_values, rows * sizeof *scorer->given_values);
    scorer->capacity = n;
}

/* Computes the logits of `rows` hidden vectors of model m, from row `first`, in scorer->logits. */
static nm_mat logits_of(nm_token_scorer *scorer, int32_t m, nm_mat hidden, int32_t first, int32_t rows)
{
    nm_backend *b = scorer->backend;
    const nm_model_output *output = nm_incremental_output(scorer->models[m]);
    nm_mat logits = nm_mat_of(scorer->logits, rows, scorer->vocab_size);
    nm_dropout none = {0};
    hidden.data = (char *)hidden.data + (size_t)first * (size_t)hidden.stride * nm_dtype_bytes(b->dtype);
    hidden.rows = rows;
    NM_CALL(b, linear, .x = hidden, .weight = nm_tensor_mat(output->weight),
            .bias = output->bias ? output->bias->data : NULL, .drop = &none, .y = logits);
    return logits;
}

/* log(exp(a) + exp(c)) */
static double log_add(double a, double c)
{
    double high = a > c ? a : c;
    return high == -INFINITY ? high : high + log(exp(a - high) + exp(c - high));
}

/* Adds the probabilities of model m to the mixture, in log space on the host: mixture = log(sum of the models' probabilities). */
static void mix(nm_token_scorer *scorer, int32_t m, nm_mat logits)
{
    size_t n = (size_t)logits.rows * (size_t)logits.cols;
    nm_backend *b = scorer->backend;
    NM_CALL(b, log_softmax, .x = logits, .allowed = scorer->of[m]->allowed, .y = logits);
    nm_backend_download(b, scorer->raw, logits.data, n * nm_dtype_bytes(b->dtype));
    for (size_t i = 0; i < n; i++) {
        double value = number_at(scorer, scorer->raw, i);
        scorer->mixture[i] = m == 0 ? value : log_add(scorer->mixture[i], value);
    }
}

/* Writes log(mean of the models' probabilities) to raw and to logits. */
static void mixture_upload(nm_token_scorer *scorer, nm_mat logits)
{
    nm_backend *b = scorer->backend;
    size_t n = (size_t)logits.rows * (size_t)logits.cols;
    double log_models = log(scorer->n_models);
    for (size_t i = 0; i < n; i++)
        nm_dtype_set(b->dtype, scorer->raw, i, scorer->mixture[i] - log_models);
    nm_backend_upload(b, logits.data, scorer->raw, n * nm_dtype_bytes(b->dtype));
}

/* The k best log probabilities of one model or of the mixture, and that of eos, on the device. given: host [rows] or NULL. */
static void find_best(nm_token_scorer *scorer, nm_mat logits, const int32_t *given)
{
    nm_backend *b = scorer->backend;
    if (scorer->n_models == 1) {
        if (given)
            nm_backend_upload(b, scorer->given, given, (size_t)logits.rows * sizeof *given);
        NM_CALL(b, log_top_k, .x = logits, .allowed = scorer->of[0]->allowed, .k = scorer->k,
                .values = scorer->top, .columns = scorer->top_columns, .also = scorer->eos,
                .also_values = scorer->eos_column, .given = given ? scorer->given : NULL,
                .given_values = scorer->given_column);
        return;
    }
    mixture_upload(scorer, logits);
    NM_CALL(b, top_k, .x = logits, .k = scorer->k, .values = scorer->top, .columns = scorer->top_columns);
    NM_CALL(b, scale, .alpha = 1, .x = nm_mat_columns(b, logits, scorer->eos, 1),
            .y = nm_mat_of(scorer->eos_column, logits.rows, 1));
}

/* Selects the k best tokens of a row from scorer->all; of equal log probabilities the smaller id comes first. */
static void rank_row(nm_token_scorer *scorer, int32_t row)
{
    const double *all = scorer->all + (size_t)row * (size_t)scorer->vocab_size;
    double *values = scorer->values + (size_t)row * (size_t)scorer->k;
    int32_t *columns = scorer->columns + (size_t)row * (size_t)scorer->k, n = 0;
    for (int32_t v = 0; v < scorer->vocab_size; v++) {
        if (n == scorer->k && !(all[v] > values[n - 1]))
            continue;
        int32_t at = n < scorer->k ? n++ : n - 1;
        for (; at > 0 && values[at - 1] < all[v]; at--) {
            values[at] = values[at - 1];
            columns[at] = columns[at - 1];
        }
        values[at] = all[v];
        columns[at] = v;
    }
    scorer->eos_values[row] = all[scorer->eos];
}

/* Copies the log probabilities of all tokens to scorer->all, and computes the other results from them. */
static nm_status fetch_all(nm_token_scorer *scorer, nm_mat logits, int32_t first, const nm_decode_step *step,
                           nm_error *err)
{
    const int32_t *given = step->given ? step->given + first : NULL;
    nm_backend *b = scorer->backend;
    size_t words = (size_t)logits.cols, n = (size_t)logits.rows * words;
    double *all = scorer->all + (size_t)first * words;
    if (scorer->n_models == 1)
        NM_CALL(b, log_softmax, .x = logits, .allowed = scorer->of[0]->allowed, .y = logits);
    else
        mixture_upload(scorer, logits);
    nm_backend_download(b, scorer->raw, logits.data, n * nm_dtype_bytes(b->dtype));
    for (size_t i = 0; i < n; i++) {
        all[i] = number_at(scorer, scorer->raw, i);
        if (!(all[i] < INFINITY))
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
    }
    for (size_t i = 0; given && i < (size_t)logits.rows; i++)
        scorer->given_values[(size_t)first + i] =
            given[i] == NM_TARGET_IGNORED ? 0 : all[i * words + (size_t)given[i]];
    if (step->scores == NM_SCORES_ALL_AND_BEST)
        for (int32_t row = first; row < first + logits.rows; row++)
            rank_row(scorer, row);
    return NM_OK;
}

/* Sets given_values of the rows from `first` on. given: host [rows], not NULL. */
static void fetch_given(nm_token_scorer *scorer, nm_mat logits, int32_t first, const int32_t *given)
{
    double *values = scorer->given_values + first;
    size_t unit = nm_dtype_bytes(scorer->backend->dtype), rows = (size_t)logits.rows;
    if (scorer->n_models == 1)
        nm_backend_download(scorer->backend, scorer->raw, scorer->given_column, rows * unit);
    /* with several models raw holds all log probabilities: mixture_upload */
    for (size_t i = 0; i < rows; i++)
        values[i] = given[i] == NM_TARGET_IGNORED ? 0
                    : scorer->n_models == 1
                        ? number_at(scorer, scorer->raw, i)
                        : number_at(scorer, scorer->raw, i * (size_t)logits.cols + (size_t)given[i]);
}

static nm_status fetch_best(nm_token_scorer *scorer, nm_mat logits, int32_t first, const nm_decode_step *step,
                            nm_error *err)
{
    const int32_t *given = step->given ? step->given + first : NULL;
    nm_backend *b = scorer->backend;
    size_t unit = nm_dtype_bytes(b->dtype), k = (size_t)scorer->k, rows = (size_t)logits.rows;
    double *values = scorer->values + (size_t)first * k;
    find_best(scorer, logits, given);
    if (given)
        fetch_given(scorer, logits, first, given);
    nm_backend_download(b, scorer->columns + (size_t)first * k, scorer->top_columns,
                        rows * k * sizeof(int32_t));
    nm_backend_download(b, scorer->raw, scorer->top, rows * k * unit);
    for (size_t i = 0; i < rows * k; i++)
        values[i] = number_at(scorer, scorer->raw, i);
    nm_backend_download(b, scorer->raw, scorer->eos_column, rows * unit);
    for (size_t i = 0; i < rows; i++) {
        scorer->eos_values[(size_t)first + i] = number_at(scorer, scorer->raw, i);
        if (!isfinite(values[i * k]) || isnan(scorer->eos_values[(size_t)first + i]))
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
    }
    return NM_OK;
}

/* Runs the step of every model; hidden: [n_models]. Attention weights are averaged over the models. */
static nm_status step_models(nm_token_scorer *scorer, const nm_decode_step *step, nm_mat *hidden,
                             nm_error *err)
{
    if (!step->attention || scorer->n_models == 1) {
        for (int32_t m = 0; m < scorer->n_models; m++)
            NM_TRY(nm_incremental_step(scorer->models[m], step, &hidden[m], err));
        return NM_OK;
    }
    size_t n = (size_t)step->cross_offsets[step->n];
    double *mean = step->attention->weights;
    nm_attention_request each = *step->attention;
    each.weights = nm_allocate(n * sizeof *each.weights);
    nm_decode_step own = *step;
    own.attention = &each;
    nm_status status = NM_OK;
    memset(mean, 0, n * sizeof *mean);
    for (int32_t m = 0; m < scorer->n_models && status == NM_OK; m++) {
        status = nm_incremental_step(scorer->models[m], &own, &hidden[m], err);
        for (size_t i = 0; i < n; i++)
            mean[i] += each.weights[i] / scorer->n_models;
    }
    free(each.weights);
    return status;
}

nm_status nm_token_scorer_step(nm_token_scorer *scorer, const nm_decode_step *step, nm_error *err)
{
    NM_TRY(nm_check_stop(scorer->stop, err));
    nm_mat *hidden = nm_allocate((size_t)scorer->n_models * sizeof *hidden);
    nm_status status = step_models(scorer, step, hidden, err);
    reserve_results(scorer, step);
    for (int32_t first = 0; first < step->n && status == NM_OK; first += BLOCK_ROWS) {
        int32_t rows = step->n - first < BLOCK_ROWS ? step->n - first : BLOCK_ROWS;
        nm_mat logits = {0};
        for (int32_t m = 0; m < scorer->n_models; m++) {
            logits = logits_of(scorer, m, hidden[m], first, rows);
            if (scorer->n_models > 1)
                mix(scorer, m, logits);
        }
        status = step->scores == NM_SCORES_BEST ? fetch_best(scorer, logits, first, step, err)
                                                : fetch_all(scorer, logits, first, step, err);
    }
    free(hidden);
    return status;
}
