/* For targets whose whole input is an INI text. */
#include "mutate.h"

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t max_bytes, unsigned int seed)
{
    return fuzz_mutate_ini((char *)data, bytes, max_bytes, seed);
}
