/* Growable byte string: capacity doubles, so that appending takes constant amortized time. */
#include "base/buffer.h"

#include <stdlib.h>

void nm_buffer_grow(nm_buffer *buffer, size_t more)
{
    size_t needed = buffer->bytes + more + 1;
    NM_ASSERT(needed > more);
    size_t capacity = buffer->capacity ? 2 * buffer->capacity : 64;
    if (capacity < needed)
        capacity = needed;
    buffer->data = nm_reallocate(buffer->data, capacity);
    buffer->capacity = capacity;
}

void nm_buffer_release(nm_buffer *buffer)
{
    free(buffer->data);
    *buffer = (nm_buffer){0};
}
