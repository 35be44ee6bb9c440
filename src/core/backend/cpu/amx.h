/* Tile registers of AMX: eight tiles of 16 rows of 64 bytes. A thread that uses them calls nm_amx_begin first
 * and nm_amx_end last. */
#pragma once

#include "backend/cpu/simd.h"

/* The level, not the macro of the compiler, whose name differs between versions of Clang. */
#if defined(NM_LEVEL_amx)

typedef struct nm_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} nm_tile_config;

#define NM_EIGHT(x)                                                                                          \
    {                                                                                                        \
        x, x, x, x, x, x, x, x                                                                               \
    }
static const nm_tile_config nm_tiles = {.palette = 1, .row_bytes = NM_EIGHT(64), .rows = NM_EIGHT(16)};
#undef NM_EIGHT

NM_INLINE void nm_amx_begin(void)
{
    _tile_loadconfig(&nm_tiles);
}

NM_INLINE void nm_amx_end(void)
{
    _tile_release();
}

#endif
