#include "model/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/incremental.h"
#include "model/token_sampling.h"

#define ROW(field, initial, min, max, help) NM_OPTION(nm_sample_options, field, initial, min, max, help)

/* clang-format off */
static const nm_option sample_options[] = {
    ROW(temperature, "1", 0, 1e3, "Divisor of the log probabilities; 0: greedy, the most probable token."),
    ROW(top_k, "0", 0, 1e9, "Number of most probable tokens to sample from; 0: all."),
    ROW(top_p, "1", 0, 1,
        "Probability mass of the most probable tokens to sample from (nucleus sampling); 1: all."),
    ROW(min_p, "0", 0, 1,
        "Minimum probability of a token relative to the most probable one (min-p sampling); 0: all."),
    ROW(repetition_penalty, "1", 1e-3, 1e3,
        "Repetition penalty: logits of tokens of the prompt and of the text generated so far are divided by "
        "it if they are positive, and multiplied if negative; 1: none."),
    ROW(no_repeat_ngram_size, "0", 0, 1000,
        "Size of n-grams of tokens that may occur only once in the prompt and the text; 0: no limit."),
    ROW(tokens, "100", 1, 1e9, "Maximum number of tokens after a prompt."),
    ROW(stop, "", 0, 0,
        "Stop string: the generated text ends before its first occurrence; can be given several times; "
        "empty: none."),
    ROW(lines, "0", 0, 1e9,
        "Number of newlines after which generation stops, also within a document; 0: no limit."),
    ROW(seed, "1", 0, 4294967295.0, "Random seed for sampling."),
    ROW(batch, "16", 1, 4096, "Number of prompts per batch; changes speed and memory, not the text."),
    ROW(unknown, "false", 0, 1, "Allow <unk> in the output."),
    {0}};
/* clang-format on */

void nm_sample_options_add(nm_options *options)
{
    nm_options_add(options, "sample", sample_options, NULL, sizeof(nm_sample_options));
}

/* Limits of a step: decoder inputs, and cache rows to which they attend. PROJECTED_ROWS: prompts for which
 * the output projection, which reads all its weights, is computed together. */
enum { STEP_INPUTS = 256, STEP_CACHE_ROWS = 1 << 20, PROJECTED_ROWS = 16 };

struct nm_sampler {
    nm_model *model;
    const nm_sample_options *options;
    nm_sampler_tokens tokens;
    bool owns_tokens;
    /* NULL without a KV cache (block-term attention): the whole context is recomputed */
    nm_incremental *incremental;
    nm_model_output output; /* the output projection */
    nm_tape tape;
    void *raw;                       /* host: copy of `logits` */
    double *log_p;                   /* host: log probabilities of one prompt, [V + NM_MAX_CLUSTERS] */
    bool *penalized;                 /* host, [V], all false between calls of penalize */
    void *logits;                    /* device: PROJECTED_ROWS rows of the vocabulary and of clusters */
    nm_sample_candidate *candidates; /* host, [V] */
};

typedef struct sequence { /* a prompt and its continuation */
    const nm_id_list *prompt;
    nm_ids *out;
    uint64_t number; /* of the prompt, for the random numbers */
    int64_t lines;   /* number of generated newlines */
    bool ended;
    int32_t *rows; /* KV cache rows of the positions of the current context */
    size_t rows_capacity;
} sequence;

typedef struct batch {
    sequence *live; /* [n], those that have not ended, by the length of their prompts */
    int32_t n;
    int64_t begin;  /* index of the first input of the current context */
    int64_t next;   /* and of the first input that is not in the KV cache */
    int32_t n_rows; /* of the KV cache, including those of texts that have ended */
    /* the inputs of a step, position by position */
    int32_t inputs, *ids, *positions, *offsets, *self_rows;
    size_t ids_capacity, positions_capacity, offsets_capacity, self_capacity;
} batch;

static nm_status alloc_workspace(nm_sampler *self, nm_error *err)
{
    nm_backend *b = self->model->backend;
    size_t words = (size_t)self->model->target_size, unit = nm_dtype_bytes(b->dtype);
    const size_t logit_bytes = PROJECTED_ROWS * (words + NM_MAX_CLUSTERS) * unit;
    self->raw = nm_allocate(logit_bytes);
    self->log_p = nm_allocate((words + NM_MAX_CLUSTERS) * sizeof *self->log_p);
    self->candidates = nm_allocate(words * sizeof *self->candidates);
    self->penalized = nm_allocate(words * sizeof *self->penalized);
    nm_tape_init_growing(&self->tape, b);
    return nm_backend_alloc(b, logit_bytes, &self->logits, err);
}

