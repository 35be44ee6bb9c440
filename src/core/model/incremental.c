/* The decoder stack runs by nm_stack_forward_with; only attention differs from training: the queries of new
 * positions attend to the KV cache. */
#include "model/incremental.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "nn/sublayers.h"

/* ENCODER_TOKENS: maximum number of source tokens per forward pass of the encoder, which bounds its
 * memory. */
enum { ENCODER_TOKENS = 1024, INITIAL_CACHE_ROWS = 1024 };
static const size_t initial_tape_bytes = (size_t)64 << 20;

typedef struct kv_cache { /* rows [k | v] of one layer, groups of heads */
    void *data;
    int32_t capacity; /* rows */
} kv_cache;

struct nm_incremental {
    nm_model *model;
    const nm_generator *generator;
    nm_backend *backend;
    const nm_incremental *main; /* owner of the tables: itself, unless it is a worker */
    nm_tape tape, table_tape;   /* of the current step; of the tables */
    nm_generator_tables tables;
    const nm_stack *encoder, *decoder; /* encoder: NULL for decoder-only models */
    kv_cache *self, *cross;            /* [decoder layers] */
    nm_head_widths self_widths, cross_widths;
    bool bf16_cache; /* the KV cache is in bf16, otherwise in the backend's dtype */
    int32_t n_layers, source_tokens;
    /* Host copy of a layer's cross-attention cache, for attention weights; NULL: none yet of this batch */
    double *aligned_cache;
    int32_t aligned_layer;
    void *packed;      /* device: all packed weights */
    void **registered; /* [n_registered] packed weights that are registered with the backend */
    size_t n_registered;
};

static int32_t key_columns(nm_head_widths w)
{
    return w.groups * w.key;
}

static int32_t cache_columns(nm_head_widths w)
{
    return w.groups * (w.key + w.value);
}

static size_t element_bytes(const nm_incremental *inc)
{
    return inc->bf16_cache ? sizeof(uint16_t) : nm_dtype_bytes(inc->backend->dtype);
}

static size_t row_bytes(const nm_incremental *inc, nm_head_widths w)
{
    return (size_t)cache_columns(w) * element_bytes(inc);
}

static nm_mat cache_rows(const nm_incremental *inc, const kv_cache *cache, nm_head_widths w, int32_t first,
                         int32_t rows)
{
    return nm_mat_of((char *)cache->data + (size_t)first * row_bytes(inc, w), rows, cache_columns(w));
}

/* The keys and the values of rows of a cache. */
static nm_mat cached_keys(nm_head_widths w, nm_mat rows)
{
    return (nm_mat){rows.data, rows.rows, key_columns(w), rows.stride};
}

static nm_mat cached_values(const nm_incremental *inc, nm_head_widths w, nm_mat rows)
{
    return (nm_mat){(char *)rows.data + (size_t)key_columns(w) * element_bytes(inc), rows.rows,
                    w.groups * w.value, rows.stride};
}

/* Grows the caches of all layers to at least `rows` rows and keeps their contents. */
static nm_status caches_reserve(nm_incremental *inc, kv_cache *caches, nm_head_widths w, int32_t rows,
                                nm_error *err)
{
    for (int32_t i = 0; i < inc->n_layers; i++) {
        kv_cache *cache = &caches[i];
        int32_t capacity = cache->capacity ? cache->capacity : INITIAL_CACHE_ROWS;
        if (rows <= cache->capacity)
            continue;
        while (capacity < rows)
            capacity = capacity > INT32_MAX / 2 ? rows : 2 * capacity;
        NM_TRY(nm_backend_realloc(inc->backend, (size_t)capacity * row_bytes(inc, w), &cache->data, err));
        cache->capacity = capacity;
    }
    return NM_OK;
}

static void caches_free(const nm_incremental *inc, kv_cache *caches)
{
    for (int32_t i = 0; i < inc->n_layers; i++)
        if (caches[i].data)
            nm_backend_dealloc(inc->backend, caches[i].data);
    free(caches);
}

