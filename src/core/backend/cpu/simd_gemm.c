#include "backend/cpu/gemm.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/shares.h"
#include "backend/cpu/tile.h"

#include <omp.h>

enum {
    /* vectors of a row of a micro-panel, and the distance of its rows; one vector may overlap the next row */
    MICRO_ROWS = NM_TILE_VECTORS > 2 ? 12 : NM_TILE_ROWS,
    FEW_ROWS = NM_TILE_VECTORS > 2 ? 48 : 0, /* with fewer, tiles have two vectors, which read b less often */
    MICRO_VECTORS = (MICRO_ROWS + NM_W - 1) / NM_W,
    MICRO_STEP = MICRO_VECTORS > 1 ? MICRO_VECTORS *NM_W : MICRO_ROWS,
    FEW_STEP = NM_TILE_ROWS, /* with few rows, a micro-panel of a and the prefetched b fit L1 */
    PANELS = NM_PANEL_GROUP > 1 && MICRO_ROWS < 12 ? 16 : 8, /* micro-panels of a block */
    EXTRA_PANELS = PANELS / 4,        /* additional ones of a block, instead of a small last block */
    BLOCK_ROWS = PANELS * MICRO_ROWS, /* MC: the packed rows of a fit L2 */
    EXTRA_ROWS = EXTRA_PANELS * MICRO_ROWS,
    MICRO_PANELS = PANELS + EXTRA_PANELS,
    /* a block is made lower, down to LEAST_ROWS, until there are THREAD_BLOCKS per thread */
    LEAST_ROWS = PANELS / 2 * MICRO_ROWS,
    THREAD_BLOCKS = 2,
    MAX_EQUAL_BLOCKS = 8, /* up to this number of blocks per thread, blocks have equal height */
    MANY_THREADS = 8,     /* with more threads, blocks of small matrices are chosen by their estimated time */
    PACK_COLS = 24,       /* packing a row takes as long as its product with this number of columns */
    MICRO_PANEL_FLOATS = NM_GEMM_DEPTH * MICRO_STEP + 2 * NM_W,
    PANEL_FLOATS = NM_GEMM_DEPTH * NM_TILE_COLS,
    OWN_PANELS = NM_TILE_VECTORS - 1, /* that a tile reads */
    SPAN_DEPTH = 4 * NM_GEMM_DEPTH,   /* k of the shared panels: bounds their memory */
    SPAN_FLOATS = 4 << 20,            /* 16 MiB */
    PACK_ROWS = 64,                   /* rows of b that a thread packs at a time */
    PREFETCH_ROWS = 16,               /* prefetch distance when a is transposed */
    PADDING = 2 * NM_W,               /* packing stores full vectors past the end */
    THREAD_WORK = 32768 /* multiply-adds per thread for which threads are started: about 0.3 microseconds */
};
#if defined(NM_BF16)
_Static_assert((int)NM_GEMM_DEPTH == (int)NM_BF16_CHUNK, "results depend on the depth of a chunk");
#endif

/* Packs rows k0 .. k0 + depth - 1 and columns col .. col + cols - 1 of b into panels of
 * [panel_rows][NM_TILE_COLS], padded with zero columns. Rows are read contiguously. */
static void pack_b_rows(const nm_gemm *g, int32_t col, int32_t cols, int32_t k0, int32_t depth, float *to,
                        int32_t panel_rows)
{
    int32_t full = cols / NM_TILE_COLS * NM_TILE_COLS, remainder = cols - full;
    size_t panel = (size_t)panel_rows * NM_TILE_COLS;
    for (int32_t k = 0; k < depth; k += NM_PANEL_GROUP, to += NM_GROUP_ROWS * NM_TILE_COLS) {
        const float *from = g->b + (size_t)(k0 + k) * g->ldb + (size_t)col;
        int32_t rows = depth - k;
        float *at = to;
        for (int32_t j = 0; j < full; j += NM_TILE_COLS, at += panel) {
            nm_pack_group(from + j, g->ldb, rows, NM_W, at, NM_TILE_COLS);
            nm_pack_group(from + j + NM_W, g->ldb, rows, NM_W, at + NM_W, NM_TILE_COLS);
        }
        if (remainder) {
            int32_t second = remainder > NM_W ? NM_W : 0; /* without a second vector no column is read */
            nm_pack_group(from + full, g->ldb, rows, remainder, at, NM_TILE_COLS);
            nm_pack_group(from + full + second, g->ldb, rows, second ? remainder - NM_W : 0, at + NM_W,
                          NM_TILE_COLS);
        }
    }
}

