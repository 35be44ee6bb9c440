/* Values of device memory on the host, in double: for instruments, folding, conversion and initialization. */
#include <stdlib.h>

#include "nn/tape.h"

double *nm_vector_values(nm_backend *backend, const void *vector, size_t n)
{
    double *values = nm_allocate((n + 1) * sizeof *values);
    nm_backend_read(backend, values, vector, n);
    return values;
}

double *nm_mat_values(nm_backend *backend, nm_mat mat)
{
    const size_t rows = (size_t)mat.rows, cols = (size_t)mat.cols,
                 row_bytes = (size_t)mat.stride * nm_dtype_bytes(backend->dtype);
    double *values = nm_allocate((rows * cols + 1) * sizeof *values);
    for (size_t r = 0; r < rows; r++)
        nm_backend_read(backend, values + r * cols, (char *)mat.data + r * row_bytes, cols);
    return values;
}

void nm_tensor_set(nm_backend *backend, const nm_tensor *tensor, size_t first, const double *values, size_t n)
{
    nm_backend_write(backend, (char *)tensor->data + first * nm_dtype_bytes(backend->dtype), values, n);
}

double nm_double_value(nm_backend *backend, const double *device)
{
    double value;
    nm_backend_download(backend, &value, device, sizeof value);
    return value;
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
