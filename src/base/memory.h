/* Heap helpers for host-side bookkeeping, and the arena: reserve once, bump, reset.
 *
 * nm_allocate and friends stop the program when the system has no memory left for small bookkeeping; whatever
 * is large (arenas, slabs, data files) is reserved by functions that return NM_MEMORY. */
#ifndef NM_MEMORY_H
#define NM_MEMORY_H

#include "norma/status.h"

void *nm_allocate(size_t bytes); /* zeroed */
void *nm_reallocate(void *block, size_t bytes);
char *nm_format(const char *format, ...) __attribute__((format(printf, 1, 2))); /* heap string */
char *nm_duplicate(const char *text);                                           /* NULL stays NULL */

/* Growing array: items is a pointer variable, count and capacity are size_t or int lvalues. */
#define NM_GROW(items, count, capacity)                                                                      \
    do {                                                                                                     \
        if ((count) >= (capacity)) {                                                                         \
            (capacity) = (capacity) ? 2 * (capacity) : 16;                                                   \
            (items) = nm_reallocate((items), (size_t)(capacity) * sizeof *(items));                          \
        }                                                                                                    \
    } while (0)

/* An arena hands out parts of one reserved region. The region is address space; pages are taken from the
 * system when first touched. Running out sticks: take returns NULL from then on until reset. */
typedef struct nm_arena {
    char *base;
    size_t reserved, used, peak;
    bool exhausted;
    bool owned;
} nm_arena;

nm_status nm_arena_init(nm_arena *arena, size_t bytes, nm_error *err); /* reserves address space */
void nm_arena_wrap(nm_arena *arena, void *base, size_t bytes);         /* over memory of somebody else */
void *nm_arena_alloc(nm_arena *arena, size_t bytes);                   /* aligned to 64 bytes, not zeroed */
void nm_arena_reset(nm_arena *arena);
void nm_arena_release(nm_arena *arena);

#endif
