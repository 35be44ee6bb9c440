/* Helpers of the tests of the text layer: headers of cmocka, and comparison of buffers. */
#ifndef TEXT_HELPER_H
#define TEXT_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/buffer.h"

/* Compares with a string and empties the buffer. */
#define assert_buffer(buffer, expected)                                                                      \
    do {                                                                                                     \
        nm_buffer_reserve((buffer), 0);                                                                      \
        (buffer)->data[(buffer)->bytes] = 0;                                                                 \
        assert_string_equal((buffer)->data, (expected));                                                     \
        nm_buffer_clear(buffer);                                                                             \
    } while (0)

/* Writes a file of the test's own into the folder for temporary files; the caller frees the path. */
static inline char *write_temporary(const char *text, size_t bytes)
{
    char *path = nm_format("/tmp/norma-text-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
    return path;
}

static inline void remove_temporary(char *path)
{
    unlink(path);
    free(path);
}

#endif
