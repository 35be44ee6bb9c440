/* The fenced mode: device memory is accessible only while a kernel runs. Host code that dereferences a
 * device pointer crashes, as it would with a device that has separate memory. */
#include <sys/mman.h>

#include "backend/backend_private.h"

static void protect_regions(nm_backend *backend, int access)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    for (size_t i = 0; i < inside->n_regions; i++)
        NM_ASSERT(mprotect(inside->regions[i].base, inside->regions[i].bytes, access) == 0);
}

#define K(name)                                                                                              \
    static void fenced_##name(nm_backend *b, const nm_##name##_args *args)                                   \
    {                                                                                                        \
        protect_regions(b, PROT_READ | PROT_WRITE);                                                          \
        nm_backend_inside(b)->unfenced.name(b, args);                                                        \
        protect_regions(b, PROT_NONE);                                                                       \
    }
NM_KERNELS(K)
#undef K

void nm_fence_install(nm_backend *backend)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    inside->fenced = true;
    inside->unfenced = backend->k;
#define K(name) backend->k.name = fenced_##name;
    NM_KERNELS(K)
#undef K
}
