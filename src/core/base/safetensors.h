/* Safetensors files: an eight-byte header length, a JSON header, raw little-endian data.
 * Format: https://huggingface.co/docs/safetensors. Reading maps the file and validates it before it returns.
 * Writing is atomic (nm_file_writer). Written files contain checksums of the header and of every tensor; they
 * are verified when a file is opened. Files without checksums are accepted, too. */
#pragma once

#include <stdbool.h>

#include "norma/status.h"

/* Name in the enum and in the file, bytes of an element. */
#define NM_TENSOR_TYPES(T)                                                                                   \
    T(F64, 8)                                                                                                \
    T(I64, 8)                                                                                                \
    T(U64, 8)                                                                                                \
    T(F32, 4)                                                                                                \
    T(I32, 4)                                                                                                \
    T(U32, 4)                                                                                                \
    T(F16, 2)                                                                                                \
    T(BF16, 2)                                                                                               \
    T(I16, 2)                                                                                                \
    T(U16, 2)                                                                                                \
    T(I8, 1)                                                                                                 \
    T(U8, 1)                                                                                                 \
    T(BOOL, 1)

typedef enum nm_tensor_type {
#define T(name, bytes) NM_TENSOR_##name,
    NM_TENSOR_TYPES(T)
#undef T
} nm_tensor_type;

enum { NM_TENSOR_MAX_RANK = 8 };

size_t nm_tensor_type_bytes(nm_tensor_type type);

typedef struct nm_safetensor {
    const char *name;
    nm_tensor_type type;
    int rank; /* 0: one number */
    int64_t shape[NM_TENSOR_MAX_RANK];
    /* In the mapped file. Files of other toolkits may have unaligned data: copy it with memcpy or upload. */
    const void *data;
    size_t count, bytes; /* elements; bytes of data */
} nm_safetensor;

typedef struct nm_safetensors nm_safetensors; /* an open file */

/* NM_IO: the file cannot be read; NM_FORMAT: it is malformed or damaged; NM_MEMORY. *file is NULL after an
 * error. */
nm_status nm_safetensors_open(nm_safetensors **file, const char *path, nm_error *err);
/* The same without verifying the data of the tensors: only the header is read. */
nm_status nm_safetensors_open_metadata(nm_safetensors **file, const char *path, nm_error *err);
/* A file with the tensors of all parts, which it then owns (n of them; files of a model that was saved in
 * parts); without metadata. path: for messages. NM_FORMAT if two parts have a tensor of the same name; the
 * parts are then closed. */
nm_status nm_safetensors_join(nm_safetensors **file, nm_safetensors *const *parts, size_t n, const char *path,
                              nm_error *err);
/* Makes the data of all tensors writable. Pages are copied on write; the file does not change. Returns false,
 * and the data stays read-only, if the system call fails. */
bool nm_safetensors_make_writable(nm_safetensors *file);
/* Invalidates all names and data pointers. NULL is allowed. */
void nm_safetensors_close(nm_safetensors *file);
static inline void nm_safetensors_release(nm_safetensors **file) /* for NM_AUTO */
{
    nm_safetensors_close(*file);
}

/* The tensor with this name, or NULL. */
const nm_safetensor *nm_safetensors_find(const nm_safetensors *file, const char *name);
/* The tensor with this name, type and number of elements. NM_MISMATCH: the message states what the file
 * contains. */
nm_status nm_safetensors_expect(const nm_safetensors *file, const char *name, nm_tensor_type type,
                                size_t count, const nm_safetensor **found, nm_error *err);
/* Number of tensors, and the tensor with an index below it, in the order of the data. */
size_t nm_safetensors_count(const nm_safetensors *file);
const nm_safetensor *nm_safetensors_at(const nm_safetensors *file, size_t index);
/* The metadata text of a key, or NULL. */
const char *nm_safetensors_metadata(const nm_safetensors *file, const char *key);
/* A metadata key whose text differs between two files or that only one of them has; NULL if there is none.
 * ignored: keys that may differ, NULL-terminated. */
const char *nm_safetensors_metadata_difference(const nm_safetensors *a, const nm_safetensors *b,
                                               const char *const *ignored);
const char *nm_safetensors_path(const nm_safetensors *file);

/* Writing: begin, add tensors and metadata in any order, finish. Names and texts are copied; data must remain
 * valid until finish. Tensors are written by decreasing size of an element, so that all data is aligned. */
typedef struct nm_safetensors_writer nm_safetensors_writer;

nm_safetensors_writer *nm_safetensors_begin(void);
/* Names must differ; data may be NULL when the shape has no elements. */
void nm_safetensors_add(nm_safetensors_writer *writer, const char *name, nm_tensor_type type, int rank,
                        const int64_t *shape, const void *data);
void nm_safetensors_add_metadata(nm_safetensors_writer *writer, const char *key, const char *text);
/* The text that was added for a key, or NULL. */
const char *nm_safetensors_added_metadata(const nm_safetensors_writer *writer, const char *key);
/* Copies the metadata of an open file. */
void nm_safetensors_copy_metadata(nm_safetensors_writer *writer, const nm_safetensors *file);
/* Writes the file atomically and frees the writer in every case. NM_IO; NM_USAGE for a name or text that is
 * not UTF-8. */
nm_status nm_safetensors_finish(nm_safetensors_writer *writer, const char *path, nm_error *err);
/* Frees without writing; NULL is allowed. */
void nm_safetensors_abandon(nm_safetensors_writer *writer);
