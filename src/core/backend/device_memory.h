/* What a backend needs whose memory the host cannot access: reserved memory, and failures that are found
 * after the call. For other backends reserving is nm_backend_alloc, and nothing fails later. */
#ifndef NM_DEVICE_MEMORY_H
#define NM_DEVICE_MEMORY_H

#include "norma/backend.h"

/* Address space for `bytes` bytes, aligned as nm_backend_alloc. Its first bytes are memory after
 * nm_backend_commit. Free it with nm_backend_dealloc.
 * NM_MEMORY  no address space */
nm_status nm_backend_reserve(nm_backend *backend, size_t bytes, void **memory, nm_error *err);
/* The first `bytes` bytes of reserved memory become accessible, zeroed where they are new. Does nothing if
 * they are. false: the device has no memory. */
bool nm_backend_commit(nm_backend *backend, void *memory, size_t bytes);

/* Whether the host cannot access the memory of the backend, because a device has its own. */
bool nm_backend_memory_is_separate(const nm_backend *backend);

/* Kernels cannot return errors. Call this after reading a result and before using it.
 * NM_DEVICE  the device or its driver reported an error; results since then are undefined
 * NM_MEMORY  the device has no memory for what a kernel needs */
nm_status nm_backend_check(nm_backend *backend, nm_error *err);

/* How often the host has waited for the device, also in workers: backends emulated and cuda. */
int64_t nm_backend_waits(const nm_backend *backend);

/* Bytes of memory that a training step may use: free memory of the device, or that of the machine. */
size_t nm_backend_memory(const nm_backend *backend);

#endif
