/* The fenced mode: every kernel is wrapped so that the memory handed out is open only while it runs. Code
 * outside the kernels that touches device memory dies at once, as it would go wrong on a device with memory
 * of its own. */
#include <sys/mman.h>

#include "backend/calls.h"

static void fence_set(nm_backend *backend, int access)
{
    const nm_backend_private *inside = nm_backend_inside(backend);
    for (size_t i = 0; i < inside->n_regions; i++)
        NM_ASSERT(mprotect(inside->regions[i].base, inside->regions[i].bytes, access) == 0);
}

/* clang-format off */
#define K(name, args)                                                                                                  \
    static void fenced_##name args                                                                                     \
    {                                                                                                                  \
        fence_set(b, PROT_READ | PROT_WRITE);                                                                          \
        nm_backend_inside(b)->inner.name CALL_##name;                                                                  \
        fence_set(b, PROT_NONE);                                                                                       \
    }
/* clang-format on */
NM_KERNELS(K)
#undef K

void nm_fence_install(nm_backend *backend)
{
    nm_backend_private *inside = nm_backend_inside(backend);
    inside->fenced = true;
    inside->inner = backend->k;
#define K(name, args) backend->k.name = fenced_##name;
    NM_KERNELS(K)
#undef K
}
