/* What the fuzz targets share. A target is a file fuzz_NAME.c with LLVMFuzzerTestOneInput; linked with libFuzzer it
 * looks for inputs that break a reader (-DNORMA_FUZZ=ON, Clang), linked with replay.c it reads those kept in
 * inputs/NAME (an ordinary test). */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Path of a file in memory with these contents, valid until the next call for the same slot (0 or 1). */
const char *fuzz_file(int slot, const char *suffix, const uint8_t *data, size_t bytes);

#endif
