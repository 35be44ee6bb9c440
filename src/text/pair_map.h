/* A map from pairs of non-negative numbers to a number: open addressing, entries are never taken out. */
#ifndef NM_PAIR_MAP_H
#define NM_PAIR_MAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct nm_pair_entry {
    uint64_t key; /* left << 32 | right */
    uint32_t value_plus_1;
} nm_pair_entry;

typedef struct nm_pair_map {
    nm_pair_entry *entries;
    size_t n, n_slots; /* n_slots is a power of two or 0 */
} nm_pair_map;

#define NM_PAIR_NONE UINT32_MAX

/* Value of the pair or NM_PAIR_NONE. */
uint32_t nm_pair_map_find(const nm_pair_map *map, uint32_t left, uint32_t right);
/* Value of the pair, which is put in with the given value if it is new. */
uint32_t nm_pair_map_add(nm_pair_map *map, uint32_t left, uint32_t right, uint32_t value);
void nm_pair_map_release(nm_pair_map *map);

#endif
