/* Named float32 tensors in host memory: what a format writes or has read. */
#ifndef NM_TENSOR_LIST_H
#define NM_TENSOR_LIST_H

#include "base/memory.h"
#include "nn/params.h"

typedef struct nm_named_tensor {
    char *name;
    int rank;          /* 1 or 2 */
    int64_t shape[2];  /* [rows, cols], or [length] */
    float *data;       /* owned; NULL: the data of the tensor `alias` */
    const char *alias; /* name of an earlier tensor */
} nm_named_tensor;

/* {0} is an empty list. */
typedef struct nm_tensor_list {
    nm_named_tensor *items;
    size_t n, capacity;
} nm_tensor_list;

/* Copies values [rows, cols], rounded to float; rows 0: a vector of cols elements. Returns the name in the list, which is valid
 * until nm_tensor_list_release. */
const char *nm_tensor_list_add(nm_tensor_list *list, const double *values, int64_t rows, int64_t cols,
                               const char *name_format, ...) __attribute__((format(printf, 5, 6)));
/* The same tensor under another name. */
void nm_tensor_list_alias(nm_tensor_list *list, const char *name, const char *of);
void nm_tensor_list_release(nm_tensor_list *list);

/* Host copy of a parameter, in double; the caller frees it. NULL for NULL. */
double *nm_param_values(nm_backend *backend, const nm_tensor *param);
/* The same of a matrix without gaps between its rows. */
double *nm_matrix_values(nm_backend *backend, nm_mat matrix);

#endif
