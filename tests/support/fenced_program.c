/* The program `norma` in which every backend `ref` is fenced: host code that reads device memory crashes. The
 * linker replaces calls of nm_backend_create by the function below (--wrap). */
#include <string.h>

#include "norma/backend.h"

nm_status __real_nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err);
nm_status __wrap_nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err);

nm_status __wrap_nm_backend_create(nm_backend **backend, const nm_backend_options *options, nm_error *err)
{
    nm_backend_options fenced = *options;
    fenced.fenced = options->name && !strcmp(options->name, "ref");
    return __real_nm_backend_create(backend, &fenced, err);
}
