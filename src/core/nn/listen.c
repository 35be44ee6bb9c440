/* What instruments receive from the tape besides the calls of norms (normalize.c), and the variance with
 * which they and the initialization admin describe it. */
#include <stdlib.h>

#include "nn/tape.h"

void nm_tape_report_residual(nm_tape *tape, const char *site, const nm_tensor *stream,
                             const nm_tensor *branch, const nm_tensor *out, nm_tensor *omega)
{
    if (!tape->listen_residual || tape->recomputed || nm_tape_exhausted(tape))
        return;
    const nm_residual_call call = {tape->backend,      site, nm_tensor_mat(stream), nm_tensor_mat(branch),
                                   nm_tensor_mat(out), omega};
    tape->listen_residual(tape->listener, &call);
}

double nm_mat_variance(nm_backend *backend, nm_mat mat)
{
    const size_t rows = (size_t)mat.rows, cols = (size_t)mat.cols,
                 row_bytes = (size_t)mat.stride * nm_dtype_bytes(backend->dtype);
    double *row = nm_allocate((cols + 1) * sizeof *row), mean = 0, square = 0;
    for (int pass = 0; pass < 2; pass++) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++) {
            nm_backend_read(backend, row, (char *)mat.data + r * row_bytes, cols);
            for (size_t i = 0; i < cols; i++)
                sum += pass ? (row[i] - mean) * (row[i] - mean) : row[i];
        }
        *(pass ? &square : &mean) = sum / (double)(rows * cols);
    }
    free(row);
    return square;
}
