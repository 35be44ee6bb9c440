/* The set of training pairs with which prepare.drop_duplicates finds repeated ones: open addressing with
 * linear probing. */
#include <stdlib.h>

#include <xxhash.h>

#include "data/prepare_private.h"

uint64_t nm_prepare_pair_hash(const nm_buffer *lines, int sides)
{
    uint64_t hash = 0;
    for (int side = 0; side < sides; side++)
        hash = XXH3_64bits_withSeed(lines[side].data, lines[side].bytes, hash);
    return hash ? hash : 1;
}

/* The slot of the hash, or the free one where it belongs. */
static uint64_t *find_slot(const nm_prepare_pair_set *set, uint64_t hash)
{
    size_t at = hash & (set->n_slots - 1);
    while (set->slots[at] && set->slots[at] != hash)
        at = (at + 1) & (set->n_slots - 1);
    return &set->slots[at];
}

static void double_slots(nm_prepare_pair_set *set)
{
    enum { FEWEST = 1024 };
    const nm_prepare_pair_set old = *set;
    set->n_slots = old.n_slots ? 2 * old.n_slots : FEWEST;
    set->slots = nm_allocate(set->n_slots * sizeof *set->slots);
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slots[i])
            *find_slot(set, old.slots[i]) = old.slots[i];
    free(old.slots);
}

bool nm_prepare_pair_set_add(nm_prepare_pair_set *set, uint64_t hash)
{
    if (4 * (set->n + 1) > 3 * set->n_slots)
        double_slots(set);
    uint64_t *slot = find_slot(set, hash);
    if (*slot)
        return false;
    *slot = hash;
    set->n++;
    return true;
}

void nm_prepare_pair_set_release(nm_prepare_pair_set *set)
{
    free(set->slots);
    *set = (nm_prepare_pair_set){0};
}
