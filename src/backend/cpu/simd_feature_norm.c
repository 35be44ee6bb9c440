/* Norms per feature: BatchNorm, PowerNorm and kin, see include/norma/backend.h:
 *     h = x row_scale     z = (h - shift) scale     y = gain z + bias
 * Row by row through all columns; sums over rows are kept per block of rows. */
#include "backend/cpu/norm_parts.h"

typedef struct feature_call {
    const nm_feature_norm *spec;
    nm_mat x, y, dy; /* backward: y is dx */
    float *row_scale;
    const float *shift, *scale, *gain, *bias; /* whole vectors; backward: gain is a, bias is c0 */
    const float *c1;
    int32_t groups, width; /* at least one group: all columns when there is no row scale */
    bool scaled, measured, sums, squares, push, add, plain; /* plain: no shift, and backward no c0 */
} feature_call;

static feature_call prepare(const nm_feature_norm *spec, nm_mat x, void *row_scale)
{
    NM_ASSERT(spec->groups >= 0 && (spec->groups == 0 || (x.cols % spec->groups == 0 && row_scale)));
    int32_t groups = spec->groups ? spec->groups : 1;
    return (feature_call){.spec = spec,
                          .x = x,
                          .row_scale = row_scale,
                          .groups = groups,
                          .width = x.cols / groups,
                          .scaled = spec->groups > 0,
                          .measured = spec->row_scale_ready};
}

static float measure_scale(const nm_feature_norm *spec, int32_t n, const float *x)
{
    return (float)(1 / sqrt(nm_sum_of_squares(n, x) / n + spec->eps));
}

/* The row scale of a row and group, measured first where that is still to be done. */
static float row_scale_at(const feature_call *call, int32_t row, int32_t group)
{
    if (!call->scaled)
        return 1;
    float *at = call->row_scale + (size_t)row * (size_t)call->groups + (size_t)group;
    if (!call->measured)
        *at = measure_scale(call->spec, call->width,
                            nm_row(call->x, row) + (size_t)group * (size_t)call->width);
    return *at;
}

/* One group of one row; pointers begin at the group's columns. */
typedef struct group_row {
    const float *x, *dy;
    float *y; /* backward: dx */
    vf row_scale, projection;
    const float *shift, *scale, *gain, *bias, *c1;
    float *sums, *second;
} group_row;

NM_INLINE vf h_at(const group_row *g, const bool scaled, int32_t j, int32_t count)
{
    vf x = v_load_upto(g->x + j, count);
    return scaled ? v_mul(x, g->row_scale) : x;
}

NM_INLINE vf z_of(const group_row *g, const bool plain, vf h, int32_t j)
{
    return plain ? h : v_mul(v_sub(h, v_load(g->shift + j)), v_load(g->scale + j));
}

/* Sums of h - shift and of (h - shift)^2; masked lanes of the shift are 0 as those of h are. */
NM_INLINE void moments_columns(const group_row *g, const bool scaled, int32_t j, int32_t count)
{
    vf away = v_sub(h_at(g, scaled, j, count), v_load_upto(g->shift + j, count));
    nm_add_to(g->sums + j, away);
    nm_add_to(g->second + j, v_mul(away, away));
}

NM_INLINE void norm_columns(const group_row *g, const bool scaled, const bool plain, const bool squares,
                            int32_t j, int32_t count)
{
    vf h = h_at(g, scaled, j, count);
    v_store_upto(g->y + j, count, v_fma(v_load(g->gain + j), z_of(g, plain, h, j), v_load(g->bias + j)));
    if (squares)
        nm_add_to(g->second + j, v_mul(h, h));
}

/* dh = a dy + c0 + c1 z */
NM_INLINE vf dh_of(const group_row *g, const bool plain, vf up, vf z, int32_t j)
{
    vf c1 = v_load(g->c1 + j), along = plain ? v_mul(c1, z) : v_fma(c1, z, v_load(g->bias + j));
    return v_fma(v_load(g->gain + j), up, along);
}

