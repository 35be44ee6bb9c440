#include "convert/tensor_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *nm_tensor_list_add(nm_tensor_list *list, const double *values, int64_t rows, int64_t cols,
                               const char *name_format, ...)
{
    char name[192];
    va_list args;
    va_start(args, name_format);
    vsnprintf(name, sizeof name, name_format, args);
    va_end(args);
    size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    nm_named_tensor tensor = {.name = nm_duplicate(name),
                              .rank = rows ? 2 : 1,
                              .shape = {rows ? rows : cols, rows ? cols : 0},
                              .data = nm_allocate(n * sizeof *tensor.data)};
    for (size_t i = 0; i < n; i++)
        tensor.data[i] = (float)values[i];
    NM_APPEND(list->items, list->n, list->capacity, tensor);
    return tensor.name;
}

void nm_tensor_list_alias(nm_tensor_list *list, const char *name, const char *of)
{
    NM_APPEND(list->items, list->n, list->capacity,
              (nm_named_tensor){.name = nm_duplicate(name), .alias = of});
}

void nm_tensor_list_release(nm_tensor_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        NM_FREE(list->items[i].name, list->items[i].data);
    free(list->items);
    *list = (nm_tensor_list){0};
}

double *nm_param_values(nm_backend *backend, const nm_tensor *param)
{
    return param ? nm_mat_values(backend, nm_tensor_mat(param)) : NULL;
}
