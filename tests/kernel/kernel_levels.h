/* Backends at a CPU level for tests. Include after cmocka.h. */
#ifndef KERNEL_LEVELS_H
#define KERNEL_LEVELS_H

#include <string.h>

#include "norma/backend.h"

/* Slowest first. */
static const char *const cpu_levels[] = {"base",
#if defined(__x86_64__)
                                         "avx2",        "avx512", "vnni",
                                         "avx512_bf16", "amx"
#elif defined(__aarch64__)
                                         "neon", "dotprod"
#endif
};
enum { N_CPU_LEVELS = sizeof cpu_levels / sizeof *cpu_levels };

/* NULL with a message if this machine does not support a level above base; any other failure fails the
 * test. */
static inline nm_backend *level_create(nm_backend_options options)
{
    nm_backend *backend = NULL;
    nm_error err;
    nm_status status = nm_backend_create(&backend, &options, &err);
    if (status == NM_UNSUPPORTED && options.isa && strcmp(options.isa, "base") && strcmp(options.isa, "auto"))
        print_message("skipped: this machine does not support %s: %s\n", options.isa, err.text);
    else if (status != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

#endif
