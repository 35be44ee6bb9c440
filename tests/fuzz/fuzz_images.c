/* Image files, which the libraries decode, and CIFAR-10's binary records: an image has all its pixels. */
#include "data/image_set.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { SIDE = 9 };
    uint8_t pixels[SIDE * SIDE * NM_IMAGE_CHANNELS];
    nm_error err = {0};
    unsigned sum = 0;
    nm_status status = nm_image_decode(data, bytes, "input", SIDE, pixels, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    for (size_t i = 0; status == NM_OK && i < sizeof pixels; i++)
        sum += pixels[i];
    nm_image_set set = {.size = SIDE};
    nm_counter classes = {0};
    const nm_image_source source = {.path = fuzz_file(0, "records.bin", data, bytes), .training = true};
    status = nm_image_set_read(&set, &source, &classes, &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    for (size_t i = 0; i < set.n; i++)
        NM_ASSERT(set.labels[i] >= 0 && (size_t)set.labels[i] < classes.n);
    for (size_t i = 0; i < set.n * nm_image_bytes(&set); i++)
        sum += set.pixels[i];
    nm_image_set_release(&set);
    nm_counter_release(&classes);
    return sum == UINT32_MAX ? 1 : 0; /* so that the pixels are read */
}
