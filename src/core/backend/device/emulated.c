/* The backend `emulated`: the device kernels, run by the emulator. */
#include "backend/device/launch.h"

#include "backend/ref/ref.h"

nm_status nm_emulated_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
    return nm_fail(err, NM_UNSUPPORTED, "backend emulated needs an x86-64 or 64-bit Arm processor");
#endif
    if (options->dtype != NM_F32 || options->bf16)
        return nm_fail(err, NM_UNSUPPORTED, "backend emulated computes in float32 only");
    const nm_kernels *ref = nm_ref_kernels(NM_F32, false);
    nm_kernels *k = &backend->k;
    *k = (nm_kernels){.upload = ref->upload,
                      .download = ref->download,
                      .copy = ref->copy,
                      .zero = ref->zero,
                      .pack = ref->pack,
                      .pack_int8 = ref->pack_int8};
    nm_device_elementwise(k);
    nm_device_sequences(k);
    nm_device_norms(k);
    nm_device_products(k);
    nm_device_loss(k);
    return NM_OK;
}
