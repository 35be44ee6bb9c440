/* The negative log-likelihood of a text, in segments as in training, or in overlapping sliding windows, in
 * which only the tokens with enough context are scored. The result does not depend on the division into
 * batches. */
#include <math.h>
#include <stdlib.h>

#include "task/lm_task.h"

typedef struct window {
    int64_t begin;          /* index of the first predicted token */
    int32_t length, scored; /* numbers of tokens; the last `scored` ones are scored */
    bool starts;            /* at the beginning of a text */
} window;

/* Tokens of a block that are in the same batch. Block k consists of the tokens k NM_LM_BLOCK_TOKENS, ... of
 * the text, so that blocks are the same for any batches and segments. */
typedef struct block_part {
    double nll;
    int64_t batch, block, tokens; /* indices of the batch and of the block, number of tokens */
    bool unknown;                 /* whether all tokens are unknown; otherwise none is */
} block_part;

typedef struct scorer {
    nm_model *model;
    const int32_t *ids;
    const nm_lm_scoring *how;
    nm_lm_scored *out;
    nm_tape tape;
    nm_arena host;
    block_part *parts; /* of the batches of this process */
    size_t n_parts, parts_capacity;
    int64_t batch; /* index of the next batch */
    size_t text;   /* index of the text of the next window */
    int64_t next;  /* index of the window in the text */
} scorer;

void nm_lm_scored_release(nm_lm_scored *scored)
{
    free(scored->counts);
    *scored = (nm_lm_scored){0};
}

double nm_lm_perplexity_of_counts(const int64_t *counts, const void *context)
{
    (void)context;
    return counts[1] ? exp(1e-6 * (double)counts[0] / (double)counts[1]) : NAN;
}

void nm_lm_scored_add(nm_lm_scored *scored, double nll, int64_t tokens)
{
    NM_RESERVE(scored->counts, 2 * (scored->n_blocks + 1), scored->capacity);
    scored->counts[2 * scored->n_blocks] = llround(1e6 * nll);
    scored->counts[2 * scored->n_blocks++ + 1] = tokens;
    scored->nll += nll;
    scored->tokens += tokens;
}

/* The hidden vectors of scored tokens, [scored, d], in the order of the windows. */
static nm_tensor *scored_rows(scorer *self, nm_tensor *hidden, const window *windows, const nm_batch *batch,
                              int32_t scored)
{
    nm_tape *tape = &self->tape;
    if (scored == batch->tokens)
        return hidden;
    int32_t *rows = nm_tape_host(tape, (size_t)scored * sizeof *rows), n = 0;
    for (int32_t w = 0; rows && w < batch->n; w++)
        for (int32_t i = windows[w].length - windows[w].scored; i < windows[w].length; i++)
            rows[n++] = batch->target.offsets[w] + i;
    const int32_t *device_rows = nm_tape_upload(tape, rows, (size_t)scored * sizeof *rows);
    nm_tensor *out = nm_tape_tensor(tape, scored, hidden->cols);
    if (!nm_tape_exhausted(tape))
        NM_CALL(tape->backend, gather, .rows = device_rows, .x = nm_tensor_mat(hidden),
                .out = nm_tensor_mat(out));
    return out;
}

/* *nll: sum of the losses of a block of rows. */
static nm_status score_block(scorer *self, nm_tensor *rows, const int32_t *targets, double *nll,
                             nm_error *err)
{
    nm_loss_spec spec = {.targets = targets};
    const double *device = nm_lm_loss(self->model, &self->tape, rows, &spec);
    double sums[2];
    if (!device)
        return nm_fail(err, NM_MEMORY, "out of memory for a block of %d tokens", rows->rows);
    nm_backend_download(self->tape.backend, sums, device, sizeof sums);
    *nll = sums[1];
    return NM_OK;
}

/* Workspace for the log probabilities of the tokens of a block, in device memory except raw. */
typedef struct token_workspace {
    void *logits, *values, *raw; /* [NM_LM_BLOCK_TOKENS, V]; [NM_LM_BLOCK_TOKENS]; host copy of values */
    int32_t *given;              /* [NM_LM_BLOCK_TOKENS] targets */
    /* Results of the kernel that are not used. */
    void *best, *also;
    int32_t *best_columns;
} token_workspace;

