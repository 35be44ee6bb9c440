/* Hash map from keys to numbers, by open addressing with linear probing.
 *
 * A key and its data are an item in an array of the caller; the map stores 32 bits of the key's hash and the
 * index of the item. The caller compares keys, so that one map serves keys of any type:
 *
 *     size_t probe = 0;
 *     for (uint32_t i; (i = nm_hash_map_next(&map, hash, &probe)) != NM_HASH_NONE;)
 *         if (items[i] has the key)
 *             return i;
 *
 * Entries are not removed one at a time. Concurrent reads are safe without a concurrent write. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "norma/status.h"

#define NM_HASH_NONE UINT32_MAX
/* Numbers are below this limit. */
#define NM_HASH_MAX (UINT32_MAX / 2)

typedef struct nm_hash_slot {
    uint32_t hash;
    uint32_t value; /* base + 1 + number; occupied if greater than base */
} nm_hash_slot;

/* {0} is an empty map. */
typedef struct nm_hash_map {
    nm_hash_slot *slots;
    size_t n, n_slots;  /* entries; slots, a power of two or 0 */
    uint32_t base, top; /* values up to base were cleared; the largest value stored */
} nm_hash_map;

/* The next number stored for the hash, or NM_HASH_NONE. *probe is 0 at the first call. */
static inline uint32_t nm_hash_map_next(const nm_hash_map *map, uint32_t hash, size_t *probe)
{
    if (!map->n)
        return NM_HASH_NONE;
    for (;;) {
        const nm_hash_slot *slot = &map->slots[(hash + (*probe)++) & (map->n_slots - 1)];
        if (slot->value <= map->base)
            return NM_HASH_NONE;
        if (slot->hash == hash)
            return slot->value - map->base - 1;
    }
}

/* Enlarges the slots; for nm_hash_map_add. */
void nm_hash_map_grow(nm_hash_map *map);

/* Adds a number below NM_HASH_MAX for a key that is not in the map. */
static inline void nm_hash_map_add(nm_hash_map *map, uint32_t hash, uint32_t number)
{
    NM_ASSERT(number < NM_HASH_MAX);
    if (2 * ++map->n > map->n_slots)
        nm_hash_map_grow(map);
    size_t at = hash & (map->n_slots - 1);
    while (map->slots[at].value > map->base)
        at = (at + 1) & (map->n_slots - 1);
    uint32_t value = map->base + 1 + number;
    map->slots[at] = (nm_hash_slot){hash, value};
    map->top = value > map->top ? value : map->top;
}

/* Removes all entries in amortized constant time; the memory is kept. */
void nm_hash_map_clear(nm_hash_map *map);
void nm_hash_map_release(nm_hash_map *map);

/* Hash of two numbers: the finalizer of MurmurHash3 (Appleby), in which every input bit affects every output
 * bit. */
static inline uint32_t nm_hash_pair(uint32_t a, uint32_t b)
{
    uint64_t key = (uint64_t)a << 32 | b;
    key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDu;
    key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53u;
    return (uint32_t)(key ^ key >> 33);
}