nm_status nm_sampler_create(nm_sampler **out, nm_model *model, const nm_sample_options *options,
                            nm_sampler_tokens tokens, nm_error *err)
{
    const nm_generator *generator = model->type->generator;
    nm_sampler *self = nm_allocate(sizeof *self);
    *self = (nm_sampler){.model = model, .options = options, .tokens = tokens, .owns_tokens = true};
    nm_status status = NM_OK;
    if (!generator || generator->encoder)
        status =
            nm_fail(err, NM_UNSUPPORTED, "a model of type %s is not a language model", model->type->name);
    else if (generator->is_causal && !generator->is_causal(model))
        status = nm_fail(err, NM_UNSUPPORTED,
                         "the model is not causal (model.causal = false): it cannot generate text");
    NM_THEN(status, alloc_workspace(self, err));
    if (status == NM_OK && generator->decoder(model))
        status = nm_incremental_create(&self->incremental, model, err);
    if (status == NM_OK && self->incremental)
        status = nm_incremental_refresh(self->incremental, err);
    NM_RETURN_NEW(status, out, self, nm_sampler_free);
}

nm_status nm_sampler_create_worker(nm_sampler **out, const nm_sampler *main, nm_model *model, nm_error *err)
{
    nm_sampler *self = nm_allocate(sizeof *self);
    *self = (nm_sampler){.model = model, .options = main->options, .tokens = main->tokens};
    nm_status status = alloc_workspace(self, err);
    if (status == NM_OK && main->incremental)
        status = nm_incremental_create_worker(&self->incremental, main->incremental, model->backend, err);
    NM_RETURN_NEW(status, out, self, nm_sampler_free);
}

void nm_sampler_free(nm_sampler *self)
{
    if (!self)
        return;
    nm_incremental_free(self->incremental);
    nm_tape_release(&self->tape);
    nm_backend_dealloc(self->model->backend, self->logits);
    NM_FREE(self->raw, self->log_p, self->candidates, self->penalized);
    if (self->owns_tokens)
        NM_FREE(self->tokens.newlines, self->tokens.excluded);
    free(self);
}

static int64_t newlines_of(const nm_sampler *self, int32_t id)
{
    return self->tokens.newlines ? self->tokens.newlines[id] : id == self->tokens.eos;
}

static bool ends_document(const nm_sampler *self, int32_t id)
{
    return self->tokens.newlines && id == self->tokens.eos;
}

static int32_t sample_token(nm_sampler *self, uint64_t number, int64_t step)
{
    const nm_sample_options *o = self->options;
    int32_t n = 0, words = self->model->target_size;
    for (int32_t id = 0; id < words; id++)
        if (!self->tokens.excluded[id] && self->log_p[id] > -INFINITY)
            self->candidates[n++] = (nm_sample_candidate){self->log_p[id], id};
    if (!n) /* every token would repeat an n-gram */
        return self->tokens.eos;
    const nm_sampling how = {.temperature = o->temperature,
                             .top_p = o->top_p,
                             .min_p = o->min_p,
                             .top_k = o->top_k,
                             .seed = (uint64_t)o->seed};
    return nm_token_sample(&how, self->candidates, n, (nm_sample_position){0, (uint32_t)step, number});
}

static nm_mat rows_of(const nm_sampler *self, nm_mat x, int32_t first, int32_t n)
{
    size_t row_bytes = (size_t)x.stride * nm_dtype_bytes(self->model->backend->dtype);
    return (nm_mat){(char *)x.data + (size_t)first * row_bytes, n, x.cols, x.stride};
}

/* Input `at`, from 0, of a sequence: the first input of texts, the prompt, the generated tokens. */
static int32_t input_id(const nm_sampler *self, const sequence *g, int64_t at)
{
    return at == 0              ? self->tokens.first_input
           : at <= g->prompt->n ? g->prompt->ids[at - 1]
                                : g->out->data[(size_t)(at - 1 - g->prompt->n)];
}

/* Number of positions of every sequence that a step processes, at most `left`: prompts are known, so that
 * their positions do not need a step each. The inputs and the cache rows to which they attend bound the
 * memory. */
static int32_t step_positions(int32_t sequences, int32_t position, int64_t left)
{
    int32_t positions = 1;
    while (positions < left && sequences * (positions + 1) <= STEP_INPUTS &&
           (int64_t)sequences * (positions + 1) * (position + positions + 1) <= STEP_CACHE_ROWS)
        positions++;
    return positions;
}

