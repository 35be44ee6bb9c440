/* Int8 quantization of rows (defined in norma/backend.h), and the packed layout that pack_int8 writes. */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Packed layout: the scales of all rows of the weight (float), 128 times the sum of the integers of each row
 * (int32), then panels of NM_INT8_PANEL rows. A panel is [columns / 4, NM_INT8_PANEL, 4] integers: four
 * columns of each row are adjacent, as dot-product instructions require. Rows and columns are padded with
 * zeros; each part begins at a multiple of 64 bytes. */
enum { NM_INT8_PANEL = 16, NM_INT8_MAX = 127, NM_INT8_OFFSET = 128 };

static inline size_t nm_int8_panels(int32_t rows)
{
    return ((size_t)rows + NM_INT8_PANEL - 1) / NM_INT8_PANEL;
}

static inline size_t nm_int8_fours(int32_t cols)
{
    return ((size_t)cols + 3) / 4;
}

static inline size_t nm_int8_panel_bytes(int32_t cols)
{
    return nm_int8_fours(cols) * 4 * NM_INT8_PANEL;
}

static inline size_t nm_int8_bytes(int32_t rows, int32_t cols)
{
    size_t head = NM_INT8_PANEL * (sizeof(float) + sizeof(int32_t));
    return nm_int8_panels(rows) * (head + nm_int8_panel_bytes(cols));
}

static inline float *nm_int8_scales(const void *packed)
{
    return (float *)(uintptr_t)packed;
}

static inline int32_t *nm_int8_sums(const void *packed, int32_t rows)
{
    return (int32_t *)(void *)(nm_int8_scales(packed) + nm_int8_panels(rows) * NM_INT8_PANEL);
}

static inline int8_t *nm_int8_panel(const void *packed, int32_t rows, int32_t cols, size_t panel)
{
    int32_t *end = nm_int8_sums(packed, rows) + nm_int8_panels(rows) * NM_INT8_PANEL;
    return (int8_t *)end + panel * nm_int8_panel_bytes(cols);
}

/* Offset of column c of row r in the panel of the row. */
static inline size_t nm_int8_at(int32_t r, int32_t c)
{
    return ((size_t)(c / 4) * NM_INT8_PANEL + (size_t)(r % NM_INT8_PANEL)) * 4 + (size_t)(c % 4);
}

/* Largest absolute value of a row: 0 if all are below 2^-100, NaN if one is not finite. `bits` is the
 * maximum of the bits of the values without their sign, which have the order of the absolute values. */
static inline float nm_int8_largest(uint32_t bits)
{
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return !isfinite(largest) ? NAN : largest < 0x1p-100f ? 0 : largest;
}

static inline uint32_t nm_int8_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFF;
}

/* Scale of a row of a weight: 1/127 of its largest value, rounded up to 17 significant bits. */
static inline float nm_int8_weight_scale(float largest)
{
    float scale = largest / NM_INT8_MAX;
    if (!(scale > 0))
        return scale;
    uint32_t bits = (nm_int8_bits(scale) + 127) & ~127u;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

/* Quantizes the n elements of a row of a weight and returns their scale. If one of them is not finite, the
 * scale is NaN and the integers are 0. */
float nm_int8_quantize_row(const float *row, int32_t n, int8_t *to);
