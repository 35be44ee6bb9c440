/* Growable byte string. */
#pragma once

#include <string.h>
#include "base/memory.h"

/* data ends with a NUL after the first append; {0} is an empty buffer. */
typedef struct nm_buffer {
    char *data;
    size_t bytes, capacity;
} nm_buffer;

void nm_buffer_grow(nm_buffer *buffer, size_t more); /* called by nm_buffer_reserve */
void nm_buffer_release(nm_buffer *buffer);

/* Reserves memory for `more` further bytes and a NUL. */
static inline void nm_buffer_reserve(nm_buffer *buffer, size_t more)
{
    if (more >= buffer->capacity - buffer->bytes)
        nm_buffer_grow(buffer, more);
}

/* Makes the buffer an empty string; the memory is kept. */
static inline void nm_buffer_clear(nm_buffer *buffer)
{
    nm_buffer_reserve(buffer, 0);
    buffer->bytes = 0;
    buffer->data[0] = 0;
}

static inline void nm_buffer_append(nm_buffer *buffer, const char *text, size_t bytes)
{
    nm_buffer_reserve(buffer, bytes);
    if (bytes)
        memcpy(buffer->data + buffer->bytes, text, bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = 0;
}

/* Replaces each "\n" and "\r" with a space. */
static inline void nm_buffer_join_lines(nm_buffer *buffer)
{
    for (size_t i = 0; i < buffer->bytes; i++)
        if (buffer->data[i] == '\n' || buffer->data[i] == '\r')
            buffer->data[i] = ' ';
}

static inline void nm_buffer_append_byte(nm_buffer *buffer, char byte)
{
    nm_buffer_append(buffer, &byte, 1);
}
