/* The backend `emulated`: the device kernels, run by the emulator. Its memory is the memory of the host. */
#include "backend/device/launch.h"

#include "backend/backend_private.h"

static void emulated_upload(nm_backend *b, const nm_upload_args *args)
{
    (void)b;
    if (args->bytes)
        memmove(args->device, args->host, args->bytes);
}

static void emulated_download(nm_backend *b, const nm_download_args *args)
{
    nm_backend_count_wait(b);
    if (args->bytes)
        memmove(args->host, args->device, args->bytes);
}

static void emulated_copy(nm_backend *b, const nm_copy_args *args)
{
    (void)b;
    if (args->bytes)
        memmove(args->to, args->from, args->bytes);
}

static void emulated_zero(nm_backend *b, const nm_zero_args *args)
{
    (void)b;
    if (args->bytes)
        memset(args->data, 0, args->bytes);
}

void nm_device_fill(nm_kernels *k)
{
#define K(name) k->name = nm_launch_##name;
    NM_COMPUTATIONS(K)
#undef K
}

nm_status nm_emulated_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    return nm_fail(err, NM_UNSUPPORTED, "backend emulated needs an x86-64 or 64-bit Arm processor");
#endif
    if (options->dtype != NM_F32)
        return nm_fail(err, NM_UNSUPPORTED, "backend emulated computes in float32 only");
    nm_kernels *k = &backend->k;
    *k = (nm_kernels){.upload = emulated_upload,
                      .download = emulated_download,
                      .copy = emulated_copy,
                      .zero = emulated_zero};
    nm_device_fill(k);
    return NM_OK;
}