/* Adds an input of a sequence to the step: its position, token, and the cache rows up to its own. */
static void add_input(const nm_sampler *self, batch *b, sequence *g, int32_t position)
{
    const size_t n = (size_t)position + 1;
    NM_RESERVE(g->rows, n, g->rows_capacity);
    g->rows[position] = b->n_rows + b->inputs;
    memcpy(b->self_rows + b->offsets[b->inputs], g->rows, n * sizeof *g->rows);
    b->ids[b->inputs] = input_id(self, g, b->begin + position);
    b->positions[b->inputs] = position;
    b->inputs++;
    b->offsets[b->inputs] = b->offsets[b->inputs - 1] + position + 1;
}

/* Runs the decoder on the next inputs of every sequence, up to input `at`, as many as one step processes.
 * hidden: of the last one of each. */
static nm_status decode_step(nm_sampler *self, batch *b, int64_t at, nm_mat *hidden, nm_error *err)
{
    int32_t first = (int32_t)(b->next - b->begin), positions = step_positions(b->n, first, at - b->next + 1);
    size_t inputs = (size_t)b->n * (size_t)positions, end = (size_t)(first + positions);
    NM_RESERVE(b->ids, inputs, b->ids_capacity);
    NM_RESERVE(b->positions, inputs, b->positions_capacity);
    NM_RESERVE(b->offsets, inputs + 1, b->offsets_capacity);
    NM_RESERVE(b->self_rows, inputs * end, b->self_capacity);
    b->inputs = b->offsets[0] = 0;
    for (int32_t position = first; position < first + positions; position++)
        for (int32_t i = 0; i < b->n; i++)
            add_input(self, b, &b->live[i], position);
    const nm_decode_step step = {.n = b->inputs,
                                 .positions = b->positions,
                                 .ids = b->ids,
                                 .first_row = b->n_rows,
                                 .self_rows = b->self_rows,
                                 .self_offsets = b->offsets};
    b->next += positions;
    b->n_rows += b->inputs;
    NM_TRY(nm_incremental_step(self->incremental, &step, hidden, err));
    *hidden = rows_of(self, *hidden, b->inputs - b->n, b->n);
    return NM_OK;
}

