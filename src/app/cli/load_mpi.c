#include "cli/load_mpi.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shared_library.h"
#include "cli/cli.h"
#include "train/comm_mpi.h"

/* Path of the module, heap; NULL: there is none. */
static char *find_module(void)
{
    static const char *const candidates[] = {"norma-mpi.so", NORMA_MODULE_FOLDER "/norma-mpi.so"};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        char *path = nm_cli_beside_program(candidates[i]);
        if (path && !access(path, F_OK))
            return path;
        free(path);
    }
    return NULL;
}

static nm_status load(const char *path, const nm_comm_mpi_module_type **module, nm_error *err)
{
    /* Modules of Open MPI look up the symbols of its library in the global scope. */
    void *library;
    nm_status status = nm_library_open(&library, path, RTLD_GLOBAL, err);
    if (status != NM_OK) {
        nm_error_prefix(err, "the module for MPI cannot be loaded");
        return status;
    }
    *module = dlsym(library, "nm_comm_mpi_module");
    if (!*module)
        return nm_fail(err, NM_UNSUPPORTED, "the module for MPI cannot be loaded: %s", dlerror());
    return strcmp((*module)->version, NORMA_VERSION)
               ? nm_fail(err, NM_MISMATCH, "%s is of version %.31s, but this is norma " NORMA_VERSION, path,
                         (*module)->version)
               : NM_OK;
}

static void find_ignored_signals(sigset_t *ignored)
{
    sigemptyset(ignored);
    for (int i = 1; i < NSIG; i++) {
        struct sigaction action;
        if (!sigaction(i, NULL, &action) && action.sa_handler == SIG_IGN)
            sigaddset(ignored, i);
    }
}

/* UCX, which MPI libraries use, installs a handler for SIGHUP, so that a program started by nohup would end
 * with its terminal. */
static void ignore_signals(const sigset_t *ignored)
{
    for (int i = 1; i < NSIG; i++)
        if (sigismember(ignored, i) == 1)
            signal(i, SIG_IGN);
}

nm_status nm_cli_open_mpi(nm_comm **comm, const nm_comm_mpi_setup *setup, nm_error *err)
{
    char *path = find_module();
    if (!path)
        return nm_fail(
            err, NM_UNSUPPORTED,
            setup->launched > 1
                ? "an MPI launcher has started several processes, but this program was built without "
                  "MPI (NORMA_MPI); with comm.backend = none each process trains a separate model"
                : "comm.backend = mpi: this program was built without MPI (NORMA_MPI)");
    const nm_comm_mpi_module_type *module;
    sigset_t ignored;
    find_ignored_signals(&ignored);
    nm_status status = load(path, &module, err);
    NM_THEN(status, module->open(comm, setup, err));
    ignore_signals(&ignored);
    free(path);
    return status;
}
