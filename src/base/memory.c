#include "base/memory.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The only exit of the process in the library, see memory.h. */
static _Noreturn void run_out(size_t bytes)
{
    fprintf(stderr, "norma: out of memory (%zu bytes requested)\n", bytes);
    _exit(NM_MEMORY);
}

void *nm_allocate(size_t bytes)
{
    void *block = calloc(1, bytes ? bytes : 1);
    if (!block)
        run_out(bytes);
    return block;
}

void *nm_reallocate(void *block, size_t bytes)
{
    void *moved = realloc(block, bytes ? bytes : 1);
    if (!moved)
        run_out(bytes);
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
        run_out(0);
    char *text = nm_allocate((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

char *nm_duplicate(const char *text)
{
    return text ? nm_format("%s", text) : NULL;
}

static void *allocate_json(size_t bytes)
{
    return nm_reallocate(NULL, bytes);
}

void nm_memory_init_json(void)
{
    json_set_alloc_funcs(allocate_json, free);
}

nm_status nm_arena_init(nm_arena *arena, size_t bytes, nm_error *err)
{
    *arena = (nm_arena){0};
    void *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nm_fail(err, NM_MEMORY, "cannot reserve %zu MiB", bytes >> 20);
    *arena = (nm_arena){.base = base, .reserved = bytes, .owned = true};
    return NM_OK;
}

void nm_arena_wrap(nm_arena *arena, void *base, size_t bytes)
{
    *arena = (nm_arena){.base = base, .reserved = bytes};
}

void *nm_arena_alloc(nm_arena *arena, size_t bytes)
{
    size_t rounded = (bytes + 63) & ~(size_t)63;
    if (arena->exhausted || rounded < bytes || rounded > arena->reserved - arena->used) {
        arena->exhausted = true;
        return NULL;
    }
    void *block = arena->base + arena->used;
    arena->used += rounded;
    if (arena->used > arena->peak)
        arena->peak = arena->used;
    return block;
}

void nm_arena_reset(nm_arena *arena)
{
    arena->used = 0;
    arena->exhausted = false;
}

void nm_arena_release(nm_arena *arena)
{
    if (arena->owned && arena->base)
        munmap(arena->base, arena->reserved);
    *arena = (nm_arena){0};
}
