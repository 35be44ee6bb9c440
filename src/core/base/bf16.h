/* Arithmetic of bf16 matrix multiplication (norma/backend.h) for single numbers. */
#pragma once

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum {
    NM_BF16_CHUNK = 512, /* number of products of a chunk, which is summed separately */
    NM_BF16_BLOCK = 32   /* number of products of a block of a chunk */
};

/* Denormal numbers become zero of the same sign. */
static inline float nm_bf16_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Rounds x to the nearest bf16 number, ties to even; denormal numbers become zero. */
static inline float nm_bf16_round(float x)
{
    uint32_t bits;
    if (isnan(x))
        return x;
    x = nm_bf16_flush(x);
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The bits of x rounded to bf16. */
static inline uint16_t nm_bf16_bits(float x)
{
    uint32_t bits;
    x = nm_bf16_round(x);
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(isnan(x) ? 0x7FC0 | bits >> 16 : bits >> 16);
}

/* The float value of a bf16 number. */
static inline float nm_bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* c + x y for bf16 numbers x and y, rounded once. A result whose absolute value is below FLT_MIN after
 * rounding to 24 bits becomes zero. The product is exact in float unless its absolute value is below FLT_MIN
 * or above FLT_MAX. */
static inline float nm_bf16_multiply_add(float x, float y, float c)
{
    float product = x * y;
    if ((fabsf(product) >= FLT_MIN && fabsf(product) <= FLT_MAX) || x == 0 || y == 0)
        return nm_bf16_flush(c + product);
    float sum = fmaf(x, y, c);
    /* A denormal result that fmaf has rounded up to FLT_MIN was rounded to fewer than 24 bits. */
    if (fabsf(sum) == FLT_MIN && fabsf(fmaf(x * 0x1p64f, y, c * 0x1p64f)) < FLT_MIN * 0x1p64f)
        return copysignf(0, sum);
    return nm_bf16_flush(sum);
}
