/* Elementwise operations, dropout, embeddings, copies: limited by memory bandwidth. */
#include "backend/cpu/kernel.h"

static size_t elements(nm_mat m)
{
    return (size_t)m.rows * (size_t)m.cols;
}

/* to = factor from, or to + factor from with `add` */
NM_INLINE void scale_part(vf factor, const float *from, float *to, int32_t cols, const bool add)
{
    for (int32_t j = 0; j < cols; j += NM_W) {
        int32_t n = cols - j;
        vf x = v_load_upto(from + j, n);
        v_store_upto(to + j, n, add ? v_fma(factor, x, v_load_upto(to + j, n)) : v_mul(factor, x));
    }
}

static void scale_all(nm_backend *b, nm_mat x, nm_mat y, double alpha, const double *factor, bool add)
{
    NM_ASSERT(nm_same_shape(x, y));
    alpha *= factor ? *factor : 1;
    int64_t parts = nm_parts(x);
    int32_t threads = nm_threads_for(b, elements(x));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        nm_part part = nm_part_at(x, i);
        const float *from = nm_row(x, part.row) + part.col;
        float *to = nm_row(y, part.row) + part.col;
        if (add)
            scale_part(v_set((float)alpha), from, to, part.cols, true);
        else
            scale_part(v_set((float)alpha), from, to, part.cols, false);
    }
}

static void scale(nm_backend *b, const nm_scale_args *args)
{
    scale_all(b, args->x, args->y, args->alpha, args->factor, false);
}

static void add(nm_backend *b, const nm_add_args *args)
{
    scale_all(b, args->x, args->y, args->alpha, args->factor, true);
}

static void drop_all(nm_backend *b, nm_mat x, nm_mat f, const nm_dropout *drop, nm_mat y)
{
    NM_ASSERT((!x.data || nm_same_shape(x, y)) && nm_same_shape(f, y));
    nm_drop dropped = nm_drop_of(drop);
    int64_t parts = nm_parts(y);
    int32_t threads = nm_threads_for(b, elements(y));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        nm_part part = nm_part_at(y, i);
        nm_drop_part(x.data ? nm_row(x, part.row) + part.col : NULL, nm_row(f, part.row) + part.col, &dropped,
                     part, nm_row(y, part.row) + part.col);
    }
}

static void add_dropout(nm_backend *b, const nm_add_dropout_args *args)
{
    drop_all(b, args->x, args->f, args->drop, args->y);
}

static void dropout(nm_backend *b, const nm_dropout_args *args)
{
    const nm_mat y = args->y;
    drop_all(b, args->add ? y : (nm_mat){0}, args->x, args->drop, y);
}

/* Written without the vectors of simd.h, because compilers vectorize it at every CPU level. */
static void store_part(const float *from, int32_t n, uint16_t *to)
{
    const uint32_t infinity = 0x7F800000, least_normal = 0x00800000, nan = 0x7FC0;
    for (int32_t j = 0; j < n; j++) {
        uint32_t bits, size;
        memcpy(&bits, from + j, sizeof bits);
        size = bits & 0x7FFFFFFF;
        uint32_t rounded = (size + 0x7FFF + (size >> 16 & 1)) >> 16;
        rounded = size < least_normal ? 0 : rounded;
        rounded = size > infinity ? size >> 16 | nan : rounded;
        to[j] = (uint16_t)(rounded | (bits >> 16 & 0x8000));
    }
}

static void store_bf16(nm_backend *b, const nm_store_bf16_args *args)
{
    const nm_mat x = args->x;
    int64_t parts = nm_parts(x);
    int32_t threads = nm_threads_for(b, elements(x));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        nm_part part = nm_part_at(x, i);
        store_part(nm_row(x, part.row) + part.col, part.cols,
                   args->y + (size_t)part.row * (size_t)x.cols + (size_t)part.col);
    }
}

static void load_part(const uint16_t *from, int32_t n, float *to)
{
    for (int32_t j = 0; j < n; j++) {
        uint32_t bits = (uint32_t)from[j] << 16;
        memcpy(to + j, &bits, sizeof bits);
    }
}

static void load_bf16(nm_backend *b, const nm_load_bf16_args *args)
{
    const nm_mat y = args->y;
    int64_t parts = nm_parts(y);
    int32_t threads = nm_threads_for(b, elements(y));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < parts; i++) {
        nm_part part = nm_part_at(y, i);
        load_part(args->x + (size_t)part.row * (size_t)y.cols + (size_t)part.col, part.cols,
                  nm_row(y, part.row) + part.col);
    }
}

