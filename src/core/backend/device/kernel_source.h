/* The source text of the device kernels, for NVRTC; the build generates it from the files
 * (NormaDevice.cmake). */
#pragma once

typedef struct nm_kernel_source {
    const char *name, *text; /* as included: "backend/device/dialect.h" */
} nm_kernel_source;

extern const nm_kernel_source nm_kernel_sources[]; /* ends with {0} */