/* Packs one panel. */
static void pack_panel(const nm_gemm *g, int32_t col, int32_t cols, int32_t k0, int32_t depth, float *to)
{
    if (!g->tb) {
        pack_b_rows(g, col, cols, k0, depth, to, nm_panel_rows(depth));
        return;
    }
    for (int32_t half = 0; half < 2; half++) {
        int32_t present = nm_min_i32(cols - half * NM_W, NM_W);
        const float *from = g->b + (size_t)(col + (present > 0 ? half * NM_W : 0)) * g->ldb + (size_t)k0;
        nm_pack_transposed(from, g->ldb, present, depth, to + half * NM_W, NM_TILE_COLS);
    }
}

/* Height of micro-panels, which is nearly equal for all, because a tile of one or two rows takes as long as
 * one of five. With AMX, the time of a tile does not depend on its height; with tiles of three vectors, a
 * micro-panel has several of them. */
static int32_t micro_panel_rows(int32_t rows)
{
#if defined(NM_BF16_AMX)
    return nm_min_i32(rows, MICRO_ROWS);
#else
    if (NM_TILE_VECTORS > 2 && rows >= FEW_ROWS)
        return MICRO_ROWS;
    return nm_ceil_div(rows, nm_ceil_div(rows, NM_TILE_ROWS));
#endif
}

/* Offset of micro-panel i of a; each is followed by padding of a full vector. */
static size_t micro_panel_offset(int32_t i, int32_t depth)
{
    return (size_t)i * ((size_t)nm_panel_rows(depth) * MICRO_STEP + PADDING);
}

#if defined(NM_BF16_AMX)

/* Strides of the rows of a micro-panel and of its groups of k. */
enum { A_ROW = NM_LINE, A_STEP = NM_TILE_ROWS * NM_LINE };

/* Packs `rows` rows of a from (row, k0) into micro-panels of [groups of k][NM_TILE_ROWS][values of a group];
 * those past the rows are undefined. */
static void pack_a(const nm_gemm *g, int32_t row, int32_t rows, int32_t k0, int32_t depth, float *to)
{
    for (int32_t k = 0; k < depth; k += NM_PANEL_GROUP) {
        const int32_t values = nm_min_i32(depth - k, NM_PANEL_GROUP);
        for (int32_t r = 0; r < rows; r += NM_LINE) {
            const int32_t n = nm_min_i32(rows - r, NM_LINE);
            float *panel = to + micro_panel_offset(r / NM_TILE_ROWS, depth) + r % NM_TILE_ROWS * A_ROW +
                           k / NM_PANEL_GROUP * A_STEP;
            if (g->ta) {
                const float *from = g->a + (size_t)(k0 + k) * g->lda + (size_t)(row + r);
                nm_pack_columns(from, g->lda, values, n, panel, A_ROW);
            } else {
                const float *from = g->a + (size_t)(row + r) * g->lda + (size_t)(k0 + k);
                for (int32_t i = 0; i < n; i++)
                    v_store(panel + i * A_ROW, nm_load_depth(from + (size_t)i * g->lda, values));
            }
        }
    }
}

#else

/* Strides of the rows of a micro-panel and of its panel rows. */
enum { A_ROW = 1, A_STEP = MICRO_STEP };

/* Packs `rows` rows of a from (row, k0) into micro-panels of [panel rows][step]; lanes past the rows are
 * undefined. step: a constant. */
