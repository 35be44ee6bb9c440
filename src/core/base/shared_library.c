#include "base/shared_library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Whether a message of dlerror() is that of a loader that got no memory; there is no errno value. */
static bool is_memory(const char *message)
{
    static const char *const parts[] = {"out of memory", "cannot allocate", "cannot create", "cannot map"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(message, parts[i]))
            return true;
    return strstr(message, strerror(ENOMEM));
}

nm_status nm_library_open(void **library, const char *name, int scope, nm_error *err)
{
    *library = dlopen(name, RTLD_NOW | scope);
    if (*library)
        return NM_OK;
    const char *reason = dlerror();
    if (is_memory(reason))
        return nm_fail(err, NM_MEMORY, "out of memory: %s", reason);
    return nm_fail(err, NM_UNSUPPORTED, "%s", reason);
}

/* C has no conversion from an object pointer to a function pointer. */
bool nm_library_find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol;
}
