/* Hidden vectors are processed in blocks of rows, which bounds the memory for logits. */
#include "model/token_scorer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 128 };

typedef struct row_block {        /* rows of a step whose logits are computed at once */
    int32_t first, rows, cols, k; /* k: number of best tokens, at most cols */
    /* host and device: tokens of the columns, ascending; NULL: all tokens of the vocabulary */
    const int32_t *ids, *device_ids;
} row_block;

/* Results of a block of rows, in device memory or in the copy on the host */
typedef struct best_tokens {
    void *values, *eos, *given; /* [rows, k], [rows], [rows] */
    int32_t *columns;           /* [rows, k] */
    size_t bytes;               /* of all */
} best_tokens;

static best_tokens best_of(const nm_token_scorer *scorer, void *memory, size_t rows, size_t k)
{
    const size_t unit = nm_dtype_bytes(scorer->backend->dtype);
    char *eos = (char *)memory + rows * k * unit, *given = eos + rows * unit, *columns = given + rows * unit;
    return (best_tokens){memory, eos, given, (int32_t *)(void *)columns,
                         rows * (k + 2) * unit + rows * k * sizeof(int32_t)};
}

static double number_at(const nm_token_scorer *scorer, const void *array, size_t i)
{
    return nm_dtype_get(scorer->backend->dtype, array, i);
}

