/* Image files: JPEG with libjpeg, PNG with libpng, each if it was present at build time. */
#pragma once

#include <stdint.h>
#include "norma/status.h"

enum { NM_IMAGE_CHANNELS = 3, NM_IMAGE_MAX_SIDE = 16384, NM_IMAGE_MAX_SIZE = 224 };

/* Reads an image and scales it to size x size by the mean over areas: pixels [size, size, 3], RGB. Gray
 * images and palettes become
 * RGB; transparent pixels are composed with black.
 * NM_IO  the file cannot be read
 * NM_FORMAT  neither JPEG nor PNG, damaged, incomplete, or larger than NM_IMAGE_MAX_SIDE
 * NM_UNSUPPORTED  the library for this format was not present at build time */
nm_status nm_image_file_read(const char *path, int32_t size, uint8_t *pixels, nm_error *err);
/* The same from memory; name: of the image in messages. */
nm_status nm_image_decode(const void *data, size_t bytes, const char *name, int32_t size, uint8_t *pixels,
                          nm_error *err);
/* Scales [height, width, 3] to [size, size, 3]: a pixel is the mean of the area that it covers. */
void nm_image_scale(const uint8_t *from, int32_t height, int32_t width, int32_t size, uint8_t *to);