/* Mean of dh h: what the row scale's own dependence on x takes away. */
NM_INLINE vf projection_of(const group_row *g, const bool plain, int32_t n)
{
    vf sum[NM_LANES] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    int32_t whole = n / (NM_LANES * NM_W) * (NM_LANES * NM_W);
#define STEP(lane, col, count)                                                                               \
    do {                                                                                                     \
        vf h = h_at(g, true, col, count), up = v_load_upto(g->dy + (col), count);                            \
        sum[lane] = v_fma(dh_of(g, plain, up, z_of(g, plain, h, col), col), h, sum[lane]);                   \
    } while (0)
    for (int32_t j = 0; j < whole; j += NM_LANES * NM_W)
        for (int i = 0; i < NM_LANES; i++)
            STEP(i, j + i * NM_W, NM_W);
    for (int32_t j = whole; j < n; j += NM_W)
        STEP(0, j, n - j);
#undef STEP
    return v_set((float)(v_sum(nm_join_lanes(sum)) / n));
}

NM_INLINE void grad_columns(const group_row *g, const bool scaled, const bool plain, const bool sums,
                            const bool push, const bool add, int32_t j, int32_t count)
{
    vf up = v_load_upto(g->dy + j, count), h = h_at(g, scaled, j, count), z = z_of(g, plain, h, j);
    if (push) {
        vf down = dh_of(g, plain, up, z, j);
        if (scaled)
            down = v_mul(g->row_scale, v_sub(down, v_mul(h, g->projection)));
        if (add)
            down = v_add(v_load_upto(g->y + j, count), down);
        v_store_upto(g->y + j, count, down);
    }
    if (sums) {
        nm_add_to(g->sums + j, up);
        nm_add_to(g->second + j, v_mul(up, z));
    }
}

typedef enum feature_work { MOMENTS, NORM, GRAD } feature_work;

/* One group of one row, with the choices as constants where they matter. */
NM_INLINE void run_group(const feature_call *call, feature_work work, const bool scaled, const bool plain,
                         group_row *g)
{
    const int32_t n = call->width;
#define MOMENTS_STEP(j, count) moments_columns(g, scaled, j, count)
#define NORM_STEP(j, count)    norm_columns(g, scaled, plain, false, j, count)
#define SQUARES_STEP(j, count) norm_columns(g, scaled, plain, true, j, count)
#define SUMS_STEP(j, count)    grad_columns(g, scaled, plain, true, false, false, j, count)
#define PUSH_STEP(j, count)    grad_columns(g, scaled, plain, false, true, call->add, j, count)
#define BOTH_STEP(j, count)    grad_columns(g, scaled, plain, true, true, call->add, j, count)
    if (work == MOMENTS) {
        NM_COLUMNS(n, MOMENTS_STEP);
    } else if (work == NORM && call->squares) {
        NM_COLUMNS(n, SQUARES_STEP);
    } else if (work == NORM) {
        NM_COLUMNS(n, NORM_STEP);
    } else if (!call->push) {
        NM_COLUMNS(n, SUMS_STEP);
    } else {
        if (scaled)
            g->projection = projection_of(g, plain, n);
        if (call->sums)
            NM_COLUMNS(n, BOTH_STEP);
        else
            NM_COLUMNS(n, PUSH_STEP);
    }
}

/* Not every call has every vector. */
NM_INLINE const float *behind(const float *vector, int32_t first)
{
    return vector ? vector + first : NULL;
}

static group_row group_at(const feature_call *call, int32_t row, int32_t group, float *sums)
{
    int32_t first = group * call->width;
    return (group_row){.x = nm_row(call->x, row) + first,
                       .dy = call->dy.data ? nm_row(call->dy, row) + first : NULL,
                       .y = call->y.data ? nm_row(call->y, row) + first : NULL,
                       .row_scale = v_set(row_scale_at(call, row, group)),
                       .projection = v_set(0),
                       .shift = behind(call->shift, first),
                       .scale = behind(call->scale, first),
                       .gain = behind(call->gain, first),
                       .bias = behind(call->bias, first),
                       .c1 = behind(call->c1, first),
                       .sums = sums + first,
                       .second = sums + nm_padded(call->x.cols) + first};
}

