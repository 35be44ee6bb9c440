/* Map from pairs to numbers. The hash is the finalizer of MurmurHash3 (Appleby), which mixes all bits. */
#include "text/pair_map.h"

#include <stdlib.h>

#include "base/memory.h"

static uint64_t mix(uint64_t key)
{
    key = (key ^ key >> 33) * 0xFF51AFD7ED558CCDu;
    key = (key ^ key >> 33) * 0xC4CEB9FE1A85EC53u;
    return key ^ key >> 33;
}

static nm_pair_entry *find_entry(const nm_pair_map *map, uint64_t key)
{
    size_t mask = map->n_slots - 1, slot = mix(key) & mask;
    while (map->entries[slot].value_plus_1 && map->entries[slot].key != key)
        slot = (slot + 1) & mask;
    return &map->entries[slot];
}

static void grow(nm_pair_map *map)
{
    nm_pair_map wider = {.n = map->n, .n_slots = map->n_slots ? 2 * map->n_slots : 64};
    wider.entries = nm_allocate(wider.n_slots * sizeof *wider.entries);
    for (size_t i = 0; i < map->n_slots; i++)
        if (map->entries[i].value_plus_1)
            *find_entry(&wider, map->entries[i].key) = map->entries[i];
    free(map->entries);
    *map = wider;
}

uint32_t nm_pair_map_find(const nm_pair_map *map, uint32_t left, uint32_t right)
{
    if (!map->n)
        return NM_PAIR_NONE;
    return find_entry(map, (uint64_t)left << 32 | right)->value_plus_1 - 1;
}

uint32_t nm_pair_map_add(nm_pair_map *map, uint32_t left, uint32_t right, uint32_t value)
{
    if (2 * (map->n + 1) > map->n_slots)
        grow(map);
    uint64_t key = (uint64_t)left << 32 | right;
    nm_pair_entry *entry = find_entry(map, key);
    if (!entry->value_plus_1) {
        *entry = (nm_pair_entry){key, value + 1};
        map->n++;
    }
    return entry->value_plus_1 - 1;
}

void nm_pair_map_release(nm_pair_map *map)
{
    free(map->entries);
    *map = (nm_pair_map){0};
}
