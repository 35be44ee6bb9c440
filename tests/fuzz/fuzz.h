/* Common part of the fuzz targets. A target is a file fuzz_NAME.c with LLVMFuzzerTestOneInput. Linked with
 * libFuzzer (-DNORMA_FUZZ=ON, Clang) it searches for inputs that break a reader; linked with replay.c it runs
 * the inputs stored in inputs/NAME, as an ordinary test. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* libFuzzer's own mutations; for mutators. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t max_bytes);

/* Path of a file in memory with these contents, valid until the next call for the same slot (0 or 1). */
const char *fuzz_file(int slot, const char *suffix, const uint8_t *data, size_t bytes);

/* A folder of this process, in memory where the system has that; its contents are removed at exit. */
const char *fuzz_folder(void);
/* Removes everything in a folder below fuzz_folder(), and the folder. */
void fuzz_remove_folder(const char *path);
/* Consumes a value in [0, n) from the start of the input; 0 if it is empty. */
uint32_t fuzz_choice(const uint8_t **data, size_t *bytes, uint32_t n);
/* The next part of the input, up to a NUL byte that is skipped; heap, NUL-terminated. */
char *fuzz_part(const uint8_t **data, size_t *bytes);
/* Writes the file `name` in the folder `where`. */
void fuzz_put(const char *where, const char *name, const void *data, size_t bytes);
/* A failed call has a message of one line. */
void fuzz_check_error(nm_status status, const nm_error *err);
/* The result of a conversion: a model file that can be opened, or such a message. */
void fuzz_check_converted(nm_status status, const char *output, nm_error *err);

/* A stream over an input, closed by the caller. */
FILE *fuzz_stream(const char *text, size_t bytes);
/* The output of a reader that ended with `status`, heap; NULL if it rejected its input, which requires a
 * message of one line. */
char *fuzz_taken(nm_status status, const nm_error *err, nm_buffer *collected);

#endif
