/* Shared libraries that are loaded when they are needed. */
#pragma once

#include "norma/status.h"

/* dlopen(name, RTLD_NOW | scope). NM_UNSUPPORTED if it is not installed or cannot be used, NM_MEMORY if
 * memory is insufficient to load it; the message is that of dlerror(). *library is NULL after an error. */
nm_status nm_library_open(void **library, const char *name, int scope, nm_error *err);
/* Sets the pointer to a function at `function` to the address of a symbol; false: there is none. */
bool nm_library_find(void *library, const char *name, void *function);
