/* Files of NumPy arrays: the size of the data of an array agrees with its shape. */
#include <string.h>

#include "base/npz.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    nm_npz npz;
    nm_error err;
    nm_status status = nm_npz_read(&npz, fuzz_file(0, "npz", data, bytes), &err);
    if (status != NM_OK)
        fuzz_check_error(status, &err);
    unsigned sum = 0;
    for (size_t i = 0; status == NM_OK && i < npz.n; i++) {
        const nm_npz_array *array = &npz.arrays[i];
        size_t count = 1;
        for (int k = 0; k < array->rank; k++)
            count *= (size_t)array->shape[k];
        NM_ASSERT(count == array->count && array->bytes == count * (size_t)array->item_bytes);
        for (size_t k = 0; k < array->bytes; k++)
            sum += ((const unsigned char *)array->data)[k];
        NM_ASSERT(nm_npz_find(&npz, array->name) == array);
    }
    nm_npz_release(&npz);
    return sum == UINT32_MAX ? 1 : 0; /* so that the bytes are read */
}
