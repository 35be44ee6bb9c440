/* Decoding with caches (as in every Transformer decoder since Vaswani et al. 2017): per decoder layer the keys and
 * values of the source are computed once, those of each target input when it is fed. A language model has no source. */
#include "decode/incremental.h"

#include <math.h>
#include <stdlib.h>

#include "model/lm.h"

enum { ENCODER_TOKENS = 1024, FIRST_CACHE_ROWS = 1024 }; /* of one pass of the encoder: bounds its memory */
static const size_t first_tape_bytes = (size_t)64 << 20;

typedef struct cache { /* keys in columns 0 .. d-1, values behind */
    void *data;
    int32_t capacity;
} cache;

struct nm_incremental {
    nm_model *model;
    nm_backend *backend;
    const nm_incremental *main; /* whose tables are read: itself, unless it is a worker */
    nm_tape tape, table_tape;   /* of the current step; of the tables */
    nm_seq2seq_tables tables;
    const nm_stack *stack; /* the decoder */
    cache *self, *cross;   /* one per decoder layer */
    int32_t n_layers, width, source_tokens;
    void *forms, **held; /* memory of the weights' other forms, and those that are held */
    size_t n_held;
};

static size_t row_bytes(const nm_incremental *inc)
{
    return 2 * (size_t)inc->width * nm_dtype_bytes(inc->backend->dtype);
}

static nm_mat cache_rows(const nm_incremental *inc, const cache *from, int32_t first, int32_t rows)
{
    return nm_mat_of((char *)from->data + (size_t)first * row_bytes(inc), rows, 2 * inc->width);
}

/* Room for `rows`; what is there stays. */
static nm_status cache_grow(nm_incremental *inc, cache *kept, int32_t rows, nm_error *err)
{
    if (rows <= kept->capacity)
        return NM_OK;
    int32_t capacity = kept->capacity ? kept->capacity : FIRST_CACHE_ROWS;
    while (capacity < rows)
        capacity = capacity > INT32_MAX / 2 ? rows : 2 * capacity;
    NM_TRY(nm_backend_realloc(inc->backend, (size_t)capacity * row_bytes(inc), &kept->data, err));
    kept->capacity = capacity;
    return NM_OK;
}

static nm_status caches_grow(nm_incremental *inc, cache *caches, int32_t rows, nm_error *err)
{
    for (int32_t i = 0; i < inc->n_layers; i++)
        NM_TRY(cache_grow(inc, &caches[i], rows, err));
    return NM_OK;
}

static bool is_lm(const nm_incremental *inc)
{
    return inc->model->type == &nm_model_lm;
}

static nm_status create(nm_incremental **out, nm_model *model, const nm_stack *stack, nm_backend *backend,
                        const nm_incremental *main, nm_error *err)
{
    nm_incremental *inc = nm_allocate(sizeof *inc);
    *inc = (nm_incremental){.model = model,
                            .backend = backend,
                            .main = main ? main : inc,
                            .stack = stack,
                            .n_layers = stack->config.layers,
                            .width = stack->config.width};
    inc->self = nm_allocate((size_t)inc->n_layers * sizeof(cache));
    inc->cross = nm_allocate((size_t)inc->n_layers * sizeof(cache));
    nm_status status = nm_tape_init(&inc->tape, backend, first_tape_bytes, err);
    if (status != NM_OK) {
        nm_incremental_free(inc);
        return status;
    }
    *out = inc;
    return NM_OK;
}

nm_status nm_incremental_create(nm_incremental **out, nm_model *model, nm_error *err)
{
    const nm_stack *stack = model->type == &nm_model_seq2seq ? &nm_seq2seq_of(model)->decoder
                            : model->type == &nm_model_lm    ? &nm_lm_of(model)->stack
                                                             : NULL;
    if (!stack || stack->config.cores)
        return nm_fail(err, NM_UNSUPPORTED,
                       "a model of type %s with this attention has no keys and values to keep",
                       model->type->name);
    return create(out, model, stack, model->backend, NULL, err);
}