static nm_status create(nm_incremental **out, nm_model *model, nm_backend *backend,
                        const nm_incremental *main, nm_error *err)
{
    const nm_generator *generator = model->type->generator;
    const nm_stack *decoder = generator->decoder(model);
    nm_incremental *inc = nm_allocate(sizeof *inc);
    *inc = (nm_incremental){.model = model,
                            .generator = generator,
                            .backend = backend,
                            .main = main ? main->main : inc,
                            .encoder = generator->encoder ? generator->encoder(model) : NULL,
                            .decoder = decoder,
                            .self_widths = nm_stack_head_widths(&decoder->config, false),
                            .cross_widths = nm_stack_head_widths(&decoder->config, true),
                            .bf16_cache = backend->bf16 || model->params.int8,
                            .n_layers = decoder->config.layers};
    inc->self = nm_allocate((size_t)inc->n_layers * sizeof *inc->self);
    inc->cross = nm_allocate((size_t)inc->n_layers * sizeof *inc->cross);
    nm_status status = nm_tape_init(&inc->tape, backend, initial_tape_bytes, err);
    NM_RETURN_NEW(status, out, inc, nm_incremental_free);
}

nm_status nm_incremental_create(nm_incremental **out, nm_model *model, nm_error *err)
{
    const nm_generator *generator = model->type->generator;
    if (!generator || !generator->decoder(model))
        return nm_fail(err, NM_UNSUPPORTED, "a model of type %s with this attention has no KV cache",
                       model->type->name);
    return create(out, model, model->backend, NULL, err);
}

nm_status nm_incremental_create_worker(nm_incremental **out, const nm_incremental *main, nm_backend *worker,
                                       nm_error *err)
{
    return create(out, main->model, worker, main, err);
}

void nm_incremental_free(nm_incremental *inc)
{
    if (!inc)
        return;
    nm_incremental_release_weights(inc);
    if (inc->packed)
        nm_backend_dealloc(inc->backend, inc->packed);
    caches_free(inc, inc->self);
    caches_free(inc, inc->cross);
    NM_FREE(inc->registered, inc->aligned_cache);
    nm_tape_release(&inc->tape);
    nm_tape_release(&inc->table_tape);
    free(inc);
}

enum { LAYER_WEIGHTS = 7, PACKED_ALIGN = 64 };

/* Appends a weight unless nm_params_to_int8 has registered it. Returns the number of appended weights. */
static size_t add_weight(const nm_incremental *inc, const nm_tensor *weight, const nm_tensor **list)
{
    if (inc->model->params.int8 && nm_backend_has_packed(inc->backend, nm_tensor_mat(weight)))
        return 0;
    *list = weight;
    return 1;
}

static size_t list_stack_weights(const nm_incremental *inc, const nm_stack *stack, const nm_tensor **list)
{
    size_t n = 0;
    for (int32_t i = 0; i < stack->config.layers; i++) {
        const nm_layer *layer = &stack->layers[i];
        const nm_tensor *const weights[LAYER_WEIGHTS] = {
            layer->self.in_weight,   layer->self.out_weight, layer->cross.in_weight, layer->cross.kv_weight,
            layer->cross.out_weight, layer->ffn.in_weight,   layer->ffn.out_weight};
        for (int w = 0; w < LAYER_WEIGHTS; w++)
            if (weights[w]) /* NULL without cross-attention */
                n += add_weight(inc, weights[w], &list[n]);
    }
    return n;
}

static void pack(const nm_incremental *inc, const nm_tensor *weight, void *packed, size_t *bytes)
{
    nm_backend *b = inc->backend;
    if (inc->model->params.int8)
        NM_CALL(b, pack_int8, .weight = nm_tensor_mat(weight), .packed = packed, .bytes = bytes);
    else
        NM_CALL(b, pack, .weight = nm_tensor_mat(weight), .packed = packed, .bytes = bytes);
}

/* Offsets in bytes of n packed weights in nm_incremental.packed; offsets[n]: its size. Weights without a
 * packed layout have 0 bytes. */
static void layout_packed(const nm_incremental *inc, const nm_tensor *const *list, size_t n, size_t *offsets)
{
    for (size_t i = 0; i < n; i++) {
        size_t bytes = 0;
        pack(inc, list[i], NULL, &bytes);
        offsets[i + 1] = offsets[i] + (bytes + PACKED_ALIGN - 1) / PACKED_ALIGN * PACKED_ALIGN;
    }
}