/* Scratch of a call: joined sums, first and second; parameter vectors; the sums of each block. */
typedef struct feature_room {
    double *sums, *second;
    float *vector, *partials;
    int32_t blocks;
} feature_room;

static feature_room take_room(nm_backend *b, nm_mat x, int32_t vectors)
{
    size_t padded = nm_padded(x.cols);
    feature_room room = {.blocks = nm_pieces(x.rows, NM_NORM_ROWS)};
    size_t floats = (size_t)(vectors + 2 * room.blocks) * padded;
    room.sums = nm_backend_scratch(b, NM_CPU_PARTIALS, 2 * padded * sizeof(double) + floats * sizeof(float));
    room.second = room.sums + padded;
    room.vector = (float *)(void *)(room.second + padded);
    room.partials = room.vector + (size_t)vectors * padded;
    return room;
}

static void run_blocks(nm_backend *b, const feature_call *call, feature_work work, const feature_room *room)
{
    size_t size = 2 * nm_padded(call->x.cols);
    int32_t threads = nm_threads_for(b, (size_t)call->x.rows * (size_t)call->x.cols);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t i = 0; i < room->blocks; i++) {
        float *sums = room->partials + (size_t)i * size;
        int32_t end = nm_at_most(call->x.rows, (i + 1) * NM_NORM_ROWS);
        memset(sums, 0, size * sizeof(float));
        for (int32_t row = i * NM_NORM_ROWS; row < end; row++)
            for (int32_t group = 0; group < call->groups; group++) {
                group_row g = group_at(call, row, group, sums);
                if (call->scaled && call->plain)
                    run_group(call, work, true, true, &g);
                else if (call->scaled)
                    run_group(call, work, true, false, &g);
                else if (call->plain)
                    run_group(call, work, false, true, &g);
                else
                    run_group(call, work, false, false, &g);
            }
    }
    if (call->sums || call->squares)
        nm_join_blocks(b, room->partials, room->blocks, (int32_t)size, room->sums);
}

static const float *whole(const void *given, int32_t d, float otherwise, float **vector)
{
    const float *made = nm_whole_vector(given, d, d, otherwise, *vector);
    *vector += nm_padded(d);
    return made;
}

enum { GUESS_ROWS = 16, FAR = 64 };

/* A center near the mean: the mean of the first rows, so that one pass can give mean and variance. */
static void guess_center(const feature_call *call, float *center)
{
    int32_t rows = nm_at_most(call->x.rows, GUESS_ROWS), d = call->x.cols;
    for (int32_t first = 0; first < d; first += call->width)
        for (int32_t i = 0; i < rows; i++) {
            float scale = row_scale_at(call, i, first / call->width);
            for (int32_t j = first; j < first + call->width; j++)
                center[j] += nm_row(call->x, i)[j] * scale / (float)rows;
        }
}

/* mean = center + mean(h - center), and the mean square about the mean or about the center. Returns whether a
 * center was too far from the mean for a difference of squares, in standard deviations. */
static bool store_moments(const feature_call *call, const feature_room *room, bool about_mean, float *mean,
                          float *square)
{
    bool far = false;
    double n = call->x.rows;
    for (int32_t j = 0; j < call->x.cols; j++) {
        double off = room->sums[j] / n, about_center = room->second[j] / n;
        double own = about_mean ? about_center - off * off : about_center;
        far |= about_mean && off * off > FAR * own;
        if (mean)
            mean[j] = (float)((double)call->shift[j] + off);
        if (square)
            square[j] = (float)(own < 0 ? 0 : own);
    }
    return far;
}

/* With center == mean the variance is taken about a guess of the mean and corrected, in a second pass where
 * the guess was bad. */