static nm_status alloc_block(nm_token_scorer *scorer, nm_error *err)
{
    size_t unit = nm_dtype_bytes(scorer->backend->dtype), rows = BLOCK_ROWS;
    const size_t vocab_size = (size_t)scorer->vocab_size;
    const size_t best_bytes = best_of(scorer, NULL, rows, (size_t)scorer->k).bytes;
    nm_backend *b = scorer->backend;
    NM_TRY(nm_backend_alloc(b, rows * vocab_size * unit, &scorer->logits, err));
    NM_TRY(nm_backend_alloc(b, best_bytes, &scorer->best, err));
    NM_TRY(nm_backend_alloc(b, rows * sizeof(int32_t), (void **)&scorer->given, err));
    scorer->best_host = nm_allocate(best_bytes);
    return scorer->n_models > 1
               ? nm_backend_alloc(b, rows * vocab_size * sizeof(double), (void **)&scorer->mixture, err)
               : NM_OK;
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
    void *device[] = {scorer->logits, scorer->best, scorer->given, scorer->mixture, scorer->selected};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        nm_backend_dealloc(scorer->backend, device[i]);
    NM_FREE(scorer->models, scorer->of, scorer->best_host, scorer->raw, scorer->values, scorer->eos_values,
            scorer->given_values, scorer->all, scorer->columns);
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

/* Replaces the logits of model m by log probabilities; after the last model, by those of the mixture. */
static void mix(nm_token_scorer *scorer, int32_t m, nm_mat logits, const row_block *block)
{
    nm_backend *b = scorer->backend;
    NM_CALL(b, log_softmax, .x = logits, .allowed = allowed_of(scorer, m, block), .y = logits);
    NM_CALL(b, mix, .x = logits, .m = m, .n = scorer->n_models, .mixture = scorer->mixture, .y = logits);
}

/* The k best log probabilities of one model or of the mixture, that of eos, and those of the given tokens,
 * in best_host. given: host [rows], columns of the block or NM_TARGET_IGNORED; or NULL. */
static best_tokens find_best(nm_token_scorer *scorer, nm_mat logits, const row_block *block,
                             const int32_t *given)
{
    nm_backend *b = scorer->backend;
    const int32_t eos = column_of(block, scorer->eos);
    const size_t rows = (size_t)block->rows, k = (size_t)block->k;
    const best_tokens best = best_of(scorer, scorer->best, rows, k);
    const bool mixed = scorer->n_models > 1;
    NM_ASSERT(eos >= 0);
    if (given)
        nm_backend_upload(b, scorer->given, given, rows * sizeof *given);
    NM_CALL(b, log_top_k, .x = logits, .ready = mixed, .allowed = mixed ? NULL : allowed_of(scorer, 0, block),
            .k = block->k, .values = best.values, .columns = best.columns, .also = eos,
            .also_values = best.eos, .given = given ? scorer->given : NULL, .given_values = best.given);
    nm_backend_download(b, scorer->best_host, scorer->best, best.bytes);
    return best_of(scorer, scorer->best_host, rows, k);
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
    NM_AUTO_FREE double *row_logits = logits ? nm_allocate(words * sizeof *row_logits) : NULL;
    for (size_t row = 0; row < (size_t)block->rows; row++) {
        for (size_t i = 0; logits && i < cols; i++)
            row_logits[block->ids ? (size_t)block->ids[i] : i] = number_at(scorer, logits, row * cols + i);
        step->adjust(step->adjust_context, block->first + (int32_t)row, row_logits,
                     scorer->all + ((size_t)block->first + row) * words);
    }
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
    NM_AUTO_FREE void *kept = NULL; /* logits for step->adjust; an ensemble has none */
    if (step->adjust && step->adjusts_logits && scorer->n_models == 1) {
        kept = nm_allocate(rows * cols * nm_dtype_bytes(b->dtype));
        nm_backend_download(b, kept, logits.data, rows * cols * nm_dtype_bytes(b->dtype));
    }
    if (scorer->n_models == 1)
        NM_CALL(b, log_softmax, .x = logits, .allowed = allowed_of(scorer, 0, block), .y = logits);
    nm_backend_download(b, scorer->raw, logits.data, rows * cols * nm_dtype_bytes(b->dtype));
    for (size_t i = 0; block->ids && i < rows * words; i++)
        all[i] = -INFINITY;
    for (size_t i = 0; i < rows * cols; i++) {
        double value = number_at(scorer, scorer->raw, i);
        if (!(value < INFINITY))
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
        all[block->ids ? i / cols * words + (size_t)block->ids[i % cols] : i] = value;
    }
    for (size_t i = 0; given && i < rows; i++)
        scorer->given_values[first + i] =
            given[i] == NM_TARGET_IGNORED ? 0 : all[i * words + (size_t)given[i]];
    if (step->adjust)
        adjust_rows(scorer, block, step, kept);
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

/* Sets values and columns of a row of the block. */
static void store_best(nm_token_scorer *scorer, const row_block *block, const best_tokens *best, size_t row)
{
    const size_t k = (size_t)scorer->k, found = (size_t)block->k, at = ((size_t)block->first + row) * k;
    for (size_t j = 0; j < k; j++) {
        const int32_t column = j < found ? best->columns[row * found + j] : 0;
        scorer->values[at + j] = j < found ? number_at(scorer, best->values, row * found + j) : -INFINITY;
        scorer->columns[at + j] = block->ids ? block->ids[column] : column;
    }
}

static nm_status fetch_best(nm_token_scorer *scorer, nm_mat logits, const row_block *block,
                            const nm_decode_step *step, nm_error *err)
{
    int32_t columns[BLOCK_ROWS];
    const int32_t *given = given_columns(block, step, columns);
    const size_t k = (size_t)scorer->k, first = (size_t)block->first;
    const best_tokens best = find_best(scorer, logits, block, given);
    for (size_t i = 0; i < (size_t)block->rows; i++) {
        store_best(scorer, block, &best, i);
        scorer->eos_values[first + i] = number_at(scorer, best.eos, i);
        if (given) /* a token that is not in the block cannot be output */
            scorer->given_values[first + i] =
                given[i] == NM_TARGET_IGNORED && step->given[first + i] != NM_TARGET_IGNORED
                    ? -INFINITY
                    : number_at(scorer, best.given, i);
        if (!isfinite(scorer->values[(first + i) * k]) || isnan(scorer->eos_values[first + i]))
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
    NM_AUTO_FREE nm_mat *hidden = nm_allocate((size_t)scorer->n_models * sizeof *hidden);
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
    return status == NM_OK ? nm_backend_check(scorer->backend, err) : status;
}
