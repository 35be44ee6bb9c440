/* Section [device] of the configuration: backend, number of threads, precision, memory limit. */
#pragma once

#include "norma/backend.h"
#include "norma/option.h"

#define NM_PRECISIONS(C)                                                                                     \
    C(NM_PRECISION_FLOAT, "float")                                                                           \
    C(NM_PRECISION_TF32, "tf32") /* cuda */                                                                  \
    C(NM_PRECISION_BF16, "bf16")                                                                             \
    C(NM_PRECISION_INT8, "int8")                                                                             \
    C(NM_PRECISION_AUTO, "auto")       /* bf16 if it is faster on this CPU or GPU, otherwise float */        \
    C(NM_PRECISION_TRAINED, "trained") /* auto for a model that was trained in bf16, otherwise float */
NM_CHOICES(nm_precision, NM_PRECISIONS);

typedef struct nm_device_config {
    const char *backend, *isa;
    nm_precision precision; /* of matrix multiplications; int8: of linear layers at inference */
    int64_t threads;        /* 0: all cores */
    int64_t ordinal;        /* cuda: number of the GPU */
    const char *gemm;       /* cuda: cublas, own */
    const char *cache;      /* cuda: folder of compiled kernels, auto or none */
    int64_t memory_mib;     /* limit for a training step; 0: nm_backend_memory */
    bool fold;    /* fold norms that are affine per feature into the linear layers that follow them */
    bool profile; /* time every kernel */
} nm_device_config;

/* Registers [device]; nm_options_find(options, "device") returns its nm_device_config. */
void nm_device_options_add(nm_options *options);
/* The same without the options of training, memory_mib and profile, and with the precision "trained". */
void nm_device_inference_options_add(nm_options *options);

/* NM_USAGE if the precision is for inference only. activity: for the message, for example "training". */
nm_status nm_device_reject_inference(const nm_device_config *device, const char *activity, nm_error *err);

/* Replaces device.precision = auto by the precision of this machine, for a configuration that is stored. */
nm_status nm_device_choose_precision(nm_options *options, nm_error *err);
bool nm_device_is_bf16(const nm_options *options); /* device.precision = bf16 */
/* Replaces device.precision = trained, given that of the models' training. */
nm_status nm_device_choose_trained(nm_options *options, bool trained_in_bf16, nm_error *err);

/* Creates the configured backend in float32, with bf16 matrix multiplications if the precision is bf16.
 * Errors: those of nm_backend_create. Free with nm_backend_free. */
nm_status nm_device_open(const nm_device_config *device, nm_backend **backend, nm_error *err);

/* Bytes that a training step may use: memory_mib, or nm_backend_memory. */
size_t nm_device_memory_bytes(const nm_device_config *device, const nm_backend *backend);
