/* Files of NumPy arrays (npz): a zip archive of npy files
 * (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html). The archive is read by
 * libarchive. */
#pragma once

#include "base/hash_map.h"
#include "norma/status.h"

enum { NM_NPZ_MAX_RANK = 8 };

typedef struct nm_npz_array {
    char *name;     /* of the npy file, without ".npy" */
    char kind;      /* 'f', 'i' or 'u' */
    int item_bytes; /* size of an element, which is little-endian */
    int rank;
    int64_t shape[NM_NPZ_MAX_RANK];
    size_t count, bytes; /* elements; bytes of data */
    void *data;          /* in C order */
} nm_npz_array;

/* {0} is empty. */
typedef struct nm_npz {
    char *path;
    nm_npz_array *arrays;
    size_t n, capacity;
    nm_hash_map names; /* of the arrays */
    size_t left;       /* bytes that may still be unpacked */
} nm_npz;

/* Reads all arrays. NM_IO; NM_FORMAT for a file that is not an npz file or is damaged; NM_UNSUPPORTED for an
 * array of another type or in Fortran order, and without libarchive. The caller releases npz, also after an
 * error. */
nm_status nm_npz_read(nm_npz *npz, const char *path, nm_error *err);
/* The array with this name, or NULL. Owned by npz. */
const nm_npz_array *nm_npz_find(const nm_npz *npz, const char *name);
void nm_npz_release(nm_npz *npz);