static nm_status alloc_token_workspace(scorer *self, token_workspace *space, nm_error *err)
{
    nm_tape *tape = &self->tape;
    size_t bytes = NM_LM_BLOCK_TOKENS * nm_dtype_bytes(tape->backend->dtype);
    *space = (token_workspace){.logits = nm_tape_alloc(tape, bytes * (size_t)self->model->target_size),
                               .values = nm_tape_alloc(tape, bytes),
                               .raw = nm_arena_alloc(&self->host, bytes),
                               .best = nm_tape_alloc(tape, bytes),
                               .also = nm_tape_alloc(tape, bytes),
                               .given = nm_tape_alloc(tape, NM_LM_BLOCK_TOKENS * sizeof(int32_t)),
                               .best_columns = nm_tape_alloc(tape, NM_LM_BLOCK_TOKENS * sizeof(int32_t))};
    return space->raw && !nm_tape_exhausted(tape)
               ? NM_OK
               : nm_fail(err, NM_MEMORY, "out of memory for the logits of %d tokens", NM_LM_BLOCK_TOKENS);
}

/* Losses of the tokens of a block, nll [rows]; each is independent of the other rows. */
static void score_tokens(scorer *self, const token_workspace *space, nm_tensor *rows, const int32_t *targets,
                         double *nll)
{
    nm_backend *b = self->tape.backend;
    const nm_lm *lm = nm_lm_of(self->model);
    nm_mat logits = nm_mat_of(space->logits, rows->rows, self->model->target_size);
    nm_dropout none = {0};
    nm_backend_upload(b, space->given, targets, (size_t)rows->rows * sizeof *targets);
    NM_CALL(b, linear, .x = nm_tensor_mat(rows), .weight = nm_tensor_mat(lm->output_weight),
            .bias = lm->output_bias ? lm->output_bias->data : NULL, .drop = &none, .y = logits);
    NM_CALL(b, log_top_k, .x = logits, .allowed = self->model->allowed, .k = 1, .values = space->best,
            .columns = space->best_columns, .also_values = space->also, .given = space->given,
            .given_values = space->values);
    nm_backend_download(b, space->raw, space->values, (size_t)rows->rows * nm_dtype_bytes(b->dtype));
    for (int32_t i = 0; i < rows->rows; i++)
        nll[i] =
            b->dtype == NM_F64 ? -((const double *)space->raw)[i] : -(double)((const float *)space->raw)[i];
}

static bool is_unknown(const scorer *self, int64_t token)
{
    return self->how->vocab && self->ids[token] == self->how->vocab->unk;
}

/* Losses of n rows, whose targets are ids[first] .. ids[first + n - 1], because the scored tokens of
 * consecutive windows are consecutive. The loss kernel returns sums over rows; losses of single tokens are
 * computed from the logits or, with adaptive softmax, one row at a time. Known and unknown tokens are summed
 * separately. */
static nm_status score_rows(scorer *self, nm_tensor *rows, int64_t first, int32_t n, nm_error *err)
{
    nm_backend *b = self->tape.backend;
    size_t row_bytes = (size_t)rows->cols * nm_dtype_bytes(b->dtype);
    double *token_nll = self->how->token_nll ? self->how->token_nll + first : NULL;
    bool by_logits = token_nll && !nm_lm_of(self->model)->cluster_weight;
    bool one_by_one = token_nll && !by_logits;
    token_workspace space = {0};
    if (by_logits)
        NM_TRY(alloc_token_workspace(self, &space, err));
    for (int32_t at = 0, count; at < n; at += count) {
        int64_t block = (first + at) / NM_LM_BLOCK_TOKENS,
                rest = (block + 1) * NM_LM_BLOCK_TOKENS - first - at;
        count = one_by_one ? 1 : n - at < rest ? n - at : (int32_t)rest;
        bool unknown = is_unknown(self, first + at);
        for (int32_t i = 1; i < count; i++)
            if (is_unknown(self, first + at + i) != unknown)
                count = i;
        nm_tensor part = {
            .data = (char *)rows->data + (size_t)at * row_bytes, .rows = count, .cols = rows->cols};
        const int32_t *targets = self->ids + first + at;
        double nll = 0;
        if (by_logits)
            score_tokens(self, &space, &part, targets, token_nll + at);
        else
            NM_TRY(score_block(self, &part, targets, &nll, err));
        NM_TRY(nm_backend_check(self->tape.backend, err));
        for (int32_t i = 0; by_logits && i < count; i++)
            nll += token_nll[at + i];
        if (!isfinite(nll))
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
        NM_APPEND(self->parts, self->n_parts, self->parts_capacity,
                  (block_part){nll, self->batch, block, count, unknown});
        if (one_by_one)
            token_nll[at] = nll;
    }
    return NM_OK;
}

