#include "base/memory.h"

#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/c_locale.h"

/* The only call of exit in the library, see memory.h. nm_panic, for programming errors, aborts. */
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

static char *format_list(const char *format, va_list args)
{
    va_list again;
    locale_t before = nm_c_locale_enter();
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0) /* vsnprintf allocates for wide fields */
        nm_out_of_memory(0);
    char *text = nm_allocate((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    nm_c_locale_leave(before);
    return text;
}

char *nm_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_list(format, args);
    va_end(args);
    return text;
}

void nm_format_append(char **text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    NM_AUTO_FREE char *more = format_list(format, args);
    va_end(args);
    size_t length = *text ? strlen(*text) : 0, bytes = strlen(more) + 1;
    *text = nm_reallocate(*text, length + bytes);
    memcpy(*text + length, more, bytes);
}

void nm_list_append(char **list, const char *item)
{
    nm_format_append(list, "%s%s", *list && **list ? ", " : "", item);
}

void nm_free_list(void *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *block;
        memcpy(&block, (char *)list + i * sizeof block, sizeof block); /* of any type of pointer */
        free(block);
    }
    free(list);
}

char *nm_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
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

/* Not open_memstream: glibc loses text without an error if that stream cannot grow. */
typedef struct text_stream {
    char **text;
    size_t *bytes, capacity;
} text_stream;

static ssize_t text_stream_write(void *cookie, const char *from, size_t n)
{
    text_stream *self = cookie;
    size_t needed = *self->bytes + n + 1;
    if (needed > self->capacity) {
        self->capacity = 2 * needed;
        *self->text = nm_reallocate(*self->text, self->capacity);
    }
    memcpy(*self->text + *self->bytes, from, n);
    *self->bytes += n;
    (*self->text)[*self->bytes] = 0;
    return (ssize_t)n;
}

/* Only rewind is supported: it discards the text. */
static int text_stream_seek(void *cookie, off64_t *offset, int whence)
{
    text_stream *self = cookie;
    if (whence != SEEK_SET || *offset)
        return -1;
    *self->bytes = 0;
    **self->text = 0;
    return 0;
}

static int text_stream_close(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *nm_text_stream_open(char **text, size_t *bytes)
{
    text_stream *self = nm_allocate(sizeof *self);
    *self = (text_stream){text, bytes, 1};
    *text = nm_allocate(1);
    *bytes = 0;
    FILE *stream =
        fopencookie(self, "w",
                    (cookie_io_functions_t){
                        .write = text_stream_write, .seek = text_stream_seek, .close = text_stream_close});
    if (!stream)
        nm_out_of_memory(0);
    return stream;
}

void nm_text_stream_close(FILE *stream)
{
    if (fclose(stream))
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

/* Adds a region of at least `bytes` bytes. It is twice as large as all earlier ones together, so few regions
 * are needed. */
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
