/* The reference backend: plain C kernels on one thread. */
#include "backend/ref.h"

#include "backend/backend_private.h"

nm_status nm_ref_backend_init(nm_backend *backend, const nm_backend_options *options, nm_error *err)
{
    (void)err;
    backend->threads = 1;
    if (options->fenced)
        nm_fence_install(backend);
    return NM_OK;
}
