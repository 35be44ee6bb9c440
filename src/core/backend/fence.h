/* Of a backend in fenced mode (fence.c): around changes of its list of regions, which kernels of workers
 * read. Nothing on others. */
#ifndef NM_FENCE_H
#define NM_FENCE_H

#include "backend/backend_private.h"

void nm_fence_lock(const nm_backend_private *inside);
void nm_fence_unlock(const nm_backend_private *inside);

#endif
