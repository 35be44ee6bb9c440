#include "base/ids.h"

#include <stdlib.h>

#include "base/memory.h"

void nm_ids_append(nm_ids *ids, int32_t id)
{
    NM_APPEND(ids->data, ids->n, ids->capacity, id);
}

void nm_ids_release(nm_ids *ids)
{
    free(ids->data);
    *ids = (nm_ids){0};
}
