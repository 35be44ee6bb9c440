/* Numbers from the host as the input of a model. Nothing is learned below it, so that operations on it
 * compute no gradient. */
#include "nn/tape.h"

nm_tensor *nm_input(nm_tape *tape, const float *values, int32_t rows, int32_t cols)
{
    const nm_dtype dtype = tape->backend->dtype;
    const size_t n = (size_t)rows * (size_t)cols;
    nm_tensor *x = nm_tape_tensor(tape, rows, cols);
    const void *host = values;
    if (dtype == NM_F64) {
        double *converted = nm_tape_host(tape, n * sizeof *converted);
        for (size_t i = 0; converted && i < n; i++)
            converted[i] = (double)values[i];
        host = converted;
    }
    if (nm_tape_exhausted(tape))
        return x;
    x->fixed = true;
    nm_backend_upload(tape->backend, x->data, host, n * nm_dtype_bytes(dtype));
    return x;
}
