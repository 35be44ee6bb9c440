/* The dry run: a training step is executed with kernels that do nothing, to measure its memory. softmax_loss,
 * which needs the most scratch memory, requests it and returns. */
#include <string.h>

#include "backend/backend_private.h"

#define K(name)                                                                                              \
    static void skip_##name(nm_backend *b, const nm_##name##_args *args)                                     \
    {                                                                                                        \
        (void)b;                                                                                             \
        (void)args;                                                                                          \
    }
NM_KERNELS(K)
#undef K

static void zero_download(nm_backend *b, const nm_download_args *args)
{
    (void)b;
    if (args->bytes)
        memset(args->host, 0, args->bytes);
}

static void zero_dot(nm_backend *b, const nm_dot_args *args)
{
    (void)b;
    if (args->out)
        *args->out = 0;
}

nm_kernels nm_dry_run_kernels(const nm_kernels *active)
{
    nm_kernels kernels = {
#define K(name) .name = skip_##name,
        NM_KERNELS(K)
#undef K
    };
    kernels.download = zero_download;
    kernels.dot = zero_dot;
    kernels.softmax_loss = active->softmax_loss;
    return kernels;
}