nm_status nm_incremental_create_worker(nm_incremental **out, const nm_incremental *main, nm_backend *worker,
                                       nm_error *err)
{
    return create(out, main->model, main->stack, worker, main, err);
}

void nm_incremental_free(nm_incremental *inc)
{
    if (!inc)
        return;
    nm_incremental_rest(inc);
    if (inc->forms)
        nm_backend_dealloc(inc->backend, inc->forms);
    for (int32_t i = 0; i < inc->n_layers; i++) {
        if (inc->self[i].data)
            nm_backend_dealloc(inc->backend, inc->self[i].data);
        if (inc->cross[i].data)
            nm_backend_dealloc(inc->backend, inc->cross[i].data);
    }
    free(inc->self);
    free(inc->cross);
    free(inc->held);
    nm_tape_release(&inc->tape);
    nm_tape_release(&inc->table_tape);
    free(inc);
}

/* ---- weights in another form ---- */

enum { LAYER_WEIGHTS = 7, FORM_ALIGN = 64 };

static size_t add_weight(const nm_incremental *inc, const nm_tensor *weight, const nm_tensor **to)
{
    if (inc->model->params.int8 && nm_backend_has_packed(inc->backend, nm_tensor_mat(weight)))
        return 0;
    *to = weight;
    return 1;
}

static size_t list_stack(const nm_incremental *inc, const nm_stack *stack, const nm_tensor **list)
{
    size_t n = 0;
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        const nm_tensor *const here[LAYER_WEIGHTS] = {
            layer->self.in_weight,   layer->self.out_weight, layer->cross.in_weight, layer->cross.kv_weight,
            layer->cross.out_weight, layer->ffn.in_weight,   layer->ffn.out_weight};
        for (int w = 0; w < LAYER_WEIGHTS; w++)
            if (here[w]) /* an encoder and a language model have no source */
                n += add_weight(inc, here[w], &list[n]);
    }
    return n;
}

static const nm_stack *encoder_of(const nm_incremental *inc)
{
    return is_lm(inc) ? NULL : &nm_seq2seq_of(inc->model)->encoder;
}

static size_t most_weights(const nm_incremental *inc)
{
    const nm_stack *encoder = encoder_of(inc);
    return (size_t)(inc->n_layers + (encoder ? encoder->config.layers : 0)) * LAYER_WEIGHTS + 1;
}

/* What is multiplied by, but for what is held in int8 for as long as the model lives. */
static size_t list_weights(const nm_incremental *inc, const nm_tensor **list)
{
    const nm_stack *encoder = encoder_of(inc);
    size_t n = encoder ? list_stack(inc, encoder, list) : 0;
    n += list_stack(inc, inc->stack, &list[n]);
    const nm_tensor *output = is_lm(inc) ? nm_lm_of(inc->model)->output_weight : inc->tables.output;
    return n + add_weight(inc, output, &list[n]);
}

static void pack(const nm_incremental *inc, const nm_tensor *weight, void *form, size_t *bytes)
{
    nm_backend *b = inc->backend;
    if (inc->model->params.int8)
        NM_CALL(b, pack_int8, .weight = nm_tensor_mat(weight), .packed = form, .bytes = bytes);
    else
        NM_CALL(b, pack, .weight = nm_tensor_mat(weight), .packed = form, .bytes = bytes);
}

/* Where each form stands in the memory of all; the last number is how much that is. */
static void place_forms(const nm_incremental *inc, const nm_tensor *const *list, size_t n, size_t *places)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        pack(inc, list[i], NULL, &bytes);
        places[i + 1] = places[i] + (bytes + FORM_ALIGN - 1) / FORM_ALIGN * FORM_ALIGN;
    }
}

