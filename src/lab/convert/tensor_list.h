/* Named float32 tensors in host memory, which a format writes. */
#pragma once

#include "base/memory.h"
#include "nn/params.h"

typedef struct nm_named_tensor {
    char *name;
    int rank;          /* 1 or 2 */
    int64_t shape[2];  /* rows, cols; or length */
    float *data;       /* owned; NULL: the tensor is an alias */
    const char *alias; /* name of the earlier tensor with the data, not owned; NULL: none */
} nm_named_tensor;

/* {0} is an empty list. */
typedef struct nm_tensor_list {
    nm_named_tensor *items;
    size_t n, capacity;
} nm_tensor_list;

/* Adds a copy of values [rows, cols], rounded to float; rows 0: a vector of cols elements. Returns the name
 * in the list, valid until nm_tensor_list_release. */
const char *nm_tensor_list_add(nm_tensor_list *list, const double *values, int64_t rows, int64_t cols,
                               const char *name_format, ...) __attribute__((format(printf, 5, 6)));
/* Adds another name for the tensor `of`, a name in the list, which is not copied. */
void nm_tensor_list_alias(nm_tensor_list *list, const char *name, const char *of);
void nm_tensor_list_release(nm_tensor_list *list);

/* Returns a host copy of a parameter in double, freed by the caller; NULL for NULL. */
double *nm_param_values(nm_backend *backend, const nm_tensor *param);