static void register_packed(nm_incremental *inc, const nm_tensor *const *list, size_t n,
                            const size_t *offsets)
{
    nm_backend *b = inc->backend;
    for (size_t i = 0; i < n; i++) {
        size_t bytes;
        nm_mat weight = nm_tensor_mat(list[i]);
        void *packed = (char *)inc->packed + offsets[i];
        if (offsets[i + 1] == offsets[i])
            continue;
        pack(inc, list[i], packed, &bytes);
        if (inc->model->params.int8)
            nm_backend_register_weight_int8(b, weight, packed);
        else
            nm_backend_register_weight(b, weight, packed);
        inc->registered[inc->n_registered++] = packed;
    }
}

static nm_status pack_weights(nm_incremental *inc, nm_error *err)
{
    int32_t layers = inc->n_layers + (inc->encoder ? inc->encoder->config.layers : 0);
    size_t most = (size_t)layers * LAYER_WEIGHTS + 1;
    NM_AUTO_FREE const nm_tensor **list = nm_allocate(most * sizeof(const nm_tensor *));
    NM_AUTO_FREE size_t *offsets = nm_allocate((most + 1) * sizeof *offsets);
    size_t n = inc->encoder ? list_stack_weights(inc, inc->encoder, list) : 0;
    n += list_stack_weights(inc, inc->decoder, &list[n]);
    n += add_weight(inc, inc->tables.output.weight, &list[n]);
    nm_status status = NM_OK;
    nm_incremental_release_weights(inc);
    layout_packed(inc, list, n, offsets);
    if (!inc->registered)
        inc->registered = nm_allocate(most * sizeof(void *));
    if (!inc->packed && offsets[n])
        status = nm_backend_alloc(inc->backend, offsets[n], &inc->packed, err);
    if (inc->packed)
        register_packed(inc, list, n, offsets);
    return status;
}

void nm_incremental_release_weights(nm_incremental *inc)
{
    while (inc->n_registered)
        nm_backend_unregister_weight(inc->backend, inc->registered[--inc->n_registered]);
}

/* Upper bound in bytes of the tape memory for one L2-normalized table of n rows: values, norms, alignment. */
static size_t table_bytes(const nm_incremental *inc, int32_t n)
{
    return (size_t)n * ((size_t)inc->decoder->config.width + 1) * nm_dtype_bytes(inc->backend->dtype) + 128;
}

nm_status nm_incremental_refresh(nm_incremental *inc, nm_error *err)
{
    const nm_model *model = inc->model;
    size_t bytes = table_bytes(inc, model->source_size) + 2 * table_bytes(inc, model->target_size);
    if (!inc->table_tape.backend)
        NM_TRY(nm_tape_init(&inc->table_tape, inc->backend, bytes, err));
    nm_tape_start(&inc->table_tape, false, 0, 0);
    inc->tables = inc->generator->tables(inc->model, &inc->table_tape);
    NM_ASSERT(!nm_tape_exhausted(&inc->table_tape));
    return pack_weights(inc, err);
}

/* Doubles the device memory of the tape, whose contents are lost; the caller repeats the step. NM_MEMORY. */
static nm_status tape_grow(nm_incremental *inc, nm_error *err)
{
    size_t bytes = 2 * inc->tape.device.reserved;
    if (inc->tape.host.exhausted)
        return nm_fail(err, NM_MEMORY, "too many hypotheses in one batch: lower decode.batch_tokens");
    nm_tape_release(&inc->tape);
    return nm_tape_init(&inc->tape, inc->backend, bytes, err);
}

