#include "data/image_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef NORMA_LIBJPEG
#include <jpeglib.h>

#include <jerror.h>
#endif
#ifdef NORMA_LIBPNG
#include <png.h>
#endif

#include "base/file.h"
#include "base/memory.h"

typedef struct picture { /* [height, width, 3], heap */
    uint8_t *pixels;
    int32_t height, width;
} picture;

#if defined(NORMA_LIBJPEG) || defined(NORMA_LIBPNG)
/* NM_FORMAT for an empty or a very large image; otherwise allocates its pixels. */
static nm_status alloc_picture(picture *p, uint32_t height, uint32_t width, const char *name, nm_error *err)
{
    if (!height || !width || height > NM_IMAGE_MAX_SIDE || width > NM_IMAGE_MAX_SIDE)
        return nm_fail(err, NM_FORMAT, "%s: %u x %u pixels; the limit is %d", name, width, height,
                       NM_IMAGE_MAX_SIDE);
    *p = (picture){nm_allocate((size_t)height * width * NM_IMAGE_CHANNELS), (int32_t)height, (int32_t)width};
    return NM_OK;
}
#endif

#ifdef NORMA_LIBJPEG
typedef struct jpeg_failure {
    struct jpeg_error_mgr manager; /* first member */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} jpeg_failure;

static void jpeg_stop(j_common_ptr decoder)
{
    jpeg_failure *failure = (jpeg_failure *)decoder->err;
    decoder->err->format_message(decoder, failure->text);
    longjmp(failure->back, 1);
}

/* Warnings are about damaged data. */
static void jpeg_message(j_common_ptr decoder, int level)
{
    if (level < 0)
        jpeg_stop(decoder);
}

/* inks: a row of CMYK, which Adobe's programs store inverted; NULL: the image is RGB. */
static void read_jpeg_row(struct jpeg_decompress_struct *decoder, JSAMPARRAY inks, uint8_t *rgb)
{
    const int flip = decoder->saw_Adobe_marker ? 0 : 255;
    jpeg_read_scanlines(decoder, inks ? inks : &rgb, 1);
    for (uint32_t x = 0; inks && x < 4 * decoder->output_width; x += 4)
        for (uint32_t c = 0; c < NM_IMAGE_CHANNELS; c++)
            *rgb++ = (uint8_t)((((*inks)[x + c] ^ flip) * ((*inks)[x + 3] ^ flip) + 127) / 255);
}

static nm_status read_jpeg(const void *data, size_t bytes, const char *name, picture *p, nm_error *err)
{
    struct jpeg_decompress_struct decoder;
    jpeg_failure failure;
    nm_status status = NM_OK;
    decoder.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = jpeg_stop;
    failure.manager.emit_message = jpeg_message;
    jpeg_create_decompress(&decoder);
    if (setjmp(failure.back)) {
        jpeg_destroy_decompress(&decoder);
        if (failure.manager.msg_code == JERR_OUT_OF_MEMORY)
            return nm_fail(err, NM_MEMORY, "%s: out of memory", name);
        return nm_fail(err, NM_FORMAT, "%s: damaged JPEG image: %s", name, failure.text);
    }
    jpeg_mem_src(&decoder, data, bytes);
    jpeg_read_header(&decoder, TRUE);
    decoder.out_color_space = decoder.num_components == 4 ? JCS_CMYK : JCS_RGB;
    status = alloc_picture(p, decoder.image_height, decoder.image_width, name, err);
    if (status == NM_OK)
        jpeg_start_decompress(&decoder);
    JSAMPARRAY inks = NULL;
    if (status == NM_OK && decoder.out_color_space == JCS_CMYK)
        inks = decoder.mem->alloc_sarray((j_common_ptr)&decoder, JPOOL_IMAGE, 4 * decoder.output_width, 1);
    while (status == NM_OK && decoder.output_scanline < decoder.output_height)
        read_jpeg_row(&decoder, inks,
                      p->pixels + (size_t)decoder.output_scanline * decoder.output_width * NM_IMAGE_CHANNELS);
    if (status == NM_OK)
        jpeg_finish_decompress(&decoder);
    jpeg_destroy_decompress(&decoder);
    return status;
}
#else
static nm_status read_jpeg(const void *data, size_t bytes, const char *name, picture *p, nm_error *err)
{
    (void)data, (void)bytes, (void)p;
    return nm_fail(err, NM_UNSUPPORTED, "%s: this program was built without libjpeg", name);
}
#endif

