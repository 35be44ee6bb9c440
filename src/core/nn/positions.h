/* Sinusoidal position tables [length, d], not learned.
 *     fairseq    [sin(p w_k) | cos(p w_k)]     w_k = 10000^(-k / (d/2 - 1))     p = i + 2 for token i
 *     tensor2tensor  as fairseq                                                 p = i
 *     tears      feature 2k:     sin(p w_k)    w_k = 10000^(-2k / d)            p = i
 *                feature 2k + 1: cos(p w_k)
 *     marian     [sin(p w_k) | cos(p w_k)]     w_k = 10000^(-2k / d)            p = i
 *     reversed   [sin(p w_k) | cos(p w_k)]     w_k = 10000^(-2k / d)            p = length - 1 - i
 *     relative   as fairseq                                                     p = i - length / 2 */
#pragma once

#include "norma/backend.h"

typedef enum nm_position_kind {
    NM_POSITIONS_FAIRSEQ,
    NM_POSITIONS_TEARS,        /* Nguyen and Salazar 2019 */
    NM_POSITIONS_MARIAN,       /* the class MarianMTModel of transformers */
    NM_POSITIONS_REVERSED,     /* Transformer-XL: distance from the end of the segment */
    NM_POSITIONS_RELATIVE,     /* TENER: signed distance */
    NM_POSITIONS_TENSOR2TENSOR /* Vaswani et al. 2018; Marian */
} nm_position_kind;

/* Writes the table to device memory of length * d elements. Row i belongs to position i of a sequence, or,
 * for NM_POSITIONS_RELATIVE, to the distance i - length / 2. */
void nm_positions_fill(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d, void *device);
/* Allocates and writes a table; nm_positions_dealloc frees it (and accepts {0}). NM_MEMORY. */
nm_status nm_positions_alloc(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d,
                             nm_mat *table, nm_error *err);
void nm_positions_dealloc(nm_backend *backend, nm_mat *table);

/* Scaling of the frequencies of rotary position embeddings for contexts that are longer than in the original
 * training:
 *     linear    f / factor (Chen et al. 2023)
 *     llama3    of Llama 3.1: with n = original f / (2 pi) rotations in the original context, f for n > high,
 *               f / factor for
 *               n < low, and a linear interpolation in n between them */
#define NM_ROPE_SCALINGS(C)                                                                                  \
    C(NM_ROPE_UNSCALED, "none") C(NM_ROPE_LINEAR, "linear") C(NM_ROPE_LLAMA3, "llama3")
NM_CHOICES(nm_rope_scaling_kind, NM_ROPE_SCALINGS);

typedef struct nm_rope_angles {
    double base; /* frequency j is base^(-2j/width), then scaled */
    nm_rope_scaling_kind scaling;
    double factor, low, high, original; /* original: context in tokens */
} nm_rope_angles;

/* The scaled frequency j of `width` features, in radians per token. */
double nm_rope_frequency(const nm_rope_angles *angles, int32_t j, int32_t width);
/* Allocates the table of `rotate` for rotary position embeddings (Su et al. 2021), [length, width]: row p has
 * cos(p f_j) in the columns j < width/2, and the sines in the others. nm_positions_dealloc frees it.
 * NM_MEMORY. */
nm_status nm_rotations_alloc(nm_backend *backend, int32_t length, int32_t width, const nm_rope_angles *angles,
                             nm_mat *table, nm_error *err);