/* rows = [k | v], the keys and values of the rows of h. positions: device, for rope; may be NULL. */
static void compute_key_values(nm_incremental *inc, const nm_sublayer_attention *attention, nm_tensor *h,
                               const int32_t *positions, nm_mat rows)
{
    const nm_stack *stack = inc->decoder;
    bool cross = attention->kv_weight != NULL;
    nm_head_widths w = cross ? inc->cross_widths : inc->self_widths;
    nm_backend *b = inc->backend;
    if (nm_softmax_is_plain(stack)) {
        nm_linear_rows(b, nm_tensor_mat(h), cross ? attention->kv_weight : attention->in_weight,
                       cross ? attention->kv_bias : attention->in_bias, cross ? 0 : w.heads * w.key, rows);
        return;
    }
    nm_key_values kv = nm_softmax_key_values(&inc->tape, stack, attention, h, positions);
    if (nm_tape_exhausted(&inc->tape))
        return;
    int32_t keys = key_columns(w);
    NM_CALL(b, scale, .alpha = 1, .x = nm_tensor_mat(kv.keys), .y = nm_mat_columns(b, rows, 0, keys));
    NM_CALL(b, scale, .alpha = 1, .x = nm_tensor_mat(kv.values),
            .y = nm_mat_columns(b, rows, keys, w.groups * w.value));
}

/* Writes the keys and values of the rows of h to rows of a cache. */
static void write_key_values(nm_incremental *inc, const nm_sublayer_attention *attention, nm_tensor *h,
                             const int32_t *positions, nm_mat cache)
{
    nm_tape *tape = &inc->tape;
    if (!inc->bf16_cache) {
        compute_key_values(inc, attention, h, positions, cache);
        return;
    }
    nm_tensor *kv = nm_tape_tensor(tape, cache.rows, cache.cols);
    if (!nm_tape_exhausted(tape))
        compute_key_values(inc, attention, h, positions, nm_tensor_mat(kv));
    if (nm_tape_exhausted(tape))
        return;
    NM_CALL(inc->backend, store_bf16, .x = nm_tensor_mat(kv), .y = cache.data);
    nm_tape_free_data(tape, kv);
}

/* Encodes the sources first .. first + n - 1 and writes their keys and values for cross-attention. */
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
    nm_packing packing = {.n_seqs = n, .n_tokens = tokens, .longest = longest, .offsets = offsets};
    packing = nm_tape_packing(tape, &packing);
    nm_tensor *x =
        inc->generator->embed(inc->model, tape, inc->main->tables.source, ids + begin, pos, tokens);
    nm_tensor *memory = nm_stack_forward(tape, inc->encoder, x, &packing, NULL, NULL, NULL);
    if (nm_tape_exhausted(tape))
        return;
    for (int32_t i = 0; i < inc->n_layers; i++)
        write_key_values(inc, &inc->decoder->layers[i].cross, memory, NULL,
                         cache_rows(inc, &inc->cross[i], inc->cross_widths, begin, tokens));
}

