/* Sinusoidal position tables [length, d], not learned. */
#ifndef NM_POSITIONS_H
#define NM_POSITIONS_H

#include "norma/backend.h"

typedef enum nm_position_kind {
    NM_POSITIONS_FAIRSEQ, /* [sin(p w_k) | cos(p w_k)], w_k = 10000^(-k/(d/2-1)), the first token has p = 2 */
    NM_POSITIONS_TEARS,   /* feature 2k sin, 2k+1 cos of p 10000^(-2k/d), the first token has p = 0 */
    NM_POSITIONS_REVERSED, /* [sin(p w_k) | cos(p w_k)], w_k = 10000^(-2k/d), p = length - 1 for the first token, falling
                             to 0 (Transformer-XL's distances from the end of a segment) */
    NM_POSITIONS_RELATIVE /* fairseq's form with p a signed distance; row length/2 has p = 0 (TENER) */
} nm_position_kind;

/* Writes the table into device memory of length * d numbers; row i is for the i-th token of a sequence. */
void nm_positions_fill(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d, void *device);
/* The same in device memory of its own, which nm_positions_dealloc gives back (of an empty table: nothing). */
nm_status nm_positions_alloc(nm_backend *backend, nm_position_kind kind, int32_t length, int32_t d,
                             nm_mat *table, nm_error *err);
void nm_positions_dealloc(nm_backend *backend, nm_mat *table);

#endif