NM_INLINE void pack_a_rows(const nm_gemm *g, int32_t row, int32_t rows, int32_t k0, int32_t depth, float *to,
                           const size_t step)
{
    int32_t height = micro_panel_rows(rows);
    for (int32_t r = 0; !g->ta && r < rows; r += height) {
        const float *from = g->a + (size_t)(row + r) * g->lda + (size_t)k0;
        nm_pack_transposed(from, g->lda, nm_min_i32(rows - r, height), depth,
                           to + micro_panel_offset(r / height, depth), step);
#if NM_TILE_ROWS > NM_W
        for (int32_t i = NM_W; i < nm_min_i32(rows - r, height); i += NM_W)
            nm_pack_transposed(from + (size_t)i * g->lda, g->lda, nm_min_i32(rows - r, height) - i, depth,
                               to + micro_panel_offset(r / height, depth) + i, step);
#endif
    }
    for (int32_t k = 0; g->ta && k < depth; k += NM_PANEL_GROUP) {
        const float *from = g->a + (size_t)(k0 + k) * g->lda + (size_t)row;
        for (int32_t ahead = PREFETCH_ROWS; ahead < PREFETCH_ROWS + NM_PANEL_GROUP; ahead++)
            for (int32_t r = 0; r < rows; r += 16)
                __builtin_prefetch(from + (size_t)ahead * g->lda + r);
        for (int32_t r = 0; r < rows; r += height)
            nm_pack_group(from + r, g->lda, depth - k, rows - r,
                          to + micro_panel_offset(r / height, depth) + (size_t)nm_panel_rows(k) * step, step);
#if NM_TILE_ROWS > NM_W
        for (int32_t r = 0; r < rows; r += height)
            for (int32_t i = NM_W; i < nm_min_i32(rows - r, height); i += NM_W)
                nm_pack_group(
                    from + r + i, g->lda, depth - k, rows - r - i,
                    to + micro_panel_offset(r / height, depth) + (size_t)nm_panel_rows(k) * step + i, step);
#endif
    }
}

static void pack_a(const nm_gemm *g, int32_t row, int32_t rows, int32_t k0, int32_t depth, float *to)
{
    if (rows < FEW_ROWS)
        pack_a_rows(g, row, rows, k0, depth, to, FEW_STEP);
    else
        pack_a_rows(g, row, rows, k0, depth, to, A_STEP);
}

#endif

/* A block of c computed by one thread, over k0 .. k0 + depth - 1. */
typedef struct block {
    int32_t row, rows, col, cols, k0, depth;
} block;

#if NM_TILE_VECTORS > 2
/* Not inlined, so that GCC keeps all sums in registers. */
static __attribute__((noinline)) void full_tile(const gemm_tile *t)
{
    gemm_tile tile = *t;
    tile.a_row = A_ROW;
    tile.a_step = A_STEP;
    tile.b_step = NM_TILE_COLS;
    tile.stream = true;
    tile.few = false;
    tile_fixed(tile, 3, 3);
}
#endif

/* Columns of a block: those of one tile, described by `tile` except its rows, of which `most` are in a tile.
 * micro_panels: rows of a. few: a constant, whether there are few rows. */
NM_INLINE void run_columns(gemm_tile tile, int32_t rows, int32_t most, int32_t depth,
                           const float *micro_panels, const bool few)
{
    const int32_t height = micro_panel_rows(rows);
    float *c = tile.c;
    tile.a_row = A_ROW;
    tile.a_step = few ? FEW_STEP : A_STEP;
    tile.b_step = NM_TILE_COLS;
    tile.stream = true;
    tile.few = few;
    if (few)
        tile.b_next = NM_W;
    for (int32_t r = 0; r < rows; r += tile.rows) {
        tile.rows = nm_tile_part(nm_min_i32(rows - r, height - r % height), most);
        tile.a = micro_panels + micro_panel_offset(r / height, depth) + r % height * A_ROW;
        tile.c = c + (size_t)r * tile.ldc;
#if NM_TILE_VECTORS > 2
        if (!few && tile.rows == 3 && tile.cols > 2 * NM_W) {
            full_tile(&tile);
            continue;
        }
#endif
        nm_tile(tile);
    }
}

static __attribute__((noinline)) void run_few_rows(gemm_tile tile, int32_t rows, int32_t depth,
                                                   const float *micro_panels)
{
    run_columns(tile, rows, NM_TILE_ROWS, depth, micro_panels, true);
}

static __attribute__((noinline)) void run_rows(gemm_tile tile, int32_t rows, int32_t depth,
                                               const float *micro_panels)
{
    run_columns(tile, rows, nm_tile_rows(nm_ceil_div(tile.cols, NM_W)), depth, micro_panels, false);
}