nm_status nm_incremental_start(nm_incremental *inc, const nm_packing *sources, const int32_t *ids,
                               nm_error *err)
{
    NM_ASSERT(inc->encoder);
    inc->source_tokens = sources->n_tokens;
    free(inc->aligned_cache);
    inc->aligned_cache = NULL;
    NM_TRY(caches_reserve(inc, inc->cross, inc->cross_widths, sources->n_tokens, err));
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

typedef struct row_lists { /* device: rows of the cache that each query attends to */
    const int32_t *rows, *offsets;
} row_lists;

typedef struct cached_attention { /* context of the attention functions */
    nm_incremental *inc;
    const nm_decode_step *step;
    row_lists self, cross;
    row_lists local;          /* self in layers with a window */
    const int32_t *positions; /* rope: device [step->n] */
} cached_attention;

static row_lists upload_lists(nm_tape *tape, int32_t n, const int32_t *rows, const int32_t *offsets)
{
    return (row_lists){nm_tape_upload(tape, rows, (size_t)offsets[n] * sizeof *rows),
                       nm_tape_upload(tape, offsets, ((size_t)n + 1) * sizeof *offsets)};
}

/* The last rows of each list of the step, as many as fit in the window. */
static row_lists upload_local_lists(nm_tape *tape, const nm_decode_step *step, int32_t window)
{
    const int32_t *from = step->self_offsets;
    int32_t *offsets = nm_tape_host(tape, ((size_t)step->n + 1) * sizeof *offsets);
    for (int32_t i = 0; offsets && i < step->n; i++)
        offsets[i + 1] = offsets[i] + (from[i + 1] - from[i] < window ? from[i + 1] - from[i] : window);
    int32_t *rows = offsets ? nm_tape_host(tape, (size_t)offsets[step->n] * sizeof *rows) : NULL;
    if (!rows)
        return (row_lists){0};
    for (int32_t i = 0; i < step->n; i++) {
        int32_t n = offsets[i + 1] - offsets[i];
        memcpy(rows + offsets[i], step->self_rows + from[i + 1] - n, (size_t)n * sizeof *rows);
    }
    return upload_lists(tape, step->n, rows, offsets);
}

/* A host copy in double, [rows, stride]; the caller frees it. bf16: of bf16 numbers. */
static double *download(nm_backend *b, nm_mat rows, bool bf16)
{
    size_t n = (size_t)rows.rows * (size_t)rows.stride;
    size_t bytes = n * (bf16 ? sizeof(uint16_t) : nm_dtype_bytes(b->dtype));
    NM_AUTO_FREE void *raw = nm_allocate(bytes);
    double *values = nm_allocate(n * sizeof *values);
    nm_backend_download(b, raw, rows.data, bytes);
    for (size_t i = 0; i < n; i++)
        values[i] = bf16 ? (double)nm_bf16_value(((const uint16_t *)raw)[i]) : nm_dtype_get(b->dtype, raw, i);
    return values;
}

typedef struct gathered_keys { /* the keys of one head: the rows rows[0 .. n - 1] of k */
    const double *k;
    size_t stride; /* of k, in elements */
    const int32_t *rows;
    int32_t n;
} gathered_keys;

/* For one head of `width` features: weights += fraction softmax(q k^T / sqrt(width)). scores: workspace
 * [keys->n]. */
static void add_head_weights(const double *q, const gathered_keys *keys, int32_t width, double fraction,
                             double *scores, double *weights)
{
    double largest = -INFINITY, sum = 0;
    for (int32_t i = 0; i < keys->n; i++) {
        const double *k = keys->k + (size_t)keys->rows[i] * keys->stride;
        double dot = 0;
        for (int32_t c = 0; c < width; c++)
            dot += q[c] * k[c];
        scores[i] = dot / sqrt(width);
        largest = scores[i] > largest ? scores[i] : largest;
    }
    for (int32_t i = 0; i < keys->n; i++)
        sum += scores[i] = exp(scores[i] - largest);
    for (int32_t i = 0; i < keys->n; i++)
        weights[i] += fraction * scores[i] / sum;
}

/* The cache does not change between steps of a batch. */
static const double *aligned_cache(nm_incremental *inc, int32_t layer)
{
    if (!inc->aligned_cache || inc->aligned_layer != layer) {
        free(inc->aligned_cache);
        inc->aligned_cache = download(
            inc->backend, cache_rows(inc, &inc->cross[layer], inc->cross_widths, 0, inc->source_tokens),
            inc->bf16_cache);
        inc->aligned_layer = layer;
    }
    return inc->aligned_cache;
}

/* Computes step->attention->weights on the host from the queries [n, d] of the layer. */
static void attention_weights(nm_incremental *inc, const nm_decode_step *step, nm_mat queries)
{
    const nm_attention_request *request = step->attention;
    nm_head_widths w = inc->cross_widths;
    int32_t heads = w.heads, head_width = w.key;
    int32_t first = request->head < 0 ? 0 : request->head, end = request->head < 0 ? heads : first + 1;
    NM_AUTO_FREE double *q = download(inc->backend, queries, false);
    const double *kv = aligned_cache(inc, request->layer);
    NM_AUTO_FREE double *scores = nm_allocate((size_t)inc->source_tokens * sizeof *scores);
    memset(request->weights, 0, (size_t)step->cross_offsets[step->n] * sizeof *request->weights);
    for (int32_t i = 0; i < step->n; i++)
        for (int32_t h = first; h < end; h++) {
            const gathered_keys keys = {kv + (size_t)(h * head_width), (size_t)cache_columns(w),
                                        step->cross_rows + step->cross_offsets[i],
                                        step->cross_offsets[i + 1] - step->cross_offsets[i]};
            add_head_weights(q + (size_t)i * (size_t)queries.stride + (size_t)(h * head_width), &keys,
                             head_width, 1.0 / (end - first), scores,
                             request->weights + step->cross_offsets[i]);
        }
}

/* Attention of the queries q [n, heads key] over a cache, and output projection, [n, d]. */
static nm_tensor *attend(nm_incremental *inc, const nm_sublayer_attention *attention, nm_tensor *q, nm_mat kv,
                         nm_head_widths w, row_lists lists)
{
    nm_tape *tape = &inc->tape;
    nm_backend *b = inc->backend;
    nm_tensor *out = nm_tape_tensor(tape, q->rows, w.heads * w.value);
    if (!nm_tape_exhausted(tape))
        NM_CALL(b, attention_cached, .q = nm_tensor_mat(q), .k = cached_keys(w, kv),
                .v = cached_values(inc, w, kv), .bf16 = inc->bf16_cache, .rows = lists.rows,
                .offsets = lists.offsets, .heads = w.heads, .key_heads = w.groups,
                .scale = 1 / sqrt((double)w.value), .out = nm_tensor_mat(out));
    return nm_softmax_output(tape, attention, out);
}

static nm_tensor *cached_self(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                              const void *context)
{
    const cached_attention *c = context;
    nm_incremental *inc = c->inc;
    const nm_sublayer_attention *self = &stack->layers[layer].self;
    const kv_cache *cache = &inc->self[layer];
    nm_head_widths w = inc->self_widths;
    if (!nm_tape_exhausted(tape))
        write_key_values(inc, self, h, c->positions,
                         cache_rows(inc, cache, w, c->step->first_row, c->step->n));
    nm_tensor *q = nm_softmax_queries(tape, stack, self, h, c->positions);
    return attend(inc, self, q, cache_rows(inc, cache, w, 0, c->step->first_row + c->step->n), w,
                  self->window ? c->local : c->self);
}

static nm_tensor *cached_cross(nm_tape *tape, const nm_stack *stack, int32_t layer, nm_tensor *h,
                               const void *context)
{
    const cached_attention *c = context;
    nm_incremental *inc = c->inc;
    const nm_sublayer_attention *cross = &stack->layers[layer].cross;
    nm_head_widths w = inc->cross_widths;
    nm_tensor *q = nm_softmax_queries(tape, stack, cross, h, NULL);
    if (c->step->attention && c->step->attention->layer == layer && !nm_tape_exhausted(tape))
        attention_weights(inc, c->step, nm_tensor_mat(q));
    return attend(inc, cross, q, cache_rows(inc, &inc->cross[layer], w, 0, inc->source_tokens), w, c->cross);
}

static nm_tensor *run_step(nm_incremental *inc, const nm_decode_step *step)
{
    nm_tape *tape = &inc->tape;
    nm_tape_start(tape, false, 0, 0);
    int32_t *pos = nm_tape_host(tape, (size_t)step->n * sizeof *pos);
    for (int32_t i = 0; pos && i < step->n; i++)
        pos[i] = step->positions ? step->positions[i] : step->position;
    cached_attention context = {.inc = inc, .step = step};
    if (pos && inc->decoder->config.rope)
        context.positions = nm_tape_upload(tape, pos, (size_t)step->n * sizeof *pos);
    context.self = upload_lists(tape, step->n, step->self_rows, step->self_offsets);
    if (inc->decoder->config.window)
        context.local = upload_local_lists(tape, step, inc->decoder->config.window);
    if (inc->encoder)
        context.cross = upload_lists(tape, step->n, step->cross_rows, step->cross_offsets);
    nm_tensor *x = inc->generator->embed(inc->model, tape, inc->main->tables.target, step->ids, pos, step->n);
    return nm_stack_forward_with(tape, inc->decoder, x,
                                 &(nm_stack_attention){cached_self, cached_cross, &context});
}

nm_status nm_incremental_step(nm_incremental *inc, const nm_decode_step *step, nm_mat *hidden, nm_error *err)
{
    NM_TRY(caches_reserve(inc, inc->self, inc->self_widths, step->first_row + step->n, err));
    nm_tensor *x = run_step(inc, step);
    while (nm_tape_exhausted(&inc->tape)) {
        NM_TRY(tape_grow(inc, err));
        x = run_step(inc, step);
    }
    *hidden = nm_tensor_mat(x);
    return NM_OK;
}

const nm_model_output *nm_incremental_output(const nm_incremental *inc)
{
    return &inc->main->tables.output;
}
