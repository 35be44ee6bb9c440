#include "model/image_model.h"

nm_packing nm_image_packing(nm_tape *tape, int32_t images, int32_t length)
{
    int32_t *offsets = nm_tape_host(tape, ((size_t)images + 1) * sizeof *offsets);
    if (!offsets)
        return (nm_packing){0};
    for (int32_t i = 0; i <= images; i++)
        offsets[i] = i * length;
    const nm_packing packing = {
        .n_seqs = images, .n_tokens = images * length, .longest = length, .offsets = offsets};
    return nm_tape_packing(tape, &packing);
}