static void hold_forms(nm_incremental *inc, const nm_tensor *const *list, size_t n, const size_t *places)
{
    nm_backend *b = inc->backend;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        nm_mat weight = nm_tensor_mat(list[i]);
        void *form = (char *)inc->forms + places[i];
        if (places[i + 1] == places[i])
            continue;
        pack(inc, list[i], form, &bytes);
        if (inc->model->params.int8)
            nm_backend_register_weight_int8(b, weight, form);
        else
            nm_backend_register_weight(b, weight, form);
        inc->held[inc->n_held++] = form;
    }
}

static nm_status hold_weights(nm_incremental *inc, nm_error *err)
{
    size_t room = most_weights(inc);
    const nm_tensor **list = nm_allocate(room * sizeof(const nm_tensor *));
    size_t *places = nm_allocate((room + 1) * sizeof *places);
    size_t n = list_weights(inc, list);
    nm_status status = NM_OK;
    nm_incremental_rest(inc);
    place_forms(inc, list, n, places);
    if (!inc->held)
        inc->held = nm_allocate(room * sizeof(void *));
    if (!inc->forms && places[n])
        status = nm_backend_alloc(inc->backend, places[n], &inc->forms, err);
    if (inc->forms)
        hold_forms(inc, list, n, places);
    free(list);
    free(places);
    return status;
}

void nm_incremental_rest(nm_incremental *inc)
{
    while (inc->n_held)
        nm_backend_unregister_weight(inc->backend, inc->held[--inc->n_held]);
}

static size_t unit_table_bytes(const nm_incremental *inc, int32_t words)
{
    size_t unit = nm_dtype_bytes(inc->backend->dtype);
    return (size_t)words * ((size_t)inc->width + 1) * unit + 128;
}

static nm_status make_tables(nm_incremental *inc, nm_error *err)
{
    const nm_model *model = inc->model;
    if (!inc->table_tape.backend)
        NM_TRY(nm_tape_init(
            &inc->table_tape, inc->backend,
            unit_table_bytes(inc, model->source_size) + 2 * unit_table_bytes(inc, model->target_size), err));
    nm_tape_start(&inc->table_tape, false, 0, 0);
    inc->tables = nm_seq2seq_tables_of(inc->model, &inc->table_tape);
    NM_ASSERT(!nm_tape_exhausted(&inc->table_tape));
    return NM_OK;
}

nm_status nm_incremental_refresh(nm_incremental *inc, nm_error *err)
{
    if (!is_lm(inc))
        NM_TRY(make_tables(inc, err));
    return hold_weights(inc, err);
}

/* A tape that was too small for a step gets twice the room, and the step is done again. */
static nm_status tape_grow(nm_incremental *inc, nm_error *err)
{
    size_t bytes = 2 * inc->tape.device.reserved;
    if (inc->tape.host.exhausted)
        return nm_fail(err, NM_MEMORY, "too many hypotheses at once: lower decode.batch_tokens");
    nm_tape_release(&inc->tape);
    return nm_tape_init(&inc->tape, inc->backend, bytes, err);
}

/* y = x W^T + b with the rows first .. first + y.rows_of_weight - 1 of a stacked projection */
static void project(const nm_incremental *inc, nm_tensor *x, const nm_tensor *weight, const nm_tensor *bias,
                    int32_t first, nm_mat y)
{
    size_t unit = nm_dtype_bytes(inc->backend->dtype);
    nm_mat rows =
        nm_mat_of((char *)weight->data + (size_t)first * (size_t)weight->cols * unit, y.cols, weight->cols);
    nm_dropout none = {0};
    NM_CALL(inc->backend, linear, .x = nm_tensor_mat(x), .weight = rows,
            .bias = (char *)bias->data + (size_t)first * unit, .drop = &none, .y = y);
}

/* ---- the source ---- */