/* Runs the model on the whole context of every sequence; hidden: the last row of each. */
static nm_status recompute(nm_sampler *self, batch *b, int64_t at, nm_mat *hidden, nm_error *err)
{
    int32_t length = (int32_t)(at - b->begin + 1), tokens = b->n * length;
    nm_tape *tape = &self->tape;
    nm_tape_start(tape, false, 0, 0);
    size_t bytes = (size_t)tokens * sizeof(int32_t);
    int32_t *ids = nm_tape_host(tape, bytes), *pos = nm_tape_host(tape, bytes),
            *last = nm_tape_host(tape, bytes);
    int32_t *offsets = nm_tape_host(tape, ((size_t)b->n + 1) * sizeof *offsets);
    if (nm_tape_exhausted(tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", tokens);
    for (int32_t i = 0; i < b->n; i++) {
        offsets[i + 1] = (i + 1) * length;
        last[i] = offsets[i + 1] - 1;
        for (int32_t t = 0; t < length; t++) {
            ids[i * length + t] = input_id(self, &b->live[i], b->begin + t);
            pos[i * length + t] = t;
        }
    }
    nm_batch one = {.n = b->n,
                    .target = {b->n, tokens, length, offsets, NULL},
                    .target_in = ids,
                    .target_out = ids,
                    .target_pos = pos};
    self->output = self->model->type->forward(self->model, tape, &one);
    nm_tensor *all = self->output.hidden, *rows = nm_tape_tensor(tape, b->n, all->cols);
    const int32_t *device_last = nm_tape_upload(tape, last, (size_t)b->n * sizeof *last);
    if (nm_tape_exhausted(tape))
        return nm_fail(err, NM_MEMORY, "out of memory for a batch of %d tokens", tokens);
    NM_CALL(tape->backend, gather, .rows = device_last, .x = nm_tensor_mat(all), .out = nm_tensor_mat(rows));
    *hidden = nm_tensor_mat(rows);
    return NM_OK;
}

/* Hidden vectors of input `at`, [sequences, d]. When the context is full, its second half becomes the new
 * context. */
static nm_status advance(nm_sampler *self, batch *b, int64_t at, const nm_stop *stop, nm_mat *hidden,
                         nm_error *err)
{
    int64_t context = self->model->type->generator->context(self->model);
    if (at - b->begin >= context) {
        b->next = b->begin = at - context / 2 + 1;
        b->n_rows = 0;
    }
    if (!self->incremental)
        return recompute(self, b, at, hidden, err);
    while (b->next <= at) {
        NM_TRY(nm_check_stop(stop, err));
        NM_TRY(decode_step(self, b, at, hidden, err));
    }
    return NM_OK;
}

/* Rows of hidden for which the output projection is computed together. */
typedef struct projection {
    int32_t first, n;
    int32_t words, clusters; /* columns of logits: host [n, words], then [n, clusters] */
} projection;

/* Elements first .. first + n - 1 of the logits */
static void read_logits(const nm_sampler *self, size_t first, int32_t n, double *to)
{
    for (int32_t i = 0; i < n; i++)
        to[i] = nm_dtype_get(self->model->backend->dtype, self->raw, first + (size_t)i);
}

/* Computes the logits and copies them to the host. */
static void project(nm_sampler *self, nm_mat hidden, const projection *p)
{
    nm_backend *b = self->model->backend;
    const nm_model_output *out = &self->output;
    const size_t unit = nm_dtype_bytes(b->dtype), words = (size_t)p->n * (size_t)p->words;
    nm_dropout none = {0};
    nm_mat x = rows_of(self, hidden, p->first, p->n);
    NM_CALL(b, linear, .x = x, .weight = nm_tensor_mat(out->weight),
            .bias = out->bias ? out->bias->data : NULL, .drop = &none,
            .y = nm_mat_of(self->logits, p->n, p->words));
    if (p->clusters)
        NM_CALL(b, linear, .x = x, .weight = nm_tensor_mat(out->cluster_weight),
                .bias = out->cluster_bias->data, .drop = &none,
                .y = nm_mat_of((char *)self->logits + words * unit, p->n, p->clusters));
    nm_backend_download(b, self->raw, self->logits, (words + (size_t)p->n * (size_t)p->clusters) * unit);
}

/* The repetition penalty r of Keskar et al. 2019, section 4.1, as in transformers: each token of the prompt
 * and of the text so far has the score
 *     x / r   if x > 0
 *     x r     otherwise
 * once, however often it occurs. The first input of texts does not count. */
static void penalize(nm_sampler *self, const sequence *g, double *scores)
{
    const double penalty = self->options->repetition_penalty;
    const int64_t inputs = g->prompt->n + (int64_t)g->out->n;
    if (penalty == 1)
        return;
    for (int64_t at = 1; at <= inputs; at++) {
        const int32_t id = input_id(self, g, at);
        if (!self->penalized[id])
            scores[id] = scores[id] > 0 ? scores[id] / penalty : scores[id] * penalty;
        self->penalized[id] = true;
    }
    for (int64_t at = 1; at <= inputs; at++)
        self->penalized[input_id(self, g, at)] = false;
}

/* No n-gram of the prompt and the text occurs twice (Paulus et al. 2018), as in transformers. */
static void block_ngrams(nm_sampler *self, const sequence *g)
{
    const int64_t context = self->options->no_repeat_ngram_size - 1;
    const int64_t inputs = g->prompt->n + (int64_t)g->out->n;
    for (int64_t at = 1; context >= 0 && at + context <= inputs; at++) {
        int64_t same = 0;
        while (same < context &&
               input_id(self, g, at + same) == input_id(self, g, inputs - context + 1 + same))
            same++;
        if (same == context)
            self->log_p[input_id(self, g, at + context)] = -INFINITY;
    }
}

/* Writes the log probabilities of the next token of a sequence to self->log_p. The penalty applies to logits,
 * with an adaptive softmax to log probabilities, because logits of different clusters are not comparable. */
static nm_status row_probabilities(nm_sampler *self, const sequence *g, const projection *p, int32_t row,
                                   nm_error *err)
{
    static const nm_adaptive_clusters no_clusters;
    const nm_adaptive_clusters *clusters = self->output.clusters ? self->output.clusters : &no_clusters;
    const int32_t words = p->words;
    read_logits(self, (size_t)row * (size_t)words, words, self->log_p);
    if (clusters->n)
        read_logits(self, (size_t)p->n * (size_t)words + (size_t)row * (size_t)clusters->n, clusters->n,
                    self->log_p + words);
    else
        penalize(self, g, self->log_p);
    nm_adaptive_log_probs(clusters, words, self->log_p + words, self->log_p);
    if (clusters->n)
        penalize(self, g, self->log_p);
    for (int32_t i = 0; i < words; i++)
        if (isnan(self->log_p[i]))
            return nm_fail(err, NM_DIVERGED, "the model's log probabilities are not finite");
    block_ngrams(self, g);
    return NM_OK;
}

/* Whether the text ends with the token that was appended last. */
static bool ends_text(const nm_sampler *self, const nm_sampler_prompts *prompts, const sequence *g)
{
    const nm_sample_options *o = self->options;
    return ends_document(self, g->out->data[g->out->n - 1]) || (int64_t)g->out->n >= o->tokens ||
           (o->lines && g->lines >= o->lines) ||
           (prompts->ends && prompts->ends(prompts->user, g->prompt, g->out));
}

static nm_status sample_next(nm_sampler *self, const nm_sampler_prompts *prompts, sequence *g,
                             const projection *p, int32_t row, nm_error *err)
{
    NM_TRY(row_probabilities(self, g, p, row, err));
    int32_t id = sample_token(self, g->number, (int64_t)g->out->n);
    nm_ids_append(g->out, id);
    g->lines += newlines_of(self, id);
    g->ended = ends_text(self, prompts, g);
    return NM_OK;
}

/* Appends one token to every sequence whose prompt has been processed. */
static nm_status sample_tokens(nm_sampler *self, const nm_sampler_prompts *prompts, batch *b, int64_t at,
                               nm_mat hidden, nm_error *err)
{
    const nm_adaptive_clusters *clusters = self->output.clusters;
    projection p = {.words = self->model->target_size, .clusters = clusters ? clusters->n : 0};
    int32_t n = 0;
    while (n < b->n && at >= b->live[n].prompt->n)
        n++;
    for (; p.first < n; p.first += p.n) {
        p.n = n - p.first < PROJECTED_ROWS ? n - p.first : PROJECTED_ROWS;
        project(self, hidden, &p);
        for (int32_t row = 0; row < p.n; row++)
            NM_TRY(sample_next(self, prompts, &b->live[p.first + row], &p, row, err));
    }
    return NM_OK;
}

static int shorter_first(const void *a, const void *b)
{
    const sequence *x = a, *y = b;
    return (x->prompt->n > y->prompt->n) - (x->prompt->n < y->prompt->n);
}

/* Begins with the context in which the first token is generated, after the shortest prompt: no output depends
 * on earlier inputs. Returns the last input of that prompt. */
static int64_t skip_prompts(const nm_sampler *self, batch *b)
{
    int64_t context = self->model->type->generator->context(self->model), step = context - context / 2 + 1;
    const int64_t shortest = b->live[0].prompt->n;
    b->next = b->begin = shortest < context ? 0 : ((shortest - context) / step + 1) * step;
    return shortest;
}

/* Later steps do not compute the sequences that have ended. Their rows of the KV cache remain until the
 * context is full. */
static void remove_ended(batch *b)
{
    int32_t n = 0;
    for (int32_t i = 0; i < b->n; i++)
        if (b->live[i].ended)
            free(b->live[i].rows);
        else
            b->live[n++] = b->live[i];
    b->n = n;
}

static nm_status run_batch(nm_sampler *self, const nm_sampler_prompts *prompts, batch *b, const nm_stop *stop,
                           nm_error *err)
{
    b->n_rows = 0;
    for (int64_t at = skip_prompts(self, b); b->n; at++) {
        nm_mat hidden;
        NM_TRY(nm_check_stop(stop, err));
        NM_TRY(advance(self, b, at, stop, &hidden, err));
        NM_TRY(sample_tokens(self, prompts, b, at, hidden, err));
        NM_TRY(nm_backend_check(self->model->backend, err));
        remove_ended(b);
    }
    return NM_OK;
}

static void batch_release(batch *b)
{
    for (int32_t i = 0; i < b->n; i++)
        free(b->live[i].rows);
    NM_FREE(b->live, b->ids, b->positions, b->offsets, b->self_rows);
}

nm_status nm_sampler_run(nm_sampler *self, const nm_sampler_prompts *prompts, const nm_stop *stop,
                         nm_ids *out, nm_error *err)
{
    const size_t most = (size_t)self->options->batch;
    NM_AUTO(batch_release) batch b = {.live = nm_allocate(most * sizeof *b.live)};
    nm_status status = NM_OK;
    if (self->incremental)
        self->output = *nm_incremental_output(self->incremental);
    for (size_t first = 0; first < prompts->n && status == NM_OK; first += most) {
        b.n = (int32_t)(prompts->n - first < most ? prompts->n - first : most);
        for (int32_t i = 0; i < b.n; i++)
            b.live[i] = (sequence){.prompt = prompts->list + first + (size_t)i,
                                   .out = out + first + (size_t)i,
                                   .number = prompts->number + first + (size_t)i};
        qsort(b.live, (size_t)b.n, sizeof *b.live, shorter_first);
        status = run_batch(self, prompts, &b, stop, err);
    }
    return status;
}