/* panels: shared packed panels from column first_col on, of depth part->depth; NULL: the block packs its own
 * panels. local: workspace of the thread. */
static void run_block(const nm_gemm *g, const block *part, const float *panels, int32_t first_col,
                      float *local)
{
    float *micro_panels = local, *own = local + (size_t)MICRO_PANELS * MICRO_PANEL_FLOATS;
    const bool packs = !g->packed && !panels, few = part->rows < FEW_ROWS;
    for (int32_t k = 0, depth; k < part->depth; k += depth) {
        const int32_t k0 = part->k0 + k;
        depth = nm_min_i32(part->depth - k, NM_GEMM_DEPTH);
        const bool last = k0 + depth == g->depth;
        const float *b = own; /* the panel row k of the first panel */
        size_t panel = PANEL_FLOATS;
        if (g->packed) {
            panel = (size_t)nm_panel_rows(g->depth) * NM_TILE_COLS;
            b = g->packed + (size_t)(part->col / NM_TILE_COLS) * panel +
                (size_t)nm_panel_rows(k0) * NM_TILE_COLS;
        } else if (panels) {
            panel = (size_t)nm_panel_rows(part->depth) * NM_TILE_COLS;
            b = panels + (size_t)((part->col - first_col) / NM_TILE_COLS) * panel +
                (size_t)nm_panel_rows(k) * NM_TILE_COLS;
        }
        pack_a(g, part->row, part->rows, k0, depth, micro_panels);
        for (int32_t j = 0, packed = 0, vectors; j < part->cols; j += vectors * NM_W) {
            vectors = nm_tile_part(nm_ceil_div(part->cols - j, NM_W), few ? 2 : NM_TILE_VECTORS);
            const int32_t col = part->col + j, cols = nm_min_i32(part->cols - j, vectors * NM_W);
            for (; packs && packed < j + cols; packed += NM_TILE_COLS)
                pack_panel(g, part->col + packed, nm_min_i32(part->cols - packed, NM_TILE_COLS), k0, depth,
                           own + packed / NM_TILE_COLS % OWN_PANELS * PANEL_FLOATS);
            int32_t at = j / NM_TILE_COLS, next = at + 1;
            if (packs)
                at %= OWN_PANELS, next %= OWN_PANELS;
            const ptrdiff_t distance = (next - at) * (ptrdiff_t)panel;
            const gemm_tile tile = {.cols = cols,
                                    .depth = nm_panel_rows(depth),
                                    .b = b + (size_t)at * panel + j % NM_TILE_COLS,
                                    .b_next = nm_next_vector(j / NM_W, distance),
                                    .b_panel = distance,
                                    .add = g->add || k0 > 0,
                                    .alpha = g->alpha,
                                    .epilogue = {last && g->bias ? g->bias + col : NULL, last && g->relu},
                                    .c = g->c + (size_t)part->row * g->ldc + (size_t)col,
                                    .ldc = g->ldc};
            if (few)
                run_few_rows(tile, part->rows, depth, micro_panels);
            else
                run_rows(tile, part->rows, depth, micro_panels);
        }
    }
    if (g->finish && part->k0 + part->depth == g->depth)
        g->finish(g, part->row, part->col, part->rows, part->cols);
}

/* Division of c, or of a span of its columns, into blocks. Results do not depend on it. */
typedef struct block_grid {
    int32_t height, width; /* of a block; the last ones have the remaining rows and columns */
    int32_t rows, cols;    /* number of blocks */
} block_grid;

/* Height of blocks, except the last one, which has the remaining rows. If there are only few blocks per
 * thread, they are made lower, so that the columns need not be divided: every block of columns packs the rows
 * of a again. */
static int32_t block_height(int32_t rows, int32_t threads, int32_t *blocks)
{
    *blocks = rows > EXTRA_ROWS ? nm_ceil_div(rows - EXTRA_ROWS, BLOCK_ROWS) : 1;
    if (*blocks > MAX_EQUAL_BLOCKS * threads)
        return BLOCK_ROWS;
    int32_t lower = nm_min_i32(THREAD_BLOCKS * threads, rows / LEAST_ROWS);
    *blocks = lower > *blocks ? lower : *blocks;
    int32_t even = nm_round_up(*blocks, threads),
            height = nm_ceil_div(rows, even < 2 * *blocks ? even : *blocks);
    *blocks = nm_ceil_div(rows, height);
    return height;
}