static void encode(nm_incremental *inc, const nm_packing *sources, const int32_t *ids, int32_t first,
                   int32_t n)
{
    nm_tape *tape = &inc->tape;
    nm_tape_start(tape, false, 0, 0);
    int32_t begin = sources->offsets[first], tokens = sources->offsets[first + n] - begin;
    int32_t *offsets = nm_tape_host(tape, ((size_t)n + 1) * sizeof *offsets);
    int32_t *pos = nm_tape_host(tape, (size_t)tokens * sizeof *pos);
    if (nm_tape_exhausted(tape))
        return;
    int32_t longest = 0;
    for (int32_t s = 0; s < n; s++) {
        int32_t from = sources->offsets[first + s] - begin, to = sources->offsets[first + s + 1] - begin;
        offsets[s + 1] = to;
        longest = to - from > longest ? to - from : longest;
        for (int32_t i = from; i < to; i++)
            pos[i] = i - from;
    }
    nm_packing here = {.n_seqs = n, .n_tokens = tokens, .longest = longest, .offsets = offsets};
    here = nm_tape_packing(tape, &here);
    nm_tensor *memory =
        nm_seq2seq_encode(inc->model, tape, inc->main->tables.source, ids + begin, pos, &here);
    if (nm_tape_exhausted(tape))
        return;
    for (int32_t i = 0; i < inc->n_layers; i++) {
        const nm_sublayer_attention *cross = &inc->stack->layers[i].cross;
        project(inc, memory, cross->kv_weight, cross->kv_bias, 0,
                cache_rows(inc, &inc->cross[i], begin, tokens));
    }
}

nm_status nm_incremental_start(nm_incremental *inc, const nm_packing *sources, const int32_t *ids,
                               nm_error *err)
{
    inc->source_tokens = sources->n_tokens;
    NM_TRY(caches_grow(inc, inc->cross, sources->n_tokens, err));
    for (int32_t first = 0, n; first < sources->n_seqs; first += n) {
        n = 1;
        while (first + n < sources->n_seqs &&
               sources->offsets[first + n + 1] - sources->offsets[first] <= ENCODER_TOKENS)
            n++;
        encode(inc, sources, ids, first, n);
        while (nm_tape_exhausted(&inc->tape)) {
            NM_TRY(tape_grow(inc, err));
            encode(inc, sources, ids, first, n);
        }
    }
    return NM_OK;
}

/* ---- a step ---- */

typedef struct row_lists { /* device */
    const int32_t *rows, *offsets;
} row_lists;

static row_lists upload_lists(nm_tape *tape, int32_t n, const int32_t *rows, const int32_t *offsets)
{
    return (row_lists){nm_tape_upload(tape, rows, (size_t)offsets[n] * sizeof *rows),
                       nm_tape_upload(tape, offsets, ((size_t)n + 1) * sizeof *offsets)};
}

/* The attention of query rows q over a cache, and its output projection. */
static nm_tensor *attend(nm_incremental *inc, const nm_sublayer_attention *attention, nm_mat q, nm_mat kv,
                         row_lists lists)
{
    nm_tape *tape = &inc->tape;
    nm_backend *b = inc->backend;
    int32_t d = inc->width, heads = inc->stack->config.heads;
    nm_tensor *out = nm_tape_tensor(tape, q.rows, d);
    if (!nm_tape_exhausted(tape))
        NM_CALL(b, attention_cached, .q = q, .k = nm_mat_columns(b, kv, 0, d),
                .v = nm_mat_columns(b, kv, d, d), .rows = lists.rows, .offsets = lists.offsets,
                .heads = heads, .scale = 1 / sqrt((double)d / heads), .out = nm_tensor_mat(out));
    return nm_linear(tape, out, attention->out_weight, attention->out_bias, NM_ACT_NONE, 0);
}

static nm_tensor *query(nm_incremental *inc, const nm_sublayer_attention *attention, nm_tensor *h)
{
    nm_tensor *q = nm_tape_tensor(&inc->tape, h->rows, inc->width);
    if (!nm_tape_exhausted(&inc->tape))
        project(inc, h, attention->in_weight, attention->in_bias, 0, nm_tensor_mat(q));
    return q;
}

