/* Of a backend in fenced mode (fence.c): around changes of its list of regions, which kernels of workers
 * read. Nothing on others. */
#pragma once

#include "backend/backend_private.h"

void nm_fence_lock(const nm_backend_private *inside);
void nm_fence_unlock(const nm_backend_private *inside);