/* y = drop(scale word + position), one row */
static void embed_row(const float *word, const float *position, float factor, const nm_drop *drop,
                      nm_part part, float *y)
{
    NM_ALIGNED float factors[NM_DROP_COLS];
    for (int32_t j = 0; j < part.cols; j += NM_DROP_COLS) {
        int32_t end = nm_min_i32(part.cols, j + NM_DROP_COLS);
        if (drop->on)
            nm_drop_factors(drop, (uint32_t)part.row, (uint32_t)(j / NM_DROP_COLS), factors);
        for (int32_t c = j; c < end; c += NM_W) {
            vf value = v_mul(v_set(factor), v_load_upto(word + c, end - c));
            if (position)
                value = v_add(value, v_load_upto(position + c, end - c));
            if (drop->on)
                value = v_mul(value, v_load(factors + (c - j)));
            v_store_upto(y + c, end - c, value);
        }
    }
}

static void embed(nm_backend *b, const nm_embed_args *args)
{
    const int32_t *ids = args->ids, *pos = args->pos;
    const nm_mat table = args->table, positions = args->positions, out = args->out;
    NM_ASSERT(table.cols == out.cols && (!positions.data || positions.cols == out.cols));
    nm_drop dropped = nm_drop_of(args->drop);
    int32_t threads = nm_threads_for(b, elements(out));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < out.rows; i++) {
        NM_ASSERT(ids[i] >= 0 && ids[i] < table.rows);
        NM_ASSERT(!positions.data || (pos[i] >= 0 && pos[i] < positions.rows));
        embed_row(nm_row(table, ids[i]), positions.data ? nm_row(positions, pos[i]) : NULL,
                  (float)args->scale, &dropped, (nm_part){i, 0, out.cols}, nm_row(out, i));
    }
}

/* One block of NM_DROP_COLS columns, for the ids with id % buckets == bucket, so that several threads process
 * a block and each row of the table is summed in the order of i. */
static void embed_grad_block(const nm_embed_grad_args *args, const nm_drop *drop, int32_t block,
                             int32_t bucket, int32_t buckets)
{
    const nm_mat dout = args->dout, dtable = args->dtable;
    const int32_t *ids = args->ids;
    const float factor = (float)args->scale;
    NM_ALIGNED float factors[NM_DROP_COLS];
    int32_t col = block * NM_DROP_COLS, cols = nm_min_i32(dout.cols - col, NM_DROP_COLS);
    for (int32_t i = 0; i < dout.rows; i++) {
        if (ids[i] % buckets != bucket)
            continue;
        NM_ASSERT(ids[i] >= 0 && ids[i] < dtable.rows);
        const float *from = nm_row(dout, i) + col;
        float *to = nm_row(dtable, ids[i]) + col;
        if (drop->on)
            nm_drop_factors(drop, (uint32_t)i, (uint32_t)block, factors);
        for (int32_t j = 0; j < cols; j += NM_W) {
            vf value = v_mul(v_set(factor), v_load_upto(from + j, cols - j));
            if (drop->on)
                value = v_mul(value, v_load(factors + j));
            v_store_upto(to + j, cols - j, v_add(v_load_upto(to + j, cols - j), value));
        }
    }
}

static void embed_grad(nm_backend *b, const nm_embed_grad_args *args)
{
    const nm_mat dout = args->dout;
    NM_ASSERT(args->dtable.cols == dout.cols);
    nm_drop dropped = nm_drop_of(args->drop);
    int32_t threads = nm_threads_for(b, elements(dout)), blocks = nm_ceil_div(dout.cols, NM_DROP_COLS);
    int32_t buckets = blocks ? nm_ceil_div(2 * threads, blocks) : 1;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int32_t i = 0; i < blocks * buckets; i++)
        embed_grad_block(args, &dropped, i / buckets, i % buckets, buckets);
}

static void gather(nm_backend *b, const nm_gather_args *args)
{
    const int32_t *rows = args->rows;
    const nm_mat x = args->x, out = args->out;
    NM_ASSERT(x.cols == out.cols);
    int32_t threads = nm_threads_for(b, elements(out));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < out.rows; i++) {
        NM_ASSERT(rows[i] >= 0 && rows[i] < x.rows);
        memmove(nm_row(out, i), nm_row(x, rows[i]), (size_t)x.cols * sizeof(float));
    }
}