static nm_tensor *self_step(nm_incremental *inc, int32_t i, nm_tensor *x, const nm_decode_step *step,
                            row_lists lists)
{
    const nm_stack *stack = inc->stack;
    const nm_sublayer_attention *self = &stack->layers[i].self;
    nm_tensor *h = nm_sublayer_before(&inc->tape, stack, self->norm, x);
    nm_tensor *q = query(inc, self, h);
    if (!nm_tape_exhausted(&inc->tape))
        project(inc, h, self->in_weight, self->in_bias, inc->width,
                cache_rows(inc, &inc->self[i], step->first_row, step->n));
    h = attend(inc, self, nm_tensor_mat(q), cache_rows(inc, &inc->self[i], 0, step->first_row + step->n),
               lists);
    return nm_sublayer_after(&inc->tape, stack, self->norm, x, h);
}

static nm_tensor *cross_step(nm_incremental *inc, int32_t i, nm_tensor *x, row_lists lists)
{
    const nm_stack *stack = inc->stack;
    const nm_sublayer_attention *cross = &stack->layers[i].cross;
    nm_tensor *h = nm_sublayer_before(&inc->tape, stack, cross->norm, x);
    nm_tensor *q = query(inc, cross, h);
    h = attend(inc, cross, nm_tensor_mat(q), cache_rows(inc, &inc->cross[i], 0, inc->source_tokens), lists);
    return nm_sublayer_after(&inc->tape, stack, cross->norm, x, h);
}

typedef struct layer_step {
    nm_incremental *inc;
    int32_t layer;
    nm_tensor *x;
    const nm_decode_step *step;
    row_lists self, cross;
} layer_step;

static nm_tensor *step_layer(nm_tape *tape, const void *context)
{
    const layer_step *c = context;
    nm_incremental *inc = c->inc;
    nm_tensor *x = self_step(inc, c->layer, c->x, c->step, c->self);
    if (!inc->stack->config.alone)
        x = cross_step(inc, c->layer, x, c->cross);
    return nm_ffn_forward(tape, inc->stack, &inc->stack->layers[c->layer].ffn, x);
}

static nm_tensor *run_step(nm_incremental *inc, const nm_decode_step *step)
{
    nm_tape *tape = &inc->tape;
    const nm_stack *stack = inc->stack;
    nm_tape_start(tape, false, 0, 0);
    int32_t *pos = nm_tape_host(tape, (size_t)step->n * sizeof *pos);
    for (int32_t i = 0; pos && i < step->n; i++)
        pos[i] = step->position;
    layer_step call = {.inc = inc, .step = step};
    call.self = upload_lists(tape, step->n, step->self_rows, step->self_offsets);
    if (!stack->config.alone)
        call.cross = upload_lists(tape, step->n, step->cross_rows, step->cross_offsets);
    call.x = is_lm(inc)
                 ? nm_lm_embed(inc->model, tape, step->ids, pos, step->n)
                 : nm_seq2seq_embed(inc->model, tape, inc->main->tables.target, step->ids, pos, step->n);
    for (; call.layer < inc->n_layers; call.layer++)
        call.x = nm_recomputed_segment(tape, step_layer, &call, sizeof call);
    return stack->final_norm ? nm_normalize(tape, stack->final_norm, call.x) : call.x;
}

nm_status nm_incremental_step(nm_incremental *inc, const nm_decode_step *step, nm_mat *hidden, nm_error *err)
{
    NM_TRY(caches_grow(inc, inc->self, step->first_row + step->n, err));
    nm_tensor *x = run_step(inc, step);
    while (nm_tape_exhausted(&inc->tape)) {
        NM_TRY(tape_grow(inc, err));
        x = run_step(inc, step);
    }
    *hidden = nm_tensor_mat(x);
    return NM_OK;
}

nm_mat nm_incremental_output(const nm_incremental *inc, const void **bias)
{
    const nm_tensor *output_bias =
        is_lm(inc) ? nm_lm_of(inc->model)->output_bias : nm_seq2seq_of(inc->model)->output_bias;
    *bias = output_bias ? output_bias->data : NULL;
    return nm_tensor_mat(is_lm(inc) ? nm_lm_of(inc->model)->output_weight : inc->main->tables.output);
}
