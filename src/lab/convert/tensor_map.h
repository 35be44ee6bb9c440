/* The correspondence between the parameters of a model and the tensors of another toolkit. A format lists the
 * tensors once, for reading and writing. An entry is a block of rows of a parameter:
 *     tensor = factor * rows + offset            or its transpose */
#pragma once

#include "base/safetensors.h"
#include "convert/tensor_list.h"

/* The vocabulary whose tokens axis 0 of a tensor enumerates. */
typedef enum nm_map_vocab { NM_OF_NO_VOCAB, NM_OF_SOURCE_VOCAB, NM_OF_TARGET_VOCAB } nm_map_vocab;

typedef struct nm_map_entry {
    char *name; /* of the tensor */
    nm_tensor *param;
    int32_t first, rows; /* rows of the parameter; rows 0: a vector; -n: n elements of a vector */
    nm_map_vocab vocab;
    bool transposed, optional; /* optional: without the tensor, the parameter keeps its value */
    double factor, offset;
} nm_map_entry;

/* {0} is an empty map. */
typedef struct nm_tensor_map {
    nm_map_entry *entries;
    size_t n, capacity;
} nm_tensor_map;

/* Adds a whole parameter. The caller may change the returned entry until the next one is added. */
nm_map_entry *nm_tensor_map_add(nm_tensor_map *map, nm_tensor *param, const char *name_format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds block `index` of the rows of a parameter, divided into `parts` blocks of equal size, such as the key
 * projection in a matrix of query, key and value projections. */
nm_map_entry *nm_tensor_map_add_part(nm_tensor_map *map, nm_tensor *param, int32_t index, int32_t parts,
                                     const char *name_format, ...) __attribute__((format(printf, 5, 6)));
void nm_tensor_map_release(nm_tensor_map *map);

/* A file from which tensors are read. */
typedef struct nm_tensor_source {
    const char *path; /* for messages */
    const void *file;
    /* Whether the tensor exists and has a floating-point type; sets its rank and shape (at most 8
     * dimensions). */
    bool (*shape)(const void *file, const char *name, int *rank, int64_t *shape);
    /* Returns the tensor in double, heap, and sets its rank and shape; NULL: there is none. */
    double *(*read)(const void *file, const char *name, int *rank, int64_t *shape);
    /* Name of tensor `index`; NULL after the last one. */
    const char *(*name)(const void *file, size_t index);
    bool (*ignored)(const char *name); /* whether a tensor may be missing from the map; NULL: none may */
} nm_tensor_source;

/* Order of vocabularies. ids[vocab][id]: index of token `id` in the vocabulary of the other toolkit; -1: the
 * token has no counterpart, and its rows become 0. */
typedef struct nm_map_ids {
    const int32_t *ids[3]; /* indexed by nm_map_vocab */
    int32_t size[3];       /* of the vocabularies of the other toolkit */
} nm_map_ids;

/* Adds all tensors of the map to the list. ids: order of the target vocabulary in the list, without the
 * tokens whose index is -1; NULL: that of Norma. */
void nm_tensor_map_write(const nm_tensor_map *map, nm_backend *backend, const nm_map_ids *ids,
                         nm_tensor_list *list);
/* Compares the shapes of tensors and parameters, which need no memory yet. NM_MISMATCH if a tensor is missing
 * or has another shape, NM_UNSUPPORTED for a tensor that is not in the map; the message names it. */
nm_status nm_tensor_map_check(const nm_tensor_map *map, const nm_tensor_source *source, const nm_map_ids *ids,
                              nm_error *err);
/* Reads the parameters of the model; parameters without an entry keep their value. Errors of
 * nm_tensor_map_check; NM_DIVERGED for values that are not finite. */
nm_status nm_tensor_map_read(const nm_tensor_map *map, nm_backend *backend, const nm_tensor_source *source,
                             const nm_map_ids *ids, nm_error *err);

/* The value of an IEEE 754 half-precision number. */
double nm_half_value(uint16_t bits);

/* The tensors of types F64, F32, F16 and BF16 of a safetensors file, valid as long as the file. */
nm_tensor_source nm_tensor_source_safetensors(const nm_safetensors *file);