#ifdef NORMA_LIBPNG
/* libpng has no code for missing memory: "out of memory", zlib's "insufficient memory". */
static nm_status fail_png(const png_image *image, const char *name, nm_error *err)
{
    return strstr(image->message, "memory")
               ? nm_fail(err, NM_MEMORY, "%s: out of memory", name)
               : nm_fail(err, NM_FORMAT, "%s: damaged PNG image: %s", name, image->message);
}

static nm_status read_png(const void *data, size_t bytes, const char *name, picture *p, nm_error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    const png_color black = {0, 0, 0};
    if (!png_image_begin_read_from_memory(&image, data, bytes))
        return fail_png(&image, name, err);
    image.format = PNG_FORMAT_RGB;
    nm_status status = alloc_picture(p, image.height, image.width, name, err);
    if (status == NM_OK && !png_image_finish_read(&image, &black, p->pixels, 0, NULL))
        status = fail_png(&image, name, err);
    png_image_free(&image);
    return status;
}
#else
static nm_status read_png(const void *data, size_t bytes, const char *name, picture *p, nm_error *err)
{
    (void)data, (void)bytes, (void)p;
    return nm_fail(err, NM_UNSUPPORTED, "%s: this program was built without libpng", name);
}
#endif

/* Adds the part of the source line `from` [count, 3] that output pixel i of `size` covers, times `factor`, to
 * sum. */
static void add_covered(const uint8_t *from, int32_t count, int32_t size, int32_t i, double factor,
                        double sum[3])
{
    const double begin = (double)i * count / size, end = (double)(i + 1) * count / size;
    for (int32_t x = (int32_t)begin; x < count && x < end; x++) {
        double part = fmin(end, x + 1.0) - fmax(begin, x);
        for (int c = 0; c < NM_IMAGE_CHANNELS; c++)
            sum[c] += factor * part * from[x * NM_IMAGE_CHANNELS + c];
    }
}

static void scale_pixel(const picture *p, int32_t size, int32_t row, int32_t col, uint8_t *to)
{
    const double begin = (double)row * p->height / size, end = (double)(row + 1) * p->height / size;
    const double area = (double)p->height / size * p->width / size;
    double sum[NM_IMAGE_CHANNELS] = {0};
    for (int32_t y = (int32_t)begin; y < p->height && y < end; y++)
        add_covered(p->pixels + (size_t)y * (size_t)p->width * NM_IMAGE_CHANNELS, p->width, size, col,
                    fmin(end, y + 1.0) - fmax(begin, y), sum);
    for (int c = 0; c < NM_IMAGE_CHANNELS; c++)
        to[c] = (uint8_t)fmin(255, sum[c] / area + 0.5);
}

void nm_image_scale(const uint8_t *from, int32_t height, int32_t width, int32_t size, uint8_t *to)
{
    const picture p = {(uint8_t *)(uintptr_t)from, height, width};
    if (height == size && width == size) {
        memcpy(to, from, (size_t)size * (size_t)size * NM_IMAGE_CHANNELS);
        return;
    }
    for (int32_t i = 0; i < size * size; i++)
        scale_pixel(&p, size, i / size, i % size, to + (size_t)i * NM_IMAGE_CHANNELS);
}

nm_status nm_image_decode(const void *data, size_t bytes, const char *name, int32_t size, uint8_t *pixels,
                          nm_error *err)
{
    static const uint8_t jpeg[] = {0xFF, 0xD8, 0xFF}, png[] = {0x89, 'P', 'N', 'G'};
    picture p = {0};
    nm_status status;
    if (bytes > sizeof jpeg && !memcmp(data, jpeg, sizeof jpeg))
        status = read_jpeg(data, bytes, name, &p, err);
    else if (bytes > sizeof png && !memcmp(data, png, sizeof png))
        status = read_png(data, bytes, name, &p, err);
    else
        status = nm_fail(err, NM_FORMAT, "%s: neither a JPEG nor a PNG image", name);
    if (status == NM_OK)
        nm_image_scale(p.pixels, p.height, p.width, size, pixels);
    free(p.pixels);
    return status;
}

nm_status nm_image_file_read(const char *path, int32_t size, uint8_t *pixels, nm_error *err)
{
    NM_AUTO(nm_file_unmap) nm_file_map file = {0};
    NM_TRY(nm_file_map_open(&file, path, err));
    return nm_image_decode(file.data, file.bytes, path, size, pixels, err);
}
