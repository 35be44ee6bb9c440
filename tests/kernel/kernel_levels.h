/* The levels of the CPU backend, as tests walk through them. Include behind cmocka.h. */
#ifndef KERNEL_LEVELS_H
#define KERNEL_LEVELS_H

#include <string.h>

#include "norma/backend.h"

/* Worst first. */
static const char *const cpu_levels[] = {"base",
#if defined(__x86_64__)
                                         "avx2", "avx512", "vnni"
#endif
};
enum { N_CPU_LEVELS = sizeof cpu_levels / sizeof *cpu_levels };

/* NULL, and a line that says so, where this machine lacks a level above base; whatever else is missing is a failure:
 * no machine lacks ref, base or auto. */
static inline nm_backend *level_create(nm_backend_options options)
{
    nm_backend *backend = NULL;
    nm_error err;
    nm_status status = nm_backend_create(&backend, &options, &err);
    if (status == NM_UNSUPPORTED && options.isa && strcmp(options.isa, "base") && strcmp(options.isa, "auto"))
        print_message("left out, this machine has no %s: %s\n", options.isa, err.text);
    else if (status != NM_OK)
        fail_msg("%s", err.text);
    return backend;
}

#endif
