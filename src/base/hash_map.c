#include "base/hash_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_SLOTS = 64 };

static void insert(nm_hash_slot *slots, size_t n_slots, nm_hash_slot entry, uint32_t base)
{
    size_t at = entry.hash & (n_slots - 1);
    while (slots[at].value > base)
        at = (at + 1) & (n_slots - 1);
    slots[at] = entry;
}

static void grow(nm_hash_map *map)
{
    nm_hash_map larger = {.n = map->n, .n_slots = map->n_slots ? 2 * map->n_slots : FIRST_SLOTS};
    larger.slots = nm_allocate(larger.n_slots * sizeof *larger.slots);
    larger.top = map->top - map->base;
    for (size_t i = 0; i < map->n_slots; i++)
        if (map->slots[i].value > map->base)
            insert(larger.slots, larger.n_slots,
                   (nm_hash_slot){map->slots[i].hash, map->slots[i].value - map->base}, 0);
    free(map->slots);
    *map = larger;
}

void nm_hash_map_add(nm_hash_map *map, uint32_t hash, uint32_t number)
{
    NM_ASSERT(number < NM_HASH_MAX);
    if (2 * (map->n + 1) > map->n_slots)
        grow(map);
    uint32_t value = map->base + 1 + number;
    insert(map->slots, map->n_slots, (nm_hash_slot){hash, value}, map->base);
    if (value > map->top)
        map->top = value;
    map->n++;
}

void nm_hash_map_clear(nm_hash_map *map)
{
    map->n = 0;
    map->base = map->top;
    if (map->base < NM_HASH_MAX) /* base + 1 + number fits 32 bits */
        return;
    memset(map->slots, 0, map->n_slots * sizeof *map->slots);
    map->base = map->top = 0;
}

void nm_hash_map_release(nm_hash_map *map)
{
    free(map->slots);
    *map = (nm_hash_map){0};
}