/* Width of blocks: all columns up to NM_GEMM_COLS if every thread has a block of rows, else such that every
 * thread gets several blocks. */
static int32_t block_width(int32_t row_blocks, int32_t cols, int32_t threads)
{
    int32_t blocks = row_blocks < threads ? nm_ceil_div(4 * threads, row_blocks) : 1;
    int32_t size = nm_ceil_div(nm_ceil_div(cols, blocks), 2 * NM_TILE_COLS) * 2 * NM_TILE_COLS;
    return nm_min_i32(size, NM_GEMM_COLS);
}

/* Time of the thread with most blocks: their products, and packing of their rows of a. */
static int64_t grid_time(const block_grid *grid, int32_t threads)
{
    int32_t most = nm_ceil_div(grid->rows * grid->cols, threads);
    return (int64_t)most * grid->height * (grid->width + PACK_COLS);
}

/* The grid with the least time, for matrices with fewer blocks of rows than threads. */
static block_grid fastest_grid(int32_t rows, int32_t cols, int32_t threads, block_grid best)
{
    int64_t least = grid_time(&best, threads);
    for (int32_t height = nm_round_up(best.height, MICRO_ROWS); height > 0; height -= MICRO_ROWS)
        for (int32_t width = NM_TILE_COLS; width <= NM_GEMM_COLS; width *= 2) {
            const block_grid grid = {height, width, nm_ceil_div(rows, height), nm_ceil_div(cols, width)};
            const int64_t time = grid_time(&grid, threads);
            if (time < least) {
                least = time;
                best = grid;
            }
        }
    return best;
}

static block_grid divide(int32_t rows, int32_t cols, int32_t threads)
{
    int32_t row_blocks, height = block_height(rows, threads, &row_blocks);
    const int32_t width = block_width(row_blocks, cols, threads);
    const block_grid grid = {height, width, row_blocks, nm_ceil_div(cols, width)};
    return threads > MANY_THREADS && grid.rows < threads ? fastest_grid(rows, cols, threads, grid) : grid;
}

typedef struct span { /* columns and depth that are packed together */
    int32_t col, cols, k0, depth;
} span;

/* Row and column of block i. The blocks of `group` rows of blocks follow each other, column by column, so
 * that a thread reads a block of columns of b for all of its rows while it is in the caches. A thread's share
 * is about one group. */
static void block_at(const block_grid *grid, int32_t group, int32_t i, int32_t *row, int32_t *col)
{
    int32_t first = i / (group * grid->cols) * group;
    int32_t rows = nm_min_i32(grid->rows - first, group), at = i - first * grid->cols;
    *row = first + at % rows;
    *col = at / rows;
}

/* What the threads of the team share: the packed panels of b, and the division of the blocks. */
typedef struct team {
    float *panels;
    nm_shares shares;
} team;

/* Executed by every thread of the team. */
static void run_span(const nm_gemm *g, const span *part, const team *all, float *local)
{
    const int32_t threads = all->shares.threads, n_panels = nm_ceil_div(part->cols, NM_TILE_COLS);
    const block_grid grid = divide(g->rows, part->cols, threads);
    const int32_t group = nm_ceil_div(grid.rows, threads);
    bool shared = grid.rows > 1 && !g->packed;
    float *panels = all->panels;
#pragma omp single nowait
    nm_shares_divide(&all->shares, grid.rows * grid.cols);
    if (shared && !g->tb) {
#pragma omp for schedule(static)
        for (int32_t k = 0; k < part->depth; k += PACK_ROWS)
            pack_b_rows(g, part->col, part->cols, part->k0 + k, nm_min_i32(part->depth - k, PACK_ROWS),
                        panels + (size_t)nm_panel_rows(k) * NM_TILE_COLS, nm_panel_rows(part->depth));
    } else if (shared) {
#pragma omp for schedule(static)
        for (int32_t p = 0; p < n_panels; p++)
            pack_panel(g, part->col + p * NM_TILE_COLS,
                       nm_min_i32(part->cols - p * NM_TILE_COLS, NM_TILE_COLS), part->k0, part->depth,
                       panels + (size_t)p * NM_TILE_COLS * (size_t)nm_panel_rows(part->depth));
    } else {
#pragma omp barrier
    }
    for (int32_t i; (i = nm_shares_take(&all->shares, omp_get_thread_num())) >= 0;) {
        int32_t row, col;
        block_at(&grid, group, i, &row, &col);
        block one = {row * grid.height,
                     row + 1 < grid.rows ? grid.height : g->rows - row * grid.height,
                     part->col + col * grid.width,
                     nm_min_i32(part->cols - col * grid.width, grid.width),
                     part->k0,
                     part->depth};
        run_block(g, &one, shared ? panels : NULL, part->col, local);
    }
}

