/* The packed weights that are registered with a backend. */

#include "backend/backend_private.h"
#include "base/memory.h"
#include "base/random.h"

static void register_packed(nm_backend *backend, nm_packed_weight entry)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    NM_ASSERT(entry.packed && entry.weight.stride == entry.weight.cols);
    NM_APPEND(inside->weights, inside->n_weights, inside->weights_capacity, entry);
}

void nm_backend_register_weight(nm_backend *backend, nm_mat weight, const void *packed)
{
    register_packed(backend, (nm_packed_weight){.weight = weight, .packed = packed});
}

void nm_backend_register_weight_int8(nm_backend *backend, nm_mat weight, const void *packed)
{
    register_packed(backend, (nm_packed_weight){.weight = weight, .packed = packed, .int8 = true});
}

void nm_backend_unregister_weight(nm_backend *backend, const void *packed)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    size_t i = 0;
    while (i < inside->n_weights && inside->weights[i].packed != packed)
        i++;
    NM_ASSERT(i < inside->n_weights);
    inside->weights[i] = inside->weights[--inside->n_weights];
}

const nm_packed_weight *nm_backend_find_packed(const nm_backend *backend, nm_mat rows, int32_t *first)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    inside = inside->main ? inside->main : inside;
    uintptr_t address = (uintptr_t)rows.data;
    for (size_t i = 0; i < inside->n_weights; i++) {
        nm_mat whole = inside->weights[i].weight;
        uintptr_t begin = (uintptr_t)whole.data;
        size_t row_bytes = (size_t)whole.cols * nm_dtype_bytes(backend->dtype);
        if (address < begin || address - begin >= (size_t)whole.rows * row_bytes)
            continue;
        *first = (int32_t)((address - begin) / row_bytes);
        bool whole_rows =
            (address - begin) % row_bytes == 0 && rows.cols == whole.cols && rows.stride == whole.stride;
        return whole_rows && rows.rows <= whole.rows - *first ? &inside->weights[i] : NULL;
    }
    return NULL;
}

bool nm_backend_has_packed(const nm_backend *backend, nm_mat rows)
{
    int32_t first;
    return nm_backend_find_packed(backend, rows, &first) != NULL;
}

bool nm_backend_linear_int8(nm_backend *backend, const nm_linear_args *args)
{
    int32_t first = 0;
    const nm_packed_weight *entry = nm_backend_find_packed(backend, args->weight, &first);
    if (!entry || !entry->int8)
        return false;
    NM_ASSERT(!args->drop || nm_dropout_threshold(args->drop->rate) == 0);
    NM_ASSERT(args->x.cols == args->weight.cols && args->y.cols == args->weight.rows);
    const nm_int8 rows = {entry->packed, entry->weight.rows, entry->weight.cols, first};
    NM_CALL(backend, linear_int8, .x = args->x, .weight = &rows, .bias = args->bias, .act = args->act,
            .y = args->y);
    return true;
}