static nm_status score_batch(scorer *self, const window *windows, int32_t n, nm_error *err)
{
    nm_arena_reset(&self->host);
    int64_t *begins = nm_arena_alloc(&self->host, (size_t)n * sizeof *begins);
    bool *starts = nm_arena_alloc(&self->host, (size_t)n * sizeof *starts);
    int32_t *lengths = nm_arena_alloc(&self->host, (size_t)n * sizeof *lengths), scored = 0;
    for (int32_t w = 0; w < n; w++) {
        begins[w] = windows[w].begin;
        starts[w] = windows[w].starts;
        lengths[w] = windows[w].length;
        scored += windows[w].scored;
    }
    nm_batch batch = nm_lm_pack(self->ids, self->how->before, begins, starts, lengths, n, &self->host);
    nm_tape_start(&self->tape, false, 0, 0);
    nm_tensor *rows =
        scored_rows(self, nm_lm_hidden(self->model, &self->tape, &batch), windows, &batch, scored);
    if (nm_tape_exhausted(&self->tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", batch.tokens);
    return score_rows(self, rows, windows[0].begin + windows[0].length - windows[0].scored, scored, err);
}

/* Sets *w to the next window of the text of tokens begin .. end - 1; false after the last one. */
static bool window_of_text(scorer *self, int64_t begin, int64_t end, window *w)
{
    int64_t length = nm_lm_config_of(self->model)->context, context = self->how->context;
    int64_t step = context ? length - context + 1 : length;
    w->begin = begin + self->next * step;
    w->starts = !self->next;
    /* earlier windows score the tokens before it */
    int64_t done = self->next ? w->begin + length - step : begin;
    if (done >= end)
        return false;
    int64_t window_end = w->begin + length < end ? w->begin + length : end;
    w->length = (int32_t)(window_end - w->begin);
    w->scored = (int32_t)(window_end - done);
    if (w->length < length && self->how->drop_incomplete) {
        self->out->left_out += w->scored;
        return false;
    }
    self->next++;
    return true;
}

/* Sets *w to the next window of the texts in n ids; false after the last one. */
static bool window_next(scorer *self, int64_t n, window *w)
{
    const int64_t *ends = self->how->ends ? self->how->ends : &n;
    size_t n_texts = self->how->ends ? self->how->n_ends : 1;
    for (; self->text < n_texts; self->text++, self->next = 0)
        if (window_of_text(self, self->text ? ends[self->text - 1] : 0, ends[self->text], w))
            return true;
    return false;
}

/* Adds a part to its block, which is added to the result when the next one begins. */
static void add_part(nm_lm_scored *out, block_part *block, const block_part *part)
{
    if (part->unknown) {
        out->unknown_nll += part->nll;
        out->unknown += part->tokens;
    }
    if (part->block == block->block) {
        block->nll += part->nll;
        block->tokens += part->tokens;
        return;
    }
    if (block->tokens)
        nm_lm_scored_add(out, block->nll, block->tokens);
    *block = *part;
}

/* Adds the parts of all processes in the order of the batches: the sums are bitwise identical to those of a
 * single process. */
static nm_status add_blocks(scorer *self, nm_comm *comm, nm_error *err)
{
    NM_AUTO_FREE char *all = NULL;
    NM_AUTO_FREE size_t *ends = nm_allocate((size_t)comm->size * sizeof *ends),
                        *next = nm_allocate((size_t)comm->size * sizeof *next);
    nm_status status =
        nm_comm_gather_bytes(comm, self->parts, self->n_parts * sizeof *self->parts, &all, ends, err);
    const block_part *parts = (const block_part *)(const void *)all;
    block_part block = {.block = -1};
    for (int32_t rank = 1; rank < comm->size && status == NM_OK; rank++)
        next[rank] = ends[rank - 1] / sizeof *parts;
    for (int64_t batch = 0; batch < self->batch && status == NM_OK; batch++) {
        int32_t rank = (int32_t)(batch % comm->size);
        for (; next[rank] < ends[rank] / sizeof *parts && parts[next[rank]].batch == batch; next[rank]++)
            add_part(self->out, &block, &parts[next[rank]]);
    }
    add_part(self->out, &block, &(block_part){.block = -1});
    return status;
}

static nm_status score_windows(scorer *self, int64_t n, nm_error *err)
{
    nm_comm alone = {.type = &nm_comm_none, .size = 1}, *comm = self->how->comm ? self->how->comm : &alone;
    int64_t longest = nm_lm_config_of(self->model)->context;
    NM_AUTO_FREE window *windows = NULL;
    size_t capacity = 0;
    nm_status status = NM_OK;
    for (bool more = true; more && status == NM_OK;) {
        int32_t count = 0;
        for (int64_t tokens = 0; !count || tokens + longest <= self->how->max_tokens;) {
            NM_GROW(windows, (size_t)count, capacity);
            more = window_next(self, n, &windows[count]);
            if (!more)
                break;
            tokens += windows[count++].length;
        }
        status = nm_check_stop(self->how->stop, err);
        if (status == NM_OK && count && self->batch % comm->size == comm->rank)
            status = score_batch(self, windows, count, err);
        self->batch += count > 0;
    }
    NM_THEN(status, add_blocks(self, comm, err));
    free(self->parts);
    return status;
}

static nm_status check_omitted(const int32_t *ids, int64_t n, const nm_vocab *vocab, nm_error *err)
{
    for (int64_t i = 0; vocab && i < n; i++)
        if (nm_vocab_omits(vocab, ids[i]))
            return nm_fail(err, NM_MISMATCH,
                           "token %lld of the text is %s, which has no probability (prepare.omit_symbols)",
                           (long long)i + 1,
                           ids[i] == vocab->unk ? "unknown" : nm_vocab_symbol(vocab, ids[i]));
    return NM_OK;
}

nm_status nm_lm_score_ids(nm_model *model, const int32_t *ids, int64_t n, const nm_lm_scoring *how,
                          nm_lm_scored *scored, nm_error *err)
{
    const nm_lm_config *config = nm_lm_config_of(model);
    if (how->context > config->context)
        return nm_fail(err, NM_USAGE, "perplexity.context = %lld is more than model.context = %lld",
                       (long long)how->context, (long long)config->context);
    if (!config->causal && (how->context || !how->drop_incomplete))
        return nm_fail(err, NM_USAGE,
                       "a non-causal model (model.causal = false) is scored in complete segments only");
    NM_TRY(check_omitted(ids, n, how->vocab, err));
    scorer self = {.model = model, .ids = ids, .how = how, .out = scored};
    nm_tape_init_growing(&self.tape, model->backend);
    nm_arena_init(&self.host, SIZE_MAX);
    nm_status status = score_windows(&self, n, err);
    nm_tape_release(&self.tape);
    nm_arena_release(&self.host);
    return status;
}

void nm_lm_scored_fill(const nm_lm_scored *scored, nm_task_score *score)
{
    *score = (nm_task_score){.name = "perplexity",
                             .title = "ppl",
                             .lower_is_better = true,
                             .value = exp(scored->nll / (double)scored->tokens),
                             .counts = {scored->counts, scored->n_blocks, 2},
                             .of_counts = nm_lm_perplexity_of_counts};
}

static nm_status score_streams(const nm_task *task, nm_model *model, const nm_corpus *corpus, int64_t tokens,
                               nm_lm_scored *scored, nm_error *err)
{
    const nm_lm_task_config *config = task->config;
    const nm_lm_parts *parts = task->parts;
    nm_lm_scoring how = {.max_tokens = task->max_tokens,
                         .stop = task->stop,
                         .before = nm_lm_first_input(nm_lm_config_of(model), parts->vocab),
                         .vocab = parts->vocab,
                         .drop_incomplete =
                             config->incomplete == NM_LM_INCOMPLETE_DROP || !nm_lm_config_of(model)->causal};
    int64_t each = tokens / config->eval_streams;
    for (int64_t s = 0; s < config->eval_streams; s++)
        NM_TRY(nm_lm_score_ids(model, corpus->ids + s * each, each, &how, scored, err));
    return scored->tokens ? NM_OK : nm_fail(err, NM_USAGE, "no complete segment to score");
}

nm_status nm_lm_task_score(nm_task *task, nm_model *model, nm_split split, int64_t examples,
                           nm_task_score *score, nm_error *err)
{
    const nm_lm_config *config = nm_lm_config_of(model);
    const nm_lm_parts *parts = task->parts;
    const nm_corpus *corpus = &parts->splits[split];
    *score = (nm_task_score){0};
    if (!corpus->n)
        return nm_fail(err, NM_USAGE, "the data folder has no text to score");
    int64_t tokens = (int64_t)corpus->offsets[corpus->n];
    if (examples && examples < tokens)
        tokens = examples;
    nm_lm_scored scored = {0};
    nm_status status = score_streams(task, model, corpus, tokens, &scored, err);
    if (status != NM_OK) {
        nm_lm_scored_release(&scored);
        return status;
    }
    nm_lm_scored_fill(&scored, score);
    score->name = config->causal ? "perplexity" : "noncausal";
    score->title = config->causal ? "ppl" : "non-causal, not a ppl";
    snprintf(score->signature, sizeof score->signature, "%s|segments:%lld|tokens:%lld|left out:%lld",
             config->causal ? "perplexity" : "non-causal, not a perplexity", (long long)config->context,
             (long long)scored.tokens, (long long)(tokens - scored.tokens));
    return NM_OK;
}
