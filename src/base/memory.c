#include "base/memory.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The only exit of the process in the library, see memory.h. */
void nm_out_of_memory(size_t bytes)
{
    fprintf(stderr, "norma: out of memory (%zu bytes requested)\n", bytes);
    _exit(NM_MEMORY);
}

void *nm_allocate(size_t bytes)
{
    void *block = calloc(1, bytes ? bytes : 1);
    if (!block)
        nm_out_of_memory(bytes);
    return block;
}

void *nm_reallocate(void *block, size_t bytes)
{
    void *moved = realloc(block, bytes ? bytes : 1);
    if (!moved)
        nm_out_of_memory(bytes);
    return moved;
}

char *nm_format(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) /* vsnprintf allocates for wide fields */
        nm_out_of_memory(0);
    char *text = nm_allocate((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *nm_duplicate(const char *text)
{
    return text ? nm_format("%s", text) : NULL;
}

bool nm_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

FILE *nm_text_stream_open(char **text, size_t *bytes)
{
    FILE *stream = open_memstream(text, bytes);
    if (!stream)
        nm_out_of_memory(0);
    return stream;
}

/* A stream that could not grow has lost a part of the text. glibc reallocates the text once more when the stream is closed,
 * and sets it to NULL without an error if that fails. */
void nm_text_stream_close(FILE *stream, char *const *text)
{
    bool failed = ferror(stream) != 0;
    if (fclose(stream) || failed || !*text)
        nm_out_of_memory(0);
}

static void *allocate_json(size_t bytes)
{
    return nm_reallocate(NULL, bytes);
}

void nm_memory_init_json(void)
{
    json_set_alloc_funcs(allocate_json, free);
}

static void *alloc_region(void *user, size_t bytes)
{
    (void)user;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        nm_out_of_memory(bytes);
    return base;
}

static void dealloc_region(void *user, void *region, size_t bytes)
{
    (void)user;
    munmap(region, bytes);
}

void nm_arena_init(nm_arena *arena, size_t limit)
{
    static const nm_arena_source host = {alloc_region, dealloc_region, NULL};
    nm_arena_init_source(arena, &host, limit);
}

void nm_arena_init_source(nm_arena *arena, const nm_arena_source *source, size_t limit)
{
    *arena = (nm_arena){.source = *source, .limit = limit};
}

void nm_arena_wrap(nm_arena *arena, void *base, size_t bytes)
{
    *arena = (nm_arena){.base = base, .reserved = bytes};
}

/* Makes a region of at least `bytes` the newest one. The sizes at least double, so few regions are needed. */
static bool grow(nm_arena *arena, size_t bytes)
{
    enum { SMALLEST = 1 << 18 };
    size_t total = arena->reserved;
    for (int i = 0; i < arena->n_earlier; i++)
        total += arena->earlier[i].reserved;
    if (!arena->source.alloc || total > arena->limit || bytes > arena->limit - total ||
        arena->n_earlier == NM_ARENA_MAX_REGIONS)
        return false;
    size_t wanted = total < SMALLEST / 2 ? SMALLEST : 2 * total;
    wanted = wanted > arena->limit - total ? arena->limit - total : wanted;
    wanted = wanted < bytes ? bytes : wanted;
    char *base = arena->source.alloc(arena->source.user, wanted);
    if (!base)
        return false;
    if (arena->base) {
        arena->earlier[arena->n_earlier++] =
            (struct nm_arena_region){arena->base, arena->reserved, arena->used};
        arena->earlier_used += arena->used;
    }
    arena->base = base;
    arena->reserved = wanted;
    arena->used = 0;
    return true;
}

void *nm_arena_alloc(nm_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + 63) & ~(size_t)63;
    if (arena->exhausted || rounded < bytes ||
        ((!arena->base || rounded > arena->reserved - arena->used) && !grow(arena, rounded))) {
        arena->exhausted = true;
        return NULL;
    }
    void *block = arena->base + arena->used;
    arena->used += rounded;
    if (arena->earlier_used + arena->used > arena->peak)
        arena->peak = arena->earlier_used + arena->used;
    return block;
}

static void dealloc_earlier(nm_arena *arena)
{
    for (int i = 0; i < arena->n_earlier; i++)
        arena->source.dealloc(arena->source.user, arena->earlier[i].base, arena->earlier[i].reserved);
    arena->n_earlier = 0;
    arena->earlier_used = 0;
}

void nm_arena_reset(nm_arena *arena)
{
    dealloc_earlier(arena);
    arena->used = 0;
    arena->exhausted = false;
}

void nm_arena_release(nm_arena *arena)
{
    dealloc_earlier(arena);
    if (arena->source.alloc && arena->base)
        arena->source.dealloc(arena->source.user, arena->base, arena->reserved);
    *arena = (nm_arena){0};
}
