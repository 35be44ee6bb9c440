/* The correspondence between the parameters of a model and the tensors of another program, for both directions: a format lists
 * the tensors once. An entry is a block of rows of a parameter:
 *     tensor = factor * rows                     or its transpose */
#ifndef NM_TENSOR_MAP_H
#define NM_TENSOR_MAP_H

#include "base/safetensors.h"
#include "convert/tensor_list.h"

/* Axis 0 of a tensor has one entry per token of this vocabulary. */
typedef enum nm_map_vocab { NM_OF_NO_VOCAB, NM_OF_SOURCE_VOCAB, NM_OF_TARGET_VOCAB } nm_map_vocab;

typedef struct nm_map_entry {
    char *name; /* of the tensor */
    nm_tensor *param;
    int32_t first, rows; /* of the parameter; rows 0: a vector */
    nm_map_vocab vocab;
    bool transposed, optional; /* optional: a missing tensor is zero */
    double factor;
} nm_map_entry;

/* {0} is empty. */
typedef struct nm_tensor_map {
    nm_map_entry *entries;
    size_t n, capacity;
} nm_tensor_map;

/* The whole parameter. The entry may be changed further until the next one is added. */
nm_map_entry *nm_tensor_map_add(nm_tensor_map *map, nm_tensor *param, const char *name_format, ...)
    __attribute__((format(printf, 3, 4)));
/* Part `index` of `parts` blocks of rows of equal size, such as the keys in the rows of queries, keys and values. */
nm_map_entry *nm_tensor_map_add_part(nm_tensor_map *map, nm_tensor *param, int32_t index, int32_t parts,
                                     const char *name_format, ...) __attribute__((format(printf, 5, 6)));
void nm_tensor_map_release(nm_tensor_map *map);

/* Adds all tensors to the list. */
void nm_tensor_map_write(const nm_tensor_map *map, nm_backend *backend, nm_tensor_list *list);

/* Where tensors are read from. */
typedef struct nm_tensor_source {
    const char *path; /* for messages */
    const void *file;
    /* Whether the tensor exists as floating-point numbers; sets its rank and shape (of at most 8 dimensions). */
    bool (*shape)(const void *file, const char *name, int *rank, int64_t *shape);
    /* The tensor in double, heap, with its rank and shape; NULL: there is none. */
    double *(*read)(const void *file, const char *name, int *rank, int64_t *shape);
    /* Name of tensor `index`, or NULL past the last one. */
    const char *(*name)(const void *file, size_t index);
    bool (*ignored)(const char *name); /* tensors that need not be in the map */
} nm_tensor_source;

/* ids[id]: index of token `id` in the other program's vocabulary, -1: it has none, and its entries are 0. */
typedef struct nm_map_ids {
    const int32_t *ids[3]; /* of nm_map_vocab */
    int32_t size[3];       /* of the other program's vocabularies */
} nm_map_ids;

/* Compares the shapes of tensors and parameters, which may still be without memory. NM_MISMATCH names a tensor that is missing
 * or has another shape, NM_UNSUPPORTED one that the map does not have. */
nm_status nm_tensor_map_check(const nm_tensor_map *map, const nm_tensor_source *source, const nm_map_ids *ids,
                              nm_error *err);
/* Sets the parameters of the model; parameters without an entry keep their value. Errors of nm_tensor_map_check, NM_DIVERGED for
 * values that are not finite. */
nm_status nm_tensor_map_read(const nm_tensor_map *map, nm_backend *backend, const nm_tensor_source *source,
                             const nm_map_ids *ids, nm_error *err);

/* The value of an IEEE 754 binary16. */
double nm_half_value(uint16_t bits);

/* A safetensors file; F32, F64, F16 and BF16. */
nm_tensor_source nm_tensor_source_safetensors(const nm_safetensors *file);

#endif
