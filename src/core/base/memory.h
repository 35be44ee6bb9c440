/* Heap memory for host-side data, growable arrays, and the arena.
 *
 * nm_allocate, nm_reallocate and everything built on them, including arenas of host memory, never return NULL
 * when the system has no memory: they print "out of memory" and end the process with the exit code NM_MEMORY.
 * Functions that map files or allocate device memory return NM_MEMORY. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "norma/status.h"

_Noreturn void nm_out_of_memory(size_t bytes);
void *nm_allocate(size_t bytes); /* zeroed */
/* realloc; block may be NULL. New bytes are not zeroed. */
void *nm_reallocate(void *block, size_t bytes);
/* printf into a heap string, which the caller frees. */
char *nm_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* printf to the end of *text, a heap string or NULL (empty). The arguments may contain *text's value before
 * the call. */
void nm_format_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends an item to a list whose items are separated by ", "; *list: as above. */
void nm_list_append(char **list, const char *item);
char *nm_duplicate(const char *text); /* NULL for NULL */
/* The text without whitespace around it: ends it after the last other character, and returns the first
 * one. */
char *nm_trim(char *text);
bool nm_ends_with(const char *text, const char *end);
/* A stream that writes to memory, like open_memstream: *text, which the caller frees, and *bytes are valid
 * after fflush and nm_text_stream_close. rewind discards the text. Never NULL. */
FILE *nm_text_stream_open(char **text, size_t *bytes);
void nm_text_stream_close(FILE *stream);
/* Makes jansson allocate with nm_reallocate. With malloc, jansson reports a failed allocation as malformed
 * JSON or invalid UTF-8. This is global state of jansson, so the program calls the function and the library
 * does not. */
void nm_memory_init_json(void);

/* Heap memory that is freed when the scope of its variable ends: NM_AUTO_FREE char *path = nm_path_join(...);
 * All declarators of the declaration must be initialized. */
#define NM_AUTO_FREE __attribute__((cleanup(nm_free_variable)))
static inline void nm_free_variable(void *variable)
{
    void *memory;
    memcpy(&memory, variable, sizeof memory);
    free(memory);
}

/* Frees several blocks of heap memory. */
#define NM_FREE(...) nm_free_blocks((void *[]){__VA_ARGS__}, sizeof(void *[]){__VA_ARGS__} / sizeof(void *))
static inline void nm_free_blocks(void *const *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(blocks[i]);
}

/* Calls release with the address of the variable at the end of its scope: NM_AUTO(nm_buffer_release)
 * nm_buffer text = {0}; */
#define NM_AUTO(release) __attribute__((cleanup(release)))
struct nm_options;
void nm_options_release(struct nm_options **options); /* nm_options_free */

/* Ends a function that makes an object: returns the status after *out = object, or after the object has been
 * released, because a step failed. */
#define NM_RETURN_NEW(status, out, object, release)                                                          \
    do {                                                                                                     \
        if ((status) == NM_OK)                                                                               \
            *(out) = (object);                                                                               \
        else                                                                                                 \
            release(object);                                                                                 \
        return (status);                                                                                     \
    } while (0)

/* An error that is not read, valid until the end of the block. */
#define NM_IGNORED (&(nm_error){NM_OK, ""})

/* Growable array: a pointer variable `items`, its count and its capacity (size_t or int lvalues). NM_RESERVE
 * makes the capacity at least `needed`, NM_GROW at least count + 1; when it changes, it at least doubles. New
 * items are not initialized. */
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

/* An arena is a bump allocator over a list of regions, each twice as large as all earlier ones together.
 * Reset keeps the newest region only. An arena over memory of the caller does not grow. An allocation that
 * exceeds the limit fails, and all that follow fail, too, until reset. */
typedef struct nm_arena_source {              /* allocator of the regions of a growing arena */
    void *(*alloc)(void *user, size_t bytes); /* returns NULL without memory */
    void (*dealloc)(void *user, void *region, size_t bytes);
    void *user;
} nm_arena_source;

enum { NM_ARENA_MAX_REGIONS = 48 };

typedef struct nm_arena {
    char *base;             /* the newest region; allocations within one region are consecutive */
    size_t reserved, used;  /* of the newest region, in bytes */
    size_t peak;            /* largest sum of `used` over all regions so far, in bytes */
    bool exhausted;         /* an allocation failed */
    nm_arena_source source; /* alloc is NULL: does not grow */
    size_t limit;           /* maximum sum of `reserved` over all regions, in bytes */
    struct nm_arena_region {
        char *base;
        size_t reserved, used;
    } earlier[NM_ARENA_MAX_REGIONS];
    int n_earlier;
    size_t earlier_used; /* sum of `used` over the earlier regions */
} nm_arena;

/* Grows to at most `limit` bytes of host memory. If the system has no memory, the process ends as in
 * nm_allocate. */
void nm_arena_init(nm_arena *arena, size_t limit);
/* The same with regions of the source; alloc returns NULL if the source does. */
void nm_arena_init_source(nm_arena *arena, const nm_arena_source *source, size_t limit);
void nm_arena_wrap(nm_arena *arena, void *base, size_t bytes); /* over memory that the caller owns */
/* Aligned to 64 bytes, not zeroed. NULL: exhausted. */
void *nm_arena_alloc(nm_arena *arena, size_t bytes);
void nm_arena_reset(nm_arena *arena);
void nm_arena_release(nm_arena *arena);

/* Frees n heap blocks and the array of their addresses. */
void nm_free_list(void *list, size_t n);

/* Appends an item to a growable array, see NM_GROW. */
#define NM_APPEND(items, count, capacity, ...)                                                               \
    do {                                                                                                     \
        NM_GROW(items, count, capacity);                                                                     \
        (items)[(count)++] = __VA_ARGS__;                                                                    \
    } while (0)