static void feature_moments(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale,
                            const void *center, void *mean, void *square)
{
    feature_call call = prepare(spec, x, row_scale);
    feature_room room = take_room(b, x, 1);
    bool about_mean = center && center == mean;
    float *guess = room.vector;
    call.shift = whole(about_mean ? NULL : center, x.cols, 0, &room.vector);
    call.sums = true;
    if (about_mean)
        guess_center(&call, guess);
    run_blocks(b, &call, MOMENTS, &room);
    if (!store_moments(&call, &room, about_mean, mean, square) || !square)
        return;
    memcpy(guess, mean, (size_t)x.cols * sizeof(float));
    call.measured = true; /* the first pass left the row scales */
    run_blocks(b, &call, MOMENTS, &room);
    store_moments(&call, &room, about_mean, mean, square);
}

/* Without a shift z = h scale, and the scale can go into what z is multiplied by: z of a plain call is h. */
static const float *scaled_vector(const float *vector, const float *scale, int32_t d, float *made)
{
    for (int32_t j = 0; j < (int32_t)nm_padded(d); j++)
        made[j] = vector[j] * scale[j];
    return made;
}

static void feature_norm(nm_backend *b, const nm_feature_norm *spec, nm_mat x, void *row_scale,
                         const void *shift, const void *scale, const void *gain, const void *bias, nm_mat y,
                         void *square)
{
    NM_ASSERT(nm_same_shape(x, y));
    feature_call call = prepare(spec, x, row_scale);
    float *squares = square;
    feature_room room = take_room(b, x, 5);
    call.y = y;
    call.shift = whole(shift, x.cols, 0, &room.vector);
    call.scale = whole(scale, x.cols, 1, &room.vector);
    call.gain = whole(gain, x.cols, 1, &room.vector);
    call.bias = whole(bias, x.cols, 0, &room.vector);
    call.squares = square != NULL;
    call.plain = !shift;
    if (call.plain)
        call.gain = scaled_vector(call.gain, call.scale, x.cols, room.vector);
    run_blocks(b, &call, NORM, &room);
    for (int32_t j = 0; square && j < x.cols; j++)
        squares[j] = (float)(room.second[j] / x.rows);
}

static void feature_norm_grad(nm_backend *b, const nm_feature_norm *spec, nm_mat dy, nm_mat x,
                              const void *row_scale, const void *shift, const void *scale, const void *a,
                              const void *c0, const void *c1, bool add, nm_mat dx, void *sum_dy,
                              void *sum_dy_z)
{
    NM_ASSERT(nm_same_shape(x, dy) && (!dx.data || nm_same_shape(x, dx)));
    feature_call call = prepare(spec, x, (float *)(uintptr_t)row_scale); /* only read */
    float *sums = sum_dy, *sums_z = sum_dy_z;
    feature_room room = take_room(b, x, 6);
    call.measured = true;
    call.dy = dy;
    call.y = dx;
    call.shift = whole(shift, x.cols, 0, &room.vector);
    call.scale = whole(scale, x.cols, 1, &room.vector);
    call.gain = whole(a, x.cols, 1, &room.vector);
    call.bias = whole(c0, x.cols, 0, &room.vector);
    call.c1 = whole(c1, x.cols, 0, &room.vector);
    call.sums = sum_dy || sum_dy_z;
    call.push = dx.data != NULL;
    call.add = add;
    call.plain = !shift && !c0;
    if (call.plain)
        call.c1 = scaled_vector(call.c1, call.scale, x.cols, room.vector);
    run_blocks(b, &call, GRAD, &room);
    for (int32_t j = 0; call.sums && j < x.cols; j++) {
        if (sum_dy)
            sums[j] = (float)room.sums[j];
        if (sum_dy_z)
            sums_z[j] = (float)(room.second[j] * (call.plain ? (double)call.scale[j] : 1));
    }
}

void NM_SIMD(nm_cpu_feature_norm)(nm_kernels *k)
{
    k->feature_moments = feature_moments;
    k->feature_norm = feature_norm;
    k->feature_norm_grad = feature_norm_grad;
}
