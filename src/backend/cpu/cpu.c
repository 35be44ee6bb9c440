/* The CPU backend: so far the plain kernels in float. */
#include "backend/cpu/cpu.h"

nm_status nm_cpu_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
    if (options->dtype != NM_F32)
        return nm_fail(err, NM_UNSUPPORTED, "backend cpu computes in float32 only");
    backend->isa = "base";
    return NM_OK;
}
