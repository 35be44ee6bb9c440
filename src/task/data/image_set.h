/* Labeled images: folders with one folder per class, and the binary records of CIFAR-10 (Krizhevsky 2009):
 * one byte with the
 * class and 3 x 32 x 32 bytes, red, green and blue planes. */
#pragma once

#include "data/image_file.h"
#include "text/counter.h"

enum { NM_IMAGE_MAX_CLASSES = 4096, NM_IMAGE_RECORD = 1 + 3 * 32 * 32 };

typedef struct nm_image_set {
    int32_t size;    /* height and width of all images */
    uint8_t *pixels; /* [n, size, size, 3], RGB */
    int32_t *labels; /* [n] */
    size_t n, pixels_capacity, labels_capacity;
    size_t n_broken; /* number of files that are not readable images, which the set does not contain */
    char *broken;    /* the first of them with the reason, heap; NULL: none */
} nm_image_set;

typedef struct nm_image_source {
    const char *path; /* a folder of classes, a folder of CIFAR-10's records, or a file NAME.bin of records */
    bool test;        /* a folder of records: test_batch.bin instead of data_batch_*.bin */
    bool training;    /* classes that are not in the list are added; otherwise they are an error */
    int64_t per_class; /* maximum number of images of each class, the first ones; 0: all */
} nm_image_source;

/* Appends the images of a source; set->size is set by the caller. Classes of a folder are in alphabetical
 * order, those of records
 * have the names in batches.meta.txt, or else 0 to 9. Damaged files are counted.
 * NM_IO  a folder or a file cannot be read
 * NM_FORMAT  there are no images, no file is an image, or a file of records is malformed
 * NM_MISMATCH  an unknown class
 * NM_UNSUPPORTED  the library for the format of a file was not present at build time */
nm_status nm_image_set_read(nm_image_set *set, const nm_image_source *source, nm_counter *classes,
                            nm_error *err);
/* Appends an image, and returns its pixels, uninitialized. */
uint8_t *nm_image_set_add(nm_image_set *set, int32_t label);
void nm_image_set_release(nm_image_set *set);
/* Number of bytes of an image. */
size_t nm_image_bytes(const nm_image_set *set);
