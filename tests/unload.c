/* A program that loads the shared library, computes with two threads and unloads it: the threads of the
 * OpenMP runtime wait for further work, in code that must stay in memory. Argument: libnorma.so. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#include "norma/norm.h"

enum { ROWS = 4096, WIDTH = 256 };

static float x[ROWS * WIDTH], y[ROWS * WIDTH];

int main(int argc, char **argv)
{
    void *library = dlopen(argc > 1 ? argv[1] : "libnorma.so", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "unload: %s\n", dlerror());
        return 1;
    }
    __typeof__(nm_backend_create) *backend_create = dlsym(library, "nm_backend_create");
    __typeof__(nm_backend_free) *backend_free = dlsym(library, "nm_backend_free");
    __typeof__(nm_norm_create) *norm_create = dlsym(library, "nm_norm_create");
    __typeof__(nm_norm_infer) *norm_infer = dlsym(library, "nm_norm_infer");
    __typeof__(nm_norm_free) *norm_free = dlsym(library, "nm_norm_free");
    const nm_backend_options options = {.name = "cpu", .threads = 2};
    const nm_norm_site site = {.width = WIDTH, .groups = 1};
    nm_backend *backend = NULL;
    nm_norm *norm = NULL;
    nm_error err = {NM_OK, ""};
    nm_status status = backend_create(&backend, &options, &err);
    if (status == NM_OK)
        status = norm_create(&norm, backend, "layer", NULL, &site, &err);
    if (status == NM_OK)
        status = norm_infer(norm, ROWS, x, y, &err);
    if (status != NM_OK)
        fprintf(stderr, "unload: %s\n", err.text);
    norm_free(norm);
    backend_free(backend);
    dlclose(library);
    sleep(1); /* the threads wake up */
    return (int)status;
}
