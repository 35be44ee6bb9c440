/* The fenced mode: device memory is accessible only while a kernel runs. Host code that dereferences a
 * device pointer crashes, as it would with a device that has separate memory. Kernels of workers run in turn,
 * so that none makes the memory of another one inaccessible. */
#include <pthread.h>
#include <sys/mman.h>

#include "backend/fence.h"

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* kernels call kernels */

void nm_fence_lock(const nm_backend_private *inside)
{
    if (inside->fenced)
        pthread_mutex_lock(&lock);
}

void nm_fence_unlock(const nm_backend_private *inside)
{
    if (inside->fenced)
        pthread_mutex_unlock(&lock);
}

static void protect_regions(const nm_backend_private *inside, int access)
{
    for (size_t i = 0; i < inside->n_regions; i++)
        NM_ASSERT(mprotect(inside->regions[i].base, inside->regions[i].bytes, access) == 0);
    if (inside->main)
        protect_regions(inside->main, access);
}

#define K(name)                                                                                              \
    static void fenced_##name(nm_backend *b, const nm_##name##_args *args)                                   \
    {                                                                                                        \
        const nm_backend_private *inside = nm_backend_inside(b);                                             \
        nm_fence_lock(inside);                                                                               \
        protect_regions(inside, PROT_READ | PROT_WRITE);                                                     \
        inside->unfenced.name(b, args);                                                                      \
        protect_regions(inside, PROT_NONE);                                                                  \
        nm_fence_unlock(inside);                                                                             \
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
