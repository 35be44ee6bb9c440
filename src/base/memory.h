/* Heap memory for host-side data, growable arrays, and the arena.
 *
 * nm_allocate, nm_reallocate and everything built on them never return NULL: without memory they print "out of memory" and
 * end the process with the exit code NM_MEMORY. Large blocks (arenas, mapped files, device memory) are reserved by
 * functions that return NM_MEMORY. */
#ifndef NM_MEMORY_H
#define NM_MEMORY_H

#include <stdio.h>
#include "norma/status.h"

_Noreturn void nm_out_of_memory(size_t bytes);
void *nm_allocate(size_t bytes); /* zeroed */
/* realloc; block may be NULL. New bytes are not zeroed. */
void *nm_reallocate(void *block, size_t bytes);
/* printf into a heap string; the caller frees. */
char *nm_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *nm_duplicate(const char *text); /* NULL for NULL */
bool nm_ends_with(const char *text, const char *end);
/* open_memstream: what is written becomes *text, which the caller frees after nm_text_stream_close. Never NULL. The text must
 * be that of the call that opened the stream. */
FILE *nm_text_stream_open(char **text, size_t *bytes);
void nm_text_stream_close(FILE *stream, char *const *text);
/* Makes jansson allocate with nm_reallocate: it reports a failed allocation as malformed JSON or invalid UTF-8. Changes
 * the state of jansson for the whole process, so the program calls it and the library does not. */
void nm_memory_init_json(void);

/* Growable array: a pointer variable `items`, its count and its capacity (size_t or int lvalues). NM_RESERVE makes room for
 * `needed` items in all, NM_GROW for one more; the capacity at least doubles. New items are not initialized. */
#define NM_RESERVE(items, needed, capacity)                                                                  \
    do {                                                                                                     \
        if ((needed) > (capacity)) {                                                                         \
            (capacity) = (capacity) ? 2 * (capacity) : 16;                                                   \
            if ((needed) > (capacity))                                                                       \
                (capacity) = (needed);                                                                       \
            (items) = nm_reallocate((items), (size_t)(capacity) * sizeof *(items));                          \
        }                                                                                                    \
    } while (0)
#define NM_GROW(items, count, capacity) NM_RESERVE(items, (count) + 1, capacity)

/* An arena allocates parts of regions. It grows by regions of doubling size; reset keeps one. An arena over memory of the
 * caller does not grow. After a failed allocation, alloc returns NULL until reset. */
typedef struct nm_arena_source {              /* where the regions of a growing arena come from */
    void *(*alloc)(void *user, size_t bytes); /* NULL without memory */
    void (*dealloc)(void *user, void *region, size_t bytes);
    void *user;
} nm_arena_source;

enum { NM_ARENA_MAX_REGIONS = 48 };

typedef struct nm_arena {
    char *base;            /* the newest region; allocations within one region are consecutive */
    size_t reserved, used; /* of the newest region, in bytes */
    size_t peak;           /* largest sum over all regions */
    bool exhausted;
    nm_arena_source source; /* alloc is NULL: does not grow */
    size_t limit;           /* largest sum of the sizes of all regions */
    struct nm_arena_region {
        char *base;
        size_t reserved, used;
    } earlier[NM_ARENA_MAX_REGIONS];
    int n_earlier;
    size_t earlier_used;
} nm_arena;

/* Grows to at most `limit` bytes of host memory. If the system has no memory, the process ends as in nm_allocate. */
void nm_arena_init(nm_arena *arena, size_t limit);
/* Grows to at most `limit` bytes of the source. */
void nm_arena_init_source(nm_arena *arena, const nm_arena_source *source, size_t limit);
void nm_arena_wrap(nm_arena *arena, void *base, size_t bytes); /* over memory that the caller owns */
void *nm_arena_alloc(nm_arena *arena, size_t bytes);           /* aligned to 64 bytes, not zeroed */
void nm_arena_reset(nm_arena *arena);
void nm_arena_release(nm_arena *arena);

#endif
