#include "base/hash_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FIRST_SLOTS = 64 };

void nm_hash_map_grow(nm_hash_map *map)
{
    nm_hash_map larger = {.n_slots = map->n_slots ? 4 * map->n_slots : FIRST_SLOTS};
    larger.slots = nm_allocate(larger.n_slots * sizeof *larger.slots);
    for (size_t i = 0; i < map->n_slots; i++)
        if (map->slots[i].value > map->base)
            nm_hash_map_add(&larger, map->slots[i].hash, map->slots[i].value - map->base - 1);
    larger.n = map->n;
    free(map->slots);
    *map = larger;
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