/* Not inlined, so that no arithmetic is moved out of the mode in which denormal numbers are zero. */
static __attribute__((noinline)) void run_spans(const nm_gemm *g, int32_t span_cols, const team *all,
                                                float *local)
{
    for (int32_t col = 0; col < g->cols; col += span_cols)
        for (int32_t k = 0; k < g->depth || k == 0; k += SPAN_DEPTH) {
            span part = {col, nm_min_i32(g->cols - col, span_cols), k, nm_min_i32(g->depth - k, SPAN_DEPTH)};
            if (col || k) { /* the others may still read the panels of the last span */
#pragma omp barrier
            }
            run_span(g, &part, all, local);
        }
}

void NM_SIMD(nm_gemm_run)(nm_backend *backend, const nm_gemm *g)
{
    if (g->rows == 0 || g->cols == 0)
        return;
    size_t local_floats = (size_t)MICRO_PANELS * MICRO_PANEL_FLOATS + OWN_PANELS * PANEL_FLOATS + PADDING;
    int32_t span_rows = nm_panel_rows(nm_min_i32(g->depth, SPAN_DEPTH));
    int32_t span_cols = SPAN_FLOATS / (span_rows ? span_rows : 1) / NM_TILE_COLS * NM_TILE_COLS;
    span_cols = nm_min_i32(span_cols, nm_ceil_div(g->cols, NM_TILE_COLS) * NM_TILE_COLS);
    double work = (double)g->rows * (double)g->cols * (double)g->depth;
    int32_t threads = work < (double)THREAD_WORK * backend->threads ? 1 : backend->threads;
    float *locals =
        nm_backend_scratch(backend, NM_CPU_THREADS, (size_t)threads * local_floats * sizeof(float));
    size_t panel_floats = (size_t)span_cols * (size_t)span_rows + PADDING;
    const team all = {nm_backend_scratch(backend, NM_CPU_PANELS, panel_floats * sizeof(float)),
                      nm_shares_of(backend, threads)};
    if (backend->dry_run)
        return;
#pragma omp parallel num_threads(threads)
    {
        const uint32_t mode = nm_matmul_begin();
        run_spans(g, span_cols, &all, locals + (size_t)omp_get_thread_num() * local_floats);
        nm_matmul_end(mode);
    }
}

size_t NM_SIMD(nm_gemm_pack)(nm_backend *backend, const nm_gemm *g, float *to)
{
    int32_t n_panels = nm_ceil_div(g->cols, NM_TILE_COLS), threads = backend->threads;
    size_t panel = (size_t)nm_panel_rows(g->depth) * NM_TILE_COLS;
    if (to && !g->tb) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int32_t k = 0; k < g->depth; k += PACK_ROWS)
            pack_b_rows(g, 0, g->cols, k, nm_min_i32(g->depth - k, PACK_ROWS),
                        to + (size_t)nm_panel_rows(k) * NM_TILE_COLS, nm_panel_rows(g->depth));
        return (size_t)n_panels * panel * sizeof(float);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int32_t p = 0; p < (to ? n_panels : 0); p++)
        pack_panel(g, p * NM_TILE_COLS, nm_min_i32(g->cols - p * NM_TILE_COLS, NM_TILE_COLS), 0, g->depth,
                   to + (size_t)p * panel);
    return (size_t)n_panels * panel * sizeof(float);
}
