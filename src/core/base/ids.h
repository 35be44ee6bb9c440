/* A growable list of token ids. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* {0} is empty. */
typedef struct nm_ids {
    int32_t *data;
    size_t n, capacity;
} nm_ids;
void nm_ids_append(nm_ids *ids, int32_t id);
void nm_ids_release(nm_ids *ids);
