/* Structure-aware mutators of formats; a target is linked with one of mutate_*.c (CMakeLists.txt). */
#ifndef FUZZ_MUTATE_H
#define FUZZ_MUTATE_H

#include "fuzz.h"

/* A valid input to start from, for targets that make one; 0: it has more than max_bytes. */
size_t fuzz_first_input(uint8_t *data, size_t max_bytes) __attribute__((weak));

/* One change to a text in INI format. Returns its new length. */
size_t fuzz_mutate_ini(char *text, size_t bytes, size_t max_bytes, uint32_t seed);

#endif
