/* The tensors of a model file: parameters, running statistics and counters of the norms, as safetensors.
 * train/checkpoint.h adds the metadata (options, texts of the task) that make the file self-contained. */
#pragma once

#include "base/safetensors.h"
#include "model/model.h"

/* Host copies of device memory, owned by the struct until nm_host_copies_release. Initialize with {0}. */
typedef struct nm_host_copies {
    void **blocks;
    size_t n, capacity;
} nm_host_copies;

/* The contents of device memory for the host to read: the memory itself where the host can access it,
 * otherwise a copy. */
const void *nm_host_copies_add(nm_host_copies *copies, nm_backend *backend, const void *device, size_t bytes);
void nm_host_copies_release(nm_host_copies *copies);

/* Weight matrices in a model file. */
typedef enum nm_weight_format { NM_WEIGHTS_FLOAT, NM_WEIGHTS_INT8, NM_WEIGHTS_BF16 } nm_weight_format;

/* The safetensors type of the backend's floating-point numbers. */
nm_tensor_type nm_model_file_dtype(const nm_backend *backend);

/* Adds all tensors of the model to the writer. copies must live until the writer has finished.
 * Norms that are folded into linear layers (nm_model_fold) are left out.
 * int8: matrices are written as nm_params_to_int8 rounds them, as I8 NAME [rows, cols] and F32 NAME.scale
 * [rows]. bf16: the same matrices are rounded to BF16, as operands of bf16 matrix multiplications are
 * (norma/backend.h). Both need a float32 model. NM_DIVERGED: a matrix has a row that is not finite. */
nm_status nm_model_file_add(nm_safetensors_writer *writer, const nm_model *model, nm_weight_format format,
                            nm_host_copies *copies, nm_error *err);

/* Loads every parameter, running statistic and counter; int8 matrices are dequantized. NM_MISMATCH names the
 * first tensor that is missing or has another shape. */
nm_status nm_model_file_load(const nm_safetensors *file, nm_model *model, nm_error *err);

/* Like nm_model_file_load, but for inference only and without a copy: where host and backend share memory,
 * parameters of the backend's type stay in the mapped file, which must remain open while the model exists.
 * Writing to parameters copies the pages and does not change the file. */
nm_status nm_model_file_map(nm_safetensors *file, nm_model *model, nm_error *err);

/* Fails with NM_FORMAT for a file without the metadata of a model; the message names the kind of the file. */
nm_status nm_model_file_not_a_model(const nm_safetensors *file, nm_error *err);

/* Returns status, that of reading the file. If the settings or the tensors are wrong, and a later version of
 * the program has written the file, adds this to the message and returns NM_UNSUPPORTED. */
nm_status nm_model_file_explain(const nm_safetensors *file, nm_status status, nm_error *err);

/* NM_DIVERGED names the first floating-point tensor that contains a NaN or an infinity. */
nm_status nm_model_file_check_finite(const nm_safetensors *file, nm_error *err);