enum { COPY_BYTES = 1 << 18 };

static void copy(nm_backend *b, const nm_copy_args *args)
{
    void *to = args->to;
    const void *from = args->from;
    const size_t bytes = args->bytes;
    const char *source = from;
    char *target = to;
    bool apart = target + bytes <= source || source + bytes <= target;
    if (!apart || bytes < 2 * COPY_BYTES) {
        if (bytes)
            memmove(to, from, bytes);
        return;
    }
#pragma omp parallel for num_threads(b->threads) schedule(static)
    for (size_t i = 0; i < bytes; i += COPY_BYTES)
        memcpy(target + i, source + i, bytes - i < COPY_BYTES ? bytes - i : COPY_BYTES);
}

static void zero(nm_backend *b, const nm_zero_args *args)
{
    const size_t bytes = args->bytes;
    int32_t threads = nm_threads_for(b, bytes / sizeof(float));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < bytes; i += COPY_BYTES)
        memset((char *)args->data + i, 0, bytes - i < COPY_BYTES ? bytes - i : COPY_BYTES);
}

enum { VEC_CHUNK = 1024 };
static const float vec_zeros[VEC_CHUNK]; /* the value of missing operands */

static void vec_chunk(const nm_vec_args *v, int32_t n, const float *va, const float *vb, const float *vc,
                      float *out)
{
    const double s = v->s, t = v->t;
#define EACH(expression)                                                                                     \
    do {                                                                                                     \
        _Pragma("omp simd") for (int32_t i = 0; i < n; i++)                                                  \
        {                                                                                                    \
            const double a = (double)va[i], b = (double)vb[i], c = (double)vc[i];                            \
            (void)a, (void)b, (void)c;                                                                       \
            out[i] = (float)(expression);                                                                    \
        }                                                                                                    \
        return;                                                                                              \
    } while (0)
    switch (v->op) {
    case NM_VEC_FILL:
        EACH(s);
    case NM_VEC_COPY:
        EACH(a);
    case NM_VEC_SHIFT:
        EACH(a + s);
    case NM_VEC_LINEAR:
        EACH(s * a + t * b);
    case NM_VEC_MUL:
        EACH(s * a * b + t);
    case NM_VEC_MUL_ADD:
        EACH(s * a * b + t * c);
    case NM_VEC_DIV:
        EACH(s * a / b + t);
    case NM_VEC_RSQRT:
        EACH(1 / sqrt(a + s));
    case NM_VEC_RSQRT_CLAMP:
        EACH(1 / sqrt(a < s ? s : a));
    case NM_VEC_SQRT:
        EACH(sqrt(a + s));
    case NM_VEC_CLIP:
        EACH(a < s ? s : a > t ? t : a);
    case NM_VEC_SIGN:
        EACH(a > b ? s : a < b ? -s : 0);
    case NM_VEC_ABOVE:
        EACH(a > s ? b : t);
    case NM_VEC_POW:
        EACH(t * pow(a, s));
    }
#undef EACH
    NM_ASSERT(false);
}

static void vec(nm_backend *b, const nm_vec_args *args)
{
    const float *va = args->a, *vb = args->b, *vc = args->c;
    int32_t threads = nm_threads_for(b, (size_t)args->n), chunks = nm_ceil_div(args->n, VEC_CHUNK);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < chunks; i++) {
        size_t first = (size_t)i * VEC_CHUNK;
        vec_chunk(args, nm_min_i32(args->n - i * VEC_CHUNK, VEC_CHUNK), va ? va + first : vec_zeros,
                  vb ? vb + first : vec_zeros, vc ? vc + first : vec_zeros, (float *)args->out + first);
    }
}

void NM_SIMD(nm_cpu_elementwise)(nm_kernels *k)
{
    k->vec = vec;
    k->scale = scale;
    k->add = add;
    k->add_dropout = add_dropout;
    k->dropout = dropout;
    k->store_bf16 = store_bf16;
    k->load_bf16 = load_bf16;
    k->embed = embed;
    k->embed_grad = embed_grad;
    k->gather = gather;
    k->copy = copy;
    k->zero = zero;
}
