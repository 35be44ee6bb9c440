/* Hidden vectors are processed in blocks of rows, which bounds the memory for logits. */
#include "decode/token_scorer.h"
#include "backend/device_memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 128 };

typedef struct row_block {        /* rows of a step whose logits are computed at once */
    int32_t first, rows, cols, k; /* k: number of best tokens, at most cols */
    /* host and device: tokens of the columns, ascending; NULL: all tokens of the vocabulary */
    const int32_t *ids, *device_ids;
} row_block;

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
    void *device[] = {scorer->logits,      scorer->top,   scorer->eos_column, scorer->given_column,
                      scorer->top_columns, scorer->given, scorer->selected};
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

nm_status nm_token_scorer_select(nm_token_scorer *scorer, const nm_token_selection *selection, nm_error *err)
{
    nm_backend *b = scorer->backend;
    scorer->selection = selection;
    if (!selection)
        return NM_OK;
    size_t bytes = selection->offsets[selection->n] * sizeof *selection->ids;
    if (bytes > scorer->selected_bytes) {
        NM_TRY(nm_backend_realloc(b, bytes, &scorer->selected, err));
        scorer->selected_bytes = bytes;
    }
    nm_backend_upload(b, scorer->selected, selection->ids, bytes);
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

static int32_t source_of(const nm_token_scorer *scorer, const nm_decode_step *step, int32_t row)
{
    return scorer->selection->source_of[step->cross_rows[step->cross_offsets[row]]];
}

/* The block of rows from `first` on; with a selection they belong to one source. */
static row_block block_at(const nm_token_scorer *scorer, const nm_decode_step *step, int32_t first)
{
    const nm_token_selection *selection = scorer->selection;
    row_block block = {.first = first, .cols = scorer->vocab_size};
    block.rows = step->n - first < BLOCK_ROWS ? step->n - first : BLOCK_ROWS;
    block.k = scorer->k;
    if (!selection)
        return block;
    int32_t source = source_of(scorer, step, first), rows = 1;
    const size_t *range = &selection->offsets[source];
    while (rows < block.rows && source_of(scorer, step, first + rows) == source)
        rows++;
    block.rows = rows;
    block.cols = (int32_t)(range[1] - range[0]);
    block.k = scorer->k < block.cols ? scorer->k : block.cols;
    block.ids = selection->ids + range[0];
    block.device_ids = (const int32_t *)scorer->selected + range[0];
    return block;
}

/* The column of a token in the block; NM_TARGET_IGNORED if it has none. */
static int32_t column_of(const row_block *block, int32_t id)
{
    int32_t low = 0, high = block->cols;
    if (!block->ids)
        return id;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (block->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < block->cols && block->ids[low] == id ? low : NM_TARGET_IGNORED;
}

/* Computes the logits of the block's hidden vectors of model m in scorer->logits. */
static nm_mat logits_of(nm_token_scorer *scorer, int32_t m, nm_mat hidden, const row_block *block)
{
    nm_backend *b = scorer->backend;
    const nm_model_output *output = nm_incremental_output(scorer->models[m]);
    const nm_mat logits = nm_mat_of(scorer->logits, block->rows, block->cols),
                 weight = nm_tensor_mat(output->weight);
    const void *bias = output->bias ? output->bias->data : NULL;
    const nm_dropout none = {0};
    hidden.data =
        (char *)hidden.data + (size_t)block->first * (size_t)hidden.stride * nm_dtype_bytes(b->dtype);
    hidden.rows = block->rows;
    if (block->ids)
        NM_CALL(b, linear_selected, .x = hidden, .weight = weight, .bias = bias, .rows = block->device_ids,
                .y = logits);
    else
        NM_CALL(b, linear, .x = hidden, .weight = weight, .bias = bias, .drop = &none, .y = logits);
    return logits;
}

/* The tokens that model m may output, device [columns of the block]; NULL: all. A selection contains no
 * others. */
static const uint8_t *allowed_of(const nm_token_scorer *scorer, int32_t m, const row_block *block)
{
    return block->ids ? NULL : scorer->of[m]->allowed;
}

/* log(exp(a) + exp(c)) */
static double log_add(double a, double c)
{
    double high = a > c ? a : c;
    return high == -INFINITY ? high : high + log(exp(a - high) + exp(c - high));
}

/* Adds the probabilities of model m to the mixture, in log space on the host: mixture = log(sum of the
 * models' probabilities). */
static void mix(nm_token_scorer *scorer, int32_t m, nm_mat logits, const row_block *block)
{
    size_t n = (size_t)logits.rows * (size_t)logits.cols;
    nm_backend *b = scorer->backend;
    NM_CALL(b, log_softmax, .x = logits, .allowed = allowed_of(scorer, m, block), .y = logits);
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

/* The k best log probabilities of one model or of the mixture, and that of eos, on the device. given: host
 * [rows], columns of the block or NM_TARGET_IGNORED; or NULL. */
static void find_best(nm_token_scorer *scorer, nm_mat logits, const row_block *block, const int32_t *given)
{
    nm_backend *b = scorer->backend;
    const int32_t eos = column_of(block, scorer->eos);
    NM_ASSERT(eos >= 0);
    if (scorer->n_models == 1) {
        if (given)
            nm_backend_upload(b, scorer->given, given, (size_t)logits.rows * sizeof *given);
        NM_CALL(b, log_top_k, .x = logits, .allowed = allowed_of(scorer, 0, block), .k = block->k,
                .values = scorer->top, .columns = scorer->top_columns, .also = eos,
                .also_values = scorer->eos_column, .given = given ? scorer->given : NULL,
                .given_values = scorer->given_column);
        return;
    }
    mixture_upload(scorer, logits);
    NM_CALL(b, top_k, .x = logits, .k = block->k, .values = scorer->top, .columns = scorer->top_columns);
    NM_CALL(b, scale, .alpha = 1, .x = nm_mat_columns(b, logits, eos, 1),
            .y = nm_mat_of(scorer->eos_column, logits.rows, 1));
}

/* Selects the k best tokens of a row from scorer->all; of equal log probabilities the smaller id comes
 * first. */
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

/* Applies step->adjust to the rows of a block in scorer->all. logits: host, in the type of the backend; NULL:
 * none. */
static void adjust_rows(nm_token_scorer *scorer, const row_block *block, const nm_decode_step *step,
                        const void *logits)
{
    size_t words = (size_t)scorer->vocab_size, cols = (size_t)block->cols;
    double *row_logits = logits ? nm_allocate(words * sizeof *row_logits) : NULL;
    for (size_t row = 0; row < (size_t)block->rows; row++) {
        for (size_t i = 0; logits && i < cols; i++)
            row_logits[block->ids ? (size_t)block->ids[i] : i] = number_at(scorer, logits, row * cols + i);
        step->adjust(step->adjust_context, block->first + (int32_t)row, row_logits,
                     scorer->all + ((size_t)block->first + row) * words);
    }
    free(row_logits);
}

/* Copies the log probabilities of all tokens to scorer->all, and computes the other results from them. */
static nm_status fetch_all(nm_token_scorer *scorer, nm_mat logits, const row_block *block,
                           const nm_decode_step *step, nm_error *err)
{
    const int32_t *given = step->given ? step->given + block->first : NULL;
    nm_backend *b = scorer->backend;
    size_t words = (size_t)scorer->vocab_size, first = (size_t)block->first;
    size_t cols = (size_t)block->cols, rows = (size_t)block->rows;
    double *all = scorer->all + first * words;
    void *kept = NULL; /* logits for step->adjust; an ensemble has none */
    if (step->adjust && step->adjusts_logits && scorer->n_models == 1) {
        kept = nm_allocate(rows * cols * nm_dtype_bytes(b->dtype));
        nm_backend_download(b, kept, logits.data, rows * cols * nm_dtype_bytes(b->dtype));
    }
    if (scorer->n_models == 1)
        NM_CALL(b, log_softmax, .x = logits, .allowed = allowed_of(scorer, 0, block), .y = logits);
    else
        mixture_upload(scorer, logits);
    nm_backend_download(b, scorer->raw, logits.data, rows * cols * nm_dtype_bytes(b->dtype));
    for (size_t i = 0; block->ids && i < rows * words; i++)
        all[i] = -INFINITY;
    for (size_t i = 0; i < rows * cols; i++) {
        double value = number_at(scorer, scorer->raw, i);
        if (!(value < INFINITY)) {
            free(kept);
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
        }
        all[block->ids ? i / cols * words + (size_t)block->ids[i % cols] : i] = value;
    }
    for (size_t i = 0; given && i < rows; i++)
        scorer->given_values[first + i] =
            given[i] == NM_TARGET_IGNORED ? 0 : all[i * words + (size_t)given[i]];
    if (step->adjust)
        adjust_rows(scorer, block, step, kept);
    free(kept);
    if (step->scores == NM_SCORES_ALL_AND_BEST)
        for (int32_t row = block->first; row < block->first + block->rows; row++)
            rank_row(scorer, row);
    return NM_OK;
}

/* columns: those of the given tokens in the block. Returns it, or NULL without given tokens. */
static const int32_t *given_columns(const row_block *block, const nm_decode_step *step,
                                    int32_t columns[BLOCK_ROWS])
{
    if (!step->given)
        return NULL;
    for (int32_t i = 0; i < block->rows; i++)
        columns[i] = column_of(block, step->given[block->first + i]);
    return columns;
}

/* Sets given_values of the rows of the block. columns: not NULL. */
static void fetch_given(nm_token_scorer *scorer, nm_mat logits, const row_block *block, const int32_t *given,
                        const int32_t *columns)
{
    double *values = scorer->given_values + block->first;
    size_t unit = nm_dtype_bytes(scorer->backend->dtype), rows = (size_t)logits.rows;
    if (scorer->n_models == 1)
        nm_backend_download(scorer->backend, scorer->raw, scorer->given_column, rows * unit);
    /* with several models raw holds all log probabilities: mixture_upload */
    for (size_t i = 0; i < rows; i++)
        values[i] = given[i] == NM_TARGET_IGNORED     ? 0
                    : columns[i] == NM_TARGET_IGNORED ? -INFINITY
                    : scorer->n_models == 1
                        ? number_at(scorer, scorer->raw, i)
                        : number_at(scorer, scorer->raw, i * (size_t)logits.cols + (size_t)columns[i]);
}

/* Sets values and columns of the rows of the block from raw and from the first rows * block->k of the
 * columns. The results of a row are not before the values they are read from, so the last row is first. */
static void store_best(nm_token_scorer *scorer, const row_block *block)
{
    const size_t k = (size_t)scorer->k, found = (size_t)block->k;
    double *values = scorer->values + (size_t)block->first * k;
    int32_t *columns = scorer->columns + (size_t)block->first * k;
    for (size_t row = (size_t)block->rows; row-- > 0;)
        for (size_t j = k; j-- > 0;) {
            int32_t column = j < found ? columns[row * found + j] : 0;
            values[row * k + j] = j < found ? number_at(scorer, scorer->raw, row * found + j) : -INFINITY;
            columns[row * k + j] = block->ids ? block->ids[column] : column;
        }
}

static nm_status fetch_best(nm_token_scorer *scorer, nm_mat logits, const row_block *block,
                            const nm_decode_step *step, nm_error *err)
{
    int32_t columns[BLOCK_ROWS];
    const int32_t *given = given_columns(block, step, columns);
    nm_backend *b = scorer->backend;
    size_t unit = nm_dtype_bytes(b->dtype), k = (size_t)scorer->k, rows = (size_t)block->rows;
    size_t first = (size_t)block->first;
    double *values = scorer->values + first * k;
    find_best(scorer, logits, block, given);
    if (given)
        fetch_given(scorer, logits, block, step->given + first, given);
    nm_backend_download(b, scorer->columns + first * k, scorer->top_columns,
                        rows * (size_t)block->k * sizeof(int32_t));
    nm_backend_download(b, scorer->raw, scorer->top, rows * (size_t)block->k * unit);
    store_best(scorer, block);
    nm_backend_download(b, scorer->raw, scorer->eos_column, rows * unit);
    for (size_t i = 0; i < rows; i++) {
        scorer->eos_values[first + i] = number_at(scorer, scorer->raw, i);
        if (!isfinite(values[i * k]) || isnan(scorer->eos_values[first + i]))
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
    row_block block;
    for (int32_t first = 0; first < step->n && status == NM_OK; first += block.rows) {
        nm_mat logits = {0};
        block = block_at(scorer, step, first);
        for (int32_t m = 0; m < scorer->n_models; m++) {
            logits = logits_of(scorer, m, hidden[m], &block);
            if (scorer->n_models > 1)
                mix(scorer, m, logits, &block);
        }
        status = step->scores == NM_SCORES_BEST ? fetch_best(scorer, logits, &block, step, err)
                                                : fetch_all(scorer, logits, &block, step, err);
    }
    free(hidden);
    return status == NM_OK ? nm_backend_check(scorer->backend, err) : status;
}
