/* model.bin of CTranslate2, version 6: named variables, and aliases of variables. */
#pragma once

#include "convert/tensor_map.h"
#include "text/counter.h"

enum { NM_CT2_MAX_RANK = 8 };

typedef struct nm_ct2_variable {
    int type, rank; /* rank 0: a scalar */
    int64_t shape[NM_CT2_MAX_RANK];
    size_t count;
    const char *data; /* `count` values of the type, in the memory of the file; not aligned */
} nm_ct2_variable;

/* {0} is an empty file. */
typedef struct nm_ct2_file {
    char *path, *bytes, *spec; /* spec: "TransformerSpec" */
    int64_t revision;
    nm_counter names;           /* of the variables, then of the aliases, in this order */
    nm_ct2_variable *variables; /* [n] */
    size_t *aliased;            /* [n_aliases], index of the variable of each alias */
    size_t n, n_aliases, capacity, alias_capacity;
} nm_ct2_file;

/* Reads a file. NM_IO; NM_FORMAT if it is not such a file or is damaged; NM_UNSUPPORTED for another version.
 * The caller releases it, also after an error. */
nm_status nm_ct2_file_read(nm_ct2_file *file, const char *path, nm_error *err);
void nm_ct2_file_release(nm_ct2_file *file);
/* The variable with this name or alias; NULL: there is none. */
const nm_ct2_variable *nm_ct2_file_find(const nm_ct2_file *file, const char *name);
/* Sets *value to a scalar; false: there is none. */
bool nm_ct2_file_scalar(const nm_ct2_file *file, const char *name, double *value);
/* All variables and aliases as tensors, valid as long as the file. An int8 or int16 variable "NAME" is
 * divided by "NAME_scale", which has one value or one per row. */
nm_tensor_source nm_ct2_file_source(const nm_ct2_file *file);
